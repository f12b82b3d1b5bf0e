// The host side of the CUDA runtime: memory, streams, events, launches; and the controls for tests.
#include "emulator.hpp"

#include "memory.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

struct CUstream_st {
    int device = 0;
};
struct CUevent_st {
    int device = 0;
    std::optional<unsigned long> recorded; // number of the last work item before it
    std::chrono::steady_clock::time_point time{};
};

namespace simt {
namespace {

constexpr std::size_t red_zone = 256, alignment = 512;
constexpr auto red = std::byte{0x5A}, fresh = std::byte{0xDB}, in_transit = std::byte{0xE7};
constexpr std::size_t memory_total = std::size_t{8} << 30;

constexpr int device_limit = 4;

// The device that this thread's calls refer to, and those that become current again when contexts are popped.
thread_local int current = 0;
thread_local std::vector<int> under;

// Memory of the current device, or pinned memory, with a red zone on either side.
class Allocation {
public:
    Allocation(std::size_t bytes, bool device)
        : bytes_(bytes), owner_(current), device_(device), pages_(total()), all_(pages_.begin()) {
        fill(all_, alignment, red);
        fill(begin(), bytes_, fresh);
        fill(begin() + bytes_, red_zone, red);
        guard();
    }
    ~Allocation() {
        show();
        unguard();
    }
    Allocation(const Allocation&) = delete;
    Allocation& operator=(const Allocation&) = delete;

    std::byte* begin() const { return all_ + alignment; }
    std::size_t bytes() const { return bytes_; }
    bool device() const { return device_; }
    int owner() const { return owner_; }
    bool contains(const void* pointer, std::size_t bytes) const {
        const auto offset = reinterpret_cast<std::uintptr_t>(pointer) - reinterpret_cast<std::uintptr_t>(begin());
        return offset <= bytes_ && bytes <= bytes_ - offset;
    }

    // The stream it was allocated on, until the host has waited for that; and the number of work items before it.
    std::optional<cudaStream_t> pending;
    unsigned long number = 0;

    // Forbid and allow access by the host.
    void hide() {
        if (std::exchange(shown_, false)) pages_.protect(PROT_NONE);
    }
    void show() {
        if (!std::exchange(shown_, true)) pages_.protect(PROT_READ | PROT_WRITE);
    }

    // Offset, from the beginning, of the first byte written in the red zones, which are then restored.
    std::optional<std::ptrdiff_t> damage() {
        if constexpr (with_asan) return {};
        std::optional<std::ptrdiff_t> at;
        if (const std::size_t n = intact(all_, alignment, red); n < alignment)
            at = static_cast<std::ptrdiff_t>(n) - static_cast<std::ptrdiff_t>(alignment);
        else if (const std::size_t k = intact(begin() + bytes_, red_zone, red); k < red_zone)
            at = static_cast<std::ptrdiff_t>(bytes_ + k);
        if (at) {
            fill(all_, alignment, red);
            fill(begin() + bytes_, red_zone, red);
        }
        return at;
    }

private:
    std::size_t total() const { return alignment + bytes_ + red_zone; }
    void guard() const {
        poison(all_, alignment);
        poison(begin() + bytes_, red_zone);
    }
    void unguard() const { unpoison(all_, total()); }

    std::size_t bytes_;
    int owner_;
    bool device_;
    bool shown_ = true;
    Pages pages_;
    std::byte* all_;
};

// A copy between device and pinned memory for which the host has not yet waited.
struct Transit {
    cudaStream_t stream;
    int device; // the stream's
    unsigned long number;
    std::byte* pinned;
    bool to_host;
    std::vector<std::byte> data;
};

struct Kernel {
    std::size_t shared_limit = shared_default;
    unsigned long launches = 0;
};

struct Runtime {
    std::mutex mutex;
    Schedule schedule;
    std::size_t shared_limit = simt::shared_limit;
    int devices = 1;
    std::size_t memory_limit = memory_total, allocated = 0, peak = 0, pinned = 0;
    std::map<std::uintptr_t, std::unique_ptr<Allocation>> allocations;
    std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams;
    std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events;
    std::vector<Transit> in_transit;
    unsigned long work = 0; // work items so far
    std::map<const void*, Kernel> kernels;
    std::map<std::string, unsigned long, std::less<>> calls;
    std::map<std::string, int, std::less<>> to_fail; // calls left until the failure
    std::map<CUstream_st*, unsigned long> work_of;   // work items of each stream
    unsigned long synchronizations = 0;
    std::size_t bytes_to_host = 0;
    std::string report;
    Runner runner = nullptr;
    bool hides = false;        // device memory from the host
    unsigned long checked = 0; // `work` when red zones were last checked
    bool broken = false;       // every call fails
    bool has_pools = true;     // for allocations in stream order
    unsigned contexts = 0;     // devices that have one, a bit each
};

// Never destroyed: other static objects may release memory later.
Runtime& runtime() {
    static auto& it = *std::make_unique<Runtime>().release();
    return it;
}

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t result(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

cudaError_t report(cudaError_t error, std::string text) {
    std::fputs(text.c_str(), stderr);
    runtime().report = std::move(text);
    return error;
}

cudaError_t typical_error(std::string_view function) {
    if (function.starts_with("cudaMalloc") || function == "cudaHostAlloc") return cudaErrorMemoryAllocation;
    if (function == "cudaLaunchKernelEx" || function.ends_with("Synchronize")) return cudaErrorLaunchFailure;
    if (function.starts_with("cudaMem")) return cudaErrorIllegalAddress;
    if (function == "cudaGetDeviceCount") return cudaErrorInsufficientDriver;
    return cudaErrorUnknown;
}

bool is_due(std::string_view function) {
    auto& to_fail = runtime().to_fail;
    const auto it = to_fail.find(function);
    if (it == to_fail.end() || --it->second > 0) return false;
    to_fail.erase(it);
    return true;
}

// Whether red zones of device memory may have been written since the last check: hidden memory can only be written by
// work items.
bool may_be_damaged(const Runtime& r) { return !r.hides || r.work != r.checked; }

// Whether a runtime function may touch device memory. The others must not pay for changing the protection of pages.
bool uses_memory(const Runtime& r, std::string_view function) {
    if (function.starts_with("cudaFree") || function.ends_with("Synchronize")) return may_be_damaged(r);
    return function.starts_with("cudaMem") || function.starts_with("cudaLaunch");
}

// While it exists, the runtime can access the memory of all devices, even if that is hidden from the host.
class Visible {
public:
    explicit Visible(Runtime& r) : r_(r) { each_hidden(r_, show); }
    ~Visible() { each_hidden(r_, hide); }
    Visible(const Visible&) = delete;
    Visible& operator=(const Visible&) = delete;

    // Within its lifetime: leaves accessible only what a kernel of the current device can access.
    class ToKernel {
    public:
        explicit ToKernel(Runtime& r) : r_(r) { each_hidden(r_, hide_others); }
        ~ToKernel() { each_hidden(r_, show); }
        ToKernel(const ToKernel&) = delete;
        ToKernel& operator=(const ToKernel&) = delete;

    private:
        Runtime& r_;
    };

private:
    static void show(Allocation& allocation) { allocation.show(); }
    static void hide(Allocation& allocation) { allocation.hide(); }
    static void hide_others(Allocation& allocation) {
        if (allocation.owner() != current) allocation.hide();
    }
    static void each_hidden(Runtime& r, void (*use)(Allocation&)) {
        if (!r.hides) return;
        for (const auto& [address, allocation] : r.allocations)
            if (allocation->device()) use(*allocation);
    }

    Runtime& r_;
};

// Whether a function works without a context, or makes one itself: those of the driver begin with "cu" alone.
bool needs_no_context(std::string_view function) {
    constexpr std::array<std::string_view, 5> queries{"cudaGetDeviceCount", "cudaGetDevice", "cudaSetDevice",
                                                      "cudaDeviceGetAttribute", "cudaGetDeviceProperties"};
    return !function.starts_with("cuda") || std::ranges::find(queries, function) != queries.end();
}

// Wraps every runtime function except those about errors: takes the lock, counts the call, and fails if a failure is
// due, otherwise does the work. `work` returns the error.
template <class Work>
cudaError_t api(std::string_view function, Work&& work) {
    Runtime& r = runtime();
    const std::lock_guard lock(r.mutex);
    ++r.calls[std::string(function)];
    ++r.calls["*"];
    const bool due = is_due(function), any_due = is_due("*");
    if (due || any_due) return result(typical_error(function));
    if (r.broken) return result(cudaErrorIllegalAddress);
    if (r.devices == 0 && function != "cudaGetDeviceCount") return result(cudaErrorNoDevice);
    if (!needs_no_context(function)) r.contexts |= 1u << current;
    if (!uses_memory(r, function)) return result(work(r));
    const Visible visible(r);
    return result(work(r));
}

Allocation* find(const void* pointer) {
    auto& all = runtime().allocations;
    auto it = all.upper_bound(reinterpret_cast<std::uintptr_t>(pointer));
    if (it == all.begin()) return nullptr;
    Allocation& allocation = *std::prev(it)->second;
    // one past the end counts as well, for copies of no bytes
    return allocation.contains(pointer, 0) ? &allocation : nullptr;
}

// when() describes what has just happened.
template <class When>
cudaError_t check_red_zones(When&& when) {
    Runtime& r = runtime();
    const bool devices_too = may_be_damaged(r);
    r.checked = r.work;
    cudaError_t error = cudaSuccess;
    for (const auto& [address, allocation] : r.allocations)
        if (const auto at = allocation->device() && !devices_too ? std::nullopt : allocation->damage())
            error = report(cudaErrorLaunchFailure,
                           join("simt: byte ", std::to_string(*at), " of an allocation of ",
                                std::to_string(allocation->bytes()), " bytes was written, seen in ", when(), "\n"));
    return error;
}

// A new stream or event, of the current device.
template <class T>
cudaError_t make(std::map<T*, std::unique_ptr<T>>& all, T** handle) {
    if (handle == nullptr) return cudaErrorInvalidValue;
    auto made = std::make_unique<T>();
    made->device = current;
    *handle = made.get();
    all.emplace(*handle, std::move(made));
    return cudaSuccess;
}

bool is_stream(cudaStream_t stream) {
    return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread ||
           runtime().streams.contains(stream);
}
bool is_legacy(cudaStream_t stream) { return stream == nullptr || stream == cudaStreamLegacy; }
// The default streams belong to the current device.
int device_of(cudaStream_t stream) { return runtime().streams.contains(stream) ? stream->device : current; }
bool is_device(int device) { return device >= 0 && device < runtime().devices; }

void add_work(Runtime& r, cudaStream_t stream) {
    ++r.work;
    ++r.work_of[stream];
}

// Notes that the host has waited for the allocations for which `which` holds.
template <class Which>
void settle(Which&& which) {
    for (const auto& [address, allocation] : runtime().allocations)
        if (allocation->pending && which(*allocation)) allocation->pending.reset();
}

// Completes the copies for which `which` holds.
template <class Which>
cudaError_t arrive(Which&& which) {
    auto& all = runtime().in_transit;
    cudaError_t error = cudaSuccess;
    for (const Transit& copy : all) {
        if (!which(copy)) continue;
        if (copy.to_host) {
            std::memcpy(copy.pinned, copy.data.data(), copy.data.size());
        } else if (std::memcmp(copy.pinned, copy.data.data(), copy.data.size()) != 0) {
            error = report(cudaErrorLaunchFailure, join("simt: pinned memory was written while a copy from it of ",
                                                        std::to_string(copy.data.size()), " bytes was under way\n"));
        }
    }
    std::erase_if(all, which);
    return error;
}
cudaError_t arrive_all() {
    settle([](const Allocation&) { return true; });
    return arrive([](const Transit&) { return true; });
}
cudaError_t arrive_of(cudaStream_t stream) {
    settle([&](const Allocation& made) { return is_legacy(stream) || made.pending == stream; });
    return arrive([&](const Transit& copy) {
        return copy.device == device_of(stream) && (is_legacy(stream) || copy.stream == stream);
    });
}

// Completes copies requested before the event was recorded, including those of other streams, which CUDA does not
// guarantee.
cudaError_t arrive_before(cudaEvent_t event) {
    if (!event->recorded) return cudaSuccess;
    settle([&](const Allocation& made) { return made.number <= *event->recorded; });
    return arrive([&](const Transit& copy) { return copy.number <= *event->recorded; });
}

cudaError_t first_of(cudaError_t a, cudaError_t b) { return a != cudaSuccess ? a : b; }

cudaError_t wait_for(const char* what, auto&& arrival) {
    ++runtime().synchronizations;
    const cudaError_t error = arrival();
    return first_of(error, check_red_zones([&] { return what; }));
}

cudaError_t allocate(void** pointer, std::size_t bytes, bool device) {
    Runtime& r = runtime();
    if (pointer == nullptr) return cudaErrorInvalidValue;
    if (device && (r.allocated > r.memory_limit || bytes > r.memory_limit - r.allocated))
        return cudaErrorMemoryAllocation;
    try {
        auto allocation = std::make_unique<Allocation>(bytes, device);
        if (device && r.hides) allocation->hide();
        *pointer = allocation->begin();
        r.allocations.emplace(reinterpret_cast<std::uintptr_t>(*pointer), std::move(allocation));
    } catch (const std::bad_alloc&) {
        return cudaErrorMemoryAllocation;
    }
    (device ? r.allocated : r.pinned) += bytes;
    r.peak = std::max(r.peak, r.allocated);
    return cudaSuccess;
}

cudaError_t release(const char* function, void* pointer, bool device) {
    Runtime& r = runtime();
    if (pointer == nullptr) return cudaSuccess;
    const auto it = r.allocations.find(reinterpret_cast<std::uintptr_t>(pointer));
    if (it == r.allocations.end() || it->second->device() != device) return cudaErrorInvalidValue;
    cudaError_t error = device ? cudaSuccess : arrive_all();
    error = first_of(error, check_red_zones([&] { return function; }));
    (device ? r.allocated : r.pinned) -= it->second->bytes();
    r.allocations.erase(it);
    return error;
}

// Whether the bytes lie where `device` says, and within one allocation if in any.
bool is_fit(const void* pointer, std::size_t bytes, bool device) {
    const Allocation* allocation = find(pointer);
    if (allocation == nullptr) return !device && pointer != nullptr;
    return allocation->device() == device && allocation->contains(pointer, bytes);
}

cudaError_t copy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                 bool wait) {
    Runtime& r = runtime();
    if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
    const auto on_device = [](const void* pointer) {
        const Allocation* allocation = find(pointer);
        return allocation != nullptr && allocation->device();
    };
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    if (kind == cudaMemcpyDefault) {
        from_device = on_device(source);
        to_device = on_device(target);
    } else if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
        return cudaErrorInvalidMemcpyDirection;
    }
    add_work(r, stream);
    if (wait) ++r.synchronizations;
    cudaError_t error = wait ? arrive_all() : cudaSuccess;
    if (bytes == 0) return error;
    if (!is_fit(source, bytes, from_device) || !is_fit(target, bytes, to_device)) return cudaErrorInvalidValue;

    if (from_device && !to_device) r.bytes_to_host += bytes;

    const auto* from = static_cast<const std::byte*>(source);
    auto* to = static_cast<std::byte*>(target);
    const bool to_pinned = from_device && !to_device && find(target) != nullptr;
    const bool from_pinned = to_device && !from_device && find(source) != nullptr;
    if (wait || (!to_pinned && !from_pinned)) {
        if (!from_device || !to_device) error = first_of(error, arrive_of(stream)); // its target may be read here
        std::memmove(to, from, bytes);
        return error;
    }
    if (from_pinned) error = arrive_of(stream);
    r.in_transit.push_back({stream, device_of(stream), r.work, to_pinned ? to : const_cast<std::byte*>(from), to_pinned,
                            std::vector<std::byte>(from, from + bytes)});
    if (to_pinned)
        fill(to, bytes, in_transit);
    else
        std::memcpy(to, from, bytes);
    return error;
}

cudaError_t set(void* pointer, int value, std::size_t bytes, cudaStream_t stream) {
    if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
    add_work(runtime(), stream);
    if (bytes == 0) return cudaSuccess;
    if (!is_fit(pointer, bytes, true)) return cudaErrorInvalidValue;
    std::memset(pointer, value, bytes);
    return cudaSuccess;
}

// The memory that kernels of the current device may access.
std::vector<Memory> accessible(const Runtime& r) {
    std::vector<Memory> all;
    for (const auto& [address, allocation] : r.allocations)
        if (!allocation->device() || allocation->owner() == current)
            all.push_back({address, address + allocation->bytes()});
    return all;
}

cudaError_t describe(cudaPointerAttributes* attributes, const void* pointer) {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    *attributes = {};
    auto* plain = const_cast<void*>(pointer);
    const Allocation* allocation = find(pointer);
    if (allocation == nullptr || !allocation->contains(pointer, 1)) {
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = -2; // cudaInvalidDeviceId
        attributes->hostPointer = plain;
    } else if (allocation->device()) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->device = allocation->owner();
        attributes->devicePointer = plain;
    } else {
        attributes->type = cudaMemoryTypeHost;
        attributes->device = allocation->owner();
        attributes->devicePointer = attributes->hostPointer = plain;
    }
    return cudaSuccess;
}

// A function of the driver, which does not touch the runtime's last error.
template <class Work>
cudaError_t driver_api(std::string_view function, Work&& work) {
    const cudaError_t before = last_error, error = api(function, work);
    last_error = before;
    return error;
}

} // namespace

cudaError_t find_pointer(cudaPointerAttributes* attributes, const void* pointer) {
    return driver_api("cuPointerGetAttributes", [&](Runtime&) { return describe(attributes, pointer); });
}
cudaError_t make_context(int device) {
    return driver_api("cuDevicePrimaryCtxRetain", [&](Runtime& r) {
        if (!is_device(device)) return cudaErrorInvalidDevice;
        r.contexts |= 1u << device;
        return cudaSuccess;
    });
}
cudaError_t push_context(int device) {
    return driver_api("cuCtxPushCurrent", [&](Runtime&) {
        under.push_back(std::exchange(current, device));
        return cudaSuccess;
    });
}
// Also when the device is lost.
cudaError_t pop_context() {
    if (under.empty()) return cudaErrorInvalidValue;
    current = under.back();
    under.pop_back();
    return cudaSuccess;
}

void set_runner(Runner runner) {
    const std::lock_guard lock(runtime().mutex);
    runtime().runner = runner;
}

cudaError_t launch(const cudaLaunchConfig_t* config, const void* kernel, void (*call)(const void*),
                   const void* arguments, std::span<const Parameter> parameters) {
    return api("cudaLaunchKernelEx", [&](Runtime& r) {
        if (config == nullptr || kernel == nullptr) return cudaErrorInvalidValue;
        if (config->numAttrs != 0) return cudaErrorNotSupported;
        if (!is_stream(config->stream) || device_of(config->stream) != current) return cudaErrorInvalidResourceHandle;
        const auto &blocks = config->gridDim, &threads = config->blockDim;
        if (blocks.x == 0 || blocks.x > 0x7FFFFFFFu || blocks.y == 0 || blocks.y > 65535 || blocks.z == 0 ||
            blocks.z > 65535 || threads.x == 0 || threads.x > block_limit || threads.y == 0 ||
            threads.y > block_limit || threads.z == 0 || threads.z > 64 ||
            threads.x * threads.y * threads.z > block_limit)
            return cudaErrorInvalidConfiguration;
        Kernel& of_kernel = r.kernels[kernel];
        if (config->dynamicSmemBytes > of_kernel.shared_limit) return cudaErrorInvalidValue;
        add_work(r, config->stream);
        ++of_kernel.launches;
        std::string text;
        const cudaError_t error = [&] {
            const Visible::ToKernel visible(r);
            const Grid grid{blocks, threads, config->dynamicSmemBytes, kernel, call, arguments, parameters};
            return r.runner == nullptr ? run(grid, r.schedule, text) : r.runner(grid, r.schedule, accessible(r), text);
        }();
        if (error != cudaSuccess) return report(error, std::move(text));
        return check_red_zones([&] { return "kernel " + name_of(kernel); });
    });
}

} // namespace simt

using namespace simt;

extern "C" {

// Errors -----------------------------------------------------------------------------------------------------------

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define SIMT_CASE(name, number)                                                                                        \
    case name: return #name;
        SIMT_ERRORS(SIMT_CASE)
#undef SIMT_CASE
    }
    return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    default: return cudaGetErrorName(error);
    }
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

// The device -------------------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
    return api("cudaGetDeviceCount", [&](Runtime& r) {
        if (count == nullptr) return cudaErrorInvalidValue;
        *count = r.devices;
        return r.devices > 0 ? cudaSuccess : cudaErrorNoDevice;
    });
}
cudaError_t cudaGetDevice(int* device) {
    return api("cudaGetDevice", [&](Runtime&) {
        *device = current;
        return cudaSuccess;
    });
}
cudaError_t cudaSetDevice(int device) {
    return api("cudaSetDevice", [&](Runtime& r) {
        if (!is_device(device)) return cudaErrorInvalidDevice;
        current = device;
        r.contexts |= 1u << device;
        return cudaSuccess;
    });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
    return api("cudaDeviceGetAttribute", [&](Runtime& r) {
        if (value == nullptr) return cudaErrorInvalidValue;
        if (!is_device(device)) return cudaErrorInvalidDevice;
        switch (which) {
        case cudaDevAttrMultiProcessorCount: *value = 2; break;
        case cudaDevAttrMemoryPoolsSupported: *value = r.has_pools ? 1 : 0; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(r.shared_limit); break;
        default: return cudaErrorInvalidValue;
        }
        return cudaSuccess;
    });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return api("cudaGetDeviceProperties", [&](Runtime&) {
        if (properties == nullptr) return cudaErrorInvalidValue;
        if (!is_device(device)) return cudaErrorInvalidDevice;
        *properties = {};
        std::snprintf(properties->name, sizeof(properties->name), "simt emulator");
        return cudaSuccess;
    });
}
cudaError_t cudaDeviceSynchronize() {
    return api("cudaDeviceSynchronize", [](Runtime&) { return wait_for("cudaDeviceSynchronize", arrive_all); });
}

// Memory -----------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** pointer, std::size_t size) {
    return api("cudaMalloc", [&](Runtime&) {
        if (pointer == nullptr) return cudaErrorInvalidValue;
        *pointer = nullptr;
        return size == 0 ? cudaSuccess : allocate(pointer, size, true);
    });
}
cudaError_t cudaFree(void* pointer) {
    return api("cudaFree", [&](Runtime&) { return release("cudaFree", pointer, true); });
}
// Refuses zero bytes, because callers must not rely on what CUDA returns for them.
cudaError_t cudaMallocAsync(void** pointer, std::size_t size, cudaStream_t stream) {
    return api("cudaMallocAsync", [&](Runtime& r) {
        if (!r.has_pools) return cudaErrorNotSupported;
        if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
        const cudaError_t error = size == 0 ? cudaErrorInvalidValue : allocate(pointer, size, true);
        if (error != cudaSuccess) return error;
        Allocation& made = *find(*pointer);
        made.pending = stream;
        made.number = r.work;
        return error;
    });
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    return api("cudaFreeAsync", [&](Runtime& r) {
        if (!r.has_pools) return cudaErrorNotSupported;
        if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
        if (pointer == nullptr) return cudaErrorInvalidValue;
        // Work that was on the other stream before the allocation may still use its memory.
        if (const Allocation* const made = find(pointer); made != nullptr && made->pending.value_or(stream) != stream)
            report(cudaSuccess, "simt: memory was freed on a stream before it was allocated on another one\n");
        return release("cudaFreeAsync", pointer, true);
    });
}
cudaError_t cudaMallocHost(void** pointer, std::size_t size) {
    return api("cudaMallocHost", [&](Runtime&) {
        if (pointer == nullptr) return cudaErrorInvalidValue;
        *pointer = nullptr;
        return size == 0 ? cudaSuccess : allocate(pointer, size, false);
    });
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t size, unsigned) {
    return api("cudaHostAlloc", [&](Runtime&) {
        if (pointer == nullptr) return cudaErrorInvalidValue;
        *pointer = nullptr;
        return size == 0 ? cudaSuccess : allocate(pointer, size, false);
    });
}
cudaError_t cudaFreeHost(void* pointer) {
    return api("cudaFreeHost", [&](Runtime&) { return release("cudaFreeHost", pointer, false); });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    return api("cudaPointerGetAttributes", [&](Runtime&) { return describe(attributes, pointer); });
}
cudaError_t cudaMemcpy(void* target, const void* source, std::size_t size, cudaMemcpyKind kind) {
    return api("cudaMemcpy", [&](Runtime&) { return copy(target, source, size, kind, nullptr, true); });
}
cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return api("cudaMemcpyAsync", [&](Runtime&) { return copy(target, source, size, kind, stream, false); });
}
cudaError_t cudaMemset(void* pointer, int value, std::size_t size) {
    return api("cudaMemset", [&](Runtime&) { return set(pointer, value, size, nullptr); });
}
cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t size, cudaStream_t stream) {
    return api("cudaMemsetAsync", [&](Runtime&) { return set(pointer, value, size, stream); });
}

// Streams and events -----------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return api("cudaStreamCreate", [&](Runtime& r) { return make(r.streams, stream); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return api("cudaStreamDestroy",
               [&](Runtime& r) { return r.streams.erase(stream) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return api("cudaStreamSynchronize", [&](Runtime&) {
        if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
        return wait_for("cudaStreamSynchronize", [&] { return arrive_of(stream); });
    });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    return api("cudaEventCreateWithFlags", [&](Runtime& r) { return make(r.events, event); });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return api("cudaEventCreate", [&](Runtime& r) { return make(r.events, event); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return api("cudaEventRecord", [&](Runtime& r) {
        if (!r.events.contains(event) || !is_stream(stream) || event->device != device_of(stream))
            return cudaErrorInvalidResourceHandle;
        event->recorded = r.work;
        event->time = std::chrono::steady_clock::now();
        return cudaSuccess;
    });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return api("cudaEventSynchronize", [&](Runtime& r) {
        if (!r.events.contains(event)) return cudaErrorInvalidResourceHandle;
        return wait_for("cudaEventSynchronize", [&] { return arrive_before(event); });
    });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    return api("cudaEventElapsedTime", [&](Runtime& r) {
        if (milliseconds == nullptr) return cudaErrorInvalidValue;
        if (!r.events.contains(start) || !r.events.contains(end) || !start->recorded || !end->recorded)
            return cudaErrorInvalidResourceHandle;
        *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
        return cudaSuccess;
    });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return api("cudaEventDestroy",
               [&](Runtime& r) { return r.events.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

// Kernels ----------------------------------------------------------------------------------------------------------

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute which, int value) {
    return api("cudaFuncSetAttribute", [&](Runtime& r) {
        if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
        if (which == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
        if (which != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
            value > static_cast<int>(r.shared_limit))
            return cudaErrorInvalidValue;
        r.kernels[kernel].shared_limit = static_cast<std::size_t>(value);
        return cudaSuccess;
    });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int size,
                                                          std::size_t shared) {
    return api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", [&](Runtime& r) {
        if (blocks == nullptr || size <= 0 || size > static_cast<int>(block_limit)) return cudaErrorInvalidValue;
        if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
        *blocks = shared > r.shared_limit ? 0 : 2;
        return cudaSuccess;
    });
}

// Controls and queries for tests -----------------------------------------------------------------------------------

void simt_set_schedule(int order, unsigned seed, int blocks_in_flight) {
    const std::lock_guard lock(runtime().mutex);
    runtime().schedule = {std::clamp(order, 0, 2), seed,
                          static_cast<unsigned>(std::clamp(blocks_in_flight, 1, static_cast<int>(in_flight_limit)))};
}
void simt_set_shared_limit(std::size_t bytes) {
    const std::lock_guard lock(runtime().mutex);
    runtime().shared_limit = std::min(bytes, shared_limit);
    for (auto& [address, kernel] : runtime().kernels) kernel.shared_limit = shared_default;
}
void simt_fail_call(const char* function, int nth) {
    const std::lock_guard lock(runtime().mutex);
    if (nth > 0)
        runtime().to_fail[function] = nth;
    else
        runtime().to_fail.erase(function);
}
unsigned long simt_calls(const char* function) {
    const std::lock_guard lock(runtime().mutex);
    const auto it = runtime().calls.find(function);
    return it == runtime().calls.end() ? 0 : it->second;
}
void simt_set_memory_limit(std::size_t bytes) {
    const std::lock_guard lock(runtime().mutex);
    runtime().memory_limit = bytes;
}
void simt_set_device_count(int count) {
    const std::lock_guard lock(runtime().mutex);
    runtime().devices = std::clamp(count, 0, device_limit);
}
void simt_set_memory_pools(int has) {
    const std::lock_guard lock(runtime().mutex);
    runtime().has_pools = has != 0;
}
unsigned simt_contexts() {
    const std::lock_guard lock(runtime().mutex);
    return runtime().contexts;
}
void simt_break_device(int is_broken) {
    const std::lock_guard lock(runtime().mutex);
    runtime().broken = is_broken != 0;
}
void simt_hide_device_memory(int hide) {
    Runtime& r = runtime();
    const std::lock_guard lock(r.mutex);
    r.hides = hide != 0;
    for (const auto& [address, allocation] : r.allocations)
        if (allocation->device()) hide != 0 ? allocation->hide() : allocation->show();
}
std::size_t simt_allocated_bytes() {
    const std::lock_guard lock(runtime().mutex);
    return runtime().allocated;
}
std::size_t simt_peak_bytes() {
    const std::lock_guard lock(runtime().mutex);
    return runtime().peak;
}
void simt_reset_peak() {
    const std::lock_guard lock(runtime().mutex);
    runtime().peak = runtime().allocated;
}
std::size_t simt_pinned_bytes() {
    const std::lock_guard lock(runtime().mutex);
    return runtime().pinned;
}
unsigned long simt_live_handles() {
    const std::lock_guard lock(runtime().mutex);
    return runtime().streams.size() + runtime().events.size();
}
unsigned long simt_launch_count() {
    const std::lock_guard lock(runtime().mutex);
    unsigned long launches = 0;
    for (const auto& [address, kernel] : runtime().kernels) launches += kernel.launches;
    return launches;
}
std::size_t simt_launched(char* buffer, std::size_t size) {
    const std::lock_guard lock(runtime().mutex);
    std::set<std::string> lines;
    for (const auto& [address, kernel] : runtime().kernels)
        if (kernel.launches > 0) lines.insert(join(name_of(address), ": ", std::to_string(kernel.launches), "\n"));
    std::string text;
    for (const std::string& line : lines) text += line;
    if (size > 0) {
        const std::size_t n = std::min(text.size(), size - 1);
        std::memcpy(buffer, text.data(), n);
        buffer[n] = '\0';
    }
    return text.size() + 1;
}
unsigned long simt_work(cudaStream_t stream) {
    const std::lock_guard lock(runtime().mutex);
    const auto it = runtime().work_of.find(stream);
    return it == runtime().work_of.end() ? 0 : it->second;
}
unsigned long simt_synchronizations() {
    const std::lock_guard lock(runtime().mutex);
    return runtime().synchronizations;
}
std::size_t simt_bytes_to_host() {
    const std::lock_guard lock(runtime().mutex);
    return runtime().bytes_to_host;
}
const char* simt_report() { return runtime().report.c_str(); }
void simt_clear() {
    Runtime& r = runtime();
    const std::lock_guard lock(r.mutex);
    r.report.clear();
    r.calls.clear();
    r.to_fail.clear();
    r.work_of.clear();
    r.synchronizations = 0;
    r.bytes_to_host = 0;
    r.contexts = 0;
    for (auto& [address, kernel] : r.kernels) kernel.launches = 0; // shared memory limits stay
}

} // extern "C"
