// The symbols of the entropy coder (docs/format.md, section 6): deltas of small magnitude one by one, larger ones by
// four buckets an octave with raw bits behind the code, and one symbol for holes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace cusz {

inline constexpr int default_r = 5; // bins = 2^(r + 1)
inline constexpr int max_r = 12;

// A hole among the deltas of a tile. No delta inside the alphabet has this value.
inline constexpr std::int32_t hole_delta = INT32_MIN;

struct Alphabet {
    explicit constexpr Alphabet(int log2_direct) : r(log2_direct) {}

    int r;
    constexpr int limit() const { return r == default_r ? 12 : 15; }       // bits of the longest code
    constexpr int top_octave() const { return limit() == 12 ? 21 : 19; }   // so code + raw bits <= 32
    constexpr std::uint32_t direct() const { return 1u << r; }             // |delta| below it has a symbol of its own
    constexpr std::uint32_t reach() const { return 2u << top_octave(); }   // |delta| from it on is an outlier
    constexpr std::uint32_t size() const {
        return 2 * direct() + 8 * static_cast<std::uint32_t>(top_octave() - r + 1);
    }
    constexpr std::uint32_t hole() const { return size() - 1; }
    constexpr std::uint32_t zero() const { return direct() - 1; }

    struct Coded {
        std::uint32_t symbol, raw, raw_bits;
    };
    // The symbol and raw bits of a delta with |delta| < reach(), or of hole_delta.
    constexpr Coded code(std::int32_t delta) const {
        if (delta == hole_delta) return {hole(), 0, 0};
        const bool negative = delta < 0;
        const std::uint32_t magnitude = negative ? 0u - static_cast<std::uint32_t>(delta)
                                                 : static_cast<std::uint32_t>(delta);
        if (magnitude < direct()) return {static_cast<std::uint32_t>(delta + static_cast<std::int32_t>(zero())), 0, 0};
        const auto octave = static_cast<std::uint32_t>(std::bit_width(magnitude) - 1);
        const std::uint32_t raw_bits = octave - 2, quarter = (magnitude >> raw_bits) - 4;
        const std::uint32_t bucket = 4 * (octave - static_cast<std::uint32_t>(r)) + quarter;
        return {2 * direct() - 1 + 2 * bucket + (negative ? 1 : 0), magnitude & ((1u << raw_bits) - 1), raw_bits};
    }

    // The inverse: |delta| = (mantissa << raw_bits) + raw.
    struct Meaning {
        std::uint32_t mantissa, raw_bits;
        bool negative, hole;
    };
    constexpr Meaning meaning(std::uint32_t symbol) const {
        if (symbol == hole()) return {0, 0, false, true};
        if (symbol < 2 * direct() - 1)
            return symbol < zero() ? Meaning{zero() - symbol, 0, true, false} : Meaning{symbol - zero(), 0, false, false};
        const std::uint32_t bucket = symbol - (2 * direct() - 1);
        return {4 + (bucket >> 1) % 4, (bucket >> 3) + static_cast<std::uint32_t>(r) - 2, (bucket & 1) != 0, false};
    }
};

// The codebook section: four bits a symbol, whole words.
inline std::size_t codebook_bytes(int r) { return (Alphabet(r).size() + 7) / 8 * 4; }

} // namespace cusz
