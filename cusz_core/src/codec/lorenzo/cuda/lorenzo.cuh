// The Lorenzo decomposition (paper, section 3.1.2): a thread block predicts prequantised values, a warp does the
// reverse (section 3.3). docs/reference/format.md, section 5.
#pragma once

#include <algorithm>
#include <type_traits>

#include "lorenzo_columns.cuh"
#include "lorenzo_rows.cuh"
#include "prequant.cuh"

namespace cusz::cuda {

// Differences along x, y and z around one position, modulo the width of Int: the codes of every Lorenzo predictor.
template <class T>
class Differences {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;

public:
    __device__ Differences(const Array<Int, max_tile_values>& value, const Positions& at)
        : value_(value), at_(at.at), back_x_(at.back_x()), back_y_(at.back_y()), back_z_(at.back_z()) {}

    template <std::uint32_t dimension>
    __device__ Int code() const {
        const std::uint32_t back_row = back_y_ != 0 ? back_y_ : back_z_;
        if constexpr (dimension == 0) return value_[at_];
        if constexpr (dimension == 1) {
            const std::uint32_t back = back_x_ != 0 ? back_x_ : back_row;
            return static_cast<Int>(u(0) - (back != 0 ? u(back) : 0));
        }
        if constexpr (dimension == 2) return static_cast<Int>(along_x(0) - (back_row != 0 ? along_x(back_row) : 0));
        if constexpr (dimension == 3) return static_cast<Int>(along_xy(0) - (back_z_ != 0 ? along_xy(back_z_) : 0));
    }

private:
    __device__ U u(std::uint32_t back) const { return static_cast<U>(value_[at_ - back]); }
    __device__ U along_x(std::uint32_t back) const { return u(back) - (back_x_ != 0 ? u(back + 1) : 0); }
    __device__ U along_xy(std::uint32_t back) const {
        return along_x(back) - (back_y_ != 0 ? along_x(back + back_y_) : 0);
    }

    const Array<Int, max_tile_values>& value_;
    const std::uint32_t at_, back_x_, back_y_, back_z_;
};

// Second-order differences of the 3-D Lorenzo codes, which are in tile.value (format.md, section 5): they start at
// coordinate 2.
template <class T>
class SecondDifferences {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;

public:
    __device__ SecondDifferences(const TileMemory<T>& tile, const Positions& at)
        : value_(tile.value), at_(at.at), back_x_(at.x >= 2 ? 1 : 0), back_y_(at.y >= 2 ? at.row_length() : 0),
          back_z_(at.z >= 2 ? at.plane() : 0) {}
    __device__ Int none() const { return value_[at_]; }
    __device__ Int along_xy() const { return static_cast<Int>(along_xy_of(0)); }
    __device__ Int along_xyz() const {
        return static_cast<Int>(along_xy_of(0) - (back_z_ != 0 ? along_xy_of(back_z_) : 0));
    }

private:
    __device__ U u(std::uint32_t back) const { return static_cast<U>(value_[at_ - back]); }
    __device__ U along_x_of(std::uint32_t back) const { return u(back) - (back_x_ != 0 ? u(back + 1) : 0); }
    __device__ U along_xy_of(std::uint32_t back) const {
        return along_x_of(back) - (back_y_ != 0 ? along_x_of(back + back_y_) : 0);
    }

    const Array<Int, max_tile_values>& value_;
    const std::uint32_t at_, back_x_, back_y_, back_z_;
};

// The cheapest of the Lorenzo predictors 0 to `highest`; ties go to the lower one.
template <class T>
__device__ std::uint32_t choose_dimension(TileMemory<T>& tile, std::uint32_t highest, bool has_missing) {
    std::uint32_t cost[4] = {};
    Positions at(tile.box);
#pragma unroll
    for (std::uint32_t k = 0; k < values_of_thread; ++k, at.next()) {
        if (!at.inside() || !at.is_sampled() || (has_missing && tile.missing.test(at.at))) continue;
        const Differences<T> around(tile.value, at);
        cost[0] += capped(around.template code<0>());
        cost[1] += capped(around.template code<1>());
        if (highest >= 2) cost[2] += capped(around.template code<2>());
        if (highest >= 3) cost[3] += capped(around.template code<3>());
    }
    sum_over_block(cost, tile.partial);
    return cheapest(cost, highest + 1);
}

template <std::uint32_t dimension, class T>
__device__ void postquant_lorenzo(TileMemory<T>& tile) {
    replace_values(tile,
                   [&](const Positions& at) { return Differences<T>(tile.value, at).template code<dimension>(); });
}

// Where 3-D Lorenzo is the best predictor, the field is smooth, and second-order Lorenzo may pay. Returns the
// predictor.
template <class T>
__device__ std::uint32_t postquant_smooth(TileMemory<T>& tile) {
    postquant_lorenzo<3>(tile);
    std::uint32_t cost[3] = {};
    Positions at(tile.box);
#pragma unroll
    for (std::uint32_t k = 0; k < values_of_thread; ++k, at.next()) {
        if (!at.inside() || !at.is_sampled()) continue;
        const SecondDifferences<T> around(tile, at);
        cost[0] += bit_cost(around.none());
        cost[1] += bit_cost(around.along_xy());
        cost[2] += bit_cost(around.along_xyz());
    }
    sum_over_block(cost, tile.partial);
    const std::uint32_t best = cheapest(cost, 3);
    if (best == 1) replace_values(tile, [&](const Positions& p) { return SecondDifferences<T>(tile, p).along_xy(); });
    if (best == 2) replace_values(tile, [&](const Positions& p) { return SecondDifferences<T>(tile, p).along_xyz(); });
    return 3 + best;
}

// Turns tile.value from quantised values into codes. Returns the predictor. Ends with a barrier.
template <class T>
__device__ std::uint32_t postquant(TileMemory<T>& tile, std::uint32_t max_dimensions, bool has_missing) {
    const std::uint32_t dimension = choose_dimension(tile, max_dimensions, has_missing);
    if (dimension == 3 && !has_missing) return postquant_smooth(tile);
    switch (dimension) {
    case 0: break; // u is the code
    case 1: postquant_lorenzo<1>(tile); break;
    case 2: postquant_lorenzo<2>(tile); break;
    default: postquant_lorenzo<3>(tile); break;
    }
    return dimension;
}

template <class T>
__device__ Predicted predict(const Quantiser<T>& quantiser, std::uint32_t max_dimensions, const T* field,
                             TileMemory<T>& tile) {
    const Prequantised found = prequant(field, quantiser, tile);
    if (found.all_special) return {false, true, true, true, 0};
    return {false, false, found.has_missing, true, postquant(tile, max_dimensions, found.has_missing)};
}

// ---- The reverse, by one warp: partial sums along the axes, in place

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
        dimension == 1 && !has_missing ? 1 : n; // 1-D Lorenzo sums along x, save in the first column
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

// From codes, with out-of-range codes inserted, to the field's values; the special pattern at missing values.
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

// What a codec requires of a decomposition (pipeline.cuh).
struct Lorenzo {
    // Field to tile: codes, outliers, missing values and anchor. By a block; ends with a barrier unless all values are
    // special.
    template <class T>
    static __device__ Predicted decompose(const Tiling& tiling, const Quantiser<T>& quantiser, const T* field,
                                          TileMemory<T>& tile) {
        const auto max_dimensions = static_cast<std::uint32_t>(std::min(tiling.dimensions(), 3));
        return predict(quantiser, max_dimensions, field, tile);
    }
    // As above, of a tile of a known shape: to codes in registers.
    template <TileShape shape, class T>
    static __device__ Predicted decompose(const Quantiser<T>& quantiser, const T* field, ColumnMemory<T>& tile,
                                          Array<typename Traits<T>::Bits, max_tile_values>& exchange,
                                          typename Traits<T>::Bits (&code)[values_of_thread], Bits16& missing) {
        typename Traits<T>::Bits q[values_of_thread];
        const QuantisedColumns found = quantise_columns<shape>(field, quantiser, q, missing, tile);
        if (found.all_special) return {false, true, true, found.has_unpredictable, 0};
        const std::uint32_t predictor =
            found.plain ? LorenzoColumns<shape, true, T>(tile, exchange, false, missing).predict(q, code)
                        : LorenzoColumns<shape, false, T>(tile, exchange, found.has_missing, missing).predict(q, code);
        return {found.plain, false, found.has_missing, found.has_unpredictable, predictor};
    }
    // The inverse, by a warp, except values that are stored verbatim: a whole tile, if there is a way for its
    // predictor; a tile whose codes come row by row; a tile of any shape.
    template <TileShape shape, class Codes, class T>
    static __device__ bool reconstruct_whole(const v1::TileHeader& header, typename Traits<T>::Bits anchor,
                                             const Quantiser<T>& quantiser, Codes& codes, RowMemory<T, shape>& memory,
                                             T* field) {
        const WholeTile<Codes, T> tile{codes, memory.box, anchor, quantiser.step, std::bit_cast<T>(quantiser.special),
                                       field};
        return cuda::reconstruct_whole<shape>(header.predictor, tile, memory);
    }
    template <TileShape shape, class Codes, class T>
    static __device__ void reconstruct(const v1::TileHeader& header, typename Traits<T>::Bits anchor,
                                       const Quantiser<T>& quantiser, Codes& codes, RowMemory<T, shape>& memory,
                                       T* field) {
        reconstruct_any<shape>(header, anchor, quantiser, codes, memory, field);
    }
    template <class T>
    static __device__ void reconstruct(const v1::TileHeader& header, typename Traits<T>::Int anchor,
                                       const Quantiser<T>& quantiser, WarpMemory<T>& tile, T* field) {
        reverse(tile, header.predictor, header.has_missing, anchor, quantiser, field);
    }
};

} // namespace cusz::cuda
