// The spline codec's pyramid of lattices, and how a lattice is cut into tiles (format_v2.md, section 2).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cusz {

inline constexpr std::uint32_t max_active_axes = 3;

// By axis. A Lattice numbers its axes itself, the active ones first.
using Extents = std::array<std::uint64_t, 4>;

// Edges of a tile and of a group, by the number of active axes, where the lattice is large enough.
constexpr std::array<std::uint32_t, 4> tile_edges(std::uint32_t n_active) {
    constexpr std::array<std::uint32_t, 4> of[] = {{1, 1, 1, 1}, {4096, 1, 1, 1}, {64, 64, 1, 1}, {32, 16, 8, 1}};
    return of[n_active];
}
constexpr std::array<std::uint32_t, 4> group_edges(std::uint32_t n_active) {
    constexpr std::array<std::uint32_t, 4> of[] = {{1, 1, 1, 1}, {64, 1, 1, 1}, {8, 8, 1, 1}, {4, 4, 4, 1}};
    return of[n_active];
}

// Extents of a field by axis: extents of 1 are dropped, axis 0 is the fastest, missing axes have extent 1.
Extents extents_of(int ndim, const std::uint64_t* shape);

// One lattice. Axes are its own, the active ones first, unless said otherwise.
struct Lattice {
    std::uint32_t n_active = 0;          // 0: the top
    std::array<std::uint32_t, 4> axis{}; // of the field, by axis of the lattice
    Extents extent{};
    Extents field_stride{};  // between its points in the field, in values
    Extents stride{};        // between its points in a dense array of the lattice, in the field's order of axes
    Extents coarse_stride{}; // the same in an array of the next coarser lattice
    std::array<std::uint32_t, 4> edge{};  // of a full tile
    std::array<std::uint32_t, 4> group{}; // edges of a group, in half coordinates
    Extents count{};                      // tiles along each axis
    std::uint64_t n_tiles = 0;
    std::uint64_t first_tile = 0; // number of its first tile in the archive

    constexpr std::uint64_t values() const { return extent[0] * extent[1] * extent[2] * extent[3]; }
    constexpr bool is_active(std::size_t a) const { return a < n_active; }
    // Positions of the next coarser lattice along an axis.
    constexpr std::uint64_t coarse_extent(std::size_t a) const {
        return is_active(a) ? (extent[a] + 1) / 2 : extent[a];
    }
};

// Where a tile lies in its lattice.
struct LatticeTile {
    Extents origin;
    std::array<std::uint32_t, 4> edge; // after clipping
    constexpr std::uint32_t points() const { return edge[0] * edge[1] * edge[2] * edge[3]; }
};

// Number: a type that can hold the lattice's number of tiles.
template <class Number>
constexpr LatticeTile tile_of(const Lattice& lattice, Number number) {
    LatticeTile tile{};
    for (std::size_t a = 0; a < 4; ++a) {
        const auto count = static_cast<Number>(lattice.count[a]);
        const Number rest = number / count;
        tile.origin[a] = std::uint64_t{number - rest * count} * lattice.edge[a];
        tile.edge[a] =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(lattice.edge[a], lattice.extent[a] - tile.origin[a]));
        number = rest;
    }
    return tile;
}

// Masks of the field's axes: of lattice 0, of lattice 1, and of all others.
using AxisMasks = std::array<std::uint32_t, 3>;

// Lattice 0 is the field, the last one the top.
struct Pyramid {
    // Halves the field down to a single point, along up to three axes at a time: the first of the lattice's mask that
    // have more than one point or, if the mask has none, the first of all axes.
    Pyramid(int ndim, const std::uint64_t* shape, const AxisMasks& allowed);

    std::vector<Lattice> lattices;
    std::uint64_t n_tiles = 0;

    std::size_t n_coded() const { return lattices.size() - 1; }
    // Extents of a full tile of lattice 0, in the field's dimensions.
    void tile_shape(int ndim, const std::uint64_t* shape, std::uint64_t* out) const;
    // Points of the field from one point of lattice i to the next, along axis a of the field.
    std::uint64_t scale(std::size_t i, std::uint32_t a) const;
};

// Calls use(n, offset) for the points of a box with these strides, numbered from 0, the first axis the fastest.
template <class Use>
void for_points_of_box(const Extents& extent, const Extents& stride, const Use& use) {
    std::uint64_t n = 0;
    for (std::uint64_t w = 0; w < extent[3]; ++w)
        for (std::uint64_t z = 0; z < extent[2]; ++z)
            for (std::uint64_t y = 0; y < extent[1]; ++y) {
                const std::uint64_t row = w * stride[3] + z * stride[2] + y * stride[1];
                for (std::uint64_t x = 0; x < extent[0]; ++x) use(n++, row + x * stride[0]);
            }
}

// Copies a box of points with these strides into a dense array.
template <class T>
void gather_box(const T* from, const Extents& extent, const Extents& stride, T* to) {
    const std::uint64_t plane = extent[0] * extent[1], all = plane * extent[2] * extent[3];
    if (stride == Extents{1, extent[0], plane, plane * extent[2]}) {
        std::copy_n(from, all, to);
        return;
    }
    if (stride[0] != 1) {
        for_points_of_box(extent, stride, [&](std::uint64_t n, std::uint64_t at) { to[n] = from[at]; });
        return;
    }
    for_points_of_box({1, extent[1], extent[2], extent[3]}, stride, [&](std::uint64_t row, std::uint64_t at) {
        std::copy_n(from + at, extent[0], to + row * extent[0]);
    });
}

} // namespace cusz
