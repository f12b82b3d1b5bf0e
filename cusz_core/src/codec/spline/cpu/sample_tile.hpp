// A tile of the field that is counted with no more than the points of lattice 1 that it is predicted from
// (docs/format_v2.md, section 10).
#pragma once

#include <algorithm>
#include <cstdint>

#include "archive/pyramid.hpp"
#include "buffer.hpp"
#include "kernels.hpp"

namespace cusz::cpu {

template <class T>
class SampleTile {
public:
    // coarse: lattice 2. memory: for points of lattice 1. All are used in place.
    SampleTile(const SplineCoder<T>& coder, const T* field, const LatticeArrays<T>& coarse, Buffer& memory)
        : coder_(coder), field_(field), coarse_(coarse), memory_(memory), local_(coder.pyramid),
          local_coder_{local_, coder.quantiser, coder.cubic, coder.end} {}

    // Counts a tile of lattice 0, and the points of lattice 1 in it and around it. Returns the number of these points,
    // which are not more than a tile has: it has half as many of them along an axis and four around, or all there are.
    std::uint32_t count(std::uint64_t number, const SplineKernels<T>& stages, SplineTile<T>& tile, RansCounts& counts) {
        const Lattice &field = coder_.pyramid.lattices[0], &middle = coder_.pyramid.lattices[1];
        const LatticeTile of_field = tile_of(field, number);
        // By the field's axes: the points of lattice 1, and where the lattices begin for them. What is not at the
        // border must not seem to be, so that is two points before.
        Extents first{}, extent{}, begin{};
        for (std::size_t j = 0; j < 4; ++j) {
            const std::uint32_t a = field.axis[j];
            const std::uint64_t from = of_field.origin[j], to = from + of_field.edge[j];
            if (field.is_active(j)) {
                first[a] = from > 0 ? from / 2 - 2 : 0;
                extent[a] = std::min((to + 1) / 2 + 2, field.coarse_extent(j)) - first[a];
                begin[a] = from > 0 ? first[a] - 2 : 0;
            } else {
                first[a] = begin[a] = from;
                extent[a] = of_field.edge[j];
            }
        }
        LatticeTile of_middle{}, in_field = of_field;
        const T* from = field_;
        LatticeArrays<T> coarse = coarse_;
        for (std::size_t j = 0; j < 4; ++j) {
            const std::uint32_t a = middle.axis[j];
            local_.lattices[1].extent[j] = middle.extent[j] - begin[a];
            of_middle.origin[j] = first[a] - begin[a];
            of_middle.edge[j] = static_cast<std::uint32_t>(extent[a]);
            coarse.before -= (middle.is_active(j) ? begin[a] / 2 : begin[a]) * middle.coarse_stride[j];
        }
        // The array of lattice 1: in the field's order of axes, from `begin` on.
        Extents stride{1};
        for (std::size_t a = 1; a < 4; ++a) stride[a] = stride[a - 1] * (first[a - 1] - begin[a - 1] + extent[a - 1]);
        const std::uint64_t values = stride[3] * (first[3] - begin[3] + extent[3]);
        auto* const value = memory_.reserve<T>(values + lane_room + (values + lane_room) / sizeof(T) + 1);
        const LatticeArrays<T> arrays{value, reinterpret_cast<std::uint8_t*>(value + values + lane_room), 0};
        for (std::size_t j = 0; j < 4; ++j) {
            const std::uint32_t a = field.axis[j];
            const std::uint64_t before = field.is_active(j) ? 2 * begin[a] : begin[a];
            local_.lattices[0].extent[j] = field.extent[j] - before;
            local_.lattices[0].coarse_stride[j] = stride[a];
            local_.lattices[1].stride[j] = stride[middle.axis[j]];
            in_field.origin[j] -= before;
            from += before * field.field_stride[j];
        }
        stages.count(local_coder_, 1, of_middle, from, coarse, arrays, tile, counts);
        stages.count(local_coder_, 0, in_field, from, arrays, {}, tile, counts);
        return of_middle.points();
    }

private:
    const SplineCoder<T>& coder_;
    const T* field_;
    const LatticeArrays<T>& coarse_;
    Buffer& memory_;
    Pyramid local_; // of the field from a little before the tile on
    SplineCoder<T> local_coder_;
};

} // namespace cusz::cpu
