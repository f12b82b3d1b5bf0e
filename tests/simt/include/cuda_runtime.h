// Stands in for the header of the CUDA runtime: with this folder first on the include path, .cu files compile with the
// host compiler and run on the CPU (see emulator.hpp). Names, signatures and numeric values are those of CUDA 13; only
// what portable kernels and their host code need is here, so that anything else fails to compile.
#pragma once

#include "cuda_runtime_api.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

// Dynamic shared memory -----------------------------------------------------------------------------------------------

// It is one symbol, declared at global scope as
//     extern __shared__ __align__(128) unsigned char cusz_dynamic_shared[];
// The macro turns that declaration into a pointer to an array, which is set to the running block's memory.
// Static shared memory (a local variable) is refused by the compiler: only names with linkage can be weak.
#define __shared__ __attribute__((weak))
#define cusz_dynamic_shared (*simt_dynamic_shared)
extern __shared__ __align__(128) unsigned char cusz_dynamic_shared[];

// The emulator, as seen by device code --------------------------------------------------------------------------------

namespace simt {

// A place in the source; the same for every thread that passes it.
using Site = std::source_location;

enum class Call : unsigned char {
    syncthreads,
    syncthreads_or,
    syncthreads_and,
    syncthreads_count,
    syncwarp,
    ballot,
    any,
    all,
    shuffle,
    shuffle_up,
    shuffle_xor,
    add,
    min,
    max,
    bit_or,
    nanosleep,
    step,
};

extern uint3 thread_index, block_index;
extern dim3 block_size, grid_size;
extern long steps_left;

// Waits for all threads of the block that have not returned; returns `call` applied to the predicates of all.
int meet_block(Call call, int predicate, Site site);

// Waits for all lanes in `mask` that have not returned; returns `call` applied to the values of all.
std::uint64_t meet_warp(Call call, unsigned mask, std::uint64_t value, Site site);

// As above, for shuffles; `operand` is the intrinsic's argument after the value.
std::uint64_t shuffle(Call call, unsigned mask, std::uint64_t value, int operand, int width, Site site);

// Lets other threads of this and other blocks continue.
void pause(Call call, Site site);

// Called before accesses by which threads communicate: at some of them others go first (see Schedule).
inline void step(Site site) {
    if (--steps_left <= 0) pause(Call::step, site);
}

template <class T>
concept Number32or64 = std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);

template <Number32or64 T>
std::uint64_t to_bits(T value) {
    if constexpr (sizeof(T) == 4)
        return std::bit_cast<std::uint32_t>(value);
    else
        return std::bit_cast<std::uint64_t>(value);
}

template <Number32or64 T>
T from_bits(std::uint64_t bits) {
    if constexpr (sizeof(T) == 4)
        return std::bit_cast<T>(static_cast<std::uint32_t>(bits));
    else
        return std::bit_cast<T>(bits);
}

template <class T>
using Same = std::type_identity_t<T>;

} // namespace simt

static const uint3& threadIdx [[maybe_unused]] = simt::thread_index;
static const uint3& blockIdx [[maybe_unused]] = simt::block_index;
static const dim3& blockDim [[maybe_unused]] = simt::block_size;
static const dim3& gridDim [[maybe_unused]] = simt::grid_size;

// Barriers and fences -------------------------------------------------------------------------------------------------

#define SIMT_SITE simt::Site site = simt::Site::current()

inline void __syncthreads(SIMT_SITE) { simt::meet_block(simt::Call::syncthreads, 0, site); }
inline int __syncthreads_or(int predicate, SIMT_SITE) {
    return simt::meet_block(simt::Call::syncthreads_or, predicate, site);
}
inline int __syncthreads_and(int predicate, SIMT_SITE) {
    return simt::meet_block(simt::Call::syncthreads_and, predicate, site);
}
inline int __syncthreads_count(int predicate, SIMT_SITE) {
    return simt::meet_block(simt::Call::syncthreads_count, predicate, site);
}
inline void __syncwarp(unsigned mask = ~0u, SIMT_SITE) { simt::meet_warp(simt::Call::syncwarp, mask, 0, site); }
inline void __threadfence(SIMT_SITE) { simt::step(site); }
inline void __nanosleep(unsigned, SIMT_SITE) { simt::pause(simt::Call::nanosleep, site); }

// Votes, shuffles and reductions of a warp ----------------------------------------------------------------------------

inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_SITE) {
    return static_cast<unsigned>(simt::meet_warp(simt::Call::ballot, mask, predicate != 0, site));
}
inline int __any_sync(unsigned mask, int predicate, SIMT_SITE) {
    return static_cast<int>(simt::meet_warp(simt::Call::any, mask, predicate != 0, site));
}
inline int __all_sync(unsigned mask, int predicate, SIMT_SITE) {
    return static_cast<int>(simt::meet_warp(simt::Call::all, mask, predicate != 0, site));
}

template <simt::Number32or64 T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, SIMT_SITE) {
    return simt::from_bits<T>(simt::shuffle(simt::Call::shuffle, mask, simt::to_bits(value), lane, width, site));
}
template <simt::Number32or64 T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_SITE) {
    return simt::from_bits<T>(
        simt::shuffle(simt::Call::shuffle_up, mask, simt::to_bits(value), static_cast<int>(delta), width, site));
}
template <simt::Number32or64 T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, SIMT_SITE) {
    return simt::from_bits<T>(simt::shuffle(simt::Call::shuffle_xor, mask, simt::to_bits(value), lanes, width, site));
}

// For unsigned values only: CUDA has others for signed values.
#define SIMT_REDUCE(name, call)                                                                                        \
    template <std::same_as<unsigned> T>                                                                                \
    T name(unsigned mask, T value, SIMT_SITE) {                                                                        \
        return static_cast<T>(simt::meet_warp(simt::Call::call, mask, value, site));                                   \
    }
SIMT_REDUCE(__reduce_add_sync, add)
SIMT_REDUCE(__reduce_min_sync, min)
SIMT_REDUCE(__reduce_max_sync, max)
SIMT_REDUCE(__reduce_or_sync, bit_or)
#undef SIMT_REDUCE

// Atomics -------------------------------------------------------------------------------------------------------------

// Plain accesses, because one thread runs at a time and none is interrupted in between.
#define SIMT_ATOMIC(name, new_value)                                                                                   \
    template <simt::Number32or64 T>                                                                                    \
    T name(T* address, simt::Same<T> value, SIMT_SITE) {                                                               \
        simt::step(site);                                                                                              \
        const T old = *address;                                                                                        \
        *address = new_value;                                                                                          \
        return old;                                                                                                    \
    }
SIMT_ATOMIC(atomicMax, std::max(old, value))
SIMT_ATOMIC(atomicOr, old | value)
#undef SIMT_ATOMIC

template <simt::Number32or64 T>
T atomicAdd(T* address, simt::Same<T> value, SIMT_SITE) {
    simt::step(site);
    const T old = *address;
    if constexpr (std::is_integral_v<T>) { // wraps around
        using Bits = std::make_unsigned_t<T>;
        *address = static_cast<T>(static_cast<Bits>(old) + static_cast<Bits>(value));
    } else {
        *address = old + value;
    }
    return old;
}

// A load with a hint --------------------------------------------------------------------------------------------------

template <class T>
T __ldg(const T* address) {
    return *address;
}
#undef SIMT_SITE

// Integers ------------------------------------------------------------------------------------------------------------

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>(((std::uint64_t{high} << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; ++i)
        result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}
// CUDA's functions in the global namespace; integers and floating point are never mixed.
template <simt::Number32or64 T>
constexpr T min(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
        return std::fmin(a, b);
    else
        return b < a ? b : a;
}
template <simt::Number32or64 T>
constexpr T max(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
        return std::fmax(a, b);
    else
        return a < b ? b : a;
}

// Templates for the host side ----------------------------------------------------------------------------------------

namespace simt {
struct Parameter {
    const void* at;
    std::size_t bytes, alignment;
};
// Runs call(arguments) as the kernel in every thread of the grid.
cudaError_t launch(const cudaLaunchConfig_t* config, const void* kernel, void (*call)(const void*),
                   const void* arguments, std::span<const Parameter> parameters);
} // namespace simt

template <class T>
cudaError_t cudaMalloc(T** pointer, std::size_t size) {
    return ::cudaMalloc(reinterpret_cast<void**>(pointer), size);
}
template <class T>
cudaError_t cudaMallocAsync(T** pointer, std::size_t size, cudaStream_t stream) {
    return ::cudaMallocAsync(reinterpret_cast<void**>(pointer), size, stream);
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, std::size_t size, unsigned flags = 0) {
    return ::cudaHostAlloc(reinterpret_cast<void**>(pointer), size, flags);
}
template <class T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
    return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T* kernel, int block_size,
                                                          std::size_t dynamic_shared) {
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(kernel), block_size,
                                                           dynamic_shared);
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    static_assert((std::is_trivially_copyable_v<std::remove_cvref_t<Parameters>> && ...),
                  "what a kernel takes is copied bytewise");
    struct Closure {
        void (*kernel)(Parameters...);
        std::tuple<std::remove_cvref_t<Parameters>...> arguments;
    };
    const Closure closure{kernel, {std::forward<Arguments>(arguments)...}};
    const auto call = [](const void* opaque) {
        const auto& it = *static_cast<const Closure*>(opaque);
        std::apply(it.kernel, it.arguments);
    };
    return std::apply(
        [&](const auto&... argument) {
            const std::array<simt::Parameter, sizeof...(argument)> parameters{
                {{&argument, sizeof(argument), alignof(decltype(argument))}...}};
            return simt::launch(config, reinterpret_cast<const void*>(kernel), call, &closure, parameters);
        },
        closure.arguments);
}
