// The symbols of the entropy coder (format.md, section 6): one for each code of small magnitude; four buckets per
// octave for larger ones, with extra bits after the codeword; escapes for codes whose symbol has no codeword; one for
// missing values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace cusz {

inline constexpr int default_r = 5; // bins = 2^(r + 1)
inline constexpr int max_r = 12;

// Marks a missing value among the codes of a tile. Every code in the alphabet is closer to 0.
inline constexpr std::int32_t missing_code = -(1 << 21);

struct Alphabet {
    explicit constexpr Alphabet(int log2_direct) : r(log2_direct) {}

    int r;
    constexpr int limit() const { return r == default_r ? 12 : 15; }     // bits of the longest codeword
    constexpr int top_octave() const { return limit() == 12 ? 20 : 19; } // so codeword + extra bits <= 32
    constexpr std::uint32_t direct() const { return 1u << r; } // codes from -direct to direct - 1 have a symbol each
    constexpr std::uint32_t reach() const { return 2u << top_octave(); } // a |code| of at least this is out of range
    constexpr std::uint32_t size() const {
        return 2 * direct() + 8 * static_cast<std::uint32_t>(top_octave() - r + 1) + 3;
    }
    constexpr std::uint32_t missing() const { return size() - 1; }
    // For codes whose own symbol has no codeword: one for codes >= 0, one for codes < 0.
    constexpr std::uint32_t escape(std::int32_t code) const { return size() - (code < 0 ? 2 : 3); }
    constexpr std::uint32_t escape_bits() const { return static_cast<std::uint32_t>(32 - limit()); } // extra
    constexpr std::uint32_t escape_reach() const { return 1u << escape_bits(); } // it codes |code| below this
    constexpr std::uint32_t zero() const { return direct(); }

    // code if code >= 0, else its bitwise complement: octave o holds the codes with magnitudes 2^o to 2^(o+1) - 1.
    static constexpr std::uint32_t magnitude(std::int32_t code) {
        return static_cast<std::uint32_t>(code ^ (code >> 31));
    }

    // code = leading * 2^extra_bits + extra, 0 <= extra < 2^extra_bits; extra is the low bits of code in two's
    // complement. The leading number of a missing value is unique to it.
    static constexpr std::int32_t missing_leading = -(1 << 19);
    struct Meaning {
        std::int32_t leading;
        std::uint32_t extra_bits;
    };
    constexpr Meaning meaning(std::uint32_t symbol) const {
        if (symbol == missing()) return {missing_leading, 0};
        if (symbol >= escape(0)) return {symbol == escape(0) ? 0 : -1, escape_bits()};
        if (symbol < 2 * direct()) return {static_cast<std::int32_t>(symbol - zero()), 0};
        const std::uint32_t bucket = symbol - 2 * direct();
        const auto quarter = static_cast<std::int32_t>((bucket >> 1) % 4);
        return {(bucket & 1) != 0 ? -5 - quarter : 4 + quarter, (bucket >> 3) + static_cast<std::uint32_t>(r) - 2};
    }

    // The symbol of a code with |code| < reach(), or of missing_code.
    constexpr std::uint32_t symbol(std::int32_t code) const {
        if (code == missing_code) return missing();
        const std::uint32_t m = magnitude(code);
        if (m < direct()) return static_cast<std::uint32_t>(code) + zero();
        const auto octave = static_cast<std::uint32_t>(std::bit_width(m) - 1);
        const std::uint32_t bucket = 4 * (octave - static_cast<std::uint32_t>(r)) + (m >> (octave - 2)) - 4;
        return 2 * direct() + 2 * bucket + (code < 0 ? 1 : 0);
    }
};

// The codebook section: four bits per symbol, in whole words.
constexpr std::size_t codebook_bytes(int r) { return (Alphabet(r).size() + 7) / 8 * 4; }

} // namespace cusz
