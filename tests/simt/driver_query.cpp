// Does the work of the driver library (driver.cpp) in the emulated runtime.
#include "emulator.hpp"

#include <cstdint>

extern "C" int (*simt_pointer_query)(unsigned, const int*, void**, unsigned long long);
extern "C" int (*simt_context_call)(int what, int device);

namespace {

constexpr int success = 0, invalid_value = 1, not_initialised = 3, unknown_error = 999; // as in cuda.h

int query(unsigned n, const int* attributes, void** answers, unsigned long long pointer) {
    cudaPointerAttributes found{};
    const auto* const address = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(pointer));
    if (const cudaError_t error = simt::find_pointer(&found, address); error != cudaSuccess) {
        return error == cudaErrorNoDevice ? not_initialised : unknown_error;
    }
    for (unsigned i = 0; i < n; ++i) switch (attributes[i]) {
        case 2: // CU_POINTER_ATTRIBUTE_MEMORY_TYPE: CU_MEMORYTYPE_HOST, _DEVICE, or none
            *static_cast<unsigned*>(answers[i]) = found.type == cudaMemoryTypeHost     ? 1
                                                  : found.type == cudaMemoryTypeDevice ? 2
                                                                                       : 0;
            break;
        case 8: *static_cast<unsigned*>(answers[i]) = 0; break;       // _IS_MANAGED
        case 9: *static_cast<int*>(answers[i]) = found.device; break; // _DEVICE_ORDINAL
        default: return invalid_value;
        }
    return success;
}

int call(int what, int device) {
    if (what == 0) return simt::make_context(device);
    return what == 1 ? simt::push_context(device) : simt::pop_context();
}

[[maybe_unused]] const bool is_set = (simt_pointer_query = query, simt_context_call = call, true);

} // namespace
