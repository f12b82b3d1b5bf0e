// The checksum of bytes that are stored as they are, and their copy on the device (archive/checksum.hpp; pieces.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace cusz::cuda {

struct PieceArguments {
    const std::uint32_t* words;
    std::uint64_t n;
    std::uint32_t* target;   // or null
    std::uint64_t* checksum; // to be added to
};

// Launches one kernel. Throws Error(DEVICE).
void sum_pieces(const PieceArguments& arguments, cudaStream_t stream);

} // namespace cusz::cuda
