// Runs CUDA kernels on the CPU, for tests. Unmodified .cu files are compiled with the host compiler against
// include/cuda_runtime.h and linked with the target simt_runtime.
//
// Every thread of a block is a fiber. A fiber runs until it waits in a barrier or in an intrinsic of its warp; the last
// one to arrive computes the results for all and makes them ready. Nothing else interrupts a thread except __nanosleep
// and, now and then, fences and atomics, which let others go first. Several blocks may be in flight, each with its own
// dynamic shared memory. The order in which threads and blocks take turns is the schedule, which tests vary: results
// must not depend on it. Everything happens on the calling OS thread, within the host function's call; launches from
// several OS threads run one after another.
//
// A launch fails, with a report that names kernel, block, threads and source lines, if
//   - threads wait for each other for ever, meet in different places, or pass masks that do not agree (exited threads
//     are not waited for, as in CUDA), or all of them only spin;
//   - a byte before or after dynamic shared memory, or around a device memory allocation, was written;
//   - an assertion fails, or an address is not mapped (AddressSanitizer finds every access that is out of
//     bounds, in device and in dynamic shared memory, if everything is built with it).
// Unwritten memory has a nonzero pattern. Copies between device and pinned memory complete once the host has waited for
// them: until then a pinned target holds a pattern, and a pinned source must not change. Memory freed on another stream
// than it was allocated on, before the host has waited for that one, is reported.
//
// It cannot detect races that no schedule exposes, nor model the order in which writes become visible on a GPU.
#pragma once

#include "cuda_runtime.h"

#include <span>
#include <string>

extern "C" {
#define SIMT_API __attribute__((visibility("default")))

// Order of threads and blocks: 0 ascending, where a warp runs ahead while it can; 1 descending, where warps take turns;
// 2 random by the seed, with switches between threads at atomics and fences, and between blocks at barriers.
// blocks_in_flight: 1 to 16. The default is (0, 0, 4).
SIMT_API void simt_set_schedule(int order, unsigned seed, int blocks_in_flight);

// Max shared memory of a block: at most 227 KiB, the default. Also resets the limit of every kernel, as a new context
// would.
SIMT_API void simt_set_shared_limit(std::size_t bytes);

// Makes the nth call of this runtime function from now on fail, once, without effect; "*" counts calls of all
// functions (except those that query errors). nth = 0 cancels that.
SIMT_API void simt_fail_call(const char* function, int nth);
// How often this function has been called; "*" counts as above.
SIMT_API unsigned long simt_calls(const char* function);

SIMT_API void simt_set_memory_limit(std::size_t bytes);
SIMT_API void simt_set_device_count(int count); // 0 to 4, default 1
// Whether memory can be allocated in stream order; by default it can.
SIMT_API void simt_set_memory_pools(int has);
// Devices on which the process has made a context since simt_clear(), a bit each: by cudaSetDevice, as since CUDA 12, or
// by any call that needs one while this device was current.
SIMT_API unsigned simt_contexts();

// Whether every call fails, as after a kernel has accessed unmapped memory: the device is lost to the process.
SIMT_API void simt_break_device(int is_broken);

// Whether only runtime functions and kernels of the same device can access device memory, as on a real device: host
// code and kernels of other devices then fault. By default nothing is protected.
SIMT_API void simt_hide_device_memory(int hide);

// Current allocations: device memory, its peak since the last reset, pinned memory; streams and events.
SIMT_API std::size_t simt_allocated_bytes();
SIMT_API std::size_t simt_peak_bytes();
SIMT_API void simt_reset_peak();
SIMT_API std::size_t simt_pinned_bytes();
SIMT_API unsigned long simt_live_handles();

SIMT_API unsigned long simt_launch_count();
// Lines "kernel<types>: launches" for all kernels launched so far, sorted, as many characters as fit with a final zero.
// Returns the size that all of them need.
SIMT_API std::size_t simt_launched(char* buffer, std::size_t size);
// Number of host waits (for a stream, an event or the device) and blocking copies so far.
SIMT_API unsigned long simt_synchronizations();
// Bytes copied from devices to the host so far.
SIMT_API std::size_t simt_bytes_to_host();
// Kernels, copies and fills given to this stream since simt_clear(); blocking ones count for the default stream.
SIMT_API unsigned long simt_work(cudaStream_t stream);

// The last report, empty if there was none since simt_clear(); valid until the next one.
SIMT_API const char* simt_report();
// Clears the report, counts of calls, launches, synchronisations and bytes, and pending failures of calls.
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
    std::span<const Parameter> parameters; // the same as `arguments`, one by one
};

// Runs the grid to its end. Returns the error, and the report on it unless it is cudaSuccess. One call at a time.
cudaError_t run(const Grid& grid, const Schedule& schedule, std::string& report);

// Another way to run a grid. `memory`: the ranges that the kernel may access, in ascending order.
struct Memory {
    std::uintptr_t begin, end;
};
using Runner = cudaError_t (*)(const Grid& grid, const Schedule& schedule, std::span<const Memory> memory,
                               std::string& report);
void set_runner(Runner runner); // null: run()

template <class... Parts>
std::string join(const Parts&... parts) {
    std::string text;
    (text.append(parts), ...);
    return text;
}

// What the driver does, without the runtime's errors: cudaPointerGetAttributes, but without a context; contexts of
// devices; and a stack of them for each thread, over the device that the thread has set.
cudaError_t find_pointer(cudaPointerAttributes* attributes, const void* pointer);
cudaError_t make_context(int device);
cudaError_t push_context(int device);
cudaError_t pop_context();

// "name<types>", with namespaces, of the function at this address; the address if it has no name.
std::string name_of(const void* function);
// As the compiler writes it; empty if it has no name.
std::string mangled_name_of(const void* function);

} // namespace simt
