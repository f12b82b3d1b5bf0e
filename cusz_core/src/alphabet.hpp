// The symbols of the entropy coder (docs/format.md, section 6): deltas of small magnitude one by one, larger ones by
// four buckets an octave with raw bits behind the code, and one symbol for holes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace cusz {

inline constexpr int default_r = 5; // bins = 2^(r + 1)
inline constexpr int max_r = 12;

// A hole among the deltas of a tile. Every delta inside the alphabet is nearer to 0.
inline constexpr std::int32_t hole_delta = -(1 << 22);

struct Alphabet {
    explicit constexpr Alphabet(int log2_direct) : r(log2_direct) {}

    int r;
    constexpr int limit() const { return r == default_r ? 12 : 15; }     // bits of the longest code
    constexpr int top_octave() const { return limit() == 12 ? 21 : 19; } // so code + raw bits <= 32
    constexpr std::uint32_t direct() const { return 1u << r; }           // |delta| below it has a symbol of its own
    constexpr std::uint32_t reach() const { return 2u << top_octave(); } // |delta| from it on is an outlier
    constexpr std::uint32_t size() const { return 2 * direct() + 8 * static_cast<std::uint32_t>(top_octave() - r + 1); }
    constexpr std::uint32_t hole() const { return size() - 1; }
    constexpr std::uint32_t zero() const { return direct() - 1; }

    // delta = base + raw, 0 <= raw < 2^raw_bits
    struct Meaning {
        std::int32_t base;
        std::uint32_t raw_bits;
    };
    constexpr Meaning meaning(std::uint32_t symbol) const {
        if (symbol == hole()) return {hole_delta, 0};
        if (symbol < 2 * direct() - 1) return {static_cast<std::int32_t>(symbol - zero()), 0};
        const std::uint32_t bucket = symbol - (2 * direct() - 1), quarter = (bucket >> 1) % 4;
        const std::uint32_t raw_bits = (bucket >> 3) + static_cast<std::uint32_t>(r) - 2;
        const auto below = static_cast<std::int32_t>((4 + quarter) << raw_bits);
        const auto above = static_cast<std::int32_t>((5 + quarter) << raw_bits);
        return {(bucket & 1) != 0 ? 1 - above : below, raw_bits};
    }

    // The symbol of a delta with |delta| < reach(), or of hole_delta.
    constexpr std::uint32_t symbol(std::int32_t delta) const {
        if (delta == hole_delta) return hole();
        const auto magnitude = static_cast<std::uint32_t>(delta < 0 ? -delta : delta);
        if (magnitude < direct()) return static_cast<std::uint32_t>(delta + static_cast<std::int32_t>(zero()));
        const auto octave = static_cast<std::uint32_t>(std::bit_width(magnitude) - 1);
        const std::uint32_t bucket = 4 * (octave - static_cast<std::uint32_t>(r)) + (magnitude >> (octave - 2)) - 4;
        return 2 * direct() - 1 + 2 * bucket + (delta < 0 ? 1 : 0);
    }
};

// The codebook section: four bits a symbol, whole words.
inline std::size_t codebook_bytes(int r) { return (Alphabet(r).size() + 7) / 8 * 4; }

} // namespace cusz
