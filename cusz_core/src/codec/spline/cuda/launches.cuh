// How the spline codec's kernels are launched.
#pragma once

#include <algorithm>
#include <type_traits>

#include "device/launch.cuh"
#include "kernels.hpp"
#include "tile.cuh"

namespace cusz::cuda {

// Blocks per multiprocessor that must have enough registers: no fewer, and not many more, or registers would spill.
inline constexpr int blocks_at_once = 4;

// Dynamic shared memory has an object of a known type, and the rest behind it.
template <class Known>
inline constexpr std::size_t rest_at = (sizeof(Known) + 15) / 16 * 16;
template <class T, class Known>
__device__ T* rest_of(Known& shared) {
    return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(&shared) + rest_at<Known>);
}

inline bool fits(const Lattice& lattice) {
    bool fits = true;
    for (std::size_t a = 0; a < 4; ++a) fits = fits && lattice.edge[a] <= tile_edges(lattice.n_active)[a];
    return fits;
}

template <class Use>
void with_axes(const Lattice& lattice, const Use& use) {
    if (lattice.n_active == 1) return use(Class<1>{});
    if (lattice.n_active == 2) return use(Class<2>{});
    use(Class<3>{});
}

// For kernels whose warps take a part each: use(Class<axes>, whether tiles fit).
template <class Use>
void with_axes_and_fit(const Lattice& lattice, const Use& use) {
    with_axes(lattice, [&]<std::uint32_t axes>(Class<axes>) {
        if (fits(lattice)) return use(Class<axes>{}, std::true_type{});
        use(Class<axes>{}, std::false_type{});
    });
}
constexpr std::uint64_t blocks_for(std::uint64_t parts, std::uint32_t warps) { return (parts + warps - 1) / warps; }

} // namespace cusz::cuda
