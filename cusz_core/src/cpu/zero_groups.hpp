// Zero groups: small boxes of a tile whose deltas are all 0 cost one bit together (docs/format.md, sections 3 and 6).
// Below one bit a value, where Huffman codes cannot go.
#pragma once

#include <algorithm>
#include <bit>

#include "isa.hpp"
#include "tile.hpp"

namespace cusz::cpu::CUSZ_ISA {

struct LiveGroups {
    std::uint64_t mask = 0; // bit g: group g has a delta that is not 0
    std::uint32_t total = 0;
    std::uint32_t dead() const { return total - static_cast<std::uint32_t>(std::popcount(mask)); }
    std::uint32_t words() const { return total > 32 ? 2 : 1; }
};

// Visits every run of a row within one group: use(position of its first value, its length, its group's number).
template <class Use>
void for_each_run(const TileBox& box, const std::array<std::uint32_t, 4>& group, const Use& use) {
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

// Finds the live groups in the deltas of a tile, in tile order.
inline LiveGroups find_live_groups(const std::int32_t* delta, const TileBox& box,
                                   const std::array<std::uint32_t, 4>& group) {
    const Groups groups(box.edge, group);
    const std::uint32_t n = box.edge[0];
    LiveGroups live;
    live.total = groups.total;
    // First all rows of a row of groups into one, which vectorises, then that one along x.
    std::int32_t any[max_tile_values];
    std::uint32_t number = 0;
    for (std::uint32_t w = 0; w < box.edge[3]; w += group[3])
        for (std::uint32_t z = 0; z < box.edge[2]; z += group[2])
            for (std::uint32_t y = 0; y < box.edge[1]; y += group[1]) {
                std::fill_n(any, n, 0);
                for (std::uint32_t ww = w; ww < std::min(w + group[3], box.edge[3]); ++ww)
                    for (std::uint32_t zz = z; zz < std::min(z + group[2], box.edge[2]); ++zz)
                        for (std::uint32_t yy = y; yy < std::min(y + group[1], box.edge[1]); ++yy) {
                            const std::int32_t* row = delta + ((ww * box.edge[2] + zz) * box.edge[1] + yy) * n;
                            for (std::uint32_t x = 0; x < n; ++x) any[x] |= row[x];
                        }
                for (std::uint32_t x = 0; x < n; x += group[0], ++number) {
                    std::int32_t found = 0;
                    for (std::uint32_t i = x; i < std::min(x + group[0], n); ++i) found |= any[i];
                    live.mask |= std::uint64_t{found != 0} << number;
                }
            }
    return live;
}

// Number of values in live groups.
inline std::uint32_t count_live(std::uint64_t mask, const TileBox& box, const std::array<std::uint32_t, 4>& group) {
    std::uint32_t n = 0;
    for_each_run(box, group, [&](std::uint32_t, std::uint32_t length, std::uint32_t number) {
        n += (mask >> number & 1) != 0 ? length : 0;
    });
    return n;
}

// Copies the deltas of live groups, in tile order, and returns their number.
inline std::uint32_t gather_live(const std::int32_t* delta, std::uint64_t mask, const TileBox& box,
                                 const std::array<std::uint32_t, 4>& group, std::int32_t* live) {
    std::uint32_t n = 0;
    for_each_run(box, group, [&](std::uint32_t at, std::uint32_t length, std::uint32_t number) {
        if ((mask >> number & 1) == 0) return;
        for (std::uint32_t i = 0; i < length; ++i) live[n + i] = delta[at + i];
        n += length;
    });
    return n;
}

// The inverse of gather_live, with 0 in dead groups.
inline void scatter_live(const std::int32_t* live, std::uint64_t mask, const TileBox& box,
                         const std::array<std::uint32_t, 4>& group, std::int32_t* delta) {
    for_each_run(box, group, [&](std::uint32_t at, std::uint32_t length, std::uint32_t number) {
        const bool alive = (mask >> number & 1) != 0;
        for (std::uint32_t i = 0; i < length; ++i) delta[at + i] = alive ? live[i] : 0;
        if (alive) live += length;
    });
}

} // namespace cusz::cpu::CUSZ_ISA
