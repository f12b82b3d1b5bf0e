// Memory for the emulator: mapped with guard pages, filled with patterns and checked against them, and annotated for
// AddressSanitizer.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool with_asan = true;
inline void poison(const void* begin, std::size_t bytes) { __asan_poison_memory_region(begin, bytes); }
inline void unpoison(const void* begin, std::size_t bytes) { __asan_unpoison_memory_region(begin, bytes); }
#else
constexpr bool with_asan = false;
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
#endif

constexpr std::size_t page = 4096;

// Freshly mapped pages, all zero, with an inaccessible page on either side.
class Pages {
public:
    explicit Pages(std::size_t bytes) : bytes_((bytes + page - 1) / page * page) {
        void* all = mmap(nullptr, bytes_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) throw std::bad_alloc();
        begin_ = static_cast<std::byte*>(all) + page;
        if (mprotect(begin_, bytes_, PROT_READ | PROT_WRITE) != 0) {
            munmap(all, bytes_ + 2 * page);
            throw std::bad_alloc();
        }
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages() {
        unpoison(begin_, bytes_);
        munmap(begin_ - page, bytes_ + 2 * page);
    }

    void protect(int access) const { mprotect(begin_, bytes_, access); }

    std::byte* begin() const { return begin_; }
    std::byte* end() const { return begin_ + bytes_; }
    std::size_t size() const { return bytes_; }

private:
    std::size_t bytes_;
    std::byte* begin_;
};

inline void fill(std::byte* begin, std::size_t bytes, std::byte pattern) {
    std::memset(begin, static_cast<int>(pattern), bytes);
}

// The number of bytes, from the beginning, that have the pattern.
inline std::size_t intact(const std::byte* begin, std::size_t bytes, std::byte pattern) {
    // all are equal if each equals the next
    if (bytes == 0 || (begin[0] == pattern && std::memcmp(begin, begin + 1, bytes - 1) == 0)) return bytes;
    std::size_t i = 0;
    while (begin[i] == pattern) ++i;
    return i;
}

} // namespace simt
