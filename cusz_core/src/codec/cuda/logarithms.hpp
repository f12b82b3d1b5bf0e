// The host interface of the kernels that turn fields into logarithms and back (logarithms.cu; archive/logarithm.hpp).
// Pointers are device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "archive/logarithm.hpp"

namespace cusz::cuda {

template <class T>
struct ExponentArguments {
    struct Result { // of one warp: magnitudes, as bits; infinity and 0 if it had no values
        typename Traits<T>::Bits least, most;
    };
    const T* field;
    std::uint64_t n;
    typename Traits<T>::Bits special;
    Result* results; // max_warps() of them
};
std::size_t max_warps();

template <class T>
struct ToLogsArguments {
    const T* field;
    std::uint64_t n;
    LogScale scale;
    typename Traits<T>::Bits special;
    void* logs;
    std::uint32_t* signs; // a bit for every value, the lowest first
    std::uint32_t* any;   // 0; becomes 1 if there is a sign
};

template <class T>
struct FromLogsArguments {
    const void* logs;
    std::uint64_t n;
    LogScale scale;
    typename Traits<T>::Bits special;
    const std::uint32_t* signs; // null: none
    T* field;
};

// Each launches one kernel. Throws Error(DEVICE).
template <class T>
void find_exponents(const ExponentArguments<T>& arguments, cudaStream_t stream);
template <class T>
void to_logs(const ToLogsArguments<T>& arguments, cudaStream_t stream);
template <class T>
void from_logs(const FromLogsArguments<T>& arguments, cudaStream_t stream);

} // namespace cusz::cuda
