// What every kernels_<isa>.cpp is made of.
#pragma once

#include "kernels.hpp"
#include "payload.hpp"
#include "value_range.hpp"

namespace cusz::cpu::CUSZ_ISA {

constexpr Kernels kernels_of_isa(const char* name) {
    return {name,
            {value_range<float>, count_symbols<float>, write_payload<float>, read_payload<float>},
            {value_range<double>, count_symbols<double>, write_payload<double>, read_payload<double>}};
}

} // namespace cusz::cpu::CUSZ_ISA
