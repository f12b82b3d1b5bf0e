#include "tiling.hpp"

#include <algorithm>

namespace cusz {

namespace {

using Edges = std::array<std::uint32_t, 4>;

constexpr Edges tile_start[4] = {{4096, 1, 1, 1}, {64, 64, 1, 1}, {32, 16, 8, 1}, {32, 16, 8, 1}};

std::uint32_t product(const Edges& e) { return e[0] * e[1] * e[2] * e[3]; }

} // namespace

void grow(Edges& tile, const std::array<std::uint64_t, 4>& extent) {
    for (bool changed = true; changed;) {
        changed = false;
        for (std::size_t a = 0; a < 4; ++a) {
            if (tile[a] >= extent[a]) continue;
            const auto wider = static_cast<std::uint32_t>(std::min<std::uint64_t>(2 * tile[a], extent[a]));
            if (product(tile) / tile[a] * wider > max_tile_values) continue;
            tile[a] = wider;
            changed = true;
        }
    }
}

Tiling::Tiling(int ndim, const std::uint64_t* shape) {
    for (int i = ndim - 1; i >= 0; --i)
        if (shape[i] != 1) extent_[static_cast<std::size_t>(dimensions_++)] = shape[i];
    dimensions_ = std::max(dimensions_, 1);

    static constexpr Edges group_start[4] = {{64, 1, 1, 1}, {8, 8, 1, 1}, {4, 4, 4, 1}, {4, 4, 4, 1}};
    static constexpr Edges subgroup_start[4] = {{8, 1, 1, 1}, {4, 2, 1, 1}, {2, 2, 2, 1}, {2, 2, 2, 1}};
    const auto k = static_cast<std::size_t>(dimensions_ - 1);

    for (std::size_t a = 0; a < 4; ++a)
        tile_[a] = static_cast<std::uint32_t>(std::min<std::uint64_t>(tile_start[k][a], extent_[a]));
    grow(tile_, extent_);

    for (std::size_t a = 0; a < 4; ++a) group_[a] = std::min(group_start[k][a], tile_[a]);
    while (Groups(tile_, group_).total > max_groups)
        for (std::size_t a = 0; a < 4 && Groups(tile_, group_).total > max_groups; ++a)
            group_[a] = std::min(2 * group_[a], tile_[a]);
    for (std::size_t a = 0; a < 4; ++a) subgroup_[a] = std::min(subgroup_start[k][a], group_[a]);

    n_tiles_ = 1;
    for (std::size_t a = 0; a < 4; ++a) {
        count_[a] = (extent_[a] - 1) / tile_[a] + 1;
        n_tiles_ *= count_[a];
    }
}

TileShape Tiling::shape() const {
    if (tile_ != tile_start[dimensions_ - 1]) return TileShape::any;
    constexpr TileShape shape_of[] = {TileShape::line, TileShape::square, TileShape::box, TileShape::box};
    return shape_of[dimensions_ - 1];
}

std::array<std::uint64_t, 4> Tiling::by_axis(int ndim, const std::uint64_t* shape, const std::uint64_t* given,
                                             std::uint64_t rest) {
    std::array<std::uint64_t, 4> out{rest, rest, rest, rest};
    std::size_t axis = 0;
    for (int i = ndim - 1; i >= 0; --i)
        if (shape[i] != 1) out[axis++] = given[i];
    return out;
}

std::uint64_t Tiling::first_value(std::uint64_t layer) const {
    const std::uint64_t row = std::min(layer * tile_[slowest()], extent_[slowest()]);
    return row * (extent_[0] * extent_[1] * extent_[2] * extent_[3] / extent_[slowest()]);
}

void Tiling::tile_shape(int ndim, const std::uint64_t* shape, std::uint64_t* out) const {
    std::size_t axis = 0;
    for (int i = ndim - 1; i >= 0; --i) out[i] = shape[i] == 1 ? 1 : tile_[axis++];
}

} // namespace cusz
