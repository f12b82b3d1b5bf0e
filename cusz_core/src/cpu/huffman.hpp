// Encoding of deltas into substreams and back (paper, sections 3.2.4 and 3.3; docs/format.md, sections 6 and 8).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "../tiling.hpp"
#include "codebook.hpp"

namespace cusz::cpu {

inline constexpr std::uint32_t max_substreams = 32;

inline std::uint32_t substream_count(std::uint32_t n) { return std::min(max_substreams, (n + 63) / 64); }

// Bits of every substream, and how the payload stores them: less the shortest, `width` bits each.
struct SubstreamBits {
    std::uint32_t count = 0;
    std::array<std::uint32_t, max_substreams> bits{};

    std::uint32_t shortest() const;
    std::uint32_t width() const; // of longest - shortest
    std::uint32_t total() const;
};

// Encodes n deltas to whole words (the last filled with 0). Returns the substreams' lengths.
SubstreamBits encode(const std::int32_t* delta, std::uint32_t n, const EncodeBook& book, std::uint32_t* words);

// Words that decode() may read behind the last substream.
inline constexpr std::uint32_t decode_margin_words = max_tile_values / max_substreams * 2 + 4;

// Decodes n deltas. words: the substreams, readable for decode_margin_words more. Returns false if a substream does not
// end where its length says.
bool decode(const std::uint32_t* words, const SubstreamBits& lengths, std::uint32_t n, const DecodeBook& book,
            std::int32_t* delta, bool& has_holes);

// Packs `count` numbers of `width` bits (0 to 16) into whole words, and the inverse.
std::uint32_t packed_words(std::uint32_t count, std::uint32_t width);
void pack(const std::uint32_t* numbers, std::uint32_t count, std::uint32_t width, std::uint32_t* words);
void unpack(const std::uint32_t* words, std::uint32_t count, std::uint32_t width, std::uint32_t* numbers);

} // namespace cusz::cpu
