#include "device.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "check.hpp"
#include "memory.hpp"

namespace cusz::cuda {

namespace {

// The number of libraries loaded by this process so far.
unsigned long long libraries_loaded() noexcept {
    unsigned long long count = 0;
    const auto first = [](dl_phdr_info* info, std::size_t, void* target) {
        *static_cast<unsigned long long*>(target) = info->dlpi_adds;
        return 1; // it is the same in every entry
    };
    dl_iterate_phdr(first, &count);
    return count;
}

// Functions of the driver; types and numbers are those of cuda.h. The runtime's cudaPointerGetAttributes would create a
// context, of some hundred megabytes, on the thread's current device, which is device 0 in a new thread, whatever device
// the process works on. Even a driver that is too old for this library knows its pointers.
using PointerQuery = int(unsigned n, const int* attributes, void** answers, unsigned long long pointer);
constexpr int memory_type = 2, is_managed = 8, device_ordinal = 9; // attributes
constexpr unsigned device_memory = 2;                              // a memory type
constexpr int success = 0, not_initialised = 3, deinitialised = 4, no_context = 201;

#ifndef CUSZ_CUDA_DRIVER
#define CUSZ_CUDA_DRIVER "libcuda.so.1"
#endif

// Null unless the driver is loaded, by this process or by this library for an earlier device call.
void* driver() noexcept {
    static std::atomic<void*> loaded = nullptr;
    static std::atomic<unsigned long long> looked_at = 0; // dlopen takes 20 microseconds to say no
    if (void* const known = loaded.load(std::memory_order_acquire); known != nullptr) return known;
    const unsigned long long now = libraries_loaded();
    if (looked_at.load(std::memory_order_relaxed) == now) return nullptr;
    // It stays loaded, as it does when the runtime has loaded it.
    if (void* const found = dlopen(CUSZ_CUDA_DRIVER, RTLD_LAZY | RTLD_NOLOAD); found != nullptr)
        loaded.store(found, std::memory_order_release);
    looked_at.store(now, std::memory_order_relaxed);
    return loaded.load(std::memory_order_acquire);
}
template <class Function>
Function* of_driver(const char* name) noexcept {
    void* const found = driver();
    return found != nullptr ? reinterpret_cast<Function*>(dlsym(found, name)) : nullptr;
}
PointerQuery* pointer_query() noexcept {
    static std::atomic<PointerQuery*> query = nullptr;
    if (PointerQuery* const known = query.load(std::memory_order_acquire); known != nullptr) return known;
    query.store(of_driver<PointerQuery>("cuPointerGetAttributes"), std::memory_order_release);
    return query.load(std::memory_order_acquire);
}

int device_by_runtime(const void* pointer) noexcept {
    cudaPointerAttributes attributes{};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, pointer);
    if (error != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return unknown;
    }
    const bool of_device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    return of_device ? attributes.device : host;
}

} // namespace

int device_of(const void* pointer) noexcept {
    if (pointer == nullptr) return host;
    PointerQuery* const query = pointer_query();
    if (query == nullptr) return host;
    unsigned type = 0, managed = 0;
    int ordinal = unknown;
    const int which[] = {memory_type, is_managed, device_ordinal};
    void* answers[] = {&type, &managed, &ordinal};
    switch (query(3, which, answers, reinterpret_cast<std::uintptr_t>(pointer))) {
    case success: return type == device_memory || managed != 0 ? ordinal : host;
    // There is no device memory then. Also in a forked child of a process that uses a device, and as a process ends.
    case not_initialised:
    case deinitialised: return host;
    case no_context: return device_by_runtime(pointer);
    default: return unknown;
    }
}

CurrentDevice::CurrentDevice(int device) {
    int former = 0;
    CUSZ_CUDA(cudaGetDevice(&former)); // loads the driver
    if (device == former) return;
    auto* const retain = of_driver<int(void**, int)>("cuDevicePrimaryCtxRetain");
    auto* const push = of_driver<int(void*)>("cuCtxPushCurrent_v2");
    if (retain == nullptr || push == nullptr) fail(CUSZ_ERROR_DEVICE, "the CUDA driver lacks a function");
    // It is not released: memory that is kept between calls lies in it. The driver's errors have the runtime's numbers.
    void* context = nullptr;
    CUSZ_CUDA(static_cast<cudaError_t>(retain(&context, device)));
    CUSZ_CUDA(static_cast<cudaError_t>(push(context)));
    changed_ = true;
}

CurrentDevice::~CurrentDevice() {
    void* context = nullptr;
    if (!changed_) return;
    if (auto* const pop = of_driver<int(void**)>("cuCtxPopCurrent_v2"); pop != nullptr)
        static_cast<void>(pop(&context));
}

int device_count(const char** reason) noexcept {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        count = 0;
    }
    if (reason != nullptr)
        *reason = error == cudaErrorInsufficientDriver ? "there is no CUDA driver, or it is too old"
                  : error == cudaErrorNoDevice         ? "there is no CUDA device, or CUDA_VISIBLE_DEVICES hides it"
                  : error != cudaSuccess               ? cudaGetErrorString(error)
                                                       : "";
    return count;
}

std::string device_name(int device) {
    const char* reason = nullptr;
    const int count = device_count(&reason);
    if (count == 0) fail(CUSZ_ERROR_DEVICE, reason);
    if (device < 0 || device >= count) fail(CUSZ_ERROR_PARAMETER, "device is ", device, "; there are ", count);
    cudaDeviceProp properties{};
    CUSZ_CUDA(cudaGetDeviceProperties(&properties, device));
    return properties.name;
}

} // namespace cusz::cuda
