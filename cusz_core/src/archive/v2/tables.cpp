#include "tables.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace cusz::v2 {

namespace {

constexpr std::int16_t constants[] = {
#include "tables.inc"
};
constexpr std::size_t constants_of_table = 32 + 1 + 64 + 3, constants_of_preset = 3 * n_rows + n_group_contexts;
static_assert(std::size(constants) == n_tables * constants_of_table + 3 * n_presets * constants_of_preset);

// from: frequencies of the codes 0 to 31, of -32, of the pairs of buckets, and of the last three symbols.
void read_table(const std::int16_t* from, std::array<std::uint16_t, n_symbols>& to) {
    for (std::uint32_t k = 0; k < 32; ++k)
        to[zero_symbol + k] = to[zero_symbol - k] = static_cast<std::uint16_t>(from[k]);
    to[0] = static_cast<std::uint16_t>(from[32]);
    for (std::uint32_t pair = 0; pair < 64; ++pair)
        to[first_bucket + 2 * pair] = to[first_bucket + 2 * pair + 1] = static_cast<std::uint16_t>(from[33 + pair]);
    for (std::uint32_t i = 0; i < 3; ++i) to[escape + i] = static_cast<std::uint16_t>(from[97 + i]);
}

// 2^(16 + x/4), rounded down.
std::uint64_t power_of_quarters(int x) {
    constexpr std::uint64_t of_quarters[] = {0x4000000000000000, 0x4c1bf828c6dc54b7, 0x5a827999fcef3242,
                                             0x6ba27e656b4eb57a}; // times 2^62
    return of_quarters[x & 3] >> (62 - 16 - (x >> 2));
}

std::uint8_t table_by_parameters(const std::int16_t* abc, int S, int N) {
    std::uint64_t sum = power_of_quarters(abc[2]);
    if (S > 0) sum += power_of_quarters(abc[0] + 4 * S);
    if (N > 0) sum += power_of_quarters(abc[1] + 4 * N);
    const int v = static_cast<int>(log256(sum)) - 16 * 256;
    return static_cast<std::uint8_t>(std::clamp((24 * 256 + (v < 0 ? 3 : 4) * v + 128) >> 8, 0, 63));
}

std::unique_ptr<Tables> make_tables() {
    auto made = std::make_unique<Tables>();
    Tables& t = *made;
    const std::int16_t* from = constants;
    for (std::uint32_t i = 0; i < n_tables; ++i, from += constants_of_table) {
        read_table(from, t.frequency[i]);
        std::uint16_t start = 0;
        for (std::uint32_t s = 0; s < n_symbols; ++s) {
            t.start[i][s] = start;
            start = static_cast<std::uint16_t>(start + t.frequency[i][s]);
        }
    }
    t.cost_of_frequency[0] = 0;
    for (std::uint32_t f = 1; f <= rans_total; ++f)
        t.cost_of_frequency[f] = static_cast<std::uint16_t>(256 * rans_bits - log256(f));
    for (std::uint32_t i = 0; i < n_tables; ++i)
        for (std::uint32_t s = 0; s < n_symbols; ++s) {
            const std::uint32_t f = t.frequency[i][s];
            t.cost[i][s] = static_cast<std::uint16_t>(
                f > 0 ? t.cost_of_frequency[f] : t.cost_of_frequency[t.frequency[i][escape]] + 256 * escape_bits);
        }
    for (std::uint32_t i = 0; i < n_size_tables; ++i)
        for (std::uint32_t u = 0; u < n_tables; ++u) {
            std::uint32_t sum = 0;
            for (std::uint32_t s = 0; s < verbatim; ++s) sum += std::uint32_t{t.frequency[i][s]} * t.cost[u][s];
            t.crossed[i][u] = static_cast<std::uint16_t>(sum >> rans_bits);
        }
    for (std::size_t axes = 0; axes < 3; ++axes)
        for (std::uint32_t preset = 0; preset < n_presets; ++preset, from += constants_of_preset) {
            std::uint8_t* to = t.table_of[axes][preset].data();
            for (std::uint32_t row = 0; row < n_rows; ++row, to += n_places) {
                for (int place = 0; place < static_cast<int>(n_ordinary_places); ++place)
                    to[place] = table_by_parameters(from + 3 * row, place / 8, place % 8);
                // Tables for codes about as large as in the middle of the ordinary places, with a small and with a
                // larger share of missing values, and one for (nearly) only missing values.
                const int middle = table_by_parameters(from + 3 * row, 3, 3);
                const auto size = static_cast<std::uint32_t>(std::clamp((middle - 5) / 6, 0, 5));
                to[some_missing] = static_cast<std::uint8_t>(n_size_tables + size);
                to[corners_missing] = static_cast<std::uint8_t>(n_size_tables + 6 + size);
                to[all_missing] = static_cast<std::uint8_t>(n_size_tables + 18);
            }
            std::copy_n(from + 3 * n_rows, n_group_contexts, t.group_of[axes][preset].begin());
        }
    for (std::uint32_t s = 0; s < n_symbols; ++s) {
        if (s >= escape) {
            t.size[s] = 0;
            continue;
        }
        const auto [first, bits] = meaning_of(s);
        t.size[s] =
            static_cast<std::uint16_t>(log256(1u + static_cast<std::uint32_t>(std::abs(first >> bits))) + 256 * bits);
    }
    for (int j = 0; j < 64; ++j) {
        const double g = std::nearbyint(rans_total / (1 + std::exp2((32 - j) / 4.0)));
        t.group_frequency[static_cast<std::size_t>(j)] =
            static_cast<std::uint16_t>(std::clamp(g, 1.0, rans_total - 1.0));
    }
    return made;
}

} // namespace

std::uint32_t log256(std::uint64_t n) {
    const auto whole = static_cast<std::uint32_t>(std::bit_width(n) - 1);
    std::uint64_t mantissa = whole <= 31 ? n << (31 - whole) : n >> (whole - 31);
    std::uint32_t result = whole;
    for (int i = 0; i < 8; ++i) {
        mantissa = mantissa * mantissa >> 31;
        const auto high = static_cast<std::uint32_t>(mantissa >> 32);
        result = result << 1 | high;
        mantissa >>= high;
    }
    return result;
}

const Tables& tables() {
    static const std::unique_ptr<const Tables> made = make_tables();
    return *made;
}

} // namespace cusz::v2
