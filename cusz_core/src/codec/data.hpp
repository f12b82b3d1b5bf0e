// The data that codecs and backends work on: memory passed by a caller, boxes of fields, ranges of values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "archive/frame.hpp"
#include "archive/tiling.hpp"
#include "device/device.hpp"
#include "errors.hpp"

namespace cusz {

// Memory passed by a caller. Its location is queried once, at the start of the call (cusz.cpp).
struct Source {
    const void* pointer = nullptr;
    int device = host;
    const char* name = ""; // of the caller's parameter, for messages

    bool on_device() const { return device != host; }
    const std::byte* bytes() const { return static_cast<const std::byte*>(pointer); }
    template <class T>
    const T* as() const {
        return static_cast<const T*>(pointer);
    }
};
struct Target {
    void* pointer = nullptr;
    int device = host;
    const char* name = "";

    bool on_device() const { return device != host; }
    std::byte* bytes() const { return static_cast<std::byte*>(pointer); }
    template <class T>
    T* as() const {
        return static_cast<T*>(pointer);
    }
    // The same memory from `offset` on.
    Target at(std::size_t offset) const { return {bytes() + offset, device, name}; }
    operator Source() const { return {pointer, device, name}; }
};

// Throws PARAMETER if memory on a device is not aligned to `bytes`.
inline void require_aligned(const Source& memory, std::size_t bytes) {
    if (memory.on_device() && reinterpret_cast<std::uintptr_t>(memory.pointer) % bytes != 0)
        fail(CUSZ_ERROR_PARAMETER, memory.name, " lies on a device and is not aligned to ", bytes, " bytes");
}

struct ValueRange {
    double min = 0, max = 0;
    std::uint64_t n_valid = 0;

    // Extends it by the range of other values.
    void add(const ValueRange& other) {
        if (other.n_valid == 0) return;
        min = n_valid == 0 || other.min < min ? other.min : min;
        max = n_valid == 0 || other.max > max ? other.max : max;
        n_valid += other.n_valid;
    }
};

// Exponents of the smallest and the largest magnitude; min > max: there are no values.
struct ExponentRange {
    int min = 0, max = -1;
};

// A non-empty box of a field and the memory it goes to; arrays by dimension, slowest first.
struct Selection {
    std::array<std::uint64_t, CUSZ_MAX_NDIM> start{}, count{};
    std::array<std::uint64_t, CUSZ_MAX_NDIM> stride{}; // of the memory, in values
    void* field = nullptr;
};

// The box that is a whole field.
inline Selection whole(const Layout& layout, void* field) {
    Selection all{.start = {}, .count = layout.shape, .stride = {}, .field = field};
    std::uint64_t stride = 1;
    for (auto d = static_cast<std::size_t>(layout.ndim); d-- > 0; stride *= all.count[d]) all.stride[d] = stride;
    return all;
}

inline constexpr std::uint64_t any_length = ~std::uint64_t{0}; // of an archive, in bytes

// Numbers of dimensions by axis; axes that the field lacks get `rest`.
inline std::array<std::uint64_t, 4> by_axis(const Layout& layout, const std::array<std::uint64_t, 4>& given,
                                            std::uint64_t rest) {
    return Tiling::by_axis(layout.ndim, layout.shape.data(), given.data(), rest);
}

// Makes boxes of a field readable on the host until the next call, and updates the boxes to where they are among the
// returned values: at their places in the field, or copied one after the other.
using BoxReader = std::function<const void*(std::vector<TileBox>& boxes)>;

} // namespace cusz
