// The range of a field's values, to which a relative bound refers (docs/format.md, section 4).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "../backend.hpp"
#include "isa.hpp"

namespace cusz::cpu::CUSZ_ISA {

template <class T>
ValueRange value_range(const T* field, std::uint64_t n, typename Traits<T>::Bits special) {
    // One minimum, maximum and count per lane, so that the loop vectorises.
    constexpr std::size_t lanes = 64 / sizeof(T) * 2;
    constexpr std::size_t prefetch_bytes = 2048; // distance; further than the hardware prefetcher looks
    constexpr T infinity = std::numeric_limits<T>::infinity();
    T low[lanes], high[lanes];
    typename Traits<T>::Bits valid[lanes];
    std::fill_n(low, lanes, infinity);
    std::fill_n(high, lanes, -infinity);
    std::uint64_t n_valid = 0;
    constexpr std::uint64_t batch = lanes << 16;
    for (std::uint64_t begin = 0; begin < n; begin += batch) {
        const std::uint64_t end = std::min(n, begin + batch);
        std::fill_n(valid, lanes, 0);
        const auto take = [&](T value, std::size_t lane) {
            const bool counts = (std::abs(value) < infinity) & (bits_of(value) != special);
            const T a = counts ? value : infinity, b = counts ? value : -infinity;
            low[lane] = a < low[lane] ? a : low[lane];
            high[lane] = b > high[lane] ? b : high[lane];
            valid[lane] += counts ? 1 : 0;
        };
        std::uint64_t i = begin;
        for (; i + lanes <= end; i += lanes) {
            for (std::size_t line = 0; line < lanes * sizeof(T); line += 64)
                __builtin_prefetch(reinterpret_cast<const char*>(field + i) + prefetch_bytes + line);
            for (std::size_t lane = 0; lane < lanes; ++lane) take(field[i + lane], lane);
        }
        for (; i < end; ++i) take(field[i], 0);
        for (std::size_t lane = 0; lane < lanes; ++lane) n_valid += valid[lane];
    }
    if (n_valid == 0) return {};
    // + 0.0 turns -0 into +0
    return {static_cast<double>(*std::min_element(low, low + lanes)) + 0.0,
            static_cast<double>(*std::max_element(high, high + lanes)) + 0.0, n_valid};
}

} // namespace cusz::cpu::CUSZ_ISA
