#include "layout.hpp"

#include "errors.hpp"

namespace cusz {

Layout::Layout(cusz_dtype type, std::int32_t n, const std::uint64_t* extents) : dtype(type), ndim(n) {
    if (dtype != CUSZ_F32 && dtype != CUSZ_F64)
        fail(CUSZ_ERROR_UNSUPPORTED, "dtype ", static_cast<int>(type), " is not supported; use CUSZ_F32 or CUSZ_F64");
    if (n < 1 || n > CUSZ_MAX_NDIM)
        fail(CUSZ_ERROR_PARAMETER, "ndim is ", n, "; legal: 1 to ", CUSZ_MAX_NDIM, " (merge leading dimensions)");
    if (extents == nullptr) fail(CUSZ_ERROR_PARAMETER, "shape is NULL");
    bool empty = false, too_large = false;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        shape[i] = extents[i];
        empty = empty || extents[i] == 0;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(n) && !empty; ++i) {
        too_large = too_large || extents[i] > (std::uint64_t{1} << 60) / values;
        if (!too_large) values *= extents[i];
    }
    if (empty) values = 0;
    if (too_large || values > (std::uint64_t{1} << 60) - raw_header_bytes)
        fail(CUSZ_ERROR_UNSUPPORTED, "the field has more than 2^60 values");
}

} // namespace cusz
