#include "value_range.hpp"

#include <limits>

#include "device/launch.cuh"
#include "value_range.cuh"

namespace cusz::cuda {

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

template <class T, class Arguments>
__global__ void __launch_bounds__(block_threads) range_kernel(const Arguments given) {
    const RangeArguments<T>& a = own(given);
    const auto result = range_of_field(a, shared_memory<RangeMemory<T>>());
    if (is_first_thread()) a.results[blockIdx.x] = result;
}

std::uint32_t max_blocks() {
    return max_blocks_of_processor * static_cast<std::uint32_t>(Device::current().processors);
}

template <class T>
void compute_range(const RangeArguments<T>& a, cudaStream_t stream) {
    launch<range_kernel<T, RangeArguments<T>>>(a, block_threads, sizeof(RangeMemory<T>), max_blocks(), true, stream);
}
template <class T>
void compute_range(const Each<RangeArguments<T>>& fields, std::uint32_t blocks, cudaStream_t stream) {
    launch<range_kernel<T, Each<RangeArguments<T>>>>(fields, block_threads, sizeof(RangeMemory<T>), blocks, true,
                                                     stream);
}

template void compute_range(const RangeArguments<float>&, cudaStream_t);
template void compute_range(const RangeArguments<double>&, cudaStream_t);
template void compute_range(const Each<RangeArguments<float>>&, std::uint32_t, cudaStream_t);
template void compute_range(const Each<RangeArguments<double>>&, std::uint32_t, cudaStream_t);

} // namespace cusz::cuda
