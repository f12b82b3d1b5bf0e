// What a backend does: everything from a field to the body of an archive and back. framing.hpp adds the headers and
// decides on the layout. Each instance belongs to one context.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "api/params.hpp"
#include "archive/frame.hpp"
#include "archive/logarithm.hpp"
#include "archive/pyramid.hpp"
#include "archive/tiling.hpp"
#include "buffer.hpp"

namespace cusz {

// Memory passed by a caller. Its location is queried once, at the start of the call (cusz.cpp).
inline constexpr int host = -1; // in place of a device's number
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

struct ValueRange {
    double min = 0, max = 0;
    std::uint64_t n_valid = 0;

    // Widens it by the range of other values.
    void add(const ValueRange& other) {
        if (other.n_valid == 0) return;
        min = n_valid == 0 || other.min < min ? other.min : min;
        max = n_valid == 0 || other.max > max ? other.max : max;
        n_valid += other.n_valid;
    }
};

// Exponents of the smallest and the largest value; least > most: there is none.
struct ExponentRange {
    int least = 0, most = -1;
};

// A non-empty box of a field and the memory it goes to; arrays by dimension, slowest first.
struct Selection {
    std::array<std::uint64_t, CUSZ_MAX_NDIM> start{}, count{};
    std::array<std::uint64_t, CUSZ_MAX_NDIM> stride{}; // of the memory, in values
    void* field = nullptr;
};

// A backend's result: tile index and payloads are in the archive's body; the header is written from this.
struct Encoded {
    Coding coding;                     // before the lossless stage
    std::vector<std::uint8_t> lengths; // the coder's model
    std::uint32_t payload_checksum = 0;
    std::vector<std::byte> model = {}; // the spline pipeline's, as stored
};

// The top of a pyramid: its section of the body, and its values, in the field's order of axes.
struct Top {
    std::vector<std::byte> section;
    const void* values = nullptr;
};

// n values on the host.
struct HostValues {
    const void* first = nullptr;
    std::uint64_t n = 0;
};
// Makes boxes of a field readable, until the next call, and sets where among the returned values they lie: where they
// were, or copied, with as many values before them as positions may be counted from.
using BoxReader = std::function<HostValues(std::vector<TileBox>& boxes)>;
inline constexpr std::uint64_t room_before_boxes = 8 * max_tile_values;

// Estimated lengths of archives, and the best way found to interpolate.
struct Forecast {
    Spline spline;
    std::uint64_t spline_bytes = 0, lorenzo_bytes = 0;

    // The spline pipeline takes longer: it has to save a twentieth of the bytes.
    bool spline_pays() const { return spline_bytes <= lorenzo_bytes / 20 * 19; }
};

class Backend {
public:
    virtual ~Backend() = default;

    // Range of the values that are finite and not the special pattern.
    virtual ValueRange value_range(cusz_dtype dtype, std::uint64_t values, const Source& field, std::uint64_t special,
                                   int threads) = 0;

    // Encodes a non-empty field with error bound coding.eb > 0 into the body of a tiled archive; coding provides
    // predictor, mode, r, eb and special, and bound and step if they are known. Returns nothing if that takes more than
    // `capacity` bytes or the bound requires a raw archive; the memory may have been written to. range: if not null,
    // gets the field's value range if that can be found on the way.
    virtual std::optional<Encoded> compress(const Layout& layout, Coding coding, const Source& field, int threads,
                                            const Target& body, std::uint64_t capacity,
                                            std::optional<ValueRange>* range) = 0;

    // Body (of a tiled archive, before the lossless stage) to field. Without a field, only the payload checksum is
    // verified, provided the frame's checksum is taken over tiles. Throws CORRUPT.
    virtual void decompress(const Frame& frame, const Source& body, int threads, const Target& field) = 0;

    // Encodes a field over its pyramid: model and body, one after the other. coding: as for compress, with bound, step
    // and spline settled.
    virtual std::optional<Encoded> compress_pyramid(const Layout& layout, const Coding& coding, const Pyramid& pyramid,
                                                    const Top& top, const Source& field, int threads,
                                                    const Target& target, std::uint64_t capacity) = 0;
    // Decodes it; without memory to put it in, only the payload checksum is verified. Throws CORRUPT.
    virtual void decompress_pyramid(const Frame& frame, const Pyramid& pyramid, const Top& top, const Source& body,
                                    int threads, const Target& field) = 0;
    // Copies the points of a lattice out of a field, to the host.
    virtual void gather_points(const Layout& layout, const Lattice& lattice, const Source& field, void* values) = 0;
    // What a sample of the field says of both pipelines' archives, and of how to interpolate. coding: with bound and
    // step settled; with predictor auto, it ends early where the spline pipeline is far from paying.
    virtual Forecast forecast(const Layout& layout, const Coding& coding, const Source& field, int threads) = 0;

    // Sums the checksum parts of `bytes` bytes cut into pieces, and copies the bytes to the target if there is one.
    virtual std::uint32_t piece_checksum(const Source& data, std::uint64_t bytes, int threads,
                                         const Target& target) = 0;

    // Range of the exponents of a field's values.
    virtual ExponentRange exponent_range(const Layout& layout, const Source& field, std::uint64_t special,
                                         int threads) = 0;
    // Memory for logarithms where `near` lies, until the next call.
    virtual Target log_memory(const Source& near, std::size_t bytes) = 0;
    // A field as logarithms (archive/logarithm.hpp), which lie where it does. signs: a bit for every value, on the
    // host, written if there are any. Returns whether any value has one.
    virtual bool to_logs(const Layout& layout, const Source& field, const LogScale& scale, std::uint64_t special,
                         int threads, const Target& logs, std::uint64_t* signs) = 0;
    // And back. signs: null: none.
    virtual void from_logs(const Layout& layout, const Source& logs, const LogScale& scale, std::uint64_t special,
                           const std::uint64_t* signs, int threads, const Target& field) = 0;

    // Copies bytes between host and devices, in any direction.
    virtual void copy(void* target, const void* source, std::size_t bytes) = 0;

    virtual std::size_t scratch_bytes() const = 0;
    virtual void release_scratch() = 0;
};

// Sets coding.eb_abs and coding.step, unless they are known; a step of 0 means that the field has to be stored raw.
inline void resolve_bound(Backend& backend, const Layout& layout, Coding& coding, const Source& field, int threads) {
    if (coding.step != 0) return;
    coding.eb_abs = coding.eb;
    if (coding.mode == CUSZ_REL) {
        const ValueRange range = backend.value_range(layout.dtype, layout.values, field, coding.special, threads);
        coding.eb_abs = absolute_bound(coding.eb, range.min, range.max);
    }
    coding.step = layout.dtype == CUSZ_F32 ? static_cast<double>(Quantiser<float>::from_bound(coding.eb_abs).step)
                                           : Quantiser<double>::from_bound(coding.eb_abs).step;
}

// A box of a whole field.
inline Selection whole(const Layout& layout, void* field) {
    Selection all{.start = {}, .count = layout.shape, .stride = {}, .field = field};
    std::uint64_t stride = 1;
    for (auto d = static_cast<std::size_t>(layout.ndim); d-- > 0; stride *= all.count[d]) all.stride[d] = stride;
    return all;
}

// The CPU backend can also decode part of a field.
class HostBackend : public Backend {
public:
    // As decompress, for a box of the field: tiles that do not meet it are verified, but not decoded.
    virtual void decompress_box(const Frame& frame, const std::byte* body, int threads, const Selection& box) = 0;
    virtual void decompress_pyramid_box(const Frame& frame, const Pyramid& pyramid, const Top& top,
                                        const std::byte* body, int threads, const Selection& box) = 0;
    // As forecast, for a field that lies elsewhere.
    virtual Forecast forecast_by_boxes(const Layout& layout, const Coding& coding, const BoxReader& read,
                                       int threads) = 0;

    // As from_logs, for a box of the field. logs: those of the box, one row after the other. signs: of the whole field.
    virtual void from_logs_box(const Layout& layout, const void* logs, const LogScale& scale, std::uint64_t special,
                               const std::uint64_t* signs, int threads, const Selection& box) = 0;
};

std::unique_ptr<HostBackend> make_cpu_backend();

} // namespace cusz
