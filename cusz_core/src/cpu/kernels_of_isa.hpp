// What every kernels_<isa>.cpp is made of.
#pragma once

#include "../checksum.hpp"
#include "kernels.hpp"
#include "payload.hpp"
#include "value_range.hpp"

namespace cusz::cpu::CUSZ_ISA {

inline std::uint64_t weigh_words(const void* data, std::size_t words) { return weigh(data, words); }

constexpr Kernels kernels_of_isa(const char* name) {
    return {name,
            weigh_words,
            {value_range<float>, count_symbols<float>, write_payload<float>, read_payload<float>},
            {value_range<double>, count_symbols<double>, write_payload<double>, read_payload<double>}};
}

} // namespace cusz::cpu::CUSZ_ISA
