// The range of a field's values, to which relative bounds refer (docs/reference/format.md, section 4; value_range.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "archive/quantiser.hpp"
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

// Max blocks of a kernel on the current device, and so the number of results of compute_range.
std::uint32_t max_blocks();

// Both launch one kernel: of max_blocks(), or of `blocks` for each field. Throw Error(DEVICE).
template <class T>
void compute_range(const RangeArguments<T>& arguments, cudaStream_t stream);
template <class T>
void compute_range(const Each<RangeArguments<T>>& fields, std::uint32_t blocks, cudaStream_t stream);

} // namespace cusz::cuda
