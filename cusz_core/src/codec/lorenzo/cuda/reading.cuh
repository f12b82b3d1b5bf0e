// Takes a tile from its payload to the field, by a warp. Whatever the payload contains, nothing outside it is read and
// nothing outside the tile is written. docs/reference/format.md, section 8.
#pragma once

#include <bit>

#include "huffman_decoder.cuh"
#include "lorenzo_rows.cuh"
#include "reconstruction.cuh"
#include "significance.cuh"

namespace cusz::cuda {

template <class T>
__device__ void store_whole(const PayloadReader& words, bool raw, const TileBox& box, const Quantiser<T>& quantiser,
                            T* field) {
    for (Positions at(box, lane()); at.inside(); at.next())
        field[at.offset(box)] = std::bit_cast<T>(
            raw ? read_value<T>(words, 1 + at.at * static_cast<std::uint32_t>(words_of<T>)) : quantiser.special);
}

// What precedes the masks and codes in the payload of a coded tile.
template <class T>
struct PayloadHead {
    v1::TileHeader header;
    typename Traits<T>::Bits anchor;
    std::uint32_t n_out_of_range = 0, n_unpredictable = 0;
};

// Reads the head, or stores the tile's values if it is not coded. `coded` says which.
template <class T>
__device__ TileError read_head(PayloadReader& words, const TileBox& box, const Quantiser<T>& quantiser, T* field,
                               PayloadHead<T>& head, bool& coded) {
    constexpr auto each = static_cast<std::uint32_t>(words_of<T>);
    const std::uint32_t n = box.values(), word = words[words.take(1)];
    head.header = v1::TileHeader::of(word);
    const bool is_raw = head.header.kind == v1::tile_raw;
    coded = !is_raw && head.header.kind != v1::tile_special;
    if (!coded) {
        if (word != head.header.kind || words.size() != (is_raw ? 1 + n * each : 1)) return TileError::head_or_length;
        store_whole(words, is_raw, box, quantiser, field);
        return TileError::none;
    }
    if (!v1::TileHeader::is_legal(word)) return TileError::head;
    head.anchor = read_value<T>(words, words.take(each));
    if (head.header.has_outliers) {
        const std::uint32_t both = words[words.take(1)];
        head.n_out_of_range = both & 0xFFFF;
        head.n_unpredictable = both >> 16;
        if (head.n_out_of_range > n || head.n_unpredictable > n) return TileError::too_many_outliers;
    }
    return words.failed() ? TileError::too_short : TileError::none;
}

// The significance mask of a tile with `total` groups; 0 if it is bad.
__device__ inline std::uint64_t read_mask(PayloadReader& words, std::uint32_t total) {
    const std::uint32_t mask_words = words_of_bits(total), at = words.take(mask_words);
    if (words.failed()) return 0;
    std::uint64_t mask = words[at];
    if (mask_words == 2) mask |= std::uint64_t{words[at + 1]} << 32;
    return total < 64 && mask >> total != 0 ? 0 : mask;
}

// Takes the outliers, which end the payload, and checks their positions.
template <class T>
struct OutlierParts {
    std::uint32_t out_of_range_at, unpredictable_at;

    __device__ TileError open(PayloadReader& words, const PayloadHead<T>& head, std::uint32_t n) {
        constexpr auto each = static_cast<std::uint32_t>(words_of<T>);
        out_of_range_at = words.take(outlier_words(head.n_out_of_range, each));
        unpredictable_at = words.take(outlier_words(head.n_unpredictable, each));
        if (words.failed()) return TileError::too_short;
        if (!words.at_end()) return TileError::too_long;
        return are_positions(words, out_of_range_at, head.n_out_of_range, n) &&
                       are_positions(words, unpredictable_at, head.n_unpredictable, n)
                   ? TileError::none
                   : TileError::outlier_position;
    }
};

// Stores the values that no code stands for, once the others are stored.
template <class T>
__device__ void store_unpredictable(const PayloadReader& words, std::uint32_t at, std::uint32_t count,
                                    const TileBox& box, T* field) {
    constexpr auto each = static_cast<std::uint32_t>(words_of<T>);
    __syncwarp();
    for (std::uint32_t i = lane(); i < count; i += warp_lanes)
        field[field_offset(box, words.bits(at, 16 * i, 16))] =
            std::bit_cast<T>(read_value<T>(words, at + (count + 1) / 2 + i * each));
}

// Decodes the tile at memory.box, which has this shape, from exactly n_words words. field: the batch's memory.
template <TileShape shape, class T>
__device__ TileError read_payload(const Quantiser<T>& quantiser, const DecodeTable& table, const std::uint32_t* payload,
                                  std::uint32_t n_words, RowMemory<T, shape>& memory, T* field) {
    const TileBox& box = memory.box;
    PayloadReader words(payload, n_words);
    PayloadHead<T> head;
    bool has_codes;
    TileError error = read_head(words, box, quantiser, field, head, has_codes);
    if (error != TileError::none || !has_codes) return error;
    const v1::TileHeader& header = head.header;

    CodedRuns<shape> coded(box.edge);
    if (header.is_all_zero) coded.none();
    if (header.has_mask) {
        const std::uint64_t mask = read_mask(words, coded.groups());
        if (mask == 0) return TileError::mask;
        const std::uint32_t subgroups = coded.take(mask);
        if (header.has_fine_mask) {
            const std::uint32_t end = warp_inclusive_sum(subgroups);
            const std::uint32_t all = __shfl_sync(whole_warp, end, static_cast<int>(warp_lanes - 1));
            const std::uint32_t fine_at = words.take(words_of_bits(all));
            if (words.failed()) return TileError::too_short;
            coded.keep(words.bits(fine_at, end - subgroups, 16));
        }
    }
    const std::uint32_t n_coded = coded.values();
    if (header.has_mask && n_coded == 0) return TileError::mask;
    SubstreamDecoder decoder;
    if (!header.is_all_zero) error = decoder.open(words, header, n_coded, table);
    OutlierParts<T> outliers;
    if (error == TileError::none) error = outliers.open(words, head, box.values());
    if (error != TileError::none) return error;

    if (lane() == 0) { // so that they take no registers until they are needed
        memory.unpredictable_at = outliers.unpredictable_at;
        memory.n_unpredictable = head.n_unpredictable;
        memory.has_codes = !header.is_all_zero;
        memory.has_missing = header.has_missing;
    }
    __syncwarp();

    const bool whole = box.values() == max_tile_values && head.n_out_of_range == 0;
    const auto reconstruct = [&](auto codes) {
        return reconstruct_whole<shape>(header.predictor,
                                        WholeTile<decltype(codes), T>{codes, box, head.anchor, quantiser.step,
                                                                      std::bit_cast<T>(quantiser.special), field},
                                        memory);
    };
    bool done = false;
    if (whole && n_coded == max_tile_values) {
        done = header.has_missing ? reconstruct(AllCodes<T, true>{decoder, table})
                                  : reconstruct(AllCodes<T, false>{decoder, table});
    } else if (whole && !header.has_missing) {
        done = reconstruct(SomeCodes<shape, T>(decoder, table, coded, n_coded, memory));
    }
    if (!done) {
        AnyCodes<shape, T> codes(decoder, table, coded, n_coded,
                                 Outliers<T>(words, outliers.out_of_range_at, head.n_out_of_range), memory);
        reconstruct_any<shape>(header, head.anchor, quantiser, codes, memory, field);
    }
    if (memory.has_codes && !decoder.is_sound(memory.has_missing)) return TileError::substream;
    store_unpredictable(words, memory.unpredictable_at, memory.n_unpredictable, box, field);
    return TileError::none;
}

// As above, for a tile of any shape.
template <class T>
__device__ TileError read_payload(const Tiling& tiling, const Quantiser<T>& quantiser, const DecodeTable& table,
                                  const std::uint32_t* payload, std::uint32_t n_words, WarpMemory<T>& tile, T* field) {
    using Int = typename Traits<T>::Int;
    const TileBox& box = tile.box;
    PayloadReader words(payload, n_words);
    PayloadHead<T> head;
    bool has_codes;
    TileError error = read_head(words, box, quantiser, field, head, has_codes);
    if (error != TileError::none || !has_codes) return error;
    const v1::TileHeader& header = head.header;
    const std::uint32_t n = box.values();
    const bool all_zero = header.is_all_zero, masked = header.has_mask, fine = header.has_fine_mask;
    const bool has_missing = header.has_missing;

    std::uint32_t n_coded = all_zero ? 0 : n;
    if (masked) {
        const GroupGrid groups(box.edge, tiling.group()), subgroups(box.edge, tiling.subgroup());
        const std::uint64_t mask = read_mask(words, groups.total());
        if (mask == 0) return TileError::mask;
        for (std::uint32_t i = lane(); i < bitmap_words; i += warp_lanes) tile.coded.word[i] = 0;
        __syncwarp();
        if (fine) {
            for (std::uint32_t first = 0; first < max_tile_values; first += warp_lanes) {
                const std::uint32_t s = first + lane();
                const bool candidate = s < subgroups.total() && (mask >> groups.group_around(subgroups, s) & 1) != 0;
                const std::uint32_t bits = __ballot_sync(whole_warp, candidate);
                if (lane() == 0) tile.subgroup.word[first / 32] = bits;
            }
            __syncwarp();
            tile.subgroup.rank();
            __syncwarp();
            const std::uint32_t fine_at = words.take(words_of_bits(tile.subgroup.count));
            if (words.failed()) return TileError::too_short;
            mark_coded(tile.coded, subgroups, lane(), warp_lanes, [&](std::uint32_t s) {
                return tile.subgroup.test(s) && words.bits(fine_at, tile.subgroup.rank_of(s), 1) != 0;
            });
        } else {
            mark_coded(tile.coded, groups, lane(), warp_lanes, [&](std::uint32_t g) { return (mask >> g & 1) != 0; });
        }
        __syncwarp();
        tile.coded.rank();
        __syncwarp();
        n_coded = tile.coded.count;
        if (n_coded == 0) return TileError::mask;
    }

    if (all_zero) {
        for (std::uint32_t at = lane(); at < n; at += warp_lanes) tile.value[at] = 0;
    } else {
        error = decode_substreams(words, header, n_coded, table, tile);
        if (error != TileError::none) return error;
    }
    __syncwarp();
    if (masked) // from last to first: a value's position is never before its rank
        for (std::uint32_t first = (n - 1) / warp_lanes * warp_lanes;; first -= warp_lanes) {
            const std::uint32_t at = first + lane();
            const Int value = at < n && tile.coded.test(at) ? tile.value[tile.coded.rank_of(at)] : 0;
            __syncwarp();
            if (at < n) tile.value[at] = value;
            __syncwarp();
            if (first == 0) break;
        }
    if (has_missing)
        for (std::uint32_t first = 0; first < n; first += warp_lanes) {
            const std::uint32_t at = first + lane();
            const std::uint32_t missing_bits = __ballot_sync(whole_warp, at < n && tile.value[at] == missing_code);
            if (lane() == 0) tile.missing.word[first / 32] = missing_bits;
        }

    OutlierParts<T> outliers;
    error = outliers.open(words, head, n);
    if (error != TileError::none) return error;
    __syncwarp();
    Outliers<T>(words, outliers.out_of_range_at, head.n_out_of_range)
        .within(0, max_tile_values, [&](std::uint32_t at, typename Traits<T>::Bits code) {
            if (lane() == 0) tile.value[at] = static_cast<Int>(code);
        });
    __syncwarp();
    reverse(tile, header.predictor, has_missing, static_cast<Int>(head.anchor), quantiser, field);
    store_unpredictable(words, outliers.unpredictable_at, head.n_unpredictable, box, field);
    return TileError::none;
}

} // namespace cusz::cuda
