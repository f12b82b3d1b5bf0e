#include "model.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "errors.hpp"

namespace cusz::v2 {

namespace {

constexpr int max_change = 31;

// The table that was trained for symbols of this mean size.
std::uint32_t ideal_table(std::uint64_t n, std::uint64_t size) {
    if (size < 256 * n) {
        const int log_of_mean =
            static_cast<int>(log256(std::max<std::uint64_t>(size, 1))) - static_cast<int>(log256(n)) - 2048;
        return static_cast<std::uint32_t>(std::max(0, (24 * 256 + 3 * log_of_mean + 128) >> 8));
    }
    const std::uint64_t table = 24 + (4 * (size - 256 * n) + 128 * n) / (256 * n);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(table, n_size_tables - 1));
}

// Lower bounds of costs, by which a search can end early.
struct LeastCosts {
    std::array<std::uint16_t, n_size_tables> of_ideal; // by the ideal table, of all others
    std::array<std::uint16_t, 2> of_missing;           // special and verbatim values
    std::array<std::array<std::uint16_t, max_change + 1>, 2>
        of_changes; // by `tables_of_changes`: of this size or larger
};

const LeastCosts& least_costs() {
    static const LeastCosts costs = [] {
        LeastCosts least;
        const Tables& t = tables();
        for (std::size_t i = 0; i < n_size_tables; ++i) least.of_ideal[i] = *std::ranges::min_element(t.crossed[i]);
        for (std::size_t j = 0; j < 2; ++j) {
            least.of_missing[j] = t.cost[0][j == 0 ? special : verbatim];
            for (const auto& of : t.cost)
                least.of_missing[j] = std::min(least.of_missing[j], of[j == 0 ? special : verbatim]);
            const auto& of = t.cost[tables_of_changes[j]];
            std::uint16_t cheapest = std::numeric_limits<std::uint16_t>::max();
            for (std::size_t size = max_change + 1; size-- > 0;)
                least.of_changes[j][size] = cheapest =
                    std::min({cheapest, of[zero_symbol - size], of[zero_symbol + size]});
        }
        return least;
    }();
    return costs;
}

// The values of a context: n that cost as much as the ideal table's own symbols, and missing ones.
struct Occurring {
    std::uint32_t context;
    std::uint64_t n;
    std::uint32_t ideal;        // the best table, leaving missing values aside
    const std::uint16_t* costs; // by table
    std::array<std::uint64_t, 2> missing;

    std::uint64_t cost(std::size_t table) const { // in 1/256 bits
        if (missing[0] + missing[1] == 0) return n * costs[table];
        const auto& of = tables().cost[table];
        return n * costs[table] + missing[0] * of[special] + missing[1] * of[verbatim];
    }
    // No table costs less than this.
    std::uint64_t bound() const {
        const LeastCosts& least = least_costs();
        return n * least.of_ideal[ideal] + missing[0] * least.of_missing[0] + missing[1] * least.of_missing[1];
    }
    std::uint32_t best() const {
        if (context % n_places < n_ordinary_places) return ideal;
        std::uint32_t cheapest = n_size_tables;
        for (std::uint32_t table = n_size_tables + 1; table < n_tables; ++table)
            if (cost(table) < cost(cheapest)) cheapest = table;
        return cheapest;
    }
};

// The best preset without a map, and its cost in 1/256 bits, without extra bits.
struct Preset {
    std::uint32_t number = 0;
    std::uint64_t cost = 0;
};

struct Costs {
    const Counts& counts;
    std::vector<Occurring> contexts;

    explicit Costs(const Counts& of) : counts(of) {
        contexts.reserve(n_contexts);
        for (std::uint32_t c = 0; c < n_contexts; ++c)
            if (const auto& missing = counts.missing[c]; counts.n[c] + missing[0] + missing[1] > 0) {
                const std::uint32_t ideal = counts.n[c] > 0 ? ideal_table(counts.n[c], counts.size[c]) : 0;
                contexts.push_back({c, counts.n[c], ideal, tables().crossed[ideal].data(), missing});
            }
    }
    std::uint64_t group(std::uint32_t c, std::size_t j) const {
        const auto& [zero, significant] = counts.groups[c];
        if (zero + significant == 0) return 0;
        const Tables& t = tables();
        const std::uint32_t g = t.group_frequency[j];
        return significant * t.cost_of_frequency[g] + zero * t.cost_of_frequency[rans_total - g];
    }
    Preset best_preset(std::uint32_t axes) const {
        Preset best{0, std::numeric_limits<std::uint64_t>::max()};
        for (std::uint32_t preset = 0; preset < n_presets; ++preset) {
            const auto& table_of = tables().table_of[axes - 1][preset];
            const auto& group_of = tables().group_of[axes - 1][preset];
            std::uint64_t cost = 0;
            for (std::uint32_t c = 0; c < n_group_contexts; ++c) cost += group(c, group_of[c]);
            for (auto c = contexts.begin(); c != contexts.end() && cost < best.cost; ++c)
                cost += c->cost(table_of[c->context]);
            if (cost < best.cost) best = {preset, cost};
        }
        return best;
    }
};

} // namespace

void Counts::add(const Counts& other) {
    for (std::size_t c = 0; c < n.size(); ++c) {
        n[c] += other.n[c];
        size[c] += other.size[c];
        for (std::size_t kind = 0; kind < 2; ++kind) missing[c][kind] += other.missing[c][kind];
    }
    for (std::size_t c = 0; c < groups.size(); ++c)
        for (std::size_t flag = 0; flag < 2; ++flag) groups[c][flag] += other.groups[c][flag];
}

Model model_of_preset(std::uint32_t axes, std::uint32_t preset) {
    return {preset, false, tables().table_of[axes - 1][preset], tables().group_of[axes - 1][preset]};
}

Fit best_fit(const Counts& counts) {
    const Costs costs(counts);
    Fit fit;
    for (const Occurring& c : costs.contexts) {
        const std::uint32_t table = c.best();
        fit.model.table[c.context] = static_cast<std::uint8_t>(table);
        fit.values += c.cost(table);
    }
    for (std::uint32_t c = 0; c < n_group_contexts; ++c) {
        std::uint64_t least = costs.group(c, 0);
        for (std::size_t j = 1; j < 64; ++j) least = std::min(least, costs.group(c, j));
        fit.groups += least;
    }
    return fit;
}

Model choose_model(const Counts& counts, std::uint32_t axes, std::uint32_t rows, ModelCost* cost_of_it,
                   std::uint64_t values) {
    const Costs costs(counts);
    const auto [best, least] = costs.best_preset(axes);
    if (cost_of_it != nullptr) *cost_of_it = {least, 0};
    std::uint64_t n = 0;
    bool has_missing = false;
    for (const Occurring& c : costs.contexts) {
        n += c.n + c.missing[0] + c.missing[1];
        has_missing = has_missing || c.context % n_places >= n_ordinary_places;
    }
    if (std::max(n, values) < (has_missing ? map_from_with_missing : map_from)) return model_of_preset(axes, best);

    ModelCost with_map;
    const Tables& all = tables();
    const LeastCosts& lower_bounds = least_costs();
    auto next = costs.contexts.begin();
    const auto change = [&](std::uint32_t context, int expected, std::uint8_t table) {
        const bool is_ordinary = context >= n_contexts || context % n_places < n_ordinary_places; // j is below 64, too
        const Occurring* here = nullptr;
        if (context < n_contexts && next != costs.contexts.end() && next->context == context) here = &*next++;
        const auto cost_of_change = [&](int d) {
            return std::uint64_t{all.cost[table][static_cast<std::size_t>(static_cast<int>(zero_symbol) + d)]};
        };
        const auto cost = [&](int d) {
            const auto to = static_cast<std::size_t>(expected + d);
            const std::uint64_t own = context >= n_contexts ? costs.group(context - n_contexts, to) : here->cost(to);
            return own + cost_of_change(d);
        };
        if (context < n_contexts && here == nullptr) { // no change is the cheapest
            with_map.map += cost_of_change(0);
            return 0;
        }
        int chosen = 0; // among equally cheap ones the smaller in magnitude, then the negative one
        std::uint64_t cheapest = cost(0);
        const auto& of_others = lower_bounds.of_changes[table == tables_of_changes[1]];
        const std::uint64_t least_of_tables = here != nullptr ? here->bound() : 0;
        for (int size = 1; size <= max_change && least_of_tables + of_others[static_cast<std::size_t>(size)] < cheapest;
             ++size)
            for (const int d : {-size, size}) {
                if (expected + d < first_table(is_ordinary) || expected + d > last_table(is_ordinary)) continue;
                if (all.frequency[table][static_cast<std::size_t>(static_cast<int>(zero_symbol) + d)] == 0) continue;
                if (const std::uint64_t own = cost(d); own < cheapest) {
                    chosen = d;
                    cheapest = own;
                }
            }
        with_map.map += cost_of_change(chosen);
        with_map.values += cheapest - cost_of_change(chosen);
        return chosen;
    };
    const Model changed = changed_by_map(axes, best, rows, change);
    if (with_map.values + with_map.map >= least) return model_of_preset(axes, best);
    if (cost_of_it != nullptr) *cost_of_it = with_map;
    return changed;
}

std::vector<MapSymbol> map_of(const Model& model, std::uint32_t axes, std::uint32_t rows) {
    std::vector<MapSymbol> symbols;
    changed_by_map(axes, model.preset, rows, [&](std::uint32_t context, int expected, std::uint8_t table) {
        const int wanted = context < n_contexts ? model.table[context] : model.group[context - n_contexts];
        symbols.push_back({table, static_cast<std::uint8_t>(static_cast<int>(zero_symbol) + wanted - expected)});
        return wanted - expected;
    });
    return symbols;
}

void fail_map() { fail(CUSZ_ERROR_CORRUPT, "corrupt archive: a map with a table that there is not"); }

} // namespace cusz::v2
