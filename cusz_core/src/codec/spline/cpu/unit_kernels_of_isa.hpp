// Version 2, revision 2: what kernels_<isa>.cpp have of it.
#pragma once

#include "unit_coding.hpp"
#include "unit_reading.hpp"

namespace cusz::cpu::CUSZ_ISA {

template <class T>
constexpr UnitKernels<T> unit_kernels_of() {
    return {&code_unit_tile<T>, &write_unit<8 * sizeof(T)>, &read_units<T>};
}

} // namespace cusz::cpu::CUSZ_ISA
