// Undoes Lorenzo prediction row by row, as codes are decoded (rows.cuh): a lane keeps what it needs of the previous row
// and plane, and the sum along x is a warp scan. docs/reference/format.md, section 5.
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

// A tile that is not clipped and in which no code is out of range. codes: AllCodes or SomeCodes.
template <class Codes, class T>
struct WholeTile {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;

    Codes& codes;
    const TileBox& box;
    const U anchor;
    const T step, special;
    T* const field;

    // The value for q, or the special value if the last code stands for a missing one.
    __device__ T value(U q) const { return codes.is_missing() ? special : dequantise<T>(static_cast<Int>(q), step); }
    // A missing value takes its predecessor's q along x. If it is the first of its row, it takes the difference of the
    // previous row, or of the first row of the previous plane.
    __device__ U difference(U v, bool is_first, U before) const {
        return !codes.is_missing() ? v : is_first ? before : 0;
    }

    template <std::uint32_t dimension>
    __device__ void line() const {
        RowSum<U> sum(anchor);
        T* chunk = field + box.offset + lane();
        for (std::uint32_t c = 0; c < max_tile_values / warp_lanes; ++c, chunk += warp_lanes) {
            const U v = difference(codes.next(c, 0, 0), false, 0);
            *chunk = value(dimension > 0 ? sum.next(v) : v + anchor);
        }
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
                // 1-D Lorenzo predicts along x, except in the first column
                const bool is_first = c == 0 && lane() == 0;
                const U before = dimension == 2 || (dimension == 1 && is_first) ? column[c] : 0;
                const U v = column[c] = difference(codes.next(c, y, 0) + before, is_first, before);
                row[c * warp_lanes] = value(dimension > 0 ? sum.next(v) : v + anchor);
            }
        }
    }

    template <std::uint32_t predictor, class Memory>
    __device__ void cuboid(Memory& memory) const {
        constexpr std::uint32_t rows = 16, planes = 8, dimension = predictor < 3 ? predictor : 3;
        constexpr bool second_y = predictor >= v1::second_order_xy, second_z = predictor == v1::second_order_xyz;
        const U start = lane() == 0 || dimension == 0 ? anchor : 0;
        // Differences along x in the previous plane: in registers, unless these are needed for something else.
        constexpr bool in_memory = Codes::needs_registers || second_y;
        U in_registers[rows];
        const auto before = [&](std::uint32_t y) -> U& {
            return in_memory ? memory.difference[y * warp_lanes + lane()] : in_registers[y];
        };
#pragma unroll
        for (std::uint32_t y = 0; y < rows; ++y) before(y) = start;
        T* plane = field + box.offset + lane();
        for (std::uint32_t z = 0; z < planes; ++z, plane += box.stride[2]) {
            // up: the difference in the previous row; column: up minus that row's difference in the previous plane
            U up = 0, column = 0, second_column = 0;
            T* row = plane;
#pragma unroll
            for (std::uint32_t y = 0; y < rows; ++y, row += box.stride[1]) {
                U v = codes.next(0, y, z);
                if constexpr (second_z) {
                    U& second = memory.second[y * warp_lanes + lane()];
                    if (z >= 2) v += second;
                    second = v;
                }
                if constexpr (second_y) {
                    if (y >= 2) v += second_column;
                    second_column = v;
                    const U sum = warp_inclusive_sum(lane() == 0 ? U{0} : v);
                    if (lane() > 0) v = sum;
                }
                if constexpr (dimension == 0) {
                    v += start;
                } else { // the first row uses the first row of the previous plane
                    const U back = dimension == 3 || y == 0 ? before(y) : 0;
                    if (y == 0) up = back;
                    if constexpr (dimension == 3)
                        v += column + back;
                    else if (dimension == 2 || lane() == 0)
                        v += up;
                    v = difference(v, lane() == 0, up);
                    column = v - back;
                    if (dimension == 3 || y == 0) before(y) = v;
                    up = v;
                }
                *row = value(dimension > 0 ? warp_inclusive_sum(v) : v);
            }
        }
    }
};

// Reconstructs the tile. Returns false, with nothing done, if tiles of this shape rarely have this predictor.
template <TileShape shape, class Codes, class T>
__device__ bool reconstruct_whole(std::uint32_t predictor, const WholeTile<Codes, T>& tile,
                                  RowMemory<T, shape>& memory) {
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
        case 0: tile.template cuboid<0>(memory); break;
        case 1: tile.template cuboid<1>(memory); break;
        case 2: tile.template cuboid<2>(memory); break;
        case 3: tile.template cuboid<3>(memory); break;
        default:
            if constexpr (Codes::may_be_missing)
                return false;
            else
                predictor == 4 ? tile.template cuboid<4>(memory) : tile.template cuboid<5>(memory);
        }
    }
    return true;
}

// Any tile, clipped or not. codes: AnyCodes.
template <TileShape shape, class Codes, class T>
__device__ void reconstruct_any(const v1::TileHeader& header, typename Traits<T>::Bits anchor,
                                const Quantiser<T>& quantiser, Codes& codes, RowMemory<T, shape>& memory, T* field) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    constexpr bool has_planes = shape == TileShape::box;
    constexpr std::uint32_t chunks = Chunks<shape>::of_row;
    constexpr std::uint32_t columns = shape == TileShape::line ? 1 : chunks; // a line has no previous row
    const Edges edge = memory.box.edge;
    const std::uint64_t stride_y = memory.box.stride[1], stride_z = memory.box.stride[2];
    const std::uint32_t dimension = std::min(header.predictor, 3u);
    const bool second = header.predictor >= v1::second_order_xy, second_z = header.predictor == v1::second_order_xyz;
    T* plane = field + memory.box.offset + lane();
    for (std::uint32_t z = 0; z < edge[2]; ++z, plane += stride_z) {
        // Differences along x: in the previous row, and in that row of the previous plane.
        U up[columns] = {}, up_and_back[columns] = {}, second_up[columns] = {};
        T* row = plane;
        for (std::uint32_t y = 0; y < edge[1]; ++y, row += stride_y) {
            RowSum<U> sum(anchor), second_sum(0);
#pragma unroll columns
            for (std::uint32_t c = 0; c < chunks; ++c) {
                if (c > 0 && c * warp_lanes >= edge[0]) break;
                const std::uint32_t x = c * warp_lanes + lane(), i = c % columns, at = y * warp_lanes + lane();
                const auto code = codes.next(c, y, z);
                U v = code.bits;
                if (second) {
                    if constexpr (has_planes)
                        if (second_z) {
                            U& before = memory.second[at];
                            if (z >= 2) v += before;
                            before = v;
                        }
                    if (y >= 2) v += second_up[i];
                    second_up[i] = v;
                    const U sum_of_row = second_sum.next(x == 0 ? U{0} : v);
                    if (x > 0) v = sum_of_row;
                }
                U back = 0; // in the previous plane
                if constexpr (has_planes)
                    if (z > 0) back = memory.difference[at];
                const U before = y > 0 ? up[i] : back;
                if (dimension == 3)
                    v += before - (y > 0 ? up_and_back[i] - back : 0);
                else if (dimension == 2 || (dimension == 1 && x == 0))
                    v += before;
                if (code.missing) v = dimension > 0 && x == 0 ? before : 0; // takes its predecessor's q
                if constexpr (has_planes) memory.difference[at] = v;
                up[i] = v;
                up_and_back[i] = back;
                const U q = dimension > 0 ? sum.next(v) : v + anchor;
                if (x < edge[0])
                    row[c * warp_lanes] = code.missing ? std::bit_cast<T>(quantiser.special)
                                                       : dequantise<T>(static_cast<Int>(q), quantiser.step);
            }
        }
    }
}

} // namespace cusz::cuda
