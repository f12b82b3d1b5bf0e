// What archives of version 2 begin with: the frame, and the head of a spline archive (format_v2.md, sections 1
// and 9).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "archive/frame.hpp"
#include "archive/layout.hpp"
#include "archive/pyramid.hpp"

namespace cusz::v2 {

inline constexpr unsigned char magic[2] = {0xC5, 0x5A};

enum class Kind : std::uint8_t { spline = 1, logs = 2, constant = 3 };

// Curves, and the bounds of lattices, as they are numbered.
enum class Curve : std::uint8_t { linear, cubic, six_points, six_points_and_codes };
struct AlphaBeta {
    double alpha, beta;
};
inline constexpr AlphaBeta bounds_of_lattices[] = {{1, 1}, {1.25, 2}, {1.5, 4}, {2, 4}};
// What the bound is divided by in lattice i.
double divisor(std::uint32_t bounds, std::size_t i);

// The frame.
struct Front {
    Kind kind = Kind::spline;
    Layout layout;
    bool is_relative = false, has_fill = false, has_axes = false, has_zstd = false;
    double eb = 0;             // as asked for
    double e = 0;              // of a spline archive, the bound in force, a T
    std::uint64_t special = 0; // pattern
    std::uint64_t n_special = 0, n_verbatim = 0;
};
inline constexpr std::size_t max_front_bytes = 2 + 2 + 4 * 10 + 8 + 8 + 8 + 2 * 10;

// Without the checksum, which follows. Returns the number of bytes.
std::size_t write_front(const Front& front, std::byte* to);
// Sets the number of bytes. Throws CORRUPT.
Front read_front(std::span<const std::byte> archive, std::size_t& bytes);

// The bits of a constant's value, which is all that its frame and checksum are followed by. Throws CORRUPT.
std::uint64_t read_constant(std::span<const std::byte> archive, const Front& front, std::size_t front_bytes);

inline constexpr std::uint32_t max_log2_lanes = 5, max_lanes = 1u << max_log2_lanes;
inline constexpr std::uint64_t max_values_of_small_lattices = 4096;
inline constexpr std::uint32_t tiles_of_unit = 16;

inline constexpr std::uint32_t n_classes = 8;         // of points of a tile, by parity
inline constexpr std::uint32_t max_group_points = 64; // of a class's groups
inline constexpr std::uint32_t least_with_flags = 64; // points of a class in a tile: the groups of others have no flags

// Tiles that share a payload: of one lattice, or of all small ones. Tiles are numbered through all lattices, the
// coarsest first.
struct Unit {
    std::size_t lattice;
    std::uint64_t first_tile;
    std::uint32_t n_tiles;
};
std::vector<Unit> units_of(const Pyramid& pyramid);

// The head of a spline archive behind the checksum.
struct Head {
    Interpolation how;
    std::uint32_t preset = 0;
    bool has_map = false;
    std::uint64_t top = 0; // the bits of the first value
    struct Entry {
        std::uint64_t bytes = 0;
        std::uint32_t log2_lanes = 0;
    };
    std::vector<Entry> units;             // of each unit
    std::vector<std::uint32_t> checksums; // of each lattice that has units besides the first, the coarsest first
};

inline constexpr std::size_t interpolation_bytes = 3; // at most
inline constexpr std::size_t max_packed_length_bytes = 10;
// How a spline archive is interpolated: what its head begins with. Returns the number of bytes. Throws CORRUPT.
std::size_t read_interpolation(std::span<const std::byte> archive, const Front& front, std::size_t front_bytes,
                               Interpolation& how);

// Of the units of a pyramid, in a head.
std::uint64_t index_bytes(const Pyramid& pyramid);

// Of all that comes before unit 0.
constexpr std::size_t max_head_bytes(std::size_t n_units, std::size_t n_lattices) {
    return max_front_bytes + 4 + interpolation_bytes + 1 + 8 + 10 + 3 * n_units + 4 * n_lattices + 1;
}
// The same of an archive, from its first max_head_bytes(0, 0) bytes, or all that there are. Throws CORRUPT.
std::uint64_t head_bytes(std::span<const std::byte> prefix, const Front& front, std::size_t front_bytes);
// What comes behind the checksum and before unit 0, which begins at an even byte. front_bytes: before the checksum.
std::vector<std::byte> write_head(const Front& front, std::size_t front_bytes, const Head& head);
// Returns the number of bytes up to unit 0. Throws CORRUPT.
std::size_t read_head(std::span<const std::byte> archive, const Front& front, std::size_t front_bytes, Head& head);
// The same of the first bytes of an archive of archive_bytes, which hold all that is before unit 0.
std::size_t read_head_of(std::span<const std::byte> prefix, std::size_t archive_bytes, const Front& front,
                         std::size_t front_bytes, Head& head);

// With zstd: replaces what follows the interpolation by its length and a zstd frame of it, if that is shorter. packed:
// memory for as many bytes. Returns the archive's new length.
std::size_t pack(std::span<std::byte> archive, std::byte* packed);
// Where that begins, what it was made from, and where the frame of zstd begins. Throws CORRUPT.
struct Packed {
    std::size_t begin;
    std::uint64_t bytes = 0;
    std::size_t frame = 0;
};
// archive: at least the first bytes of it.
Packed read_packed(std::span<const std::byte> archive, std::size_t archive_bytes, const Front& front,
                   std::size_t front_bytes);
// Undoes that: the archive without its stage, which has the same front. The checksum is verified. Throws CORRUPT,
// UNSUPPORTED.
std::vector<std::byte> unpack(std::span<const std::byte> archive);

// head: everything up to the end of unit 0. Writes its checksum, which is at front_bytes.
void seal(std::span<std::byte> head, std::size_t front_bytes);
// Throws CORRUPT if it is another.
void verify_head(std::span<const std::byte> head, std::size_t front_bytes);
// What the head says of the archive, and its checksum. Throws CORRUPT.
void verify(std::span<const std::byte> archive, const Front& front, std::size_t front_bytes);

} // namespace cusz::v2
