// Loads originals from the field, and quantises single values that the vectorised quantiser leaves over.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "archive/quantiser.hpp"
#include "archive/v2/tables.hpp"
#include "simd/lanes.hpp"

namespace cusz::cpu::CUSZ_ISA {

// A vector of originals of a class's row, from its value x on; behind the row's n values it may hold anything. line: of
// the tile's points, `step` apart in the field. odd: the class has points 1, 3, ... of the line, else 0, 2, ...
template <class T>
[[gnu::always_inline]] inline typename Lanes<T>::Values originals(const T* line, std::size_t step, bool odd,
                                                                  std::uint32_t x, std::uint32_t n, const T* end) {
    using L = Lanes<T>;
    using Values = typename L::Values;
    const T* const from = line + 2 * step * x;
    const auto left = static_cast<std::size_t>(end - from);
    if (step == 1 && 2 * L::n <= left) return L::template every_second<1>(from, odd);
    if (step == 2 && 4 * L::n <= left) return L::template every_second<2>(from, odd);
    // Built lane by lane: a vector loaded from memory would have to wait for the stores of its parts.
    Values v{};
    const bool whole = x + L::n <= n;
    for (std::uint32_t i = 0; i < L::n; ++i) v[i] = from[(2 * (whole ? i : std::min(i, n - x - 1)) + odd) * step];
    return v;
}

// Quantises d against p (section 5): gives k and d', or code 0 and `verbatim`.
template <class T>
struct CodedValue {
    bool verbatim;
    std::int32_t code;
    T value;
};
template <class T>
CodedValue<T> quantise_value(T d, T p, const Quantiser<T>& q) {
    const T t = (d - p) * q.inv;
    const CodedValue<T> stored{true, 0, std::abs(d) <= std::numeric_limits<T>::max() ? d : p};
    if (!(std::abs(t) <= T(v2::max_code))) return stored;
    const T k = (t + Traits<T>::rounder) - Traits<T>::rounder;
    const T back = p + k * q.step, r = d - back;
    bool good = std::abs(r) < q.e;
    if (std::abs(r) == q.e) { // the error of the subtraction says on which side of e it is
        const T b = r - d, error = (d - (r - b)) + (-back - b);
        good = r > 0 ? error <= 0 : error >= 0;
    }
    return good ? CodedValue<T>{false, static_cast<std::int32_t>(k), back} : stored;
}

} // namespace cusz::cpu::CUSZ_ISA
