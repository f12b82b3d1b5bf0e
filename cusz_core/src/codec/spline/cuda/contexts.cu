// What contexts of points take from the coarser lattice: one block per tile.
#include "contexts.cuh"
#include "launches.cuh"

namespace cusz::cuda {

// coded: encoding; otherwise decoding.
template <class T, std::uint32_t axes, bool coded>
__global__ void __launch_bounds__(tile_threads, blocks_at_once) fixed_kernel(const DeviceLattice<T> of) {
    auto& shared = shared_memory<FixedMemory>();
    for (std::uint64_t number = blockIdx.x; number < of.lattice.n_tiles; number += gridDim.x) {
        __syncthreads();
        if (is_first_thread()) shared.place = place_of(of, number);
        __syncthreads();
        const TilePlace place = shared.place;
        if (place.live == 0) continue;
        with_form<axes>(shared.place, [&](const auto& tile) {
            auto* const points = rest_of<CoarsePoint>(shared);
            if constexpr (coded)
                find_fixed_contexts_of(of, tile, place, points, of.points);
            else
                find_fixed_contexts_of(of, tile, place, points, of.codes);
        });
    }
}

template <class T>
std::size_t fixed_memory_bytes(const Lattice& lattice) {
    return rest_at<FixedMemory> + fixed_bytes<T>(lattice.edge, lattice.n_active);
}

template <class T>
void find_fixed_contexts(const DeviceLattice<T>& of, cudaStream_t stream) {
    const std::size_t bytes = fixed_memory_bytes<T>(of.lattice);
    with_axes(of.lattice, [&]<std::uint32_t axes>(Class<axes>) {
        if (of.points != nullptr)
            launch<fixed_kernel<T, axes, true>>(of, tile_threads, bytes, of.lattice.n_tiles, false, stream);
        else
            launch<fixed_kernel<T, axes, false>>(of, tile_threads, bytes, of.lattice.n_tiles, false, stream);
    });
}

template std::size_t fixed_memory_bytes<float>(const Lattice&);
template std::size_t fixed_memory_bytes<double>(const Lattice&);
template void find_fixed_contexts(const DeviceLattice<float>&, cudaStream_t);
template void find_fixed_contexts(const DeviceLattice<double>&, cudaStream_t);

} // namespace cusz::cuda
