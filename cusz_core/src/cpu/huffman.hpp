// Encoding of codes into substreams and back (paper, sections 3.2.4 and 3.3; docs/format.md, sections 6 and 8), in two
// ways with the same bits: value by value, or with a substream a lane where tables are read fast by vectors.
#pragma once

#include <cstdint>
#include <cstring>

#include "../codebook.hpp"
#include "../format/v1.hpp"
#include "huffman_model.hpp"
#include "isa.hpp"
#include "substreams.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Encodes n codes to at most 8 bytes beyond whole words, and returns the substreams' lengths. has_missing: whether some
// are missing_code.
SubstreamBits encode(const std::int32_t* code, std::uint32_t n, bool has_missing, const EncodeBook& book,
                     std::uint32_t* words);

// Words that decode() may read behind the last substream.
inline constexpr std::uint32_t decode_margin_words = max_tile_values / max_substreams * 2 + 4;

// Decodes n codes; missing_code for missing values. words: the substreams, readable for decode_margin_words more.
// Returns false if a substream does not end where its length says, or if there no missing value among the symbols
// although `has_missing` says so, or one although not.
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

// What a pipeline asks of a coder (pipeline.hpp).
struct HuffmanCoder {
    using Model = Huffman;
    static constexpr std::uint32_t margin_words = decode_margin_words;

    // Writes the coder's part of a payload, lengths of the substreams and the substreams, and to the tile header how
    // the lengths are stored. Returns its words.
    static std::uint32_t encode(const std::int32_t* codes, std::uint32_t n, const EncodeBook& book,
                                v1::TileHeader& header, std::uint32_t* words) {
        // The lengths lie in front of the codewords but are known only after them: encode behind the widest lengths
        // (13 bits each), then close the gap.
        std::uint32_t* codewords = words + packed_words(max_substreams, v1::widest_length);
        SubstreamBits lengths = CUSZ_ISA::encode(codes, n, header.has_missing, book, codewords);
        const std::uint32_t codeword_words = (lengths.total() + 31) / 32;
        header.base = lengths.shortest();
        header.width = lengths.width();
        for (std::uint32_t s = 0; s < lengths.count; ++s) lengths.bits[s] -= header.base;
        pack(lengths.bits.data(), lengths.count, header.width, words);
        const std::uint32_t length_words = packed_words(lengths.count, header.width);
        std::memmove(words + length_words, codewords, codeword_words * 4);
        return length_words + codeword_words;
    }

    // Decodes n codes from what `take` gives: the payload's next words, of which it is told how many. Returns false as
    // decode() above does.
    template <class Take>
    static bool decode(const Take& take, const v1::TileHeader& header, std::uint32_t n, const DecodeBook& book,
                       std::int32_t* codes) {
        SubstreamBits lengths;
        lengths.count = substream_count(n);
        unpack(take(packed_words(lengths.count, header.width)), lengths.count, header.width, lengths.bits.data());
        for (std::uint32_t s = 0; s < lengths.count; ++s) lengths.bits[s] += header.base;
        const std::uint32_t* codewords = take((lengths.total() + 31) / 32);
        return header.has_missing ? CUSZ_ISA::decode<true>(codewords, lengths, n, book, codes)
                                  : CUSZ_ISA::decode<false>(codewords, lengths, n, book, codes);
    }
};

} // namespace cusz::cpu::CUSZ_ISA
