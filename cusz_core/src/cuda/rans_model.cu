#include "rans_model.cuh"

#include "check.hpp"

namespace cusz::cuda {

__global__ void __launch_bounds__(condense_threads) condense_kernel(const ModelArguments a) {
    condense(a, shared_memory<CondenseMemory>());
}

__global__ void __launch_bounds__(model_threads) model_kernel(const ModelArguments a) {
    choose_model(a, shared_memory<ModelMemory>());
}

void choose_model(const ModelArguments& a, cudaStream_t stream) {
    const auto launch = [&](auto kernel, std::uint32_t blocks, std::uint32_t threads, std::size_t shared_bytes) {
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(blocks);
        config.blockDim = dim3(threads);
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream;
        CUSZ_CUDA(cudaLaunchKernelEx(&config, kernel, a));
    };
    launch(condense_kernel, n_contexts / condense_warps, condense_threads, sizeof(CondenseMemory));
    launch(model_kernel, 1, model_threads, sizeof(ModelMemory));
}

} // namespace cusz::cuda
