// A tile of a lattice in the memory of the 128 threads that work on it (docs/format_v2.md, section 2): one box for each
// class, with room around it for what lies beyond the tile.
#pragma once

#include "archive/alphabet.hpp"
#include "archive/checksum.hpp"
#include "codec/lorenzo/cuda/prequant.cuh"
#include "codec/spline/rans_model.hpp"
#include "device/block.cuh"
#include "kernels.hpp"

namespace cusz::cuda {

inline constexpr std::uint32_t tile_threads = 128, tile_warps = tile_threads / warp_lanes;
inline constexpr std::uint32_t max_groups_of_tile = 1024;
inline constexpr std::uint32_t special_magnitude = v2::special_magnitude;

// This thread's number among those of its tile, and its tile's among those of the block.
__device__ inline std::uint32_t tile_thread() { return threadIdx.x % tile_threads; }
// The same, worked out anew: what follows from it does not take up registers all the time.
__device__ inline std::uint32_t fresh_tile_thread() {
    std::uint32_t thread = threadIdx.x;
#ifdef __CUDA_ARCH__
    asm volatile("mov.u32 %0, %1;" : "=r"(thread) : "r"(threadIdx.x));
#endif
    return thread % tile_threads;
}
__device__ inline std::uint32_t tile_warp() { return tile_thread() / warp_lanes; }
__device__ inline std::uint32_t tile_of_block() { return threadIdx.x / tile_threads; }

// One of a class's points: half coordinates; its place in the coding order of the phase, in its group, and the group.
struct Point {
    std::uint32_t x[4];
    std::uint32_t order, group, in_group;
};

// Where a tile lies.
template <class T>
struct TilePlace {
    const DeviceLattice<T>* lattice;
    std::uint64_t number; // in the archive
    std::uint64_t origin[4];
    std::uint32_t edge[4];
    std::uint64_t original, fine, coarse; // offsets of the first point
    std::uint32_t low, high;              // bit a: the rows along axis a are to be continued before it, after it
    std::uint32_t begin[4], end[4];       // of class 0's positions, those that the coarser lattice has
    bool full;
};

constexpr std::uint32_t axes_of(TileShape shape) {
    return shape == TileShape::line ? 1 : shape == TileShape::square ? 2 : shape == TileShape::box ? 3 : 0;
}

// Calls use(c) for the classes of a phase, with a constant.
template <std::uint32_t n, class Use>
__device__ void for_known_classes(std::uint32_t phase, const Use& use) {
    const auto one = [&]<std::uint32_t c>(std::integral_constant<std::uint32_t, c> constant) {
        if constexpr (c < (1u << n)) use(constant);
    };
    if (phase == 1) {
        one(std::integral_constant<std::uint32_t, 1>{});
        one(std::integral_constant<std::uint32_t, 2>{});
        one(std::integral_constant<std::uint32_t, 4>{});
    } else if (phase == 2) {
        one(std::integral_constant<std::uint32_t, 3>{});
        one(std::integral_constant<std::uint32_t, 5>{});
        one(std::integral_constant<std::uint32_t, 6>{});
    } else if (phase == 3) {
        one(std::integral_constant<std::uint32_t, 7>{});
    }
}

// ---- Full tiles: extents are constants. A warp takes whole groups of 64, one after the other.

template <class T, TileShape shape>
struct FullTile {
    static constexpr bool known = true;
    static constexpr std::uint32_t n_active = axes_of(shape);
    // Whether classes that are odd along axis 2 lie where what they are predicted from along it has been: or else four
    // tiles of f64 are too much for a multiprocessor that has 164 KiB.
    static constexpr bool in_place = sizeof(T) == 8 && n_active == 3;
    static constexpr bool replaces(std::uint32_t c) { return in_place && (c & 4) != 0; }
    // Whether a class is the first of its phase to do so, after others that are predicted from what it replaces.
    static constexpr bool replaces_first(std::uint32_t c) { return in_place && (c == 4 || c == 5); }
    static constexpr std::uint32_t n(std::uint32_t a) { // half coordinates of every class
        return a < n_active ? tile_edges(n_active)[a] / 2 : 1;
    }
    static constexpr std::uint32_t n(std::uint32_t, std::uint32_t a) { return n(a); }
    static constexpr std::uint32_t class_points = n(0) * n(1) * n(2);
    static constexpr std::uint32_t steps = class_points / tile_threads; // points of a thread
    static constexpr std::uint32_t points(std::uint32_t) { return class_points; }
    static constexpr std::uint32_t coded_points = ((1u << n_active) - 1) * class_points;
    static constexpr std::uint32_t points_of_phase(std::uint32_t phase) {
        return class_points * (phase == n_active ? 1 : n_active);
    }
    static constexpr std::uint32_t groups_of_phase(std::uint32_t phase) { return points_of_phase(phase) / 64; }

    // Positions in memory: with one before and two behind along the active axes that are even in a class.
    static constexpr std::uint32_t margin(std::uint32_t c, std::uint32_t a) {
        return a < n_active && (c >> a & 1) == 0 ? 1 : 0;
    }
    static constexpr std::uint32_t padded(std::uint32_t c, std::uint32_t a) { return n(a) + 3 * margin(c, a); }
    static constexpr std::uint32_t stride(std::uint32_t c, std::uint32_t a) {
        std::uint32_t stride = 1;
        for (std::uint32_t b = 0; b < a; ++b) stride *= padded(c, b);
        return stride;
    }
    static constexpr std::uint32_t positions(std::uint32_t c) { return stride(c, 4); }
    static constexpr std::uint32_t positions_of_phase(std::uint32_t phase) {
        std::uint32_t sum = 0;
        for (std::uint32_t c = 0; c < 1u << n_active; ++c)
            if (static_cast<std::uint32_t>(std::popcount(c)) == phase) sum += positions(c);
        return sum;
    }
    // Memory has two parts. The first is for phase 1 and then 3, the second for class 0 and then phase 2. Or, in place,
    // the first is for classes 1 and 2, the second for class 0, and class 3 behind class 4.
    static constexpr std::uint32_t values_of_codes = (points_of_phase(1) * 4 - 1) / sizeof(T) + 1;
    static constexpr std::uint32_t first_part = in_place ? positions(1) + positions(2) : positions_of_phase(1);
    static constexpr std::uint32_t second_part =
        in_place ? std::max({positions(0), positions(4) + positions(3), positions(4) + values_of_codes})
                 : std::max({positions(0), positions_of_phase(2), values_of_codes});
    static constexpr std::uint32_t memory = first_part + second_part;
    static constexpr std::uint32_t begin(std::uint32_t c) { // of a class's positions
        if (replaces(c)) return begin(c & 3);
        if (in_place && c == 3) return first_part + positions(4);
        const auto phase = static_cast<std::uint32_t>(std::popcount(c));
        std::uint32_t at = phase % 2 == 0 ? first_part : 0;
        for (std::uint32_t before = 1; before < c; ++before)
            if (static_cast<std::uint32_t>(std::popcount(before)) == phase) at += positions(before);
        return at;
    }
    // Of a phase's codes when it is decoded: where there are no values that are still needed.
    static constexpr std::uint32_t codes_begin(std::uint32_t phase) {
        if (in_place) return phase == 1 ? begin(3) : begin(4);
        return phase == 1 ? first_part : phase == 2 ? 0 : class_points;
    }
    static_assert(!in_place || values_of_codes <= positions(4));
    static constexpr std::uint32_t first(std::uint32_t c) { // of its first point
        std::uint32_t at = begin(c);
        for (std::uint32_t a = 0; a < n_active; ++a) at += margin(c, a) * stride(c, a);
        return at;
    }
    // Magnitudes are bytes, four along the last axis in a word. Behind the tile there are zeros, along the same axes,
    // but along the last one only if a column of a thread (below) ends before the tile does.
    static constexpr std::uint32_t last_axis = n_active - 1;
    static constexpr std::uint32_t magnitudes_of_row(std::uint32_t c) {
        return n(last_axis) + (n_active == 2 ? 4 * margin(c, last_axis) : 0);
    }
    static constexpr std::uint32_t magnitude_stride(std::uint32_t c, std::uint32_t a) {
        if (a == last_axis) return 1;
        std::uint32_t stride = magnitudes_of_row(c);
        for (std::uint32_t b = 0; b < a; ++b)
            if (b != last_axis) stride *= n(b) + margin(c, b);
        return stride;
    }
    static constexpr std::uint32_t magnitude_begin(std::uint32_t c) {
        std::uint32_t at = 0;
        for (std::uint32_t before = 1; before < c; ++before) at += magnitude_stride(before, 4);
        return at;
    }
    static constexpr std::uint32_t magnitude_bytes = magnitude_begin(1u << n_active);
    static constexpr std::uint32_t class_of_phase(std::uint32_t c) { // which one
        std::uint32_t number = 0;
        for (std::uint32_t before = 1; before < c; ++before)
            number += std::popcount(before) == std::popcount(c) ? 1 : 0;
        return number;
    }
    static constexpr std::uint32_t group_edge(std::uint32_t a) { return group_edges(n_active)[a]; }
    // A phase's entries are its groups' flags, then its values; before them those of earlier phases.
    static constexpr std::uint32_t first_entry(std::uint32_t phase) {
        std::uint32_t at = 0;
        for (std::uint32_t before = 1; before < phase; ++before)
            at += groups_of_phase(before) + points_of_phase(before);
        return at;
    }

    __device__ bool is_active(std::uint32_t a) const { return a < n_active; }
    __device__ std::uint32_t edge(std::uint32_t a) const { return a < n_active ? 2 * n(a) : 1; }

    template <class Use>
    __device__ void for_classes(std::uint32_t phase, const Use& use) const {
        for_known_classes<n_active>(phase, use);
    }
    // A thread's points of a class are columns along the last axis: of each group that its warp has, `row_lanes` lanes
    // have a row or a layer.
    static constexpr std::uint32_t group = 64;
    static constexpr std::uint32_t row_lanes = n_active == 3 ? 16 : n_active == 2 ? 8 : 32;
    static constexpr std::uint32_t column = group / row_lanes, columns = steps / column; // points of one; its columns
    static constexpr std::uint32_t apart = n_active == 1 ? row_lanes : 1;                // along the last axis
    __device__ static std::uint32_t first_group(std::uint32_t thread) {
        return thread / warp_lanes * (steps * warp_lanes / group) + thread % warp_lanes / row_lanes;
    }
    __device__ static std::uint32_t first_x(std::uint32_t thread, std::uint32_t a) { // of a thread's first point
        constexpr std::uint32_t groups_x = n(0) / group_edge(0);
        const std::uint32_t g = first_group(thread), lane = thread % warp_lanes;
        if constexpr (n_active == 1) return a == 0 ? g * group + lane : 0;
        return a == 0   ? g % groups_x * group_edge(0) + lane % group_edge(0)
               : a == 1 ? g / groups_x * group_edge(1) + lane % row_lanes / group_edge(0)
                        : 0;
    }
    // Calls use(point, i) for the first point of each of a thread's columns of a class.
    template <class C, class Use>
    __device__ void for_columns(C, std::uint32_t thread, const Use& use) const {
        constexpr std::uint32_t before = class_of_phase(C::value);
        const std::uint32_t x = first_x(thread, 0), y = first_x(thread, 1), g = first_group(thread);
#pragma unroll 1
        for (std::uint32_t i = 0; i < columns; ++i)
            use(Point{{opaque(x + i * group), opaque(y), 0, 0},
                      opaque((before * (class_points / group) + g + i) * group + thread % row_lanes),
                      before * (class_points / group) + g + i,
                      thread % row_lanes},
                i);
    }
    // So many points of a column are worked on at once, as long as registers suffice.
    static constexpr std::uint32_t at_once = sizeof(T) == 8 && column > 4 ? 4 : column;
    // Number k of a column.
    __device__ static Point in_column(const Point& first, std::uint32_t k) {
        Point p = first;
        p.x[last_axis] += k * apart;
        p.order += k * row_lanes;
        p.in_group += k * row_lanes;
        return p;
    }
    // Calls use(point, k) for this thread's points of a class.
    template <class C, class Use>
    __device__ void for_points(C c, const Use& use) const {
        for_columns(c, tile_thread(), [&](const Point& first, std::uint32_t i) {
#pragma unroll
            for (std::uint32_t k = 0; k < column; ++k) use(in_column(first, k), i * column + k);
        });
    }
    // Calls use(x, axis, ahead) for all positions of a class around the tile: three at once, so many steps along the
    // axis (both are constants) from x, which is in the tile along it.
    template <class C, class Use>
    __device__ void for_margin(C c, const Use& use) const {
        if constexpr (replaces(C::value)) {
            columns_beside(c, use);
        } else {
            beside<2>(c, use);
            beside<1>(c, use);
            beside<0>(c, use);
        }
    }

private:
    // The same by columns along axis 2, each by one thread, which has read all when it puts what replaces it.
    template <class C, class Use>
    __device__ void columns_beside(C c, const Use& use) const {
        constexpr int row = padded(c, 0), of_rows = margin(c, 1) * 3 * row, all = of_rows + margin(c, 0) * 3 * n(1);
        for (auto i = static_cast<int>(fresh_tile_thread()); i < all; i += tile_threads) {
            const bool in_row = i < of_rows; // or beside the tile along axis 0
            const int j = i - of_rows, across = in_row ? i / row : j % 3,
                      outside = across == 0 ? -1 : static_cast<int>(in_row ? n(1) : n(0)) + across - 1,
                      x = in_row ? i % row - static_cast<int>(margin(c, 0)) : outside, y = in_row ? outside : j / 3;
            int ahead[n(2)];
#pragma unroll
            for (std::uint32_t z = 0; z < n(2); ++z) ahead[z] = static_cast<int>(z);
            use({x, y, 0, 0}, std::integral_constant<std::uint32_t, 2>{}, ahead);
        }
    }
    // Those before and behind it along an axis; along the axes before this one the margin is included.
    template <std::uint32_t axis, class C, class Use>
    __device__ void beside(C c, const Use& use) const {
        if constexpr (margin(c, axis) != 0) {
            constexpr std::uint32_t first = axis == 0 ? 1 : 0, second = axis == 2 ? 1 : 2; // the other axes
            constexpr std::uint32_t margin_of_first = first < axis ? margin(c, first) : 0,
                                    margin_of_second = second < axis ? margin(c, second) : 0,
                                    row = n(first) + 3 * margin_of_first, rows = n(second) + 3 * margin_of_second;
            for (std::uint32_t i = fresh_tile_thread(); i < row * rows; i += tile_threads) {
                int x[4]{};
                x[first] = static_cast<int>(i % row) - static_cast<int>(margin_of_first);
                x[second] = static_cast<int>(i / row) - static_cast<int>(margin_of_second);
                use(x, std::integral_constant<std::uint32_t, axis>{},
                    {-1, static_cast<int>(n(axis)), static_cast<int>(n(axis)) + 1});
            }
        }
    }
};

// ---- Tiles of any shape, in global memory

struct AnyTile {
    static constexpr bool known = false;

    std::uint32_t n_active, edges[4], group_edge[4];
    std::uint32_t half[v2::n_classes][4], pads[v2::n_classes][4], strides[v2::n_classes][4];
    std::uint32_t begins[v2::n_classes], firsts[v2::n_classes], numbers[v2::n_classes]; // number: of points
    std::uint32_t orders[v2::n_classes], groups[v2::n_classes]; // of a class's first point in its phase
    std::uint32_t magnitude_begins[v2::n_classes];
    std::uint32_t of_phase[4], groups_in_phase[4];
    std::uint32_t coded_points;

    __device__ bool is_active(std::uint32_t a) const { return a < n_active; }
    __device__ std::uint32_t edge(std::uint32_t a) const { return edges[a]; }
    __device__ std::uint32_t n(std::uint32_t c, std::uint32_t a) const { return half[c][a]; }
    __device__ std::uint32_t points(std::uint32_t c) const { return numbers[c]; }
    __device__ std::uint32_t margin(std::uint32_t c, std::uint32_t a) const {
        return a < n_active && (c >> a & 1) == 0;
    }
    __device__ std::uint32_t padded(std::uint32_t c, std::uint32_t a) const { return pads[c][a]; }
    __device__ std::uint32_t stride(std::uint32_t c, std::uint32_t a) const { return strides[c][a]; }
    __device__ std::uint32_t positions(std::uint32_t c) const { return strides[c][3] * pads[c][3]; }
    __device__ std::uint32_t begin(std::uint32_t c) const { return begins[c]; }
    __device__ std::uint32_t first(std::uint32_t c) const { return firsts[c]; }
    __device__ std::uint32_t points_of_phase(std::uint32_t phase) const { return of_phase[phase]; }
    __device__ std::uint32_t groups_of_phase(std::uint32_t phase) const { return groups_in_phase[phase]; }

    template <class T>
    __device__ void set(const DeviceLattice<T>& lattice, const std::uint32_t (&edge_of)[4]) {
        n_active = lattice.n_active;
        const auto group = group_edges(n_active);
        for (std::uint32_t a = 0; a < 4; ++a) {
            edges[a] = edge_of[a];
            group_edge[a] = group[a];
            of_phase[a] = groups_in_phase[a] = 0;
        }
        std::uint32_t at = 0;
        coded_points = 0;
        for (std::uint32_t c = 0; c < 1u << n_active; ++c) {
            const auto phase = static_cast<std::uint32_t>(__popc(c));
            std::uint32_t n_points = 1, n_positions = 1, n_groups = 1, offset = 0;
            for (std::uint32_t a = 0; a < 4; ++a) {
                const bool active = a < n_active, odd = (c >> a & 1) != 0;
                half[c][a] = active ? (edges[a] + (odd ? 0 : 1)) / 2 : edges[a];
                pads[c][a] = half[c][a] + 3 * margin(c, a);
                strides[c][a] = n_positions;
                offset += margin(c, a) * n_positions;
                n_positions *= pads[c][a];
                n_points *= half[c][a];
                n_groups *= (half[c][a] + group_edge[a] - 1) / group_edge[a];
            }
            begins[c] = at;
            firsts[c] = at + offset;
            at += n_positions;
            numbers[c] = n_points;
            orders[c] = of_phase[phase];
            groups[c] = groups_in_phase[phase];
            of_phase[phase] += n_points;
            groups_in_phase[phase] += n_groups;
            magnitude_begins[c] = coded_points;
            coded_points += c > 0 ? n_points : 0;
        }
    }

    template <class Use>
    __device__ void for_classes(std::uint32_t phase, const Use& use) const {
        for (std::uint32_t c = 1; c < 1u << n_active; ++c)
            if (static_cast<std::uint32_t>(__popc(c)) == phase && numbers[c] > 0) use(c);
    }
    template <class Use>
    __device__ void for_points(std::uint32_t c, const Use& use) const {
        for (std::uint32_t o = tile_thread(); o < numbers[c]; o += tile_threads) use(point(c, o), 0u);
    }
    // Number o of a class, in coding order.
    __device__ Point point(std::uint32_t c, std::uint32_t o) const {
        const auto& size = half[c];
        const std::uint32_t volume = size[0] * size[1] * size[2];
        Point p{};
        p.order = orders[c] + o;
        p.x[3] = o / volume; // groups are one thick along axis 3, which is not active
        o -= p.x[3] * volume;
        std::uint32_t g[3], thick[3], slab = volume; // of the group; slab: groups with the same coordinates so far
        for (std::uint32_t a = 3; a-- > 0;) {
            const std::uint32_t layer = slab / size[a], most = layer * group_edge[a];
            g[a] = o / most;
            thick[a] = std::min(group_edge[a], size[a] - g[a] * group_edge[a]);
            o -= g[a] * most;
            slab = layer * thick[a];
        }
        p.in_group = o;
        for (std::uint32_t a = 0; a < 3; ++a) {
            p.x[a] = g[a] * group_edge[a] + o % thick[a];
            o /= thick[a];
        }
        const auto n_groups = [&](std::uint32_t a) { return (size[a] + group_edge[a] - 1) / group_edge[a]; };
        p.group = groups[c] + ((p.x[3] * n_groups(2) + g[2]) * n_groups(1) + g[1]) * n_groups(0) + g[0];
        return p;
    }
    template <class Use>
    __device__ void for_margin(std::uint32_t c, const Use& use) const {
        for (std::uint32_t i = tile_thread(); i < positions(c); i += tile_threads) {
            std::uint32_t rest = i;
            int x[4];
            bool inside = true;
            for (std::uint32_t a = 0; a < 4; ++a) {
                x[a] = static_cast<int>(rest % pads[c][a]) - static_cast<int>(margin(c, a));
                rest /= pads[c][a];
                inside = inside && x[a] >= 0 && static_cast<std::uint32_t>(x[a]) < half[c][a];
            }
            if (!inside) use(x);
        }
    }
};

// ---- Memory

template <class T, TileShape shape>
struct FullMemory {
    using Geometry = FullTile<T, shape>;
    // Of the coarser lattice's magnitudes, with one around those of class 0, four along the last axis in a word. They
    // are where phase 1 will be.
    static constexpr std::uint32_t stride_of_parents(std::uint32_t a) {
        if (a == Geometry::last_axis) return 1;
        std::uint32_t stride = (Geometry::n(Geometry::last_axis) + 2 + 3) / 4 * 4;
        for (std::uint32_t b = 0; b < a && b != Geometry::last_axis; ++b) stride *= Geometry::n(b) + 2;
        return stride;
    }
    static_assert(stride_of_parents(4) <= Geometry::positions(1) * sizeof(T));

    alignas(16) Array<T, Geometry::memory> values;
    alignas(4) Array<std::uint8_t, Geometry::class_points> parent_sums;
    alignas(4) Array<std::uint8_t, Geometry::magnitude_bytes> magnitudes;
    Array<std::uint8_t, 32> significant_flags; // of a phase's groups, in coding order

    __device__ Geometry geometry() const { return {}; }
    __device__ T& value(std::uint32_t at) { return values[at]; }
    __device__ std::uint8_t& magnitude(std::uint32_t at) { return magnitudes[at]; }
    __device__ std::uint8_t& parents(std::uint32_t at) { return parent_sums[at]; }
    __device__ std::uint8_t& parent_magnitude(std::uint32_t at) {
        assert(at < stride_of_parents(4));
        return reinterpret_cast<std::uint8_t*>(values.item)[at];
    }
    __device__ std::uint8_t& significant(std::uint32_t g) { return significant_flags[g]; }
};

// With what is needed to decode.
template <class T, TileShape shape>
struct FullReading : FullMemory<T, shape> {
    using Geometry = FullTile<T, shape>;
    alignas(16) Array<std::uint8_t, Geometry::points_of_phase(1)> orders; // tables of symbols, then symbols
    Array<std::uint16_t, 32> sums;                                        // of S + N, of a phase's groups
    Array<std::uint16_t, 32> places; // of every 64th symbol that is coded, in `orders`

    __device__ std::uint8_t& order(std::uint32_t at) { return orders[at]; }
    __device__ std::int32_t& code(std::uint32_t phase, std::uint32_t at) {
        assert(at < Geometry::points_of_phase(phase));
        return reinterpret_cast<std::int32_t*>(this->values.item + Geometry::codes_begin(phase))[at];
    }
    __device__ std::uint16_t& sum(std::uint32_t g) { return sums[g]; }
};

// Once for a block: the rows of zeros stay as they are.
template <class T, TileShape shape>
__device__ void clear_magnitudes(FullMemory<T, shape>& memory) {
    for (std::uint32_t i = tile_thread(); i < FullTile<T, shape>::magnitude_bytes; i += tile_threads)
        memory.magnitudes[i] = 0;
}

// In global memory. The values follow.
template <class T>
struct AnyMemory {
    AnyTile tile;
    Array<std::int32_t, max_tile_values> codes;
    Array<std::uint8_t, max_tile_values> parent_sums, magnitudes, orders, symbols;
    // By group, in coding order: the sum of S + N, and F, which is for writing; then its first value, and how many
    // values of significant groups are before it.
    Array<std::uint32_t, max_groups_of_tile> sums;
    Array<std::uint8_t, max_groups_of_tile> contexts, significant_flags;
    Array<std::uint16_t, max_groups_of_tile> starts, firsts;
    Array<std::uint16_t, max_tile_values> group_of; // by value in coding order
    Array<std::uint16_t, max_tile_values / 64> places;

    __device__ const AnyTile& geometry() const { return tile; }
    __device__ T& value(std::uint32_t at) { return reinterpret_cast<T*>(this + 1)[at]; }
    __device__ std::uint8_t& magnitude(std::uint32_t at) { return magnitudes[at]; }
    __device__ std::uint8_t& parents(std::uint32_t at) { return parent_sums[at]; }
    __device__ std::uint8_t& order(std::uint32_t at) { return orders[at]; }
    __device__ std::uint8_t& parent_magnitude(std::uint32_t at) { return orders[at]; }
    __device__ std::uint8_t& symbol(std::uint32_t at) { return symbols[at]; }
    __device__ std::int32_t& code(std::uint32_t, std::uint32_t at) { return codes[at]; }
    __device__ std::uint32_t& sum(std::uint32_t g) { return sums[g]; }
    __device__ std::uint8_t& context(std::uint32_t g) { return contexts[g]; }
    __device__ std::uint8_t& significant(std::uint32_t g) { return significant_flags[g]; }
};

// ---- Positions

template <class G, class C>
__device__ std::uint32_t position(const G& g, C c, int x, int y, int z, int w) {
    if constexpr (G::known) {
        constexpr auto first = static_cast<int>(G::first(c)), row = static_cast<int>(G::stride(c, 1)),
                       plane = static_cast<int>(G::stride(c, 2));
        return static_cast<std::uint32_t>(first + x + y * row + z * plane);
    } else {
        return static_cast<std::uint32_t>(static_cast<int>(g.first(c)) + x + y * static_cast<int>(g.stride(c, 1)) +
                                          z * static_cast<int>(g.stride(c, 2)) + w * static_cast<int>(g.stride(c, 3)));
    }
}
template <class G, class C>
__device__ std::uint32_t position(const G& g, C c, const Point& p) {
    return position(g, c, static_cast<int>(p.x[0]), static_cast<int>(p.x[1]), static_cast<int>(p.x[2]),
                    static_cast<int>(p.x[3]));
}
// Of a point's magnitude.
template <class G, class C>
__device__ std::uint32_t magnitude_position(const G& g, C c, const Point& p) {
    if constexpr (G::known) {
        std::uint32_t at = G::magnitude_begin(c);
        for (std::uint32_t a = 0; a < G::n_active; ++a) at += p.x[a] * G::magnitude_stride(c, a);
        return at;
    } else {
        return g.magnitude_begins[c] + p.x[0] + g.n(c, 0) * (p.x[1] + g.n(c, 1) * (p.x[2] + g.n(c, 2) * p.x[3]));
    }
}
// Of the sum of magnitudes around a point of class 0 with these half coordinates.
template <class G>
__device__ std::uint32_t parent_position(const G& g, const Point& p) {
    if constexpr (G::known) { // four along the last axis in a word
        const std::uint32_t other = G::n_active == 3 ? p.x[0] + G::n(0) * p.x[1] : G::n_active == 2 ? p.x[0] : 0;
        return p.x[G::last_axis] + G::n(G::last_axis) * other;
    } else {
        return p.x[0] + g.n(0, 0) * (p.x[1] + g.n(0, 1) * (p.x[2] + g.n(0, 2) * p.x[3]));
    }
}

// Offsets of this thread's points in memory with given strides.
template <class G>
class PointOffsets {
public:
    // begin: of the tile's first point.
    __device__ PointOffsets(const G& g, std::uint64_t begin, const std::uint64_t (&stride)[4])
        : g_(g), begin_(begin), stride_(stride) {
        if constexpr (G::known) {
            for (std::uint32_t a = 0; a < G::n_active; ++a)
                begin_ += std::uint64_t{2 * G::first_x(tile_thread(), a)} * stride[a];
        }
    }
    // Of a column's first point, and between its points.
    template <class C>
    __device__ std::uint64_t first(C c, std::uint32_t column) const {
        std::uint64_t offset = begin_;
        for (std::uint32_t a = 0; a < G::n_active; ++a) offset += (c >> a & 1) != 0 ? stride_[a] : 0;
        if constexpr (G::columns > 1) offset += std::uint64_t{2 * G::group * column} * stride_[0];
        return offset;
    }
    __device__ std::uint64_t step() const { return 2 * G::apart * stride_[G::last_axis]; }
    // Of point number k of class c.
    template <class C>
    __device__ std::uint64_t operator()(C c, const Point& p, std::uint32_t k) const {
        if constexpr (G::known) {
            return first(c, k / G::column) + k % G::column * step();
        } else {
            std::uint64_t offset = begin_;
            for (std::uint32_t a = 0; a < 4; ++a)
                offset += std::uint64_t{g_.is_active(a) ? 2 * p.x[a] + (c >> a & 1) : p.x[a]} * stride_[a];
            return offset;
        }
    }

private:
    const G& g_;
    std::uint64_t begin_;
    const std::uint64_t (&stride_)[4];
};

// The offset of a single point of class c.
template <class T>
__device__ std::uint64_t offset_of(const TilePlace<T>& place, std::uint64_t begin, std::uint32_t c, const Point& p,
                                   const std::uint64_t (&stride)[4]) {
    for (std::uint32_t a = 0; a < 4; ++a)
        begin += std::uint64_t{a < place.lattice->n_active ? 2 * p.x[a] + (c >> a & 1) : p.x[a]} * stride[a];
    return begin;
}
// The same of a position in the tile, in raster order.
template <class G>
__device__ std::uint32_t raster_position(const G& g, std::uint32_t c, const Point& p) {
    std::uint32_t at = 0;
    for (std::uint32_t a = 4; a-- > 0;) at = at * g.edge(a) + (g.is_active(a) ? 2 * p.x[a] + (c >> a & 1) : p.x[a]);
    return at;
}

// Sets where a tile lies, from its origin and edges; by one thread.
template <class T>
__device__ void set_place(TilePlace<T>& place, const DeviceLattice<T>& lattice) {
    place.lattice = &lattice;
    place.original = place.fine = place.coarse = 0;
    place.low = place.high = 0;
#pragma unroll 1
    for (std::uint32_t a = 0; a < 4; ++a) {
        const bool active = a < lattice.n_active;
        const std::uint64_t origin = place.origin[a], half = active ? origin / 2 : origin;
        place.original += origin * lattice.original_stride[a];
        place.fine += origin * lattice.stride[a];
        place.coarse += half * lattice.coarse_stride[a];
        const std::uint32_t edge = place.edge[a];
        place.begin[a] = active && origin == 0 ? 1 : 0;
        const std::uint64_t left = (active ? (lattice.extent[a] + 1) / 2 + 1 : lattice.extent[a]) - half;
        place.end[a] = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, max_tile_values + 3));
        if (!active || edge == 1) continue;
        place.low |= origin == 0 ? 1u << a : 0;
        place.high |= half + (edge + 1) / 2 + 2 > (lattice.extent[a] + 1) / 2 ? 1u << a : 0;
    }
}
// The same of a lattice's tile with this number. shape: that a kernel knows; a coarser lattice may have fewer active
// axes, and then none of its tiles is full.
template <TileShape shape, class T>
__device__ void set_place(TilePlace<T>& place, const DeviceLattice<T>& lattice, std::uint64_t number) {
    place.number = lattice.first_tile + number;
    place.full = lattice.n_active == axes_of(shape);
    const auto full = tile_edges(lattice.n_active);
    auto rest = static_cast<std::uint32_t>(number); // no memory has 2^32 tiles
    for (std::uint32_t a = 0; a < 4; ++a) {
        const auto count = static_cast<std::uint32_t>(lattice.count[a]);
        place.origin[a] = std::uint64_t{rest % count} * lattice.edge[a];
        rest /= count;
        place.edge[a] =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(lattice.edge[a], lattice.extent[a] - place.origin[a]));
        place.full = place.full && place.edge[a] == full[a];
    }
    set_place(place, lattice);
}

} // namespace cusz::cuda
