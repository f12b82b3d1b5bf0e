// Levels of a field: coarser versions, each with every second point of the one before (cusz.h). They follow from the
// shape alone. The lattices of an archive may keep more points, because not all axes have to be halved there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "layout.hpp"
#include "v2/frame.hpp"

namespace cusz {

// The first bytes of an archive.
struct Prefix {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;         // readable
    std::size_t archive_bytes = 0; // of the whole archive

    bool is_whole() const { return bytes == archive_bytes; }
    std::span<const std::byte> span() const { return {data, bytes}; }
};

// Extents of a level and distances between its points in the field, by dimension.
struct Level {
    std::array<std::uint64_t, CUSZ_MAX_NDIM> shape{}, step{};
};
// An empty field has one level, itself.
std::size_t n_levels(const Layout& layout);
Level level_of(const Layout& layout, std::size_t level);

// Where an archive of the spline codec holds a level.
struct LatticeOfLevel {
    std::size_t lattice = 0;                                     // to decode
    std::array<std::uint64_t, CUSZ_MAX_NDIM> stride{1, 1, 1, 1}; // of the level's points in it, by dimension
    bool is_exact = false;                                       // a lattice has exactly the points of the level
    std::size_t needed_bytes = 0;
};
LatticeOfLevel lattice_of(const v2::Front& front, const v2::Head& head, std::size_t head_bytes, std::size_t level);

} // namespace cusz
