// Every CUDA call is checked: a failure names the call and its source line.
#pragma once

#include <cuda_runtime_api.h>

#include "errors.hpp"

namespace cusz::cuda {

[[noreturn]] inline void fail_cuda(cudaError_t error, const char* call, const char* file, int line) {
    static_cast<void>(cudaGetLastError()); // clears it: a failure is reported once
    fail(error == cudaErrorMemoryAllocation ? CUSZ_ERROR_MEMORY : CUSZ_ERROR_DEVICE, cudaGetErrorName(error), " (",
         cudaGetErrorString(error), ") from ", call, " at ", file, ":", line);
}

} // namespace cusz::cuda

#define CUSZ_CUDA(call)                                                                                                \
    do {                                                                                                               \
        const cudaError_t cusz_cuda_error = (call);                                                                    \
        if (cusz_cuda_error != cudaSuccess) ::cusz::cuda::fail_cuda(cusz_cuda_error, #call, CUSZ_FILE, __LINE__);      \
    } while (false)

// The file name without the build machine's directories.
#define CUSZ_FILE (__builtin_strrchr("/" __FILE__, '/') + 1)
