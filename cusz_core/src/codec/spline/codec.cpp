#include "codec.hpp"

#include "archive/pyramid.hpp"
#include "archive/revision_2/frame.hpp"

namespace cusz::spline {

bool can_code(const Layout& layout) { return halvable_axes(layout.ndim, layout.shape.data(), 15) != 0; }

TileGrid tiles(const Layout& layout, const Coding& coding) {
    const Pyramid pyramid(layout.ndim, layout.shape.data(), coding.spline.halved);
    TileGrid grid{.n = pyramid.n_tiles, .index_bytes = (pyramid.n_tiles + 1) / 2 * 4};
    pyramid.tile_shape(layout.ndim, layout.shape.data(), grid.shape);
    return grid;
}

bool can_code_compact(const Layout&) { return true; }

TileGrid compact_tiles(const Layout& layout, const Coding& coding) {
    const Pyramid pyramid(layout.ndim, layout.shape.data(), coding.spline.compact.axes);
    if (pyramid.n_coded() == 0) return {}; // a single value
    TileGrid grid{.n = pyramid.n_tiles, .index_bytes = revision_2::index_bytes(pyramid)};
    pyramid.tile_shape(layout.ndim, layout.shape.data(), grid.shape);
    return grid;
}

} // namespace cusz::spline
