// Rows of values and of bytes as vectors of the instruction set, and what compilers do not vectorise by themselves.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "lane_room.hpp"
#include "vector.hpp"

namespace cusz::cpu::CUSZ_ISA {

// lane_room bytes.
typedef std::uint8_t Marks __attribute__((vector_size(lane_room)));
inline Marks load_marks(const std::uint8_t* at) {
    Marks v;
    std::memcpy(&v, at, sizeof v);
    return v;
}
inline void store_marks(std::uint8_t* at, Marks v) { std::memcpy(at, &v, sizeof v); }

// All ones in the first n lanes.
inline Marks first_lanes(std::uint32_t n) {
    constexpr Marks lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const auto most = static_cast<std::uint8_t>(n < lane_room ? n : lane_room);
    return reinterpret_cast<Marks>(lanes < Marks{} + most);
}

// Transposes a matrix of four rows and columns whose elements are four bytes each. apart: from row to row, in bytes.
inline void transpose_fours(const std::uint8_t* from, std::size_t apart, Marks (&to)[4]) {
    typedef std::uint32_t Fours __attribute__((vector_size(16)));
    Fours row[4];
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(&row[i], from + i * apart, sizeof row[i]);
    const auto a = shuffle<0, 4, 1, 5>(row[0], row[1]), b = shuffle<0, 4, 1, 5>(row[2], row[3]),
               c = shuffle<2, 6, 3, 7>(row[0], row[1]), d = shuffle<2, 6, 3, 7>(row[2], row[3]);
    const Fours column[4] = {shuffle<0, 1, 4, 5>(a, b), shuffle<2, 3, 6, 7>(a, b), shuffle<0, 1, 4, 5>(c, d),
                             shuffle<2, 3, 6, 7>(c, d)};
    for (std::size_t i = 0; i < 4; ++i) to[i] = reinterpret_cast<Marks>(column[i]);
}

// As many bytes as the instruction set's vectors hold.
struct ByteLanes {
    static constexpr std::size_t n = Vector<float>::bytes;
    typedef std::uint8_t Bytes __attribute__((vector_size(n)));

    static Bytes load(const std::uint8_t* at) {
        Bytes v;
        std::memcpy(&v, at, sizeof v);
        return v;
    }
    static void store(std::uint8_t* at, Bytes v) { std::memcpy(at, &v, sizeof v); }
    static Bytes add_saturated(Bytes a, Bytes b) {
#if defined(__AVX512BW__)
        return reinterpret_cast<Bytes>(_mm512_adds_epu8(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
        return reinterpret_cast<Bytes>(_mm256_adds_epu8(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
        return reinterpret_cast<Bytes>(_mm_adds_epu8(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
        const Bytes sum = a + b;
        return sum | reinterpret_cast<Bytes>(sum < a);
#endif
    }
    // All ones in the first `count` bytes.
    static Bytes first(std::uint32_t count) {
        Bytes number{};
        for (std::uint32_t i = 0; i < n; ++i) number[i] = static_cast<std::uint8_t>(i);
        return reinterpret_cast<Bytes>(number < static_cast<std::uint8_t>(std::min(count, std::uint32_t{n})));
    }
    static std::uint32_t sum(Bytes v) {
#if defined(__AVX512BW__)
        const __m512i sums = _mm512_sad_epu8(reinterpret_cast<__m512i>(v), __m512i{});
        return static_cast<std::uint32_t>(_mm512_reduce_add_epi64(sums));
#elif defined(__AVX2__)
        const __m256i sums = _mm256_sad_epu8(reinterpret_cast<__m256i>(v), __m256i{});
        const __m128i both = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        return static_cast<std::uint32_t>(_mm_cvtsi128_si32(both) + _mm_extract_epi32(both, 2));
#elif defined(__SSE2__)
        const __m128i sums = _mm_sad_epu8(reinterpret_cast<__m128i>(v), __m128i{});
        return static_cast<std::uint32_t>(_mm_cvtsi128_si32(sums) + _mm_cvtsi128_si32(_mm_srli_si128(sums, 8)));
#else
        std::uint32_t all = 0;
        for (std::uint32_t i = 0; i < n; ++i) all += v[i];
        return all;
#endif
    }
    // The highest bit of every byte.
    static std::uint64_t highest_bits(Bytes v) {
#if defined(__AVX512BW__)
        return _mm512_movepi8_mask(reinterpret_cast<__m512i>(v));
#elif defined(__AVX2__)
        return static_cast<std::uint32_t>(_mm256_movemask_epi8(reinterpret_cast<__m256i>(v)));
#elif defined(__SSE2__)
        return static_cast<std::uint32_t>(_mm_movemask_epi8(reinterpret_cast<__m128i>(v)));
#else
        std::uint64_t bits = 0;
        for (std::uint32_t i = 0; i < n; ++i) bits |= std::uint64_t{v[i] > 127} << i;
        return bits;
#endif
    }
    // bytes[at] for every byte of `at` (below 16).
    static Bytes look_up_16(const std::uint8_t* bytes, Bytes at) {
#if defined(__AVX2__)
        return shuffled_16(repeated_16(bytes), at);
#else
        for (std::size_t i = 0; i < n; ++i) at[i] = bytes[at[i]];
        return at;
#endif
    }
#if defined(__AVX2__)
    static Bytes repeated_16(const std::uint8_t* bytes) {
        const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
#if defined(__AVX512BW__)
        return reinterpret_cast<Bytes>(_mm512_broadcast_i32x4(part));
#else
        return reinterpret_cast<Bytes>(_mm256_broadcastsi128_si256(part));
#endif
    }
    // Within each 16 bytes: byte number `at` % 16 (at: below 128).
    static Bytes shuffled_16(Bytes bytes, Bytes at) {
#if defined(__AVX512BW__)
        return reinterpret_cast<Bytes>(
            _mm512_shuffle_epi8(reinterpret_cast<__m512i>(bytes), reinterpret_cast<__m512i>(at)));
#else
        return reinterpret_cast<Bytes>(
            _mm256_shuffle_epi8(reinterpret_cast<__m256i>(bytes), reinterpret_cast<__m256i>(at)));
#endif
    }
    // Bytes of `set` or of `clear`, by the highest bits of `by`.
    static Bytes chosen(Bytes by, Bytes set, Bytes clear) {
#if defined(__AVX512BW__)
        return reinterpret_cast<Bytes>(_mm512_mask_blend_epi8(_mm512_movepi8_mask(reinterpret_cast<__m512i>(by)),
                                                              reinterpret_cast<__m512i>(clear),
                                                              reinterpret_cast<__m512i>(set)));
#else
        return reinterpret_cast<Bytes>(_mm256_blendv_epi8(
            reinterpret_cast<__m256i>(clear), reinterpret_cast<__m256i>(set), reinterpret_cast<__m256i>(by)));
#endif
    }
#endif
};

// A table of 80 bytes. A whole vector of them is looked up at a time.
class ByteTable {
    using L = ByteLanes;
    using Bytes = typename L::Bytes;

public:
    static constexpr std::uint32_t length = 80;

#if defined(__AVX2__)
    explicit ByteTable(const std::uint8_t* bytes) {
        for (std::size_t i = 0; i < length / 16; ++i) part_[i] = L::repeated_16(bytes + 16 * i);
    }
    // The bytes at the indices `at`, which are below the length.
    [[gnu::always_inline]] Bytes operator[](Bytes at) const {
        const auto of = [&](std::size_t i) { return L::shuffled_16(part_[i], at); };
        const Bytes by_2 = at + at, by_4 = by_2 + by_2, by_8 = by_4 + by_4;
        const Bytes below_64 = L::chosen(by_4, L::chosen(by_8, of(3), of(2)), L::chosen(by_8, of(1), of(0)));
        return L::chosen(by_2, of(4), below_64);
    }

private:
    Bytes part_[length / 16];
#else
    explicit ByteTable(const std::uint8_t* bytes) : bytes_(bytes) {}
    Bytes operator[](Bytes at) const {
        for (std::size_t i = 0; i < L::n; ++i) at[i] = bytes_[at[i]];
        return at;
    }

private:
    const std::uint8_t* bytes_;
#endif
};

// As many values as the instruction set's vectors hold. Rows have room for whole vectors.
template <class T>
struct Lanes {
    using Int = typename Traits<T>::Int;
    static constexpr std::uint32_t bytes = Vector<T>::bytes, n = Vector<T>::lanes;
    typedef T Values __attribute__((vector_size(bytes)));
    typedef Int Ints __attribute__((vector_size(bytes)));
    typedef std::int32_t Codes __attribute__((vector_size(n * 4)));
    typedef std::uint8_t Narrow __attribute__((vector_size(n)));

    template <class V, class From>
    static V load(const From* at) {
        V v;
        std::memcpy(&v, at, sizeof v);
        return v;
    }
    template <class V, class To>
    static void store(To* at, V v) {
        std::memcpy(at, &v, sizeof v);
    }
    // The values at even and odd places of two vectors, and back.
    static Values evens(Values a, Values b) {
        if constexpr (n == 2)
            return shuffle<0, 2>(a, b);
        else if constexpr (n == 4)
            return shuffle<0, 2, 4, 6>(a, b);
        else if constexpr (n == 8)
            return shuffle<0, 2, 4, 6, 8, 10, 12, 14>(a, b);
        else
            return shuffle<0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30>(a, b);
    }
    static Values odds(Values a, Values b) {
        if constexpr (n == 2)
            return shuffle<1, 3>(a, b);
        else if constexpr (n == 4)
            return shuffle<1, 3, 5, 7>(a, b);
        else if constexpr (n == 8)
            return shuffle<1, 3, 5, 7, 9, 11, 13, 15>(a, b);
        else
            return shuffle<1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31>(a, b);
    }
    // Every second one of the values that are `step` apart (1 or 2), from the first one on or, if odd, from the second.
    template <std::size_t step>
    static Values every_second(const T* from, bool odd) {
        auto a = load<Values>(from), b = load<Values>(from + n);
        if constexpr (step == 2) {
            a = evens(a, b);
            b = evens(load<Values>(from + 2 * n), load<Values>(from + 3 * n));
        }
        return odd ? odds(a, b) : evens(a, b);
    }
    static Values interleaved_low(Values a, Values b) {
        if constexpr (n == 2)
            return shuffle<0, 2>(a, b);
        else if constexpr (n == 4)
            return shuffle<0, 4, 1, 5>(a, b);
        else if constexpr (n == 8)
            return shuffle<0, 8, 1, 9, 2, 10, 3, 11>(a, b);
        else
            return shuffle<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(a, b);
    }
    static Values interleaved_high(Values a, Values b) {
        if constexpr (n == 2)
            return shuffle<1, 3>(a, b);
        else if constexpr (n == 4)
            return shuffle<2, 6, 3, 7>(a, b);
        else if constexpr (n == 8)
            return shuffle<4, 12, 5, 13, 6, 14, 7, 15>(a, b);
        else
            return shuffle<8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31>(a, b);
    }
    static Ints counted() {
        Ints v{};
        for (std::uint32_t i = 0; i < n; ++i) v[i] = static_cast<Int>(i);
        return v;
    }
    // A bit for each lane; lanes are all ones or all zeros.
    static std::uint32_t bits(Ints v) {
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4)
            return _mm512_movepi32_mask(reinterpret_cast<__m512i>(v));
        else
            return _mm512_movepi64_mask(reinterpret_cast<__m512i>(v));
#elif defined(__AVX2__)
        if constexpr (sizeof(T) == 4)
            return static_cast<std::uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(v)));
        else
            return static_cast<std::uint32_t>(_mm256_movemask_pd(reinterpret_cast<__m256d>(v)));
#elif defined(__SSE2__)
        if constexpr (sizeof(T) == 4)
            return static_cast<std::uint32_t>(_mm_movemask_ps(reinterpret_cast<__m128>(v)));
        else
            return static_cast<std::uint32_t>(_mm_movemask_pd(reinterpret_cast<__m128d>(v)));
#else
        std::uint32_t all = 0;
        for (std::uint32_t i = 0; i < n; ++i) all |= std::uint32_t{v[i] != 0} << i;
        return all;
#endif
    }
    // Numbers below 128 as bytes.
    static Narrow narrowed(Ints v) {
#if defined(__AVX2__) && !defined(__AVX512F__)
        __m256i all = reinterpret_cast<__m256i>(v); // of 64-bit lanes: the lower halves, in pairs within 128 bits
        if constexpr (sizeof(T) == 8) all = _mm256_shuffle_epi32(all, 0x88);
        const __m128i low = _mm256_castsi256_si128(all), high = _mm256_extracti128_si256(all, 1);
        const __m128i words = sizeof(T) == 4 ? _mm_packs_epi32(low, high) : _mm_unpacklo_epi64(low, high);
        const __m128i packed =
            sizeof(T) == 4 ? _mm_packs_epi16(words, words) : _mm_packs_epi16(_mm_packs_epi32(words, words), words);
        Narrow narrow;
        std::memcpy(&narrow, &packed, sizeof narrow);
        return narrow;
#else
        return __builtin_convertvector(v, Narrow);
#endif
    }
    static Values absolute(Values v) {
        return reinterpret_cast<Values>(reinterpret_cast<Ints>(v) & std::numeric_limits<Int>::max());
    }
};

// As many signed bytes as there are lanes, widened.
template <class T>
[[gnu::always_inline]] inline typename Lanes<T>::Codes widened_bytes(const std::uint8_t* at) {
    using Codes = typename Lanes<T>::Codes;
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4)
        return reinterpret_cast<Codes>(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
    else
        return reinterpret_cast<Codes>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4)
        return reinterpret_cast<Codes>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
    else
        return reinterpret_cast<Codes>(_mm_cvtepi8_epi32(_mm_loadu_si32(at)));
#else
    Codes v{};
    for (std::uint32_t i = 0; i < Lanes<T>::n; ++i) v[i] = static_cast<std::int8_t>(at[i]);
    return v;
#endif
}

// Interleaves the values at even and odd places of a line: n of each, rounded up to whole vectors.
template <class T>
void interleave(const T* even, const T* odd, std::uint32_t n, T* line) {
    using L = Lanes<T>;
    using Values = typename L::Values;
    for (std::uint32_t x = 0; x < n; x += L::n) {
        const auto a = L::template load<Values>(even + x), b = L::template load<Values>(odd + x);
        L::store(line + 2 * x, L::interleaved_low(a, b));
        L::store(line + 2 * x + L::n, L::interleaved_high(a, b));
    }
}

inline void interleave_marks(const std::uint8_t* even, const std::uint8_t* odd, std::uint32_t n, std::uint8_t* line) {
    for (std::uint32_t x = 0; x < n; x += lane_room) {
        const Marks a = load_marks(even + x), b = load_marks(odd + x);
        store_marks(line + 2 * x, shuffle<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(a, b));
        store_marks(line + 2 * x + lane_room,
                    shuffle<8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31>(a, b));
    }
}

} // namespace cusz::cpu::CUSZ_ISA
