// The range of a field's values, which a relative bound refers to (docs/format.md, section 4).
#pragma once

#include <limits>

#include "lorenzo.cuh"

namespace cusz::cuda {

template <class T>
struct RangeMemory {
    Array<T, block_warps> min, max;
    Array<std::uint64_t, block_warps> n_valid;
};

// What the threads of a block found, each over its own values, together.
template <class T>
__device__ typename RangeArguments<T>::Result range_of_block(typename RangeArguments<T>::Result own,
                                                             RangeMemory<T>& shared) {
    for (int d = static_cast<int>(warp_lanes) / 2; d > 0; d /= 2) {
        const T low = __shfl_xor_sync(whole_warp, own.min, d), high = __shfl_xor_sync(whole_warp, own.max, d);
        own.min = low < own.min ? low : own.min;
        own.max = high > own.max ? high : own.max;
    }
    own.n_valid = warp_sum(own.n_valid);
    if (lane() == 0) {
        shared.min[warp()] = own.min;
        shared.max[warp()] = own.max;
        shared.n_valid[warp()] = own.n_valid;
    }
    __syncthreads();
    own = {shared.min[0], shared.max[0], shared.n_valid[0]};
    for (std::uint32_t w = 1; w < block_warps; ++w) {
        own.min = shared.min[w] < own.min ? shared.min[w] : own.min;
        own.max = shared.max[w] > own.max ? shared.max[w] : own.max;
        own.n_valid += shared.n_valid[w];
    }
    return own;
}

// One block's part of the field.
template <class T>
__device__ typename RangeArguments<T>::Result range_of_field(const RangeArguments<T>& a, RangeMemory<T>& shared) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    typename RangeArguments<T>::Result own{infinity, -infinity, 0};
    constexpr std::uint32_t at_once = 4; // loads on their way: the memory takes its time
    const std::uint64_t stride = std::uint64_t{gridDim.x} * block_threads;
    std::uint64_t i = std::uint64_t{blockIdx.x} * block_threads + threadIdx.x;
    for (; i < a.n; i += at_once * stride) {
        T values[at_once];
#pragma unroll
        for (std::uint32_t k = 0; k < at_once; ++k)
            values[k] = i + k * stride < a.n ? a.field[i + k * stride] : infinity;
#pragma unroll
        for (const T value : values) {
            const bool counts = magnitude(value) < infinity && bits_of(value) != a.special;
            own.min = counts && value < own.min ? value : own.min;
            own.max = counts && value > own.max ? value : own.max;
            own.n_valid += counts ? 1 : 0;
        }
    }
    return range_of_block(own, shared);
}

// The bound that all blocks' ranges mean, and the quantiser of it; for one block.
template <class T>
__device__ void resolve(const BoundArguments<T>& a, RangeMemory<T>& shared) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    double eb_abs = a.eb;
    if (a.results != nullptr) {
        typename RangeArguments<T>::Result all{infinity, -infinity, 0};
        for (std::uint32_t i = threadIdx.x; i < a.n_results; i += block_threads) {
            const auto own = a.results[i];
            all.min = own.min < all.min ? own.min : all.min;
            all.max = own.max > all.max ? own.max : all.max;
            all.n_valid += own.n_valid;
        }
        all = range_of_block(all, shared);
        eb_abs =
            all.n_valid == 0 ? 0 : absolute_bound(a.eb, static_cast<double>(all.min), static_cast<double>(all.max));
    }
    if (!is_first_thread()) return;
    a.state->quantiser = Quantiser<T>::from_bound(eb_abs);
    a.state->quantiser.special = a.special;
    a.state->eb_abs = eb_abs;
    a.state->raw = a.state->quantiser.step == 0 ? 1 : 0;
}

} // namespace cusz::cuda
