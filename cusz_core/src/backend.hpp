// What a backend does: the whole way from a field to an archive's bytes and back. One instance belongs to one context.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "format/frame.hpp"
#include "memory.hpp"
#include "params.hpp"

namespace cusz {

struct ValueRange {
    double min = 0, max = 0;
    std::uint64_t n_valid = 0;
};

// A box of a field, not empty, and the memory that it goes to: all by dimension, slowest first.
struct Selection {
    std::array<std::uint64_t, CUSZ_MAX_NDIM> start{}, count{};
    std::array<std::uint64_t, CUSZ_MAX_NDIM> stride{}; // of the memory, in values
    void* field = nullptr;
};

class Backend {
public:
    virtual ~Backend() = default;

    // Range of the values that are finite and not the special pattern.
    virtual ValueRange value_range(cusz_dtype dtype, std::uint64_t values, const void* field, std::uint64_t special,
                                   int threads) = 0;

    // Codes a non-empty field under the bound coding.eb > 0 into a tiled archive, of which coding brings mode, r, eb
    // and special. Returns the archive's bytes, or 0 where a raw archive would be no larger, or the bound needs one.
    virtual std::size_t compress(const Layout& layout, Coding coding, const void* field, int threads,
                                 void* archive) = 0;

    // Body (of a tiled archive, before the lossless stage) to field. With field == nullptr only the payload's checksum
    // is verified, where the frame has one over tiles. Throws CORRUPT.
    virtual void decompress(const Frame& frame, const std::byte* body, int threads, void* field) = 0;

    // Sum of the checksum parts of `bytes` bytes cut into pieces, and a copy of them to `target` if it is not null.
    virtual std::uint32_t piece_checksum(const void* data, std::uint64_t bytes, int threads, void* target) = 0;

    virtual std::size_t scratch_bytes() const = 0;
    virtual void release_scratch() = 0;
};

// Finds coding.eb_abs and coding.step, which is 0 where the field has to be stored raw.
inline void resolve_bound(Backend& backend, const Layout& layout, Coding& coding, const void* field, int threads) {
    coding.eb_abs = coding.eb;
    if (coding.mode == CUSZ_REL) {
        const ValueRange range = backend.value_range(layout.dtype, layout.values, field, coding.special, threads);
        coding.eb_abs = absolute_bound(coding.eb, range.min, range.max);
    }
    coding.step = layout.dtype == CUSZ_F32 ? static_cast<double>(Quantiser<float>::from_bound(coding.eb_abs).step)
                                           : Quantiser<double>::from_bound(coding.eb_abs).step;
}

// The CPU's can give a part as well.
class HostBackend : public Backend {
public:
    // As decompress, for a box of the field: tiles that do not meet it are verified, but not decoded.
    virtual void decompress_box(const Frame& frame, const std::byte* body, int threads, const Selection& box) = 0;
};

std::unique_ptr<HostBackend> make_cpu_backend();

} // namespace cusz
