// Records what a tile is coded as (docs/reference/format_v2.md, section 8), before the tables are known; by a warp.
#pragma once

#include "reading.cuh"

namespace cusz::cuda {

__device__ inline std::uint32_t symbol_of_code(std::int32_t code) {
    const auto key = static_cast<std::uint32_t>(code ^ code >> 31);
    if (key < static_cast<std::uint32_t>(v2::n_direct)) return static_cast<std::uint32_t>(code + v2::n_direct);
    const std::uint32_t octave = number_of_bits(key) - 1;
    return v2::first_bucket + 8 * (octave - 5) + 2 * ((key >> (octave - 2)) - 4) + (code < 0 ? 1u : 0u);
}
__device__ inline std::uint32_t symbol_of_point(const RecordedPoint& point) {
    if (!point.is_missing) return symbol_of_code(point.code);
    return point.code == RecordedPoint::special ? v2::special : v2::verbatim;
}

// Counts of a block, for the rows of one lattice.
struct CountMemory {
    static constexpr std::uint32_t contexts = 3 * v2::n_places;
    Array<unsigned long long, contexts> size;
    Array<std::uint32_t, contexts> n;
    Array<std::uint32_t, contexts> special, verbatim;
    Array<std::uint32_t, 2 * v2::n_group_contexts> groups;
};

// Replaces what contexts take from the coarser lattice by places and, if is_counted, counts what is coded; for a live
// tile.
template <class Memory, class Tile>
__device__ TileRecord record_tile(const RecordArguments& a, const Tile& tile, bool is_counted, CountMemory& counts,
                                  Memory& shared) {
    constexpr std::uint32_t axes = Tile::axes;
    const NearBoxes<Tile> boxes{tile};
    std::uint32_t* const points_of_tile = a.of.points + shared.place.first_code;
    NearCode* const code = cleared_codes(boxes, shared.code);
    const auto points_of = [&](std::uint32_t c, std::uint32_t first) {
        return points_of_tile + (first_of_class(tile, c, false) + first);
    };
    const auto word_of = [&](auto c, const auto& group, std::uint32_t slot) {
        int x[4];
        std::uint32_t number;
        return ClassGroups<Tile>::point(group, slot, x, number) ? points_of(c, group.first)[number] : 0;
    };
    TileRecord record{};
    record.live = 1;
    std::uint32_t extra_bits = 0;
    for (std::uint32_t phase = 1; phase <= axes; ++phase) {
        for_groups_ahead<2, 1>(tile, phase, word_of, [&](auto constant, const auto& group, const auto& word) {
            constexpr std::uint32_t c = constant;
            std::uint32_t weight = 0, context[2]{};
            bool is_inside[2]{}, significant = false;
#pragma unroll
            for (std::uint32_t j = 0; j < 2; ++j) {
                int x[4];
                std::uint32_t number;
                if (!ClassGroups<Tile>::point(group, j * warp_lanes + lane(), x, number)) continue;
                const RecordedPoint point(word[j]);
                const auto fixed = FixedContext::unpacked(word[j] & RecordedPoint::context_mask);
                is_inside[j] = true;
                context[j] = context_of<c>(fixed, boxes, code, x);
                if constexpr (c != (1u << axes) - 1)
                    code[boxes.at(c, x)] = NearCode::of(point.is_missing ? 0 : point.code, point.is_missing);
                points_of(c, group.first)[number] = point.packed(context[j]);
                weight += weight_of(context[j]);
                const bool is_zero = RecordedPoint::is_zero(word[j]);
                significant = significant || !is_zero;
                if (point.is_missing)
                    extra_bits += point.code == RecordedPoint::verbatim ? a.value_bits : 0;
                else
                    extra_bits += is_zero ? 0 : v2::escape_bits;
            }
            const bool has_flag = points(tile, c) >= v2::least_with_flags;
            const bool is_significant = __any_sync(whole_warp, significant) != 0;
            if (has_flag) {
                ++record.n_flags;
                const std::uint32_t of_group = group_context(warp_sum(weight));
                if (is_counted && lane() == 0) atomicAdd(&counts.groups[2 * of_group + (is_significant ? 1 : 0)], 1u);
            }
            if (has_flag && !is_significant) return;
            record.n_values += group.n;
            if (!is_counted) return;
#pragma unroll
            for (std::uint32_t j = 0; j < 2; ++j) {
                if (!is_inside[j]) continue;
                const std::uint32_t at = (phase - 1) * v2::n_places + context[j],
                                    symbol = symbol_of_point(RecordedPoint(word[j]));
                if (context[j] >= v2::n_ordinary_places && symbol >= v2::special) {
                    atomicAdd(symbol == v2::special ? &counts.special[at] : &counts.verbatim[at], 1u);
                    continue;
                }
                atomicAdd(&counts.n[at], 1u);
                atomicAdd(&counts.size[at], static_cast<unsigned long long>(a.sizes[symbol]));
            }
        });
        __syncwarp();
    }
    record.extra_bits = warp_sum(extra_bits);
    return record;
}

} // namespace cusz::cuda
