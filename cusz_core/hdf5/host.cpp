#include "host.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

namespace cusz_hdf5 {
namespace {

int close_if_open(void* library) { return library != nullptr ? dlclose(library) : 0; }

// RTLD_NOLOAD: the library is already loaded, because it is calling; nothing is ever loaded.
void* library_of(const void* address) noexcept {
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return nullptr;
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

} // namespace

Host::Host(const void* caller) noexcept : m_library(library_of(caller), close_if_open) {}

void* Host::find(const char* name) const noexcept {
    return m_library != nullptr ? dlsym(m_library.get(), name) : nullptr;
}

void* Host::required(const char* name) const {
    if (void* const address = find(name)) return address;
    throw std::runtime_error(std::string("the HDF5 that calls this filter does not export ") + name +
                             "; write with an HDF5 that is a shared library");
}

void Host::Free::operator()(void* memory) const noexcept {
    if (free != nullptr) {
        free(memory);
    } else {
        std::free(memory);
    }
}

Host::Free Host::deleter() const noexcept { return {reinterpret_cast<H5free_memory_t*>(find("H5free_memory"))}; }

Host::Memory Host::allocate(std::size_t bytes) const {
    auto* const own = reinterpret_cast<H5allocate_memory_t*>(find("H5allocate_memory"));
    Memory memory(own != nullptr ? own(bytes, false) : std::malloc(bytes), deleter());
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

void Host::report(const char* message) const noexcept {
    if (dlsym(RTLD_DEFAULT, "nc_strerror") != nullptr) std::fprintf(stderr, "cusz (HDF5 filter): %s\n", message);
    auto* const push = reinterpret_cast<H5Epush2_t*>(find("H5Epush2"));
    const auto* const error_class = static_cast<const hid_t*>(find("H5E_ERR_CLS_g"));
    const auto* const major = static_cast<const hid_t*>(find("H5E_PLINE_g"));
    const auto* const minor = static_cast<const hid_t*>(find("H5E_CANTFILTER_g"));
    if (push == nullptr || error_class == nullptr || major == nullptr || minor == nullptr) return;
    push(default_error_stack, "cusz_hdf5", "cusz", 0, *error_class, *major, *minor, "cusz: %s", message);
}

} // namespace cusz_hdf5
