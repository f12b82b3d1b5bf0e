// Bit patterns and quantisers, by type (docs/reference/format.md, section 4).
#pragma once

#include <cusz/cusz.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace cusz {

// The integers, bit patterns and limits that belong to a floating-point type.
template <class T>
struct Traits;

template <>
struct Traits<float> {
    using Int = std::int32_t;
    using Bits = std::uint32_t;
    static constexpr float largest_e = 0x1p124f;
    static constexpr float quantum_limit = 0x1p22f; // |d * inv| up to here is quantised
    static constexpr float rounder = 0x1.8p23f;     // adding and subtracting it rounds like rint up to the limit
    static constexpr Bits canonical_nan = 0x7FC00000u;
};

template <>
struct Traits<double> {
    using Int = std::int64_t;
    using Bits = std::uint64_t;
    static constexpr double largest_e = 0x1p1020;
    static constexpr double quantum_limit = 0x1p51;
    static constexpr double rounder = 0x1.8p52;
    static constexpr Bits canonical_nan = 0x7FF8000000000000u;
};

template <class T>
constexpr typename Traits<T>::Bits bits_of(T value) {
    return std::bit_cast<typename Traits<T>::Bits>(value);
}

template <class T>
constexpr std::size_t words_of = sizeof(T) / 4;

// The special bit pattern: that of the fill value, or else of the canonical NaN.
template <class T>
typename Traits<T>::Bits special_pattern(bool has_fill, double fill) {
    const T cast = static_cast<T>(fill);
    return has_fill && cast == cast ? bits_of(cast) : Traits<T>::canonical_nan;
}

// The quantiser for an absolute bound (docs/reference/format.md, section 4).
template <class T>
struct Quantiser {
    T e = 0, step = 0, inv = 0;
    typename Traits<T>::Bits special = Traits<T>::canonical_nan;

    // e == 0: the bound is too small for the arithmetic to guarantee; the field is stored raw.
    static constexpr Quantiser from_bound(double eb) {
        Quantiser quantiser;
        T e = eb >= static_cast<double>(Traits<T>::largest_e) ? Traits<T>::largest_e : static_cast<T>(eb);
        if (static_cast<double>(e) > eb) // rounded up; the next smaller positive value is one less as an integer
            e = std::bit_cast<T>(bits_of(e) - 1);
        if (!(e >= std::numeric_limits<T>::min())) return quantiser;
        quantiser.e = e;
        quantiser.step = 2 * e;
        quantiser.inv = 1 / quantiser.step;
        return quantiser;
    }
};

// The quantiser of a lattice whose bound is e / divisor (docs/reference/format_v2.md, section 3).
template <class T>
Quantiser<T> quantiser_of(T e, double divisor) {
    Quantiser<T> q;
    q.e = std::max(static_cast<T>(static_cast<double>(e) / divisor), std::numeric_limits<T>::min());
    q.step = 2 * q.e;
    q.inv = 1 / q.step;
    return q;
}

// The same for a type that is known only when the program runs.
inline double value_of(cusz_dtype dtype, std::uint64_t bits) {
    return dtype == CUSZ_F32 ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))
                             : std::bit_cast<double>(bits);
}
inline std::uint64_t special_pattern(cusz_dtype dtype, bool has_fill, double fill) {
    return dtype == CUSZ_F32 ? special_pattern<float>(has_fill, fill) : special_pattern<double>(has_fill, fill);
}
inline double bound_in_force(cusz_dtype dtype, double eb) {
    return dtype == CUSZ_F32 ? static_cast<double>(Quantiser<float>::from_bound(eb).e)
                             : Quantiser<double>::from_bound(eb).e;
}

// The absolute bound equivalent to a relative one over a value range (docs/reference/format.md, section 4).
constexpr double absolute_bound(double rel, double min, double max) {
    constexpr double largest = std::numeric_limits<double>::max();
    const double range = max - min;
    const double bound = range >= -largest && range <= largest ? rel * range : rel * (max / 2 - min / 2) * 2;
    return bound < largest ? bound : largest;
}

} // namespace cusz
