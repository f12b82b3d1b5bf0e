// The range of a field's values, to which a relative bound refers (docs/reference/format.md, section 4).
#pragma once

#include <limits>

#include "codec/lorenzo/cuda/prequant.cuh"

namespace cusz::cuda {

template <class T>
struct RangeMemory {
    Array<T, block_warps> min, max;
    Array<std::uint64_t, block_warps> n_valid;
};

// Combines what each thread of a block found over its own values.
template <class T>
__device__ typename RangeArguments<T>::Result range_of_block(typename RangeArguments<T>::Result partial,
                                                             RangeMemory<T>& shared) {
    for (int d = static_cast<int>(warp_lanes) / 2; d > 0; d /= 2) {
        const T low = __shfl_xor_sync(whole_warp, partial.min, d), high = __shfl_xor_sync(whole_warp, partial.max, d);
        partial.min = low < partial.min ? low : partial.min;
        partial.max = high > partial.max ? high : partial.max;
    }
    partial.n_valid = warp_sum(partial.n_valid);
    if (lane() == 0) {
        shared.min[warp()] = partial.min;
        shared.max[warp()] = partial.max;
        shared.n_valid[warp()] = partial.n_valid;
    }
    __syncthreads();
    partial = {shared.min[0], shared.max[0], shared.n_valid[0]};
    for (std::uint32_t w = 1; w < block_warps; ++w) {
        partial.min = shared.min[w] < partial.min ? shared.min[w] : partial.min;
        partial.max = shared.max[w] > partial.max ? shared.max[w] : partial.max;
        partial.n_valid += shared.n_valid[w];
    }
    return partial;
}

// The range of one block's part of the field.
template <class T>
__device__ typename RangeArguments<T>::Result range_of_field(const RangeArguments<T>& a, RangeMemory<T>& shared) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    typename RangeArguments<T>::Result partial{infinity, -infinity, 0};
    constexpr std::uint32_t at_once = 4; // loads in flight, to hide memory latency
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
            partial.min = counts && value < partial.min ? value : partial.min;
            partial.max = counts && value > partial.max ? value : partial.max;
            partial.n_valid += counts ? 1 : 0;
        }
    }
    return range_of_block(partial, shared);
}

// The bound that follows from the ranges of all blocks, and its quantiser; by one block.
template <class T>
__device__ void resolve(const BoundArguments<T>& a, RangeMemory<T>& shared) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    double eb_abs = a.eb;
    if (a.results != nullptr) {
        typename RangeArguments<T>::Result all{infinity, -infinity, 0};
        for (std::uint32_t i = threadIdx.x; i < a.n_results; i += block_threads) {
            const auto partial = a.results[i];
            all.min = partial.min < all.min ? partial.min : all.min;
            all.max = partial.max > all.max ? partial.max : all.max;
            all.n_valid += partial.n_valid;
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
