// Undoes Lorenzo prediction row by row, as codes come (rows.cuh): a lane keeps what it needs of the row and of the plane
// before, and the sum along x is a warp scan. docs/format.md, section 5.
#pragma once

#include "prequant.cuh"
#include "rows.cuh"

namespace cusz::cuda {

// Sums along x over a row of chunks.
template <class U>
class RowSum {
public:
    __device__ explicit RowSum(U start) : before_(start) {}
    __device__ U next(U v) {
        const U sum = before_ + warp_inclusive_sum(v);
        before_ = __shfl_sync(whole_warp, sum, static_cast<int>(warp_lanes - 1));
        return sum;
    }

private:
    U before_;
};

// A tile that is not clipped, in which every value is coded, none is missing and no code is out of range. Lane x has the
// symbols of column x, in order.
template <class Decoder, class Reading, class T>
struct WholeTile {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;

    Decoder& decoder;
    const Reading& model;
    const TileBox& box;
    const U anchor;
    const T step;
    T* const field;

    __device__ U next() const { return static_cast<U>(static_cast<Int>(decoder.reader.next(model))); }
    __device__ T value(U q) const { return dequantise<T>(static_cast<Int>(q), step); }

    template <std::uint32_t dimension>
    __device__ void line() const {
        RowSum<U> sum(anchor);
        for (std::uint32_t x = lane(); x < max_tile_values; x += warp_lanes)
            field[box.offset + x] = value(dimension > 0 ? sum.next(next()) : next() + anchor);
    }

    template <std::uint32_t dimension>
    __device__ void square() const {
        constexpr std::uint32_t edge = 64, n = edge / warp_lanes;
        U column[n] = {};
        T* row = field + box.offset + lane();
        for (std::uint32_t y = 0; y < edge; ++y, row += box.stride[1]) {
            RowSum<U> sum(anchor);
#pragma unroll
            for (std::uint32_t c = 0; c < n; ++c) {
                U v = next();
                // 1-D Lorenzo predicts along x, save in the first column
                if (dimension == 2 || (dimension == 1 && c == 0 && lane() == 0)) v = column[c] += v;
                row[c * warp_lanes] = value(dimension > 0 ? sum.next(v) : v + anchor);
            }
        }
    }

    // second: of the plane before; sums that undo second-order Lorenzo.
    template <std::uint32_t predictor, class Memory>
    __device__ void cuboid(Memory& second) const {
        constexpr std::uint32_t rows = 16, planes = 8, dimension = predictor < 3 ? predictor : 3;
        constexpr bool second_y = predictor >= v1::second_order_xy, second_z = predictor == v1::second_order_xyz;
        const U start = lane() == 0 || dimension == 0 ? anchor : 0;
        U before[rows]; // differences along x in the plane before
#pragma unroll
        for (std::uint32_t y = 0; y < rows; ++y) before[y] = start;
        T* plane = field + box.offset + lane();
        for (std::uint32_t z = 0; z < planes; ++z, plane += box.stride[2]) {
            U column = 0, second_column = 0;
            T* row = plane;
#pragma unroll
            for (std::uint32_t y = 0; y < rows; ++y, row += box.stride[1]) {
                U v = next();
                if constexpr (second_z) {
                    if (z >= 2) v += second[y * warp_lanes + lane()];
                    second[y * warp_lanes + lane()] = v;
                }
                if constexpr (second_y) {
                    if (y >= 2) v += second_column;
                    second_column = v;
                    const U sum = warp_inclusive_sum(lane() == 0 ? U{0} : v);
                    if (lane() > 0) v = sum;
                }
                if constexpr (dimension == 3) {
                    column += v;
                    v = before[y] += column;
                } else if constexpr (dimension == 0) {
                    v += start;
                } else { // where there is no row before, the plane before's first one
                    column = (y == 0 ? before[0] : column) + (dimension == 2 || lane() == 0 ? v : 0);
                    if (y == 0) before[0] = column;
                    if (dimension == 2 || lane() == 0) v = column;
                }
                *row = value(dimension > 0 ? warp_inclusive_sum(v) : v);
            }
        }
    }
};

// Whether this predictor is among those for tiles of this shape; others are rare.
template <TileShape shape, class Tile, class T>
__device__ bool reconstruct_whole(std::uint32_t predictor, const Tile& tile, RowMemory<T, shape>& memory) {
    if constexpr (shape == TileShape::line) {
        if (predictor > 1) return false;
        predictor == 0 ? tile.template line<0>() : tile.template line<1>();
    } else if constexpr (shape == TileShape::square) {
        switch (predictor) {
        case 0: tile.template square<0>(); break;
        case 1: tile.template square<1>(); break;
        case 2: tile.template square<2>(); break;
        default: return false;
        }
    } else {
        switch (predictor) {
        case 0: tile.template cuboid<0>(memory.second); break;
        case 1: tile.template cuboid<1>(memory.second); break;
        case 2: tile.template cuboid<2>(memory.second); break;
        case 3: tile.template cuboid<3>(memory.second); break;
        case 4: tile.template cuboid<4>(memory.second); break;
        default: tile.template cuboid<5>(memory.second); break;
        }
    }
    return true;
}

// Any tile, clipped or not. codes: a RowReader.
template <TileShape shape, class Codes, class T>
__device__ void reconstruct_any(const v1::TileHeader& header, typename Traits<T>::Bits anchor,
                                const Quantiser<T>& quantiser, Codes& codes, RowMemory<T, shape>& memory, T* field) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    constexpr bool has_planes = shape == TileShape::box;
    constexpr std::uint32_t chunks = Chunks<shape>::of_row;
    constexpr std::uint32_t columns = shape == TileShape::line ? 1 : chunks; // a line has no row before
    const TileBox& box = memory.box;
    const std::uint32_t dimension = std::min(header.predictor, 3u);
    const bool second = header.predictor >= v1::second_order_xy, second_z = header.predictor == v1::second_order_xyz;
    for (std::uint32_t z = 0; z < box.edge[2]; ++z) {
        U up[columns] = {}, up_and_back[columns] = {}, second_up[columns] = {};
        for (std::uint32_t y = 0; y < box.edge[1]; ++y) {
            RowSum<U> sum(anchor), second_sum(0);
            T* const row = field + (box.offset + y * box.stride[1] + z * box.stride[2]);
#pragma unroll columns
            for (std::uint32_t c = 0; c < chunks; ++c) {
                const std::uint32_t x = c * warp_lanes + lane();
                if (c * warp_lanes >= box.edge[0]) break;
                const auto code = codes.next(c, y, z);
                const std::uint32_t i = c % columns;
                U v = code.bits;
                if (second) {
                    if constexpr (has_planes)
                        if (second_z) {
                            U& before = memory.second[y * warp_lanes + lane()];
                            if (z >= 2) v += before;
                            before = v;
                        }
                    if (y >= 2) v += second_up[i];
                    second_up[i] = v;
                    const U sum_of_row = second_sum.next(x == 0 ? U{0} : v);
                    if (x > 0) v = sum_of_row;
                }
                U back = 0; // of the plane before
                if constexpr (has_planes)
                    if (z > 0) back = memory.difference[y * warp_lanes + lane()];
                const U before = y > 0 ? up[i] : back;
                if (code.missing) // takes its predecessor's q
                    v = dimension > 0 && x == 0 ? before : 0;
                else if (dimension == 3)
                    v += (y > 0 ? up[i] - up_and_back[i] : 0) + back;
                else if (dimension == 2 || (dimension == 1 && x == 0))
                    v += before;
                if constexpr (has_planes) memory.difference[y * warp_lanes + lane()] = v;
                up[i] = v;
                up_and_back[i] = back;
                const U q = dimension > 0 ? sum.next(v) : v + anchor;
                if (x < box.edge[0])
                    row[x] = code.missing ? std::bit_cast<T>(quantiser.special)
                                          : dequantise<T>(static_cast<Int>(q), quantiser.step);
            }
        }
    }
}

} // namespace cusz::cuda
