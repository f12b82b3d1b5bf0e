// Checks the parameters of a call.
#pragma once

#include <cusz/cusz.h>

#include <cstddef>
#include <cstdint>

#include "archive/frame.hpp"

namespace cusz {

// Sizes of the structures when they were first released, the smallest of any version.
inline constexpr std::size_t first_params_bytes = 48, first_info_bytes = 216, first_level_bytes = 96;

// Throws PARAMETER if no version of the structure `name` can have this size.
void check_struct_bytes(const char* name, std::size_t bytes, std::size_t first_bytes, const char* remedy);

// Parameters from a caller that may know fewer members (the others are 0) or more (the others must be 0). Throws
// PARAMETER.
cusz_params known_members(const cusz_params& given);

// As known_members, with the values checked. Throws PARAMETER or UNSUPPORTED, naming the value and the legal range.
cusz_params checked(const cusz_params& given);

// How fields are to be coded, from checked parameters.
Coding coding_of(const cusz_params& params, cusz_dtype dtype);

// The thread count that threads = 0 stands for (cusz.h).
int default_threads();
// The number of threads to use for a field of this size.
int resolve_threads(std::int32_t threads, std::uint64_t field_bytes);

} // namespace cusz
