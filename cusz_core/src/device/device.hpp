// What the C interface needs from CUDA, in builds with it (device.cpp, engine.cpp) and without (absent.cpp).
#pragma once

#include <cusz/cusz.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "codec/backend.hpp"

namespace cusz::cuda {

inline constexpr int unknown = -2; // in place of a device's number

// The device whose memory this is, or `host`; `unknown` if CUDA cannot tell, as after a device failure. Managed memory
// belongs to its device, pinned memory to the host. Never makes a process load the CUDA driver: without it, no pointer
// can be a device pointer.
int device_of(const void* pointer) noexcept;

// For a pointer whose location CUDA cannot tell. Throws DEVICE.
[[noreturn]] void fail_unknown(const char* name);

// Number of devices that this process can use; if 0, `reason` says why.
int device_count(const char** reason) noexcept;

// Throws PARAMETER, DEVICE.
std::string device_name(int device);

using StageObserver = std::function<void(const char* stage)>;

// A backend whose pointers may be of the host or of the device. Its work on the device goes to one stream, and has
// ended when a call returns.
class DeviceBackend : public Backend {
public:
    // Which device the following calls use. Throws DEVICE.
    virtual void use(int device) = 0;
    virtual int current_device() = 0;
    virtual void set_stream(void* stream) = 0;
    // Scratch memory from the former one is given back first.
    virtual void set_allocator(const cusz_allocator* allocator) = 0;
    // Who is told what has just been put on the stream, such as "make_book"; or null. scripts/bench/gpu_stages.cpp
    // times the stages that way.
    virtual void observe(StageObserver observer) = 0;
};

// Throws DEVICE where the build has no CUDA, or this process no device.
std::unique_ptr<DeviceBackend> make_backend();

} // namespace cusz::cuda
