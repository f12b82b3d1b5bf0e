// What the C interface needs of the CUDA backend, in builds with it (codec/cuda/backend.cpp) and without (absent.cpp).
#pragma once

#include <memory>
#include <span>

#include "backend.hpp"
#include "device/device.hpp"

namespace cusz::cuda {

// A backend whose pointers may point to host or device memory. Its device work goes to one stream, and is complete when
// a call returns.
class DeviceBackend : public Backend {
public:
    // Sets the device that the following calls use. Throws DEVICE.
    virtual void use(int device) = 0;
    virtual int current_device() = 0;
    // Copies from the device to the host.
    virtual void fetch(std::span<const Transfer> transfers) = 0;
    virtual void set_stream(void* stream) = 0;
    // Returns the scratch memory to the previous allocator first.
    virtual void set_allocator(const cusz_allocator* allocator) = 0;
    // The observer (or null) is told what has just been put on the stream, such as "make_book".
    // scripts/bench/gpu_stages.cpp times the stages that way.
    virtual void observe(StageObserver observer) = 0;
};

// Throws DEVICE if the build has no CUDA, or this process has no device.
std::unique_ptr<DeviceBackend> make_backend();

} // namespace cusz::cuda
