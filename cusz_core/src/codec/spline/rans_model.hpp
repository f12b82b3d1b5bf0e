// The model of the rANS coder: contexts, tables of frequencies, and how a writer chooses them (docs/format_v2.md,
// sections 6, 7 and 10).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "archive/alphabet.hpp"
#include "archive/v2.hpp"

namespace cusz {

// The engines keep the place of a context in its row as S * 16 + N.
inline constexpr std::uint32_t n_rows = v2::n_contexts / v2::n_places, engine_places = v2::n_spreads * 16;
constexpr std::uint32_t context_of(std::uint32_t row, std::uint32_t engine_place) {
    return row * v2::n_places + (engine_place >> 4) * v2::n_activities + (engine_place & 15);
}
constexpr bool is_context(std::uint32_t engine_place) { return (engine_place & 15) < v2::n_activities; }

// The table of a context, by its row and place.
using TablesOfPlaces = std::array<std::array<std::uint8_t, engine_places>, n_rows>;

// Entries of a symbol to be coded: table * 256 + symbol; a group's flag has the table v2::max_tables + its context.
inline constexpr std::uint32_t n_coding_tables = v2::max_tables + v2::n_group_contexts;
inline constexpr std::uint32_t idle_entry = n_coding_tables * 256; // changes nothing: its interval is all slots

struct RansModel {
    std::uint32_t n_tables = 1;
    std::array<std::uint8_t, v2::n_contexts> table{};
    std::array<std::array<std::uint16_t, v2::n_symbols>, v2::max_tables> frequency{};
    std::array<std::uint16_t, v2::n_group_contexts> significant{}; // frequency of a significant group

    std::vector<std::byte> bytes() const;
    static RansModel parse(std::span<const std::byte> bytes); // throws CORRUPT
};

inline TablesOfPlaces tables_of_places(const RansModel& model) {
    TablesOfPlaces of{};
    for (std::uint32_t row = 0; row < n_rows; ++row)
        for (std::uint32_t place = 0; place < engine_places; ++place)
            if (is_context(place)) of[row][place] = model.table[context_of(row, place)];
    return of;
}

// Symbols of the values in significant groups, and groups, by context.
struct RansCounts {
    std::array<std::array<std::uint32_t, v2::n_symbols>, v2::n_contexts> symbol{};
    std::array<bool, v2::n_contexts> used{}; // whether anything is counted there; of a small field, in few of them
    // By lattice: 0, and the coarser ones.
    std::array<std::array<std::array<std::uint32_t, 2>, v2::n_group_contexts>, 2> group{};

    void count(std::uint32_t context, std::uint32_t s) {
        ++symbol[context][s];
        used[context] = true;
    }
    void clear();
    // With weights of what lattice 0 and the coarser ones have. Sums stay below 2^32.
    void add(const RansCounts& other, std::uint64_t of_field, std::uint64_t of_coarser);
};

// 2^-8 bits: the largest x with 2^(x / 256) <= n, for n >= 1.
constexpr std::uint32_t log2_256(std::uint32_t n) {
    auto result = static_cast<std::uint32_t>(std::bit_width(n)) - 1;
    std::uint32_t mantissa = n << (31 - result); // 1 to 2, in units of 2^-31
    for (int i = 0; i < 8; ++i) {
        const std::uint64_t square = std::uint64_t{mantissa} * mantissa;
        const auto two = static_cast<std::uint32_t>(square >> 63);
        mantissa = static_cast<std::uint32_t>(square >> (31 + two));
        result = 2 * result + two;
    }
    return result;
}

// How many 2^-8 bits something of this frequency takes.
constexpr std::uint32_t size_of(std::uint32_t frequency) { return v2::rans_bits * 256 - log2_256(frequency); }
// What one of frequency 0 is taken to cost where contexts are given tables: about an escape.
inline constexpr std::uint32_t size_of_unknown = 16 * 256;

// About how many 2^-8 bits a code of this symbol has above code 0: log2(1 + |code|).
constexpr std::uint32_t weight_of(std::uint32_t symbol) {
    constexpr Alphabet alphabet = v2::alphabet;
    if (symbol == alphabet.missing()) return 0;
    const auto [leading, extra] = alphabet.meaning(symbol);
    return log2_256(1 + static_cast<std::uint32_t>(leading < 0 ? -leading : leading)) + 256 * extra;
}

// A context's share of the bits, for the tables that it gets at first: of n values, with sizes of this sum.
constexpr std::uint64_t share_of(std::uint64_t n, std::uint64_t size) { return size + n * 26; }

// Whether a symbol has a frequency above 0 in every table.
constexpr bool in_every_table(std::uint32_t symbol) {
    constexpr Alphabet alphabet = v2::alphabet;
    return symbol == alphabet.zero() || symbol >= alphabet.escape(0); // the escapes, and the special value
}

// The size of what was counted, coded with this model, in 2^-8 bits: of lattice 0, lattice 1 (with the groups' flags of
// all but lattice 0), and the coarser ones.
std::array<std::uint64_t, 3> coded_size(const RansModel& model, const RansCounts& counts);

RansModel choose_model(const RansCounts& counts);

} // namespace cusz
