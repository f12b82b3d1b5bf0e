// The context, and how calls of the C interface report failures.
#pragma once

#include <cusz/cusz.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "archive/framing.hpp"
#include "buffer.hpp"
#include "codec/backend.hpp"
#include "codec/device_backend.hpp"
#include "errors.hpp"
#include "simd/float_mode.hpp"

struct cusz_context {
    struct Destroy {
        void operator()(cusz_context* context) const { cusz_destroy(context); }
    };

    std::unique_ptr<cusz::HostBackend> cpu = cusz::make_cpu_backend();
    std::unique_ptr<cusz::cuda::DeviceBackend> cuda; // created on first use
    void* stream = nullptr;
    cusz_allocator allocator{}; // if `allocate` is set
    cusz::Scratch scratch;
    // For calls with many blocks: the contexts of further threads, and host copies of fields on a device.
    std::vector<std::unique_ptr<cusz_context, Destroy>> helpers;
    cusz::Buffer staging;
    std::string error;
};

namespace cusz {

// Runs a call, and turns what it throws into a status and, if `message` is not null, a message.
template <class Call>
cusz_status reported(std::string* message, const Call& call) noexcept {
    const auto report = [&](cusz_status status, const char* text) {
        try {
            if (message != nullptr) *message = text;
        } catch (...) {
            message->clear();
        }
        return status;
    };
    if (!prepare_to_throw()) return report(CUSZ_ERROR_MEMORY, "out of memory");
    try {
        const FloatMode mode;
        call();
        if (message != nullptr) message->clear();
        return CUSZ_OK;
    } catch (const Error& error) {
        return report(error.status(), error.what());
    } catch (const std::bad_alloc&) {
        return report(CUSZ_ERROR_MEMORY, "out of memory");
    } catch (const std::exception& error) {
        return report(CUSZ_ERROR_INTERNAL, error.what());
    } catch (...) {
        return report(CUSZ_ERROR_INTERNAL, "unknown failure");
    }
}

template <class Call>
cusz_status guarded(cusz_context* context, const Call& call) noexcept {
    return reported(context != nullptr ? &context->error : nullptr, call);
}

// The backend for a device; for host memory, for the current device.
inline cuda::DeviceBackend& backend_on(cusz_context& context, int device) {
    if (!context.cuda) {
        context.cuda = cuda::make_backend();
        context.cuda->set_stream(context.stream);
        if (context.allocator.allocate != nullptr) context.cuda->set_allocator(&context.allocator);
    }
    context.cuda->use(device == host ? context.cuda->current_device() : device);
    return *context.cuda;
}

inline void need(const void* pointer, const char* name) {
    if (pointer == nullptr) fail(CUSZ_ERROR_PARAMETER, name, " is NULL");
}

} // namespace cusz
