// Significance masks: boxes of a tile whose codes are all 0 are not coded (docs/reference/format.md, sections 3 and 6).
#pragma once

#include "coded_runs.cuh"
#include "tile.cuh"

namespace cusz::cuda {

// The groups, or subgroups, of one (clipped) tile.
class GroupGrid {
public:
    __device__ GroupGrid(const Edges& tile, const Edges& group) : tile_(tile), group_(group), groups_(tile, group) {}
    __device__ std::uint32_t total() const { return groups_.total; }

    // Calls use(position of the first value, length) for each of a group's runs along x.
    template <class Use>
    __device__ void for_each_run(std::uint32_t number, const Use& use) const {
        Edges begin, end;
        corners(number, begin, end);
        for (std::uint32_t w = begin[3]; w < end[3]; ++w)
            for (std::uint32_t z = begin[2]; z < end[2]; ++z)
                for (std::uint32_t y = begin[1]; y < end[1]; ++y)
                    use(((w * tile_[2] + z) * tile_[1] + y) * tile_[0] + begin[0], end[0] - begin[0]);
    }
    __device__ std::uint32_t values(std::uint32_t number) const {
        Edges begin, end;
        corners(number, begin, end);
        return (end[0] - begin[0]) * (end[1] - begin[1]) * (end[2] - begin[2]) * (end[3] - begin[3]);
    }
    // The number of the group that contains the first value of group `number` of `other`.
    __device__ std::uint32_t group_around(const GroupGrid& other, std::uint32_t number) const {
        Edges begin, end;
        other.corners(number, begin, end);
        std::uint32_t at = 0;
        for (std::uint32_t a = 4; a-- > 0;) at = at * groups_.count[a] + begin[a] / group_[a];
        return at;
    }

private:
    __device__ void corners(std::uint32_t number, Edges& begin, Edges& end) const {
        for (std::uint32_t a = 0; a < 4; ++a) {
            begin[a] = number % groups_.count[a] * group_[a];
            end[a] = std::min(begin[a] + group_[a], tile_[a]);
            number /= groups_.count[a];
        }
    }

    const Edges &tile_, &group_;
    const Groups groups_;
};

// Finds the masks tile.group_mask, tile.subgroup and tile.significant_subgroup from the tile's codes; tile.coded marks
// the nonzero ones. Ends with a barrier.
template <class T>
__device__ Significance find_significance(TileMemory<T>& tile, const Tiling& tiling) {
    const GroupGrid groups(tile.box.edge, tiling.group()), subgroups(tile.box.edge, tiling.subgroup());
    const std::uint32_t n = tile.box.values();
    std::uint32_t in_groups = 0, zero_pairs = 0; // in_groups: values in significant groups
    {
        const std::uint32_t g = threadIdx.x;
        bool significant = false;
        if (g < groups.total())
            groups.for_each_run(g, [&](std::uint32_t at, std::uint32_t length) {
                significant = significant || tile.coded.any(at, length);
            });
        if (significant) in_groups = groups.values(g);
        const std::uint32_t mask = __ballot_sync(whole_warp, significant);
        if (warp() < 2 && lane() == 0) tile.group_mask[warp()] = mask;
    }
    if (threadIdx.x < bitmap_words) {
        const std::uint32_t first = threadIdx.x * 32, here = first < n ? std::min(n - first, 32u) : 0;
        const std::uint32_t zero = ~tile.coded.word[threadIdx.x] & (here == 32 ? whole_warp : (1u << here) - 1);
        zero_pairs = static_cast<std::uint32_t>(__popc(zero & zero >> 1 & 0x55555555u));
    }
    const std::uint32_t both = block_sum<block_warps>(in_groups | zero_pairs << 16, tile.partial);
    in_groups = both & 0xFFFF;
    zero_pairs = both >> 16;
    const std::uint32_t n_significant =
        static_cast<std::uint32_t>(__popc(tile.group_mask[0]) + __popc(tile.group_mask[1]));
    if (n_significant == 0) return {true, false, false, 0};

    const bool coarse = groups.total() - n_significant >= 2;
    const std::uint32_t coarse_bits = coarse ? in_groups + groups.total() : n;
    if (2 * zero_pairs > subgroups.total()) {
        std::uint32_t in_subgroups = 0, candidates = 0;
        for (std::uint32_t first = warp() * warp_lanes; first < max_tile_values; first += block_threads) {
            const std::uint32_t s = first + lane();
            bool candidate = false, significant = false;
            if (s < subgroups.total()) {
                const std::uint32_t g = groups.group_around(subgroups, s);
                candidate = (tile.group_mask[g / 32] >> g % 32 & 1) != 0;
                if (candidate)
                    subgroups.for_each_run(s, [&](std::uint32_t at, std::uint32_t length) {
                        significant = significant || tile.coded.any(at, length);
                    });
            }
            candidates += candidate ? 1 : 0;
            in_subgroups += significant ? subgroups.values(s) : 0;
            const std::uint32_t candidate_bits = __ballot_sync(whole_warp, candidate);
            const std::uint32_t significant_bits = __ballot_sync(whole_warp, significant);
            if (lane() == 0) {
                tile.subgroup.word[first / 32] = candidate_bits;
                tile.significant_subgroup.word[first / 32] = significant_bits;
            }
        }
        const std::uint32_t sums = block_sum<block_warps>(in_subgroups | candidates << 16, tile.partial);
        in_subgroups = sums & 0xFFFF;
        candidates = sums >> 16;
        if (in_subgroups + groups.total() + candidates < coarse_bits) return {false, true, true, in_subgroups};
    }
    return {false, coarse, false, coarse ? in_groups : n};
}

// As above, for a tile of a known shape, by one warp: finds tile.significance, tile.group_mask, tile.candidates (the
// subgroups of significant groups) and tile.significant. If there is a mask or the tile is clipped, tile.coded then
// marks the values that are coded, with their ranks.
template <TileShape shape, class T>
__device__ void find_significance(ColumnMemory<T>& tile) {
    const Edges& edge = tile.box.edge;
    const std::uint32_t n = tile.box.values();
    CodedRuns<shape> coded(edge);
    const std::uint32_t significant = CodedRuns<shape>::subgroups_of(tile.coded.word);
    const std::uint64_t groups = coded.groups_of(significant);
    const auto n_significant = static_cast<std::uint32_t>(__popcll(static_cast<long long>(groups)));
    const bool coarse = coded.groups() - n_significant >= 2;
    CodedRuns<shape> in_groups = coded;
    const std::uint32_t candidates = in_groups.take(groups);
    const std::uint32_t n_in_groups = in_groups.values(), n_candidates = warp_sum(candidates);
    Significance found{groups == 0, coarse, false, coarse ? n_in_groups : n};
    if (coarse) coded = in_groups;
    if (2 * warp_sum(Chunks<shape>::zero_pairs(edge, tile.coded.word)) > Chunks<shape>::subgroups(edge)) {
        in_groups.only(significant);
        const std::uint32_t n_in_subgroups = in_groups.values();
        if (n_in_subgroups + coded.groups() + n_candidates < (coarse ? n_in_groups + coded.groups() : n)) {
            found = {groups == 0, true, true, n_in_subgroups};
            coded = in_groups;
        }
    }
    if (found.all_zero) found = {true, false, false, 0};
    __syncwarp(); // all lanes have read the chunks
    if (found.masked || n < max_tile_values) {
        coded.mark(tile.coded.word);
        __syncwarp();
        tile.coded.rank();
    }
    CodedRuns<shape> candidate(edge);
    candidate.take(groups);
    tile.candidates[lane()] = candidate.bits();
    tile.significant[lane()] = significant;
    if (lane() != 0) return;
    tile.significance = found;
    tile.n_candidates = n_candidates;
    tile.group_mask[0] = static_cast<std::uint32_t>(groups);
    tile.group_mask[1] = static_cast<std::uint32_t>(groups >> 32);
}

// Sets the bits of all values in significant groups or subgroups. `coded` is all 0 before; `threads` threads share the
// work, and this one is number `me`.
template <class IsSignificant>
__device__ void mark_coded(RankedBitmap& coded, const GroupGrid& grid, std::uint32_t me, std::uint32_t threads,
                           const IsSignificant& significant) {
    for (std::uint32_t number = me; number < grid.total(); number += threads)
        if (significant(number))
            grid.for_each_run(number, [&](std::uint32_t at, std::uint32_t length) { coded.set(at, length); });
}

} // namespace cusz::cuda
