// The type and shape of a field.
#pragma once

#include <cusz/cusz.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace cusz {

inline constexpr std::size_t raw_header_bytes = CUSZ_RAW_OVERHEAD_BYTES;

// A field's type and extents, checked.
struct Layout {
    // Throws UNSUPPORTED (dtype, size) or PARAMETER (ndim, null shape).
    Layout(cusz_dtype dtype, std::int32_t ndim, const std::uint64_t* shape);

    cusz_dtype dtype;
    std::int32_t ndim;
    std::array<std::uint64_t, CUSZ_MAX_NDIM> shape{};
    std::uint64_t values = 1; // 0 for an empty field
    std::size_t value_bytes() const { return dtype == CUSZ_F32 ? 4 : 8; }
    std::uint64_t bytes() const { return values * value_bytes(); }
};

} // namespace cusz
