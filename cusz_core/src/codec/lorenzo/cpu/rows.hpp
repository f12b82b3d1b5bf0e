// The rows of a tile: walking along them, their memory, their neighbours, their length.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "archive/quantiser.hpp"
#include "archive/tiling.hpp"
#include "simd/isa.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Calls use(n) with the length of a tile's rows, as a constant if it is the length in full 2-D (64) or 3-D and 4-D (32)
// tiles: loops over such short rows then need no remainder handling.
template <class Use>
auto with_row_length(std::uint32_t n, const Use& use) {
    if (n == 32) return use(std::integral_constant<std::uint32_t, 32>{});
    if (n == 64) return use(std::integral_constant<std::uint32_t, 64>{});
    return use(n);
}

// Walks the rows of a tile, in tile order.
struct RowWalk {
    const TileBox& box;
    std::uint32_t row = 0, y = 0, z = 0, w = 0;
    std::uint64_t offset; // of the row's first value in the field

    explicit RowWalk(const TileBox& b) : box(b), offset(b.offset) {}
    bool inside() const { return w < box.edge[3]; }
    void next() {
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

// Calls use(position in the tile, offset in the field) with the first value of every row.
template <class Use>
void for_each_row(const TileBox& box, const Use& use) {
    for (RowWalk at(box); at.inside(); at.next()) use(at.row * box.edge[0], at.offset);
}

// Prefetches a tile's rows, one by one. They are too short for the processor to predict the next one.
template <class T, int to_write>
class Prefetch {
public:
    Prefetch(const T* field, const TileBox& box) : field_(field), at_(box) {}
    [[gnu::always_inline]] void row() { // without the attribute GCC treats it as free of side effects
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

// The rows that enter a row's Lorenzo differences (format.md, section 5). Rows outside the tile are zeros.
struct Neighbours {
    // Row numbers, or none.
    static constexpr std::uint32_t none = UINT32_MAX;
    std::uint32_t y;        // (w, z, y-1)
    std::uint32_t previous; // the predecessor along the first axis above 0 whose coordinate is not 0
    std::uint32_t z;        // (w, z-1, y); where z = 0: (w-1, z, y)
    std::uint32_t zy;       // the same at y-1

    explicit Neighbours(const RowWalk& at) {
        const std::uint32_t plane = at.box.edge[1], volume = plane * at.box.edge[2];
        y = at.y > 0 ? at.row - 1 : none;
        z = at.z > 0 ? at.row - plane : at.w > 0 ? at.row - volume : none;
        zy = z != none && at.y > 0 ? z - 1 : none;
        previous = y != none ? y : z;
    }
};

// A row and its four neighbours in differences and sums over up to three axes; zeros stand for rows outside the tile.
template <class T>
struct Rows {
    using Int = typename Traits<T>::Int;
    const Int *here, *y, *previous, *z, *zy;

    // row_at: maps a row's number to its values.
    template <class RowAt>
    Rows(const RowWalk& walk, const Int* zeros, const RowAt& row_at) {
        const Neighbours at(walk);
        const auto row = [&](std::uint32_t number) -> const Int* {
            return number == Neighbours::none ? zeros : row_at(number);
        };
        here = row(walk.row);
        y = row(at.y);
        previous = row(at.previous);
        z = row(at.z);
        zy = row(at.zy);
    }
};

} // namespace cusz::cpu::CUSZ_ISA
