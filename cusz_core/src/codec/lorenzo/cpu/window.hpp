// Where decoded tiles go: a box of the field, in memory with its own strides.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "buffer.hpp"
#include "codec/backend.hpp"
#include "tile.hpp"

namespace cusz::cpu {

template <class T>
class Window {
public:
    // selected.field == nullptr: no tile intersects it.
    Window(const Tiling& tiling, const Layout& layout, const Selection& selected)
        : tiling_(tiling), start_(by_axis(layout, selected.start, 0)), count_(by_axis(layout, selected.count, 1)),
          stride_(by_axis(layout, selected.stride, 1)), field_(static_cast<T*>(selected.field)) {}

    T* field() const { return field_; }

    // Prepares `tile` for decoding. Returns the memory that its box is relative to: field(), or `part` if only some of
    // the tile is wanted or its rows are not contiguous; null if none of it is wanted.
    T* begin(std::uint64_t number, Tile<T>& tile, Buffer& part) const {
        if (field_ == nullptr) return nullptr;
        const auto at = tiling_.origin(number);
        TileBox current = tiling_.box_at(at);
        const Meeting meeting = meet(at, current);
        if (meeting == Meeting::none) return nullptr;
        const std::uint64_t next = std::min(number + prefetch_distance, tiling_.n_tiles() - 1);
        const auto next_at = tiling_.origin(next);
        TileBox later = tiling_.box_at(next_at);
        later = meet(next_at, later) == Meeting::whole ? in_field(next_at, later) : TileBox{};
        if (meeting == Meeting::whole) {
            tile.begin(in_field(at, current), later);
            return field_;
        }
        current.offset = 0;
        for (std::size_t a = 1; a < 4; ++a) current.stride[a] = current.stride[a - 1] * current.edge[a - 1];
        tile.begin(current, later);
        return part.reserve<T>(max_tile_values);
    }

    // Copies the wanted part of a tile from the memory returned by begin().
    void copy(std::uint64_t number, const TileBox& tile, const T* part) const {
        const auto at = tiling_.origin(number);
        std::array<std::uint64_t, 4> first{}, n{};
        for (std::size_t a = 0; a < 4; ++a) {
            first[a] = std::max(at[a], start_[a]);
            n[a] = std::min(at[a] + tile.edge[a], start_[a] + count_[a]) - first[a];
        }
        for (std::uint64_t row = 0; row < n[1] * n[2] * n[3]; ++row) {
            const std::array<std::uint64_t, 4> i{0, row % n[1], row / n[1] % n[2], row / n[1] / n[2]};
            const T* from = part;
            T* to = field_;
            for (std::size_t a = 0; a < 4; ++a) {
                from += (first[a] - at[a] + i[a]) * tile.stride[a];
                to += (first[a] - start_[a] + i[a]) * stride_[a];
            }
            for (std::uint64_t x = 0; x < n[0]; ++x) to[x * stride_[0]] = from[x];
        }
    }

private:
    enum class Meeting { none, some, whole };

    // How much of a tile is wanted; `whole` only where it can be decoded in place.
    Meeting meet(const std::array<std::uint64_t, 4>& at, const TileBox& box) const {
        bool some = true, whole = stride_[0] == 1;
        for (std::size_t a = 0; a < 4; ++a) {
            const std::uint64_t end = at[a] + box.edge[a], end_of_window = start_[a] + count_[a];
            some &= at[a] < end_of_window && start_[a] < end;
            whole &= at[a] >= start_[a] && end <= end_of_window;
        }
        return whole ? Meeting::whole : some ? Meeting::some : Meeting::none;
    }

    // The box in the window's memory of a tile that is wanted whole.
    TileBox in_field(const std::array<std::uint64_t, 4>& at, TileBox box) const {
        box.offset = 0;
        for (std::size_t a = 0; a < 4; ++a) box.offset += (at[a] - start_[a]) * stride_[a];
        box.stride = stride_;
        return box;
    }

    const Tiling& tiling_;
    std::array<std::uint64_t, 4> start_, count_, stride_;
    T* field_;
};

} // namespace cusz::cpu
