// CUDA device memory as described by Python, and where a call's device work goes. Nothing here calls CUDA: addresses
// and stream handles are passed on to the library.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "cusz/cusz.h"
#include "errors.hpp"

// A C-contiguous array in device memory. Python (device_memory.py) checks it and keeps its owner alive for as long as a
// call uses this.
struct DeviceMemory {
    void* data = nullptr;
    Py_ssize_t bytes = 0;
    Py_ssize_t item_bytes = 1;
    int ndim = 0;
    std::array<Py_ssize_t, CUSZ_MAX_NDIM> shape{};
    bool writable = false;

    // dtype: cusz_dtype; 0 for bytes.
    DeviceMemory(uintptr_t address, int32_t dtype, const nb::tuple& extents, bool is_writable)
        : data(reinterpret_cast<void*>(address)), item_bytes(dtype == CUSZ_F64   ? 8
                                                             : dtype == CUSZ_F32 ? 4
                                                                                 : 1),
          ndim(static_cast<int>(nb::len(extents))), writable(is_writable) {
        if (ndim < 1 || ndim > CUSZ_MAX_NDIM) raise(CUSZ_ERROR_UNSUPPORTED, "an array must have 1 to 4 dimensions");
        bool is_empty = false;
        for (size_t i = 0; i < nb::len(extents); ++i) {
            shape[i] = nb::cast<Py_ssize_t>(extents[i]);
            if (shape[i] < 0) raise(CUSZ_ERROR_PARAMETER, "an extent is negative");
            is_empty |= shape[i] == 0;
        }
        if (is_empty) return;
        bytes = item_bytes;
        for (int i = 0; i < ndim; ++i) {
            const Py_ssize_t extent = shape[static_cast<size_t>(i)];
            if (bytes > std::numeric_limits<Py_ssize_t>::max() / extent)
                raise(CUSZ_ERROR_UNSUPPORTED, "the array's size does not fit in 63 bits");
            bytes *= extent;
        }
        if (address == 0 || address > std::numeric_limits<uintptr_t>::max() - static_cast<uintptr_t>(bytes))
            raise(CUSZ_ERROR_PARAMETER, "an array of values cannot lie at this address");
    }

    const char* format() const { return item_bytes == 8 ? "d" : item_bytes == 4 ? "f" : "B"; }
};

// The stream for a call's device work, and the source of its scratch memory there: the tuple (stream, lasting, device,
// allocator or None) made by device_memory.place(); empty for the library's own.
struct Place {
    void* stream = nullptr;
    // Whether the stream exists as long as `allocator` does, or forever. If its owner may destroy it at any time,
    // nothing that belongs to it is kept after a call.
    bool lasting = true;
    int32_t device = -1;  // of `allocator`
    nb::object allocator; // with methods allocate(bytes) -> address, or 0, and release(address)

    Place() = default;
    explicit Place(const nb::tuple& parts) {
        if (nb::len(parts) == 0) return;
        stream = reinterpret_cast<void*>(nb::cast<uintptr_t>(parts[0]));
        lasting = nb::cast<bool>(parts[1]);
        device = nb::cast<int32_t>(parts[2]);
        if (!parts[3].is_none()) allocator = parts[3];
    }

    // Whether scratch memory of one can serve the other. (A handle identifies a stream: `allocator` keeps it alive.)
    bool same_as(const Place& other) const {
        return stream == other.stream && device == other.device && allocator.is_valid() == other.allocator.is_valid();
    }
};

// The library calls these without the GIL. Exceptions do not leave Python: the allocator notes them and returns 0.
inline void* allocate_in_python(void* user, size_t bytes, void* /*stream: the allocator's own*/) {
    const nb::gil_scoped_acquire locked;
    if (!locked) return nullptr;
    try {
        const nb::object address = nb::handle(static_cast<PyObject*>(user)).attr("allocate")(bytes);
        return reinterpret_cast<void*>(nb::cast<uintptr_t>(address));
    } catch (...) {
        return nullptr;
    }
}

inline void release_in_python(void* user, void* memory, size_t /*bytes*/, void* /*stream*/) {
    const nb::gil_scoped_acquire locked;
    if (!locked) return;
    try {
        nb::handle(static_cast<PyObject*>(user)).attr("release")(reinterpret_cast<uintptr_t>(memory));
    } catch (...) { // the pool keeps the memory: there is nobody to report this to
    }
}

// Raises the exception that a Python allocator noted, if any: an interrupt as it is, anything else as the cause of an
// OutOfMemoryError.
inline void raise_failure_of(const nb::object& allocator, const char* message) {
    const nb::object failure = allocator.attr("take_failure")();
    if (failure.is_none()) return;
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(failure.ptr())), failure.ptr());
    nb::python_error error;
    if (!error.matches(PyExc_Exception)) throw error;
    nb::raise_from(error, error_class(CUSZ_ERROR_MEMORY), "%s",
                   *message != 0 ? message : cusz_status_name(CUSZ_ERROR_MEMORY));
}
