// A codec is everything between a field and the part of an archive behind the common header. It is a frozen triple of
// format version, predictor and coder, because these do not combine freely. Each codec has a folder beside this file,
// with an engine for the CPU and perhaps one for devices, and a row in registry.cpp. framing.hpp assembles archives and
// knows no codec by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "archive/levels.hpp"
#include "data.hpp"

namespace cusz {

class HostBackend;
namespace cuda {
class Queue;
}

// The result of encode(). The body is in place; model and header are written from this.
struct Encoded {
    Coding coding;                // before the lossless stage
    std::vector<std::byte> model; // as the archive stores it, before the body
    std::uint32_t payload_checksum = 0;
};

// A field of many that are encoded together.
struct FieldToEncode {
    FieldToEncode(const Layout& its_layout, const Source& its_field, std::byte* at, std::uint64_t bytes)
        : layout(its_layout), field(its_field), target(at), capacity(bytes) {}

    Layout layout;
    Source field;
    std::byte* target;                // as in encode(), on the host
    std::uint64_t capacity;           // likewise
    std::optional<Encoded> encoded{}; // the result
    ValueRange range{};               // of the field, if ranges are wanted
};

// Does a codec's work on one backend. It keeps its memory between calls; each instance belongs to one context.
class Engine {
public:
    virtual ~Engine() = default;

    // Encodes a non-empty field with error bound coding.eb > 0. coding provides mode, r, eb and special, bound and step
    // if they are known, and what choose() has set. The body is written to `target`, behind space for the model.
    // Returns nothing if that takes more than `capacity` bytes or the bound requires a raw archive; the memory may have
    // been written to. range: if not null, gets the field's value range if that can be found on the way.
    virtual std::optional<Encoded> encode(const Layout& layout, const Coding& coding, const Source& field, int threads,
                                          const Target& target, std::uint64_t capacity,
                                          std::optional<ValueRange>* range) = 0;

    // Encodes fields of one type, on one device and aligned to it, with the same coding and the same results as encode()
    // gives, but in a few launches for all of them. Returns false if the engine does not do that.
    virtual bool encode_together(const Coding& coding, bool with_ranges, std::span<FieldToEncode> fields);

    // Decodes a body without its lossless stage, of frame.coding.body_bytes. Without a field, only verifies the payload
    // checksum, if that is taken over tiles. Throws CORRUPT.
    virtual void decode(const Frame& frame, const Source& body, int threads, const Target& field) = 0;

    virtual std::size_t scratch_bytes() const = 0;
    virtual void release_scratch() = 0;
};

// An archive of the spline codec must save a hundredth, for which Lorenzo is several times faster. Returns below how
// many bytes it does so, and up to how many bytes Lorenzo's is taken instead.
constexpr std::uint64_t worthwhile(std::uint64_t lorenzo) { return lorenzo - lorenzo / 100; }
constexpr std::uint64_t as_good_as(std::uint64_t spline) { return spline + spline / 99; }

// Whether to make an archive with this codec, or with the next one, and up to how many bytes that one is short enough. If
// it is longer, the other codec's may be shorter, and is made, too.
struct Advice {
    bool make = true;
    std::uint64_t enough = any_length;
};

// On the CPU, a codec can also make its choices, and decode a part of a field.
class HostEngine : public Engine {
public:
    // Sets what the codec decides by itself, from boxes of the field, which may be on a device. coding: bound and step
    // are known. If its predictor is not auto, the advice is to make the archive, whatever its length.
    virtual Advice choose(const Layout& layout, Coding& coding, const BoxReader& read, int threads);

    // As decode, for a box of the field: tiles that do not meet it are verified, but not decoded.
    virtual void decode_box(const Frame& frame, const std::byte* body, int threads, const Selection& box) = 0;

    // Compact archives only: as decode_box, for a box of the lattice that lattice_of (archive/levels.hpp) found.
    // prefix: at least the bytes needed for it, with a verified head. Finer lattices are neither read nor verified.
    virtual void decode_lattice(const Prefix& prefix, int threads, std::size_t lattice, const Selection& box);

    void decode(const Frame& frame, const Source& body, int threads, const Target& field) final {
        decode_box(frame, body.bytes(), threads, whole(frame.layout, field.pointer));
    }
};

// The tiles of an archive, for cusz_inspect.
struct TileGrid {
    std::uint64_t n = 0, index_bytes = 0;
    std::uint64_t shape[CUSZ_MAX_NDIM] = {}; // of a full tile
};

// A row of the registry.
struct Codec {
    std::uint32_t version; // of the format
    cusz_predictor predictor;
    cusz_coder coder;

    // The archives begin with their own frame, which the engine writes and reads: to this file and to framing.hpp, the
    // whole archive is the body.
    bool is_compact = false;

    bool chooses; // the engine's choose() has to be called

    // The header (archive/). model_bytes reads the model's size from the first header_bytes, and throws CORRUPT.
    std::size_t header_bytes, max_model_bytes;
    std::size_t (*model_bytes)(const void* header);
    void (*read_header)(const void* header, Frame& frame);
    void (*write_header)(void* archive, const Layout& layout, const Encoded& encoded);
    TileGrid (*tiles)(const Layout& layout, const Coding& coding);

    // The engines. Without one for devices, the one for the CPU is used, and data on a device is copied.
    std::unique_ptr<HostEngine> (*on_cpu)(HostBackend& backend);
    std::unique_ptr<Engine> (*on_device)(cuda::Queue& queue, HostBackend& cpu);

    std::size_t number() const; // of the row
};

// All codecs, in the order in which they are tried. The last one takes every field.
std::span<const Codec> codecs();

// The codecs to try, in this order, for a requested predictor: those that have it (auto: all), and then the last one,
// because an archive of another codec may turn out larger than the field. Throws UNSUPPORTED if none has the predictor.
std::vector<const Codec*> codecs_for(cusz_predictor predictor);

// The codec of an archive. Throws CORRUPT if there is none.
const Codec& codec_of(std::uint32_t version, unsigned predictor, unsigned coder);

// The codec of compact archives.
const Codec& compact_codec();

} // namespace cusz
