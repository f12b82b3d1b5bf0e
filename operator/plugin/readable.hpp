// Reads memory that the CPU may not be able to access, such as device memory or unmapped addresses: returns a result
// instead of raising a signal.
#pragma once

#include <cstddef>

namespace cusz_operator {

// Whether the CPU can read the first and the last of `bytes` bytes (at least 1). Takes a few microseconds.
bool cpu_can_read(const void* memory, std::size_t bytes) noexcept;

// Copies as far as the CPU can read; false if it cannot read everything. Several times slower than memcpy.
bool copy_readable(void* target, const void* source, std::size_t bytes) noexcept;

} // namespace cusz_operator
