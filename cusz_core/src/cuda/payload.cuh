// A tile's payload, put together by a thread block (docs/format.md, section 8).
#pragma once

#include "../format/checksum.hpp"
#include "huffman.cuh"
#include "prepare.cuh"

namespace cusz::cuda {

template <class T>
struct PayloadMemory {
    // What is coded, in order, where values are masked; then the payload. One that does not fit is stored raw.
    Array<std::uint32_t, 1 + max_tile_values * words_of<T>> word;
    SmallCodes small_codes;
    Array<std::uint32_t, block_threads> partial;
};

__device__ inline std::uint32_t words_of_bits(std::uint32_t bits) { return (bits + 31) / 32; }

__device__ inline std::uint32_t outlier_words(std::uint32_t count, std::uint32_t words_a_value) {
    return (count + 1) / 2 + count * words_a_value;
}

// Writes outliers as the payload has them: positions as u16, then values. value_at: from a position to the value.
template <class Words, class ValueAt>
__device__ void write_outliers(Words& words, std::uint32_t begin, const RankedBitmap& outliers, std::uint32_t n,
                               const ValueAt& value_at) {
    using Value = decltype(value_at(0));
    constexpr std::uint32_t each = sizeof(Value) / 4;
    const std::uint32_t values = begin + (outliers.count + 1) / 2;
    for (std::uint32_t at = threadIdx.x; at < n; at += block_threads) {
        if (!outliers.test(at)) continue;
        const std::uint32_t rank = outliers.rank_of(at);
        atomicOr(&words[begin + rank / 2], at << rank % 2 * 16);
        const Value value = value_at(at);
        for (std::uint32_t i = 0; i < each; ++i)
            words[values + rank * each + i] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(value) >> 32 * i);
    }
}

// What has been written.
struct WrittenTile {
    std::uint32_t words;
    bool raw; // the payload is the tile's values, and not in memory
};

// The payload of a prepared tile, in memory.word, beginning with its length: `announce` is called with it, by all
// threads, as soon as it is known. Ends with a barrier.
template <class T, class Announce>
__device__ WrittenTile write_payload(const TileBatch& batch, const EncodeTables& tables, int r, const T* field,
                                     const PreparedTile& prepared, const TileMemory<T>& tile, PayloadMemory<T>& memory,
                                     const Announce& announce) {
    using Bits = typename Traits<T>::Bits;
    const std::uint32_t n = tile.box.values();
    if (prepared.all_special) {
        announce(1u);
        if (is_first_thread()) memory.word[0] = v1::tile_special;
        __syncthreads();
        return {1, false};
    }
    const LiveGroups& groups = prepared.groups;

    // The symbols of this thread.
    std::int32_t delta[values_of_thread];
    const Substreams streams(groups.n_coded);
    if (groups.masked) {
        std::uint32_t at = warp() * values_of_warp + lane();
        for (std::uint32_t k = 0; k < values_of_thread; ++k, at += warp_lanes)
            if (at < n && tile.coded.test(at))
                memory.word[tile.coded.rank_of(at)] =
                    static_cast<std::uint32_t>(symbol_delta(tile, prepared.has_holes, at));
        __syncthreads();
    }
    std::uint32_t bits = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < values_of_thread; ++k) {
        delta[k] = 0;
        if (!streams.has(k)) continue;
        const std::uint32_t j = streams.symbol(k);
        delta[k] =
            groups.masked ? static_cast<std::int32_t>(memory.word[j]) : symbol_delta(tile, prepared.has_holes, j);
        bits += code_of(memory.small_codes, tables, r, delta[k]).length;
    }
    const SubstreamPlaces places = place_substreams(streams, bits, memory.partial);

    // Where the parts lie.
    const std::uint32_t n_delta = tile.delta_outlier.count, n_value = tile.value_outlier.count;
    const bool outliers = n_delta + n_value > 0;
    const std::uint32_t n_groups = GroupGrid(tile.box.edge, batch.tiling.group()).total();
    const std::uint32_t anchor_at = 1, counts_at = anchor_at + words_of<T>, mask_at = counts_at + (outliers ? 1 : 0);
    const std::uint32_t fine_at = mask_at + (groups.masked ? words_of_bits(n_groups) : 0);
    const std::uint32_t lengths_at = fine_at + (groups.fine ? words_of_bits(tile.subgroup.count) : 0);
    const std::uint32_t codes_at = lengths_at + (groups.flat ? 0 : words_of_bits(streams.count * places.width));
    const std::uint32_t delta_at = codes_at + (groups.flat ? 0 : words_of_bits(places.total));
    const std::uint32_t value_at = delta_at + outlier_words(n_delta, words_of<T>);
    const std::uint32_t end = value_at + outlier_words(n_value, words_of<T>);
    const std::uint32_t raw_words = 1 + n * static_cast<std::uint32_t>(words_of<T>);
    if (end >= raw_words) {
        announce(raw_words);
        __syncthreads();
        return {raw_words, true};
    }
    announce(end);

    for (std::uint32_t i = threadIdx.x; i < end; i += block_threads) memory.word[i] = 0;
    __syncthreads();
    if (is_first_thread()) {
        memory.word[0] = v1::TileHeader{.predictor = prepared.predictor,
                                        .has_mask = groups.masked,
                                        .has_missing = prepared.has_holes,
                                        .has_outliers = outliers,
                                        .is_all_zero = groups.flat,
                                        .has_fine_mask = groups.fine,
                                        .width = groups.flat ? 0 : places.width,
                                        .base = groups.flat ? 0 : places.shortest}
                             .word();
        const auto anchor = static_cast<Bits>(tile.anchor);
        for (std::uint32_t i = 0; i < words_of<T>; ++i)
            memory.word[anchor_at + i] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(anchor) >> 32 * i);
        if (outliers) memory.word[counts_at] = n_delta | n_value << 16;
        if (groups.masked)
            for (std::uint32_t i = 0; i < words_of_bits(n_groups); ++i) memory.word[mask_at + i] = tile.group_mask[i];
    }
    if (groups.fine)
        for (std::uint32_t i = threadIdx.x; i < max_tile_values; i += block_threads)
            if (tile.subgroup.test(i) && tile.live_subgroup.test(i))
                put_bits(memory.word, fine_at, tile.subgroup.rank_of(i), {1, 1});
    if (!groups.flat) {
        if (threadIdx.x < streams.count)
            put_bits(memory.word, lengths_at, lane() * places.width, {places.length - places.shortest, places.width});
        BitWriter<decltype(memory.word)> writer(memory.word, codes_at, places.own_begin);
#pragma unroll
        for (std::uint32_t k = 0; k < values_of_thread; ++k)
            if (streams.has(k)) writer.append(code_of(memory.small_codes, tables, r, delta[k]));
        writer.finish();
    }
    if (n_delta > 0)
        write_outliers(memory.word, delta_at, tile.delta_outlier, n,
                       [&](std::uint32_t at) { return static_cast<Bits>(tile.value[at]); });
    if (n_value > 0)
        write_outliers(memory.word, value_at, tile.value_outlier, n,
                       [&](std::uint32_t at) { return bits_of(field[field_offset(tile.box, at)]); });
    __syncthreads();
    return {end, false};
}

// Word i of a raw tile's payload.
template <class T>
__device__ std::uint32_t raw_word(const T* field, const TileBox& box, std::uint32_t i) {
    if (i == 0) return v1::tile_raw;
    constexpr auto each = static_cast<std::uint32_t>(words_of<T>);
    const std::uint64_t bits = bits_of(field[field_offset(box, (i - 1) / each)]);
    return static_cast<std::uint32_t>(bits >> (i - 1) % each * 32);
}

// A payload from memory, or from the field, to where it belongs. target: null if it would not fit. Returns the
// checksum's part of it, to every thread.
template <class T>
__device__ std::uint64_t store_payload(const T* field, TileMemory<T>& tile, const PayloadMemory<T>& memory,
                                       const WrittenTile& written, std::uint64_t number, std::uint32_t* target) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = threadIdx.x; i < written.words; i += block_threads) {
        const std::uint32_t word = written.raw ? raw_word(field, tile.box, i) : memory.word[i];
        sum += std::uint64_t{word} * checksum_weight(i);
        if (target != nullptr) target[i] = word;
    }
    return part_of_sum(number, block_sum<block_warps>(sum, tile.wide_partial), written.words);
}

} // namespace cusz::cuda
