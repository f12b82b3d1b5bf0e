// Stands in for the CUDA driver library, which the engine asks where pointers lie, and whose contexts it makes current.
// Passes calls on to the emulated runtime (driver_query.cpp).
#include <cstdint>

extern "C" {

#define SIMT_API __attribute__((visibility("default")))

SIMT_API int (*simt_pointer_query)(unsigned, const int*, void**, unsigned long long) = nullptr;
// 0: makes the context of a device; 1: pushes it; 2: pops one.
SIMT_API int (*simt_context_call)(int what, int device) = nullptr;

constexpr int not_initialised = 3; // as in cuda.h

SIMT_API int cuPointerGetAttributes(unsigned n, const int* attributes, void** answers, unsigned long long pointer) {
    return simt_pointer_query == nullptr ? not_initialised : simt_pointer_query(n, attributes, answers, pointer);
}

// The context of a device is its number plus 1.
SIMT_API int cuDevicePrimaryCtxRetain(void** context, int device) {
    *context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(device) + 1);
    return simt_context_call == nullptr ? not_initialised : simt_context_call(0, device);
}
SIMT_API int cuCtxPushCurrent_v2(void* context) {
    return simt_context_call(1, static_cast<int>(reinterpret_cast<std::uintptr_t>(context) - 1));
}
SIMT_API int cuCtxPopCurrent_v2(void** context) {
    *context = nullptr;
    return simt_context_call(2, 0);
}
}
