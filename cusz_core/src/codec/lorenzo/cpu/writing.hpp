// Takes a tile from the field to its payload (docs/reference/format.md, sections 6 and 8).
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

template <class T>
std::uint32_t put_words(std::uint32_t* words, T value) {
    std::memcpy(words, &value, sizeof value);
    return sizeof value / 4;
}

template <class T>
std::uint64_t count_special(const Tile<T>& tile) {
    std::uint64_t special = 0;
    for (std::uint32_t i = 0; i < tile.n_values(); ++i) special += tile.missing[i];
    for (std::uint32_t i = 0; i < tile.unpredictable.count; ++i)
        special -= tile.missing[tile.unpredictable.position[i]];
    return special;
}

template <class T>
PreparedTile prepare(const Tiling& tiling, const Quantiser<T>& quantiser, std::uint32_t reach, const T* field,
                     Tile<T>& tile) {
    PreparedTile prepared;
    prepared.front = tile.front;
    prepared.code = tile.code;
    prepared.back = tile.back;
    const std::uint32_t n = tile.n_values();
    if (!prequant(field, quantiser, tile)) {
        prepared.header.kind = v1::tile_special;
        prepared.counts.special = n;
        return prepared;
    }
    prepared.header.predictor = postquant(tile, static_cast<std::uint32_t>(std::min(tiling.dimensions(), 3)), reach);

    Significance significance;
    find_significance(tile.code, tile.box, tiling, significance);
    const bool masked = significance.fine || (significance.zero() >= 2 && significance.mask != 0),
               all_zero = significance.mask == 0;
    for (std::uint32_t i = 0; i < tile.out_of_range.count; ++i) tile.code[tile.out_of_range.position[i]] = 0;
    if (masked) {
        prepared.n = gather_significant(tile.code, significance, tile.box, tiling, tile.significant);
        prepared.code = tile.significant;
    } else if (!all_zero) {
        prepared.n = n;
    }

    const std::uint32_t n_out_of_range = tile.out_of_range.count, n_unpredictable = tile.unpredictable.count;
    prepared.header.has_mask = masked;
    prepared.header.has_missing = tile.has_missing;
    prepared.header.has_outliers = n_out_of_range + n_unpredictable > 0;
    prepared.header.is_all_zero = all_zero;
    prepared.header.has_fine_mask = significance.fine;
    prepared.front_words = put_words(tile.front, tile.anchor);
    if (n_out_of_range + n_unpredictable > 0) {
        tile.front[prepared.front_words++] = n_out_of_range | n_unpredictable << 16;
        prepared.back_words = write_outliers(tile.out_of_range, tile.back);
        prepared.back_words += write_outliers(tile.unpredictable, tile.back + prepared.back_words);
    }
    if (masked) {
        prepared.front_words +=
            significance.words() == 2
                ? put_words(tile.front + prepared.front_words, significance.mask)
                : put_words(tile.front + prepared.front_words, static_cast<std::uint32_t>(significance.mask));
        if (significance.fine)
            prepared.front_words += write_fine_mask(significance, tile.box, tiling, tile.front + prepared.front_words);
    }
    prepared.counts = {tile.has_missing ? count_special(tile) : 0, n_out_of_range, n_unpredictable};
    return prepared;
}

template <class T>
std::uint32_t write_payload(const Tiling& tiling, const EncodeBook& book, std::uint64_t number, const T* field,
                            const PreparedTile& prepared, std::uint32_t* words, Counts& counts) {
    v1::TileHeader header = prepared.header;
    std::uint32_t at = 1;
    const auto append = [&](const std::uint32_t* from, std::uint32_t n) {
        std::memcpy(words + at, from, n * 4);
        at += n;
    };
    append(prepared.front, prepared.front_words);
    if (prepared.n > 0) at += encode_substreams(prepared.code, prepared.n, book, header, words + at);
    words[0] = header.word();
    append(prepared.back, prepared.back_words);

    const TileBox box = tiling.box(number);
    const auto raw_words = 1 + box.values() * static_cast<std::uint32_t>(words_of<T>);
    if (at < raw_words) {
        counts += prepared.counts;
        return at;
    }
    words[0] = v1::tile_raw;
    for_each_row(box, [&](std::uint32_t position, std::uint64_t offset) {
        std::memcpy(words + 1 + position * words_of<T>, field + offset, box.edge[0] * sizeof(T));
    });
    counts.unpredictable += box.values();
    return raw_words;
}

} // namespace cusz::cpu::CUSZ_ISA
