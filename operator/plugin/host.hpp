// Finds out which ADIOS2 has loaded the plugin, and what object it expects.
//
// The entry points OperatorCreate and OperatorDestroy have the same names in all versions, but the objects that pass
// through them differ: up to ADIOS2 2.11 they derive from its class core::Operator, from 2.12 on from a separate class,
// and 2.11 added a virtual function. The wrong object does not fail to link; it crashes.
#pragma once

namespace cusz_operator {

// Named after the first version with this order of virtual functions (host_object.hpp).
enum class Interface { v2_10, v2_11, v2_12 };

// The kind of std::string that ADIOS2 passes: libstdc++'s C++11 ABI, or the older one (wheels for manylinux2014).
enum class Strings { cxx11, old };

struct Host {
    Interface interface;
    Strings strings;
};

// The ADIOS2 in the program or library that contains `caller`, a code address. Throws std::runtime_error with a text
// that says what to do if this plugin cannot serve it.
Host host_of(const void* caller);

// Throws the same for a call of a virtual function that none of the versions has.
[[noreturn]] void refuse_unknown_function(const void* caller);

} // namespace cusz_operator
