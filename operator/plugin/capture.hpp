// The read-side capture of cusz_operator.h, from the plugin's side.
#pragma once

#include <cstddef>

namespace cusz_operator {

// Takes the archive if capture is on and waits for a block of this variable ("": not known); true if it was taken.
bool capture(const char* variable, const char* archive, std::size_t archive_bytes) noexcept;

} // namespace cusz_operator
