// Fields on the host that are too large for the device, in the spline codec: every lattice is coded or decoded by
// itself, from the coarsest on, in batches of layers of its tiles. A tile reads no originals but its own, and no
// payload but its own; it is predicted from what the coarser lattice has become, which stays on the device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "archive/pyramid.hpp"

namespace cusz::cuda {

// What a launch goes through: tiles of one lattice, or all lattices from `coarsest` to `finest`.
struct SplineBatch {
    std::uint32_t finest = 0, coarsest = 0;
    std::uint64_t first_tile = 0, n_tiles = 0, points = 0; // of the finest one; points: of the tiles
    // Of one lattice: the box of its points that is needed. Axes are the lattice's.
    Extents origin{}, extent{};

    std::uint64_t values() const { return extent[0] * extent[1] * extent[2] * extent[3]; }
    // More than their payloads have. units_of_value: 16-bit units of a value.
    std::uint64_t units(std::uint64_t units_of_value) const { return n_tiles + points * units_of_value; }
    std::uint64_t bytes(std::uint64_t value_bytes) const { return values() * value_bytes + units(value_bytes / 2) * 2; }
};

// All lattices in one launch.
inline SplineBatch whole_field(const Pyramid& pyramid) {
    const Lattice& finest = pyramid.lattices[0];
    const auto coarsest = static_cast<std::uint32_t>(pyramid.n_coded() - 1);
    return {0, coarsest, 0, finest.n_tiles, finest.values(), {}, finest.extent};
}

// The axis along which a lattice is cut into layers of tiles whose numbers follow each other.
inline std::size_t axis_of_layers(const Lattice& lattice) {
    std::size_t axis = 3;
    while (axis > 0 && lattice.count[axis] == 1) --axis;
    return axis;
}

// Points beside a tile of lattice 0, along active axes, at which the model looks (docs/format_v2.md, section 10).
inline constexpr std::uint64_t points_beside_tile = 4;

// points_beside: that are needed on either side of the layers, in lattice 0.
inline SplineBatch layers_of_tiles(const Lattice& lattice, std::uint32_t number, std::uint64_t first,
                                   std::uint64_t layers, std::uint64_t points_beside) {
    const std::size_t axis = axis_of_layers(lattice);
    const std::uint64_t tiles_of_layer = lattice.n_tiles / lattice.count[axis],
                        beside = number == 0 && lattice.is_active(axis) ? points_beside : 0,
                        begin = first * lattice.edge[axis],
                        end = std::min(begin + layers * lattice.edge[axis], lattice.extent[axis]);
    SplineBatch batch{number,
                      number,
                      first * tiles_of_layer,
                      layers * tiles_of_layer,
                      lattice.values() / lattice.extent[axis] * (end - begin),
                      {},
                      lattice.extent};
    batch.origin[axis] = begin - std::min(begin, beside);
    batch.extent[axis] = std::min(end + beside, lattice.extent[axis]) - batch.origin[axis];
    return batch;
}

// All batches, of as many layers as `bytes` bytes of values and payloads suffice for, but of one at least.
inline std::vector<SplineBatch> batches_of(const Pyramid& pyramid, std::uint64_t value_bytes,
                                           std::uint64_t points_beside, std::uint64_t bytes) {
    std::vector<SplineBatch> batches;
    for (auto i = static_cast<std::uint32_t>(pyramid.n_coded()); i-- > 0;) {
        const Lattice& lattice = pyramid.lattices[i];
        const std::uint64_t n = lattice.count[axis_of_layers(lattice)];
        for (std::uint64_t layer = 0, layers = n; layer < n; layer += layers) {
            const auto batch = [&] {
                return layers_of_tiles(lattice, i, layer, std::min(layers, n - layer), points_beside);
            };
            while (layers > 1 && batch().bytes(value_bytes) > bytes) layers = (layers + 1) / 2;
            batches.push_back(batch());
        }
    }
    return batches;
}

// What the largest of them needs.
inline std::uint64_t bytes_of(const std::vector<SplineBatch>& batches, std::uint64_t value_bytes) {
    std::uint64_t most = 0;
    for (const SplineBatch& batch : batches) most = std::max(most, batch.bytes(value_bytes));
    return most;
}

// Where a batch's box lies in the field, and in a copy of it alone.
struct BatchBox {
    std::uint64_t values = 1, first = 0; // first: the number of its first point in the field
    Extents extent{}, stride_in_field{}; // by axis of the field
    Extents stride{};                    // in the copy, by axis of the lattice
    bool is_packed = true;               // its points follow each other in the field

    BatchBox(const SplineBatch& batch, const Lattice& lattice) {
        for (std::uint32_t axis = 0; axis < 4; ++axis) {
            const auto a = static_cast<std::size_t>(std::ranges::find(lattice.axis, axis) - lattice.axis.begin());
            stride[a] = values;
            values *= extent[axis] = batch.extent[a];
            stride_in_field[axis] = lattice.field_stride[a];
            first += batch.origin[a] * lattice.field_stride[a];
            before_ += batch.origin[a] * stride[a];
            is_packed = is_packed && (extent[axis] == 1 || stride[a] == lattice.field_stride[a]);
        }
    }
    // Where the lattice's first point would be; by numbers, as there is no memory before the copy.
    template <class T>
    T* first_of_lattice(T* copy) const {
        return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(copy) - before_ * sizeof(T));
    }

private:
    std::uint64_t before_ = 0; // values of the copy, if it had all of the lattice
};

} // namespace cusz::cuda
