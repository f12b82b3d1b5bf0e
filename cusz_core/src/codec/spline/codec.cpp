#include "codec.hpp"

#include "archive/pyramid.hpp"

namespace cusz::spline {

bool can_code(const Layout& layout) { return halvable_axes(layout.ndim, layout.shape.data(), 15) != 0; }

TileGrid tiles(const Layout& layout, const Coding& coding) {
    const Pyramid pyramid(layout.ndim, layout.shape.data(), coding.spline.halved);
    TileGrid grid{.n = pyramid.n_tiles};
    pyramid.tile_shape(layout.ndim, layout.shape.data(), grid.shape);
    return grid;
}

} // namespace cusz::spline
