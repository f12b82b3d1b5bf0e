#include "memory.hpp"

#include <algorithm>
#include <cstring>

namespace cusz::cuda {

namespace {

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
    constexpr std::size_t small = 64 << 10; // CUDA's own staging is as good
    if ((from_device && to_device) || bytes <= small) {
        CUSZ_CUDA(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream));
        CUSZ_CUDA(cudaStreamSynchronize(stream));
        return;
    }
    prepare();
    const std::size_t pieces = (bytes + piece_bytes - 1) / piece_bytes;
    const auto piece = [&](std::size_t i) { return std::min(piece_bytes, bytes - i * piece_bytes); };
    for (std::size_t i = 0; i < pieces; ++i) {
        if (i >= 2 || !from_device) CUSZ_CUDA(cudaEventSynchronize(done_[i % 2]));
        const auto empty = [&](std::size_t full) {
            std::memcpy(static_cast<std::byte*>(target) + full * piece_bytes, pinned_[full % 2], piece(full));
        };
        if (from_device) {
            if (i >= 2) empty(i - 2);
            CUSZ_CUDA(cudaMemcpyAsync(pinned_[i % 2], static_cast<const std::byte*>(source) + i * piece_bytes, piece(i),
                                      cudaMemcpyDefault, stream));
        } else {
            std::memcpy(pinned_[i % 2], static_cast<const std::byte*>(source) + i * piece_bytes, piece(i));
            CUSZ_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(target) + i * piece_bytes, pinned_[i % 2], piece(i),
                                      cudaMemcpyDefault, stream));
        }
        CUSZ_CUDA(cudaEventRecord(done_[i % 2], stream));
        if (!from_device || i + 1 < pieces) continue;
        for (std::size_t last = pieces >= 2 ? pieces - 2 : 0; last < pieces; ++last) {
            CUSZ_CUDA(cudaEventSynchronize(done_[last % 2]));
            empty(last);
        }
    }
}

} // namespace cusz::cuda
