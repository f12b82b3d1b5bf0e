// What the C interface needs from CUDA, in builds with it (device.cpp) and without (codec/cuda/absent.cpp).
#pragma once

#include <cusz/cusz.h>

#include <cstddef>
#include <functional>
#include <string>

namespace cusz {

inline constexpr int host = -1; // in place of a device's number

namespace cuda {

inline constexpr int unknown = -2; // in place of a device's number

// The device whose memory this is, or `host`; `unknown` if CUDA cannot tell, as after a device failure. Managed memory
// belongs to its device, pinned memory to the host. Never makes a process load the CUDA driver: without it, no pointer
// can be a device pointer.
int device_of(const void* pointer) noexcept;

// Number of devices that this process can use; if 0, `reason` says why.
int device_count(const char** reason) noexcept;

// Throws PARAMETER, DEVICE.
std::string device_name(int device);

struct Transfer {
    void* target;
    const void* source;
    std::size_t bytes;
};

using StageObserver = std::function<void(const char* stage)>;

} // namespace cuda

} // namespace cusz
