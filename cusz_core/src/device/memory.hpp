// Device memory and transfers to it: scratch kept between calls, pinned memory for copies.
#pragma once

#include <cusz/cusz.h>

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "check.hpp"
#include "device.hpp"

namespace cusz::cuda {

// Makes a device current, and restores what was current before on destruction (device.cpp). Not by cudaSetDevice, which
// would create a context on the device that it goes back to, and replace one that the program has made itself.
class CurrentDevice {
public:
    explicit CurrentDevice(int device);
    ~CurrentDevice();
    CurrentDevice(const CurrentDevice&) = delete;
    CurrentDevice& operator=(const CurrentDevice&) = delete;

private:
    bool changed_ = false;
};

// Where device memory comes from: the caller's allocator, else CUDA's own pool, in stream order. Virtual devices may have
// no pool: their memory is allocated at once, and freed once all work on the device has finished.
struct MemorySource {
    cusz_allocator allocator{}; // used if `allocate` is set
    cudaStream_t stream = nullptr;

    // Throws Error(MEMORY). from_pool: set if it is CUDA's.
    void* allocate(std::size_t bytes, bool& from_pool) const {
        void* memory = nullptr;
        if (allocator.allocate != nullptr) {
            memory = allocator.allocate(allocator.user, bytes, stream);
            if (memory == nullptr)
                fail(CUSZ_ERROR_MEMORY, "out of memory: the allocator has no ", bytes, " bytes on the device");
            return memory;
        }
        int device = 0, has_pool = 0;
        CUSZ_CUDA(cudaGetDevice(&device));
        CUSZ_CUDA(cudaDeviceGetAttribute(&has_pool, cudaDevAttrMemoryPoolsSupported, device));
        from_pool = has_pool != 0;
        if (from_pool)
            CUSZ_CUDA(cudaMallocAsync(&memory, bytes, stream));
        else
            CUSZ_CUDA(cudaMalloc(&memory, bytes));
        return memory;
    }
    // No work on the memory is pending, because every call waits for its own. The stream that it was allocated on may
    // no longer exist; the legacy stream would wait for others, and may be captured.
    void release(void* memory, std::size_t bytes, bool from_pool, cudaStream_t came_from) const noexcept {
        if (allocator.allocate != nullptr)
            allocator.release(allocator.user, memory, bytes, came_from);
        else
            static_cast<void>(from_pool ? cudaFreeAsync(memory, cudaStreamPerThread) : cudaFree(memory));
    }
};

// An uninitialised buffer on the device that only grows. Growing discards its contents.
class DeviceBuffer {
public:
    DeviceBuffer() = default;
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;

    template <class T>
    T* reserve(const MemorySource& source, std::uint64_t count) {
        const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(T) + 255) / 256 * 256;
        if (bytes > bytes_) {
            release(source);
            memory_ = source.allocate(bytes, from_pool_);
            bytes_ = bytes;
            stream_ = source.stream;
        }
        return static_cast<T*>(memory_);
    }
    // Returns the memory to the allocator it came from.
    void release(const MemorySource& source) noexcept {
        if (memory_ != nullptr) source.release(memory_, bytes_, from_pool_, stream_);
        memory_ = nullptr;
        bytes_ = 0;
    }
    std::size_t bytes() const { return bytes_; }

private:
    void* memory_ = nullptr;
    std::size_t bytes_ = 0;
    bool from_pool_ = false;
    cudaStream_t stream_ = nullptr; // that it was allocated on
};

// Consecutive parts of one piece of memory. Start with null to compute their total size.
class Parts {
public:
    explicit Parts(void* memory) : memory_(static_cast<std::byte*>(memory)) {}
    template <class T>
    T* take(std::size_t count) {
        T* const part = memory_ != nullptr ? reinterpret_cast<T*>(memory_ + used_) : nullptr;
        used_ += (count * sizeof(T) + 15) / 16 * 16;
        return part;
    }
    std::size_t used() const { return used_; }

private:
    std::byte* memory_;
    std::size_t used_ = 0;
};

// Copies between a device and unpinned host memory through two pinned buffers in turn, so that one is in flight while
// the other is filled or emptied.
class Staging {
public:
    Staging() = default;
    ~Staging() { release(); }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    // target, source: either may be on the host. The copy is complete on return, except copies to the device, for which
    // later work on the stream waits.
    void copy(void* target, const void* source, std::size_t bytes, cudaStream_t stream);
    // From the device to unpinned host memory. Many small transfers take no longer than one: the host waits for a
    // buffer, not for each of them. Complete on return.
    void fetch(std::span<const Transfer> transfers, cudaStream_t stream);
    std::size_t bytes() const { return pinned_[0] != nullptr ? 2 * piece_bytes : 0; }
    void release() noexcept;

private:
    static constexpr std::size_t piece_bytes = std::size_t{8} << 20;

    void prepare();
    void send(const Transfer& transfer, cudaStream_t stream);

    std::array<std::byte*, 2> pinned_{};
    std::array<cudaEvent_t, 2> done_{};
};

} // namespace cusz::cuda
