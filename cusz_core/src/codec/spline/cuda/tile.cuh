// The points of a tile by class, and where they lie in arrays (format_v2.md, section 2). The extents of full tiles are
// constants; other tiles have the same functions.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "device/block.cuh"
#include "kernels.hpp"

namespace cusz::cuda {

inline constexpr std::uint32_t tile_threads = 128;
// Max positions of a column in one go: a whole column of a full tile of three axes, with the widest margins.
inline constexpr int most_of_column = 9;

template <std::uint32_t c>
using Class = std::integral_constant<std::uint32_t, c>;

// Calls use(Class<c>) for the classes of a phase, in coding order or backwards.
template <std::uint32_t axes, bool backwards = false, class Use>
__device__ void for_classes(std::uint32_t phase, const Use& use) {
    const auto one = [&]<std::uint32_t c>(Class<c> constant) {
        if constexpr (c < (1u << axes))
            if (static_cast<std::uint32_t>(std::popcount(c)) == phase) use(constant);
    };
    constexpr std::uint32_t last = 6;
    const auto all = [&]<std::uint32_t... i>(std::integer_sequence<std::uint32_t, i...>) {
        constexpr std::uint32_t order[] = {1, 2, 4, 3, 5, 6, 7};
        (one(Class<order[backwards ? last - i : i]>{}), ...);
    };
    all(std::make_integer_sequence<std::uint32_t, last + 1>{});
}
// Calls use(Class<a>) for the axes along which a class is odd, ascending.
template <std::uint32_t c, class Use>
__device__ void for_odd_axes(const Use& use) {
    if constexpr ((c & 1) != 0) use(Class<0>{});
    if constexpr ((c & 2) != 0) use(Class<1>{});
    if constexpr ((c & 4) != 0) use(Class<2>{});
}

// The axis of the columns that threads walk along: the last active one, but axis 3 if only one is active.
template <std::uint32_t axes>
inline constexpr std::uint32_t column_axis = axes > 1 ? axes - 1 : 3;

template <std::uint32_t of_axes>
struct FullTile {
    static constexpr std::uint32_t axes = of_axes;
    static constexpr bool is_full = true;
    // Unroll factor of loops along columns: all steps, where their number is a constant.
    static constexpr int unrolled = of_axes == 2 ? 1 : most_of_column;
    // Number of half coordinates of a class along an axis.
    static constexpr std::uint32_t n(std::uint32_t, std::uint32_t a) { return a < axes ? tile_edges(axes)[a] / 2 : 1; }
};
template <std::uint32_t of_axes>
struct ClippedTile {
    static constexpr std::uint32_t axes = of_axes;
    static constexpr bool is_full = false;
    static constexpr int unrolled = 1;
    const std::uint32_t* edge; // of TilePlace, in shared memory: copies of it would take too many registers
    __device__ std::uint32_t n(std::uint32_t c, std::uint32_t a) const {
        return a < axes ? (edge[a] + 1 - (c >> a & 1)) / 2 : edge[a];
    }
};

template <class Tile>
__device__ constexpr std::uint32_t points(const Tile& tile, std::uint32_t c) {
    return tile.n(c, 0) * tile.n(c, 1) * tile.n(c, 2) * tile.n(c, 3);
}

// Where the points of a class begin in coding order, counted from the first coded point of the tile or of their phase.
template <class Tile>
__device__ constexpr std::uint32_t first_of_class(const Tile& tile, std::uint32_t c, bool in_phase) {
    const int phase = std::popcount(c);
    std::uint32_t first = 0;
    for (std::uint32_t other = 1; other < 1u << Tile::axes; ++other) {
        const int of_other = std::popcount(other);
        if ((of_other == phase && other < c) || (of_other < phase && !in_phase)) first += points(tile, other);
    }
    return first;
}

// Groups of a class. A group has 64 slots; those beyond the tile are empty.
template <class Tile>
struct ClassGroups {
    const Tile& tile;
    std::uint32_t c;

    static constexpr std::uint32_t edge(std::uint32_t a) { return group_edges(Tile::axes)[a]; }
    __device__ constexpr std::uint32_t along(std::uint32_t a) const { return (tile.n(c, a) + edge(a) - 1) / edge(a); }
    __device__ constexpr std::uint32_t number() const { return along(0) * along(1) * along(2) * along(3); }
    // Length of a group that begins at `origin`. Groups of full tiles are full.
    __device__ constexpr std::uint32_t length(std::uint32_t a, std::uint32_t origin) const {
        return Tile::is_full ? edge(a) : std::min(edge(a), tile.n(c, a) - origin);
    }

    struct Place {
        std::uint32_t origin[4], length[4];
        std::uint32_t first, n; // the number of its first point in the order of the class; how many points it has
    };
    __device__ constexpr Place operator[](std::uint32_t number) const {
        Place place{};
        std::uint32_t g = number;
        place.n = 1;
        for (std::uint32_t a = 0; a < 4; ++a) {
            place.origin[a] = g % along(a) * edge(a);
            place.length[a] = length(a, place.origin[a]);
            place.n *= place.length[a];
            g /= along(a);
        }
        if constexpr (Tile::is_full) {
            place.first = number * v2::max_group_points;
            return place;
        }
        // Before it come the earlier groups of its row, the earlier rows of its layer, and the earlier layers.
        std::uint32_t before = 1;
        for (std::uint32_t a = 0; a < 4; ++a) {
            std::uint32_t behind = 1;
            for (std::uint32_t b = a + 1; b < 4; ++b) behind *= place.length[b];
            place.first += before * place.origin[a] * behind;
            before *= tile.n(c, a);
        }
        return place;
    }
    // The number of a point in the order of the class.
    __device__ constexpr std::uint32_t order(const int (&x)[4]) const {
        std::uint32_t order = 0, before = 1, step = 1, lengths[4]{};
        for (std::uint32_t a = 0; a < 4; ++a)
            lengths[a] = length(a, static_cast<std::uint32_t>(x[a]) / edge(a) * edge(a));
        for (std::uint32_t a = 0; a < 4; ++a) {
            const std::uint32_t in_group = static_cast<std::uint32_t>(x[a]) % edge(a);
            std::uint32_t slower = 1;
            for (std::uint32_t b = a + 1; b < 4; ++b) slower *= lengths[b];
            order += before * (static_cast<std::uint32_t>(x[a]) - in_group) * slower + in_group * step;
            before *= tile.n(c, a);
            step *= lengths[a];
        }
        return order;
    }
    // The numbers of a column's points: first + operator(). In full tiles the latter is the same for all columns.
    struct Column {
        const Tile& tile;
        std::uint32_t c;
        int x[4];
        std::uint32_t first;

        __device__ Column(const ClassGroups& groups, const int (&at)[4])
            : tile(groups.tile), c(groups.c), x{at[0], at[1], at[2], at[3]} {
            x[column_axis<Tile::axes>] = 0;
            first = Tile::is_full ? groups.order(x) : 0;
        }
        __device__ std::uint32_t operator()(int along) const {
            int at[4] = {x[0], x[1], x[2], x[3]};
            if (Tile::is_full) at[0] = at[1] = at[2] = at[3] = 0;
            at[column_axis<Tile::axes>] = along;
            return ClassGroups{tile, c}.order(at);
        }
    };
    // Sets the half coordinates of a slot and its number among the group's points. Returns false if the slot is empty.
    __device__ static constexpr bool point(const Place& place, std::uint32_t slot, int (&x)[4], std::uint32_t& number) {
        bool is_inside = true;
        std::uint32_t step = 1;
        number = Tile::is_full ? slot : 0;
        for (std::uint32_t a = 0; a < 4; ++a) {
            const std::uint32_t in_group = slot % edge(a);
            is_inside = is_inside && in_group < place.length[a];
            x[a] = static_cast<int>(place.origin[a] + in_group);
            if (!Tile::is_full) number += in_group * step;
            step *= place.length[a];
            slot /= edge(a);
        }
        return Tile::is_full || is_inside;
    }
};

// Calls use(c, group, given) for the groups of a phase, in coding order or backwards; by a warp. given: what
// load(c, group, slot) returns for the lane's two slots of the group; it is loaded `ahead` groups before it is used.
template <int ahead, int unrolled, bool backwards = false, class Tile, class Load, class Use>
__device__ __forceinline__ void for_groups_ahead(const Tile& tile, std::uint32_t phase, const Load& load,
                                                 const Use& use) {
    for_classes<Tile::axes, backwards>(phase, [&](auto c) {
        const ClassGroups<Tile> groups{tile, c};
        const std::uint32_t n = groups.number();
        const auto group_of = [&](std::uint32_t g) { return groups[backwards ? n - 1 - g : g]; };
        using Given = Array<decltype(load(c, groups[0], 0u)), 2>;
        Given given[ahead];
        const auto fetch = [&](std::uint32_t g) {
            const auto group = group_of(g);
            return Given{{load(c, group, lane()), load(c, group, lane() + warp_lanes)}};
        };
#pragma unroll
        for (std::uint32_t g = 0; g < ahead; ++g) given[g] = g < n ? fetch(g) : Given{};
#pragma unroll(unrolled)
        for (std::uint32_t g = 0; g < n; ++g) {
            const Given now = given[0];
#pragma unroll
            for (int i = 1; i < ahead; ++i) given[i - 1] = given[i];
            if (g + ahead < n) given[ahead - 1] = fetch(g + ahead);
            use(c, group_of(g), now);
        }
    });
}

// One array per class, with margins of `before` and `behind` positions along the active axes in which it is even.
template <class Tile, std::uint32_t of_before, std::uint32_t of_behind>
struct Boxes {
    static constexpr std::uint32_t before = of_before, behind = of_behind;
    Tile tile;

    static constexpr bool has_margin(std::uint32_t c, std::uint32_t a) { return a < Tile::axes && (c >> a & 1) == 0; }
    __device__ constexpr std::uint32_t length(std::uint32_t c, std::uint32_t a) const {
        return tile.n(c, a) + (has_margin(c, a) ? before + behind : 0);
    }
    __device__ constexpr std::uint32_t stride(std::uint32_t c, std::uint32_t a) const {
        std::uint32_t stride = 1;
        for (std::uint32_t b = 0; b < a; ++b) stride *= length(c, b);
        return stride;
    }
    __device__ constexpr std::uint32_t size(std::uint32_t c) const { return stride(c, 4); }
    __device__ constexpr std::uint32_t begin(std::uint32_t c) const {
        std::uint32_t at = 0;
        for (std::uint32_t other = 0; other < c; ++other) at += size(other);
        return at;
    }
    __device__ constexpr std::uint32_t at(std::uint32_t c, const int (&x)[4]) const {
        std::uint32_t at = begin(c);
        for (std::uint32_t a = 0; a < 4; ++a)
            at += (static_cast<std::uint32_t>(x[a]) + (has_margin(c, a) ? before : 0)) * stride(c, a);
        return at;
    }
    // Turns a position in the array of a class into half coordinates.
    __device__ static constexpr void leave_margin(std::uint32_t c, int (&x)[4]) {
        for (std::uint32_t a = 0; a < Tile::axes; ++a)
            if (has_margin(c, a)) x[a] -= static_cast<int>(before);
    }
    // Whether a position is in the tile along this axis.
    __device__ constexpr bool is_own_along(std::uint32_t c, std::uint32_t a, int x) const {
        return !has_margin(c, a) || (x >= 0 && x < static_cast<int>(tile.n(c, a)));
    }
    // The same along all axes but that of columns.
    __device__ constexpr bool is_own_beside(std::uint32_t c, const int (&x)[4]) const {
        bool is_own = true;
        for (std::uint32_t a = 0; a < Tile::axes; ++a)
            is_own = is_own && (a == column_axis<Tile::axes> || is_own_along(c, a, x[a]));
        return is_own;
    }
};

// The same for a full tile, with one position behind. All classes have the same strides, so a point has the same offset
// in the array of each class.
template <class Tile>
struct EqualBoxes {
    Tile tile;

    // Along the last active axis, only classes that are even in it have a margin.
    __device__ static constexpr std::uint32_t length(std::uint32_t c, std::uint32_t a) {
        return Tile::n(c, a) + (a + 1 < Tile::axes || (a + 1 == Tile::axes && (c >> a & 1) == 0) ? 1 : 0);
    }
    __device__ static constexpr std::uint32_t stride(std::uint32_t, std::uint32_t a) {
        if (a >= Tile::axes) return 0; // there is one position
        std::uint32_t stride = 1;
        for (std::uint32_t b = 0; b < a; ++b) stride *= length(0, b);
        return stride;
    }
    __device__ static constexpr std::uint32_t size(std::uint32_t c) {
        return stride(c, Tile::axes - 1) * length(c, Tile::axes - 1);
    }
    __device__ static constexpr std::uint32_t begin(std::uint32_t c) {
        std::uint32_t at = 0;
        for (std::uint32_t other = 0; other < c; ++other) at += size(other);
        return at;
    }
    __device__ static constexpr std::uint32_t at(std::uint32_t c, const int (&x)[4]) {
        std::uint32_t at = begin(c);
        for (std::uint32_t a = 0; a < 4; ++a) at += static_cast<std::uint32_t>(x[a]) * stride(c, a);
        return at;
    }
};

// Calls use(x, steps) for each column, or part of one, of a box; by a block. length(a): of the box along axis a. A part
// begins at x and has `steps` positions. What depends on the other axes is computed once per column.
template <std::uint32_t axes, class Length, class Use>
__device__ __forceinline__ void for_columns(const Length& length, const Use& use) {
    constexpr std::uint32_t along = column_axis<axes>, most = most_of_column;
    const std::uint32_t n = length(along), parts = (n + most - 1) / most;
    std::uint32_t columns = parts;
    for (std::uint32_t a = 0; a < 4; ++a) columns *= a == along ? 1 : length(a);
    for (std::uint32_t column = threadIdx.x; column < columns; column += tile_threads) {
        int x[4];
        std::uint32_t rest = column;
        for (std::uint32_t a = 0; a < 4; ++a) {
            if (a == along) continue;
            x[a] = static_cast<int>(rest % length(a));
            rest /= length(a);
        }
        const std::uint32_t begin = parts > 1 ? rest * most : 0;
        x[along] = static_cast<int>(begin);
        use(x, parts > 1 ? std::min(n - begin, most) : n);
    }
}

// Copies the box of a class along columns: put(x)(k, load(x)(k)) for positions k from x on; by a block. In full tiles
// of three axes, a thread issues all its loads before it waits for the first.
template <std::uint32_t c, class Boxes, class Load, class Put>
__device__ __forceinline__ void move_box(const Boxes& boxes, const Load& load, const Put& put) {
    using Tile = decltype(boxes.tile);
    constexpr std::uint32_t axes = Tile::axes;
    if constexpr (Tile::is_full && axes == 3) {
        constexpr Boxes full{Tile{}};
        constexpr std::uint32_t steps = full.length(c, 2), columns = full.length(c, 0) * full.length(c, 1),
                                rounds = (columns + tile_threads - 1) / tile_threads;
        int x[4] = {};
        std::remove_cvref_t<decltype(load(x)(0u))> held[rounds][steps] = {};
        const auto for_own = [&](const auto& use) {
#pragma unroll
            for (std::uint32_t r = 0; r < rounds; ++r) {
                const std::uint32_t column = threadIdx.x + r * tile_threads;
                if (column >= columns) continue;
                x[0] = static_cast<int>(column % full.length(c, 0));
                x[1] = static_cast<int>(column / full.length(c, 0));
                x[2] = x[3] = 0;
                boxes.leave_margin(c, x);
                use(held[r]);
            }
        };
        for_own([&](auto& of_column) {
            const auto from = load(x);
#pragma unroll
            for (std::uint32_t k = 0; k < steps; ++k) of_column[k] = from(k);
        });
        for_own([&](const auto& of_column) {
            const auto to = put(x);
#pragma unroll
            for (std::uint32_t k = 0; k < steps; ++k) to(k, of_column[k]);
        });
    } else {
        for_columns<axes>([&](std::uint32_t a) { return boxes.length(c, a); },
                          [&](int (&x)[4], std::uint32_t steps) {
                              boxes.leave_margin(c, x);
                              const auto from = load(x);
                              const auto to = put(x);
                              for (std::uint32_t k = 0; k < steps; ++k) to(k, from(k));
                          });
    }
}

// Where a tile lies. Half coordinates are relative to it.
struct TilePlace {
    std::uint64_t field, fine, coarse; // offsets of its first point
    std::uint64_t first_code;          // where its codes begin: every tile has room for all its points, class 0 too
    std::uint32_t edge[4];
    int begin[4], end[4]; // the range of even positions that the lattice has
    std::uint32_t live;
    bool is_full;
};

// Finds tile `number`; by one thread, for which others wait. So it avoids divisions of 64 bits: fewer than 2^32 tiles
// fit the memory of a device.
__device__ inline TilePlace place_of(const UnitLattice& of, std::uint64_t number) {
    TilePlace place{};
    UnitPlace unit{};
    if (of.units != nullptr) unit = of.units[number / v2::tiles_of_unit];
    const Lattice& lattice = of.lattice;
    const LatticeTile tile = tile_of(lattice, static_cast<std::uint32_t>(number));
    place.is_full = true;
    std::uint64_t before = 1;
    for (std::uint32_t a = 0; a < 4; ++a) {
        const bool active = lattice.is_active(a);
        const std::uint64_t origin = tile.origin[a], half = active ? origin / 2 : origin;
        place.edge[a] = tile.edge[a];
        place.is_full = place.is_full && tile.edge[a] == tile_edges(lattice.n_active)[a];
        place.field += origin * lattice.field_stride[a];
        place.fine += origin * lattice.stride[a];
        place.coarse += half * lattice.coarse_stride[a];
        // Limited to fit an int: nobody asks for positions further away than a tile is long.
        const std::uint64_t left = lattice.coarse_extent(a) - half;
        place.begin[a] = -static_cast<int>(std::min<std::uint64_t>(half, 2 * max_tile_values));
        place.end[a] = static_cast<int>(std::min<std::uint64_t>(left, 2 * max_tile_values));
        std::uint32_t behind = 1;
        for (std::uint32_t b = a + 1; b < 4; ++b) behind *= tile.edge[b];
        place.first_code += before * origin * behind;
        before *= lattice.extent[a];
    }
    place.live = 1;
    if (of.units != nullptr) place.live = unit.n == 0 ? 0 : of.payloads[unit.begin] >> number % v2::tiles_of_unit & 1;
    return place;
}
// Whether the lattice has position x of class c.
template <std::uint32_t axes>
__device__ bool is_known(const TilePlace& place, std::uint32_t c, const int (&x)[4]) {
    bool known = true;
    for (std::uint32_t a = 0; a < axes; ++a)
        if ((c >> a & 1) == 0) known = known && x[a] >= place.begin[a] && x[a] < place.end[a];
    return known;
}
// Which positions k >= 0 of a column, counted from x, the lattice has.
struct KnownPart {
    int begin, end;
    __device__ bool has(std::uint32_t k) const { return static_cast<int>(k) >= begin && static_cast<int>(k) < end; }
};
template <std::uint32_t axes>
__device__ KnownPart known_part(const TilePlace& place, std::uint32_t c, const int (&x)[4]) {
    constexpr std::uint32_t along = column_axis<axes>;
    bool known = true;
    for (std::uint32_t a = 0; a < axes; ++a)
        if ((c >> a & 1) == 0 && a != along) known = known && x[a] >= place.begin[a] && x[a] < place.end[a];
    return {place.begin[along] - x[along], known ? place.end[along] - x[along] : -most_of_column};
}

// Calls work(tile) with a FullTile or a ClippedTile, always the latter if !fits. place: in shared memory, because a
// ClippedTile points into it.
template <std::uint32_t axes, bool fits = true, class Work>
__device__ auto with_form(const TilePlace& place, const Work& work) {
    if constexpr (fits)
        if (place.is_full) return work(FullTile<axes>{});
    return work(ClippedTile<axes>{place.edge});
}

__device__ inline std::int64_t offset_along(const int (&x)[4], const Extents& stride) {
    std::int64_t offset = 0;
    for (std::uint32_t a = 0; a < 4; ++a) offset += x[a] * static_cast<std::int64_t>(stride[a]);
    return offset;
}
// Offset of a class's point from the tile's first one.
template <class Tile>
__device__ std::int64_t offset_of(std::uint32_t c, const int (&x)[4], const Extents& stride) {
    std::int64_t offset = 0;
    for (std::uint32_t a = 0; a < 4; ++a) {
        const int at = a < Tile::axes ? 2 * x[a] + static_cast<int>(c >> a & 1) : x[a];
        offset += at * static_cast<std::int64_t>(stride[a]);
    }
    return offset;
}

} // namespace cusz::cuda
