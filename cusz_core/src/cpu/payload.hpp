// One tile's way to its payload and back: the stages in order (docs/format.md, sections 6 and 8).
#pragma once

#include <cstdint>

#include "codebook.hpp"
#include "histogram.hpp"
#include "huffman.hpp"
#include "tile.hpp"
#include "zero_groups.hpp"

namespace cusz::cpu {

// What holds for every tile of a field.
template <class T>
struct TileCoder {
    const Tiling& tiling;
    Quantiser<T> quantiser; // when decoding only step and special are used
    Alphabet alphabet;
};

struct Counts {
    std::uint64_t special = 0, delta_outliers = 0, value_outliers = 0;
    Counts& operator+=(const Counts& other) {
        special += other.special;
        delta_outliers += other.delta_outliers;
        value_outliers += other.value_outliers;
        return *this;
    }
};

// The longest payload that write_payload() builds before it may fall back to a raw tile, in words: head, anchor, counts,
// mask, lengths, codes of 32 bits, and every value both kinds of outlier.
template <class T>
inline constexpr std::size_t longest_payload = 32 + max_tile_values + 2 * (max_tile_values / 2 + max_tile_values * words_of<T>);

// Words that read_payload() may read behind a payload.
inline constexpr std::size_t payload_margin_words = decode_margin_words;

// Adds the symbols that the tile's payload would hold.
template <class T>
void count_symbols(const TileCoder<T>& coder, std::uint64_t number, const T* field, Tile<T>& tile, Histogram& histogram);

// Codes a tile. Returns the payload's words.
template <class T>
std::uint32_t write_payload(const TileCoder<T>& coder, const EncodeBook& book, std::uint64_t number, const T* field,
                            Tile<T>& tile, std::uint32_t* words, Counts& counts);

// Decodes a tile from exactly n_words words. Throws CORRUPT, having written nothing outside the tile.
template <class T>
void read_payload(const TileCoder<T>& coder, const DecodeBook& book, std::uint64_t number, const std::uint32_t* words,
                  std::uint32_t n_words, Tile<T>& tile, T* field);

} // namespace cusz::cpu
