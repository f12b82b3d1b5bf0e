// From deltas back to values, by one warp (paper, section 3.3; docs/format.md, sections 5 and 8): partial sums along
// the axes, in place.
#pragma once

#include "dual_quant.cuh"
#include "zero_groups.cuh"

namespace cusz::cuda {

// What a warp works on when it decodes a tile.
template <class T>
struct WarpMemory {
    using Int = typename Traits<T>::Int;

    TileBox box;                       // its offset is that in the batch's memory
    Array<Int, max_tile_values> value; // symbols, deltas, then differences along x
    Bitmap hole;
    RankedBitmap coded, subgroup;
};

template <class Int>
__device__ Int modulo_sum(Int a, Int b) {
    using U = std::make_unsigned_t<Int>;
    return static_cast<Int>(static_cast<U>(a) + static_cast<U>(b));
}

// Undoes second differences along y or z: sums from the second value on.
template <class T>
__device__ void take_second_sums(WarpMemory<T>& tile, std::uint32_t axis) {
    const auto& edge = tile.box.edge;
    const std::uint32_t stride = axis == 1 ? edge[0] : edge[0] * edge[1], columns = tile.box.values() / edge[axis];
    for (std::uint32_t c = lane(); c < columns; c += warp_lanes) {
        std::uint32_t at = c / stride * stride * edge[axis] + c % stride;
        for (std::uint32_t i = 2; i < edge[axis]; ++i)
            tile.value[at + i * stride] = modulo_sum(tile.value[at + i * stride], tile.value[at + (i - 1) * stride]);
    }
    __syncwarp();
}

// The same along x.
template <class T>
__device__ void take_second_sums_along_x(WarpMemory<T>& tile) {
    using U = typename Traits<T>::Bits;
    const std::uint32_t n = tile.box.edge[0];
    for (std::uint32_t row = 0; row < tile.box.rows(); ++row) {
        U carried = 0;
        for (std::uint32_t first = 0; first < n; first += warp_lanes) {
            const std::uint32_t x = first + lane();
            const bool adds = x > 0 && x < n;
            const U sum = carried + warp_inclusive_sum(adds ? static_cast<U>(tile.value[row * n + x]) : U{0});
            if (adds) tile.value[row * n + x] = static_cast<typename Traits<T>::Int>(sum);
            carried = __shfl_sync(whole_warp, sum, warp_lanes - 1);
        }
    }
    __syncwarp();
}

// Deltas of a Lorenzo order to differences along x: every lane walks down columns of its own. A hole is where its
// predecessor is.
template <class T, std::uint32_t order>
__device__ void sum_columns(WarpMemory<T>& tile, bool has_holes) {
    using U = typename Traits<T>::Bits;
    const auto& edge = tile.box.edge;
    const std::uint32_t n = edge[0], plane = n * edge[1], volume = plane * edge[2];
    const std::uint32_t columns = order == 1 && !has_holes ? 1 : n; // order 1 sums along x, save in the first column
    for (std::uint32_t x = lane(); x < columns; x += warp_lanes) {
        std::uint32_t at = x;
        for (std::uint32_t w = 0; w < edge[3]; ++w)
            for (std::uint32_t z = 0; z < edge[2]; ++z)
                for (std::uint32_t y = 0; y < edge[1]; ++y, at += n) {
                    const std::uint32_t back_y = y > 0 ? n : 0, back_z = z > 0 ? plane : w > 0 ? volume : 0;
                    const auto value = [&](std::uint32_t back) {
                        return back != 0 ? static_cast<U>(tile.value[at - back]) : U{0};
                    };
                    const U before = value(back_y != 0 ? back_y : back_z);
                    U v = static_cast<U>(tile.value[at]);
                    const bool hole = has_holes && tile.hole.test(at);
                    if (hole) v = order >= 2 && x == 0 ? before : 0;
                    if (order == 1 && x == 0) v += before;
                    if (order == 2 && !hole) v += before;
                    if (order == 3 && !hole)
                        v += value(back_y) + value(back_z) - (back_y != 0 && back_z != 0 ? value(back_y + back_z) : 0);
                    tile.value[at] = static_cast<typename Traits<T>::Int>(v);
                }
    }
    __syncwarp();
}

// The same for a full tile of three dimensions without holes: a lane keeps its columns in registers, 16 rows at a time,
// whose sums along x do not wait for each other. second_y, second_z: undo second differences first, along x and y, and
// along z.
template <class T, std::uint32_t order>
__device__ void reverse_full(const WarpMemory<T>& tile, bool second_y, bool second_z, typename Traits<T>::Int anchor,
                             T step, T* field) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    constexpr std::uint32_t rows = 16, planes = 8;
    const TileBox& box = tile.box;
    U plane_before[rows] = {}, second_before[rows] = {};
    for (std::uint32_t z = 0; z < planes; ++z) {
        U v[rows];
#pragma unroll
        for (std::uint32_t y = 0; y < rows; ++y)
            v[y] = static_cast<U>(tile.value[(z * rows + y) * warp_lanes + lane()]);
        if constexpr (order == 3) {
            if (second_z) {
#pragma unroll
                for (std::uint32_t y = 0; y < rows; ++y) {
                    if (z >= 2) v[y] += second_before[y];
                    second_before[y] = v[y];
                }
            }
            if (second_y) {
#pragma unroll
                for (std::uint32_t y = 2; y < rows; ++y) v[y] += v[y - 1];
#pragma unroll
                for (std::uint32_t y = 0; y < rows; ++y) {
                    const U sum = warp_inclusive_sum(lane() == 0 ? U{0} : v[y]);
                    if (lane() > 0) v[y] = sum;
                }
            }
            U column = 0;
#pragma unroll
            for (std::uint32_t y = 0; y < rows; ++y) {
                column += v[y];
                plane_before[y] = v[y] = column + plane_before[y];
            }
        } else if (order == 2 || (order == 1 && lane() == 0)) { // order 1 sums along x, save in the first column
            v[0] += plane_before[0];
#pragma unroll
            for (std::uint32_t y = 1; y < rows; ++y) v[y] += v[y - 1];
            plane_before[0] = v[0];
        }
        T* const values = field + (box.offset + z * box.stride[2] + lane());
#pragma unroll
        for (std::uint32_t y = 0; y < rows; ++y) {
            const U sum = (order > 0 ? warp_inclusive_sum(v[y]) : v[y]) + static_cast<U>(anchor);
            values[y * box.stride[1]] = dequantise<T>(static_cast<Int>(sum), step);
        }
    }
}

// Deltas, with delta outliers put in, to the field's values; the special pattern at holes.
template <class T>
__device__ void reverse(WarpMemory<T>& tile, std::uint32_t predictor, bool has_holes, typename Traits<T>::Int anchor,
                        const Quantiser<T>& quantiser, T* field) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    const std::uint32_t order = std::min(predictor, 3u);
    const bool second_y = predictor >= v1::second_order_xy, second_z = predictor == v1::second_order_xyz;
    if (!has_holes && FullPositions::is_shape_of(tile.box)) {
        switch (order) {
        case 0: return reverse_full<T, 0>(tile, false, false, anchor, quantiser.step, field);
        case 1: return reverse_full<T, 1>(tile, false, false, anchor, quantiser.step, field);
        case 2: return reverse_full<T, 2>(tile, false, false, anchor, quantiser.step, field);
        default: return reverse_full<T, 3>(tile, second_y, second_z, anchor, quantiser.step, field);
        }
    }
    if (second_z) take_second_sums(tile, 2);
    if (second_y) {
        take_second_sums(tile, 1);
        take_second_sums_along_x(tile);
    }
    if (order == 1) sum_columns<T, 1>(tile, has_holes);
    if (order == 2) sum_columns<T, 2>(tile, has_holes);
    if (order == 3) sum_columns<T, 3>(tile, has_holes);

    const TileBox& box = tile.box;
    const std::uint32_t n = box.edge[0];
    for (std::uint32_t row = 0; row < box.rows(); ++row) {
        const std::uint32_t y = row % box.edge[1], z = row / box.edge[1] % box.edge[2];
        const std::uint32_t w = row / box.edge[1] / box.edge[2];
        T* const values = field + (box.offset + y * box.stride[1] + z * box.stride[2] + w * box.stride[3]);
        U carried = static_cast<U>(anchor);
        for (std::uint32_t first = 0; first < n; first += warp_lanes) {
            const std::uint32_t x = first + lane();
            U sum = x < n ? static_cast<U>(tile.value[row * n + x]) : 0;
            if (order > 0) sum = warp_inclusive_sum(sum);
            sum += carried;
            if (order > 0) carried = __shfl_sync(whole_warp, sum, warp_lanes - 1);
            if (x >= n) continue;
            const bool hole = has_holes && tile.hole.test(row * n + x);
            values[x] =
                hole ? std::bit_cast<T>(quantiser.special) : dequantise<T>(static_cast<Int>(sum), quantiser.step);
        }
    }
}

} // namespace cusz::cuda
