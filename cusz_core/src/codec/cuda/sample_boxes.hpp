// Copies boxes of a field on the device into one piece of memory (sample_boxes.cu), so that the host can look at a
// sample of the field (codec/codec.hpp, choose) or encode its small lattices.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "archive/tiling.hpp"

namespace cusz::cuda {

struct BoxToCopy {
    TileBox from;     // in the field
    std::uint64_t to; // number of its first value in the copy; the others follow in order
};

template <class T>
struct CopyBoxesArguments {
    const T* field;
    T* copy;
    const BoxToCopy* boxes;
    std::uint32_t n_boxes;
};

// Launches one kernel. Throws Error(DEVICE).
template <class T>
void copy_boxes(const CopyBoxesArguments<T>& arguments, cudaStream_t stream);

} // namespace cusz::cuda
