// Stands in for the CUDA driver library, which the engine asks where pointers lie. Passes the question to the emulated
// runtime (driver_query.cpp).
extern "C" {

#define SIMT_API __attribute__((visibility("default")))

SIMT_API int (*simt_pointer_query)(unsigned, const int*, void**, unsigned long long) = nullptr;

SIMT_API int cuPointerGetAttributes(unsigned n, const int* attributes, void** answers, unsigned long long pointer) {
    constexpr int not_initialised = 3; // as in cuda.h
    return simt_pointer_query == nullptr ? not_initialised : simt_pointer_query(n, attributes, answers, pointer);
}
}
