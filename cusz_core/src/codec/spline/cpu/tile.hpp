// A tile of a lattice on its way between values and payload (docs/format_v2.md, section 2): one box in memory for each
// parity class, with room around it for what lies beyond the tile.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "archive/alphabet.hpp"
#include "archive/pyramid.hpp"
#include "archive/quantiser.hpp"
#include "archive/tiling.hpp"
#include "buffer.hpp"
#include "codec/spline/rans_model.hpp"
#include "simd/lane_room.hpp"

namespace cusz::cpu {

// A box of half coordinates. All arrays of a tile (values, codes, ..) and all its classes have the same strides, so a
// row is at the same place in each.
struct ClassBox {
    std::array<std::uint32_t, 4> n{};      // half coordinates in the tile
    std::array<std::uint32_t, 4> margin{}; // positions before them: 1 along active axes that are even here
    std::array<std::uint32_t, 4> padded{}; // positions with those before and behind
    std::array<std::size_t, 4> stride{};
    std::size_t offset = 0; // of the first position
    std::size_t first = 0;  // of the first point of the tile

    std::uint32_t points() const { return n[0] * n[1] * n[2] * n[3]; }
    // Of a point of the tile.
    std::size_t at(std::uint32_t x, std::uint32_t y, std::uint32_t z, std::uint32_t w) const {
        return first + x + y * stride[1] + z * stride[2] + w * stride[3];
    }
};

inline constexpr std::size_t vector_room = 64; // bytes, and positions, that a vector may run over the end of memory

// The boxes of the classes of a tile with these edges, and the positions that a class takes up.
struct TileBoxes {
    std::array<ClassBox, v2::n_classes> box;
    std::size_t class_size = 0;

    constexpr TileBoxes() = default;
    // For every instruction set anew, as all here that is called.
    [[gnu::always_inline]] constexpr TileBoxes(std::uint32_t n_active, const std::array<std::uint32_t, 4>& edge) {
        for (std::uint32_t c = 0; c < 1u << n_active; ++c) {
            ClassBox& b = box[c];
            for (std::uint32_t a = 0; a < 4; ++a) {
                const bool active = a < n_active, odd = (c >> a & 1) != 0;
                b.n[a] = active ? (edge[a] + !odd) / 2 : edge[a];
                b.margin[a] = active && !odd;
                b.padded[a] = b.n[a] + 3 * b.margin[a];
            }
            if (c == 0) {
                b.stride = {1, (b.padded[0] + lane_room - 1) / lane_room * lane_room, 0, 0};
                b.stride[2] = b.stride[1] * b.padded[1];
                b.stride[3] = b.stride[2] * b.padded[2];
                class_size = b.stride[3] * b.padded[3] + vector_room;
            }
            b.stride = box[0].stride;
            // Rows of the tile begin at multiples of lane_room; what lies before a row is at the end of the row before.
            b.offset = c * class_size + lane_room - b.margin[0];
            b.first = b.offset;
            for (std::size_t a = 0; a < 4; ++a) b.first += b.margin[a] * b.stride[a];
        }
    }
};

// Geometry of tiles as compile-time constants for most of a large field's; `any` stands for the others.
enum class Geometry : std::uint32_t { any, full_2d, full_3d };
constexpr std::uint32_t active_axes(Geometry geometry) { return geometry == Geometry::full_2d ? 2 : 3; }

// Values in coding order, each group's after the other's.
struct InOrder {
    std::uint8_t place[max_tile_values + vector_room];  // of the context in its row
    std::uint8_t direct[max_tile_values + vector_room]; // the code, in a byte
    std::uint8_t magnitude[max_tile_values + vector_room];
};

// What a tile needs only while one of its phases is worked on. Tiles that are decoded side by side share it, as all
// that is kept for each of them should fit into a processor's cache.
struct SplineScratch {
    // All in one buffer; by position, as ClassBox has it.
    std::int32_t* code = nullptr;    // missing_code: special
    std::uint8_t* direct = nullptr;  // the code in a byte, for those that fit
    std::uint8_t* spread = nullptr;  // S
    std::uint8_t* context = nullptr; // its place in its row

    InOrder in_order;
    std::uint8_t group_context[max_tile_values]; // in coding order
    std::int32_t code_in_order[max_tile_values + vector_room];
    std::uint16_t extra[max_tile_values * 2 + 8]; // extra bits

    // Room for so many positions. What was there is lost if it was less.
    [[gnu::always_inline]] void reserve(std::size_t size) {
        if (size > size_) allocate(size);
    }
    std::size_t bytes() const { return memory_.bytes(); }

private:
    void allocate(std::size_t size) {
        size_ = (size + 63) / 64 * 64;
        const std::size_t bytes = size_ * (sizeof *code + 3);
        auto* const at = static_cast<std::byte*>(memory_.reserve(bytes));
        std::memset(at, 0, bytes); // rows are worked on in whole vectors, beyond what was written
        code = reinterpret_cast<std::int32_t*>(at);
        direct = reinterpret_cast<std::uint8_t*>(code + size_);
        spread = direct + size_;
        context = spread + size_;
    }

    Buffer memory_;
    std::size_t size_ = 0;
};

template <class T>
struct SplineTile {
    explicit SplineTile(SplineScratch& shared) : scratch(shared) {}

    std::uint32_t n_active = 0;
    LatticeTile place{};
    Geometry geometry = Geometry::any;
    // How much further on in the field, and in the coarser lattice, a tile lies whose values are to be brought nearer.
    std::ptrdiff_t later = 0, later_coarse = 0;
    std::array<ClassBox, v2::n_classes> box;
    std::uint32_t classes() const { return 1u << n_active; }

    SplineScratch& scratch;
    // In one buffer; by position, as ClassBox has it.
    T* value = nullptr; // to predict from
    std::uint8_t* magnitude = nullptr;

    // Of the groups of a phase, in coding order.
    std::uint8_t group_size[max_tile_values], flag[max_tile_values];
    // Of values in significant groups, in coding order.
    std::uint8_t table[max_tile_values + vector_room], symbol[max_tile_values + vector_room];

    // Verbatim values, by position in the tile.
    std::uint32_t n_verbatim = 0;
    std::uint16_t verbatim_at[max_tile_values];
    typename Traits<T>::Bits verbatim[max_tile_values];
    bool has_special = false;         // among the tile's coded points
    bool has_parents = false;         // a magnitude of the coarser lattice, in the tile or around it, is not 0
    bool has_special_parents = false; // one of them is special

    [[gnu::always_inline]] void begin(const Lattice& lattice, const LatticeTile& at) {
        place = at;
        n_active = lattice.n_active;
        later = later_coarse = 0;
        n_verbatim = 0;
        has_special = has_parents = has_special_parents = false;
        geometry = place.edge != tile_edges(n_active) ? Geometry::any
                   : n_active == 3                    ? Geometry::full_3d
                   : n_active == 2                    ? Geometry::full_2d
                                                      : Geometry::any;
        const TileBoxes boxes(n_active, place.edge);
        box = boxes.box;
        const std::size_t size = classes() * boxes.class_size + vector_room;
        scratch.reserve(size);
        if (size > size_) allocate(size);
        std::memset(magnitude, 0, size);
    }
    std::size_t bytes() const { return memory_.bytes(); }

private:
    void allocate(std::size_t size) {
        size_ = (size + 63) / 64 * 64;
        const std::size_t bytes = size_ * (sizeof *value + 1);
        auto* const at = static_cast<std::byte*>(memory_.reserve(bytes));
        std::memset(at, 0, bytes); // as in the scratch
        value = reinterpret_cast<T*>(at);
        magnitude = reinterpret_cast<std::uint8_t*>(value + size_);
    }

    Buffer memory_;
    std::size_t size_ = 0;
};

// The box of a class. Of a geometry that is known, all classes have the same extents and strides, which are constants.
template <Geometry geometry, class T>
[[gnu::always_inline]] inline ClassBox box_of(const SplineTile<T>& tile, std::uint32_t c) {
    ClassBox box = tile.box[c];
    if constexpr (geometry != Geometry::any) {
        constexpr ClassBox full = TileBoxes(active_axes(geometry), tile_edges(active_axes(geometry))).box[0];
        box.n = full.n;
        box.stride = full.stride;
    }
    return box;
}

} // namespace cusz::cpu
