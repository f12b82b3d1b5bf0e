#include "kernels.hpp"

#ifdef CUSZ_HAVE_AVX2
#include <cpuid.h>
#endif

#include <cstdlib>
#include <string_view>

#include "../errors.hpp"

namespace cusz::cpu {

namespace {

#ifdef CUSZ_HAVE_AVX2
// What kernels_avx2.cpp is compiled for.
bool has_avx2() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool lzcnt =
        __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c >> 5 & 1) != 0; // not every compiler's builtin
    return lzcnt && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}
#endif

const Kernels& choose() {
    const char* wanted = std::getenv("CUSZ_SIMD");
    if (wanted != nullptr && std::string_view(wanted) == "baseline") return baseline_kernels;
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
