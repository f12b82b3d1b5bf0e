// Where a context's work on a device is done: one device, one stream, memory, and an observer. The backend and its
// engines share it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "device.hpp"
#include "memory.hpp"

namespace cusz::cuda {

class Queue {
public:
    explicit Queue(int number) : device(number) {}

    int device;
    MemorySource source;
    Staging staging;
    StageObserver observer;

    cudaStream_t stream() const { return source.stream; }
    void wait() const { CUSZ_CUDA(cudaStreamSynchronize(stream())); }
    // Call after a stage has been enqueued on the stream.
    void done(const char* stage) const {
        if (observer) observer(stage);
    }

    // Runs work on the device. If it fails, none of it is still running: the caller may free the memory it passed.
    template <class Work>
    std::invoke_result_t<Work> run(const Work& work) {
        const CurrentDevice current(device);
        try {
            return work();
        } catch (...) {
            static_cast<void>(cudaStreamSynchronize(stream()));
            static_cast<void>(cudaGetLastError());
            throw;
        }
    }

    // Zeros on the device.
    template <class V>
    V* cleared(DeviceBuffer& buffer, std::uint64_t count) {
        V* const memory = buffer.reserve<V>(source, count);
        CUSZ_CUDA(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(count) * sizeof(V), stream()));
        return memory;
    }
    // Copies n values to the host once all previous work has finished.
    template <class V>
    void fetch(V* to, const V* from, std::size_t n) {
        CUSZ_CUDA(cudaMemcpyAsync(to, from, n * sizeof(V), cudaMemcpyDefault, stream()));
        wait();
    }
    template <class V>
    V fetched(const V* from) {
        V value;
        fetch(&value, from, 1);
        return value;
    }

    // Gives memory back in the middle of a call, when the stream may not have reached its allocation yet.
    template <class Buffers>
    void make_room(const Buffers& buffers) noexcept {
        static_cast<void>(cudaStreamSynchronize(stream()));
        release(buffers);
    }
    template <class Buffers>
    void release(const Buffers& buffers) noexcept {
        give_back([&] {
            for (DeviceBuffer* buffer : buffers) buffer->release(source);
        });
    }
    void release_staging() noexcept {
        give_back([&] { staging.release(); });
    }

private:
    // If the device is lost, so is its memory.
    template <class Work>
    void give_back(const Work& work) noexcept {
        try {
            const CurrentDevice current(device);
            work();
        } catch (const Error&) {
            static_cast<void>(cudaGetLastError());
        }
    }
};

} // namespace cusz::cuda
