// Failures of the library as the exception classes of cusz_core.errors.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>

#include "cusz/cusz.h"

namespace nb = nanobind;

inline constexpr size_t kStatusCount = 9;

// The exception class for each status; filled when the module is loaded, never released.
inline std::array<PyObject*, kStatusCount> g_error_classes{};

inline PyObject* error_class(cusz_status status) {
    const auto code = static_cast<size_t>(status);
    return code < kStatusCount && g_error_classes[code] ? g_error_classes[code] : PyExc_RuntimeError;
}

[[noreturn]] inline void raise(cusz_status status, const char* message) {
    PyErr_SetString(error_class(status), message && *message ? message : cusz_status_name(status));
    throw nb::python_error();
}

inline void load_error_classes() {
    static constexpr std::array<const char*, kStatusCount> names = {
        "CuszError",           "ParameterError",     "UnsupportedError",
        "CorruptArchiveError", "ArchiveTooNewError", "DeviceError",
        "OutOfMemoryError",    "CuszError",          "CuszError"};
    nb::module_ errors = nb::module_::import_("cusz_core.errors");
    for (size_t i = 0; i < kStatusCount; ++i) {
        g_error_classes[i] = nb::object(errors.attr(names[i])).release().ptr();
    }
}
