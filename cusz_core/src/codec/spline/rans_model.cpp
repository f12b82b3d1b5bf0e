#include "rans_model.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "errors.hpp"

namespace cusz {

namespace {

using Frequencies = std::array<std::uint16_t, v2::n_symbols>;
using Histogram = std::array<std::uint64_t, v2::n_symbols>;

class BitWriter {
public:
    void put(std::uint32_t value, int bits) { // fewer than 32, and no others are set
        held_ |= std::uint64_t{value} << n_;
        n_ += bits;
        if (n_ >= 32) put_word();
    }
    std::vector<std::byte> take() {
        if (n_ > 0) put_word();
        return std::move(bytes_);
    }

private:
    void put_word() {
        const auto word = static_cast<std::uint32_t>(held_);
        bytes_.resize(bytes_.size() + sizeof word);
        std::memcpy(bytes_.data() + bytes_.size() - sizeof word, &word, sizeof word);
        held_ >>= 32;
        n_ -= 32;
    }
    std::vector<std::byte> bytes_;
    std::uint64_t held_ = 0;
    int n_ = 0;
};

class BitReader {
public:
    explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
    std::uint32_t take(int bits) { // fewer than 32
        const std::size_t end = at_ + static_cast<std::size_t>(bits);
        if (end > bytes_.size() * 8) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the model is too short");
        std::uint64_t here = 0;
        std::memcpy(&here, bytes_.data() + at_ / 8, std::min(sizeof here, bytes_.size() - at_ / 8));
        const auto value = static_cast<std::uint32_t>(here >> at_ % 8 & ((std::uint64_t{1} << bits) - 1));
        at_ = end;
        return value;
    }
    // Throws CORRUPT unless only zeros are left, in the last word.
    void finish() {
        if ((at_ + 31) / 32 * 4 != bytes_.size()) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the model is too long");
        while (at_ < bytes_.size() * 8)
            if (take(1) != 0) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the padding of the model is not 0");
    }

private:
    std::span<const std::byte> bytes_;
    std::size_t at_ = 0;
};

// size_of and weight_of, looked up.
struct Sizes {
    std::array<std::uint16_t, v2::rans_total + 1> of_frequency{};
    std::array<std::uint32_t, v2::n_symbols> of_code{};
    constexpr Sizes() {
        for (std::uint32_t f = 1; f <= v2::rans_total; ++f) of_frequency[f] = static_cast<std::uint16_t>(size_of(f));
        for (std::uint32_t s = 0; s < v2::n_symbols; ++s) of_code[s] = weight_of(s);
    }
};
constexpr Sizes sizes{};

// Frequencies that add up to v2::rans_total; every symbol that is counted, or in every table, gets at least 1.
Frequencies normalised(const Histogram& counts) {
    Frequencies frequency{};
    const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    std::int64_t left = v2::rans_total;
    std::array<std::uint16_t*, v2::n_symbols> given{};
    auto last = given.begin();
    for (std::uint32_t s = 0; s < v2::n_symbols; ++s) {
        if (counts[s] == 0 && !in_every_table(s)) continue;
        const std::uint64_t share = total == 0 ? 0 : (counts[s] * v2::rans_total + total / 2) / total;
        frequency[s] = static_cast<std::uint16_t>(std::max<std::uint64_t>(share, 1));
        left -= frequency[s];
        *last++ = &frequency[s];
    }
    // Rounding leaves some over, or took too many: the most frequent symbols bear it, one each in turn.
    while (left != 0) {
        std::uint16_t* const largest = *std::max_element(given.begin(), last, [](auto* a, auto* b) { return *a < *b; });
        const std::int64_t change = left > 0 ? left : -std::min<std::int64_t>(-left, std::max(1, *largest / 64));
        *largest = static_cast<std::uint16_t>(*largest + change);
        left -= change;
    }
    return frequency;
}

} // namespace

void RansCounts::clear() {
    for (std::uint32_t c = 0; c < v2::n_contexts; ++c)
        if (used[c]) symbol[c].fill(0);
    used.fill(false);
    group = {};
}

void RansCounts::add(const RansCounts& other, std::uint64_t of_field, std::uint64_t of_coarser) {
    const auto add_to = [](auto& sums, const auto& counts, std::uint64_t weight) {
        for (std::size_t s = 0; s < sums.size(); ++s)
            sums[s] = static_cast<std::uint32_t>(std::min(counts[s] * weight + sums[s], std::uint64_t{UINT32_MAX}));
    };
    for (std::uint32_t c = 0; c < v2::n_contexts; ++c) {
        const std::uint64_t weight = c < v2::row_of(1, 1) ? of_field : of_coarser;
        if (!other.used[c] || weight == 0) continue;
        add_to(symbol[c], other.symbol[c], weight);
        used[c] = true;
    }
    for (std::size_t c = 0; c < v2::n_group_contexts; ++c) {
        add_to(group[0][c], other.group[0][c], of_field);
        add_to(group[1][c], other.group[1][c], of_coarser);
    }
}

std::vector<std::byte> RansModel::bytes() const {
    BitWriter out;
    out.put(n_tables - 1, 4);
    if (n_tables > 1) {
        std::uint8_t before = 0;
        for (std::size_t row = 0; row < v2::n_contexts; row += v2::n_activities) {
            const auto same = [&](std::size_t i) {
                return row == 0 ? table[i] == 0 : table[row + i] == table[row - v2::n_activities + i];
            };
            bool as_before = true;
            for (std::size_t i = 0; i < v2::n_activities; ++i) as_before = as_before && same(i);
            out.put(!as_before, 1);
            for (std::size_t i = row; i < row + v2::n_activities; ++i) {
                if (!as_before) {
                    out.put(table[i] != before, 1);
                    if (table[i] != before) out.put(table[i], 4);
                }
                before = table[i];
            }
        }
    }
    for (std::size_t t = 0; t < n_tables; ++t) {
        std::uint32_t first = 0, last = v2::n_symbols - 1;
        while (frequency[t][first] == 0) ++first;
        while (frequency[t][last] == 0) --last;
        out.put(first, 8);
        out.put(last - first, 8);
        for (std::uint32_t s = first; s <= last; ++s) {
            const std::uint32_t f = frequency[t][s];
            const int width = static_cast<int>(std::bit_width(f));
            out.put(static_cast<std::uint32_t>(width), 4);
            if (width > 1) out.put(f ^ 1u << (width - 1), width - 1);
        }
    }
    for (const std::uint16_t g : significant) out.put(g, 12);
    return out.take();
}

RansModel RansModel::parse(std::span<const std::byte> bytes) {
    BitReader in(bytes);
    RansModel model;
    model.n_tables = in.take(4) + 1;
    if (model.n_tables > 1) {
        std::uint8_t before = 0;
        for (std::size_t row = 0; row < v2::n_contexts; row += v2::n_activities) {
            const bool given = in.take(1) != 0;
            for (std::size_t i = 0; i < v2::n_activities; ++i) {
                if (!given)
                    before = row == 0 ? 0 : model.table[row - v2::n_activities + i];
                else if (in.take(1) != 0)
                    before = static_cast<std::uint8_t>(in.take(4));
                if (before >= model.n_tables) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: a context has table ", before);
                model.table[row + i] = before;
            }
        }
    }
    for (std::size_t t = 0; t < model.n_tables; ++t) {
        const std::uint32_t first = in.take(8), last = first + in.take(8);
        if (last >= v2::n_symbols) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: table ", t, " has symbol ", last);
        std::uint32_t total = 0;
        for (std::uint32_t s = first; s <= last; ++s) {
            const int width = static_cast<int>(in.take(4));
            if (width > 13) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: a frequency has ", width, " bits");
            const std::uint32_t f = width == 0 ? 0 : 1u << (width - 1) | in.take(width - 1);
            model.frequency[t][s] = static_cast<std::uint16_t>(f);
            total += f;
        }
        if (total != v2::rans_total)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the frequencies of table ", t, " add up to ", total);
        for (const std::uint32_t s :
             {v2::alphabet.zero(), v2::alphabet.escape(0), v2::alphabet.escape(-1), v2::alphabet.missing()})
            if (model.frequency[t][s] == 0) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: table ", t, " lacks symbol ", s);
    }
    for (auto& g : model.significant) {
        g = static_cast<std::uint16_t>(in.take(12));
        if (g == 0) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: a group's frequency is 0");
    }
    in.finish();
    return model;
}

std::array<std::uint64_t, 3> coded_size(const RansModel& model, const RansCounts& counts) {
    std::array<std::array<std::uint32_t, v2::n_symbols>, v2::max_tables> bits{};
    for (std::uint32_t t = 0; t < model.n_tables; ++t)
        for (std::uint32_t s = 0; s < v2::n_symbols; ++s) {
            const bool escapes = model.frequency[t][s] == 0;
            const std::uint32_t coded = escapes ? v2::alphabet.escape(v2::alphabet.meaning(s).leading) : s;
            bits[t][s] = sizes.of_frequency[model.frequency[t][coded]] + 256 * v2::alphabet.meaning(coded).extra_bits;
        }
    std::array<std::uint64_t, 3> size{};
    for (std::uint32_t c = 0; c < v2::n_contexts; ++c) {
        if (!counts.used[c]) continue;
        const auto& of_table = bits[model.table[c]];
        std::uint64_t sum = 0;
        for (std::uint32_t s = 0; s < v2::n_symbols; ++s) sum += std::uint64_t{counts.symbol[c][s]} * of_table[s];
        size[c / v2::row_of(1, 1)] += sum;
    }
    for (std::size_t c = 0; c < v2::n_group_contexts; ++c)
        for (std::size_t i = 0; i < 2; ++i) {
            const std::uint32_t g = model.significant[c];
            size[i] += std::uint64_t{counts.group[i][c][0]} * sizes.of_frequency[v2::rans_total - g];
            size[i] += std::uint64_t{counts.group[i][c][1]} * sizes.of_frequency[g];
        }
    return size;
}

RansModel choose_model(const RansCounts& counts) {
    RansModel model;
    // The contexts that occur, with their symbols that do.
    struct Symbol {
        std::uint32_t number, weight;
    };
    struct Context {
        std::uint32_t number;
        std::uint64_t n = 0, size = 0;   // size: sum over its codes
        std::size_t first = 0, last = 0; // of its symbols
        std::uint64_t mean() const { return size / n; }
        std::uint64_t share() const { return share_of(n, size); }
    };
    std::vector<Symbol> symbols;
    std::vector<Context> contexts;
    std::uint64_t n_values = 0;
    for (std::uint32_t c = 0; c < v2::n_contexts; ++c) {
        Context context{.number = c, .first = symbols.size()};
        const auto& of_context = counts.symbol[c];
        if (!counts.used[c]) continue;
        constexpr std::uint32_t at_once = 15; // of which mostly none occurs
        static_assert(v2::n_symbols % at_once == 0);
        for (std::uint32_t some = 0; some < v2::n_symbols; some += at_once) {
            if (std::all_of(&of_context[some], &of_context[some] + at_once, [](auto n) { return n == 0; })) continue;
            std::size_t last = symbols.size();
            symbols.resize(last + at_once);
            for (std::uint32_t s = some; s < some + at_once; ++s) { // without branches, which would be mispredicted
                const std::uint32_t weight = of_context[s];
                symbols[last] = {s, weight};
                last += weight > 0;
                context.n += weight;
                context.size += std::uint64_t{weight} * sizes.of_code[s];
            }
            symbols.resize(last);
        }
        context.last = symbols.size();
        n_values += context.n;
        contexts.push_back(context);
    }
    std::stable_sort(contexts.begin(), contexts.end(),
                     [](const Context& a, const Context& b) { return a.mean() < b.mean(); });
    const std::uint64_t affordable = std::min<std::uint64_t>(n_values / 4096 + 2, contexts.size());
    model.n_tables = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(affordable, 1, v2::max_tables));
    const std::uint32_t n_tables = model.n_tables;

    // At first every table gets about the same share of the bits.
    std::uint64_t all = 0, before = 0;
    for (const Context& c : contexts) all += c.share();
    for (const Context& c : contexts) {
        const std::uint64_t place = (before + c.share() / 2) * n_tables / std::max<std::uint64_t>(all, 1);
        model.table[c.number] = static_cast<std::uint8_t>(std::min<std::uint64_t>(n_tables - 1, place));
        before += c.share();
    }

    const auto make_tables = [&] {
        std::vector<Histogram> merged(n_tables);
        for (const Context& c : contexts)
            for (std::size_t i = c.first; i < c.last; ++i)
                merged[model.table[c.number]][symbols[i].number] += symbols[i].weight;
        for (std::uint32_t t = 0; t < n_tables; ++t) model.frequency[t] = normalised(merged[t]);
    };
    make_tables();
    // Then contexts go to the table that codes them shortest, twice.
    for (int round = 0; round < 2 && n_tables > 1; ++round) {
        // In f64, which is exact, as sums are below 2^52; for half of the tables at once, as there are often few.
        constexpr std::uint32_t half = v2::max_tables / 2;
        std::array<std::array<double, v2::max_tables>, v2::n_symbols> bits{};
        for (std::size_t s = 0; s < v2::n_symbols; ++s)
            for (std::uint32_t t = 0; t < n_tables; ++t)
                bits[s][t] = model.frequency[t][s] == 0 ? size_of_unknown : sizes.of_frequency[model.frequency[t][s]];
        for (const Context& c : contexts) {
            double least = std::numeric_limits<double>::max();
            for (std::uint32_t first = 0; first < n_tables; first += half) {
                std::array<double, half> cost{};
                for (std::size_t i = c.first; i < c.last; ++i) {
                    const double* const of_symbol = &bits[symbols[i].number][first];
                    for (std::uint32_t t = 0; t < half; ++t) cost[t] += symbols[i].weight * of_symbol[t];
                }
                for (std::uint32_t t = 0; t < std::min(half, n_tables - first); ++t) {
                    if (cost[t] >= least) continue;
                    least = cost[t];
                    model.table[c.number] = static_cast<std::uint8_t>(first + t);
                }
            }
        }
        make_tables();
    }
    // Contexts that do not occur take the table before them, which costs the fewest bits to say.
    std::array<bool, v2::n_contexts> occurs{};
    for (const Context& c : contexts) occurs[c.number] = true;
    for (std::size_t c = 0; c < v2::n_contexts; ++c)
        if (!occurs[c]) model.table[c] = c == 0 ? std::uint8_t{0} : model.table[c - 1];
    for (std::size_t row = v2::n_activities; row < v2::n_contexts; row += v2::n_activities) {
        bool none = true;
        for (std::size_t i = row; i < row + v2::n_activities; ++i) none = none && !occurs[i];
        if (none)
            std::copy_n(model.table.begin() + static_cast<std::ptrdiff_t>(row - v2::n_activities), v2::n_activities,
                        model.table.begin() + static_cast<std::ptrdiff_t>(row));
    }

    for (std::size_t c = 0; c < v2::n_group_contexts; ++c) {
        const auto number = [&](std::size_t flag) {
            return std::uint64_t{counts.group[0][c][flag]} + counts.group[1][c][flag];
        };
        const std::uint64_t significant = number(1), total = number(0) + significant;
        const std::uint64_t g = total == 0 ? v2::rans_total / 2 : (significant * v2::rans_total + total / 2) / total;
        model.significant[c] = static_cast<std::uint16_t>(std::clamp<std::uint64_t>(g, 1, v2::rans_total - 1));
    }
    return model;
}

} // namespace cusz
