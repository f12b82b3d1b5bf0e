// Where a box of a lattice is decoded to, by the axes of the field or of that lattice.
#pragma once

#include <cstdint>
#include <cstring>

#include "archive/pyramid.hpp"
#include "codec/data.hpp"

namespace cusz::cpu {

// Where decoded values go: a box of the wanted lattice (mostly the field), by that lattice's axes.
template <class T>
struct Destination {
    T* field = nullptr;
    Extents start{}, count{}, stride{};
};

// A value that is not finite and not special: it is put in its place when everything is decoded.
struct Patch {
    Extents at; // in the field, by its axes
    std::uint64_t bits;
};

// layout: the field's.
template <class T>
Destination<T> destination_of(const Pyramid& pyramid, std::size_t lattice, const Layout& layout, const Selection& box) {
    Destination<T> destination;
    destination.field = static_cast<T*>(box.field);
    const Extents start = by_axis(layout, box.start, 0), count = by_axis(layout, box.count, 1),
                  stride = by_axis(layout, box.stride, 1);
    for (std::size_t j = 0; j < 4; ++j) {
        const std::uint32_t a = pyramid.lattices[lattice].axis[j];
        destination.start[j] = start[a];
        destination.count[j] = count[a];
        destination.stride[j] = stride[a];
    }
    return destination;
}

// Puts a value of a lattice, or of a coarser one, in its place, if that is in the box.
template <class T>
void put(const Patch& patch, const Pyramid& pyramid, std::size_t lattice, const Layout& layout, const Selection& box) {
    const Extents start = by_axis(layout, box.start, 0), count = by_axis(layout, box.count, 1),
                  stride = by_axis(layout, box.stride, 1);
    auto* to = static_cast<T*>(box.field);
    for (std::size_t a = 0; a < 4; ++a) {
        const std::uint64_t at = patch.at[a] / pyramid.scale(lattice, static_cast<std::uint32_t>(a));
        if (at < start[a] || at >= start[a] + count[a]) return;
        to += (at - start[a]) * stride[a];
    }
    const auto bits = static_cast<typename Traits<T>::Bits>(patch.bits);
    std::memcpy(to, &bits, sizeof bits);
}

} // namespace cusz::cpu
