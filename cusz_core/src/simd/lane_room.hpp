// How rows in memory are laid out for vectors of any instruction set.
#pragma once

#include <cstdint>

namespace cusz::cpu {

inline constexpr std::uint32_t lane_room = 16; // rows of values or bytes have room for a multiple of it

} // namespace cusz::cpu
