// Stands in for the header of the CUDA runtime's host functions; cuda_runtime.h, for the header that kernels use.
#pragma once

#include <cstddef>

// Qualifiers ----------------------------------------------------------------------------------------------------------

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
// No __noinline__: libstdc++'s headers have attributes of that name. Kernels write __attribute__((noinline)).
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

// Indices and sizes ---------------------------------------------------------------------------------------------------

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// The host side -------------------------------------------------------------------------------------------------------

// A list, because cudaGetErrorName needs the names once more.
#define SIMT_ERRORS(ERROR)                                                                                             \
    ERROR(cudaSuccess, 0)                                                                                              \
    ERROR(cudaErrorInvalidValue, 1)                                                                                    \
    ERROR(cudaErrorMemoryAllocation, 2)                                                                                \
    ERROR(cudaErrorInvalidConfiguration, 9)                                                                            \
    ERROR(cudaErrorInvalidMemcpyDirection, 21)                                                                         \
    ERROR(cudaErrorInsufficientDriver, 35)                                                                             \
    ERROR(cudaErrorInvalidDeviceFunction, 98)                                                                          \
    ERROR(cudaErrorNoDevice, 100)                                                                                      \
    ERROR(cudaErrorInvalidDevice, 101)                                                                                 \
    ERROR(cudaErrorInvalidResourceHandle, 400)                                                                         \
    ERROR(cudaErrorIllegalAddress, 700)                                                                                \
    ERROR(cudaErrorAssert, 710)                                                                                        \
    ERROR(cudaErrorLaunchFailure, 719)                                                                                 \
    ERROR(cudaErrorNotSupported, 801)                                                                                  \
    ERROR(cudaErrorUnknown, 999)

#define SIMT_ENUMERATOR(name, number) name = number,
enum cudaError { SIMT_ERRORS(SIMT_ENUMERATOR) };
#undef SIMT_ENUMERATOR
using cudaError_t = cudaError;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3,
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMemoryPoolsSupported = 115,
};

struct cudaDeviceProp {
    char name[256];
};

struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
    long reserved[8];
};

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
#define cudaEventDisableTiming 0x02
#define cudaHostAllocDefault 0x00

struct cudaLaunchAttribute {
    int id;
};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    std::size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};

#pragma GCC visibility push(default) // tests call them too
extern "C" {
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMalloc(void** pointer, std::size_t size);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMallocAsync(void** pointer, std::size_t size, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream);
cudaError_t cudaMallocHost(void** pointer, std::size_t size);
cudaError_t cudaHostAlloc(void** pointer, std::size_t size, unsigned flags);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer);
cudaError_t cudaMemcpy(void* target, const void* source, std::size_t size, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* pointer, int value, std::size_t size);
cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t size, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaEventDestroy(cudaEvent_t event);

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int block_size,
                                                          std::size_t dynamic_shared);
}
#pragma GCC visibility pop
