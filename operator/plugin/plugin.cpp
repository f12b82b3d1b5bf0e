// The entry points of the ADIOS2 operator plugin "cusz".
#include "contexts.hpp"
#include "cusz_operator.h"
#include "host.hpp"
#include "host_object.hpp"

using cusz_operator::HostObject;

extern "C" {

// ADIOS2 passes its std::map of parameters, and uses the returned object as its plugin::PluginOperatorInterface. An
// exception reaches the code that defines the operator. It ends a program that takes the operator from a configuration
// file, just as if ADIOS2 had found no plugin.
CUSZ_OPERATOR_API HostObject* OperatorCreate(const void* parameters) {
    const cusz_operator::Host host = cusz_operator::host_of(__builtin_return_address(0));
    // Ensures that at least one context exists before memory runs short.
    const cusz_operator::PooledContext reserve;
    return host.strings == cusz_operator::Strings::old
               ? cusz_operator::object_with_old_strings(host.interface, parameters)
               : cusz_operator::object_with_cxx11_strings(host.interface, parameters);
}

CUSZ_OPERATOR_API void OperatorDestroy(HostObject* object) {
    if (object != nullptr && !object->is_stand_in) delete object;
}
}
