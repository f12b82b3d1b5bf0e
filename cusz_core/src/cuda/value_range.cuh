// The range of a field's values, which a relative bound refers to (docs/format.md, section 4).
#pragma once

#include <limits>

#include "dual_quant.cuh"

namespace cusz::cuda {

template <class T>
struct RangeMemory {
    Array<T, block_warps> min, max;
    Array<std::uint64_t, block_warps> n_valid;
};

// One block's part of the field.
template <class T>
__device__ typename RangeArguments<T>::Result range_of_block(const RangeArguments<T>& a, RangeMemory<T>& shared) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    T low = infinity, high = -infinity;
    std::uint64_t n_valid = 0;
    const std::uint64_t stride = std::uint64_t{gridDim.x} * block_threads;
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * block_threads + threadIdx.x; i < a.n; i += stride) {
        const T value = a.field[i];
        if (!(magnitude(value) < infinity) || bits_of(value) == a.special) continue;
        low = value < low ? value : low;
        high = value > high ? value : high;
        ++n_valid;
    }
    for (int d = static_cast<int>(warp_lanes) / 2; d > 0; d /= 2) {
        const T other_low = __shfl_xor_sync(whole_warp, low, d), other_high = __shfl_xor_sync(whole_warp, high, d);
        low = other_low < low ? other_low : low;
        high = other_high > high ? other_high : high;
    }
    n_valid = warp_sum(n_valid);
    if (lane() == 0) {
        shared.min[warp()] = low;
        shared.max[warp()] = high;
        shared.n_valid[warp()] = n_valid;
    }
    __syncthreads();
    typename RangeArguments<T>::Result result{infinity, -infinity, 0};
    for (std::uint32_t w = 0; w < block_warps; ++w) {
        result.min = shared.min[w] < result.min ? shared.min[w] : result.min;
        result.max = shared.max[w] > result.max ? shared.max[w] : result.max;
        result.n_valid += shared.n_valid[w];
    }
    return result;
}

} // namespace cusz::cuda
