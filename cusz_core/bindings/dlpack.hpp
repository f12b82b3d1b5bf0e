// Reads the description in a DLPack capsule. The capsule keeps the tensor: whoever holds the capsule keeps its memory
// alive, and a capsule that nobody renames frees its tensor itself.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <tuple>

#include "errors.hpp"

namespace dlpack {

// The structures of the DLPack interface (dlpack.h).
struct Device {
    int32_t type, id;
};

struct DataType {
    uint8_t code, bits;
    uint16_t lanes;
};

struct Tensor {
    void* data;
    Device device;
    int32_t ndim;
    DataType dtype;
    int64_t *shape, *strides; // in elements; strides may be NULL: C-contiguous
    uint64_t byte_offset;
};

struct Managed {
    Tensor tensor;
    void* context;
    void (*deleter)(Managed*);
};

struct Versioned {
    uint32_t major, minor;
    void* context;
    void (*deleter)(Versioned*);
    uint64_t flags;
    Tensor tensor;
};

inline constexpr uint64_t read_only = 1;
inline constexpr int32_t max_ndim = 64; // numpy's maximum; a capsule with more is broken

// (address, (code, bits, lanes), shape, strides or None, (device type, device), writable)
using Description = std::tuple<uintptr_t, nb::tuple, nb::tuple, nb::object, std::tuple<int32_t, int32_t>, bool>;

inline Description describe(nb::handle capsule) {
    const Tensor* tensor = nullptr;
    bool writable = true;
    if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
        tensor = &static_cast<const Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->tensor;
    } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
        const auto* versioned =
            static_cast<const Versioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
        if (versioned->major > 1) raise(CUSZ_ERROR_UNSUPPORTED, "its DLPack version is newer than 1");
        tensor = &versioned->tensor;
        writable = (versioned->flags & read_only) == 0;
    } else {
        raise(CUSZ_ERROR_UNSUPPORTED, "it is not an unused DLPack capsule");
    }
    if (tensor->ndim < 0 || tensor->ndim > max_ndim || (tensor->ndim > 0 && tensor->shape == nullptr))
        raise(CUSZ_ERROR_UNSUPPORTED, "its DLPack tensor is malformed");

    nb::list shape, strides;
    for (int32_t i = 0; i < tensor->ndim; ++i) {
        shape.append(tensor->shape[i]);
        if (tensor->strides != nullptr) strides.append(tensor->strides[i]);
    }
    const auto base = reinterpret_cast<uintptr_t>(tensor->data);
    const DataType& dtype = tensor->dtype;
    return {base != 0 ? base + tensor->byte_offset : 0,
            nb::make_tuple(dtype.code, dtype.bits, dtype.lanes),
            nb::tuple(shape),
            tensor->strides != nullptr ? nb::object(nb::tuple(strides)) : nb::none(),
            {tensor->device.type, tensor->device.id},
            writable};
}

} // namespace dlpack
