#include "pieces.hpp"

#include <algorithm>

#include "archive/checksum.hpp"
#include "device/block.cuh"
#include "device/launch.cuh"

namespace cusz::cuda {

struct PieceMemory {
    Array<std::uint64_t, block_warps> partial;
};

__global__ void __launch_bounds__(block_threads) piece_kernel(const PieceArguments a) {
    auto& shared = shared_memory<PieceMemory>();
    std::uint64_t checksum = 0;
    const std::uint64_t pieces = (a.n + piece_words - 1) / piece_words;
    for (std::uint64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const std::uint64_t begin = piece * piece_words;
        const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(+piece_words, a.n - begin));
        std::uint64_t sum = 0;
        for (std::uint32_t i = threadIdx.x; i < n; i += block_threads) {
            const std::uint32_t word = a.words[begin + i];
            sum += std::uint64_t{word} * checksum_weight(i);
            if (a.target != nullptr) a.target[begin + i] = word;
        }
        checksum += part_of_sum(piece, block_sum<block_warps>(sum, shared.partial), n);
    }
    if (is_first_thread()) add(a.checksum, checksum);
}

void sum_pieces(const PieceArguments& a, cudaStream_t stream) {
    const std::uint64_t parts = (a.n + piece_words - 1) / piece_words;
    launch<piece_kernel>(a, block_threads, sizeof(PieceMemory), parts, false, stream);
}

} // namespace cusz::cuda
