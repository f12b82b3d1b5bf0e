// Zero groups: small boxes of a tile whose deltas are all 0 cost one bit together (docs/format.md, sections 3 and 6).
// Below one bit a value, where Huffman codes cannot go.
#pragma once

#include <bit>

#include "tile.hpp"

namespace cusz::cpu {

struct LiveGroups {
    std::uint64_t mask = 0; // bit g: group g has a delta that is not 0
    std::uint32_t total = 0;
    std::uint32_t dead() const { return total - static_cast<std::uint32_t>(std::popcount(mask)); }
    std::uint32_t words() const { return total > 32 ? 2 : 1; }
};

// Finds the live groups in n = box.values() deltas in tile order.
LiveGroups find_live_groups(const std::int32_t* delta, const TileBox& box, const std::array<std::uint32_t, 4>& group);

// Number of values in live groups.
std::uint32_t count_live(std::uint64_t mask, const TileBox& box, const std::array<std::uint32_t, 4>& group);

// Copies the deltas of live groups, in tile order, and returns their number; and the inverse, with 0 in dead groups.
std::uint32_t gather_live(const std::int32_t* delta, std::uint64_t mask, const TileBox& box,
                          const std::array<std::uint32_t, 4>& group, std::int32_t* live);
void scatter_live(const std::int32_t* live, std::uint64_t mask, const TileBox& box,
                  const std::array<std::uint32_t, 4>& group, std::int32_t* delta);

} // namespace cusz::cpu
