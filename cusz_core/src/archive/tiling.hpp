// Cuts a field into tiles, and a tile into the groups of its significance masks (docs/reference/format.md, section 3).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace cusz {

inline constexpr std::uint32_t max_tile_values = 4096;
inline constexpr std::uint32_t max_groups = 64;

// Where one tile lies in the field. Axis 0 is the fastest.
struct TileBox {
    std::uint64_t offset;                // of its first value in the field
    std::array<std::uint32_t, 4> edge;   // after clipping
    std::array<std::uint64_t, 4> stride; // of the field
    constexpr std::uint32_t values() const { return edge[0] * edge[1] * edge[2] * edge[3]; }
    constexpr std::uint32_t rows() const { return edge[1] * edge[2] * edge[3]; }
};

// Shapes of tiles before clipping: line (4096), square (64x64) and box (8x16x32), for fields of one, two and more
// dimensions. Others occur only where an extent is shorter than the edge of the tile.
enum class TileShape { any, line, square, box };

// Doubles the edges of a tile in turn, up to the extents, as long as it keeps to max_tile_values (section 3, step 3).
void grow(std::array<std::uint32_t, 4>& tile, const std::array<std::uint64_t, 4>& extent);

class Tiling {
public:
    // shape: ndim extents, slowest first, none of them 0.
    Tiling(int ndim, const std::uint64_t* shape);

    constexpr std::uint64_t n_tiles() const { return n_tiles_; }
    constexpr int dimensions() const { return dimensions_; } // dimensions of extent > 1; at least 1
    TileShape shape() const;
    // Edges along axis 0 are at most 64, and powers of two where shorter than a full tile's.
    constexpr const std::array<std::uint32_t, 4>& group() const { return group_; }
    constexpr const std::array<std::uint32_t, 4>& subgroup() const { return subgroup_; }
    constexpr TileBox box(std::uint64_t tile) const { return box_at(origin(tile)); }
    // Position of a tile's first value along every axis.
    constexpr std::array<std::uint64_t, 4> origin(std::uint64_t tile) const {
        std::array<std::uint64_t, 4> at{};
        for (std::size_t a = 0; a < 4; ++a) {
            at[a] = tile % count_[a] * tile_[a];
            tile /= count_[a];
        }
        return at;
    }
    constexpr TileBox box_at(const std::array<std::uint64_t, 4>& origin) const {
        TileBox box{};
        std::uint64_t stride = 1;
        for (std::size_t a = 0; a < 4; ++a) {
            box.edge[a] = static_cast<std::uint32_t>(std::min<std::uint64_t>(tile_[a], extent_[a] - origin[a]));
            box.stride[a] = stride;
            box.offset += origin[a] * stride;
            stride *= extent_[a];
        }
        return box;
    }
    // Reorders `given` (one number per dimension, slowest first) by axis. Axes that the field lacks get `rest`.
    static std::array<std::uint64_t, 4> by_axis(int ndim, const std::uint64_t* shape, const std::uint64_t* given,
                                                std::uint64_t rest);
    // Layers of tiles along the slowest axis. Each is one contiguous run of tiles and of values.
    std::uint64_t layers() const { return count_[slowest()]; }
    std::uint64_t tiles_of_layer() const { return layers() == 0 ? 0 : n_tiles_ / layers(); }
    std::uint64_t first_value(std::uint64_t layer) const; // of a layer; for layer `layers()`, the end of the field
    // Writes the full tile's shape in the field's own dimensions, slowest first.
    void tile_shape(int ndim, const std::uint64_t* shape, std::uint64_t* out) const;

private:
    std::size_t slowest() const { return static_cast<std::size_t>(dimensions_ - 1); }

    int dimensions_ = 0;
    std::array<std::uint64_t, 4> extent_{1, 1, 1, 1};
    std::array<std::uint32_t, 4> tile_{1, 1, 1, 1};
    std::array<std::uint32_t, 4> group_{1, 1, 1, 1}, subgroup_{1, 1, 1, 1};
    std::array<std::uint64_t, 4> count_{1, 1, 1, 1}; // tiles along each axis
    std::uint64_t n_tiles_ = 0;
};

// Groups, or subgroups, along each axis of a (clipped) tile, and their number.
struct Groups {
    constexpr Groups(const std::array<std::uint32_t, 4>& edge, const std::array<std::uint32_t, 4>& group) {
        for (std::size_t a = 0; a < 4; ++a) {
            count[a] = (edge[a] + group[a] - 1) / group[a];
            total *= count[a];
        }
    }
    std::array<std::uint32_t, 4> count{};
    std::uint32_t total = 1;
};

} // namespace cusz
