// Vectors of integers where the compiler would not find them by itself: sums along a row.
#pragma once

#include <cstdint>
#include <cstring>

#include "../params.hpp"
#include "isa.hpp"

namespace cusz::cpu::CUSZ_ISA {

// A vector of quantised values, of the width that the instruction set has.
template <class T>
struct Vector {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
#ifdef __AVX2__
    static constexpr std::uint32_t bytes = 32;
#else
    static constexpr std::uint32_t bytes = 16;
#endif
    static constexpr std::uint32_t lanes = bytes / sizeof(T);
    typedef U Lanes __attribute__((vector_size(bytes)));

    template <class Source> // Int, or the narrower integers of tile.delta
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
    static Lanes all_ones_unless(const std::uint8_t* marked) { // of 0 and 1
        typedef std::uint8_t Bytes __attribute__((vector_size(lanes)));
        Bytes v;
        std::memcpy(&v, marked, sizeof v);
        return __builtin_convertvector(v, Lanes) - U{1};
    }
    static Lanes dequantised(Lanes q, T step) { // the bits of dequantise(), lane by lane
        typedef T Values __attribute__((vector_size(bytes)));
        Values v;
        if constexpr (sizeof(T) == 4) {
            typedef Int Signed __attribute__((vector_size(bytes)));
            v = __builtin_convertvector(reinterpret_cast<Signed>(q), Values) * step;
        } else {
            v = (reinterpret_cast<Values>(q + bits_of(Traits<T>::rounder)) - Traits<T>::rounder) * step;
        }
        return reinterpret_cast<Lanes>(v);
    }

    // Every lane becomes the sum of those up to it; `last` gets the last one in every lane. The steps stay inside of 16
    // bytes where they can: crossing them is slow.
    static Lanes partial_sums(Lanes v, Lanes& last) {
        const Lanes zero{};
        if constexpr (lanes == 8) {
            v += __builtin_shufflevector(zero, v, 0, 8, 9, 10, 4, 12, 13, 14);
            v += __builtin_shufflevector(zero, v, 0, 1, 8, 9, 4, 5, 12, 13);
            const Lanes halves = __builtin_shufflevector(v, v, 3, 3, 3, 3, 7, 7, 7, 7);
            const Lanes low = __builtin_shufflevector(halves, halves, 0, 1, 2, 3, 0, 1, 2, 3);
            v += __builtin_shufflevector(zero, halves, 0, 1, 2, 3, 8, 9, 10, 11);
            last = low + __builtin_shufflevector(halves, halves, 4, 5, 6, 7, 4, 5, 6, 7);
        } else if constexpr (bytes == 32) {
            v += __builtin_shufflevector(zero, v, 0, 4, 2, 6);
            v += __builtin_shufflevector(zero, v, 0, 1, 5, 5);
            last = __builtin_shufflevector(v, v, 3, 3, 3, 3);
        } else if constexpr (lanes == 4) {
            v += __builtin_shufflevector(zero, v, 0, 4, 5, 6);
            v += __builtin_shufflevector(zero, v, 0, 1, 4, 5);
            last = __builtin_shufflevector(v, v, 3, 3, 3, 3);
        } else {
            v += __builtin_shufflevector(zero, v, 0, 2);
            last = __builtin_shufflevector(v, v, 1, 1);
        }
        return v;
    }
};

} // namespace cusz::cpu::CUSZ_ISA
