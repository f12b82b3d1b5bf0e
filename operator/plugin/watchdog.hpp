// Watches over calls of ADIOS2 that may never come back (cusz_operator_watch_begin).
#pragma once

#include <cstdint>

namespace cusz_operator {

// A number that changes with the names, sizes and times of the files in a folder; 0 if it cannot be read.
std::uint64_t state_of_folder(const char* folder) noexcept;

} // namespace cusz_operator
