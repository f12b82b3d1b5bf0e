#include "kernels.hpp"

#if defined(CUSZ_HAVE_AVX2) || defined(CUSZ_HAVE_AVX512)
#include <cpuid.h>
#endif

#include <cstdlib>
#include <string_view>

#include "errors.hpp"

namespace cusz::cpu {

namespace {

#if defined(CUSZ_HAVE_AVX2) || defined(CUSZ_HAVE_AVX512)
// The instructions that kernels_avx2.cpp is compiled for.
bool has_avx2() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool lzcnt =
        __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c >> 5 & 1) != 0; // not every compiler's builtin knows it
    return lzcnt && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}
#endif

#ifdef CUSZ_HAVE_AVX512
// The instructions that kernels_avx512.cpp is compiled for.
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

// Gathers are slow on AMD processors up to Zen 4, and on Intel processors before Sapphire Rapids, whose microcode slows
// them down for security. AVX512-FP16 tells later processors apart.
bool gathers_fast() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 23 & 1) != 0;
}

// The spline codec gains more from side-by-side coding than slow gathers cost, except in small lattices, whose rows do
// not fill a vector; the Lorenzo codec does not (docs/benchmarks/cpu.md). Measured only on AMD Zen 4.
const Kernels& kernels_for_slow_gathers() {
    static const Kernels chosen = [] {
        Kernels mixed = avx512_kernels;
#ifdef CUSZ_HAVE_AVX2
        mixed.of_unit0 = &avx2_kernels;
        mixed.lorenzo_f32 = avx2_kernels.lorenzo_f32;
        mixed.lorenzo_f64 = avx2_kernels.lorenzo_f64;
#endif
        return mixed;
    }();
    return chosen;
}
#endif

const Kernels& choose() {
    const char* const set = std::getenv("CUSZ_SIMD");
    const std::string_view wanted = set != nullptr ? set : "";
    if (wanted == "baseline") return baseline_kernels;
#ifdef CUSZ_HAVE_AVX512
    if (has_avx512() && wanted != "avx2") {
        if (gathers_fast() || wanted == "avx512") return avx512_kernels;
        if (__builtin_cpu_is("amd")) return kernels_for_slow_gathers();
    }
#endif
#ifdef CUSZ_HAVE_AVX2
    if (has_avx2()) return avx2_kernels;
#endif
    return baseline_kernels;
}

} // namespace

void corrupt_tile(std::uint64_t number, const char* what) {
    fail(CUSZ_ERROR_CORRUPT, "corrupt archive: tile ", number, ": ", what);
}

const Kernels& kernels() {
    static const Kernels& chosen = choose();
    return chosen;
}

} // namespace cusz::cpu
