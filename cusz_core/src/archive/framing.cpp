#include "framing.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "errors.hpp"
#include "header.hpp"
#include "lossless.hpp"
#include "v2/frame.hpp"

namespace cusz {

namespace {

void check_pieces(Backend& backend, const Frame& frame, const Source& body, int threads, const Target& target) {
    if (backend.piece_checksum(body, frame.body_stored_bytes, threads, target) != frame.payload_checksum)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
}

std::size_t write_raw(const Workers& workers, const Layout& layout, const Source& field, const Target& archive) {
    const std::uint32_t checksum =
        workers.backend.piece_checksum(field, layout.bytes(), workers.threads, archive.at(raw_header_bytes));
    std::byte header[raw_header_bytes];
    write_raw_header(header, layout, checksum);
    workers.backend.copy(archive.pointer, header, sizeof header);
    return raw_header_bytes + static_cast<std::size_t>(layout.bytes());
}

// Replaces the body with its zstd frame if that is smaller.
void pack(const Workers& workers, Encoded& encoded, const Target& body) {
    const auto bytes = static_cast<std::size_t>(encoded.coding.body_bytes);
    void* const packed = workers.scratch.unpacked.reserve(bytes);
    const std::size_t stored = zstd_pack(body.pointer, bytes, packed, bytes);
    if (stored == 0) return;
    encoded.coding.lossless = CUSZ_LOSSLESS_ZSTD;
    encoded.coding.stored_bytes = stored;
    encoded.payload_checksum = workers.cpu.piece_checksum({packed}, stored, workers.threads, body);
}

// Verifies the stored bytes of a tiled archive, then undoes its lossless stage.
const std::byte* unpack(const Workers& workers, const Frame& frame) {
    check_pieces(workers.cpu, frame, {frame.body}, workers.threads, {});
    const auto bytes = static_cast<std::size_t>(frame.coding.body_bytes);
    auto* unpacked = static_cast<std::byte*>(workers.scratch.unpacked.reserve(bytes));
    zstd_unpack(frame.body, static_cast<std::size_t>(frame.body_stored_bytes), unpacked, bytes);
    return unpacked;
}

// A compact archive without its lossless stage.
struct Unpacked {
    std::vector<std::byte> bytes;
    Frame frame;
    explicit Unpacked(const Frame& packed)
        : bytes(v2::unpack({packed.body, static_cast<std::size_t>(packed.body_stored_bytes)})), frame(packed) {
        frame.body = bytes.data();
        frame.coding.body_bytes = frame.coding.stored_bytes = frame.body_stored_bytes = bytes.size();
    }
};

void read_packed_compact(const Workers& workers, const Frame& frame, const Target& field) {
    const Unpacked archive(frame);
    if (field.pointer == nullptr) return; // its checksum is verified
    workers.backend.engine(*frame.codec).decode(archive.frame, {archive.bytes.data()}, workers.threads, field);
}

// Copies a box of a raw archive's values.
void copy_box(const Frame& frame, const Selection& box) {
    const auto stride = whole(frame.layout, nullptr).stride;
    std::uint64_t first = 0;
    for (std::size_t d = 0; d < CUSZ_MAX_NDIM; ++d) first += box.start[d] * stride[d];
    copy_points(frame.layout, frame.body + first * frame.layout.value_bytes(), stride, box);
}

// Whether any value is -0, unless that is the special pattern.
template <class Bits>
bool has_negative_zero(const void* values, std::uint64_t n, Bits special) {
    const auto* const bits = static_cast<const Bits*>(values);
    const Bits wanted = Bits{1} << (8 * sizeof(Bits) - 1);
    return special != wanted && std::find(bits, bits + n, wanted) != bits + n;
}

// Whether a relative bound is 0 because all values that are not missing are +0. Any bound then keeps them exact,
// because everything that they are predicted from is 0, too.
bool are_zeros(const Workers& workers, Backend& there, const Layout& layout, const Coding& coding,
               const Source& field) {
    if (coding.mode != CUSZ_REL) return false;
    const ValueRange range = there.value_range(layout.dtype, layout.values, field, coding.special, workers.threads);
    if (range.n_valid == 0 || range.min != 0 || range.max != 0) return false;
    constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 22; // copied from a device at a time
    for (std::uint64_t begin = 0; begin < layout.bytes(); begin += piece_bytes) {
        const std::uint64_t bytes = std::min(piece_bytes, layout.bytes() - begin);
        const void* piece = static_cast<const std::byte*>(field.pointer) + begin;
        if (field.on_device()) {
            void* const copy = workers.scratch.unpacked.reserve(static_cast<std::size_t>(bytes));
            there.copy(copy, piece, static_cast<std::size_t>(bytes));
            piece = copy;
        }
        if (layout.dtype == CUSZ_F32 ? has_negative_zero(piece, bytes / 4, static_cast<std::uint32_t>(coding.special))
                                     : has_negative_zero(piece, bytes / 8, coding.special))
            return false;
    }
    return true;
}
void set_smallest_bound(const Layout& layout, Coding& coding) {
    coding.eb_abs = layout.dtype == CUSZ_F32 ? static_cast<double>(std::numeric_limits<float>::min())
                                             : std::numeric_limits<double>::min();
    coding.step = 2 * coding.eb_abs;
}

// Completes an archive whose body is in place. lossless: the stage that is wanted. Returns the archive's length.
std::size_t finish(const Codec& codec, const Workers& workers, const Layout& layout, Encoded& encoded,
                   cusz_lossless lossless, const Target& archive) {
    if (codec.is_compact) {
        const auto bytes = static_cast<std::size_t>(encoded.coding.body_bytes);
        if (lossless == CUSZ_LOSSLESS_NONE) return bytes;
        return v2::pack({archive.bytes(), bytes}, workers.scratch.unpacked.reserve<std::byte>(bytes));
    }
    const std::size_t body_at = codec.header_bytes + encoded.model.size();
    if (lossless != CUSZ_LOSSLESS_NONE) pack(workers, encoded, archive.at(body_at));
    std::vector<std::byte> header(body_at);
    std::copy(encoded.model.begin(), encoded.model.end(),
              header.begin() + static_cast<std::ptrdiff_t>(codec.header_bytes));
    codec.write_header(header.data(), layout, encoded);
    if (archive.on_device())
        workers.backend.copy(archive.pointer, header.data(), header.size());
    else
        std::memcpy(archive.pointer, header.data(), header.size());
    return body_at + static_cast<std::size_t>(encoded.coding.stored_bytes);
}

// Writes a field as an archive of this codec. Returns nothing if the codec does not take the field, or if that takes
// more than `most` bytes before the lossless stage. coding: bound and step may be set on the way. advice: of the codec.
std::optional<std::size_t> write_as(const Codec& codec, const Workers& workers, const Layout& layout, Coding& coding,
                                    const Source& field, const Target& archive, std::uint64_t most, Advice& advice) {
    advice = {};
    if (codec.header_bytes > most) return std::nullopt;
    Coding own = coding;
    if (codec.chooses) {
        Backend& there = field.on_device() ? workers.backend : workers.cpu;
        resolve_bound(there, layout, coding, field, workers.threads);
        if (coding.step == 0 && !codec.is_compact) return std::nullopt; // compact ones take constant fields
        own = coding;
        const bool only_zeros = coding.step == 0 && are_zeros(workers, there, layout, coding, field);
        if (only_zeros) set_smallest_bound(layout, own);
        const auto read = [&](std::vector<TileBox>& boxes) { return there.read_boxes(layout, field, boxes); };
        const Advice given = workers.cpu.engine(codec).choose(layout, own, read, workers.threads);
        if (!only_zeros) advice = given;
        if (!advice.make) return std::nullopt;
    }
    const cusz_lossless lossless = std::exchange(own.lossless, CUSZ_LOSSLESS_NONE);
    auto encoded = workers.backend.engine(codec).encode(
        layout, own, field, workers.threads, archive.at(codec.header_bytes), most - codec.header_bytes, workers.range);
    if (!encoded) return std::nullopt;
    return finish(codec, workers, layout, *encoded, lossless, archive);
}

// The most bytes that an archive may take that is not raw.
std::uint64_t less_than_raw(const Layout& layout) { return layout.bytes() + raw_header_bytes - 1; }

} // namespace

void copy_points(const Layout& layout, const std::byte* from, const std::array<std::uint64_t, CUSZ_MAX_NDIM>& stride,
                 const Selection& box) {
    const std::size_t size = layout.value_bytes(), last = static_cast<std::size_t>(layout.ndim) - 1;
    const bool are_rows = stride[last] == 1 && box.stride[last] == 1;
    std::uint64_t rows = 1;
    for (std::size_t d = 0; d < last; ++d) rows *= box.count[d];
    for (std::uint64_t row = 0; row < rows; ++row) {
        const std::byte* source = from;
        auto* target = static_cast<std::byte*>(box.field);
        for (std::uint64_t d = last, rest = row; d-- > 0; rest /= box.count[d]) {
            source += rest % box.count[d] * stride[d] * size;
            target += rest % box.count[d] * box.stride[d] * size;
        }
        if (are_rows) {
            std::memcpy(target, source, static_cast<std::size_t>(box.count[last]) * size);
            continue;
        }
        for (std::uint64_t i = 0; i < box.count[last]; ++i)
            std::memcpy(target + i * box.stride[last] * size, source + i * stride[last] * size, size);
    }
}

std::size_t write_archive(const Workers& workers, const Layout& layout, const Coding& given, const Source& field,
                          const Target& archive) {
    Coding coding = given;
    std::uint64_t most = less_than_raw(layout);
    const Codec* first = nullptr; // whose archive is taken if no other is shorter by enough
    std::size_t first_bytes = 0;
    std::byte* kept = nullptr;
    Advice advice;
    // Makes an archive, and keeps it if it fits. Returns whether no other need be made.
    const auto settles = [&](const Codec& codec, std::uint64_t enough) {
        const std::uint64_t room = coding.lossless == CUSZ_LOSSLESS_NONE ? most : less_than_raw(layout);
        const auto bytes = write_as(codec, workers, layout, coding, field, archive, room, advice);
        if (!bytes || *bytes > most) return false;
        first = &codec;
        first_bytes = *bytes;
        if (*bytes <= std::min(advice.enough, enough)) return true;
        most = std::min(less_than_raw(layout), codec.is_compact ? as_good_as(*bytes) : worthwhile(*bytes));
        if (archive.on_device()) return false; // to make it again takes less time than to copy it twice
        kept = workers.scratch.kept.reserve<std::byte>(*bytes);
        std::memcpy(kept, archive.pointer, *bytes);
        return false;
    };
    const Codec* refused = nullptr; // by its own advice, unless the others take more than this
    std::uint64_t enough = any_length;
    if (coding.eb > 0 && layout.values > 0)
        for (const Codec* codec : codecs_for(coding.predictor)) {
            if (settles(*codec, enough)) return first_bytes;
            if (advice.make) continue;
            refused = codec;
            enough = advice.enough;
        }
    if (refused != nullptr && enough < (first != nullptr ? first_bytes : less_than_raw(layout))) {
        coding.predictor = refused->predictor; // so that it is made
        if (settles(*refused, any_length)) return first_bytes;
    }
    if (first == nullptr) return write_raw(workers, layout, field, archive);
    if (archive.on_device())
        return write_as(*first, workers, layout, coding, field, archive, first_bytes, advice).value_or(first_bytes);
    std::memcpy(archive.pointer, kept, first_bytes);
    return first_bytes;
}

bool write_archives(const Workers& workers, const Coding& coding, bool with_ranges, std::span<FieldToWrite> fields) {
    const std::vector<const Codec*> tried = codecs_for(coding.predictor);
    if (tried.size() > 1 || coding.eb <= 0) return false;
    const Codec& codec = *tried.front();
    Coding own = coding;
    own.lossless = CUSZ_LOSSLESS_NONE;
    std::vector<FieldToEncode> coded;
    for (const FieldToWrite& field : fields)
        if (field.layout.values > 0)
            coded.emplace_back(field.layout, field.field, field.archive + codec.header_bytes,
                               std::max<std::uint64_t>(less_than_raw(field.layout), codec.header_bytes) -
                                   codec.header_bytes);
    if (!workers.backend.engine(codec).encode_together(own, with_ranges, coded)) return false;
    auto next = coded.begin();
    for (FieldToWrite& field : fields) {
        field.bytes = 0;
        if (field.layout.values > 0) {
            field.range = next->range;
            if (next->encoded)
                field.bytes = finish(codec, workers, field.layout, *next->encoded, coding.lossless, {field.archive});
            ++next;
        }
        if (field.bytes == 0) field.bytes = write_raw(workers, field.layout, field.field, {field.archive});
    }
    return true;
}

void read_archive(const Workers& workers, const Frame& frame, const Source& stored, const Target& field) {
    const auto& [backend, cpu, scratch, threads, range] = workers;
    if (frame.kind == CUSZ_KIND_RAW) return check_pieces(backend, frame, stored, threads, field);
    if (frame.coding.lossless == CUSZ_LOSSLESS_NONE)
        return backend.engine(*frame.codec).decode(frame, stored, threads, field);
    if (stored.on_device())
        fail(CUSZ_ERROR_UNSUPPORTED, "the archive has a lossless stage, which runs on the CPU: copy it to the host");
    if (frame.codec->is_compact) return read_packed_compact(workers, frame, field);
    if (field.pointer == nullptr) return check_pieces(cpu, frame, stored, threads, {});
    backend.engine(*frame.codec).decode(frame, {unpack(workers, frame)}, threads, field);
}

void read_box(const Workers& workers, const Frame& frame, const Selection& box) {
    if (frame.kind == CUSZ_KIND_RAW) {
        check_pieces(workers.cpu, frame, {frame.body}, workers.threads, {});
        return copy_box(frame, box);
    }
    if (frame.codec->is_compact && frame.coding.lossless != CUSZ_LOSSLESS_NONE) {
        const Unpacked archive(frame);
        return workers.cpu.engine(*frame.codec).decode_box(archive.frame, archive.bytes.data(), workers.threads, box);
    }
    const bool packed = frame.coding.lossless != CUSZ_LOSSLESS_NONE;
    workers.cpu.engine(*frame.codec)
        .decode_box(frame, packed ? unpack(workers, frame) : frame.body, workers.threads, box);
}

} // namespace cusz
