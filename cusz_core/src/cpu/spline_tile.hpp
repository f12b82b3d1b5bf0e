// A tile of a lattice on its way between values and payload (docs/format_v2.md, section 2): one box in memory for each
// parity class, with room around it for what lies beyond the tile.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../format/alphabet.hpp"
#include "../format/pyramid.hpp"
#include "../format/rans_model.hpp"
#include "../format/tiling.hpp"
#include "../memory.hpp"
#include "../params.hpp"

namespace cusz::cpu {

inline constexpr std::uint32_t n_classes = 8;
inline constexpr std::uint8_t special_magnitude = 255;

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

inline constexpr std::uint32_t lane_room = 16; // positions that a vector may run over the end of a row

template <class T>
struct SplineTile {
    std::uint32_t n_active = 0;
    LatticeTile place{};
    std::array<ClassBox, n_classes> box;
    std::uint32_t classes() const { return 1u << n_active; }

    // All in one buffer; by position, as ClassBox has it.
    T* value = nullptr;             // to predict from
    T* original = nullptr;          // while it is compressed
    std::int32_t* code = nullptr;   // missing_code: special
    std::uint8_t* direct = nullptr; // code + 32, if has_large is false
    std::uint8_t* magnitude = nullptr;
    std::uint8_t* context = nullptr; // place: S * 9 + N
    std::uint8_t* spread = nullptr;  // S
    std::uint8_t* parents = nullptr; // P, by half coordinates: the layout of `parents_stride`
    std::array<std::size_t, 4> parents_stride{};

    // In coding order.
    std::uint16_t entry[2 * max_tile_values + 64]; // table * 256 + symbol
    std::uint8_t table[max_tile_values + 64], symbol[max_tile_values + 64];
    std::int32_t decoded[max_tile_values + 64];
    std::uint8_t flag[max_tile_values + 64];
    std::uint16_t extra[max_tile_values * 2 + 8];  // extra bits
    std::uint16_t words[2 * max_tile_values + 64]; // states and words, from the end

    // Verbatim values, by position in the tile.
    std::uint32_t n_verbatim = 0;
    std::uint16_t verbatim_at[max_tile_values];
    typename Traits<T>::Bits verbatim[max_tile_values];
    bool has_special = false;
    bool has_large = false; // a code without a symbol of its own, or a special value

    void begin(const Lattice& lattice, std::uint64_t number) {
        place = tile_of(lattice, number);
        n_active = lattice.n_active;
        n_verbatim = 0;
        has_special = has_large = false;
        std::size_t class_size = 0;
        for (std::uint32_t c = 0; c < classes(); ++c) {
            ClassBox& b = box[c];
            for (std::uint32_t a = 0; a < 4; ++a) {
                const bool active = a < n_active, odd = (c >> a & 1) != 0;
                b.n[a] = active ? (place.edge[a] + !odd) / 2 : place.edge[a];
                b.margin[a] = active && !odd;
                b.padded[a] = b.n[a] + 3 * b.margin[a];
            }
            if (c == 0) {
                b.stride = {1, (b.padded[0] + lane_room - 1) / lane_room * lane_room, 0, 0};
                b.stride[2] = b.stride[1] * b.padded[1];
                b.stride[3] = b.stride[2] * b.padded[2];
                class_size = b.stride[3] * b.padded[3] + 2 * lane_room;
            }
            b.stride = box[0].stride;
            // Rows of the tile begin at multiples of lane_room; what lies before a row is at the end of the row before.
            b.offset = c * class_size + lane_room - b.margin[0];
            b.first = b.offset;
            for (std::size_t a = 0; a < 4; ++a) b.first += b.margin[a] * b.stride[a];
        }
        const std::size_t size = classes() * class_size + lane_room;
        parents_stride = {1, (box[0].n[0] + lane_room - 1) / lane_room * lane_room, 0, 0};
        parents_stride[2] = parents_stride[1] * box[0].n[1];
        parents_stride[3] = parents_stride[2] * box[0].n[2];
        const std::size_t n_parents = parents_stride[3] * box[0].n[3] + lane_room;
        if (size > size_ || n_parents > n_parents_) allocate(std::max(size, size_), std::max(n_parents, n_parents_));
        std::memset(magnitude, 0, size);
    }
    std::size_t bytes() const { return memory_.bytes(); }

private:
    void allocate(std::size_t size, std::size_t n_parents) {
        size_ = (size + 63) / 64 * 64;
        n_parents_ = (n_parents + 63) / 64 * 64;
        const std::size_t bytes = size_ * (2 * sizeof(T) + 4 + 4) + n_parents_;
        auto* at = static_cast<std::byte*>(memory_.reserve(bytes));
        std::memset(at, 0, bytes); // rows are worked on in whole vectors, beyond what was written
        const auto take = [&](auto*& pointer, std::size_t count) {
            pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(at);
            at += count * sizeof *pointer;
        };
        take(value, size_);
        take(original, size_);
        take(code, size_);
        take(magnitude, size_);
        take(direct, size_);
        take(context, size_);
        take(spread, size_);
        take(parents, n_parents_);
    }

    Buffer memory_;
    std::size_t size_ = 0, n_parents_ = 0;
};

} // namespace cusz::cpu
