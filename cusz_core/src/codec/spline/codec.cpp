#include "codec.hpp"

#include "archive/pyramid.hpp"
#include "archive/v2/frame.hpp"

namespace cusz::spline {

TileGrid tiles(const Layout& layout, const Coding& coding) {
    const Pyramid pyramid(layout.ndim, layout.shape.data(), coding.interpolation.axes);
    if (pyramid.n_coded() == 0) return {}; // a single value
    TileGrid grid{.n = pyramid.n_tiles, .index_bytes = v2::index_bytes(pyramid)};
    pyramid.tile_shape(layout.ndim, layout.shape.data(), grid.shape);
    return grid;
}

v2::Front front_of(const Layout& layout, const Coding& coding, v2::Kind kind) {
    v2::Front front{.kind = kind, .layout = layout};
    front.is_relative = coding.mode == CUSZ_REL;
    front.has_fill = coding.has_fill;
    front.eb = coding.eb;
    front.special = coding.special;
    return front;
}

} // namespace cusz::spline
