// Fixed distributions of codes: symbols, tables of their frequencies, and presets that assign a table to each context
// (docs/reference/format_v2.md, section 7). Shared by all backends.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace cusz::v2 {

// Symbols: the 64 codes from -32 to 31, 64 pairs of buckets with extra bits, and three more.
inline constexpr std::int32_t n_direct = 32;
inline constexpr std::uint32_t zero_symbol = 32, first_bucket = 64, escape = 192, special = 193, verbatim = 194,
                               n_symbols = 195;
inline constexpr std::uint32_t escape_bits = 21;
inline constexpr std::int32_t max_code = 1048575; // in magnitude; values with larger codes are stored verbatim

inline constexpr std::uint32_t rans_bits = 12, rans_total = 1u << rans_bits, rans_low = 1u << 16;
inline constexpr std::uint32_t n_size_tables = 64, n_tables = 86, n_presets = 16;

// Contexts: one row per lattice (2 includes all coarser ones) and phase. A place in a row is 8 S + N, or tells how many
// neighbours are missing.
inline constexpr std::uint32_t n_rows = 9, n_ordinary_places = 64, some_missing = 64, corners_missing = 65,
                               all_missing = 66, n_places = 67;
inline constexpr std::uint32_t n_contexts = n_rows * n_places, n_group_contexts = 16;
constexpr std::uint32_t row_of(std::size_t lattice, std::uint32_t phase) {
    return static_cast<std::uint32_t>(lattice < 2 ? lattice : 2) * 3 + phase - 1;
}

// The symbol of a code, |code| <= max_code.
constexpr std::uint32_t symbol_of(std::int32_t code) {
    const auto key = static_cast<std::uint32_t>(code ^ code >> 31);
    if (key < static_cast<std::uint32_t>(n_direct)) return static_cast<std::uint32_t>(code + n_direct);
    const auto octave = static_cast<std::uint32_t>(std::bit_width(key) - 1);
    return first_bucket + 8 * (octave - 5) + 2 * ((key >> (octave - 2)) - 4) + (code < 0 ? 1u : 0u);
}

// A code is `first` plus its extra bits; an escape's are the code in two's complement.
struct Meaning {
    std::int32_t first;
    std::uint32_t extra_bits;
};
constexpr Meaning meaning_of(std::uint32_t symbol) { // not of a special or verbatim value
    if (symbol < first_bucket) return {static_cast<std::int32_t>(symbol) - n_direct, 0};
    if (symbol == escape) return {0, escape_bits};
    const std::uint32_t bits = 3 + (symbol - first_bucket) / 8, quarter = symbol % 8 / 2;
    const auto leading = static_cast<std::int32_t>((symbol & 1) != 0 ? 5 + quarter : 4 + quarter);
    return {((symbol & 1) != 0 ? -leading : leading) * (1 << bits), bits};
}
inline constexpr auto meanings = [] { // of all symbols up to the escape
    std::array<Meaning, escape + 1> of{};
    for (std::uint32_t symbol = 0; symbol <= escape; ++symbol) of[symbol] = meaning_of(symbol);
    return of;
}();

// floor(256 log2(n)), n > 0.
std::uint32_t log256(std::uint64_t n);

struct Tables {
    std::array<std::array<std::uint16_t, n_symbols>, n_tables> frequency, start;
    // Cost of a symbol with each table, in 1/256 bits.
    std::array<std::array<std::uint16_t, n_symbols>, n_tables> cost;
    // [t][u]: mean cost of the symbols of table t when coded with table u, in 1/256 bits.
    std::array<std::array<std::uint16_t, n_tables>, n_size_tables> crossed;
    // By active axes of lattice 0, less 1, and preset: the table of each context, and j of each context of groups.
    std::array<std::array<std::array<std::uint8_t, n_contexts>, n_presets>, 3> table_of;
    std::array<std::array<std::array<std::uint8_t, n_group_contexts>, n_presets>, 3> group_of;
    // By symbol: log2(1 + |leading number|) plus the extra bits, in 1/256 bits.
    std::array<std::uint16_t, n_symbols> size;
    // By j: the frequency of significant groups.
    std::array<std::uint16_t, 64> group_frequency;
    // Cost by frequency, in 1/256 bits.
    std::array<std::uint16_t, rans_total + 1> cost_of_frequency;
};
const Tables& tables();

} // namespace cusz::v2
