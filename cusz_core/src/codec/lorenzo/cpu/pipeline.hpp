// Takes one tile to its payload and back: the stages in order (docs/reference/format.md, sections 6 and 8).
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

template <class Use>
void for_each_row(const TileBox& box, const Use& use) {
    for (RowWalk at(box); at.inside(); at.next()) use(at.row * box.edge[0], at.offset);
}

template <class T>
std::uint64_t count_special(const Tile<T>& tile) {
    std::uint64_t special = 0;
    for (std::uint32_t i = 0; i < tile.n_values(); ++i) special += tile.missing[i];
    for (std::uint32_t i = 0; i < tile.unpredictable.count; ++i)
        special -= tile.missing[tile.unpredictable.position[i]];
    return special;
}

static_assert(payload_margin_words >= decode_margin_words);

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
    take(0);
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
