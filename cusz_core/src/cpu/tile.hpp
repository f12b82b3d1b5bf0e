// What one thread works on: a tile between its values and its payload. Everything fits in a core's caches.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "../format/alphabet.hpp"
#include "../format/tiling.hpp"
#include "../format/v1.hpp"
#include "../params.hpp"

namespace cusz::cpu {

// Rows of quantised values have one value in front of them, the padding of the paper's section 3.1.1, which is 0. The
// shortest rows of a tile of many rows have 2 values.
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

// A tile ready to be coded: what its payload holds in front of the codes and behind them, and the codes between.
struct PreparedTile {
    v1::TileHeader header; // without the lengths of the substreams
    std::uint32_t front_words = 0, n = 0, back_words = 0;
    Counts counts; // unless the tile is stored raw
    const std::uint32_t* front = nullptr;
    const std::int32_t* code = nullptr; // n of them
    const std::uint32_t* back = nullptr;
};

// Words in front of the codes, at most: anchor, counts, masks. A tile has far fewer subgroups than values, so that the
// mask's last bits may be written by eight bytes.
inline constexpr std::size_t longest_front = 2 + 1 + 2 + max_tile_values / 32;

// How many tiles ahead memory is asked for: two are time enough for it to answer (docs/performance.md).
inline constexpr std::uint64_t tiles_ahead = 2;

template <class T>
struct Tile {
    using Int = typename Traits<T>::Int;
    using Bits = typename Traits<T>::Bits;

    TileBox box;
    TileBox ahead; // of a tile that will be worked on soon: its memory is asked for meanwhile
    Int anchor;
    bool has_missing;
    std::uint8_t missing[max_tile_values];           // valid if has_missing
    alignas(64) Int padded[padded_values];           // u = q - anchor, rows behind their padding
    alignas(64) Int zeros[max_tile_values + 1] = {}; // the rows outside the tile
    // Inside the alphabet, or missing_code; and room to copy a whole group's edge behind the last value.
    alignas(64) std::int32_t code[2 * max_tile_values];
    alignas(64) std::int32_t significant[2 * max_tile_values]; // the coded ones, where there is a mask
    Outliers<Int> out_of_range;
    Outliers<Bits> unpredictable;
    std::uint32_t front[longest_front];
    std::uint32_t back[2 * (max_tile_values / 2 + max_tile_values * words_of<T>)]; // outliers as the payload has them

    std::uint32_t n_values() const { return box.values(); }
    Int* row(std::uint32_t r) { return padded + r * (box.edge[0] + 1) + 1; }

    // Prepares for a tile, and for one that comes later.
    void begin(const TileBox& own, const TileBox& later) {
        box = own;
        ahead = later;
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
