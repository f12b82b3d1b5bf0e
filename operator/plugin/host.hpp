// Which ADIOS2 has loaded the plugin, and what it expects of a plugin's object.
//
// The entry points OperatorCreate and OperatorDestroy have the same names in all versions, but the objects that pass
// through them differ: up to ADIOS2 2.11 they derive from its class core::Operator, from 2.12 on from a class of their
// own, and 2.11 added a virtual function. The wrong object does not fail to link; it crashes.
#pragma once

namespace cusz_operator {

// The first version that has this order of virtual functions (host_object.hpp).
enum class Interface { v2_10, v2_11, v2_12 };

// The strings that it passes: of the C++11 ABI of libstdc++, or of the one before (wheels for manylinux2014).
enum class Strings { cxx11, old };

struct Host {
    Interface interface;
    Strings strings;
};

// The ADIOS2 in the program or library that `caller`, an address of its code, belongs to.
// Throws std::runtime_error, whose text says what to do, where it is none that this plugin can serve.
Host host_of(const void* caller);

} // namespace cusz_operator
