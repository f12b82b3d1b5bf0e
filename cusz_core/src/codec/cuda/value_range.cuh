// Reduction of value ranges over a block.
#pragma once

#include "device/block.cuh"
#include "value_range.hpp"

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

} // namespace cusz::cuda
