// The contents of every kernels_<isa>.cpp.
#pragma once

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "archive/checksum.hpp"
#include "codec/lorenzo/cpu/kernels_of_isa.hpp"
#include "codec/spline/cpu/kernels_of_isa.hpp"
#include "kernels.hpp"
#include "logarithm.hpp"
#include "value_range.hpp"

namespace cusz::cpu::CUSZ_ISA {

inline std::uint64_t weigh_words(const void* data, std::size_t words) {
#ifdef __AVX2__
    // Eight words at a time. Words at even and at odd positions are multiplied by their weights, 32 x 32 bits to 64.
    const char* bytes = static_cast<const char*>(data);
    const std::size_t whole = words / 8 * 8;
    const __m256i step = _mm256_set1_epi32(static_cast<int>(weight_step * 16));
    __m256i weights = _mm256_mullo_epi32(_mm256_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15),
                                         _mm256_set1_epi32(static_cast<int>(weight_step)));
    __m256i even{}, odd{};
    for (std::size_t i = 0; i < whole; i += 8) {
        __builtin_prefetch(bytes + 4 * i + 4096); // of the next payload, which follows this one
        const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 4 * i));
        even = _mm256_add_epi64(even, _mm256_mul_epu32(w, weights));
        odd = _mm256_add_epi64(odd, _mm256_mul_epu32(_mm256_srli_epi64(w, 32), _mm256_srli_epi64(weights, 32)));
        weights = _mm256_add_epi32(weights, step);
    }
    std::uint64_t lanes[4];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi64(even, odd));
    return lanes[0] + lanes[1] + lanes[2] + lanes[3] + weigh(bytes + 4 * whole, words - whole, whole);
#else
    return weigh(data, words);
#endif
}

constexpr Kernels kernels_of_isa(const char* name) {
    return {name,
            weigh_words,
            value_range<float>,
            value_range<double>,
            lorenzo_kernels_of<float>(),
            lorenzo_kernels_of<double>(),
            spline_kernels_of<float>(),
            spline_kernels_of<double>(),
            nullptr,
            {exponent_range<float>, to_logs<float>, from_logs<float>},
            {exponent_range<double>, to_logs<double>, from_logs<double>}};
}

} // namespace cusz::cpu::CUSZ_ISA
