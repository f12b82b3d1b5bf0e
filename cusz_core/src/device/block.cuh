// Building blocks of the kernels, which use only a small part of CUDA: blocks, warps, shared memory, atomics.
#pragma once

#include <cuda_runtime.h>

#include <cassert>
#include <cmath>
#include <cstdint>

#include "each.hpp"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "the kernels need compute capability 8.0 or newer: see CUSZ_CUDA_ARCHITECTURES"
#endif

// The block's dynamic shared memory.
extern __shared__ __align__(16) unsigned char cusz_dynamic_shared[];

namespace cusz::cuda {

inline constexpr std::uint32_t warp_lanes = 32, whole_warp = ~0u;

// The block's dynamic shared memory as one object, initially uninitialised.
template <class Shared>
__device__ Shared& shared_memory() {
    return *reinterpret_cast<Shared*>(cusz_dynamic_shared);
}

// An array that checks its indices in builds with assertions.
template <class T, std::uint32_t n>
struct Array {
    T item[n];
    __device__ T& operator[](std::uint32_t i) {
        assert(i < n);
        return item[i];
    }
    __device__ const T& operator[](std::uint32_t i) const {
        assert(i < n);
        return item[i];
    }
};

// Threads of a block, unless a kernel has a reason for another number.
inline constexpr std::uint32_t block_threads = 256, block_warps = block_threads / warp_lanes;

__device__ inline std::uint32_t lane() { return threadIdx.x % warp_lanes; }
__device__ inline std::uint32_t warp() { return threadIdx.x / warp_lanes; }
__device__ inline bool is_first_thread() { return threadIdx.x == 0; }

// A kernel's arguments for the field of this block.
template <class Arguments>
__device__ const Arguments& own(const Arguments& arguments) {
    return arguments;
}
template <class Arguments>
__device__ const Arguments& own(const Each<Arguments>& each) {
    return each.of[blockIdx.y];
}

__device__ inline float magnitude(float v) { return ::fabsf(v); }
__device__ inline double magnitude(double v) { return ::fabs(v); }

// add() sums over all blocks. report() keeps what has the lowest number: ~((number + 1) << 8 | what), initially 0.
__device__ inline void add(std::uint64_t* sum, std::uint64_t v) {
    if (v != 0) atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(v));
}
template <class What>
__device__ void report(std::uint64_t* first, std::uint64_t number, What what) {
    atomicMax(reinterpret_cast<unsigned long long*>(first),
              static_cast<unsigned long long>(~((number + 1) << 8 | static_cast<std::uint32_t>(what))));
}

// Reductions and sums over a warp, in which all lanes take part.

__device__ inline std::uint32_t warp_sum(std::uint32_t v) { return __reduce_add_sync(whole_warp, v); }

__device__ inline std::uint64_t warp_sum(std::uint64_t v) {
    for (std::uint32_t d = warp_lanes / 2; d > 0; d /= 2) v += __shfl_xor_sync(whole_warp, v, static_cast<int>(d));
    return v;
}

// Adds v of the lane d before this one, if there is one.
template <std::uint32_t d, class U>
__device__ U plus_lane_before(U v) {
#ifdef __CUDA_ARCH__ // the intrinsic withholds the predicate that says whether there is one
    if constexpr (sizeof(U) == 4)
        asm volatile("{ .reg .u32 other; .reg .pred p; shfl.sync.up.b32 other|p, %0, %1, 0, 0xffffffff; @p add.u32 %0, "
                     "%0, other; }"
                     : "+r"(v)
                     : "n"(d));
    else
        asm volatile("{ .reg .u32 low, high; .reg .u64 other; .reg .pred p; mov.b64 {low, high}, %0; "
                     "shfl.sync.up.b32 low|p, low, %1, 0, 0xffffffff; shfl.sync.up.b32 high, high, %1, 0, 0xffffffff; "
                     "mov.b64 other, {low, high}; @p add.u64 %0, %0, other; }"
                     : "+l"(v)
                     : "n"(d));
    return v;
#else
    const U other = __shfl_up_sync(whole_warp, v, d);
    return lane() >= d ? v + other : v;
#endif
}

// The sum over the lanes up to and including this one.
template <class U>
__device__ U warp_inclusive_sum(U v) {
    static_assert(warp_lanes == 32);
    v = plus_lane_before<1>(v);
    v = plus_lane_before<2>(v);
    v = plus_lane_before<4>(v);
    v = plus_lane_before<8>(v);
    return plus_lane_before<16>(v);
}

// The sum over a block of `warps` warps, returned to every thread. partial: shared scratch memory.
template <std::uint32_t warps, class U, std::uint32_t room>
__device__ U block_sum(U v, Array<U, room>& partial) {
    static_assert(warps <= room);
    v = warp_sum(v);
    __syncthreads(); // all reads of the previous sum are done
    if (lane() == 0) partial[warp()] = v;
    __syncthreads();
    U sum = 0;
    for (std::uint32_t w = 0; w < warps; ++w) sum += partial[w];
    return sum;
}

// ---- Decoupled look-back (Merrill and Garland): the parts of a running sum are known before the sum up to them.

// What a part publishes for later parts, in one 64-bit word so that flag and sum become visible together: nothing yet
// (0), its own sum, or the sum up to its end. Parts are numbered by an atomic ticket, so one that has started never
// waits for one that has not.
namespace look_back {

inline constexpr std::uint64_t own_sum = std::uint64_t{1} << 62, sum_to_end = std::uint64_t{2} << 62;
inline constexpr std::uint64_t value_bits = own_sum - 1;

__device__ inline void publish(std::uint64_t* states, std::uint64_t part, std::uint64_t word) {
    *static_cast<volatile std::uint64_t*>(states + part) = word;
}

// The sum of all parts before this one; by a whole warp, whose lanes look at 32 parts at once.
__device__ inline std::uint64_t sum_before(const std::uint64_t* states, std::uint64_t part) {
    std::uint64_t sum = 0;
    for (std::uint64_t end = part; end > 0;) { // parts before `end` remain to be added
        const std::uint64_t back = warp_lanes - lane();
        std::uint64_t word = sum_to_end; // before the first part the sum is 0
        if (back <= end) {
            const volatile std::uint64_t* const state = states + (end - back);
            while ((word = *state) == 0) __nanosleep(20);
        }
        const std::uint32_t complete = __ballot_sync(whole_warp, (word & sum_to_end) != 0);
        // Start at the last lane with a sum up to its end, which includes all lanes before it.
        const std::uint32_t from =
            complete == 0 ? 0 : 31 - static_cast<std::uint32_t>(__clz(static_cast<int>(complete)));
        sum += warp_sum(lane() >= from ? word & value_bits : std::uint64_t{0});
        if (complete != 0) break;
        end -= warp_lanes;
    }
    return sum;
}

} // namespace look_back

} // namespace cusz::cuda
