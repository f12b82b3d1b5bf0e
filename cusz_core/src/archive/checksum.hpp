// Checksums (format.md, section 9): they are sums, so parts can finish in any order and lanes can share a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cusz {

inline constexpr std::size_t piece_words = 4096; // for raw and losslessly compressed bytes

constexpr std::uint64_t mix(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    x ^= x >> 31;
    return x;
}

// The weight of word `position` of a part. It is odd, so a change of one word always changes the sum.
inline constexpr std::uint32_t weight_step = 0x9E3779B1u;
constexpr std::uint32_t checksum_weight(std::uint32_t position) { return weight_step * (2 * position + 1); }

// Position-weighted sum of `words` little-endian words at `data` (any alignment); the first has position `first`.
// (Inlined, so that every instruction set of cpu/ gets its own version.)
[[gnu::always_inline]] inline std::uint64_t weigh(const void* data, std::size_t words, std::size_t first = 0) {
    const char* bytes = static_cast<const char*>(data);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < words; ++i) {
        std::uint32_t word;
        std::memcpy(&word, bytes + 4 * i, 4);
        sum += std::uint64_t{word} * checksum_weight(static_cast<std::uint32_t>(first + i));
    }
    return sum;
}

constexpr std::uint64_t part_of_sum(std::uint64_t number, std::uint64_t sum, std::size_t words) {
    return mix(sum ^ mix(number * 0x9E3779B97F4A7C15u + words));
}

inline std::uint64_t part(std::uint64_t number, const void* data, std::size_t words) {
    return part_of_sum(number, weigh(data, words), words);
}

constexpr std::uint32_t fold(std::uint64_t x) { return static_cast<std::uint32_t>(x ^ (x >> 32)); }

// Part `number` of a run of bytes cut into pieces of piece_words; the last one is padded with zeros to a whole word.
inline std::uint64_t piece(std::uint64_t number, const void* data, std::uint64_t total_bytes) {
    const std::uint64_t begin = number * piece_words * 4;
    const char* bytes = static_cast<const char*>(data) + begin;
    const std::uint64_t left = total_bytes - begin;
    if (left >= piece_words * 4) return part(number, bytes, piece_words);
    const std::size_t whole = static_cast<std::size_t>(left / 4), rest = static_cast<std::size_t>(left % 4);
    if (rest == 0) return part(number, bytes, whole);
    std::uint32_t last[piece_words] = {};
    std::memcpy(last, bytes, static_cast<std::size_t>(left));
    return part(number, last, whole + 1);
}

inline std::uint64_t piece_count(std::uint64_t total_bytes) {
    return (total_bytes + piece_words * 4 - 1) / (piece_words * 4);
}

} // namespace cusz
