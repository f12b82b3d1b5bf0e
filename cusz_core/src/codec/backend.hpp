// What a backend does for every codec: it knows where memory resides, and has an engine for each codec (codec.hpp).
// Each instance belongs to one context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "archive/logarithm.hpp"
#include "archive/quantiser.hpp"
#include "codec.hpp"
#include "data.hpp"

namespace cusz {

class Backend {
public:
    virtual ~Backend() = default;

    virtual Engine& engine(const Codec& codec) = 0;

    // Range of the values that are finite and not the special pattern.
    virtual ValueRange value_range(cusz_dtype dtype, std::uint64_t values, const Source& field, std::uint64_t special,
                                   int threads) = 0;

    // As a BoxReader (data.hpp) of this field.
    virtual const void* read_boxes(const Layout& layout, const Source& field, std::vector<TileBox>& boxes) = 0;

    // The checksum of `bytes` bytes, by pieces (archive/checksum.hpp). Copies the bytes to the target if there is one.
    virtual std::uint32_t piece_checksum(const Source& data, std::uint64_t bytes, int threads,
                                         const Target& target) = 0;

    // Range of the exponents of a field's values.
    virtual ExponentRange exponent_range(const Layout& layout, const Source& field, std::uint64_t special,
                                         int threads) = 0;
    // Memory for logarithms, on the device of `near` or on the host; valid until the next call.
    virtual Target log_memory(const Source& near, std::size_t bytes) = 0;
    // Turns a field into logarithms (archive/logarithm.hpp) in the same memory space. signs: a bit for every value, on
    // the host, written if any is set. Returns whether any is set.
    virtual bool to_logs(const Layout& layout, const Source& field, const LogScale& scale, std::uint64_t special,
                         int threads, const Target& logs, std::uint64_t* signs) = 0;
    // The inverse. signs: null if none is set.
    virtual void from_logs(const Layout& layout, const Source& logs, const LogScale& scale, std::uint64_t special,
                           const std::uint64_t* signs, int threads, const Target& field) = 0;

    // Copies bytes between host and devices, in any direction.
    virtual void copy(void* target, const void* source, std::size_t bytes) = 0;

    virtual std::size_t scratch_bytes() const = 0;
    virtual void release_scratch() = 0;
};

// Sets coding.eb_abs and coding.step unless they are known. A step of 0 means that the field has to be stored raw.
inline void resolve_bound(Backend& backend, const Layout& layout, Coding& coding, const Source& field, int threads) {
    if (coding.step != 0) return;
    coding.eb_abs = coding.eb;
    if (coding.mode == CUSZ_REL) {
        const ValueRange range = backend.value_range(layout.dtype, layout.values, field, coding.special, threads);
        coding.eb_abs = absolute_bound(coding.eb, range.min, range.max);
    }
    coding.step = 2 * bound_in_force(layout.dtype, coding.eb_abs);
}

// The CPU backend.
class HostBackend : public Backend {
public:
    HostEngine& engine(const Codec& codec) override = 0;

    // As from_logs, for a box of the field. logs: of the box, one row after the other. signs: of the whole field.
    virtual void from_logs_box(const Layout& layout, const void* logs, const LogScale& scale, std::uint64_t special,
                               const std::uint64_t* signs, int threads, const Selection& box) = 0;
};

std::unique_ptr<HostBackend> make_cpu_backend();

} // namespace cusz
