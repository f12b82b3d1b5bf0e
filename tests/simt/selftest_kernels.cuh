// Small kernels that use the emulator's features, rightly or wrongly. They are CUDA: nvcc compiles them too.
#pragma once

#include <cuda_runtime.h>

#include <cassert>
#include <cstdint>

extern __shared__ __align__(128) unsigned char cusz_dynamic_shared[];

namespace selftest {

constexpr unsigned all_lanes = ~0u;

template <class T>
__device__ T* shared() {
    return reinterpret_cast<T*>(cusz_dynamic_shared);
}
__device__ inline unsigned lane() { return threadIdx.x % 32; }
__device__ inline unsigned warp() { return threadIdx.x / 32; }

// Sum over the block, in thread 0; needs one T per warp of shared memory.
template <class T>
__device__ T block_sum(T value) {
    for (int step = 16; step > 0; step /= 2) {
        const T other = __shfl_sync(all_lanes, value, static_cast<int>(lane()) + step);
        if (lane() + step < 32 && threadIdx.x + step < blockDim.x) value += other;
    }
    if (lane() == 0) shared<T>()[warp()] = value;
    __syncthreads();
    T sum = 0;
    if (threadIdx.x == 0)
        for (unsigned i = 0; i < (blockDim.x + 31) / 32; ++i) sum += shared<T>()[i];
    __syncthreads();
    return sum;
}

template <class T>
struct SumArguments {
    const T* values;
    T* sums;
};
template <class T>
__global__ void __launch_bounds__(1024) sum_blocks(const SumArguments<T> a) {
    const T sum = block_sum(a.values[blockIdx.x * blockDim.x + threadIdx.x]);
    if (threadIdx.x == 0) a.sums[blockIdx.x] = sum;
}

struct Votes {
    unsigned ballot, quarter_ballot, reduced_add, reduced_min, reduced_max, reduced_or;
    int any, all, any_seven, count, block_or, block_and;
};
static __global__ void vote(Votes* votes) {
    const bool odd = threadIdx.x % 2 == 1;
    Votes& mine = votes[threadIdx.x];
    mine.ballot = __ballot_sync(all_lanes, odd);
    mine.quarter_ballot = __ballot_sync(0xFFu << (lane() & ~7u), threadIdx.x % 3 == 0);
    mine.any = __any_sync(all_lanes, odd);
    mine.all = __all_sync(all_lanes, lane() < 32);
    mine.any_seven = __any_sync(all_lanes, threadIdx.x == 7);
    mine.count = __syncthreads_count(threadIdx.x % 5 == 0);
    mine.block_or = __syncthreads_or(threadIdx.x == 33);
    mine.block_and = __syncthreads_and(threadIdx.x != 33);
    mine.reduced_add = __reduce_add_sync(all_lanes, threadIdx.x);
    mine.reduced_or = __reduce_or_sync(all_lanes, 1u << lane());
    mine.reduced_min = __reduce_min_sync(all_lanes, threadIdx.x);
    mine.reduced_max = __reduce_max_sync(all_lanes, threadIdx.x);
}

template <class T>
struct ShuffleArguments {
    T* results; // three per thread: by lane, up, xor
    int width, operand;
};
template <class T>
__global__ void shuffle(const ShuffleArguments<T> a) {
    const T value = static_cast<T>(1000) + static_cast<T>(threadIdx.x);
    T* mine = a.results + threadIdx.x * 3;
    mine[0] = __shfl_sync(all_lanes, value, a.operand, a.width);
    mine[1] = __shfl_up_sync(all_lanes, value, a.operand, a.width);
    mine[2] = __shfl_xor_sync(all_lanes, value, a.operand, a.width);
}

struct AtomicsArguments {
    unsigned *histogram, *bits;
    unsigned long long* sum;
    int* max;
};
static __global__ void use_atomics(const AtomicsArguments a) {
    unsigned* counts = shared<unsigned>();
    for (unsigned i = threadIdx.x; i < 16; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    const unsigned number = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&counts[number % 16], 1u);
    atomicAdd(a.sum, number);
    atomicOr(&a.bits[number / 32 % 8], 1u << number % 32);
    atomicMax(a.max, static_cast<int>(number) - 7);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 16; i += blockDim.x) atomicAdd(&a.histogram[i], counts[i]);
}

// Threads from `from` on return at once; the others sum their numbers.
struct EarlyArguments {
    unsigned* sum;
    unsigned from;
};
static __global__ void return_early(const EarlyArguments a) {
    if (threadIdx.x >= a.from) return;
    __syncthreads();
    const unsigned in_warp = __reduce_add_sync(all_lanes, threadIdx.x);
    if (lane() == 0) atomicAdd(a.sum, in_warp);
    __syncthreads();
}

// Every thread takes its neighbour's number from shared memory, with or without waiting for it.
struct NeighbourArguments {
    unsigned* results;
    bool wait;
};
static __global__ void take_neighbours(const NeighbourArguments a) {
    shared<unsigned>()[threadIdx.x] = threadIdx.x;
    if (a.wait) __syncthreads();
    a.results[threadIdx.x] = shared<unsigned>()[(threadIdx.x + 1) % blockDim.x];
}

// Mistakes, by number --------------------------------------------------------------------------------------------

enum class Mistake {
    barriers_in_branches,
    barrier_and_shuffle,
    missing_lane,
    foreign_mask,
    different_masks,
    different_calls,
    spin,
    spin_on_atomic,
    shared_behind,
    shared_far_behind,
    shared_before,
    global_behind,
    global_before,
    null,
    assertion,
    stack,
};
struct MistakeArguments {
    Mistake mistake;
    volatile int* memory; // of 4 integers
    int offset;
};

static __device__ __attribute__((noinline)) int deep(volatile int* memory, int depth) {
    volatile int frame[64];
    frame[0] = depth;
    return depth == 0 ? memory[0] : deep(memory, depth - 1) + frame[0];
}

static __global__ void make_mistake(const MistakeArguments a) {
    volatile int* words = shared<int>();
    switch (a.mistake) {
    case Mistake::barriers_in_branches:
        if (threadIdx.x < 32)
            __syncthreads();
        else
            __syncthreads();
        break;
    case Mistake::barrier_and_shuffle:
        if (threadIdx.x < 32)
            __syncthreads();
        else if (threadIdx.x != 37)
            __syncwarp();
        __syncthreads();
        break;
    case Mistake::missing_lane:
        if (lane() != 5) words[0] = __shfl_sync(all_lanes, static_cast<int>(lane()), 0);
        __syncthreads();
        break;
    case Mistake::foreign_mask: words[0] = static_cast<int>(__ballot_sync(0x0000FFFFu, 1)); break;
    case Mistake::different_masks: __syncwarp(lane() < 16 ? all_lanes : 0xFFFF0001u); break;
    case Mistake::different_calls:
        if (lane() < 16)
            words[0] = __any_sync(all_lanes, 1);
        else
            words[0] = __all_sync(all_lanes, 1);
        break;
    case Mistake::spin:
        while (a.memory[0] != 12345) __nanosleep(20);
        break;
    case Mistake::spin_on_atomic:
        while (atomicAdd(const_cast<int*>(a.memory), 0) != 12345) {
        }
        break;
    case Mistake::shared_behind:
    case Mistake::shared_far_behind:
    case Mistake::shared_before:
        if (threadIdx.x == 3) words[a.offset] = 7;
        break;
    case Mistake::global_behind:
    case Mistake::global_before:
        if (threadIdx.x == 3) a.memory[a.offset] = 7;
        break;
    case Mistake::null:
        if (threadIdx.x == 3) *static_cast<volatile int*>(nullptr) = 7;
        break;
    case Mistake::assertion: assert(threadIdx.x != 3); break;
    case Mistake::stack: a.memory[1] = deep(a.memory, 100000); break;
    }
}

// Odds and ends ----------------------------------------------------------------------------------------------------

static __global__ void copy_shared(unsigned* first_words) { first_words[blockIdx.x] = shared<unsigned>()[0]; }
static __global__ void halve(float* values) { values[threadIdx.x] *= 0.5f; }

} // namespace selftest
