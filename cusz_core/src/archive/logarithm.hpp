// Fields as logarithms (format_v2.md, section 12): a bound relative to every value is an absolute bound on its
// logarithm (paper, section 2). Everything here uses only IEEE arithmetic and integers, so it gives the same bits
// everywhere, and its errors are known, so that the bound holds by proof.
#pragma once

#include <cusz/cusz.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>

#include "quantiser.hpp"

namespace cusz {

// A floating-point type's layout.
template <class V>
struct Digits {
    using Bits = typename Traits<V>::Bits;
    static constexpr int mantissa = std::numeric_limits<V>::digits - 1;
    static constexpr int bias = std::numeric_limits<V>::max_exponent - 1;
    static constexpr Bits one = bits_of(V(1));
    static constexpr Bits sign = bits_of(V(-0.0));
    static constexpr Bits infinity = bits_of(std::numeric_limits<V>::infinity());
    static constexpr Bits min_normal = bits_of(std::numeric_limits<V>::min());
    static constexpr Bits in_mantissa = min_normal - 1;
    static constexpr V rounder = Traits<V>::rounder; // adding and subtracting it rounds to integers
};

// How the values of one field become logarithms.
struct LogScale {
    int least = 0;     // exponent of the smallest value, subtracted from all logarithms
    double bound = 0;  // absolute, of the logarithms
    bool wide = false; // f64 logarithms of f32 values

    std::size_t value_bytes(cusz_dtype dtype) const { return wide || dtype == CUSZ_F64 ? 8 : 4; }
    cusz_dtype dtype(cusz_dtype of_values) const { return wide ? CUSZ_F64 : of_values; }

    // The logarithm that stands for zeros, below all others. Whatever is decoded below half of it is a zero.
    constexpr double zero() const { return -4 * bound; }
};

// A code in place of a logarithm, for a value that has no usable one. It is too large for the quantiser, so it is
// stored verbatim. Its mantissa holds `payload`.
template <class V>
constexpr V verbatim_code(typename Digits<V>::Bits payload) {
    return std::bit_cast<V>((static_cast<typename Digits<V>::Bits>(Digits<V>::bias + 60) << Digits<V>::mantissa) |
                            payload);
}

// Stands for the special value. No logarithm and no code equals it.
template <class V>
inline constexpr V special_log = std::numeric_limits<V>::max();

// Largest errors of log2_of (absolute, beyond the rounding of the logarithm) and of exp2_of (relative to the value);
// tested by logarithms() in tests/core/core_test.cpp.
template <class V>
inline constexpr double log_error = sizeof(V) == 4 ? 0x1p-22 : 0x1p-51;
template <class V>
inline constexpr double exp_error = sizeof(V) == 4 ? 0x1p-21 : 0x1p-50;

// log2 of a positive normal number, minus `least`.
template <class V>
constexpr V log2_of(V value, V least) {
    using D = Digits<V>;
    using Bits = typename D::Bits;
    const Bits bits = bits_of(value);
    // The exponent as a V, without a conversion from integers, because not every instruction set has one.
    const V biased = std::bit_cast<V>(bits_of(V(1) / std::numeric_limits<V>::epsilon()) | (bits >> D::mantissa));
    V exponent = biased - (V(1) / std::numeric_limits<V>::epsilon() + V(D::bias));
    V m = std::bit_cast<V>((bits & D::in_mantissa) | D::one);
    const bool above = m > V(std::numbers::sqrt2);
    m = above ? m * V(0.5) : m;
    exponent = above ? exponent + V(1) : exponent;
    const V s = (m - V(1)) / (m + V(1)), z = s * s; // log m = 2 artanh s, |s| < 0.172
    V sum;
    if constexpr (sizeof(V) == 4) {
        sum = V(2.8853900817779268 / 9);
        for (const double k : {7.0, 5.0, 3.0}) sum = sum * z + V(2.8853900817779268 / k);
    } else {
        sum = V(2.8853900817779268 / 21);
        for (const double k : {19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0})
            sum = sum * z + V(2.8853900817779268 / k);
    }
    // 2 / ln 2 in two parts, so that the first term is not rounded twice
    const V first = s * V(2.8853900817779268);
    return (exponent - least) + (sum * z * s + first);
}

// 2^(logarithm + least), within the normal numbers of T.
template <class T, class V>
constexpr T exp2_of(V logarithm, int least) {
    using D = Digits<V>;
    using Bits = typename D::Bits;
    constexpr V most = sizeof(V) == 4 ? V(300) : V(2200);
    V v = logarithm < V(-2) ? V(-2) : logarithm;
    v = v > most ? most : v;
    const V rounded = v + D::rounder;
    const V whole = rounded - D::rounder;
    const V x = (v - whole) * V(std::numbers::ln2);
    V sum;
    if constexpr (sizeof(V) == 4) {
        sum = V(1.0 / 5040);
        for (const double k : {720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0}) sum = sum * x + V(1 / k);
    } else {
        sum = V(1.0 / 6227020800.0);
        for (const double k :
             {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0})
            sum = sum * x + V(1 / k);
    }
    // The power of 2 in two factors, because it may lie outside the normal numbers.
    const auto n = static_cast<Bits>(bits_of(rounded) - bits_of(D::rounder)) + static_cast<Bits>(least);
    using Int = typename Traits<V>::Int;
    const auto half = static_cast<Bits>(static_cast<Int>(n) >> 1);
    const auto power = [](Bits exponent) {
        return std::bit_cast<V>(static_cast<Bits>((exponent + static_cast<Bits>(D::bias)) << D::mantissa));
    };
    const T value = static_cast<T>(sum * power(half) * power(n - half));
    const T low = value < std::numeric_limits<T>::min() ? std::numeric_limits<T>::min() : value;
    return low > std::numeric_limits<T>::max() ? std::numeric_limits<T>::max() : low;
}

// The logarithm, or the code, of a value's magnitude.
template <class T, class V>
constexpr V log_of_value(T value, const LogScale& scale, typename Traits<T>::Bits special) {
    using D = Digits<T>;
    const typename D::Bits bits = bits_of(value), magnitude = bits & ~D::sign;
    V v = log2_of(static_cast<V>(std::bit_cast<T>(magnitude)), static_cast<V>(scale.least));
    v = magnitude == 0 ? static_cast<V>(scale.zero()) : v;
    if constexpr (sizeof(T) == sizeof(V)) {
        v = magnitude != 0 && magnitude < D::min_normal ? verbatim_code<V>(magnitude) : v;
        v = magnitude >= D::infinity ? value : v;
    } else {
        const bool irregular = magnitude >= D::infinity || (magnitude != 0 && magnitude < D::min_normal);
        v = irregular ? verbatim_code<V>(bits) : v;
    }
    return bits == special ? special_log<V> : v;
}

// Whether a value's sign is kept beside its logarithm.
template <class T>
constexpr bool has_sign(T value, typename Traits<T>::Bits special) {
    using D = Digits<T>;
    const typename D::Bits bits = bits_of(value);
    return (bits & D::sign) != 0 && (bits & ~D::sign) < D::infinity && bits != special;
}

// The value of a logarithm or code, without its sign.
template <class T, class V>
constexpr T value_of_log(V v, const LogScale& scale, typename Traits<T>::Bits special) {
    using D = Digits<V>;
    T value = exp2_of<T, V>(v, scale.least);
    value = v < static_cast<V>(scale.zero() / 2) ? T(0) : value;
    const typename D::Bits bits = bits_of(v);
    const bool is_code = (bits & ~D::in_mantissa) == bits_of(verbatim_code<V>(0));
    if constexpr (sizeof(T) == sizeof(V)) {
        value = is_code ? std::bit_cast<T>(static_cast<typename Digits<T>::Bits>(bits & D::in_mantissa)) : value;
        value = (bits & ~D::sign) >= D::infinity ? std::bit_cast<T>(bits) : value;
    } else {
        value = is_code ? std::bit_cast<T>(static_cast<typename Digits<T>::Bits>(bits)) : value;
    }
    return bits == bits_of(special_log<V>) ? std::bit_cast<T>(special) : value;
}

// The scale for a bound relative to values with exponents from `least` to `most`; nothing if the arithmetic cannot keep
// the bound, so that the field has to be stored raw.
template <class T>
constexpr std::optional<LogScale> log_scale(double eb, int least, int most) {
    // All errors besides the compressor's: rounding of the logarithms, and the errors of both functions.
    const auto spent = [&]<class V>(V) {
        const int octaves = static_cast<int>(std::bit_width(static_cast<unsigned>(most - least + 1))) - 1;
        double rounding = 1; // half a unit in the last place of the largest logarithm
        for (int i = octaves - std::numeric_limits<V>::digits; i < 0; ++i) rounding /= 2;
        const double narrowing = sizeof(T) < sizeof(V) ? 0x1p-24 : 0;
        return log_error<V> + rounding + 1.45 * (exp_error<V> + narrowing);
    };
    // 1 + eb is rounded, and so are this logarithm and what is subtracted from it. The bound is at most 32: with a
    // larger one, verbatim codes would not be stored verbatim, and 2^32 times a value is hardly an approximation.
    const double found = log2_of(1 + eb, 0.0);
    const double whole = std::min(found - found * 0x1p-50 - 0x1p-50, 32.0);
    LogScale scale{.least = least};
    if (const double narrow = spent(T()); narrow <= whole / 64 || (sizeof(T) == 8 && narrow <= whole / 2)) {
        scale.bound = whole - narrow;
    } else if (const double wide = spent(0.0); sizeof(T) == 4 && wide <= whole / 2) {
        scale.wide = true;
        scale.bound = whole - wide;
    } else {
        return std::nullopt;
    }
    return scale;
}

} // namespace cusz
