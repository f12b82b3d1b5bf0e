#include "pyramid.hpp"

#include <algorithm>

#include "tiling.hpp"

namespace cusz {

namespace {

// The active axes first, ascending, then the others.
void number_axes(std::uint32_t active_axes, Lattice& lattice) {
    std::size_t next = 0;
    for (const bool active : {true, false})
        for (std::uint32_t a = 0; a < 4; ++a)
            if ((active_axes >> a & 1) == active) {
                lattice.axis[next++] = a;
                lattice.n_active += active;
            }
}

Extents strides_of(const Extents& extent) {
    return {1, extent[0], extent[0] * extent[1], extent[0] * extent[1] * extent[2]};
}

void cut(Lattice& lattice) {
    const auto most = tile_edges(lattice.n_active);
    lattice.group = group_edges(lattice.n_active);
    for (std::size_t a = 0; a < 4; ++a)
        lattice.edge[a] = static_cast<std::uint32_t>(std::min<std::uint64_t>(most[a], lattice.extent[a]));
    grow(lattice.edge, lattice.extent);
    lattice.n_tiles = 1;
    for (std::size_t a = 0; a < 4; ++a) {
        lattice.count[a] = (lattice.extent[a] - 1) / lattice.edge[a] + 1;
        lattice.n_tiles *= lattice.count[a];
    }
}

// The first three axes of a mask that have more than one point.
std::uint32_t axes_to_halve(const Extents& extent, std::uint32_t mask) {
    std::uint32_t axes = 0, n = 0;
    for (std::uint32_t a = 0; a < 4; ++a)
        if ((mask >> a & 1) != 0 && extent[a] > 1 && n < max_active_axes) {
            axes |= 1u << a;
            ++n;
        }
    return axes;
}

} // namespace

Extents extents_of(int ndim, const std::uint64_t* shape) { return Tiling::by_axis(ndim, shape, shape, 1); }

Pyramid::Pyramid(int ndim, const std::uint64_t* shape, const AxisMasks& allowed) {
    Extents extent = extents_of(ndim, shape); // by axis of the field, like field_stride
    Extents field_stride = strides_of(extent);
    lattices.reserve(8); // mostly enough
    for (;;) {
        Lattice lattice;
        const std::uint32_t of_mask = axes_to_halve(extent, allowed[std::min<std::size_t>(lattices.size(), 2)]);
        number_axes(of_mask != 0 ? of_mask : axes_to_halve(extent, 15), lattice);
        Extents coarse = extent;
        for (std::uint32_t j = 0; j < lattice.n_active; ++j)
            coarse[lattice.axis[j]] = (extent[lattice.axis[j]] + 1) / 2;
        const Extents stride = strides_of(extent), coarse_stride = strides_of(coarse);
        for (std::size_t j = 0; j < 4; ++j) {
            const std::uint32_t a = lattice.axis[j];
            lattice.extent[j] = extent[a];
            lattice.field_stride[j] = field_stride[a];
            lattice.stride[j] = stride[a];
            lattice.coarse_stride[j] = coarse_stride[a];
        }
        if (lattice.n_active > 0) cut(lattice);
        lattices.push_back(lattice);
        if (lattice.n_active == 0) break;
        for (std::uint32_t j = 0; j < lattice.n_active; ++j) field_stride[lattice.axis[j]] *= 2;
        extent = coarse;
    }
    for (std::size_t i = n_coded(); i-- > 0;) {
        lattices[i].first_tile = n_tiles;
        n_tiles += lattices[i].n_tiles;
    }
}

std::uint64_t Pyramid::scale(std::size_t i, std::uint32_t a) const {
    std::uint64_t scale = 1;
    for (std::size_t finer = 0; finer < i; ++finer)
        for (std::uint32_t j = 0; j < lattices[finer].n_active; ++j)
            if (lattices[finer].axis[j] == a) scale *= 2;
    return scale;
}

void Pyramid::tile_shape(int ndim, const std::uint64_t* shape, std::uint64_t* out) const {
    Extents edge{}; // by axis of the field
    for (std::size_t j = 0; j < 4; ++j) edge[lattices[0].axis[j]] = lattices[0].edge[j];
    std::size_t axis = 0;
    for (int i = ndim - 1; i >= 0; --i) out[i] = shape[i] == 1 ? 1 : edge[axis++];
}

} // namespace cusz
