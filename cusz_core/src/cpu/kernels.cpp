#include "kernels.hpp"

#include <cstdlib>
#include <string_view>

#include "../errors.hpp"

namespace cusz::cpu {

namespace {

const Kernels& choose() {
    const char* wanted = std::getenv("CUSZ_SIMD");
    if (wanted != nullptr && std::string_view(wanted) == "baseline") return baseline_kernels;
#ifdef CUSZ_HAVE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
        return avx2_kernels;
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
