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
    std::uint64_t least() const {
        if (context % n_places < n_ordinary_places) return cost(ideal);
        std::uint64_t cheapest = cost(n_size_tables);
        for (std::size_t table = n_size_tables + 1; table < n_tables; ++table)
            cheapest = std::min(cheapest, cost(table));
        return cheapest;
    }
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

Preset choose_preset(const Counts& counts, std::uint32_t axes) { return Costs(counts).best_preset(axes); }

std::uint64_t bits_with_map(const Counts& counts) {
    const Costs costs(counts);
    std::uint64_t sum = 0;
    for (const Occurring& c : costs.contexts) sum += c.least();
    for (std::uint32_t c = 0; c < n_group_contexts; ++c) {
        std::uint64_t least = costs.group(c, 0);
        for (std::size_t j = 1; j < 64; ++j) least = std::min(least, costs.group(c, j));
        sum += least;
    }
    return sum / 256;
}

Model choose_model(const Counts& counts, std::uint32_t axes, std::uint32_t rows) {
    const Costs costs(counts);
    const auto [best, least] = costs.best_preset(axes);
    std::uint64_t n = 0;
    for (std::uint32_t c = 0; c < n_contexts; ++c) n += counts.n[c] + counts.missing[c][0] + counts.missing[c][1];
    if (n < map_from) return model_of_preset(axes, best);

    std::uint64_t of_map = 0;
    auto next = costs.contexts.begin();
    const auto change = [&](std::uint32_t context, int expected, std::uint8_t table) {
        const bool is_ordinary = context >= n_contexts || context % n_places < n_ordinary_places; // j is below 64, too
        const Occurring* here = nullptr;
        if (context < n_contexts && next != costs.contexts.end() && next->context == context) here = &*next++;
        const auto cost = [&](int d) {
            const auto to = static_cast<std::size_t>(expected + d);
            const std::uint64_t own = context >= n_contexts ? costs.group(context - n_contexts, to) : here->cost(to);
            return own + tables().cost[table][static_cast<std::size_t>(static_cast<int>(zero_symbol) + d)];
        };
        if (context < n_contexts && here == nullptr) { // no change is the cheapest
            of_map += tables().cost[table][zero_symbol];
            return 0;
        }
        int chosen = 0; // among equally cheap ones the smaller in magnitude, then the negative one
        std::uint64_t cheapest = cost(0);
        for (int size = 1; size <= max_change; ++size)
            for (const int d : {-size, size}) {
                if (expected + d < first_table(is_ordinary) || expected + d > last_table(is_ordinary)) continue;
                if (tables().frequency[table][static_cast<std::size_t>(static_cast<int>(zero_symbol) + d)] == 0)
                    continue;
                if (const std::uint64_t own = cost(d); own < cheapest) {
                    chosen = d;
                    cheapest = own;
                }
            }
        of_map += cheapest;
        return chosen;
    };
    const Model with_map = changed_by_map(axes, best, rows, change);
    return of_map < least ? with_map : model_of_preset(axes, best);
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
