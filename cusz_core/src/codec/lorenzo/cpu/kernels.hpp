// The stages of one tile of the Lorenzo codec, compiled once per instruction set (writing.hpp, reading.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/data.hpp"
#include "huffman_model.hpp"
#include "tile.hpp"

namespace cusz::cpu {

// The longest payload, in words, that write_payload may build before falling back to a raw tile: tile header, part
// before the codes, lengths, codes of 32 bits, outliers.
template <class T>
inline constexpr std::size_t longest_payload = 1 + longest_front + 32 + max_tile_values + sizeof(Tile<T>::back) / 4;

// Words that read_payload may read past the end of a payload.
inline constexpr std::size_t payload_margin_words = 512;

template <class T>
struct LorenzoKernels {
    // Predicts the tile that Tile::begin was called for, and decides what to code. Codes of magnitude `reach` or more
    // are outliers. The result points into `tile`.
    PreparedTile (*prepare)(const Tiling& tiling, const Quantiser<T>& quantiser, std::uint32_t reach, const T* field,
                            Tile<T>& tile);

    // Codes a tile. Returns the payload's length in words.
    std::uint32_t (*write_payload)(const Tiling& tiling, const EncodeBook& book, std::uint64_t number, const T* field,
                                   const PreparedTile& prepared, std::uint32_t* words, Counts& counts);

    // Decodes the tile that Tile::begin was called for, from exactly n_words words, to field + its box's offset. May
    // throw CORRUPT, but never writes outside the tile. quantiser: only step and special are used.
    void (*read_payload)(const Tiling& tiling, const Quantiser<T>& quantiser, const DecodeBook& book,
                         std::uint64_t number, const std::uint32_t* words, std::uint32_t n_words, Tile<T>& tile,
                         T* field);

    // Range of the tile's values that are finite and not the special pattern.
    ValueRange (*value_range)(const T* field, const TileBox& box, typename Traits<T>::Bits special);
};

// Throws CORRUPT. Not inline, so that no shared code is compiled for one instruction set.
[[noreturn]] void corrupt_tile(std::uint64_t number, const char* what);

} // namespace cusz::cpu
