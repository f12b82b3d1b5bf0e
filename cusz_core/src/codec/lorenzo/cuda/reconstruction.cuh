// Undoes Lorenzo prediction, by a warp (paper, section 3.3; docs/reference/format.md, section 5): partial sums along
// the axes, in place. For tiles of any shape; lorenzo_rows.cuh is for known shapes.
#pragma once

#include <algorithm>
#include <type_traits>

#include "prequant.cuh"

namespace cusz::cuda {

template <class Int>
__device__ Int modulo_sum(Int a, Int b) {
    using U = std::make_unsigned_t<Int>;
    return static_cast<Int>(static_cast<U>(a) + static_cast<U>(b));
}

// Undoes second-order Lorenzo along y or z: sums start at the second value.
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

// As above, along x.
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

// Turns the codes of a Lorenzo predictor into differences along x: every lane walks down its own columns. A missing
// value takes its predecessor's q.
template <class T, std::uint32_t dimension>
__device__ void sum_columns(WarpMemory<T>& tile, bool has_missing) {
    using U = typename Traits<T>::Bits;
    const auto& edge = tile.box.edge;
    const std::uint32_t n = edge[0], plane = n * edge[1], volume = plane * edge[2];
    const std::uint32_t columns =
        dimension == 1 && !has_missing ? 1 : n; // 1-D Lorenzo sums along x, except in the first column
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
                    const bool missing = has_missing && tile.missing.test(at);
                    if (missing) v = dimension >= 2 && x == 0 ? before : 0;
                    if (dimension == 1 && x == 0) v += before;
                    if (dimension == 2 && !missing) v += before;
                    if (dimension == 3 && !missing)
                        v += value(back_y) + value(back_z) - (back_y != 0 && back_z != 0 ? value(back_y + back_z) : 0);
                    tile.value[at] = static_cast<typename Traits<T>::Int>(v);
                }
    }
    __syncwarp();
}

// Turns codes, with out-of-range codes inserted, into the field's values; the special pattern at missing values.
template <class T>
__device__ void reverse(WarpMemory<T>& tile, std::uint32_t predictor, bool has_missing, typename Traits<T>::Int anchor,
                        const Quantiser<T>& quantiser, T* field) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    const std::uint32_t dimension = std::min(predictor, 3u);
    const bool second_y = predictor >= v1::second_order_xy, second_z = predictor == v1::second_order_xyz;
    if (second_z) take_second_sums(tile, 2);
    if (second_y) {
        take_second_sums(tile, 1);
        take_second_sums_along_x(tile);
    }
    if (dimension == 1) sum_columns<T, 1>(tile, has_missing);
    if (dimension == 2) sum_columns<T, 2>(tile, has_missing);
    if (dimension == 3) sum_columns<T, 3>(tile, has_missing);

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
            if (dimension > 0) sum = warp_inclusive_sum(sum);
            sum += carried;
            if (dimension > 0) carried = __shfl_sync(whole_warp, sum, warp_lanes - 1);
            if (x >= n) continue;
            const bool missing = has_missing && tile.missing.test(row * n + x);
            values[x] =
                missing ? std::bit_cast<T>(quantiser.special) : dequantise<T>(static_cast<Int>(sum), quantiser.step);
        }
    }
}

} // namespace cusz::cuda
