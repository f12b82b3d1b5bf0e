// The beginning of archives of version 2: the frame, and the head of a spline archive (format_v2.md, sections 1 and 9).
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

// Curves and the bounds of lattices, by their numbers in the format.
enum class Curve : std::uint8_t { linear, cubic, six_points, six_points_and_codes };
struct AlphaBeta {
    double alpha, beta;
};
inline constexpr AlphaBeta bounds_of_lattices[] = {{1, 1}, {1.25, 2}, {1.5, 4}, {2, 4}};
// The bound of lattice i is the bound in force divided by this.
double divisor(std::uint32_t bounds, std::size_t i);

// The frame.
struct Front {
    Kind kind = Kind::spline;
    Layout layout;
    bool is_relative = false, has_fill = false, has_axes = false, has_zstd = false;
    double eb = 0;             // as requested
    double e = 0;              // spline archives: the bound in force, a T
    std::uint64_t special = 0; // pattern
    std::uint64_t n_special = 0, n_verbatim = 0;
};
inline constexpr std::size_t max_front_bytes = 2 + 2 + 4 * 10 + 8 + 8 + 8 + 2 * 10;

// Writes the frame without the checksum, which follows it. Returns the number of bytes.
std::size_t write_front(const Front& front, std::byte* to);
// Reads the same, and sets the number of bytes. Throws CORRUPT.
Front read_front(std::span<const std::byte> archive, std::size_t& bytes);

// The bits of a constant's value; nothing else follows its frame and checksum. Throws CORRUPT.
std::uint64_t read_constant(std::span<const std::byte> archive, const Front& front, std::size_t front_bytes);

inline constexpr std::uint32_t max_log2_lanes = 5, max_lanes = 1u << max_log2_lanes;
inline constexpr std::uint64_t max_values_of_small_lattices = 4096;
inline constexpr std::uint32_t tiles_of_unit = 16;

inline constexpr std::uint32_t n_classes = 8;         // of points of a tile, by parity
inline constexpr std::uint32_t max_group_points = 64; // of a class
inline constexpr std::uint32_t least_with_flags = 64; // a class with fewer points in a tile has no flags for its groups

// Tiles that share a payload: some of one lattice, or those of all small lattices. Tiles are numbered across all
// lattices, the coarsest first.
struct Unit {
    std::size_t lattice;
    std::uint64_t first_tile;
    std::uint32_t n_tiles;
};
std::vector<Unit> units_of(const Pyramid& pyramid);

// The head of a spline archive, after the checksum.
struct Head {
    Interpolation how;
    std::uint32_t preset = 0;
    bool has_map = false;
    std::uint64_t top = 0; // the bits of the first value
    struct Entry {
        std::uint64_t bytes = 0;
        std::uint32_t log2_lanes = 0;
    };
    std::vector<Entry> units;             // by unit
    std::vector<std::uint32_t> checksums; // of each lattice that has units besides unit 0, the coarsest first
};

inline constexpr std::size_t interpolation_bytes = 3; // at most
inline constexpr std::size_t max_packed_length_bytes = 10;
// Reads the interpolation, which the head begins with. Returns the offset of what follows it. Throws CORRUPT.
std::size_t read_interpolation(std::span<const std::byte> archive, const Front& front, std::size_t front_bytes,
                               Interpolation& how);

// Size of the index in the head, for the units of this pyramid.
std::uint64_t index_bytes(const Pyramid& pyramid);

// Upper bound on the bytes before unit 0.
constexpr std::size_t max_head_bytes(std::size_t n_units, std::size_t n_lattices) {
    return max_front_bytes + 4 + interpolation_bytes + 1 + 8 + 10 + 3 * n_units + 4 * n_lattices + 1;
}
// The bytes before unit 0. prefix: the archive's first max_head_bytes(0, 0) bytes, or all of it. Throws CORRUPT.
std::uint64_t head_bytes(std::span<const std::byte> prefix, const Front& front, std::size_t front_bytes);
// What lies between the checksum and unit 0, which begins at an even byte. front_bytes: before the checksum.
std::vector<std::byte> write_head(const Front& front, std::size_t front_bytes, const Head& head);
// Reads the same of an archive of archive_bytes. prefix: its first bytes, at least all those before unit 0. Returns the
// number of these. Throws CORRUPT.
std::size_t read_head(std::span<const std::byte> prefix, std::size_t archive_bytes, const Front& front,
                      std::size_t front_bytes, Head& head);

// The lossless stage: replaces everything after the interpolation with its length and a zstd frame of it, if that is
// shorter. packed: as much memory as the archive has. Returns the archive's new length.
std::size_t pack(std::span<std::byte> archive, std::byte* packed);
struct Packed {
    std::size_t begin;       // offset of the length, behind the interpolation
    std::uint64_t bytes = 0; // the length: unpacked size of the zstd frame
    std::size_t frame = 0;   // offset of the zstd frame
};
// archive: at least its first bytes. Throws CORRUPT.
Packed read_packed(std::span<const std::byte> archive, std::size_t archive_bytes, const Front& front,
                   std::size_t front_bytes);
// Undoes pack(), after verifying the checksum. The result begins with the same frame, whose flag still says zstd.
// Throws CORRUPT, UNSUPPORTED.
std::vector<std::byte> unpack(std::span<const std::byte> archive);

// Writes the checksum of the head, at front_bytes. head: everything up to the end of unit 0.
void seal(std::span<std::byte> head, std::size_t front_bytes);
// Throws CORRUPT if the checksum differs.
void verify_head(std::span<const std::byte> head, std::size_t front_bytes);
// Validates the head, and verifies its checksum. Throws CORRUPT.
void verify(std::span<const std::byte> archive, const Front& front, std::size_t front_bytes);

} // namespace cusz::v2
