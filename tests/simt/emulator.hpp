// Runs CUDA kernels on the CPU, for tests. Unmodified .cu files are compiled with the host compiler against
// include/cuda_runtime.h and linked with the target simt_runtime.
//
// Every thread of a block is a fiber. A fiber runs until it waits in a barrier or in an intrinsic of its warp; whoever
// arrives last computes the results of all and makes them ready. Nothing else interrupts a thread but __nanosleep and,
// now and then, fences and atomics, which let others go first. Several blocks may be in flight, each with dynamic
// shared memory of its own. In which order threads and blocks get their turn is the schedule, which tests vary: results
// must not depend on it. Everything happens on the calling OS thread, within the call of the host's function; launches
// of several OS threads come one after the other.
//
// A launch fails, with a report that names kernel, block, threads and source lines, where
//   - threads wait for each other for ever, meet in different places, or name masks that do not agree (exited threads
//     are not waited for, as in CUDA), or everything only spins;
//   - a byte behind or before dynamic shared memory, or around an allocation of device memory, was written;
//   - an assertion does not hold, or an address is not mapped (AddressSanitizer finds every access that is out of
//     bounds, in device and in dynamic shared memory, where all is built with it).
// Memory that was not written has a pattern, other than zero. Copies between device and pinned memory take effect when
// the host has waited for them: before that the target of one holds a pattern, and the source must stay as it is.
//
// It does not see: races that no schedule brings to light, and the order in which a GPU's memory shows writes.
#pragma once

#include "cuda_runtime.h"

#include <string>

extern "C" {
#define SIMT_API __attribute__((visibility("default")))

// Order of threads and blocks: 0 ascending, where a warp runs ahead while it can; 1 descending, where warps take turns;
// 2 random by the seed, with switches between threads at atomics and fences, and between blocks at barriers.
// blocks_in_flight: 1 to 16. At first it is (0, 0, 4).
SIMT_API void simt_set_schedule(int order, unsigned seed, int blocks_in_flight);

// Makes the nth next call of this function of the runtime fail, once, without effect; "*" counts calls of all of them
// (but not of those that ask about errors). nth = 0 takes that back.
SIMT_API void simt_fail_call(const char* function, int nth);
// How often that function was called so far; "*" counts as above.
SIMT_API unsigned long simt_calls(const char* function);

SIMT_API void simt_set_memory_limit(std::size_t bytes);
SIMT_API void simt_set_device_count(int count); // 0 to 4, at first 1

// Whether every call fails, as where a kernel has accessed memory that is not there: the device is lost to the process.
SIMT_API void simt_break_device(int is_broken);

// Whether device memory can be accessed by its device's kernels and functions of the runtime alone, as on a real
// device, so that the host's code, and kernels of other devices, end with a fault where they do. At first it cannot be
// told from the host's own.
SIMT_API void simt_hide_device_memory(int hide);

// What is allocated now: device memory, its peak since the last reset, pinned memory; streams and events.
SIMT_API std::size_t simt_allocated_bytes();
SIMT_API std::size_t simt_peak_bytes();
SIMT_API void simt_reset_peak();
SIMT_API std::size_t simt_pinned_bytes();
SIMT_API unsigned long simt_live_handles();

SIMT_API unsigned long simt_launch_count();
// Lines "kernel<types>: launches" of all kernels launched so far, sorted, as far as they fit with a final zero. Returns
// the size that all of them need.
SIMT_API std::size_t simt_launched(char* buffer, std::size_t size);
// Waits of the host for a stream, an event or the device, and blocking copies, so far.
SIMT_API unsigned long simt_synchronizations();
// Kernels, copies and fills that this stream was given since simt_clear(); of blocking ones, the default stream.
SIMT_API unsigned long simt_work(cudaStream_t stream);

// The last report, empty if there was none since simt_clear(); valid until the next one.
SIMT_API const char* simt_report();
// Forgets the report, counts of calls, launches and synchronisations, and calls that were to fail.
SIMT_API void simt_clear();
}

namespace simt {

constexpr std::size_t shared_limit = 227 * 1024, shared_default = 48 * 1024;
constexpr unsigned block_limit = 1024, in_flight_limit = 16;

struct Schedule {
    int order = 0;
    unsigned seed = 0;
    unsigned blocks_in_flight = 4;
};

struct Grid {
    dim3 blocks, threads;
    std::size_t shared_bytes;
    const void* kernel;
    void (*call)(const void*);
    const void* arguments;
};

// Runs the grid to its end. Gives the error, and the report on it unless it is cudaSuccess. One call at a time.
cudaError_t run(const Grid& grid, const Schedule& schedule, std::string& report);

template <class... Parts>
std::string join(const Parts&... parts) {
    std::string text;
    (text.append(parts), ...);
    return text;
}

// "name<types>" of the function that begins there, with namespaces; the address if it has no name.
std::string name_of(const void* function);

} // namespace simt
