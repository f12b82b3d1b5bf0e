// Which values of a tile are coded, for the shapes that nearly all tiles have (format.md, sections 3 and 6).
#pragma once

#include "archive/tiling.hpp"
#include "device/block.cuh"

namespace cusz::cuda {

using Edges = std::array<std::uint32_t, 4>;

// A tile is a sequence of chunks of 32 positions along x, one per lane. The chunks form 32 runs, each with 16 subgroups
// along x: in a box two rows in two planes, in a square two rows, in a line 128 values.
template <TileShape shape>
struct Chunks {
    static constexpr std::uint32_t of_row = shape == TileShape::line ? 128 : shape == TileShape::square ? 2 : 1;
    static constexpr std::uint32_t lanes_of_subgroup = shape == TileShape::line     ? 8
                                                       : shape == TileShape::square ? 4
                                                                                    : 2;
    static constexpr std::uint32_t subgroups_of_chunk = warp_lanes / lanes_of_subgroup;
    // The run of chunk x of row (y, z), and which of the run's subgroups is the chunk's first.
    __device__ static std::uint32_t run(std::uint32_t x, std::uint32_t y, std::uint32_t z) {
        return shape == TileShape::line ? x / 4 : shape == TileShape::square ? y / 2 : z / 2 * 8 + y / 2;
    }
    __device__ static std::uint32_t first_subgroup(std::uint32_t x) { return x * subgroups_of_chunk % 16; }
    // Chunks are numbered as if no tile were clipped. number(): the number of chunk x of row `row` of run i; both count
    // within the run.
    static constexpr std::uint32_t rows_of_run = shape == TileShape::line ? 1 : shape == TileShape::square ? 2 : 4;
    static constexpr std::uint32_t chunks_of_run = 16 / subgroups_of_chunk;
    __device__ static std::uint32_t number(std::uint32_t i, std::uint32_t row, std::uint32_t x) {
        if (shape == TileShape::box) return (i / 8 * 2 + row / 2) * 16 + i % 8 * 2 + row % 2;
        return i * 4 + row * chunks_of_run + x;
    }
    // The lanes of a chunk that are in the tile.
    __device__ static std::uint32_t inside(const Edges& edge, std::uint32_t number) {
        std::uint32_t x = 0;
        if (shape == TileShape::line) x = number * warp_lanes;
        if (shape == TileShape::square) x = number % 2 * warp_lanes;
        if (shape == TileShape::square && number / 2 >= edge[1]) return 0;
        if (shape == TileShape::box && (number % 16 >= edge[1] || number / 16 >= edge[2])) return 0;
        const std::uint32_t n = x < edge[0] ? std::min(edge[0] - x, +warp_lanes) : 0;
        return n == warp_lanes ? whole_warp : (1u << n) - 1;
    }
    __device__ static std::uint32_t subgroups(const Edges& edge) { // in the tile
        if (shape == TileShape::line) return (edge[0] + 7) / 8;
        if (shape == TileShape::square) return (edge[0] + 3) / 4 * ((edge[1] + 1) / 2);
        return (edge[0] + 1) / 2 * ((edge[1] + 1) / 2) * ((edge[2] + 1) / 2);
    }
    // How many of the pairs of positions (0, 1), (2, 3), ... in tile order have no bit in the tile's chunks
    // (docs/reference/format.md, section 6). Returns a lane's share; the result is the sum over the warp.
    template <class Words>
    __device__ static std::uint32_t zero_pairs(const Edges& edge, const Words& chunk) {
        constexpr std::uint64_t every_second = 0x5555'5555'5555'5555;
        std::uint32_t pairs = 0;
        if (shape == TileShape::line) {
            for (std::uint32_t i = lane(); i < of_row; i += warp_lanes) {
                const std::uint64_t zero = ~chunk[i] & inside(edge, i);
                pairs += static_cast<std::uint32_t>(__popcll(static_cast<long long>(zero & zero >> 1 & every_second)));
            }
            return pairs;
        }
        const auto zeros_of = [&](std::uint32_t row) {
            const std::uint32_t y = row % edge[1], z = row / edge[1], first = (z * 16 + y) * of_row;
            std::uint64_t zero = ~chunk[first] & inside(edge, first);
            if (shape == TileShape::square) zero |= std::uint64_t{~chunk[first + 1] & inside(edge, first + 1)} << 32;
            return zero;
        };
        const std::uint32_t rows = edge[1] * edge[2];
        for (std::uint32_t row = lane(); row < rows; row += warp_lanes) { // pairs begin at even positions of the tile
            const std::uint64_t zero = zeros_of(row), both = zero & zero >> 1;
            const std::uint32_t odd = row * edge[0] % 2;
            pairs += static_cast<std::uint32_t>(__popcll(static_cast<long long>(both & every_second << odd)));
            const bool across = (odd + edge[0]) % 2 != 0 && row + 1 < rows; // the last one pairs with the next row's
            if (across && (zero >> (edge[0] - 1) & 1) != 0) pairs += static_cast<std::uint32_t>(zeros_of(row + 1) & 1);
        }
        return pairs;
    }
};

// Which values of a tile are coded: a bit for each subgroup of this lane's run of chunks.
template <TileShape shape>
class CodedRuns {
    using C = Chunks<shape>;

public:
    __device__ explicit CodedRuns(const Edges& edge) : edge_(&edge) {
        const std::uint32_t i = lane(), x0 = shape == TileShape::line ? i * 16 : 0; // its first subgroup along x
        const std::uint32_t along_x = (edge[0] + C::lanes_of_subgroup - 1) / C::lanes_of_subgroup;
        here_ = x0 < along_x ? std::min(along_x - x0, 16u) : 0;
        clipped_ = along_x * C::lanes_of_subgroup - edge[0];
        last_is_here_ = x0 + here_ == along_x;
        rows_ = 1;
        if (shape == TileShape::square) rows_ = rows_of(2 * i, edge[1]);
        if (shape == TileShape::box) rows_ = rows_of(i % 8 * 2, edge[1]) * rows_of(i / 8 * 2, edge[2]);
        if (rows_ == 0) here_ = 0;
        bits_ = (1u << here_) - 1;
    }
    __device__ void none() { bits_ = 0; }
    __device__ void only(std::uint32_t bits) { bits_ &= bits; }
    __device__ std::uint32_t bits() const { return bits_; }
    __device__ std::uint32_t groups() const { // in the tile
        if (shape == TileShape::line) return ((*edge_)[0] + 63) / 64;
        if (shape == TileShape::square) return ((*edge_)[0] + 7) / 8 * (((*edge_)[1] + 7) / 8);
        return ((*edge_)[0] + 3) / 4 * (((*edge_)[1] + 3) / 4) * (((*edge_)[2] + 3) / 4);
    }
    // Keeps only the subgroups in significant groups, from the mask of groups. Returns how many this lane has.
    __device__ std::uint32_t take(std::uint64_t groups) {
        const auto own = here_ > 0 ? static_cast<std::uint32_t>(groups >> first_group()) : 0u;
        std::uint32_t bits = 0;
        for (std::uint32_t g = 0; g < 16 / subgroups_of_group; ++g)
            bits |= (own >> g & 1) * ((1u << subgroups_of_group) - 1) << g * subgroups_of_group;
        bits_ &= bits;
        return static_cast<std::uint32_t>(__popc(bits_));
    }
    // The mask of groups with a significant subgroup. significant: in this lane's run. Returns the same to every lane.
    __device__ std::uint64_t groups_of(std::uint32_t significant) const {
        std::uint32_t groups = 0;
        for (std::uint32_t g = 0; g < 16 / subgroups_of_group; ++g)
            groups |= (significant >> g * subgroups_of_group & ((1u << subgroups_of_group) - 1)) != 0 ? 1u << g : 0;
        const std::uint64_t mask = here_ > 0 ? std::uint64_t{groups} << first_group() : 0;
        return __reduce_or_sync(whole_warp, static_cast<std::uint32_t>(mask)) |
               std::uint64_t{__reduce_or_sync(whole_warp, static_cast<std::uint32_t>(mask >> 32))} << 32;
    }
    // Keeps only the subgroups whose bit is set in `significant`, which has one bit for each of them, in order.
    __device__ void keep(std::uint32_t significant) {
        std::uint32_t kept = 0;
        for (std::uint32_t s = 0; s < 16; ++s)
            if ((bits_ >> s & 1) != 0) {
                kept |= (significant & 1) << s;
                significant >>= 1;
            }
        bits_ = kept;
    }
    // Which subgroups of this lane's run have a bit set in the tile's chunks.
    template <class Words>
    __device__ static std::uint32_t subgroups_of(const Words& chunk) {
        std::uint32_t subgroups = 0;
        for (std::uint32_t x = 0; x < C::chunks_of_run; ++x) {
            std::uint32_t any = 0;
            for (std::uint32_t row = 0; row < C::rows_of_run; ++row) any |= chunk[C::number(lane(), row, x)];
            for (std::uint32_t s = 0; s < C::subgroups_of_chunk; ++s)
                if ((any >> s * C::lanes_of_subgroup & ((1u << C::lanes_of_subgroup) - 1)) != 0)
                    subgroups |= 1u << (x * C::subgroups_of_chunk + s);
        }
        return subgroups;
    }
    // Writes a bit for every coded value into the tile's chunks.
    template <class Words>
    __device__ void mark(Words& chunk) const {
        for (std::uint32_t x = 0; x < C::chunks_of_run; ++x) {
            std::uint32_t lanes = 0;
            for (std::uint32_t s = 0; s < C::subgroups_of_chunk; ++s)
                if ((bits_ >> (x * C::subgroups_of_chunk + s) & 1) != 0)
                    lanes |= ((1u << C::lanes_of_subgroup) - 1) << s * C::lanes_of_subgroup;
            for (std::uint32_t row = 0; row < C::rows_of_run; ++row) {
                const std::uint32_t number = C::number(lane(), row, x);
                chunk[number] = lanes & C::inside(*edge_, number);
            }
        }
    }
    // Packs the bits that `significant` has at these subgroups.
    __device__ std::uint32_t packed(std::uint32_t significant) const {
        std::uint32_t packed = 0, n = 0;
        for (std::uint32_t s = 0; s < 16; ++s)
            if ((bits_ >> s & 1) != 0) packed |= (significant >> s & 1) << n++;
        return packed;
    }
    // How many values of the tile are coded; the same for every lane.
    __device__ std::uint32_t values() const {
        std::uint32_t in_row = static_cast<std::uint32_t>(__popc(bits_)) * C::lanes_of_subgroup;
        if (last_is_here_ && here_ > 0 && (bits_ >> (here_ - 1) & 1) != 0) in_row -= clipped_;
        return warp_sum(rows_ * in_row);
    }
    // Whether this lane's value in a chunk is coded, provided that it is in the tile.
    __device__ bool is_coded(std::uint32_t x, std::uint32_t y, std::uint32_t z) const {
        const std::uint32_t bits = __shfl_sync(whole_warp, bits_, static_cast<int>(C::run(x, y, z)));
        return (bits >> (C::first_subgroup(x) + lane() / C::lanes_of_subgroup) & 1) != 0;
    }

private:
    static constexpr std::uint32_t subgroups_of_group = shape == TileShape::line ? 8 : 2;
    __device__ std::uint32_t first_group() const {
        const std::uint32_t i = lane();
        if (shape == TileShape::line) return i * 2;
        if (shape == TileShape::square) return i / 4 * (((*edge_)[0] + 7) / 8);
        return (i / 16 * (((*edge_)[1] + 3) / 4) + i % 8 / 2) * (((*edge_)[0] + 3) / 4);
    }
    __device__ static std::uint32_t rows_of(std::uint32_t first, std::uint32_t edge) {
        return first < edge ? std::min(edge - first, 2u) : 0;
    }

    const Edges* edge_;
    std::uint32_t here_, clipped_, rows_, bits_;
    bool last_is_here_;
};

} // namespace cusz::cuda
