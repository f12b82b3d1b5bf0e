// A tile's points in coding order, by groups (docs/format_v2.md, section 2), and what else both directions have in
// common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.hpp"
#include "prediction.hpp"
#include "rans.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Calls use(geometry), a constant.
template <class T, class Use>
void with_geometry_of(const SplineTile<T>& tile, const Use& use) {
    switch (tile.geometry) {
    case Geometry::any: return use(std::integral_constant<Geometry, Geometry::any>{});
    case Geometry::full_2d: return use(std::integral_constant<Geometry, Geometry::full_2d>{});
    case Geometry::full_3d: return use(std::integral_constant<Geometry, Geometry::full_3d>{});
    }
}

// A group: its first half coordinates, and its extents.
struct Group {
    std::array<std::uint32_t, 4> first, n;
    std::uint32_t values() const { return n[0] * n[1] * n[2] * n[3]; }
};

// Calls use(c, group) for the groups of a phase, in coding order.
template <Geometry geometry, class T, class Use>
[[gnu::always_inline]] inline void for_groups(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t phase,
                                              const Use& use) {
    const std::array<std::uint32_t, 4> edge =
        geometry == Geometry::any ? lattice.group : group_edges(active_axes(geometry));
    for_classes(tile, phase, [&](std::uint32_t c) {
        const ClassBox box = box_of<geometry>(tile, c);
        Group g{};
        for (g.first[3] = 0; g.first[3] < box.n[3]; g.first[3] += edge[3])
            for (g.first[2] = 0; g.first[2] < box.n[2]; g.first[2] += edge[2])
                for (g.first[1] = 0; g.first[1] < box.n[1]; g.first[1] += edge[1])
                    for (g.first[0] = 0; g.first[0] < box.n[0]; g.first[0] += edge[0]) {
                        for (std::size_t a = 0; a < 4; ++a)
                            g.n[a] = geometry == Geometry::any ? std::min(edge[a], box.n[a] - g.first[a]) : edge[a];
                        use(c, g);
                    }
    });
}

// Calls use(position, n) for the rows of a group; n is a constant where rows are 4 or 8 long.
template <class Use>
[[gnu::always_inline]] inline void for_rows_of(const ClassBox& box, const Group& g, const Use& use) {
    const std::size_t first = box.at(g.first[0], g.first[1], g.first[2], g.first[3]);
    const auto rows = [&](auto n) {
        for (std::uint32_t w = 0; w < g.n[3]; ++w)
            for (std::uint32_t z = 0; z < g.n[2]; ++z) {
                std::size_t at = first + z * box.stride[2] + w * box.stride[3];
                for (std::uint32_t y = 0; y < g.n[1]; ++y, at += box.stride[1]) use(at, n);
            }
    };
    if (g.n[0] == 4)
        rows(std::integral_constant<std::uint32_t, 4>{});
    else if (g.n[0] == 8)
        rows(std::integral_constant<std::uint32_t, 8>{});
    else
        rows(g.n[0]);
}

// Calls use(position, place in coding order, n) for the rows of the groups of a phase.
template <Geometry geometry, class T, class Use>
[[gnu::always_inline]] inline void for_rows_in_order(const Lattice& lattice, const SplineTile<T>& tile,
                                                     std::uint32_t phase, const Use& use) {
    std::uint32_t place = 0;
    for_groups<geometry>(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
        for_rows_of(box_of<geometry>(tile, c), g, [&](std::size_t at, auto n) {
            use(at, place, n);
            place += n;
        });
    });
}

// Copies n elements.
template <class Element, class N>
[[gnu::always_inline]] inline void copy_row(Element* to, const Element* from, N n) {
    if constexpr (!std::is_same_v<N, std::uint32_t>)
        std::memcpy(to, from, N::value * sizeof(Element));
    else if (n < 8)
        for (std::uint32_t x = 0; x < n; ++x) to[x] = from[x];
    else
        std::memcpy(to, from, n * sizeof(Element));
}

// Puts bytes of a phase in coding order.
template <Geometry geometry, class T>
void put_in_order(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t phase, const std::uint8_t* from,
                  std::uint8_t* to) {
    if constexpr (geometry == Geometry::full_3d) { // rows are one of each of four groups' rows of four
        for_classes(tile, phase, [&](std::uint32_t c) {
            const ClassBox box = box_of<geometry>(tile, c);
            for (std::uint32_t y = 0; y < box.n[1]; y += 4, to += 4 * v2::max_group_values)
                for (std::uint32_t z = 0; z < 4; ++z) {
                    Marks of_group[4];
                    transpose_fours(from + box.at(0, y, z, 0), box.stride[1], of_group);
                    for (std::size_t g = 0; g < 4; ++g)
                        store_marks(to + 16 * z + g * v2::max_group_values, of_group[g]);
                }
        });
    } else if constexpr (geometry == Geometry::full_2d) { // the same with rows of eight
        for_classes(tile, phase, [&](std::uint32_t c) {
            const ClassBox box = box_of<geometry>(tile, c);
            for (std::uint32_t y = 0; y < box.n[1]; y += 8, to += 4 * v2::max_group_values)
                for (std::uint32_t in_group = 0; in_group < 8; ++in_group)
                    for (std::size_t group = 0; group < 4; ++group)
                        std::memcpy(to + group * v2::max_group_values + 8 * in_group,
                                    from + box.at(8 * static_cast<std::uint32_t>(group), y + in_group, 0, 0), 8);
        });
    } else {
        for_rows_in_order<geometry>(lattice, tile, phase, [&](std::size_t at, std::uint32_t place, auto n) {
            copy_row(to + place, from + at, n);
        });
    }
}

// The context of a group of n values with these places.
[[gnu::always_inline]] inline std::uint32_t context_of_group(const std::uint8_t* place, std::uint32_t n) {
    return group_contexts.of_sum[sum_of_places(place, n)];
}

// Position in the tile, in raster order, of a class's first value of a row; the next ones are 2 further each.
template <class T>
std::uint32_t position(const SplineTile<T>& tile, std::uint32_t c, std::uint32_t x, std::uint32_t y, std::uint32_t z,
                       std::uint32_t w) {
    const std::array<std::uint32_t, 4> h{x, y, z, w};
    std::uint32_t at = 0;
    for (std::uint32_t a = 4; a-- > 0;)
        at = at * tile.place.edge[a] + (a < tile.n_active ? 2 * h[a] + (c >> a & 1) : h[a]);
    return at;
}

template <class T>
void add_verbatim(SplineTile<T>& tile, std::uint32_t at, typename Traits<T>::Bits bits) {
    tile.verbatim_at[tile.n_verbatim] = static_cast<std::uint16_t>(at);
    tile.verbatim[tile.n_verbatim++] = bits;
}

template <bool with_spread, class T>
void predict(const SplineCoder<T>& coder, const Quantiser<T>& q, SplineTile<T>& tile, std::uint32_t c) {
    if (coder.cubic)
        predict_class<true, with_spread>(tile, c, q.inv);
    else
        predict_class<false, with_spread>(tile, c, q.inv);
}

template <class T>
std::uint32_t coded_points(const SplineTile<T>& tile) {
    return tile.place.points() - tile.box[0].points();
}

template <class T>
void begin_tile(const Lattice& lattice, std::uint64_t number, SplineTile<T>& tile) {
    tile.begin(lattice, tile_of(lattice, number));
    const LatticeTile later = tile_of(lattice, std::min(number + prefetch_distance, lattice.n_tiles - 1));
    for (std::size_t a = 0; a < 4; ++a) {
        const auto apart =
            static_cast<std::ptrdiff_t>(later.origin[a]) - static_cast<std::ptrdiff_t>(tile.place.origin[a]);
        tile.later += apart * static_cast<std::ptrdiff_t>(lattice.field_stride[a]);
        tile.later_coarse +=
            apart / (lattice.is_active(a) ? 2 : 1) * static_cast<std::ptrdiff_t>(lattice.coarse_stride[a]);
    }
}

} // namespace cusz::cpu::CUSZ_ISA
