// Histogram of the symbols (paper, section 3.2.1), over a fixed sample of tiles (docs/format.md, section 7).
#pragma once

#include "pipeline.cuh"

namespace cusz::cuda {

template <class T>
struct CountMemory {
    TileMemory<T> tile;
    std::uint32_t count[1]; // one per symbol of the alphabet
};

template <class T>
std::size_t count_memory_bytes(int r) {
    return sizeof(CountMemory<T>) + (Alphabet(r).size() - 1) * sizeof(std::uint32_t);
}

// Adds the symbols coded for a prepared tile.
template <class T>
__device__ void add_tile(const PreparedTile& prepared, const Alphabet& alphabet, const TileMemory<T>& tile,
                         std::uint32_t* count) {
    if (prepared.significance.all_zero) return;
    std::uint32_t at = warp() * values_of_warp + lane();
    for (std::uint32_t k = 0; k < values_of_thread; ++k, at += warp_lanes)
        if (at < tile.box.values() && (!prepared.significance.masked || tile.coded.test(at)))
            atomicAdd(count + alphabet.symbol(code_to_encode(tile, prepared.has_missing, at)), 1u);
}

} // namespace cusz::cuda
