// Version 2 of the format: what it settles for the spline codec on every backend, and its headers (docs/format_v2.md,
// sections 1, 2, 5 to 7 and 12). Lattices and their tiles are in pyramid.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "alphabet.hpp"
#include "frame.hpp"

namespace cusz::v2 {

inline constexpr std::size_t header_bytes = 128; // without the model

inline constexpr std::size_t max_model_bytes = 16384;

// As a row of the registry has them (codec/codec.hpp).
std::size_t model_bytes(const void* header);
void read_header(const void* header, Frame& frame);
void write_header(void* archive, const Layout& layout, const Encoded& encoded);

// ---- Tiles

inline constexpr std::uint32_t n_classes = 8; // of points, by their parities along three active axes
inline constexpr std::uint32_t max_group_values = 64;
inline constexpr std::uint8_t special_magnitude = 255;
inline constexpr std::int32_t max_code = 1048575; // in magnitude; values with larger codes are stored verbatim
inline constexpr Alphabet alphabet{default_r};
inline constexpr std::uint32_t n_symbols = alphabet.size();
template <class T>
inline constexpr std::uint32_t units_of_value = sizeof(T) / 2;

enum TileKind : std::uint32_t { tile_coded = 0, tile_special = 1, tile_raw = 2 };

inline constexpr std::uint32_t max_lanes = 4;

// The first unit of a payload. Tiles of other kinds than coded have nothing but the kind in it.
struct TileHeader {
    TileKind kind = tile_coded;
    std::uint32_t lanes = 1; // 1, 2 or 4
    bool has_verbatim = false, has_extra = false;

    constexpr std::uint32_t word() const {
        return kind | lanes / 2 << 2 | std::uint32_t{has_verbatim} << 4 | std::uint32_t{has_extra} << 5;
    }
    static constexpr TileHeader of(std::uint32_t word) {
        return {static_cast<TileKind>(word & 3), 1u << (word >> 2 & 3), (word & 1u << 4) != 0, (word & 1u << 5) != 0};
    }
    static constexpr bool is_legal(std::uint32_t word) {
        return (word & 3) == tile_coded ? (word >> 2 & 3) < 3 && word >> 6 == 0 : word <= tile_raw;
    }
};

// ---- Coding

inline constexpr std::uint32_t rans_bits = 12, rans_total = 1u << rans_bits, rans_low = 1u << 16;
inline constexpr std::uint32_t max_tables = 16, n_group_contexts = 16;

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

// ---- Archives of logarithms (section 12)

inline constexpr unsigned kind_of_logs = 2;
inline constexpr std::size_t logs_header_bytes = 112;

// Reads and validates what follows the common header, into frame. Returns the size of the body. Throws CORRUPT.
std::uint64_t read_logs_header(const void* header, Frame& frame);

// Writes the whole header.
void write_logs_header(void* archive, const Layout& layout, const Logs& logs, std::uint32_t payload_checksum);

} // namespace cusz::v2
