// Encodes the recorded tiles of a unit to its payload (docs/reference/format_v2.md, section 8); by a warp.
#pragma once

#include "codec/spline/unit_tables.hpp"
#include "recording.cuh"

namespace cusz::cuda {

// Shared memory of a warp: the entries of a phase, for values and for flags of groups. Both are filled from the end.
template <std::uint32_t axes, bool fits>
struct WriteUnitMemory {
    static constexpr std::uint32_t most_points = UnitMemory<axes, fits>::most_points,
                                   most_flags = UnitMemory<axes, fits>::most_flags;

    TilePlace place;
    Array<std::uint16_t, most_points> entry;
    Array<std::uint16_t, most_flags> flag;
};

// Shared memory of a block: tables for encoding.
struct WriteTables {
    Array<std::uint16_t, 3 * 128> table_of; // and, in the upper byte, its reach
    Array<std::uint8_t, v2::n_group_contexts> flag_table;
};

// Writes extra bits, the last ones first, into zeros. They lie from the end of a unit towards its beginning.
class ExtraBitsWriter {
public:
    // room: how many 16-bit words are free before `end`; even.
    __device__ ExtraBitsWriter(std::uint16_t* payloads, std::uint64_t end, std::uint32_t room)
        : payloads_(payloads), end_(end), room_(room), begin_(16 * room) {}
    // Puts `bits` bits of each lane, in the order of lanes, before those that are there.
    __device__ void put(std::uint64_t value, std::uint32_t bits) {
        const std::uint32_t up_to = warp_inclusive_sum(bits);
        begin_ -= __shfl_sync(whole_warp, up_to, warp_lanes - 1);
        std::uint32_t at = begin_ + up_to - bits;
        while (bits > 0) {
            const std::uint32_t n = std::min(16 - at % 16, bits);
            const auto part = static_cast<std::uint32_t>(value & ((1u << n) - 1)) << at % 16;
            const std::uint64_t unit = end_ - 1 - at / 16; // another one shares its 32-bit word
            auto* const word = reinterpret_cast<std::uint32_t*>(payloads_) + unit / 2;
            atomicOr(word, part << 16 * (unit % 2));
            value >>= n;
            at += n;
            bits -= n;
        }
    }
    // Moves them so that the first begins a 16-bit unit. Returns how many units they take; the rest is unused.
    __device__ std::uint32_t finish() {
        const std::uint32_t units = room_ - begin_ / 16, shift = begin_ % 16;
        if (shift == 0) return units;
        std::uint16_t* const last = payloads_ + (end_ - 1 - begin_ / 16);
        __syncwarp();
        for (std::uint32_t first = 0; first < units; first += warp_lanes) {
            const std::uint32_t i = first + lane();
            std::uint32_t moved = 0;
            if (i < units) moved = *(last - i) >> shift;
            if (i + 1 < units) moved |= static_cast<std::uint32_t>(*(last - i - 1)) << (16 - shift);
            __syncwarp();
            if (i < units) *(last - i) = static_cast<std::uint16_t>(moved);
            __syncwarp();
        }
        return units;
    }

private:
    std::uint16_t* payloads_;
    std::uint64_t end_;
    std::uint32_t room_, begin_;
};

class UnitWriter {
public:
    // Words go before `end`.
    __device__ UnitWriter(std::uint16_t* end, std::uint32_t lanes) : end_(end), lanes_(lanes) {}
    __device__ bool has_all_lanes() const { return lanes_ == warp_lanes; }
    // Encodes one interval per lane.
    __device__ void put(std::uint32_t interval) {
        const std::uint32_t frequency = interval >> 16;
        const bool is_full = state_ >> 20 >= frequency;
        const std::uint32_t full = __ballot_sync(whole_warp, is_full);
        n_ += __popc(full);
        if (is_full) {
            end_[__popc(full & lanes_before_) - n_] = static_cast<std::uint16_t>(state_);
            state_ >>= 16;
        }
        // That is, for v = state_: v / frequency * total + v % frequency + start.
        state_ += state_ / frequency * (v2::rans_total - frequency) + (interval & 0xFFFF);
    }
    // Encodes the entries from `from` on, the last one first.
    template <std::uint32_t room>
    __device__ void put(const std::uint32_t* intervals, const Array<std::uint16_t, room>& entry, std::uint32_t from) {
        for (std::uint32_t first = from + (room - from + lanes_ - 1) / lanes_ * lanes_; first > from;) {
            first -= lanes_;
            const std::uint32_t i = first + lane();
            // Idle lanes get an interval that changes no state.
            put(lane() < lanes_ && i < room ? intervals[entry[i]] : v2::rans_total << 16);
        }
    }
    // Puts the states before all words. Returns where they begin.
    __device__ std::uint16_t* finish() {
        n_ += static_cast<int>(2 * lanes_);
        std::uint16_t* const begin = end_ - n_;
        if (lane() < lanes_) {
            begin[2 * lane()] = static_cast<std::uint16_t>(state_);
            begin[2 * lane() + 1] = static_cast<std::uint16_t>(state_ >> 16);
        }
        return begin;
    }

private:
    std::uint16_t* end_;
    int n_ = 0; // words
    std::uint32_t lanes_, lanes_before_ = (1u << lane()) - 1, state_ = v2::rans_low;
};

__device__ inline std::uint64_t value_at(const UnitValues& values, std::int64_t at) {
    if (values.bits == 64) return bits_of(static_cast<const double*>(values.original)[at]);
    return bits_of(static_cast<const float*>(values.original)[at]);
}

// Encodes a tile, the last point first. A group of a full tile is just two steps of 32 lanes, and is encoded at once;
// other values wait for the rest of their phase, as flags do.
template <class Tile, class Memory>
__device__ void write_tile(const WriteArguments& a, const WriteTables& tables, const Tile& tile, Memory& shared,
                           ExtraBitsWriter& extra, UnitWriter& writer) {
    const std::uint32_t* const points_of_tile = a.of.points + shared.place.first_code;
    const auto word_of = [&](auto c, const auto& group, std::uint32_t slot) {
        int x[4];
        std::uint32_t number;
        if (!ClassGroups<Tile>::point(group, slot, x, number)) return std::uint32_t{0};
        return points_of_tile[first_of_class(tile, c, false) + group.first + number];
    };
    const bool at_once = Tile::is_full && writer.has_all_lanes();
    for (std::uint32_t phase = Tile::axes; phase > 0; --phase) {
        std::uint32_t values_at = Memory::most_points, flags_at = Memory::most_flags;
        for_groups_ahead<2, 1, true>(tile, phase, word_of, [&](auto constant, const auto& group, const auto& word) {
            constexpr std::uint32_t c = constant;
            int x[2][4];
            std::uint32_t numbers[2], weight = 0;
            bool is_inside[2], significant = false;
#pragma unroll
            for (std::uint32_t j = 0; j < 2; ++j) {
                is_inside[j] = ClassGroups<Tile>::point(group, j * warp_lanes + lane(), x[j], numbers[j]);
                if (!is_inside[j]) continue;
                weight += weight_of(word[j] & RecordedPoint::context_mask);
                significant = significant || !RecordedPoint::is_zero(word[j]);
            }
            if (points(tile, c) >= v2::least_with_flags) {
                const bool is_significant = __any_sync(whole_warp, significant) != 0;
                const std::uint32_t table = tables.flag_table[group_context(warp_sum(weight))];
                --flags_at;
                if (lane() == 0)
                    shared.flag[flags_at] =
                        static_cast<std::uint16_t>((first_flag_table + table) << 8 | (is_significant ? 1 : 0));
                if (!is_significant) return;
            }
            if (!at_once) values_at -= group.n;
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                const std::uint32_t j = 1 - half; // backwards
                std::uint32_t bits = 0, entry = 0;
                std::uint64_t value = 0;
                if (is_inside[j]) {
                    const RecordedPoint point(word[j]);
                    const std::uint32_t found =
                                            tables
                                                .table_of[(phase - 1) * 128 + (word[j] & RecordedPoint::context_mask)],
                                        table = found & 255, reach = found >> 8;
                    const auto code = static_cast<std::uint32_t>(point.code);
                    std::uint32_t symbol = code + v2::zero_symbol;
                    if (point.is_missing || code + reach > 2 * reach) { // the table may lack its symbol
                        symbol = symbol_of_point(point);
                        if (!point.is_missing && a.intervals[table << 8 | symbol] >> 16 == 0) symbol = v2::escape;
                        if (symbol == v2::verbatim) {
                            bits = a.values.bits;
                            value = value_at(a.values, static_cast<std::int64_t>(shared.place.field) +
                                                           offset_of<Tile>(c, x[j], a.of.lattice.field_stride));
                        } else if (symbol >= v2::first_bucket && symbol != v2::special) {
                            bits = v2::meaning_of(symbol).extra_bits;
                            value = static_cast<std::uint64_t>(static_cast<std::int64_t>(point.code)) &
                                    ((std::uint64_t{1} << bits) - 1);
                        }
                    }
                    entry = table << 8 | symbol;
                    if (!at_once) shared.entry[values_at + numbers[j]] = static_cast<std::uint16_t>(entry);
                }
                if (at_once) writer.put(a.intervals[entry]);
                if (__any_sync(whole_warp, bits > 0)) extra.put(value, bits);
            }
        });
        __syncwarp();
        writer.put(a.intervals, shared.entry, values_at);
        writer.put(a.intervals, shared.flag, flags_at);
        __syncwarp();
    }
}

template <std::uint32_t axes, bool fits>
__device__ UnitPlace write_unit(const WriteArguments& a, const WriteTables& tables, std::uint32_t number,
                                WriteUnitMemory<axes, fits>& shared) {
    const auto first_tile = static_cast<std::uint64_t>(number) * v2::tiles_of_unit;
    const auto n_tiles =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(+v2::tiles_of_unit, a.of.lattice.n_tiles - first_tile));
    const TileRecord own = lane() < n_tiles ? a.tiles[first_tile + lane()] : TileRecord{};
    const std::uint32_t live = __ballot_sync(whole_warp, own.live != 0);
    if (live == 0) return {};
    const std::uint32_t n_values = warp_sum(own.live != 0 ? own.n_values : 0u),
                        extra_bits = warp_sum(own.live != 0 ? own.extra_bits : 0u);
    UnitPlace unit{};
    while (unit.log2_lanes < v2::max_log2_lanes && n_values > 1024u << unit.log2_lanes) ++unit.log2_lanes;

    const std::uint32_t room = (extra_bits + 31) / 32 * 2; // of extra bits, behind all words
    const std::uint64_t end_of_words = a.end[number] - room;
    ExtraBitsWriter extra(a.payloads, a.end[number], room);
    UnitWriter writer(a.payloads + end_of_words, 1u << unit.log2_lanes);
    for (std::uint32_t t = n_tiles; t-- > 0;) {
        if ((live >> t & 1) == 0) continue;
        __syncwarp();
        if (lane() == 0) shared.place = place_of(a.of, first_tile + t);
        __syncwarp();
        with_form<axes, fits>(shared.place,
                              [&](const auto& tile) { write_tile(a, tables, tile, shared, extra, writer); });
    }
    const std::uint64_t end = end_of_words + extra.finish();
    std::uint16_t* const begin = writer.finish() - 1;
    if (lane() == 0) *begin = static_cast<std::uint16_t>(live);
    unit.begin = static_cast<std::uint64_t>(begin - a.payloads);
    unit.n = static_cast<std::uint32_t>(end - unit.begin);
    return unit;
}

} // namespace cusz::cuda
