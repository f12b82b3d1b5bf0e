// Takes a unit's tiles, as they are recorded, to its payload (docs/reference/format_v2.md, section 8); by a warp.
#pragma once

#include "codec/spline/unit_tables.hpp"
#include "recording.cuh"

namespace cusz::cuda {

// Memory of a warp: entries of a phase, of values and of groups' flags.
template <std::uint32_t axes, bool fits>
struct WriteUnitMemory {
    TilePlace place;
    Array<std::uint16_t, UnitMemory<axes, fits>::most_points> entry;
    Array<std::uint16_t, UnitMemory<axes, fits>::most_flags> flag;
};

// What is coded with, in memory of a block.
struct WriteTables {
    Array<std::uint8_t, 3 * 128> table_of;
    Array<std::uint8_t, v2::n_group_contexts> flag_table;
};

// A word of a recorded point becomes its entry, or this if it is not coded. The first one of a group has the entry of
// the group's flag, plus 1, in its upper half.
inline constexpr std::uint32_t not_coded = 0xFFFF;

// Extra bits, from the end of a unit towards its beginning, where zeros are.
class ExtraBitsWriter {
public:
    __device__ ExtraBitsWriter(std::uint16_t* payloads, std::uint64_t end) : payloads_(payloads), end_(end) {}
    // So many bits of every lane, in their order.
    __device__ void put(std::uint64_t value, std::uint32_t bits) {
        const std::uint32_t up_to = warp_inclusive_sum(bits);
        std::uint32_t at = bits_ + up_to - bits;
        bits_ += __shfl_sync(whole_warp, up_to, warp_lanes - 1);
        while (bits > 0) {
            const std::uint32_t n = std::min(16 - at % 16, bits);
            const auto part = static_cast<std::uint32_t>(value & ((1u << n) - 1)) << at % 16;
            const std::uint64_t unit = end_ - 1 - at / 16; // units have neighbours in the same word
            auto* const word = reinterpret_cast<std::uint32_t*>(payloads_) + unit / 2;
            atomicOr(word, part << 16 * (unit % 2));
            value >>= n;
            at += n;
            bits -= n;
        }
    }
    __device__ std::uint32_t units() const { return (bits_ + 15) / 16; }

private:
    std::uint16_t* payloads_;
    std::uint64_t end_;
    std::uint32_t bits_ = 0;
};

class UnitWriter {
public:
    // Words go before `end`.
    __device__ UnitWriter(std::uint16_t* end, std::uint32_t lanes) : words_(end), lanes_(lanes) {}
    // Codes entries, the last one first.
    template <std::uint32_t room>
    __device__ void put(const std::uint32_t* intervals, const Array<std::uint16_t, room>& entry, std::uint32_t n) {
        for (std::uint32_t first = (n + lanes_ - 1) / lanes_ * lanes_; first > 0;) {
            first -= lanes_;
            const std::uint32_t i = first + lane();
            const bool active = lane() < lanes_ && i < n;
            const std::uint32_t interval = active ? intervals[entry[i]] : v2::rans_total << 16,
                                frequency = interval >> 16;
            const bool is_full = active && state_ >> 20 >= frequency;
            const std::uint32_t full = __ballot_sync(whole_warp, is_full);
            words_ -= __popc(full);
            if (is_full) {
                words_[__popc(full & ((1u << lane()) - 1))] = static_cast<std::uint16_t>(state_);
                state_ >>= 16;
            }
            if (active) state_ = (state_ / frequency << v2::rans_bits) + state_ % frequency + (interval & 0xFFFF);
        }
    }
    // Puts the states before all words. Returns where they begin.
    __device__ std::uint16_t* finish() {
        words_ -= 2 * lanes_;
        if (lane() < lanes_) {
            words_[2 * lane()] = static_cast<std::uint16_t>(state_);
            words_[2 * lane() + 1] = static_cast<std::uint16_t>(state_ >> 16);
        }
        return words_;
    }

private:
    std::uint16_t* words_;
    std::uint32_t lanes_, state_ = v2::rans_low;
};

// Replaces the words of a tile's points by entries, and writes their extra bits.
template <class T, class Tile>
__device__ void list_tile(const WriteArguments<T>& a, const WriteTables& tables, const Tile& tile,
                          const TilePlace& place, ExtraBitsWriter& extra) {
    const auto words_of = [&](std::uint32_t c, std::uint32_t first) {
        return a.of.points + place.first_code + first_of_class(tile, c, false) + first;
    };
    const auto word_of = [&](auto c, const auto& group, std::uint32_t slot) {
        int x[4];
        std::uint32_t number;
        return ClassGroups<Tile>::point(group, slot, x, number) ? words_of(c, group.first)[number] : 0;
    };
    for (std::uint32_t phase = 1; phase <= Tile::axes; ++phase)
        for_groups_ahead<2, 1>(tile, phase, word_of, [&](auto constant, const auto& group, const auto& word) {
            constexpr std::uint32_t c = constant;
            std::uint32_t* const words = words_of(c, group.first);
            std::uint32_t weight = 0, entry[2]{}, numbers[2]{};
            bool is_inside[2]{}, significant = false;
#pragma unroll
            for (std::uint32_t j = 0; j < 2; ++j) {
                int x[4];
                is_inside[j] = ClassGroups<Tile>::point(group, j * warp_lanes + lane(), x, numbers[j]);
                if (!is_inside[j]) continue;
                const RecordedPoint point(word[j]);
                weight += weight_of(word[j] & RecordedPoint::context_mask);
                significant = significant || !point.is_zero();
            }
            const bool has_flag = points(tile, c) >= v2::least_with_flags;
            const bool is_significant = __any_sync(whole_warp, significant) != 0;
            std::uint32_t flag = 0;
            if (has_flag) {
                const std::uint32_t table = tables.flag_table[group_context(warp_sum(weight))];
                flag = ((first_flag_table + table) << 8 | (is_significant ? 1 : 0)) + 1;
            }
            const bool is_coded = !has_flag || is_significant;
#pragma unroll
            for (std::uint32_t j = 0; j < 2; ++j) {
                entry[j] = not_coded;
                std::uint32_t bits = 0;
                std::uint64_t value = 0;
                if (is_inside[j] && is_coded) {
                    const RecordedPoint point(word[j]);
                    const std::uint32_t table =
                        tables.table_of[(phase - 1) * 128 + (word[j] & RecordedPoint::context_mask)];
                    std::uint32_t symbol = symbol_of_point(point);
                    if (!point.is_missing && a.intervals[table << 8 | symbol] >> 16 == 0) symbol = v2::escape;
                    entry[j] = table << 8 | symbol;
                    if (symbol == v2::verbatim) {
                        int x[4];
                        std::uint32_t number;
                        ClassGroups<Tile>::point(group, j * warp_lanes + lane(), x, number);
                        bits = 8 * sizeof(T);
                        value = bits_of(a.of.original[static_cast<std::int64_t>(place.field) +
                                                      offset_of<Tile>(c, x, a.of.lattice.field_stride)]);
                    } else if (symbol >= v2::first_bucket && symbol != v2::special) {
                        bits = v2::meaning_of(symbol).extra_bits;
                        value = static_cast<std::uint64_t>(static_cast<std::int64_t>(point.code)) &
                                ((std::uint64_t{1} << bits) - 1);
                    }
                }
                if (__any_sync(whole_warp, bits > 0)) extra.put(value, bits);
            }
            __syncwarp();
#pragma unroll
            for (std::uint32_t j = 0; j < 2; ++j)
                if (is_inside[j]) words[numbers[j]] = entry[j] | (numbers[j] == 0 ? flag << 16 : 0);
        });
}

// Codes a tile whose points are entries, the last phase first.
template <class T, class Tile, class Memory>
__device__ void write_tile(const WriteArguments<T>& a, const Tile& tile, Memory& shared, UnitWriter& writer) {
    const auto word_of = [&](auto c, const auto& group, std::uint32_t i) { // in coding order
        return i < group.n ? a.of.points[shared.place.first_code + first_of_class(tile, c, false) + group.first + i]
                           : 0;
    };
    for (std::uint32_t phase = Tile::axes; phase > 0; --phase) {
        std::uint32_t n_values = 0, n_flags = 0;
        for_groups_ahead<4, 4>(tile, phase, word_of, [&](auto, const auto& group, const auto& word) {
            const std::uint32_t first = __shfl_sync(whole_warp, word[0], 0), flag = first >> 16;
            const bool is_coded = (first & 0xFFFF) != not_coded;
            if (flag != 0 && lane() == 0) shared.flag[n_flags] = static_cast<std::uint16_t>(flag - 1);
            n_flags += flag != 0 ? 1 : 0;
            if (!is_coded) return;
#pragma unroll
            for (std::uint32_t j = 0; j < 2; ++j)
                if (j * warp_lanes + lane() < group.n)
                    shared.entry[n_values + j * warp_lanes + lane()] = static_cast<std::uint16_t>(word[j]);
            n_values += group.n;
        });
        __syncwarp();
        writer.put(a.intervals, shared.entry, n_values);
        writer.put(a.intervals, shared.flag, n_flags);
        __syncwarp();
    }
}

template <std::uint32_t axes, bool fits, class T>
__device__ UnitPlace write_unit(const WriteArguments<T>& a, const WriteTables& tables, std::uint32_t number,
                                WriteUnitMemory<axes, fits>& shared) {
    const auto first_tile = static_cast<std::uint64_t>(number) * v2::tiles_of_unit;
    const auto n_tiles =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(+v2::tiles_of_unit, a.of.lattice.n_tiles - first_tile));
    const TileRecord own = lane() < n_tiles ? a.tiles[first_tile + lane()] : TileRecord{};
    const std::uint32_t live = __ballot_sync(whole_warp, own.live != 0);
    if (live == 0) return {};
    const std::uint32_t n_values = warp_sum(own.live != 0 ? own.n_values : 0u);
    UnitPlace unit{};
    while (unit.log2_lanes < v2::max_log2_lanes && n_values > 1024u << unit.log2_lanes) ++unit.log2_lanes;

    // Calls use(tile) with the form of a live tile.
    const auto with_tile = [&](std::uint32_t t, const auto& use) {
        if ((live >> t & 1) == 0) return;
        __syncwarp();
        if (lane() == 0) shared.place = place_of(a.of, first_tile + t);
        __syncwarp();
        const std::uint32_t* const edge = shared.place.edge;
        if (fits && shared.place.is_full)
            use(FullTile<axes>{});
        else
            use(ClippedTile<axes>{{edge[0], edge[1], edge[2], edge[3]}});
    };
    const std::uint64_t end = a.end[number];
    ExtraBitsWriter extra(a.payloads, end);
    for (std::uint32_t t = 0; t < n_tiles; ++t)
        with_tile(t, [&](const auto& tile) { list_tile(a, tables, tile, shared.place, extra); });
    UnitWriter writer(a.payloads + (end - extra.units()), 1u << unit.log2_lanes);
    for (std::uint32_t t = n_tiles; t-- > 0;)
        with_tile(t, [&](const auto& tile) { write_tile(a, tile, shared, writer); });
    std::uint16_t* const begin = writer.finish() - 1;
    if (lane() == 0) *begin = static_cast<std::uint16_t>(live);
    unit.begin = static_cast<std::uint64_t>(begin - a.payloads);
    unit.n = static_cast<std::uint32_t>(end - unit.begin);
    return unit;
}

} // namespace cusz::cuda
