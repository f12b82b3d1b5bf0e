// Kernels that are compiled once per instruction set and chosen at run time. All use only IEEE operations and integers,
// so they give the same bytes. They also share their source, except for code written for one instruction set
// (#ifdef __AVX512F__, __AVX2__); tests/contract/test_host_modes.py compares them.
#pragma once

#include <cstdint>

#include "codec/backend.hpp"
#include "codec/lorenzo/cpu/kernels.hpp"
#include "codec/spline/cpu/kernels.hpp"

namespace cusz::cpu {

// Fields to logarithms and back, by value type. special: the pattern that stands for "no data".
template <class T>
struct LogKernels {
    using Bits = typename Traits<T>::Bits;

    // Range over the values that have a logarithm.
    ExponentRange (*exponent_range)(const T* field, std::uint64_t n, Bits special);

    // logs: n values of T, or of double if the scale is wide. signs: a bit for each value.
    void (*to_logs)(const T* field, std::uint64_t n, const LogScale& scale, Bits special, void* logs,
                    std::uint64_t* signs);

    // signs: of the whole field, where these values begin at number `first`; null: none is negative.
    void (*from_logs)(const void* logs, std::uint64_t n, const LogScale& scale, Bits special,
                      const std::uint64_t* signs, std::uint64_t first, T* field);
};

struct Kernels {
    const char* name; // of the instruction set

    // weigh of checksum.hpp.
    std::uint64_t (*weigh)(const void* data, std::size_t words);

    // Range of the values that are finite and not the special pattern. n < 2^32.
    ValueRange (*value_range_f32)(const float* field, std::uint64_t n, std::uint32_t special);
    ValueRange (*value_range_f64)(const double* field, std::uint64_t n, std::uint64_t special);

    LorenzoKernels<float> lorenzo_f32;
    LorenzoKernels<double> lorenzo_f64;
    template <class T>
    const LorenzoKernels<T>& lorenzo() const {
        if constexpr (sizeof(T) == 4)
            return lorenzo_f32;
        else
            return lorenzo_f64;
    }

    SplineKernels<float> spline_f32;
    SplineKernels<double> spline_f64;
    template <class T>
    const SplineKernels<T>& spline() const {
        if constexpr (sizeof(T) == 4)
            return spline_f32;
        else
            return spline_f64;
    }
    // The kernels for unit 0, whose lattices have 4096 points or fewer; null: these same ones.
    const Kernels* of_unit0;

    LogKernels<float> logs_f32;
    LogKernels<double> logs_f64;
};

// One per instruction set in the build.
extern const Kernels baseline_kernels;
extern const Kernels avx2_kernels, avx512_kernels; // these only if CUSZ_HAVE_AVX2 and CUSZ_HAVE_AVX512 are defined

// The best kernels that this processor supports. CUSZ_SIMD=baseline, avx2 or avx512 in the environment selects those,
// if the processor supports them.
const Kernels& kernels();

} // namespace cusz::cpu
