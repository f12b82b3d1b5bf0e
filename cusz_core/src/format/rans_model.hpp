// The model of the rANS coder: contexts, tables of frequencies, and how a writer chooses them (docs/format_v2.md,
// sections 6, 7 and 10).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "alphabet.hpp"

namespace cusz {

inline constexpr std::uint32_t rans_bits = 12, rans_total = 1u << rans_bits, rans_low = 1u << 16;
inline constexpr std::uint32_t n_symbols = Alphabet(default_r).size();
inline constexpr std::uint32_t most_tables = 16, n_group_contexts = 16, most_lanes = 4;
inline constexpr std::size_t most_model_bytes = 16384;

// A value's context is row_of(lattice, phase) + its place, S * 9 + N.
inline constexpr std::uint32_t n_spreads = 8, n_activities = 9, n_places = n_spreads * n_activities;
inline constexpr std::uint32_t n_contexts = 9 * n_places;
constexpr std::uint32_t row_of(std::size_t lattice, std::uint32_t phase) {
    return (static_cast<std::uint32_t>(lattice < 2 ? lattice : 2) * 3 + phase - 1) * n_places;
}

// The context of a group whose values' S + N add up to this.
constexpr std::uint32_t group_context(std::uint32_t sum) {
    if (sum == 0) return 0;
    const int bits = static_cast<int>(std::bit_width(sum));
    const int half_octave = 2 * (bits - 1) + (bits > 1 ? static_cast<int>(sum >> (bits - 2) & 1) : 0);
    return static_cast<std::uint32_t>(half_octave < 4 ? 1 : half_octave > 18 ? 15 : half_octave - 3);
}

struct RansModel {
    std::uint32_t n_tables = 1;
    std::array<std::uint8_t, n_contexts> table{};
    std::array<std::array<std::uint16_t, n_symbols>, most_tables> frequency{};
    std::array<std::uint16_t, n_group_contexts> significant{}; // frequency of a significant group

    std::vector<std::byte> bytes() const;
    static RansModel parse(std::span<const std::byte> bytes); // throws CORRUPT
};

// Symbols of the values in significant groups, and groups, by context.
struct RansCounts {
    std::array<std::array<std::uint32_t, n_symbols>, n_contexts> symbol{};
    // By lattice: 0, and the coarser ones.
    std::array<std::array<std::array<std::uint32_t, 2>, n_group_contexts>, 2> group{};

    void clear();
    // With weights of what lattice 0 and the coarser ones have. Sums stay below 2^32.
    void add(const RansCounts& other, std::uint64_t of_field, std::uint64_t of_coarser);
    bool has(std::uint32_t context) const; // whether anything is counted there
};

// The size of what was counted, coded with this model, in 2^-8 bits: of lattice 0, lattice 1 (with the groups' flags of
// all but lattice 0), and the coarser ones.
std::array<std::uint64_t, 3> coded_size(const RansModel& model, const RansCounts& counts);

RansModel choose_model(const RansCounts& counts);

} // namespace cusz
