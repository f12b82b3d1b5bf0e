// Zero groups: small boxes of a tile whose deltas are all 0 cost one bit together (docs/format.md, sections 3 and 6).
// Below one bit a value, where Huffman codes cannot go.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "isa.hpp"
#include "rows.hpp"
#include "tile.hpp"

namespace cusz::cpu::CUSZ_ISA {

using Edges = std::array<std::uint32_t, 4>;

// Which values of a tile are coded: those of the live groups, or, where `fine`, of the live subgroups in them.
struct LiveGroups {
    std::uint64_t mask = 0; // bit g: group g has a delta that is not 0
    std::uint32_t total = 0;
    bool fine = false;
    std::uint8_t alive[max_tile_values]; // 1: live; of subgroups where `fine`, else of groups

    std::uint32_t dead() const { return total - static_cast<std::uint32_t>(std::popcount(mask)); }
    std::uint32_t words() const { return total > 32 ? 2 : 1; }
    const Edges& edges(const Tiling& tiling) const { return fine ? tiling.subgroup() : tiling.group(); }
    void spread_mask() {
        for (std::uint32_t g = 0; g < total; ++g) alive[g] = static_cast<std::uint8_t>(mask >> g & 1);
    }
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

// Visits the rows of a tile: use(position of the first value, number of the first group (or subgroup) that it crosses).
template <class Use>
void for_each_row_of_groups(const TileBox& box, const Edges& group, const Use& use) {
    const Groups groups(box.edge, group);
    std::uint32_t at = 0;
    for (std::uint32_t w = 0; w < box.edge[3]; ++w)
        for (std::uint32_t z = 0; z < box.edge[2]; ++z) {
            std::uint32_t number = (w / group[3] * groups.count[2] + z / group[2]) * groups.count[1] * groups.count[0];
            for (std::uint32_t y = 0; y < box.edge[1]; y += group[1], number += groups.count[0])
                for (std::uint32_t rows = std::min(group[1], box.edge[1] - y); rows > 0; --rows, at += box.edge[0])
                    use(at, number);
        }
}

// Visits every row of subgroups within one group, by ascending number: use(group, number of the first subgroup, count).
template <class Use>
void for_each_row_of_subgroups(const TileBox& box, const Tiling& tiling, const Use& use) {
    const Edges &group = tiling.group(), &sub = tiling.subgroup();
    const Groups groups(box.edge, group);
    std::uint32_t number = 0;
    for (std::uint32_t w = 0; w < box.edge[3]; w += sub[3])
        for (std::uint32_t z = 0; z < box.edge[2]; z += sub[2])
            for (std::uint32_t y = 0; y < box.edge[1]; y += sub[1]) {
                std::uint32_t g = ((w / group[3] * groups.count[2] + z / group[2]) * groups.count[1] + y / group[1]) *
                                  groups.count[0];
                for (std::uint32_t begin = 0; begin < box.edge[0]; begin += group[0], ++g) {
                    const std::uint32_t length = std::min(group[0], box.edge[0] - begin);
                    const std::uint32_t count = (length + sub[0] - 1) / sub[0];
                    use(g, number, count);
                    number += count;
                }
            }
}

// Visits the subgroups of live groups, by ascending number.
template <class Use>
void for_each_subgroup(const TileBox& box, const Tiling& tiling, std::uint64_t mask, const Use& use) {
    for_each_row_of_subgroups(box, tiling, [&](std::uint32_t group, std::uint32_t number, std::uint32_t count) {
        if ((mask >> group & 1) == 0) return;
        for (std::uint32_t i = 0; i < count; ++i) use(number + i);
    });
}

// Whether no group (or subgroup) is clipped.
inline bool is_whole(const TileBox& box, const Edges& group) {
    bool whole = true;
    for (std::size_t a = 0; a < 4; ++a) whole = whole && box.edge[a] % group[a] == 0;
    return whole;
}

// Visits every group (or subgroup) by ascending number: use(whether one of its deltas is not 0, number of its values).
template <class Length, class Edge, class Use>
void for_each_group(const std::int32_t* delta, const TileBox& box, const Edges& group, Length n, Edge edge,
                    const Use& use) {
    const auto along_x = [&](const std::int32_t* row, std::uint32_t rows) {
        for (std::uint32_t x = 0; x < n; x += edge) {
            const std::uint32_t end = std::min<std::uint32_t>(x + edge, n);
            std::int32_t found = 0;
            for (std::uint32_t i = x; i < end; ++i) found |= row[i];
            use(found != 0, rows * (end - x));
        }
    };
    if (box.rows() == 1) return along_x(delta, 1);
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
                along_x(any, rows);
            }
}

template <class Use>
void for_each_group(const std::int32_t* delta, const TileBox& box, const Edges& group, const Use& use) {
    with_row_length(box.edge[0], [&](auto n) {
        with_group_edge(group[0], [&](auto edge) { for_each_group(delta, box, group, n, edge, use); });
    });
}

// Finds the live subgroups. Returns whether coding those alone takes less than coarse_bits, where a value counts as one
// bit, which is what a zero's code takes at least.
inline bool fine_mask_pays(const std::int32_t* delta, const TileBox& box, const Tiling& tiling,
                           std::uint32_t coarse_bits, LiveGroups& live) {
    std::uint32_t at = 0, fine_bits = live.total;
    for_each_group(delta, box, tiling.subgroup(), [&](bool found, std::uint32_t values) {
        live.alive[at++] = found;
        fine_bits += found ? values : 0;
    });
    if (fine_bits >= coarse_bits) return false;
    for_each_subgroup(box, tiling, live.mask, [&](std::uint32_t) { ++fine_bits; });
    return fine_bits < coarse_bits;
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
    if (live.mask == 0) return;
    const std::uint32_t coarse_bits = live.dead() >= 2 ? in_groups + live.total : n;
    if (2 * zero_pairs > n_subgroups) live.fine = fine_mask_pays(delta, box, tiling, coarse_bits, live);
    if (!live.fine) live.spread_mask();
}

// The fine mask as the payload stores it: a bit for every subgroup of a live group. Returns its words.
inline std::uint32_t write_fine_mask(const LiveGroups& live, const TileBox& box, const Tiling& tiling,
                                     std::uint32_t* words) {
    std::uint32_t at = 0;
    for_each_subgroup(box, tiling, live.mask, [&](std::uint32_t number) {
        if (at % 32 == 0) words[at / 32] = 0;
        words[at / 32] |= std::uint32_t{live.alive[number]} << at % 32;
        ++at;
    });
    return (at + 31) / 32;
}

inline std::uint32_t fine_mask_words(std::uint64_t mask, const TileBox& box, const Tiling& tiling) {
    std::uint32_t bits = 0;
    if (is_whole(box, tiling.group()))
        bits = static_cast<std::uint32_t>(std::popcount(mask)) * Groups(tiling.group(), tiling.subgroup()).total;
    else
        for_each_subgroup(box, tiling, mask, [&](std::uint32_t) { ++bits; });
    return (bits + 31) / 32;
}

// words: readable for two more. Without branches on the mask, which would be hard to foresee; a row has at most 8
// subgroups in a group.
inline void read_fine_mask(const std::uint32_t* words, const TileBox& box, const Tiling& tiling, LiveGroups& live) {
    const char* const bytes = reinterpret_cast<const char*>(words);
    std::uint32_t at = 0;
    for_each_row_of_subgroups(box, tiling, [&](std::uint32_t group, std::uint32_t number, std::uint32_t count) {
        std::uint64_t bits;
        std::memcpy(&bits, bytes + at / 8, 8);
        bits = bits >> at % 8 & (0 - (live.mask >> group & 1));
        for (std::uint32_t i = 0; i < count; ++i) live.alive[number + i] = static_cast<std::uint8_t>(bits >> i & 1);
        at += static_cast<std::uint32_t>(live.mask >> group & 1) * count;
    });
}

// Visits every run of a row within one group (or subgroup): use(position of its first value, its length, the number).
template <class Length, class Edge, class Use>
void for_each_run(const TileBox& box, const Edges& group, Length n, Edge edge, const Use& use) {
    for_each_row_of_groups(box, group, [&](std::uint32_t at, std::uint32_t number) {
        for (std::uint32_t x = 0; x < n; x += edge, ++number) use(at + x, std::min<std::uint32_t>(edge, n - x), number);
    });
}

// Number of values that are coded.
inline std::uint32_t count_live(const LiveGroups& live, const TileBox& box, const Tiling& tiling) {
    const Edges& group = live.edges(tiling);
    std::uint32_t n = 0;
    if (is_whole(box, group)) {
        const std::uint32_t total = Groups(box.edge, group).total;
        for (std::uint32_t g = 0; g < total; ++g) n += live.alive[g];
        return n * (box.values() / total);
    }
    for_each_run(box, group, box.edge[0], group[0],
                 [&](std::uint32_t, std::uint32_t length, std::uint32_t number) { n += live.alive[number] * length; });
    return n;
}

// Copies the deltas that are coded, in tile order, and returns their number.
inline std::uint32_t gather_live(const std::int32_t* delta, const LiveGroups& live, const TileBox& box,
                                 const Tiling& tiling, std::int32_t* coded) {
    const Edges& group = live.edges(tiling);
    std::int32_t* to = coded;
    with_row_length(box.edge[0], [&](auto n) {
        with_group_edge(group[0], [&](auto edge) {
            for_each_run(box, group, n, edge, [&](std::uint32_t at, std::uint32_t length, std::uint32_t number) {
                // In any case, as a branch would be hard to foresee; and more than the run where it ends early, as both
                // sides have room for it: the next run is written over it.
                for (std::uint32_t i = 0; i < edge; ++i) to[i] = delta[at + i];
                to += live.alive[number] * length;
            });
        });
    });
    return static_cast<std::uint32_t>(to - coded);
}

// The inverse of gather_live, with 0 for what is not coded.
inline void scatter_live(const std::int32_t* coded, const LiveGroups& live, const TileBox& box, const Tiling& tiling,
                         std::int32_t* delta) {
    const Edges& group = live.edges(tiling);
    with_row_length(box.edge[0], [&](auto n) {
        with_group_edge(group[0], [&](auto edge) {
            for_each_run(box, group, n, edge, [&](std::uint32_t at, std::uint32_t length, std::uint32_t number) {
                const std::int32_t alive = live.alive[number];
                for (std::uint32_t i = 0; i < edge; ++i) delta[at + i] = coded[i] & -alive; // as in gather_live
                coded += static_cast<std::uint32_t>(alive) * length;
            });
        });
    });
}

} // namespace cusz::cpu::CUSZ_ISA
