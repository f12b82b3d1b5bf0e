// What one thread works on: a tile between its values and its payload. Everything fits in a core's caches.
#pragma once

#include <array>
#include <cstdint>

#include "../alphabet.hpp"
#include "../params.hpp"
#include "../tiling.hpp"

namespace cusz::cpu {

// Rows of quantised values have one value in front of them, the padding of the paper's section 3.1.1, which is 0. The
// shortest rows of a tile of many rows have 2 values.
inline constexpr std::size_t padded_values = max_tile_values / 2 * 3;

// Head of a payload (docs/format.md, section 8).
enum TileKind : std::uint32_t { tile_coded = 0, tile_special = 1, tile_raw = 2 };
inline constexpr std::uint32_t head_mask = 1u << 6, head_holes = 1u << 7, head_outliers = 1u << 8, head_flat = 1u << 9;

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

template <class T>
struct Tile {
    using Int = typename Traits<T>::Int;
    using Bits = typename Traits<T>::Bits;

    TileBox box;
    Int anchor;
    bool has_holes;
    std::uint8_t hole[max_tile_values];              // valid if has_holes
    alignas(64) Int padded[padded_values];           // u = q - anchor, rows behind their padding
    alignas(64) Int zeros[max_tile_values + 1] = {}; // the rows outside the tile
    alignas(64) std::int32_t delta[max_tile_values]; // inside the alphabet, or hole_delta
    alignas(64) std::int32_t live[max_tile_values];  // the coded ones, where there is a mask
    Outliers<Int> delta_outliers;
    Outliers<Bits> value_outliers;

    std::uint32_t n_values() const { return box.values(); }
    Int* row(std::uint32_t r) { return padded + r * (box.edge[0] + 1) + 1; }

    // Prepares for a tile of this box.
    void begin(const TileBox& b) {
        box = b;
        has_holes = false;
        delta_outliers.count = value_outliers.count = 0;
    }

    // Position in the field of the value at `position` in tile order.
    std::uint64_t field_offset(std::uint32_t position) const {
        const std::uint32_t x = position % box.edge[0], row = position / box.edge[0];
        return row_offset(row) + x;
    }
    std::uint64_t row_offset(std::uint32_t row) const {
        const std::uint32_t y = row % box.edge[1], zw = row / box.edge[1];
        return box.offset + y * box.stride[1] + zw % box.edge[2] * box.stride[2] + zw / box.edge[2] * box.stride[3];
    }
};

// The rows that a row's Lorenzo differences take (docs/format.md, section 5). Rows outside the tile are zeros.
struct Neighbours {
    // Row numbers, or none.
    static constexpr std::uint32_t none = UINT32_MAX;
    std::uint32_t y;        // (w, z, y-1)
    std::uint32_t previous; // the predecessor along the first axis above 0 whose coordinate is not 0
    std::uint32_t z;        // (w, z-1, y); where z = 0: (w-1, z, y)
    std::uint32_t zy;       // the same at y-1

    Neighbours(const std::array<std::uint32_t, 4>& edge, std::uint32_t row) {
        const std::uint32_t y_at = row % edge[1], z_at = row / edge[1] % edge[2], w_at = row / edge[1] / edge[2];
        const std::uint32_t plane = edge[1], volume = edge[1] * edge[2];
        y = y_at > 0 ? row - 1 : none;
        z = z_at > 0 ? row - plane : w_at > 0 ? row - volume : none;
        zy = z != none && y_at > 0 ? z - 1 : none;
        previous = y != none ? y : z;
    }
};

} // namespace cusz::cpu
