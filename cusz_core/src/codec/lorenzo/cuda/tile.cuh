// The working memory of a thread block when compressing, and of a warp when decompressing: one tile, in shared memory
// and registers.
#pragma once

#include "archive/alphabet.hpp"
#include "archive/v1.hpp"
#include "bitmap.cuh"
#include "device/block.cuh"
#include "kernels.hpp"

namespace cusz::cuda {

// A block has 8 warps. Each takes a run of 512 values in tile order, and each lane takes every 32nd of these, so that
// loads are coalesced.
inline constexpr std::uint32_t values_of_thread = max_tile_values / block_threads;
inline constexpr std::uint32_t values_of_warp = values_of_thread * warp_lanes;

// Which values of a tile are coded.
struct Significance {
    bool all_zero, masked, fine;
    std::uint32_t n_coded;
};

// Bitmaps are in tile order; for a tile of a known shape, as if it were not clipped.
template <class T>
struct TileState {
    using Int = typename Traits<T>::Int;

    TileBox box; // offset: in the batch's memory
    Int anchor;
    std::uint32_t n_special; // missing values that are not outliers; set if any are missing
    RankedBitmap unpredictable, out_of_range;
    RankedBitmap coded;    // first the values whose code is not 0, then those to be coded
    RankedBitmap subgroup; // those in significant groups
    Bitmap significant_subgroup;
    Array<std::uint32_t, 2> group_mask;
    Array<std::uint32_t, 4 * block_warps> partial;
    Array<std::uint64_t, block_warps> wide_partial;
};

// For a tile of any shape, all of which is in shared memory.
template <class T>
struct TileMemory : TileState<T> {
    Bitmap missing;
    Array<typename Traits<T>::Int, max_tile_values> value; // u = q - anchor, then codes
};

// For a tile of a known shape, whose values are in registers (columns.cuh).
template <class T>
struct ColumnMemory : TileState<T> {
    // For each warp: the q that missing values of later warps may take, and its first q; has_*: whether there is one.
    Array<typename Traits<T>::Int, block_warps> last_q, first_q;
    Array<bool, block_warps> has_last, has_first;
    Array<std::uint32_t, warp_lanes> candidates, significant; // subgroups, by runs (CodedRuns)
    std::uint32_t n_candidates;                               // of the tile
    Significance significance;
};

// A warp's working memory when it decodes a tile.
template <class T>
struct WarpMemory {
    using Int = typename Traits<T>::Int;

    TileBox box;                       // offset: in the batch's memory
    Array<Int, max_tile_values> value; // symbols, codes, then differences along x
    Bitmap missing;
    RankedBitmap coded, subgroup;
};

// A warp's working memory when it decodes a tile of a known shape row by row (rows.cuh).
inline constexpr std::uint32_t codes_ahead = 2 * warp_lanes;
template <class T, TileShape shape>
struct RowMemory {
    TileBox box; // offset: in the batch's memory
    std::uint32_t unpredictable_at, n_unpredictable;
    bool has_codes, has_missing;
    Array<std::int32_t, codes_ahead> code; // decoded codes: code i is at i modulo the array's length
};
template <class T>
struct RowMemory<T, TileShape::box> {
    using U = typename Traits<T>::Bits;

    TileBox box;
    std::uint32_t unpredictable_at, n_unpredictable;
    bool has_codes, has_missing;
    Array<std::int32_t, codes_ahead> code;
    // Of the previous plane: differences along x, and sums that undo second-order differences.
    Array<U, 16 * warp_lanes> difference, second;
};

// The positions of one thread in a tile of any shape, with their coordinates.
class Positions {
public:
    __device__ explicit Positions(const TileBox& box) : Positions(box, warp() * values_of_warp + lane()) {}
    __device__ Positions(const TileBox& box, std::uint32_t first)
        : edge_(box.edge), n_(box.values()), rows_(box.rows()), at(first) {
        split(first, x, y, z, w);
        split(warp_lanes, step_x_, step_y_, step_z_, step_w_);
    }
    __device__ bool inside() const { return at < n_; }
    __device__ void next() { // advances by 32 positions
        at += warp_lanes;
        x += step_x_;
        y += step_y_;
        z += step_z_;
        w += step_w_;
        if (x >= edge_[0]) x -= edge_[0], ++y;
        if (y >= edge_[1]) y -= edge_[1], ++z;
        if (z >= edge_[2]) z -= edge_[2], ++w;
    }
    __device__ std::uint64_t offset(const TileBox& box) const {
        return box.offset + x + y * box.stride[1] + z * box.stride[2] + w * box.stride[3];
    }
    // Whether predictors are compared on this row (docs/reference/format.md, section 5).
    __device__ bool is_sampled() const {
        const std::uint32_t every = rows_ < 8 ? 1 : 4;
        return ((w * edge_[2] + z) * edge_[1] + y) % every == every / 2;
    }
    __device__ std::uint32_t row_length() const { return edge_[0]; }
    __device__ std::uint32_t plane() const { return edge_[0] * edge_[1]; }
    // Distance back to the value with the next lower coordinate; at z = 0, back_z() goes along w (format.md, section
    // 5). 0: there is none in the tile.
    __device__ std::uint32_t back_x() const { return x > 0 ? 1 : 0; }
    __device__ std::uint32_t back_y() const { return y > 0 ? row_length() : 0; }
    __device__ std::uint32_t back_z() const { return z > 0 ? plane() : w > 0 ? plane() * edge_[2] : 0; }

private:
    __device__ void split(std::uint32_t p, std::uint32_t& px, std::uint32_t& py, std::uint32_t& pz,
                          std::uint32_t& pw) const {
        px = p % edge_[0];
        p /= edge_[0];
        py = p % edge_[1];
        p /= edge_[1];
        pz = p % edge_[2];
        pw = p / edge_[2];
    }

    const std::array<std::uint32_t, 4> edge_;
    const std::uint32_t n_, rows_;
    std::uint32_t step_x_, step_y_, step_z_, step_w_;

public:
    std::uint32_t at, x, y, z, w;
};

// Offset in the field of one position.
__device__ inline std::uint64_t field_offset(const TileBox& box, std::uint32_t position) {
    const std::uint32_t x = position % box.edge[0], row = position / box.edge[0];
    const std::uint32_t y = row % box.edge[1], zw = row / box.edge[1];
    return box.offset + x + y * box.stride[1] + zw % box.edge[2] * box.stride[2] + zw / box.edge[2] * box.stride[3];
}

} // namespace cusz::cuda
