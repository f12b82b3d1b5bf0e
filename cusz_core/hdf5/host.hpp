// The HDF5 library that called this filter. A process may have several (h5py and netCDF4 each bring their own). None of
// them is visible to others, and identifiers and memory of one mean nothing to another.
#pragma once

#include <cstddef>
#include <memory>

#include "hdf5.hpp"

namespace cusz_hdf5 {

class Host {
public:
    // caller: an address within that library.
    explicit Host(const void* caller) noexcept;

    // A function or variable of the library, by its name; nullptr if there is none, for example if HDF5 is a part of a
    // program that exports nothing.
    void* find(const char* name) const noexcept;

    // The same, of a known type. Throws std::runtime_error if there is none.
    template <typename Function>
    Function* function(const char* name) const {
        return reinterpret_cast<Function*>(required(name));
    }

    // Memory that the library can free, and that frees itself unless it is released. Throws std::bad_alloc.
    struct Free {
        H5free_memory_t* free;
        void operator()(void* memory) const noexcept;
    };
    using Memory = std::unique_ptr<void, Free>;
    Memory allocate(std::size_t bytes) const;
    Free deleter() const noexcept;

    // Adds a message to the library's error stack, if it can be found. (HDF5 2 ignores messages for chunks: it pauses
    // the stack meanwhile, and no public function adds to a paused one.) In programs of the netCDF library, which reports
    // nothing of the stack but "HDF error", prints it on standard error.
    void report(const char* message) const noexcept;

private:
    void* required(const char* name) const;

    std::unique_ptr<void, int (*)(void*)> m_library;
};

} // namespace cusz_hdf5
