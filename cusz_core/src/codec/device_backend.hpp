// What the C interface needs of the CUDA backend, in builds with it (codec/cuda/backend.cpp) and without (absent.cpp).
#pragma once

#include <memory>
#include <span>

#include "backend.hpp"
#include "device/device.hpp"

namespace cusz::cuda {

// A backend whose pointers may be of the host or of the device. Its work on the device goes to one stream, and has
// ended when a call returns.
class DeviceBackend : public Backend {
public:
    // Which device the following calls use. Throws DEVICE.
    virtual void use(int device) = 0;
    virtual int current_device() = 0;
    // Copies from the device to the host.
    virtual void fetch(std::span<const Transfer> transfers) = 0;
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
