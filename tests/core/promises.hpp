// What the tests of the core demand. A broken promise ends the process, which a fuzzer takes notice of as well.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace cusz_test {

inline void demand(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken promise: %s\n", what);
    std::abort();
}

// |a - b| <= bound, exactly: the difference is s + e (Knuth's two-sum), where s is the nearest double to it.
inline bool within(double a, double b, double bound) {
    const double s = a - b, bb = s - a, e = (a - (s - bb)) + (-b - bb);
    const double distance = std::fabs(s), beyond = s < 0 ? -e : e;
    return distance < bound || (distance == bound && beyond <= 0);
}

// What is promised for n values x that came back as y; bound 0: lossless.
template <class T>
void demand_bound(const T* x, const T* y, std::size_t n, double bound, bool has_fill, double fill) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const auto fill_bits = std::bit_cast<Bits>(static_cast<T>(has_fill ? fill : 0));
    for (std::size_t i = 0; i < n; ++i) {
        const auto before = std::bit_cast<Bits>(x[i]), after = std::bit_cast<Bits>(y[i]);
        if (before == after) continue;
        demand(bound > 0, "lossless");
        demand(std::isfinite(x[i]) && !(has_fill && before == fill_bits), "NaN, infinity or fill, bit for bit");
        demand(std::isfinite(y[i]) && within(static_cast<double>(x[i]), static_cast<double>(y[i]), bound), "the bound");
    }
}

} // namespace cusz_test
