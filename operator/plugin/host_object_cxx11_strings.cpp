#define _GLIBCXX_USE_CXX11_ABI 1
#include "host_object_strings.hpp"

cusz_operator::HostObject* cusz_operator::object_with_cxx11_strings(Interface interface,
                                                                    const void* parameters) noexcept {
    return make(interface, parameters);
}
