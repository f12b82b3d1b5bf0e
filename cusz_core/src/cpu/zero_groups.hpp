// Zero groups: small boxes of a tile whose deltas are all 0 cost one bit together (docs/format.md, sections 3 and 6).
// Below one bit a value, where Huffman codes cannot go.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "isa.hpp"
#include "row_length.hpp"
#include "tile.hpp"

namespace cusz::cpu::CUSZ_ISA {

using Edges = std::array<std::uint32_t, 4>;

// Which values of a tile are coded: those of the live groups, or, where `fine`, of the live subgroups in them.
struct LiveGroups {
    std::uint64_t mask = 0; // bit g: group g has a delta that is not 0
    std::uint32_t total = 0;
    bool fine = false;
    std::uint8_t subgroup[max_tile_values]; // 1: live; where fine

    std::uint32_t dead() const { return total - static_cast<std::uint32_t>(std::popcount(mask)); }
    std::uint32_t words() const { return total > 32 ? 2 : 1; }
    bool alive(std::uint32_t number) const { return fine ? subgroup[number] != 0 : (mask >> number & 1) != 0; }
    const Edges& edges(const Tiling& tiling) const { return fine ? tiling.subgroup() : tiling.group(); }
};

// Calls use(edge) with the edge of groups along x, as a constant where it is a usual one.
template <class Use>
void with_group_edge(std::uint32_t edge, const Use& use) {
    switch (edge) {
    case 2: return use(std::integral_constant<std::uint32_t, 2>{});
    case 4: return use(std::integral_constant<std::uint32_t, 4>{});
    case 8: return use(std::integral_constant<std::uint32_t, 8>{});
    default: return use(edge);
    }
}

// Visits every run of a row within one group (or subgroup): use(position of its first value, its length, the number).
template <class Use>
void for_each_run(const TileBox& box, const Edges& group, const Use& use) {
    const Groups groups(box.edge, group);
    std::uint32_t at = 0;
    for (std::uint32_t w = 0; w < box.edge[3]; ++w)
        for (std::uint32_t z = 0; z < box.edge[2]; ++z)
            for (std::uint32_t y = 0; y < box.edge[1]; ++y) {
                std::uint32_t number =
                    ((w / group[3] * groups.count[2] + z / group[2]) * groups.count[1] + y / group[1]) *
                    groups.count[0];
                for (std::uint32_t x = 0; x < box.edge[0]; x += group[0], ++number) {
                    const std::uint32_t length = std::min(group[0], box.edge[0] - x);
                    use(at, length, number);
                    at += length;
                }
            }
}

// Visits the subgroups of live groups, by ascending number.
template <class Use>
void for_each_subgroup(const TileBox& box, const Tiling& tiling, std::uint64_t mask, const Use& use) {
    const Edges &group = tiling.group(), &sub = tiling.subgroup();
    const Groups groups(box.edge, group);
    std::uint32_t number = 0;
    for (std::uint32_t w = 0; w < box.edge[3]; w += sub[3])
        for (std::uint32_t z = 0; z < box.edge[2]; z += sub[2])
            for (std::uint32_t y = 0; y < box.edge[1]; y += sub[1]) {
                const std::uint32_t row =
                    ((w / group[3] * groups.count[2] + z / group[2]) * groups.count[1] + y / group[1]) *
                    groups.count[0];
                for (std::uint32_t x = 0; x < box.edge[0]; x += sub[0], ++number)
                    if ((mask >> (row + x / group[0]) & 1) != 0) use(number);
            }
}

// Visits every group (or subgroup) by ascending number: use(whether one of its deltas is not 0, number of its values).
template <class Length, class Edge, class Use>
void for_each_group(const std::int32_t* delta, const TileBox& box, const Edges& group, Length n, Edge edge,
                    const Use& use) {
    // First all rows of a row of groups into one, which vectorises, then that one along x.
    std::int32_t any[max_tile_values];
    for (std::uint32_t w = 0; w < box.edge[3]; w += group[3])
        for (std::uint32_t z = 0; z < box.edge[2]; z += group[2])
            for (std::uint32_t y = 0; y < box.edge[1]; y += group[1]) {
                std::fill_n(any, n, 0);
                std::uint32_t rows = 0;
                for (std::uint32_t ww = w; ww < std::min(w + group[3], box.edge[3]); ++ww)
                    for (std::uint32_t zz = z; zz < std::min(z + group[2], box.edge[2]); ++zz)
                        for (std::uint32_t yy = y; yy < std::min(y + group[1], box.edge[1]); ++yy, ++rows) {
                            const std::int32_t* row = delta + ((ww * box.edge[2] + zz) * box.edge[1] + yy) * n;
                            for (std::uint32_t x = 0; x < n; ++x) any[x] |= row[x];
                        }
                for (std::uint32_t x = 0; x < n; x += edge) {
                    const std::uint32_t end = std::min<std::uint32_t>(x + edge, n);
                    std::int32_t found = 0;
                    for (std::uint32_t i = x; i < end; ++i) found |= any[i];
                    use(found != 0, rows * (end - x));
                }
            }
}

template <class Use>
void for_each_group(const std::int32_t* delta, const TileBox& box, const Edges& group, const Use& use) {
    with_row_length(box.edge[0], [&](auto n) {
        with_group_edge(group[0], [&](auto edge) { for_each_group(delta, box, group, n, edge, use); });
    });
}

// Finds out, from the deltas of a tile in tile order, what is worth coding (docs/format.md, section 6).
inline void find_live_groups(const std::int32_t* delta, const TileBox& box, const Tiling& tiling, LiveGroups& live) {
    live.fine = false;
    live.mask = 0;
    live.total = 0;
    std::uint32_t in_groups = 0; // values
    for_each_group(delta, box, tiling.group(), [&](bool found, std::uint32_t values) {
        live.mask |= std::uint64_t{found} << live.total++;
        in_groups += found ? values : 0;
    });
    const std::uint32_t n = box.values(), n_subgroups = Groups(box.edge, tiling.subgroup()).total;
    std::uint32_t zero_pairs = 0; // a quick look: a fine mask pays only where zeros lie side by side
    for (std::uint32_t i = 0; i + 1 < n; i += 2) {
        std::uint64_t pair;
        std::memcpy(&pair, delta + i, sizeof pair);
        zero_pairs += pair == 0 ? 1 : 0;
    }
    if (live.mask == 0 || 2 * zero_pairs <= n_subgroups) return;

    // A value counts as one bit here, which is what a zero's code takes at least.
    const std::uint32_t coarse_bits = live.dead() >= 2 ? in_groups + live.total : n;
    std::uint32_t at = 0, fine_bits = live.total;
    for_each_group(delta, box, tiling.subgroup(), [&](bool found, std::uint32_t values) {
        live.subgroup[at++] = found;
        fine_bits += found ? values : 0;
    });
    if (fine_bits >= coarse_bits) return;
    for_each_subgroup(box, tiling, live.mask, [&](std::uint32_t) { ++fine_bits; });
    live.fine = fine_bits < coarse_bits;
}

// The fine mask as the payload stores it: a bit for every subgroup of a live group. Returns its words.
inline std::uint32_t write_fine_mask(const LiveGroups& live, const TileBox& box, const Tiling& tiling,
                                     std::uint32_t* words) {
    std::uint32_t at = 0;
    for_each_subgroup(box, tiling, live.mask, [&](std::uint32_t number) {
        if (at % 32 == 0) words[at / 32] = 0;
        words[at / 32] |= std::uint32_t{live.subgroup[number]} << at % 32;
        ++at;
    });
    return (at + 31) / 32;
}

inline std::uint32_t fine_mask_words(std::uint64_t mask, const TileBox& box, const Tiling& tiling) {
    std::uint32_t bits = 0;
    for_each_subgroup(box, tiling, mask, [&](std::uint32_t) { ++bits; });
    return (bits + 31) / 32;
}

inline void read_fine_mask(const std::uint32_t* words, const TileBox& box, const Tiling& tiling, LiveGroups& live) {
    std::uint32_t at = 0;
    std::fill_n(live.subgroup, Groups(box.edge, tiling.subgroup()).total, std::uint8_t{0});
    for_each_subgroup(box, tiling, live.mask, [&](std::uint32_t number) {
        live.subgroup[number] = static_cast<std::uint8_t>(words[at / 32] >> at % 32 & 1);
        ++at;
    });
}

// Number of values that are coded.
inline std::uint32_t count_live(const LiveGroups& live, const TileBox& box, const Tiling& tiling) {
    std::uint32_t n = 0;
    for_each_run(box, live.edges(tiling), [&](std::uint32_t, std::uint32_t length, std::uint32_t number) {
        n += live.alive(number) ? length : 0;
    });
    return n;
}

// Copies `length` integers, and up to `edge` in all where that is one instruction: both sides have room for it.
template <class Edge>
void copy_run(std::int32_t* to, const std::int32_t* from, std::uint32_t length, Edge edge) {
    if constexpr (std::is_same_v<Edge, std::uint32_t>)
        for (std::uint32_t i = 0; i < length; ++i) to[i] = from[i];
    else
        std::memcpy(to, from, edge * sizeof *to);
}

// Copies the deltas that are coded, in tile order, and returns their number.
inline std::uint32_t gather_live(const std::int32_t* delta, const LiveGroups& live, const TileBox& box,
                                 const Tiling& tiling, std::int32_t* coded) {
    std::uint32_t n = 0;
    with_group_edge(live.edges(tiling)[0], [&](auto edge) {
        for_each_run(box, live.edges(tiling), [&](std::uint32_t at, std::uint32_t length, std::uint32_t number) {
            copy_run(coded + n, delta + at, length, edge); // in any case: a branch would be hard to foresee
            n += live.alive(number) ? length : 0;
        });
    });
    return n;
}

// The inverse of gather_live, with 0 for what is not coded.
inline void scatter_live(const std::int32_t* coded, const LiveGroups& live, const TileBox& box, const Tiling& tiling,
                         std::int32_t* delta) {
    static constexpr std::int32_t zeros[8] = {};
    with_group_edge(live.edges(tiling)[0], [&](auto edge) {
        for_each_run(box, live.edges(tiling), [&](std::uint32_t at, std::uint32_t length, std::uint32_t number) {
            if constexpr (std::is_same_v<decltype(edge), std::uint32_t>) {
                for (std::uint32_t i = 0; i < length; ++i) delta[at + i] = live.alive(number) ? coded[i] : 0;
            } else { // what is written behind the run is written over by the next one
                copy_run(delta + at, live.alive(number) ? coded : zeros, length, edge);
            }
            coded += live.alive(number) ? length : 0;
        });
    });
}

} // namespace cusz::cpu::CUSZ_ISA
