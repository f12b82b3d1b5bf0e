// ADIOS2's memory for what the operator writes.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace cusz_operator {

// ADIOS2 allocates a new buffer for every step. If it is large, huge pages save most of the page faults. (This is only
// advice to the kernel: without such pages nothing changes.)
inline void prepare_output(const char* out, std::size_t bytes) noexcept {
    constexpr std::uintptr_t huge_page = 1 << 21;
    const auto begin = (reinterpret_cast<std::uintptr_t>(out) + huge_page - 1) & ~(huge_page - 1);
    const auto end = (reinterpret_cast<std::uintptr_t>(out) + bytes) & ~(huge_page - 1);
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

} // namespace cusz_operator
