// One tile's way to its payload and back, by a decomposition (lorenzo.hpp) and a coder (huffman.hpp): the stages in
// order (docs/format.md, sections 6 and 8).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "../codebook.hpp"
#include "huffman.hpp"
#include "kernels.hpp"
#include "lorenzo.hpp"
#include "outliers.hpp"
#include "zero_groups.hpp"

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
    for (std::uint32_t i = 0; i < tile.n_values(); ++i) special += tile.hole[i];
    for (std::uint32_t i = 0; i < tile.value_outliers.count; ++i) special -= tile.hole[tile.value_outliers.position[i]];
    return special;
}

template <class Decomposition, class Coder>
struct Pipeline {
    using Model = typename Coder::Model;
    static_assert(payload_margin_words >= Coder::margin_words);

    template <class T>
    static PreparedTile prepare(const TileCoder<T>& coder, std::uint32_t reach, std::uint64_t number, const T* field,
                                Tile<T>& tile) {
        PreparedTile prepared;
        prepared.front = tile.front;
        prepared.delta = tile.delta;
        prepared.back = tile.back;
        tile.begin(coder.tiling.box(number),
                   coder.tiling.box(std::min(number + tiles_ahead, coder.tiling.n_tiles() - 1)));
        const std::uint32_t n = tile.n_values();
        if (!Decomposition::decompose(coder, reach, field, tile, prepared.header)) {
            prepared.header.kind = v1::tile_special;
            prepared.counts.special = n;
            return prepared;
        }

        LiveGroups groups;
        find_live_groups(tile.delta, tile.box, coder.tiling, groups);
        const bool masked = groups.fine || (groups.dead() >= 2 && groups.mask != 0), flat = groups.mask == 0;
        for (std::uint32_t i = 0; i < tile.delta_outliers.count; ++i) tile.delta[tile.delta_outliers.position[i]] = 0;
        if (masked) {
            prepared.n = gather_live(tile.delta, groups, tile.box, coder.tiling, tile.live);
            prepared.delta = tile.live;
        } else if (!flat) {
            prepared.n = n;
        }

        const std::uint32_t n_delta = tile.delta_outliers.count, n_value = tile.value_outliers.count;
        prepared.header.has_mask = masked;
        prepared.header.has_missing = tile.has_holes;
        prepared.header.has_outliers = n_delta + n_value > 0;
        prepared.header.is_all_zero = flat;
        prepared.header.has_fine_mask = groups.fine;
        prepared.front_words = put_words(tile.front, tile.anchor);
        if (n_delta + n_value > 0) {
            tile.front[prepared.front_words++] = n_delta | n_value << 16;
            prepared.back_words = write_outliers(tile.delta_outliers, tile.back);
            prepared.back_words += write_outliers(tile.value_outliers, tile.back + prepared.back_words);
        }
        if (masked) {
            prepared.front_words += groups.words() == 2 ? put_words(tile.front + prepared.front_words, groups.mask)
                                                        : put_words(tile.front + prepared.front_words,
                                                                    static_cast<std::uint32_t>(groups.mask));
            if (groups.fine)
                prepared.front_words +=
                    write_fine_mask(groups, tile.box, coder.tiling, tile.front + prepared.front_words);
        }
        prepared.counts = {tile.has_holes ? count_special(tile) : 0, n_delta, n_value};
        return prepared;
    }

    template <class T>
    static std::uint32_t write_payload(const TileCoder<T>& coder, const typename Model::Writing& model,
                                       std::uint64_t number, const T* field, const PreparedTile& prepared,
                                       std::uint32_t* words, Counts& counts) {
        v1::TileHeader header = prepared.header;
        std::uint32_t at = 1;
        const auto append = [&](const std::uint32_t* from, std::uint32_t n) {
            std::memcpy(words + at, from, n * 4);
            at += n;
        };
        append(prepared.front, prepared.front_words);
        if (prepared.n > 0) {
            // The lengths lie in front of the codes but are known only after them: encode behind the widest lengths
            // (13 bits each), then close the gap.
            std::uint32_t* codes = words + at + packed_words(max_substreams, v1::widest_length);
            SubstreamBits lengths = Coder::encode(prepared.delta, prepared.n, header.has_missing, model, codes);
            const std::uint32_t total = lengths.total();
            header.base = lengths.shortest();
            header.width = lengths.width();
            for (std::uint32_t s = 0; s < lengths.count; ++s) lengths.bits[s] -= header.base;
            pack(lengths.bits.data(), lengths.count, header.width, words + at);
            at += packed_words(lengths.count, header.width);
            std::memmove(words + at, codes, (total + 31) / 32 * 4);
            at += (total + 31) / 32;
        }
        words[0] = header.word();
        append(prepared.back, prepared.back_words);

        const TileBox box = coder.tiling.box(number);
        const auto raw_words = 1 + box.values() * static_cast<std::uint32_t>(words_of<T>);
        if (at < raw_words) {
            counts += prepared.counts;
            return at;
        }
        words[0] = v1::tile_raw;
        for_each_row(box, [&](std::uint32_t position, std::uint64_t offset) {
            std::memcpy(words + 1 + position * words_of<T>, field + offset, box.edge[0] * sizeof(T));
        });
        counts.value_outliers += box.values();
        return raw_words;
    }

    template <class T>
    static void read_payload(const TileCoder<T>& coder, const typename Model::Reading& model, std::uint64_t number,
                             const std::uint32_t* words, std::uint32_t n_words, Tile<T>& tile, T* field) {
        const std::uint32_t n = tile.n_values();
        const v1::TileHeader header = v1::TileHeader::of(words[0]);
        if (header.kind == v1::tile_special || header.kind == v1::tile_raw) {
            const bool is_raw = header.kind == v1::tile_raw;
            const auto expected = is_raw ? 1 + n * static_cast<std::uint32_t>(words_of<T>) : 1;
            if (words[0] != header.kind || n_words != expected) corrupt_tile(number, "bad head or length");
            for_each_row(tile.box, [&](std::uint32_t position, std::uint64_t offset) {
                const std::uint32_t edge = tile.box.edge[0];
                if (is_raw)
                    std::memcpy(field + offset, words + 1 + position * words_of<T>, edge * sizeof(T));
                else
                    for (std::uint32_t x = 0; x < edge; ++x)
                        std::memcpy(field + offset + x, &coder.quantiser.special, sizeof(T));
            });
            return;
        }
        if (!v1::TileHeader::is_legal(words[0])) corrupt_tile(number, "bad head");

        std::uint32_t at = 1;
        const auto take = [&](std::uint32_t count) { // of words, which have to be there
            const std::uint32_t from = at;
            if (count > n_words - at) corrupt_tile(number, "payload is too short");
            at += count;
            return words + from;
        };
        take(0);
        std::memcpy(&tile.anchor, take(words_of<T>), sizeof tile.anchor);
        std::uint32_t n_delta = 0, n_value = 0;
        if (header.has_outliers) {
            const std::uint32_t both = *take(1);
            n_delta = both & 0xFFFF;
            n_value = both >> 16;
            if (n_delta > n || n_value > n) corrupt_tile(number, "more outliers than values");
        }
        LiveGroups live;
        std::uint32_t n_coded = header.is_all_zero ? 0 : n;
        if (header.has_mask) {
            live.total = Groups(tile.box.edge, coder.tiling.group()).total;
            std::memcpy(&live.mask, take(live.words()), live.words() * 4);
            if (live.mask == 0 || (live.total < 64 && live.mask >> live.total != 0)) corrupt_tile(number, "bad mask");
            live.fine = header.has_fine_mask;
            if (live.fine)
                read_fine_mask(take(fine_mask_words(live.mask, tile.box, coder.tiling)), tile.box, coder.tiling, live);
            else
                live.spread_mask();
            n_coded = count_live(live, tile.box, coder.tiling);
            if (n_coded == 0) corrupt_tile(number, "bad mask");
        }
        tile.has_holes = header.has_missing;
        if (header.is_all_zero) {
            std::fill_n(tile.delta, n, 0);
        } else {
            SubstreamBits lengths;
            lengths.count = substream_count(n_coded);
            unpack(take(packed_words(lengths.count, header.width)), lengths.count, header.width, lengths.bits.data());
            for (std::uint32_t s = 0; s < lengths.count; ++s) lengths.bits[s] += header.base;
            const std::uint32_t* codes = take((lengths.total() + 31) / 32);
            std::int32_t* target = header.has_mask ? tile.live : tile.delta;
            if (!Coder::decode(codes, lengths, n_coded, tile.has_holes, model, target))
                corrupt_tile(number, "a substream does not end where its length says, or holes do not match the head");
            if (header.has_mask) scatter_live(tile.live, live, tile.box, coder.tiling, tile.delta);
        }
        if (!read_outliers(take(outlier_words(n_delta, words_of<T>)), n_delta, n, tile.delta_outliers) ||
            !read_outliers(take(outlier_words(n_value, words_of<T>)), n_value, n, tile.value_outliers))
            corrupt_tile(number, "bad outlier position");
        if (at != n_words) corrupt_tile(number, "payload is too long");

        Decomposition::reconstruct(coder, header, tile, field);
        for (std::uint32_t i = 0; i < n_value; ++i)
            std::memcpy(field + tile.field_offset(tile.value_outliers.position[i]), &tile.value_outliers.value[i],
                        sizeof(T));
    }
};

} // namespace cusz::cpu::CUSZ_ISA
