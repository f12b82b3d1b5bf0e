// Launches of kernels: as many blocks as the current device runs at once.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "check.hpp"
#include "each.hpp"

namespace cusz::cuda {

struct Device {
    int number, processors;
    static Device current() {
        Device device{};
        CUSZ_CUDA(cudaGetDevice(&device.number));
        CUSZ_CUDA(cudaDeviceGetAttribute(&device.processors, cudaDevAttrMultiProcessorCount, device.number));
        return device;
    }
};

inline constexpr std::uint32_t max_blocks_of_processor = 8;
inline constexpr std::size_t max_devices = 64;

// Allows a kernel of the current context as much shared memory as the device has: always all, because another thread
// may be launching with more. Every time, because the context may be another one, or new after cudaDeviceReset.
template <auto kernel>
void allow_shared_memory(const Device& device, std::size_t shared_bytes) {
    constexpr std::size_t without_asking = 48 << 10;
    if (shared_bytes <= without_asking) return;
    int most = 0;
    CUSZ_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.number));
    CUSZ_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
}

// Blocks of a kernel that a multiprocessor of the current device runs at once. shared_bytes may differ between calls.
template <auto kernel>
int blocks_of_processor(const Device& device, std::uint32_t threads, std::size_t shared_bytes) {
    // The query takes longer than a launch, so the last answer is cached, with the shared memory size it is for.
    static std::array<std::atomic<std::uint64_t>, max_devices> cached{};
    auto& known = cached[static_cast<std::size_t>(device.number) % max_devices];
    const std::uint64_t key = std::uint64_t{shared_bytes} << 32 | static_cast<std::uint32_t>(device.number) << 8;
    const std::uint64_t last = known.load(std::memory_order_relaxed);
    if (last >> 8 == key >> 8 && last % 256 != 0) return static_cast<int>(last % 256);
    int blocks = 0;
    CUSZ_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), shared_bytes));
    blocks = std::clamp(blocks, 1, static_cast<int>(max_blocks_of_processor));
    known.store(key | static_cast<std::uint64_t>(blocks), std::memory_order_relaxed);
    return blocks;
}

// As many blocks as run at once, or as there are parts of work if those are fewer or all_parts is set. If the arguments
// are those of Each field: of the largest field.
template <auto kernel, class Arguments>
void launch(const Arguments& arguments, std::uint32_t threads, std::size_t shared_bytes, std::uint64_t parts,
            bool all_parts, cudaStream_t stream) {
    const Device device = Device::current();
    allow_shared_memory<kernel>(device, shared_bytes);
    const std::uint32_t fields = fields_of(arguments);
    const auto blocks =
        static_cast<std::uint32_t>(blocks_of_processor<kernel>(device, threads, shared_bytes) * device.processors);
    const std::uint64_t at_once = std::max(1u, blocks / fields);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(all_parts ? parts : std::min(parts, at_once)), fields);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    CUSZ_CUDA(cudaLaunchKernelEx(&config, kernel, arguments));
}

} // namespace cusz::cuda
