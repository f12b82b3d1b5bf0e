// Explicit integer vectors for what compilers do not vectorise by themselves: sums along a row.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "archive/quantiser.hpp"
#include "isa.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Rearranging lanes, also with GCC 11, which has no __builtin_shufflevector. ---------------------------------------

// The lanes of a and b that the numbers name; those of b come after those of a.
template <int... from, class V>
[[gnu::always_inline]] inline V shuffle(V a, V b) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(a, b, from...);
#else
    using Lane = std::remove_cvref_t<decltype(a[0])>;
    using Number = std::conditional_t<sizeof(Lane) == 8, std::int64_t,
                                      std::conditional_t<sizeof(Lane) == 4, std::int32_t, std::int8_t>>;
    static_assert(sizeof(Number) == sizeof(Lane));
    typedef Number Numbers __attribute__((vector_size(sizeof(V))));
    return __builtin_shuffle(a, b, Numbers{from...});
#endif
}

// Bit mask of the nonzero ones among 64 numbers.
inline std::uint64_t nonzero_bits(const std::int32_t* at) {
    std::uint64_t bits = 0;
#if defined(__AVX512F__)
    for (int i = 0; i < 4; ++i) {
        const __m512i v = _mm512_loadu_si512(at + 16 * i);
        bits |= std::uint64_t{_mm512_test_epi32_mask(v, v)} << 16 * i;
    }
#elif defined(__AVX2__)
    for (int i = 0; i < 8; ++i) {
        const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 8 * i));
        const __m256i zero = _mm256_cmpeq_epi32(v, _mm256_setzero_si256());
        bits |= static_cast<std::uint64_t>(_mm256_movemask_ps(_mm256_castsi256_ps(zero)) ^ 0xFF) << 8 * i;
    }
#elif defined(__SSE2__)
    for (int i = 0; i < 16; ++i) {
        const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 4 * i));
        const __m128i zero = _mm_cmpeq_epi32(v, _mm_setzero_si128());
        bits |= static_cast<std::uint64_t>(_mm_movemask_ps(_mm_castsi128_ps(zero)) ^ 0xF) << 4 * i;
    }
#else
    for (int i = 0; i < 64; ++i) bits |= std::uint64_t{at[i] != 0} << i;
#endif
    return bits;
}

// A vector of quantised values, as wide as the instruction set's.
template <class T>
struct Vector {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
#if defined(__AVX512F__)
    static constexpr std::uint32_t bytes = 64;
#elif defined(__AVX2__)
    static constexpr std::uint32_t bytes = 32;
#else
    static constexpr std::uint32_t bytes = 16;
#endif
    static constexpr std::uint32_t lanes = bytes / sizeof(T);
    typedef U Lanes __attribute__((vector_size(bytes)));
    typedef T Values __attribute__((vector_size(bytes)));

    template <class Source> // Int, or the narrower integers of tile.code
    static Lanes load(const Source* at) {
        typedef Source Narrow __attribute__((vector_size(lanes * sizeof(Source))));
        Narrow v;
        std::memcpy(&v, at, sizeof v);
        typedef Int Wide __attribute__((vector_size(bytes)));
        return reinterpret_cast<Lanes>(__builtin_convertvector(v, Wide));
    }
    template <class Target>
    static void store(Target* at, Lanes v) {
        std::memcpy(at, &v, sizeof v);
    }
    static Lanes all_ones_unless(const std::uint8_t* marked) { // marks: 0 or 1
        typedef std::uint8_t Bytes __attribute__((vector_size(lanes)));
        Bytes v;
        std::memcpy(&v, marked, sizeof v);
        return __builtin_convertvector(v, Lanes) - U{1};
    }
    static Lanes capped(Lanes v, U limit) { // min(|v|, limit) of signed numbers
        typedef Int Signed __attribute__((vector_size(bytes)));
        const Lanes sign = reinterpret_cast<Lanes>(reinterpret_cast<Signed>(v) >> (8 * sizeof(T) - 1));
        const Lanes magnitude = (v ^ sign) - sign;
        return magnitude < limit ? magnitude : Lanes{} + limit;
    }
    static Lanes dequantised(Lanes q, T step) { // the bits that dequantise() gives, lane by lane
        Values v;
        if constexpr (sizeof(T) == 4) {
            typedef Int Signed __attribute__((vector_size(bytes)));
            v = __builtin_convertvector(reinterpret_cast<Signed>(q), Values) * step;
        } else {
            v = (reinterpret_cast<Values>(q + bits_of(Traits<T>::rounder)) - Traits<T>::rounder) * step;
        }
        return reinterpret_cast<Lanes>(v);
    }

#ifdef __AVX512F__
    using Mask = std::uint32_t; // one bit per lane
    static Values load_values(const T* at) {
        Values v;
        std::memcpy(&v, at, sizeof v);
        return v;
    }
    static Lanes bits(Values v) { return reinterpret_cast<Lanes>(v); }
    static Mask beyond(Values v, T limit) { // |v| > limit, or NaN
        const Values all = Values{} + limit;
        if constexpr (sizeof(T) == 4)
            return _mm512_cmp_ps_mask(_mm512_abs_ps(v), all, _CMP_NLE_UQ);
        else
            return _mm512_cmp_pd_mask(_mm512_abs_pd(v), all, _CMP_NLE_UQ);
    }
    static Mask equal(Lanes v, U pattern) {
        const auto a = reinterpret_cast<__m512i>(v), all = reinterpret_cast<__m512i>(Lanes{} + pattern);
        if constexpr (sizeof(T) == 4)
            return _mm512_cmpeq_epi32_mask(a, all);
        else
            return _mm512_cmpeq_epi64_mask(a, all);
    }
#endif

    // Replaces every lane by the sum of the lanes up to and including it; sets every lane of `last` to the last sum.
    // Steps stay within 16 bytes where possible, because crossing them is slow.
    static Lanes partial_sums(Lanes v, Lanes& last) {
        const Lanes zero{};
        if constexpr (bytes == 64) {
            // Within 16 bytes, then over the four 16-byte parts; every lane of `part` has its part's sum.
            Lanes part;
            if constexpr (lanes == 16) {
                v += shuffle<0, 16, 17, 18, 4, 20, 21, 22, 8, 24, 25, 26, 12, 28, 29, 30>(zero, v);
                v += shuffle<0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29>(zero, v);
                part = shuffle<3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15, 15, 15>(v, v);
                part += shuffle<0, 1, 2, 3, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27>(zero, part);
                part += shuffle<0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23>(zero, part);
                v += shuffle<0, 1, 2, 3, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27>(zero, part);
            } else {
                v += shuffle<0, 8, 2, 10, 4, 12, 6, 14>(zero, v);
                part = shuffle<1, 1, 3, 3, 5, 5, 7, 7>(v, v);
                part += shuffle<0, 1, 8, 9, 10, 11, 12, 13>(zero, part);
                part += shuffle<0, 1, 2, 3, 8, 9, 10, 11>(zero, part);
                v += shuffle<0, 1, 8, 9, 10, 11, 12, 13>(zero, part);
            }
            last = Lanes{} + part[lanes - 1];
        } else if constexpr (lanes == 8) {
            v += shuffle<0, 8, 9, 10, 4, 12, 13, 14>(zero, v);
            v += shuffle<0, 1, 8, 9, 4, 5, 12, 13>(zero, v);
            const Lanes whole_halves = shuffle<3, 3, 3, 3, 7, 7, 7, 7>(v, v);
            const Lanes low = shuffle<0, 1, 2, 3, 0, 1, 2, 3>(whole_halves, whole_halves);
            v += shuffle<0, 1, 2, 3, 8, 9, 10, 11>(zero, whole_halves);
            last = low + shuffle<4, 5, 6, 7, 4, 5, 6, 7>(whole_halves, whole_halves);
        } else if constexpr (bytes == 32) {
            v += shuffle<0, 4, 2, 6>(zero, v);
            v += shuffle<0, 1, 5, 5>(zero, v);
            last = shuffle<3, 3, 3, 3>(v, v);
        } else if constexpr (lanes == 4) {
            v += shuffle<0, 4, 5, 6>(zero, v);
            v += shuffle<0, 1, 4, 5>(zero, v);
            last = shuffle<3, 3, 3, 3>(v, v);
        } else {
            v += shuffle<0, 2>(zero, v);
            last = shuffle<1, 1>(v, v);
        }
        return v;
    }
};

} // namespace cusz::cpu::CUSZ_ISA
