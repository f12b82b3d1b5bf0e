// Compression parameters by name: the single table behind the C interface, and through it the plugin, the bindings and
// the command line.
#pragma once

#include <cusz/cusz.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cusz {

inline constexpr int max_threads = 1024;

// By number, from 0; nullptr after the last.
const cusz_parameter* parameter_at(std::int32_t index);

// The name of a predictor; nullptr if the number is unknown.
const char* predictor_name(std::int32_t predictor);

cusz_params default_params();

// The size of cusz_params up to the end of its last parameter.
std::size_t known_params_bytes();

// Throws PARAMETER, naming the value and the legal range.
void check_values(const cusz_params& params);

// Sets a parameter from text, for a caller whose cusz_params has struct_bytes bytes. Numbers are parsed as in the C
// locale; choices are case-insensitive. Throws PARAMETER.
void set_parameter(cusz_params& params, std::string_view key, std::string_view value, std::size_t struct_bytes);

} // namespace cusz
