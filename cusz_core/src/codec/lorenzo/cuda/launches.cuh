// What the kernels' launches have in common.
#pragma once

#include <type_traits>

#include "device/launch.cuh"
#include "kernels.hpp"

namespace cusz::cuda {

template <TileShape shape>
using Shape = std::integral_constant<TileShape, shape>;

// Calls use(Shape<shape>{}).
template <class Use>
void with_shape(TileShape shape, const Use& use) {
    switch (shape) {
    case TileShape::any: return use(Shape<TileShape::any>{});
    case TileShape::line: return use(Shape<TileShape::line>{});
    case TileShape::square: return use(Shape<TileShape::square>{});
    case TileShape::box: return use(Shape<TileShape::box>{});
    }
}

// Blocks per multiprocessor in the kernels that predict tiles: as many as registers allow without spilling. Code for
// newer processors takes more registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
template <class T, TileShape shape>
inline constexpr int compress_blocks = shape == TileShape::any || sizeof(T) == 8 ? 1 : 2;
#else
template <class T, TileShape shape>
inline constexpr int compress_blocks = sizeof(T) == 8 || shape == TileShape::line ? 2 : 3;
#endif

} // namespace cusz::cuda
