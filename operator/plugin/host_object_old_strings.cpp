#define _GLIBCXX_USE_CXX11_ABI 0
#include "host_object_strings.hpp"

cusz_operator::HostObject* cusz_operator::object_with_old_strings(Interface interface,
                                                                  const void* parameters) noexcept {
    return make(interface, parameters);
}
