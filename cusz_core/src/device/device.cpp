#include "device.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstddef>

#include "check.hpp"

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

// Whether this process, or this library for an earlier device call, has loaded the CUDA driver.
bool driver_is_loaded() noexcept {
    static std::atomic<bool> loaded = false;
    static std::atomic<unsigned long long> looked_at = 0; // dlopen takes 20 microseconds to say no
    if (loaded.load(std::memory_order_relaxed)) return true;
    const unsigned long long now = libraries_loaded();
    if (looked_at.load(std::memory_order_relaxed) == now) return false;
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver != nullptr) {
        dlclose(driver);
        loaded.store(true, std::memory_order_relaxed);
    }
    looked_at.store(now, std::memory_order_relaxed);
    return driver != nullptr;
}

} // namespace

int device_of(const void* pointer) noexcept {
    if (pointer == nullptr || !driver_is_loaded()) return host;
    cudaPointerAttributes attributes{};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, pointer);
    if (error != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        // Without a device, or in a forked child of a process that uses one, no pointer can be a device pointer.
        const bool no_device = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
                               error == cudaErrorInitializationError || error == cudaErrorInvalidValue;
        return no_device ? host : unknown;
    }
    const bool of_device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    return of_device ? attributes.device : host;
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

void fail_unknown(const char* name) {
    fail(CUSZ_ERROR_DEVICE, "CUDA does not say where ", name,
         " lies, as after a device has failed; host memory can be used with backend cpu");
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
