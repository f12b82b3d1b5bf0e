// Levels of a field: coarser versions of it that keep every second point again and again (cusz.h). Those of a field
// follow from its shape alone; the lattices of an archive may keep more points, if some axes are not halved there.
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
    std::size_t bytes = 0;         // that may be looked at
    std::size_t archive_bytes = 0; // of the whole archive

    bool is_whole() const { return bytes == archive_bytes; }
    std::span<const std::byte> span() const { return {data, bytes}; }
};

// By dimension.
struct Level {
    std::array<std::uint64_t, CUSZ_MAX_NDIM> shape{}, step{};
};
// An empty field has only itself.
std::size_t n_levels(const Layout& layout);
Level level_of(const Layout& layout, std::size_t level);

// How an archive of the spline codec has a level.
struct LatticeOfLevel {
    std::size_t lattice = 0;                                     // that is decoded
    std::array<std::uint64_t, CUSZ_MAX_NDIM> stride{1, 1, 1, 1}; // of the level's points in it, by dimension
    bool is_exact = false;                                       // no lattice of other points is needed
    std::size_t needed_bytes = 0;
};
LatticeOfLevel lattice_of(const v2::Front& front, const v2::Head& head, std::size_t head_bytes, std::size_t level);

} // namespace cusz
