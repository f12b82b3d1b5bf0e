// Scratch memory, kept between calls: touching fresh pages costs more than the codec itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace cusz {

// An uninitialised buffer, aligned to 64 bytes, that only grows. Growing discards its contents.
class Buffer {
public:
    // At least `bytes` of memory. Throws std::bad_alloc.
    void* reserve(std::size_t bytes) {
        if (bytes > bytes_) {
            memory_.reset();
            bytes_ = 0;
            memory_ = allocate(bytes);
            bytes_ = rounded(bytes);
        }
        return memory_.get();
    }
    template <class T>
    T* reserve(std::size_t count) {
        return static_cast<T*>(reserve(count * sizeof(T)));
    }
    std::size_t bytes() const { return bytes_; }
    void release() {
        memory_.reset();
        bytes_ = 0;
    }

private:
    struct Free {
        void operator()(void* p) const { std::free(p); }
    };
    using Memory = std::unique_ptr<void, Free>;

    static std::size_t rounded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
    static Memory allocate(std::size_t bytes) {
        Memory memory(std::aligned_alloc(64, rounded(bytes)));
        if (!memory) throw std::bad_alloc();
        return memory;
    }

    Memory memory_;
    std::size_t bytes_ = 0;
};

template <class T>
bool is_aligned(const std::byte* values) {
    return reinterpret_cast<std::uintptr_t>(values) % sizeof(T) == 0;
}

} // namespace cusz
