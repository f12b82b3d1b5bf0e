// What one thread works on: a tile between its values and its payload. Everything fits in a core's caches.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "../alphabet.hpp"
#include "../params.hpp"
#include "../tiling.hpp"

namespace cusz::cpu {

// Rows of quantised values have one value in front of them, the padding of the paper's section 3.1.1, which is 0. The
// shortest rows of a tile of many rows have 2 values.
inline constexpr std::size_t padded_values = max_tile_values / 2 * 3;

// Predictors (docs/format.md, section 5): the Lorenzo orders 0 to 3, and order 3 with second differences.
enum Predictor : std::uint32_t { second_xy = 4, second_xyz = 5, n_predictors = 6 };

// Head of a payload (docs/format.md, section 8).
enum TileKind : std::uint32_t { tile_coded = 0, tile_special = 1, tile_raw = 2 };
inline constexpr std::uint32_t head_mask = 1u << 6, head_holes = 1u << 7, head_outliers = 1u << 8, head_flat = 1u << 9,
                               head_fine = 1u << 14;

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
    TileBox ahead; // a tile that will be worked on soon: its memory is asked for meanwhile
    Int anchor;
    bool has_holes;
    std::uint8_t hole[max_tile_values];              // valid if has_holes
    alignas(64) Int padded[padded_values];           // u = q - anchor, rows behind their padding
    alignas(64) Int zeros[max_tile_values + 1] = {}; // the rows outside the tile
    // Inside the alphabet, or hole_delta; and room to copy a whole group's edge behind the last value.
    alignas(64) std::int32_t delta[2 * max_tile_values];
    alignas(64) std::int32_t live[2 * max_tile_values]; // the coded ones, where there is a mask
    Outliers<Int> delta_outliers;
    Outliers<Bits> value_outliers;

    std::uint32_t n_values() const { return box.values(); }
    Int* row(std::uint32_t r) { return padded + r * (box.edge[0] + 1) + 1; }

    // Prepares for a tile. Two tiles are time enough for the memory to answer (docs/performance.md).
    void begin(const Tiling& tiling, std::uint64_t number) {
        box = tiling.box(number);
        ahead = tiling.box(std::min(number + 2, tiling.n_tiles() - 1));
        has_holes = false;
        delta_outliers.count = value_outliers.count = 0;
    }

    // Position in the field of the value at `position` in tile order.
    std::uint64_t field_offset(std::uint32_t position) const {
        const std::uint32_t x = position % box.edge[0], row = position / box.edge[0];
        const std::uint32_t y = row % box.edge[1], zw = row / box.edge[1];
        return box.offset + x + y * box.stride[1] + zw % box.edge[2] * box.stride[2] + zw / box.edge[2] * box.stride[3];
    }
};

// Walks along the rows of a tile, in tile order.
struct RowWalk {
    const TileBox& box;
    std::uint32_t row = 0, y = 0, z = 0, w = 0;
    std::uint64_t offset; // of the row's first value in the field

    [[gnu::always_inline]] explicit RowWalk(const TileBox& b) : box(b), offset(b.offset) {}
    bool inside() const { return w < box.edge[3]; }
    [[gnu::always_inline]] void next() {
        ++row;
        offset += box.stride[1];
        if (++y < box.edge[1]) return;
        y = 0;
        if (++z == box.edge[2]) {
            z = 0;
            ++w;
        }
        offset = box.offset + z * box.stride[2] + w * box.stride[3];
    }
};

// Asks for the memory of a tile's rows, one after the other. They are too short for the processor to foresee the next.
template <class T, int to_write>
class Prefetch {
public:
    Prefetch(const T* field, const TileBox& box) : field_(field), at_(box) {}
    [[gnu::always_inline]] void row() { // without this attribute GCC takes it for a function of no effect
        if (!at_.inside()) return;
        const T* const values = field_ + at_.offset;
        for (std::uint32_t x = 0; x < at_.box.edge[0]; x += 64 / sizeof(T))
            __builtin_prefetch(values + x, to_write, to_write ? 2 : 3);
        at_.next();
    }

private:
    const T* field_;
    RowWalk at_;
};

// The rows that a row's Lorenzo differences take (docs/format.md, section 5). Rows outside the tile are zeros.
struct Neighbours {
    // Row numbers, or none.
    static constexpr std::uint32_t none = UINT32_MAX;
    std::uint32_t y;        // (w, z, y-1)
    std::uint32_t previous; // the predecessor along the first axis above 0 whose coordinate is not 0
    std::uint32_t z;        // (w, z-1, y); where z = 0: (w-1, z, y)
    std::uint32_t zy;       // the same at y-1

    [[gnu::always_inline]] explicit Neighbours(const RowWalk& at) {
        const std::uint32_t plane = at.box.edge[1], volume = plane * at.box.edge[2];
        y = at.y > 0 ? at.row - 1 : none;
        z = at.z > 0 ? at.row - plane : at.w > 0 ? at.row - volume : none;
        zy = z != none && at.y > 0 ? z - 1 : none;
        previous = y != none ? y : z;
    }
};

} // namespace cusz::cpu
