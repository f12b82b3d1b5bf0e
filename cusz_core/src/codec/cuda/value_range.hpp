// The range of a field's values, to which relative bounds refer (docs/reference/format.md, section 4; value_range.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "archive/quantiser.hpp"
#include "codec/data.hpp"
#include "device/each.hpp"

namespace cusz::cuda {

template <class T>
struct RangeArguments {
    struct Result { // of one block; min > max if it had no values
        T min, max;
        std::uint64_t n_valid;
    };
    const T* field;
    std::uint64_t n;
    typename Traits<T>::Bits special;
    Result* results; // of each block
};

// The range of a field, from what the blocks have found.
template <class Result>
ValueRange range_of_blocks(std::span<const Result> results) {
    ValueRange range;
    for (const Result& own : results) // + 0.0: turns -0 into 0
        range.add({static_cast<double>(own.min) + 0.0, static_cast<double>(own.max) + 0.0, own.n_valid});
    return range;
}

// Max blocks of a kernel on the current device, and so the number of results of compute_range.
std::uint32_t max_blocks();

// Both launch one kernel: of max_blocks(), or of `blocks` for each field. Throw Error(DEVICE).
template <class T>
void compute_range(const RangeArguments<T>& arguments, cudaStream_t stream);
template <class T>
void compute_range(const Each<RangeArguments<T>>& fields, std::uint32_t blocks, cudaStream_t stream);

} // namespace cusz::cuda
