// The read-side capture of cusz_operator.h, as seen by the plugin.
#pragma once

#include <cstddef>

namespace cusz_operator {

// Captures the archive if a block of this variable ("": unknown) is awaited. Returns whether it did.
bool capture(const char* variable, const char* archive, std::size_t archive_bytes) noexcept;

} // namespace cusz_operator
