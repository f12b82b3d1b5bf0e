// Takes a tile from its payload to the field (docs/reference/format.md, sections 6 and 8).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "codec/lorenzo/codebook.hpp"
#include "huffman.hpp"
#include "kernels.hpp"
#include "lorenzo.hpp"
#include "outliers.hpp"
#include "significance.hpp"

namespace cusz::cpu::CUSZ_ISA {

static_assert(payload_margin_words >= decode_margin_words);

template <class T>
void read_payload(const Tiling& tiling, const Quantiser<T>& quantiser, const DecodeBook& book, std::uint64_t number,
                  const std::uint32_t* words, std::uint32_t n_words, Tile<T>& tile, T* field) {
    const std::uint32_t n = tile.n_values();
    const v1::TileHeader header = v1::TileHeader::of(words[0]);
    if (header.kind == v1::tile_special || header.kind == v1::tile_raw) {
        const bool is_raw = header.kind == v1::tile_raw;
        const auto expected = is_raw ? 1 + n * static_cast<std::uint32_t>(words_of<T>) : 1;
        if (words[0] != header.kind || n_words != expected) corrupt_tile(number, "bad tile header or length");
        for_each_row(tile.box, [&](std::uint32_t position, std::uint64_t offset) {
            const std::uint32_t edge = tile.box.edge[0];
            if (is_raw)
                std::memcpy(field + offset, words + 1 + position * words_of<T>, edge * sizeof(T));
            else
                for (std::uint32_t x = 0; x < edge; ++x) std::memcpy(field + offset + x, &quantiser.special, sizeof(T));
        });
        return;
    }
    if (!v1::TileHeader::is_legal(words[0])) corrupt_tile(number, "bad tile header");

    std::uint32_t at = 1;
    const auto take = [&](std::uint32_t count) { // the next `count` words, which must exist
        const std::uint32_t from = at;
        if (count > n_words - at) corrupt_tile(number, "payload is too short");
        at += count;
        return words + from;
    };
    std::memcpy(&tile.anchor, take(words_of<T>), sizeof tile.anchor);
    std::uint32_t n_out_of_range = 0, n_unpredictable = 0;
    if (header.has_outliers) {
        const std::uint32_t both = *take(1);
        n_out_of_range = both & 0xFFFF;
        n_unpredictable = both >> 16;
        if (n_out_of_range > n || n_unpredictable > n) corrupt_tile(number, "more outliers than values");
    }
    Significance significance;
    std::uint32_t n_coded = header.is_all_zero ? 0 : n;
    if (header.has_mask) {
        significance.total = Groups(tile.box.edge, tiling.group()).total;
        std::memcpy(&significance.mask, take(significance.words()), significance.words() * 4);
        if (significance.mask == 0 || (significance.total < 64 && significance.mask >> significance.total != 0))
            corrupt_tile(number, "bad mask");
        significance.fine = header.has_fine_mask;
        if (significance.fine)
            read_fine_mask(take(fine_mask_words(significance.mask, tile.box, tiling)), tile.box, tiling, significance);
        else
            significance.spread_mask();
        n_coded = count_significant(significance, tile.box, tiling);
        if (n_coded == 0) corrupt_tile(number, "bad mask");
    }
    tile.has_missing = header.has_missing;
    if (header.is_all_zero) {
        std::fill_n(tile.code, n, 0);
    } else {
        std::int32_t* target = header.has_mask ? tile.significant : tile.code;
        if (!decode_substreams(take, header, n_coded, book, target))
            corrupt_tile(
                number,
                "a substream does not end where its length says, or missing values do not match the tile header");
        if (header.has_mask) scatter_significant(tile.significant, significance, tile.box, tiling, tile.code);
    }
    if (!read_outliers(take(outlier_words(n_out_of_range, words_of<T>)), n_out_of_range, n, tile.out_of_range) ||
        !read_outliers(take(outlier_words(n_unpredictable, words_of<T>)), n_unpredictable, n, tile.unpredictable))
        corrupt_tile(number, "bad outlier position");
    if (at != n_words) corrupt_tile(number, "payload is too long");

    reverse(tile, header.predictor, quantiser, field);
    for (std::uint32_t i = 0; i < n_unpredictable; ++i)
        std::memcpy(field + tile.field_offset(tile.unpredictable.position[i]), &tile.unpredictable.value[i], sizeof(T));
}

} // namespace cusz::cpu::CUSZ_ISA
