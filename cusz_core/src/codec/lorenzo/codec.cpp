#include "codec.hpp"

#include "archive/tiling.hpp"

namespace cusz::lorenzo {

TileGrid tiles(const Layout& layout, const Coding&) {
    const Tiling tiling(layout.ndim, layout.shape.data());
    TileGrid grid{.n = tiling.n_tiles(), .index_bytes = (tiling.n_tiles() + 1) / 2 * 4};
    tiling.tile_shape(layout.ndim, layout.shape.data(), grid.shape);
    return grid;
}

} // namespace cusz::lorenzo
