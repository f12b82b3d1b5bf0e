#include "rans_model.cuh"

#include "device/check.hpp"

namespace cusz::cuda {

struct ModelLaunch {
    ModelArguments arguments;
    ModelStep step;
};

__global__ void __launch_bounds__(model_threads, 1) model_kernel(const ModelLaunch a) {
    choose_model(a.arguments, a.step, shared_memory<ModelMemory>());
}

void choose_model(const ModelArguments& a, cudaStream_t stream) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(model_blocks);
    config.blockDim = dim3(model_threads);
    config.dynamicSmemBytes = sizeof(ModelMemory);
    config.stream = stream;
    for (const ModelStep step : {ModelStep::order, ModelStep::merge, ModelStep::again, ModelStep::write})
        CUSZ_CUDA(cudaLaunchKernelEx(&config, model_kernel, ModelLaunch{a, step}));
}

} // namespace cusz::cuda
