// Parts of the engine in isolation: what no field can cause in the emulator, and what hardly shows in archives.
#if __has_include(<device/block.cuh>)
#include <device/block.cuh>
#else // scripts/bench/gpu_counts.py compiles this over earlier commits
#include <cuda/block.cuh>
#endif
#if __has_include(<codec/device_backend.hpp>)
#define HAS_BACKEND
#include <codec/device_backend.hpp>
#endif

#include <cstring>
#include <vector>

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
#ifdef HAS_BACKEND
SIMT_API void simt_read_boxes(cusz_dtype dtype, int ndim, const std::uint64_t* shape, const void* field,
                              const cusz::TileBox* boxes, std::size_t n, void* values);
#endif
}

// `sum`: of the parts before `part`, computed by one warp. All memory is the device's. Returns the launch error.
int simt_sum_before(const std::uint64_t* states, std::uint64_t part, std::uint64_t* sum) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1);
    config.blockDim = dim3(cusz::cuda::warp_lanes);
    const LookBack arguments{states, part, sum};
    const cudaError_t error = cudaLaunchKernelEx(&config, look_back_kernel, arguments);
    return error != cudaSuccess ? error : cudaDeviceSynchronize();
}

#ifdef HAS_BACKEND
// Copies boxes of a field on the device to `values`, one box after another, axis 0 fastest.
void simt_read_boxes(cusz_dtype dtype, int ndim, const std::uint64_t* shape, const void* field,
                     const cusz::TileBox* boxes, std::size_t n, void* values) {
    const cusz::Layout layout(dtype, ndim, shape);
    const auto backend = cusz::cuda::make_backend();
    std::vector<cusz::TileBox> read(boxes, boxes + n);
    const auto* const from = static_cast<const std::byte*>(backend->read_boxes(layout, {field, 0, "field"}, read));
    const std::size_t size = layout.value_bytes();
    auto* to = static_cast<std::byte*>(values);
    for (const auto& [offset, edge, stride] : read)
        for (std::uint32_t w = 0; w < edge[3]; ++w)
            for (std::uint32_t z = 0; z < edge[2]; ++z)
                for (std::uint32_t y = 0; y < edge[1]; ++y)
                    for (std::uint32_t x = 0; x < edge[0]; ++x, to += size)
                        std::memcpy(
                            to, from + (offset + x * stride[0] + y * stride[1] + z * stride[2] + w * stride[3]) * size,
                            size);
}
#endif
