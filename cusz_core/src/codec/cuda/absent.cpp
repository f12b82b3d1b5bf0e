// A build without CUDA: no pointer is a device pointer, and there is no CUDA backend.
#include "codec/device_backend.hpp"
#include "errors.hpp"

namespace cusz::cuda {

namespace {
constexpr const char* why = "this build has no CUDA backend; use the cpu backend (or auto)";
}

int device_of(const void*) noexcept { return host; }

int device_count(const char** reason) noexcept {
    if (reason != nullptr) *reason = why;
    return 0;
}

std::string device_name(int) { fail(CUSZ_ERROR_DEVICE, why); }

std::unique_ptr<DeviceBackend> make_backend() { fail(CUSZ_ERROR_DEVICE, why); }

} // namespace cusz::cuda
