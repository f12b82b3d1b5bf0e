// Histogram of the symbols (paper, section 3.2.1), over a fixed sample of tiles (docs/reference/format.md, section 7).
#pragma once

#include "writing.cuh"

namespace cusz::cuda {

template <class T, TileShape shape>
struct CountMemory {
    ColumnMemory<T> tile;
    Array<typename Traits<T>::Bits, max_tile_values> exchange;
    std::uint32_t count[1]; // one per symbol of the alphabet
};
template <class T>
struct CountMemory<T, TileShape::any> {
    TileMemory<T> tile;
    std::uint32_t count[1];
};

template <class T, TileShape shape>
std::size_t count_memory_bytes(int r) {
    return sizeof(CountMemory<T, shape>) + (Alphabet(r).size() - 1) * sizeof(std::uint32_t);
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
template <TileShape shape, class T>
__device__ void add_tile(const PreparedTile& prepared, const Alphabet& alphabet, const ColumnMemory<T>& tile,
                         const typename Traits<T>::Bits (&column)[values_of_thread], const Bits16& missing,
                         std::uint32_t* count) {
    using C = Column<shape>;
    if (prepared.significance.all_zero) return;
    const bool all = prepared.significance.n_coded == max_tile_values;
    for_column([&](std::uint32_t k) {
        if (!all && !tile.coded.test(C::chunk(k), lane())) return;
        auto code = static_cast<std::int32_t>(column[k]);
        if (prepared.has_out_of_range && tile.out_of_range.test(C::chunk(k), lane())) code = 0;
        if (prepared.has_missing && missing[k]) code = missing_code;
        atomicAdd(count + alphabet.symbol(code), 1u);
    });
}

} // namespace cusz::cuda
