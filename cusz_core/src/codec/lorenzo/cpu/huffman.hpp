// Encodes codes into substreams and decodes them (paper, sections 3.2.4 and 3.3; format.md, sections 6 and 8).
// There are two implementations with identical bits: one value at a time, or one substream per lane where vectors look
// up tables fast.
#pragma once

#include <cstdint>
#include <cstring>

#include "archive/v1.hpp"
#include "codec/lorenzo/codebook.hpp"
#include "huffman_model.hpp"
#include "simd/isa.hpp"
#include "substreams.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Encodes n codes, writing at most 8 bytes past the last whole word, and returns the substreams' lengths. has_missing:
// whether any of them is missing_code.
SubstreamBits encode(const std::int32_t* code, std::uint32_t n, bool has_missing, const EncodeBook& book,
                     std::uint32_t* words);

// Words that decode() may read past the last substream.
inline constexpr std::uint32_t decode_margin_words = max_tile_values / max_substreams * 2 + 4;

// Decodes n codes; missing_code for missing values. words: the substreams, readable for decode_margin_words more.
// Returns false if a substream does not end where its length says, or if `has_missing` is not true exactly when the
// symbols include a missing value.
template <bool has_missing>
bool decode(const std::uint32_t* words, const SubstreamBits& lengths, std::uint32_t n, const DecodeBook& book,
            std::int32_t* code);

} // namespace cusz::cpu::CUSZ_ISA

#ifdef __AVX512F__
#include "huffman_lanes.hpp"
#else
#include "huffman_plain.hpp"
#endif

namespace cusz::cpu::CUSZ_ISA {

// Writes the lengths of the substreams and then the substreams, and records in the tile header how the lengths are
// stored. Returns the number of words.
inline std::uint32_t encode_substreams(const std::int32_t* codes, std::uint32_t n, const EncodeBook& book,
                                       v1::TileHeader& header, std::uint32_t* words) {
    // The lengths precede the codewords but are known only after them: leave room for the widest lengths (13 bits
    // each), encode after it, then close the gap.
    std::uint32_t* codewords = words + packed_words(max_substreams, v1::widest_length);
    SubstreamBits lengths = encode(codes, n, header.has_missing, book, codewords);
    const std::uint32_t codeword_words = (lengths.total() + 31) / 32;
    header.base = lengths.shortest();
    header.width = lengths.width();
    for (std::uint32_t s = 0; s < lengths.count; ++s) lengths.bits[s] -= header.base;
    pack(lengths.bits.data(), lengths.count, header.width, words);
    const std::uint32_t length_words = packed_words(lengths.count, header.width);
    std::memmove(words + length_words, codewords, codeword_words * 4);
    return length_words + codeword_words;
}

// Decodes n codes. `take(count)` yields the next `count` words of the payload. Returns false as decode() above
// does.
template <class Take>
bool decode_substreams(const Take& take, const v1::TileHeader& header, std::uint32_t n, const DecodeBook& book,
                       std::int32_t* codes) {
    SubstreamBits lengths;
    lengths.count = substream_count(n);
    unpack(take(packed_words(lengths.count, header.width)), lengths.count, header.width, lengths.bits.data());
    for (std::uint32_t s = 0; s < lengths.count; ++s) lengths.bits[s] += header.base;
    const std::uint32_t* codewords = take((lengths.total() + 31) / 32);
    return header.has_missing ? decode<true>(codewords, lengths, n, book, codes)
                              : decode<false>(codewords, lengths, n, book, codes);
}

} // namespace cusz::cpu::CUSZ_ISA
