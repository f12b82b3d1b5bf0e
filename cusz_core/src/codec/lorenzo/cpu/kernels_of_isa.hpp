// The Lorenzo codec's part of kernels_<isa>.cpp.
#pragma once

#include "codec/cpu/value_range.hpp"
#include "reading.hpp"
#include "writing.hpp"

namespace cusz::cpu::CUSZ_ISA {

template <class T>
constexpr LorenzoKernels<T> lorenzo_kernels_of() {
    return {&prepare<T>, &write_payload<T>, &read_payload<T>, &value_range_of_tile<T>};
}

} // namespace cusz::cpu::CUSZ_ISA
