// Takes a tile from the field to its payload, by a thread block. docs/reference/format.md, section 8.
#pragma once

#include <algorithm>

#include "archive/checksum.hpp"
#include "huffman_encoder.cuh"
#include "prediction.cuh"
#include "significance.cuh"

namespace cusz::cuda {

// ---- From the field to codes

// A tile ready to be coded, the same for every thread.
struct PreparedTile {
    bool all_special, has_missing, has_out_of_range, has_unpredictable; // the last two: whether the bitmaps are set
    std::uint32_t predictor;
    Significance significance;
};

// What is coded at a position: a code in the alphabet, 0 for an out-of-range code, or missing_code.
template <class T>
__device__ std::int32_t code_to_encode(const TileMemory<T>& tile, bool has_missing, std::uint32_t position) {
    if (has_missing && tile.missing.test(position)) return missing_code;
    return tile.out_of_range.test(position) ? 0 : static_cast<std::int32_t>(tile.value[position]);
}

// Predicts tile `number` of the batch. Codes of magnitude `reach` or more are outliers. If values are masked out,
// tile.coded has the ranks of the others. Ends with a barrier.
template <class T>
__device__ PreparedTile prepare(const TileBatch& batch, const FieldState<T>& state, std::uint32_t reach,
                                std::uint64_t number, const T* field, TileMemory<T>& tile) {
    using U = typename Traits<T>::Bits;
    __syncthreads(); // all reads of the previous tile are done
    if (is_first_thread()) {
        tile.box = batch.tiling.box(batch.first_tile + number);
        tile.box.offset -= batch.first_value;
    }
    __syncthreads();
    const Predicted predicted =
        predict(state.quantiser, static_cast<std::uint32_t>(std::min(batch.tiling.dimensions(), 3)), field, tile);
    if (predicted.all_special) return {true, true, false, false, 0, {true, false, false, 0}};
    const bool has_missing = predicted.has_missing;

    const std::uint32_t n = tile.box.values();
    std::uint32_t at = warp() * values_of_warp + lane();
    for (std::uint32_t k = 0; k < values_of_thread; ++k, at += warp_lanes) {
        const bool missing = at < n && has_missing && tile.missing.test(at);
        const U code = at < n ? static_cast<U>(tile.value[at]) : 0;
        const std::uint32_t beyond = __ballot_sync(whole_warp, !missing && code + (reach - 1) > 2 * U{reach} - 2);
        const std::uint32_t significant = __ballot_sync(whole_warp, missing || code != 0);
        if (lane() == 0) {
            tile.out_of_range.word[at / 32] = beyond;
            tile.coded.word[at / 32] = significant;
        }
    }
    __syncthreads();
    const Significance significance = find_significance(tile, batch.tiling);
    if (significance.masked) {
        for (std::uint32_t i = threadIdx.x; i < bitmap_words; i += block_threads) tile.coded.word[i] = 0;
        __syncthreads();
        if (significance.fine)
            mark_coded(tile.coded, GroupGrid(tile.box.edge, batch.tiling.subgroup()), threadIdx.x, block_threads,
                       [&](std::uint32_t s) { return tile.significant_subgroup.test(s); });
        else
            mark_coded(tile.coded, GroupGrid(tile.box.edge, batch.tiling.group()), threadIdx.x, block_threads,
                       [&](std::uint32_t g) { return (tile.group_mask[g / 32] >> g % 32 & 1) != 0; });
        __syncthreads();
        if (warp() == 0) tile.coded.rank();
        if (warp() == 1 && significance.fine) tile.subgroup.rank();
    }
    if (warp() == 2) tile.unpredictable.rank();
    if (warp() == 3) tile.out_of_range.rank();
    if (warp() == 4 && has_missing) {
        std::uint32_t special = 0;
        for (std::uint32_t i = lane(); i < bitmap_words; i += warp_lanes)
            special += static_cast<std::uint32_t>(__popc(tile.missing.word[i] & ~tile.unpredictable.word[i]));
        special = warp_sum(special);
        if (lane() == 0) tile.n_special = special;
    }
    __syncthreads();
    return {false, has_missing, true, true, predicted.predictor, significance};
}

// For a tile of a known shape: marks nonzero codes in tile.coded. Returns whether any code is out of range; if so, it
// marks those in tile.out_of_range. There is a barrier between the two, and none after the second.
template <TileShape shape, class T>
__device__ bool find_nonzero(ColumnMemory<T>& tile, std::uint32_t reach,
                             const typename Traits<T>::Bits (&code)[values_of_thread]) {
    using C = Column<shape>;
    using U = typename Traits<T>::Bits;
    const auto is_beyond = [&](std::uint32_t k) { return code[k] + (reach - 1) > 2 * U{reach} - 2; };
    bool any_beyond = false;
    std::uint32_t chunk = 0; // of the warp's chunks, the one that this lane stores
    for_column([&](std::uint32_t k) {
        any_beyond = any_beyond || is_beyond(k);
        const std::uint32_t bits = __ballot_sync(whole_warp, code[k] != 0);
        if (lane() == k) chunk = bits;
    });
    if (lane() < values_of_thread) tile.coded.word[C::chunk(lane())] = chunk;
    if (__syncthreads_or(any_beyond) == 0) return false;
    for_column([&](std::uint32_t k) {
        const std::uint32_t bits = __ballot_sync(whole_warp, is_beyond(k));
        if (lane() == 0) tile.out_of_range.word[C::chunk(k)] = bits;
    });
    return true;
}

// As prepare() above, for a tile of a known shape; puts its codes into `code`.
template <TileShape shape, class T>
__device__ PreparedTile prepare(const TileBatch& batch, const FieldState<T>& state, std::uint32_t reach,
                                std::uint64_t number, const T* field, ColumnMemory<T>& tile,
                                Array<typename Traits<T>::Bits, max_tile_values>& exchange,
                                typename Traits<T>::Bits (&code)[values_of_thread], Bits16& missing) {
    __syncthreads(); // all reads of the previous tile are done
    if (is_first_thread()) {
        tile.box = batch.tiling.box(batch.first_tile + number);
        tile.box.offset -= batch.first_value;
    }
    __syncthreads();
    const Predicted predicted = predict<shape>(state.quantiser, field, tile, exchange, code, missing);
    if (predicted.all_special) return {true, true, false, false, 0, {true, false, false, 0}};
    const bool has_missing = predicted.has_missing;

    if (!predicted.plain) { // a missing value is significant and within reach, whatever its code
        const Bits16 has_code = Column<shape>::inside(tile.box.edge).without(missing);
        for_column([&](std::uint32_t k) {
            if (!has_code[k]) code[k] = missing[k] ? 1 : 0;
        });
    }
    const bool has_out_of_range = find_nonzero<shape>(tile, reach, code);
    if (warp() == 0) find_significance<shape>(tile);
    __syncthreads();
    if (has_out_of_range || predicted.has_unpredictable) {
        if (warp() == 2 && has_out_of_range) tile.out_of_range.rank();
        if (warp() == 3 && predicted.has_unpredictable) tile.unpredictable.rank();
        __syncthreads();
    }
    return {false, has_missing, has_out_of_range, predicted.has_unpredictable, predicted.predictor, tile.significance};
}

// ---- From codes to the payload

template <class T>
struct PayloadMemory {
    // First the coded values, in order, if some are masked out; then the payload. One that does not fit is stored raw.
    alignas(8) Array<std::uint32_t, 1 + max_tile_values * words_of<T>> word;
    EncoderMemory encoder;

    // Before that, the memory through which warps exchange values (lorenzo_columns.cuh).
    using Bits = typename Traits<T>::Bits;
    __device__ Array<Bits, max_tile_values>& exchange() {
        return *reinterpret_cast<Array<Bits, max_tile_values>*>(word.item);
    }
};

// Writes one outlier to a payload: its position, and its value, which comes after all positions.
template <class Words, class Value>
__device__ void write_outlier(Words& words, std::uint32_t begin, std::uint32_t count, std::uint32_t rank,
                              std::uint32_t position, Value value) {
    constexpr std::uint32_t each = sizeof(Value) / 4;
    atomicOr(&words[begin + rank / 2], position << rank % 2 * 16);
    for (std::uint32_t i = 0; i < each; ++i)
        words[begin + (count + 1) / 2 + rank * each + i] =
            static_cast<std::uint32_t>(static_cast<std::uint64_t>(value) >> 32 * i);
}

// What write_payload takes from a tile of any shape.
template <class T>
struct CodesInMemory {
    using Bits = typename Traits<T>::Bits;

    const Tiling& tiling;
    const T* field;
    const PreparedTile& prepared;
    const TileMemory<T>& tile;

    __device__ std::uint32_t groups() const { return GroupGrid(tile.box.edge, tiling.group()).total(); }
    __device__ std::uint32_t fine_bits() const { return tile.subgroup.count; }

    // The codes of this thread's symbols. words: scratch memory for the coded values, in order.
    template <class Symbols, class Words>
    __device__ void take_codes(const Symbols& symbols, Words& words, std::uint32_t (&code)[values_of_thread]) const {
        const bool masked = prepared.significance.masked;
        if (masked) {
            for (std::uint32_t at = threadIdx.x; at < tile.box.values(); at += block_threads)
                if (tile.coded.test(at)) words[tile.coded.rank_of(at)] = code_at(at);
            __syncthreads();
        }
#pragma unroll
        for (std::uint32_t k = 0; k < values_of_thread; ++k)
            code[k] = !symbols.has(k) ? 0 : masked ? words[symbols.symbol(k)] : code_at(symbols.symbol(k));
    }
    template <class Words>
    __device__ void write_fine_mask(Words& words, std::uint32_t at) const {
        for (std::uint32_t i = threadIdx.x; i < max_tile_values; i += block_threads)
            if (tile.significant_subgroup.test(i)) put_bits(words, at, tile.subgroup.rank_of(i), {1, 1});
    }
    template <class Words>
    __device__ void write_out_of_range(Words& words, std::uint32_t begin) const {
        write_those(tile.out_of_range, words, begin,
                    [&](std::uint32_t at) { return static_cast<Bits>(tile.value[at]); });
    }
    template <class Words>
    __device__ void write_unpredictable(Words& words, std::uint32_t begin) const {
        write_those(tile.unpredictable, words, begin,
                    [&](std::uint32_t at) { return bits_of(field[field_offset(tile.box, at)]); });
    }

private:
    __device__ std::uint32_t code_at(std::uint32_t at) const {
        return static_cast<std::uint32_t>(code_to_encode(tile, prepared.has_missing, at));
    }
    template <class Words, class ValueAt>
    __device__ void write_those(const RankedBitmap& those, Words& words, std::uint32_t begin,
                                const ValueAt& value_at) const {
        for (std::uint32_t at = threadIdx.x; at < tile.box.values(); at += block_threads)
            if (those.test(at)) write_outlier(words, begin, those.count, those.rank_of(at), at, value_at(at));
    }
};

// The same for a tile of a known shape, with its codes in registers.
template <TileShape shape, class T>
struct CodesInColumns {
    using C = Column<shape>;
    using Bits = typename Traits<T>::Bits;

    const T* field;
    const PreparedTile& prepared;
    const ColumnMemory<T>& tile;
    const Bits (&column)[values_of_thread];
    const Bits16& missing;

    __device__ std::uint32_t groups() const { return CodedRuns<shape>(tile.box.edge).groups(); }
    __device__ std::uint32_t fine_bits() const { return tile.n_candidates; }

    template <class Symbols, class Words>
    __device__ void take_codes(const Symbols& symbols, Words& words, std::uint32_t (&code)[values_of_thread]) const {
        for_column([&](std::uint32_t k) { code[k] = static_cast<std::uint32_t>(column[k]); });
        if (prepared.has_out_of_range || prepared.has_missing)
            for_column([&](std::uint32_t k) {
                if (prepared.has_out_of_range && tile.out_of_range.test(C::chunk(k), lane())) code[k] = 0;
                if (prepared.has_missing && missing[k]) code[k] = static_cast<std::uint32_t>(missing_code);
            });
        const Significance& significance = prepared.significance;
        if (significance.all_zero || significance.n_coded == max_tile_values) return; // symbols are a thread's values
        for_column([&](std::uint32_t k) {
            if (tile.coded.test(C::chunk(k), lane())) words[tile.coded.rank_of(C::chunk(k), lane())] = code[k];
        });
        __syncthreads();
        for_column([&](std::uint32_t k) { code[k] = symbols.has(k) ? words[symbols.symbol(k)] : 0; });
    }
    template <class Words>
    __device__ void write_fine_mask(Words& words, std::uint32_t at) const {
        if (warp() != 0) return;
        CodedRuns<shape> candidates(tile.box.edge);
        candidates.only(tile.candidates[lane()]);
        const auto n = static_cast<std::uint32_t>(__popc(candidates.bits()));
        put_bits(words, at, warp_inclusive_sum(n) - n, {candidates.packed(tile.significant[lane()]), n});
    }
    template <class Words>
    __device__ void write_out_of_range(Words& words, std::uint32_t begin) const {
        write_those(tile.out_of_range, words, begin, [&](std::uint32_t k) { return column[k]; });
    }
    template <class Words>
    __device__ void write_unpredictable(Words& words, std::uint32_t begin) const {
        write_those(tile.unpredictable, words, begin,
                    [&](std::uint32_t k) { return bits_of(field[C::offset(tile.box, k)]); });
    }

private:
    template <class Words, class ValueOf>
    __device__ void write_those(const RankedBitmap& those, Words& words, std::uint32_t begin,
                                const ValueOf& value_of) const {
        for_column([&](std::uint32_t k) {
            if (those.test(C::chunk(k), lane()))
                write_outlier(words, begin, those.count, those.rank_of(C::chunk(k), lane()),
                              C::position(tile.box.edge, k), value_of(k));
        });
    }
};

// The result of write_payload.
struct WrittenTile {
    std::uint32_t words;
    bool raw; // the payload is the tile's values, and not in PayloadMemory
};

// Builds the payload of a prepared tile in memory.word. codes: CodesInMemory or CodesInColumns. All threads call
// `announce` with the payload's length as soon as it is known. Ends with a barrier.
template <class T, class Codes, class Announce>
__device__ WrittenTile write_payload(const EncodeTables& tables, const PreparedTile& prepared, const TileState<T>& tile,
                                     const Codes& codes, PayloadMemory<T>& memory, const Announce& announce) {
    using Bits = typename Traits<T>::Bits;
    const std::uint32_t n = tile.box.values();
    if (prepared.all_special) {
        announce(1u);
        if (is_first_thread()) memory.word[0] = v1::tile_special;
        __syncthreads();
        return {1, false};
    }
    const Significance& significance = prepared.significance;
    const Substreams symbols(significance.n_coded);
    std::uint32_t code[values_of_thread];
    codes.take_codes(symbols, memory.word, code);
    const SubstreamEncoder encoder(tables, symbols, memory.encoder, code);

    // Where the parts begin.
    const std::uint32_t n_out_of_range = prepared.has_out_of_range ? tile.out_of_range.count : 0;
    const std::uint32_t n_unpredictable = prepared.has_unpredictable ? tile.unpredictable.count : 0;
    const bool outliers = n_out_of_range + n_unpredictable > 0;
    const std::uint32_t mask_words = significance.masked ? words_of_bits(codes.groups()) : 0;
    const std::uint32_t anchor_at = 1, counts_at = anchor_at + words_of<T>, mask_at = counts_at + (outliers ? 1 : 0);
    const std::uint32_t fine_at = mask_at + mask_words;
    const std::uint32_t codes_at = fine_at + (significance.fine ? words_of_bits(codes.fine_bits()) : 0);
    const std::uint32_t out_of_range_at = codes_at + (significance.all_zero ? 0 : encoder.words());
    const std::uint32_t unpredictable_at = out_of_range_at + outlier_words(n_out_of_range, words_of<T>);
    const std::uint32_t end = unpredictable_at + outlier_words(n_unpredictable, words_of<T>);
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
        v1::TileHeader header{.predictor = prepared.predictor,
                              .has_mask = significance.masked,
                              .has_missing = prepared.has_missing,
                              .has_outliers = outliers,
                              .is_all_zero = significance.all_zero,
                              .has_fine_mask = significance.fine};
        if (!significance.all_zero) encoder.describe(header);
        memory.word[0] = header.word();
        const auto anchor = static_cast<Bits>(tile.anchor);
        for (std::uint32_t i = 0; i < words_of<T>; ++i)
            memory.word[anchor_at + i] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(anchor) >> 32 * i);
        if (outliers) memory.word[counts_at] = n_out_of_range | n_unpredictable << 16;
        for (std::uint32_t i = 0; i < mask_words; ++i) memory.word[mask_at + i] = tile.group_mask[i];
    }
    if (significance.fine) codes.write_fine_mask(memory.word, fine_at);
    if (n_out_of_range > 0) codes.write_out_of_range(memory.word, out_of_range_at);
    if (n_unpredictable > 0) codes.write_unpredictable(memory.word, unpredictable_at);
    if (!significance.all_zero) encoder.write(tables, memory.word, codes_at);
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

// Copies a payload from memory, or from the field, to its place. target: null if it would not fit. Returns its checksum
// part, to every thread.
template <class T>
__device__ std::uint64_t store_payload(const T* field, TileState<T>& tile, const PayloadMemory<T>& memory,
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
