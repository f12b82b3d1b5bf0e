// Parts of the engine's kernels, by themselves, for what no field can bring about in emulation.
#include <cuda/block.cuh>

#include "emulator.hpp"

namespace {

struct LookBack {
    const std::uint64_t* states;
    std::uint64_t part;
    std::uint64_t* sum;
};

__global__ void look_back_kernel(const LookBack a) {
    const std::uint64_t sum = cusz::cuda::look_back::sum_before(a.states, a.part);
    if (cusz::cuda::lane() == 0) *a.sum = sum;
}

} // namespace

extern "C" {
SIMT_API int simt_sum_before(const std::uint64_t* states, std::uint64_t part, std::uint64_t* sum);
}

// sum: of the parts before this one, by one warp. All memory is the device's. Returns the launch's error.
int simt_sum_before(const std::uint64_t* states, std::uint64_t part, std::uint64_t* sum) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1);
    config.blockDim = dim3(cusz::cuda::warp_lanes);
    const LookBack arguments{states, part, sum};
    const cudaError_t error = cudaLaunchKernelEx(&config, look_back_kernel, arguments);
    return error != cudaSuccess ? error : cudaDeviceSynchronize();
}
