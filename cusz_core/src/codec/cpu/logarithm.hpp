// Fields to logarithms and back (archive/logarithm.hpp), in runs that vectorise.
#pragma once

#include <algorithm>
#include <cstdint>

#include "archive/logarithm.hpp"
#include "kernels.hpp"
#include "simd/isa.hpp"

namespace cusz::cpu::CUSZ_ISA {

template <class T>
ExponentRange exponent_range(const T* field, std::uint64_t n, typename Traits<T>::Bits special) {
    using D = Digits<T>;
    typename D::Bits least = D::infinity, most = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
        const typename D::Bits bits = bits_of(field[i]), magnitude = bits & ~D::sign;
        const bool counts = magnitude >= D::min_normal && magnitude < D::infinity && bits != special;
        least = std::min(least, counts ? magnitude : D::infinity);
        most = std::max(most, counts ? magnitude : 0);
    }
    return {static_cast<int>(least >> D::mantissa) - D::bias, static_cast<int>(most >> D::mantissa) - D::bias};
}

template <class T, class V>
void to_logs_as(const T* field, std::uint64_t n, const LogScale& scale, typename Traits<T>::Bits special, V* logs) {
    const LogScale own = scale;
    for (std::uint64_t i = 0; i < n; ++i) logs[i] = log_of_value<T, V>(field[i], own, special);
}

template <class T>
void to_logs(const T* field, std::uint64_t n, const LogScale& scale, typename Traits<T>::Bits special, void* logs,
             std::uint64_t* signs) {
    if (scale.wide)
        to_logs_as<T, double>(field, n, scale, special, static_cast<double*>(logs));
    else
        to_logs_as<T, T>(field, n, scale, special, static_cast<T*>(logs));
    for (std::uint64_t word = 0; word * 64 < n; ++word) {
        const std::uint64_t begin = word * 64, end = std::min(n, begin + 64);
        std::uint64_t bits = 0;
        for (std::uint64_t i = begin; i < end; ++i)
            bits |= static_cast<std::uint64_t>(has_sign(field[i], special)) << (i - begin);
        signs[word] = bits;
    }
}

template <class T, class V>
void from_logs_as(const V* logs, std::uint64_t n, const LogScale& scale, typename Traits<T>::Bits special, T* field) {
    const LogScale own = scale;
    for (std::uint64_t i = 0; i < n; ++i) field[i] = value_of_log<T, V>(logs[i], own, special);
}

template <class T>
void from_logs(const void* logs, std::uint64_t n, const LogScale& scale, typename Traits<T>::Bits special,
               const std::uint64_t* signs, std::uint64_t first, T* field) {
    using D = Digits<T>;
    if (scale.wide)
        from_logs_as<T, double>(static_cast<const double*>(logs), n, scale, special, field);
    else
        from_logs_as<T, T>(static_cast<const T*>(logs), n, scale, special, field);
    if (signs == nullptr) return;
    for (std::uint64_t i = 0; i < n; ++i) {
        const std::uint64_t at = first + i;
        const auto bit = static_cast<typename D::Bits>(signs[at / 64] >> at % 64 & 1);
        field[i] = std::bit_cast<T>(static_cast<typename D::Bits>(bits_of(field[i]) | bit * D::sign));
    }
}

} // namespace cusz::cpu::CUSZ_ISA
