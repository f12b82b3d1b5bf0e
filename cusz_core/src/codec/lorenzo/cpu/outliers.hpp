// Outliers as stored in a payload: positions as u16 in ascending order, then values (format.md, section 8).
#pragma once

#include <cstring>

#include "simd/isa.hpp"
#include "tile.hpp"

namespace cusz::cpu::CUSZ_ISA {

inline std::uint32_t outlier_words(std::uint32_t count, std::uint32_t words_a_value) {
    return (count + 1) / 2 + count * words_a_value;
}

// Writes the outliers; returns their size in words.
template <class V>
std::uint32_t write_outliers(const Outliers<V>& outliers, std::uint32_t* words) {
    const std::uint32_t count = outliers.count, position_words = (count + 1) / 2;
    if (count % 2 != 0) words[position_words - 1] = 0;
    std::memcpy(words, outliers.position, count * sizeof(std::uint16_t));
    std::memcpy(words + position_words, outliers.value, count * sizeof(V));
    return outlier_words(count, sizeof(V) / 4);
}

// Reads `count` outliers of a tile of n values. Returns false if a position is out of order or beyond the tile.
template <class V>
bool read_outliers(const std::uint32_t* words, std::uint32_t count, std::uint32_t n, Outliers<V>& outliers) {
    outliers.count = count;
    std::memcpy(outliers.position, words, count * sizeof(std::uint16_t));
    std::memcpy(outliers.value, words + (count + 1) / 2, count * sizeof(V));
    for (std::uint32_t i = 0; i < count; ++i)
        if (outliers.position[i] >= n || (i > 0 && outliers.position[i] <= outliers.position[i - 1])) return false;
    return true;
}

} // namespace cusz::cpu::CUSZ_ISA
