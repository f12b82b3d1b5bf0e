// How many substreams a tile's symbols are divided into (paper, section 3.3; docs/reference/format.md, section 6).
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/block.cuh"

namespace cusz::cuda {

inline constexpr std::uint32_t max_substreams = 32;

__device__ inline std::uint32_t substream_count(std::uint32_t n) { return std::min((n + 63) / 64, +max_substreams); }

__device__ inline std::uint32_t bit_width(std::uint32_t v) {
    return 32 - static_cast<std::uint32_t>(__clz(static_cast<int>(v)));
}

} // namespace cusz::cuda
