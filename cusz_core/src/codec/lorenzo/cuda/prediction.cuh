// Lorenzo prediction of a tile by a thread block, from the field to codes (paper, section 3.1.2;
// docs/reference/format.md, section 5): tiles of any shape here, of a known shape in lorenzo_columns.cuh.
#pragma once

#include "lorenzo_columns.cuh"
#include "prequant.cuh"

namespace cusz::cuda {

// Differences along x, y and z around one position, with wraparound: the codes of 0-D to 3-D Lorenzo.
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

// From the field to codes, unpredictable and missing values, and anchor. Ends with a barrier unless all are special.
template <class T>
__device__ Predicted predict(const Quantiser<T>& quantiser, std::uint32_t max_dimensions, const T* field,
                             TileMemory<T>& tile) {
    const Prequantised found = prequant(field, quantiser, tile);
    if (found.all_special) return {false, true, true, true, 0};
    return {false, false, found.has_missing, true, postquant(tile, max_dimensions, found.has_missing)};
}

// As above, for a tile of a known shape, with its codes in registers.
template <TileShape shape, class T>
__device__ Predicted predict(const Quantiser<T>& quantiser, const T* field, ColumnMemory<T>& tile,
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

} // namespace cusz::cuda
