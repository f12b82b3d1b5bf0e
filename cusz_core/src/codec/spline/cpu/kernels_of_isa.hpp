// The spline codec's part of kernels_<isa>.cpp.
#pragma once

#include "curve_costs.hpp"
#include "reading.hpp"
#include "recording.hpp"
#include "writing.hpp"

namespace cusz::cpu::CUSZ_ISA {

template <class T>
constexpr SplineKernels<T> spline_kernels_of() {
    return {&curve_costs<T>, &code_tile<T>, &write_unit<8 * sizeof(T)>, &read_units<T>};
}

} // namespace cusz::cpu::CUSZ_ISA
