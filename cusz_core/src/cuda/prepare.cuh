// A tile's way from the field to what is to be coded, by a thread block.
#pragma once

#include "dual_quant.cuh"
#include "zero_groups.cuh"

namespace cusz::cuda {

// A tile ready to be coded, the same for every thread; the rest is in TileMemory.
struct PreparedTile {
    bool all_special, has_holes;
    std::uint32_t predictor;
    LiveGroups groups;
};

struct Predicted {
    bool all_special, has_holes;
    std::uint32_t predictor;
};

template <class Place, class T>
__device__ Predicted predict(const Quantiser<T>& quantiser, std::uint32_t highest_order, const T* field,
                             TileMemory<T>& tile) {
    const Prequantised found = prequant<Place>(field, quantiser, tile);
    if (found.all_special) return {true, true, 0};
    return {false, found.has_holes, postquant<Place>(tile, highest_order, found.has_holes)};
}

// The symbol at a position: a delta inside the alphabet, 0 in place of a delta outlier, or hole_delta.
template <class T>
__device__ std::int32_t symbol_delta(const TileMemory<T>& tile, bool has_holes, std::uint32_t position) {
    if (has_holes && tile.hole.test(position)) return hole_delta;
    return tile.delta_outlier.test(position) ? 0 : static_cast<std::int32_t>(tile.value[position]);
}

// Predicts tile `number` of the batch. Deltas of magnitude `reach` or more are outliers. If values are masked,
// tile.coded has the ranks of those that are not. Ends with a barrier.
template <class T>
__device__ PreparedTile prepare(const TileBatch& batch, const FieldState<T>& state, std::uint32_t reach,
                                std::uint64_t number, const T* field, TileMemory<T>& tile) {
    using U = typename Traits<T>::Bits;
    __syncthreads(); // the last tile has been read
    if (is_first_thread()) {
        tile.box = batch.tiling.box(batch.first_tile + number);
        tile.box.offset -= batch.first_value;
    }
    __syncthreads();
    const auto highest_order = static_cast<std::uint32_t>(std::min(batch.tiling.dimensions(), 3));
    const Predicted predicted = FullPositions::is_shape_of(tile.box)
                                    ? predict<FullPositions>(state.quantiser, highest_order, field, tile)
                                    : predict<Positions>(state.quantiser, highest_order, field, tile);
    if (predicted.all_special) return {true, true, 0, {true, false, false, 0}};
    const bool has_holes = predicted.has_holes;

    const std::uint32_t n = tile.box.values();
    std::uint32_t at = warp() * values_of_warp + lane();
    for (std::uint32_t k = 0; k < values_of_thread; ++k, at += warp_lanes) {
        const bool hole = at < n && has_holes && tile.hole.test(at);
        const U delta = at < n ? static_cast<U>(tile.value[at]) : 0;
        const std::uint32_t beyond = __ballot_sync(whole_warp, !hole && delta + (reach - 1) > 2 * U{reach} - 2);
        const std::uint32_t live = __ballot_sync(whole_warp, hole || delta != 0);
        if (lane() == 0) {
            tile.delta_outlier.word[at / 32] = beyond;
            tile.coded.word[at / 32] = live;
        }
    }
    __syncthreads();
    const LiveGroups groups = find_live_groups(tile, batch.tiling);
    if (groups.masked) {
        __syncthreads(); // tile.coded has been read
        for (std::uint32_t i = threadIdx.x; i < bitmap_words; i += block_threads) tile.coded.word[i] = 0;
        __syncthreads();
        if (groups.fine)
            mark_coded(tile.coded, GroupGrid(tile.box.edge, batch.tiling.subgroup()), threadIdx.x, block_threads,
                       [&](std::uint32_t s) { return tile.live_subgroup.test(s); });
        else
            mark_coded(tile.coded, GroupGrid(tile.box.edge, batch.tiling.group()), threadIdx.x, block_threads,
                       [&](std::uint32_t g) { return (tile.group_mask[g / 32] >> g % 32 & 1) != 0; });
        __syncthreads();
        if (warp() == 0) tile.coded.rank();
        if (warp() == 1 && groups.fine) tile.subgroup.rank();
    }
    if (warp() == 2) tile.value_outlier.rank();
    if (warp() == 3) tile.delta_outlier.rank();
    __syncthreads();
    return {false, has_holes, predicted.predictor, groups};
}

} // namespace cusz::cuda
