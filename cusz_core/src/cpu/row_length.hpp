// Loops over rows whose length the compiler knows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isa.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Calls use(n) with the length of a tile's rows, as a constant where it is that of full 3-D and 4-D tiles: the loops
// over such short rows then have no ends to look after.
template <class Use>
auto with_row_length(std::uint32_t n, const Use& use) {
    if (n == 32) return use(std::integral_constant<std::uint32_t, 32>{});
    if (n == 64) return use(std::integral_constant<std::uint32_t, 64>{});
    return use(n);
}

} // namespace cusz::cpu::CUSZ_ISA
