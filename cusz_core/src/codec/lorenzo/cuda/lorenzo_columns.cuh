// Lorenzo prediction of a tile in the registers of a block (columns.cuh): differences along x use shuffles, along y
// mostly a thread's own values, along z what the previous warp has put into shared memory. format.md, section 5.
#pragma once

#include "columns.cuh"

namespace cusz::cuda {

template <class Int>
__device__ std::make_unsigned_t<Int> absolute(Int code) {
    using U = std::make_unsigned_t<Int>;
    return code < 0 ? U{0} - static_cast<U>(code) : static_cast<U>(code);
}

template <class Int>
__device__ std::uint32_t capped(Int code) {
    return static_cast<std::uint32_t>(std::min(absolute(code), std::make_unsigned_t<Int>{v1::max_cost_of_residual}));
}

// floor(log2(2 |code| + 1)).
template <class Int>
__device__ std::uint32_t bit_cost(Int code) {
    const auto m =
        static_cast<std::uint32_t>(std::min(absolute(code), std::make_unsigned_t<Int>{v1::max_magnitude_of_bits}));
    return 31 - static_cast<std::uint32_t>(__clz(static_cast<int>(2 * m + 1)));
}

template <std::uint32_t n>
__device__ std::uint32_t cheapest(const std::uint32_t (&cost)[n], std::uint32_t count) {
    std::uint32_t best = 0, lowest = cost[0]; // not cost[best]: an array with a varying index is not kept in registers
#pragma unroll
    for (std::uint32_t i = 1; i < n; ++i)
        if (i < count && cost[i] < lowest) {
            best = i;
            lowest = cost[i];
        }
    return best;
}

// Replaces each sum over a thread's values with the sum over the block. Has barriers.
template <std::uint32_t n>
__device__ void sum_over_block(std::uint32_t (&sum)[n], Array<std::uint32_t, 4 * block_warps>& partial) {
    static_assert(n * block_warps <= warp_lanes && block_warps == 8);
#pragma unroll
    for (std::uint32_t& s : sum) s = warp_sum(s);
    __syncthreads(); // all reads of previous sums are done
    if (lane() == 0)
        for (std::uint32_t i = 0; i < n; ++i) partial[i * block_warps + warp()] = sum[i];
    __syncthreads();
    std::uint32_t all = lane() < n * block_warps ? partial[lane()] : 0;
    for (int d = 1; d < static_cast<int>(block_warps); d *= 2) all += __shfl_xor_sync(whole_warp, all, d);
#pragma unroll
    for (std::uint32_t i = 0; i < n; ++i) sum[i] = __shfl_sync(whole_warp, all, static_cast<int>(i * block_warps));
}

// plain: see QuantisedColumns.
template <TileShape shape, bool plain, class T>
class LorenzoColumns {
    using C = Column<shape>;
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    using Values = U[values_of_thread];

public:
    // What warps pass to each other.
    using Exchange = Array<U, max_tile_values>;

    __device__ LorenzoColumns(ColumnMemory<T>& tile, Exchange& exchange, bool has_missing, Bits16 missing)
        : tile_(tile), exchange_(exchange), edge_(tile.box.edge), has_missing_(has_missing),
          counted_(C::inside(tile.box.edge).without(missing)), whole_(tile.box.values() == max_tile_values) {}

    // Turns quantised values into codes. Returns the predictor.
    __device__ std::uint32_t predict(const Values& q, Values& code) {
        const U anchor = static_cast<U>(tile_.anchor);
        take_differences(q, anchor, code);
        std::uint32_t cost[4] = {};
        for_column([&](std::uint32_t k) {
            if (!is_row_sampled(k)) return;
            const U first = along_x(q, code, anchor, k);
            if (!counts(k)) return;
            cost[0] += capped(static_cast<Int>(q[k] - anchor));
            cost[1] += capped(static_cast<Int>(first));
            if (shape != TileShape::line) cost[2] += capped(static_cast<Int>(along_xy(code, k)));
            if (shape == TileShape::box) cost[3] += capped(static_cast<Int>(code[k]));
        });
        sum_over_block(cost, tile_.partial);
        constexpr std::uint32_t highest = shape == TileShape::line ? 1 : shape == TileShape::square ? 2 : 3;
        const std::uint32_t dimension = cheapest(cost, highest + 1);
        if (dimension == 3) return !plain && has_missing_ ? 3 : predict_smooth(code);
        if (dimension == 2 && shape == TileShape::box)
            for_column([&](std::uint32_t k) { code[k] = along_xy(code, k); });
        if (dimension == 1) for_column([&](std::uint32_t k) { code[k] = along_x(q, code, anchor, k); });
        if (dimension == 0) for_column([&](std::uint32_t k) { code[k] = q[k] - anchor; });
        return dimension;
    }

private:
    // Whether predictors are compared on the row of value k (the same for a whole warp), and on that value.
    __device__ bool is_row_sampled(std::uint32_t k) const {
        if (plain || whole_) return shape == TileShape::line || (shape == TileShape::square ? k / 2 : k) % 4 == 2;
        const std::uint32_t rows = edge_[1] * edge_[2], every = rows < 8 ? 1 : 4;
        return (C::z(k) * edge_[1] + C::y(k)) % every == every / 2;
    }
    __device__ bool counts(std::uint32_t k) const { return plain || counted_[k]; }

    // The value before this one in its row; `none` if there is none. Called by a whole warp.
    __device__ U before(const Values& v, std::uint32_t k, U none) const {
        const U other = __shfl_up_sync(whole_warp, v[k], 1);
        if (shape == TileShape::box || (shape == TileShape::square && k % 2 == 0)) return lane() > 0 ? other : none;
        const U last = k > 0 ? __shfl_sync(whole_warp, v[k > 0 ? k - 1 : 0], static_cast<int>(warp_lanes - 1))
                             : (warp() > 0 ? exchange_[warp() - 1] : none);
        return lane() > 0 ? other : last;
    }

    // Takes differences along all axes. For a box, the differences along x and y only stay in the exchange.
    __device__ void take_differences(const Values& q, U anchor, Values& d) {
        if (shape == TileShape::line) {
            if (lane() == warp_lanes - 1) exchange_[warp()] = q[values_of_thread - 1];
            __syncthreads();
        }
        for_column([&](std::uint32_t k) { d[k] = q[k] - before(q, k, anchor); });
        if (shape == TileShape::square) {
            for (std::uint32_t x = 0; x < C::row; ++x)
                exchange_[(warp() * C::row + x) * warp_lanes + lane()] = d[values_of_thread - C::row + x];
            __syncthreads();
        }
        if (shape != TileShape::line) {
#pragma unroll
            for (std::uint32_t k = values_of_thread; k-- > C::row;) d[k] -= d[k - C::row];
            if (shape == TileShape::square && warp() > 0)
                for (std::uint32_t x = 0; x < C::row; ++x)
                    d[x] -= exchange_[((warp() - 1) * C::row + x) * warp_lanes + lane()];
        }
        if (shape == TileShape::box) subtract_plane_before(d, 1);
    }

    // Subtracts the previous warp's values, from warp `first` on.
    __device__ void subtract_plane_before(Values& d, std::uint32_t first) {
        for_column([&](std::uint32_t k) { exchange_[C::bit(k)] = d[k]; });
        __syncthreads();
        if (warp() >= first) for_column([&](std::uint32_t k) { d[k] -= exchange_[C::bit(k) - values_of_warp]; });
    }

    // Codes of 2-D and of 1-D Lorenzo. Where there is no neighbour, they use the next axis.
    __device__ U along_xy(const Values& d, std::uint32_t k) const {
        return shape == TileShape::box && k > 0 ? exchange_[C::bit(k)] : d[k];
    }
    __device__ U along_x(const Values& q, const Values& d, U anchor, std::uint32_t k) const {
        if (shape == TileShape::line) return d[k];
        const U left = before(q, k, anchor);
        return C::x(k) > 0 ? q[k] - left : along_xy(d, k);
    }

    // Where 3-D Lorenzo is the best predictor, the field is smooth, and second-order Lorenzo may pay. Returns the
    // predictor.
    __device__ std::uint32_t predict_smooth(Values& code) {
        const auto along_x_only = [&](std::uint32_t k) {
            const U other = __shfl_up_sync(whole_warp, code[k], 1);
            return code[k] - (lane() >= 2 ? other : 0);
        };
        const auto along_both = [&](std::uint32_t k) { return along_x_only(k) - (k >= 2 ? along_x_only(k - 1) : 0); };
        for_column([&](std::uint32_t k) {
            if ((plain || whole_) && k % 4 != 2) return;
            exchange_[C::bit(k)] = along_both(k); // of rows on which predictors are compared
        });
        __syncthreads();
        std::uint32_t cost[3] = {};
        for_column([&](std::uint32_t k) {
            if (!is_row_sampled(k) || !counts(k)) return;
            cost[0] += bit_cost(static_cast<Int>(code[k]));
            const U second = exchange_[C::bit(k)];
            cost[1] += bit_cost(static_cast<Int>(second));
            cost[2] += bit_cost(static_cast<Int>(second - (warp() >= 2 ? exchange_[C::bit(k) - values_of_warp] : 0)));
        });
        sum_over_block(cost, tile_.partial);
        const std::uint32_t best = cheapest(cost, 3);
        if (best > 0) {
            for_column([&](std::uint32_t k) { code[k] = along_x_only(k); });
#pragma unroll
            for (std::uint32_t k = values_of_thread; k-- > 2;) code[k] -= code[k - 1];
        }
        if (best == 2) subtract_plane_before(code, 2);
        return 3 + best;
    }

    ColumnMemory<T>& tile_;
    Exchange& exchange_;
    const Edges& edge_;
    const bool has_missing_;
    const Bits16 counted_; // where predictors are compared: in the tile, and not missing
    const bool whole_;
};

} // namespace cusz::cuda
