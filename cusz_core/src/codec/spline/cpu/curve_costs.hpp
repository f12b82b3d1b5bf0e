// Estimates, without coding, what interpolation along lines leaves to be coded: where the choice of a curve begins
// (choice.hpp).
#pragma once

#include <cstdint>

#include "kernels.hpp"
#include "simd/lanes.hpp"

namespace cusz::cpu::CUSZ_ISA {

// field: has room for a vector behind it. extent: from the fastest axis on. inv: 1 / (2 * bound). Counts every point
// that has three others on both sides along an axis, except those with huge errors, which are next to missing values.
template <class T>
CostsByAxis curve_costs(const T* field, const Extents& extent, T inv) {
    using L = Lanes<T>;
    using Values = typename L::Values;
    using Ints = typename L::Ints;
    using Int = typename L::Int;
    constexpr T far = 65536; // steps
    constexpr int to_fraction = std::numeric_limits<T>::digits - 1 - 11;
    CostsByAxis all;
    const std::uint64_t n_values = extent[0] * extent[1] * extent[2] * extent[3];
    std::size_t apart = 1;
    for (std::size_t a = 0; a < 4; ++a) {
        const std::uint64_t n = extent[a];
        CurveCosts& costs = all[a];
        const std::size_t of_line = apart * n, inside = n > 6 ? apart * (n - 6) : 0;
        for (const T* line = field; inside > 0 && line < field + n_values; line += of_line) {
            Ints linear{}, cubic{}, points{};
            for (std::size_t j = 0; j < inside; j += L::n) {
                const T* const at = line + 3 * apart + j;
                const auto v = L::template load<Values>(at);
                const Values near = L::template load<Values>(at - apart) + L::template load<Values>(at + apart),
                             next = L::template load<Values>(at - 3 * apart) + L::template load<Values>(at + 3 * apart);
                // The bits of a number >= 1 approximate its logarithm.
                const auto bits_of = [&](Values error) { return L::absolute(error) * inv + T(1); };
                const Values of_straight = bits_of(v - near * T(0.5)),
                             of_cubic = bits_of(v - (near * T(9) - next) * T(0.0625));
                Ints counted = (of_straight < far) & (of_cubic < far);
                if (inside - j < L::n) counted &= L::counted() < static_cast<Int>(inside - j);
                points -= counted;
                const Ints one = reinterpret_cast<Ints>(Values{} + T(1));
                linear += ((reinterpret_cast<Ints>(of_straight) - one) >> to_fraction) & counted;
                cubic += ((reinterpret_cast<Ints>(of_cubic) - one) >> to_fraction) & counted;
            }
            for (std::uint32_t i = 0; i < L::n; ++i) {
                costs.points += static_cast<std::uint64_t>(points[i]);
                costs.linear += static_cast<std::uint64_t>(linear[i]);
                costs.cubic += static_cast<std::uint64_t>(cubic[i]);
            }
        }
        costs.others = n_values / of_line * inside - costs.points;
        apart = of_line;
    }
    return all;
}

} // namespace cusz::cpu::CUSZ_ISA
