// A thread's working memory: one tile on its way between values and payload. It fits in a core's caches.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "archive/alphabet.hpp"
#include "archive/quantiser.hpp"
#include "archive/tiling.hpp"
#include "archive/v1.hpp"

namespace cusz::cpu {

// Each row of quantised values is preceded by one 0, the padding of the paper's section 3.1.1. A tile has at most
// max_tile_values / 2 rows, because the rows of full tiles have at least 2 values.
inline constexpr std::size_t padded_values = max_tile_values / 2 * 3;

template <class V>
struct Outliers {
    std::uint32_t count = 0;
    std::uint16_t position[max_tile_values];
    V value[max_tile_values];

    void add(std::uint32_t at, V v) {
        position[count] = static_cast<std::uint16_t>(at);
        value[count++] = v;
    }
};

struct Counts {
    std::uint64_t special = 0, out_of_range = 0, unpredictable = 0;
    Counts& operator+=(const Counts& other) {
        special += other.special;
        out_of_range += other.out_of_range;
        unpredictable += other.unpredictable;
        return *this;
    }
};

// A tile ready to be coded: the parts of its payload before and after the codes, and the codes themselves.
struct PreparedTile {
    v1::TileHeader header; // without the lengths of the substreams
    std::uint32_t front_words = 0, n = 0, back_words = 0;
    Counts counts; // unless the tile is stored raw
    const std::uint32_t* front = nullptr;
    const std::int32_t* code = nullptr; // n of them
    const std::uint32_t* back = nullptr;
};

// Upper bound on the words before the codes: anchor, counts, masks. A tile has far fewer subgroups than values, so
// there is room to write the fine mask's last bits as eight bytes.
inline constexpr std::size_t longest_front = 2 + 1 + 2 + max_tile_values / 32;

// How many tiles ahead to prefetch: two give memory enough time to respond (docs/design/decisions.md).
inline constexpr std::uint64_t prefetch_distance = 2;

template <class T>
struct Tile {
    using Int = typename Traits<T>::Int;
    using Bits = typename Traits<T>::Bits;

    TileBox box;
    TileBox prefetched; // a later tile, whose memory is prefetched in the meantime
    Int anchor;
    bool has_missing;
    std::uint8_t missing[max_tile_values];           // valid if has_missing
    alignas(64) Int padded[padded_values];           // u = q - anchor, each row after its padding
    alignas(64) Int zeros[max_tile_values + 1] = {}; // stands for rows outside the tile
    // Codes in the alphabet, or missing_code; with room for copying a whole group's edge from the last value on.
    alignas(64) std::int32_t code[2 * max_tile_values];
    alignas(64) std::int32_t significant[2 * max_tile_values]; // the codes to encode, if there is a mask
    Outliers<Int> out_of_range;
    Outliers<Bits> unpredictable;
    std::uint32_t front[longest_front];
    std::uint32_t back[2 * (max_tile_values / 2 + max_tile_values * words_of<T>)]; // outliers as stored in the payload

    std::uint32_t n_values() const { return box.values(); }
    Int* row(std::uint32_t r) { return padded + r * (box.edge[0] + 1) + 1; }

    // Starts a tile; `later` is the one to prefetch.
    void begin(const TileBox& current, const TileBox& later) {
        box = current;
        prefetched = later;
        has_missing = false;
        out_of_range.count = unpredictable.count = 0;
    }

    // Position in the field of the value at `position` in tile order.
    std::uint64_t field_offset(std::uint32_t position) const {
        const std::uint32_t x = position % box.edge[0], row = position / box.edge[0];
        const std::uint32_t y = row % box.edge[1], zw = row / box.edge[1];
        return box.offset + x + y * box.stride[1] + zw % box.edge[2] * box.stride[2] + zw / box.edge[2] * box.stride[3];
    }
};

} // namespace cusz::cpu
