// Hosts built with -Ofast flush subnormals to zero, and some change the rounding mode; archives must depend on neither.
// Every entry point and every worker thread holds a FloatMode while it computes.
#pragma once

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#endif

namespace cusz {

// Sets IEEE defaults (round half to even, subnormals preserved, exceptions masked) and restores the caller's mode on
// destruction.
class FloatMode {
public:
#if defined(__x86_64__)
    FloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~FloatMode() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
    FloatMode() {
        asm volatile("mrs %0, fpcr" : "=r"(saved_));
        asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
    }
    ~FloatMode() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#else
    FloatMode() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~FloatMode() { std::fesetenv(&saved_); }
#endif
    FloatMode(const FloatMode&) = delete;
    FloatMode& operator=(const FloatMode&) = delete;

private:
#if defined(__x86_64__)
    unsigned saved_;
#elif defined(__aarch64__)
    std::uint64_t saved_ = 0;
#else
    std::fenv_t saved_;
#endif
};

} // namespace cusz
