#include "memory.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace cusz::cuda {

namespace {

constexpr std::size_t alignment = 256; // of data in pinned memory: unaligned transfers are slower

// Whether the device can copy from or to this memory directly: device or pinned memory.
bool is_reachable(const void* pointer) {
    cudaPointerAttributes attributes{};
    CUSZ_CUDA(cudaPointerGetAttributes(&attributes, pointer));
    return attributes.type != cudaMemoryTypeUnregistered;
}

} // namespace

void Staging::prepare() {
    for (std::size_t i = 0; i < 2; ++i) {
        if (pinned_[i] == nullptr) {
            void* memory = nullptr;
            CUSZ_CUDA(cudaMallocHost(&memory, piece_bytes));
            pinned_[i] = static_cast<std::byte*>(memory);
        }
        if (done_[i] == nullptr) CUSZ_CUDA(cudaEventCreateWithFlags(&done_[i], cudaEventDisableTiming));
    }
}

void Staging::release() noexcept {
    for (std::size_t i = 0; i < 2; ++i) {
        if (pinned_[i] != nullptr) static_cast<void>(cudaFreeHost(pinned_[i]));
        if (done_[i] != nullptr) static_cast<void>(cudaEventDestroy(done_[i]));
        pinned_[i] = nullptr;
        done_[i] = nullptr;
    }
}

void Staging::copy(void* target, const void* source, std::size_t bytes, cudaStream_t stream) {
    if (bytes == 0) return;
    const bool from_device = is_reachable(source), to_device = is_reachable(target);
    constexpr std::size_t small = 64 << 10; // up to here, CUDA's own staging is as good
    const Transfer all{target, source, bytes};
    if ((from_device && to_device) || bytes <= small) {
        CUSZ_CUDA(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream));
        CUSZ_CUDA(cudaStreamSynchronize(stream));
        return;
    }
    if (from_device)
        fetch({&all, 1}, stream);
    else
        send(all, stream);
}

void Staging::fetch(std::span<const Transfer> transfers, cudaStream_t stream) {
    prepare();
    std::array<std::vector<Transfer>, 2> pending; // what is to be copied out of each buffer
    std::size_t current = 0, used = 0;
    const auto empty = [&](std::size_t buffer) {
        if (pending[buffer].empty()) return;
        CUSZ_CUDA(cudaEventSynchronize(done_[buffer]));
        for (const Transfer& t : pending[buffer]) std::memcpy(t.target, t.source, t.bytes);
        pending[buffer].clear();
    };
    for (const Transfer& transfer : transfers) {
        auto* const target = static_cast<std::byte*>(transfer.target);
        const auto* const source = static_cast<const std::byte*>(transfer.source);
        for (std::size_t from = 0; from < transfer.bytes;) {
            if (used == piece_bytes) {
                CUSZ_CUDA(cudaEventRecord(done_[current], stream));
                current = 1 - current;
                used = 0;
                empty(current);
            }
            std::byte* const pinned = pinned_[current] + used;
            const std::size_t bytes = std::min(piece_bytes - used, transfer.bytes - from);
            CUSZ_CUDA(cudaMemcpyAsync(pinned, source + from, bytes, cudaMemcpyDefault, stream));
            pending[current].push_back({target + from, pinned, bytes});
            from += bytes;
            used = std::min((used + bytes + alignment - 1) / alignment * alignment, piece_bytes);
        }
    }
    CUSZ_CUDA(cudaEventRecord(done_[current], stream));
    empty(1 - current);
    empty(current);
}

void Staging::send(const Transfer& transfer, cudaStream_t stream) {
    prepare();
    std::size_t current = 0;
    for (std::size_t from = 0; from < transfer.bytes; from += piece_bytes, current = 1 - current) {
        const std::size_t bytes = std::min(piece_bytes, transfer.bytes - from);
        CUSZ_CUDA(cudaEventSynchronize(done_[current]));
        std::memcpy(pinned_[current], static_cast<const std::byte*>(transfer.source) + from, bytes);
        CUSZ_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(transfer.target) + from, pinned_[current], bytes,
                                  cudaMemcpyDefault, stream));
        CUSZ_CUDA(cudaEventRecord(done_[current], stream));
    }
}

} // namespace cusz::cuda
