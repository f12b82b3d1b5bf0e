// Encoding of codes into substreams and back (paper, sections 3.2.4 and 3.3; docs/format.md, sections 6 and 8), in two
// ways with the same bits: value by value, or with a substream a lane where tables are read fast by vectors.
#pragma once

#include <cstdint>

#include "../codebook.hpp"
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

    static SubstreamBits encode(const std::int32_t* codes, std::uint32_t n, bool has_missing, const EncodeBook& book,
                                std::uint32_t* words) {
        return CUSZ_ISA::encode(codes, n, has_missing, book, words);
    }
    static bool decode(const std::uint32_t* words, const SubstreamBits& lengths, std::uint32_t n, bool has_missing,
                       const DecodeBook& book, std::int32_t* codes) {
        return has_missing ? CUSZ_ISA::decode<true>(words, lengths, n, book, codes)
                           : CUSZ_ISA::decode<false>(words, lengths, n, book, codes);
    }
};

} // namespace cusz::cpu::CUSZ_ISA
