// Reading memory that the CPU may not be able to read: a device's, or no memory at all. An answer instead of a signal.
#pragma once

#include <cstddef>

namespace cusz_operator {

// Whether the CPU can read the first and the last of so many bytes, at least one. Costs a few microseconds.
bool cpu_can_read(const void* memory, std::size_t bytes) noexcept;

// Copies what the CPU can read; false where that is not all of it. Slower than memcpy by several times.
bool copy_readable(void* target, const void* source, std::size_t bytes) noexcept;

} // namespace cusz_operator
