// What is kept about a point between kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/block.cuh"

namespace cusz::cuda {

__device__ inline std::uint32_t number_of_bits(std::uint32_t v) {
    return 32 - static_cast<std::uint32_t>(__clz(static_cast<int>(v)));
}

// What a point's context takes from the coarser lattice: roughness, the sum of magnitudes, and what is missing: 0
// nothing, 1 something around, 2 a corner, 3 all corners. Unless that is 0, only it matters.
struct FixedContext {
    static constexpr std::uint32_t bits = 10, most = 64; // larger sums give the same context
    static constexpr std::uint32_t first_missing = (most + 1) * 8;

    std::uint32_t roughness, sum, missing;

    __device__ std::uint32_t packed() const {
        return missing != 0 ? first_missing + missing : roughness + 8 * std::min(sum, +most);
    }
    __device__ static FixedContext unpacked(std::uint32_t v) {
        return {v & 7, v >> 3, v > first_missing ? v - first_missing : 0};
    }
};

// A recorded point: what its context takes from the coarser lattice, later replaced by its place; and its code, or
// which kind of missing value it is.
struct RecordedPoint {
    static constexpr std::uint32_t missing_bit = 1u << FixedContext::bits, code_at = FixedContext::bits + 1;
    static constexpr std::uint32_t context_mask = missing_bit - 1;
    static constexpr std::int32_t special = 0, verbatim = 1;

    std::int32_t code;
    bool is_missing;

    __device__ std::uint32_t packed(std::uint32_t context) const {
        return context | (is_missing ? missing_bit : 0) | static_cast<std::uint32_t>(code) << code_at;
    }
    __device__ explicit RecordedPoint(std::uint32_t word)
        : code(static_cast<std::int32_t>(word) >> code_at), is_missing((word & missing_bit) != 0) {}
    __device__ RecordedPoint(std::int32_t its_code, bool missing) : code(its_code), is_missing(missing) {}
    // Whether the code is 0, and the value not missing.
    __device__ static bool is_zero(std::uint32_t word) { return word >> FixedContext::bits == 0; }
};

} // namespace cusz::cuda
