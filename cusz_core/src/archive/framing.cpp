#include "framing.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "errors.hpp"
#include "header.hpp"
#include "lossless.hpp"
#include "pyramid.hpp"
#include "v1.hpp"
#include "v2.hpp"

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

// Undoes the lossless stage of a tiled archive, whose stored bytes are verified first.
const std::byte* unpack(const Workers& workers, const Frame& frame) {
    check_pieces(workers.cpu, frame, {frame.body}, workers.threads, {});
    const auto bytes = static_cast<std::size_t>(frame.coding.body_bytes);
    auto* unpacked = static_cast<std::byte*>(workers.scratch.unpacked.reserve(bytes));
    zstd_unpack(frame.body, static_cast<std::size_t>(frame.body_stored_bytes), unpacked, bytes);
    return unpacked;
}

// Copies a box of a raw archive's values.
void copy_box(const Frame& frame, const Selection& box) {
    const auto& [start, count, stride, field] = box;
    const std::size_t size = frame.layout.value_bytes();
    std::uint64_t rows = 1;
    const auto ndim = static_cast<std::size_t>(frame.layout.ndim), last = ndim - 1;
    for (std::size_t d = 0; d < last; ++d) rows *= count[d];
    for (std::uint64_t row = 0; row < rows; ++row) {
        std::uint64_t rest = row, from = 0, to = 0, values = frame.layout.shape[last];
        for (std::size_t d = last; d-- > 0; values *= frame.layout.shape[d]) {
            const std::uint64_t i = rest % count[d];
            rest /= count[d];
            from += (start[d] + i) * values;
            to += i * stride[d];
        }
        for (std::uint64_t i = 0; i < count[last]; ++i)
            std::memcpy(static_cast<std::byte*>(field) + (to + i * stride[last]) * size,
                        frame.body + (from + start[last] + i) * size, size);
    }
}

// Archives of Lorenzo prediction, and raw ones.
std::size_t write_tiles(const Workers& workers, const Layout& layout, const Coding& coding, const Source& field,
                        const Target& archive) {
    const std::uint64_t body_at = v1::body_offset(coding.r);
    const std::uint64_t most =
        layout.bytes() + raw_header_bytes - 1; // a tiled archive has to be shorter than a raw one
    if (coding.eb == 0 || body_at > most) return write_raw(workers, layout, field, archive);
    const Target body = archive.at(body_at);
    auto encoded =
        workers.backend.compress(layout, coding, field, workers.threads, body, most - body_at, workers.range);
    if (!encoded) return write_raw(workers, layout, field, archive);
    encoded->coding.lossless = CUSZ_LOSSLESS_NONE;
    if (coding.lossless != CUSZ_LOSSLESS_NONE) pack(workers, *encoded, body);
    std::vector<std::byte> header(body_at);
    v1::write_tiled_header(header.data(), layout, encoded->coding, encoded->lengths, encoded->payload_checksum);
    workers.backend.copy(archive.pointer, header.data(), header.size());
    return body_at + encoded->coding.stored_bytes;
}

// ---- Pyramids

// How the top of a pyramid is coded.
Coding coding_of_top(const Layout& layout, const Coding& coding, const Pyramid& pyramid) {
    Coding plain;
    plain.has_fill = coding.has_fill;
    plain.special = coding.special;
    plain.r = default_r;
    const double divisor = coding.spline.divisor(pyramid.n_coded());
    plain.eb = layout.dtype == CUSZ_F32
                   ? static_cast<double>(quantiser_of(static_cast<float>(coding.step / 2), divisor).e)
                   : quantiser_of(coding.step / 2, divisor).e;
    return plain;
}

// The top of a pyramid is an archive of its own; its values are what that archive holds.
Top write_top(const Workers& workers, const Layout& layout, const Coding& coding, const Pyramid& pyramid,
              const Source& field) {
    const Extents shape = pyramid.top_shape();
    const Layout of_top(layout.dtype, CUSZ_MAX_NDIM, shape.data());
    const std::size_t bytes = static_cast<std::size_t>(of_top.bytes());
    std::byte* const values = workers.scratch.top.reserve<std::byte>(bytes);
    workers.backend.gather_points(layout, pyramid.top(), field, values);
    const Coding plain = coding_of_top(layout, coding, pyramid);
    Top top;
    top.section.resize(8 + (bytes + raw_header_bytes + 3) / 4 * 4);
    const Workers one{workers.cpu, workers.cpu, workers.scratch, 1};
    const std::size_t size = write_tiles(one, of_top, plain, {values}, {top.section.data() + 8});
    put(top.section.data(), 0, std::uint64_t{size});
    top.section.resize(8 + (size + 3) / 4 * 4);
    std::fill(top.section.begin() + 8 + static_cast<std::ptrdiff_t>(size), top.section.end(), std::byte{0});
    const Frame frame = parse(top.section.data() + 8, top.section.data() + 8, size);
    read_archive(one, frame, {frame.body}, {values});
    top.values = values;
    return top;
}

// Reads the top section at the start of a body. Throws CORRUPT.
Top read_top(const Workers& workers, const Frame& frame, const Pyramid& pyramid, const Source& body) {
    const std::uint64_t index_bytes = (pyramid.n_tiles + 1) / 2 * 4, most = frame.coding.body_bytes - 8 - index_bytes;
    Backend& backend = body.on_device() ? workers.backend : workers.cpu;
    Top top;
    // Most are short: one copy is then enough.
    top.section.resize(static_cast<std::size_t>(std::min<std::uint64_t>(8 + most, 4096)));
    backend.copy(top.section.data(), body.pointer, top.section.size());
    const auto size = get<std::uint64_t>(top.section.data(), 0);
    if (size < raw_header_bytes || size > most || (size + 3) / 4 * 4 > most)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: a pyramid's top of ", size, " bytes");
    const std::size_t here = top.section.size();
    top.section.resize(static_cast<std::size_t>(8 + (size + 3) / 4 * 4));
    if (top.section.size() > here)
        backend.copy(top.section.data() + here, body.bytes() + here, top.section.size() - here);
    for (std::size_t i = 8 + size; i < top.section.size(); ++i)
        if (top.section[i] != std::byte{0})
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the padding of the top is not 0");
    if (get<std::uint8_t>(top.section.data() + 8, version_at) != 1)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the pyramid's top is not of version 1");
    const Frame of_top = parse(top.section.data() + 8, top.section.data() + 8, size);
    const Extents shape = pyramid.top_shape();
    const Coding expected = coding_of_top(frame.layout, frame.coding, pyramid);
    const Coding& given = of_top.coding;
    const bool fits = of_top.layout.dtype == frame.layout.dtype && of_top.layout.ndim == CUSZ_MAX_NDIM &&
                      of_top.layout.shape == shape &&
                      (of_top.kind == CUSZ_KIND_RAW ||
                       (given.lossless == CUSZ_LOSSLESS_NONE && given.mode == CUSZ_ABS && given.r == default_r &&
                        given.has_fill == expected.has_fill && given.special == expected.special &&
                        given.eb == expected.eb && given.eb_abs == expected.eb && given.step == 2 * expected.eb));
    if (!fits) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the pyramid's top is not that of this field");
    void* const values = workers.scratch.top.reserve(static_cast<std::size_t>(of_top.layout.bytes()));
    read_archive({workers.cpu, workers.cpu, workers.scratch, 1}, of_top, {of_top.body}, {values});
    top.values = values;
    return top;
}

// coding: with bound and step settled. Nothing if the archive would have version 1.
std::optional<std::size_t> write_pyramid(const Workers& workers, const Layout& layout, Coding coding,
                                         const Source& field, const Target& archive) {
    const std::uint64_t most = layout.bytes() + raw_header_bytes - 1; // it has to be shorter than a raw one
    if (v2::header_bytes > most) return std::nullopt;
    const Forecast forecast = workers.backend.forecast(layout, coding, field, workers.threads);
    if (coding.predictor == CUSZ_PREDICTOR_AUTO && !forecast.spline_pays()) return std::nullopt;
    coding.predictor = CUSZ_PREDICTOR_SPLINE;
    coding.spline = forecast.spline;
    const Pyramid pyramid(layout.ndim, layout.shape.data(), coding.spline.halved);
    coding.coder = CUSZ_CODER_RANS;
    const cusz_lossless lossless = std::exchange(coding.lossless, CUSZ_LOSSLESS_NONE);
    const Top top = write_top(workers, layout, coding, pyramid, field);
    auto encoded = workers.backend.compress_pyramid(layout, coding, pyramid, top, field, workers.threads,
                                                    archive.at(v2::header_bytes), most - v2::header_bytes);
    if (!encoded) return std::nullopt;
    const std::size_t body_at = v2::header_bytes + encoded->model.size();
    if (lossless != CUSZ_LOSSLESS_NONE) pack(workers, *encoded, archive.at(body_at));
    std::vector<std::byte> header(body_at);
    std::copy(encoded->model.begin(), encoded->model.end(), header.begin() + v2::header_bytes);
    v2::write_header(header.data(), layout, encoded->coding, encoded->model.size(), encoded->payload_checksum);
    workers.backend.copy(archive.pointer, header.data(), header.size());
    return body_at + encoded->coding.stored_bytes;
}

// The body of a pyramid before its lossless stage, which is undone on the host.
Source body_of_pyramid(const Workers& workers, const Frame& frame, const Source& body) {
    if (frame.coding.lossless == CUSZ_LOSSLESS_NONE) return body;
    return {unpack(workers, frame)};
}

void read_pyramid(const Workers& workers, const Frame& frame, const Source& stored, const Target& field) {
    if (frame.coding.lossless != CUSZ_LOSSLESS_NONE && field.pointer == nullptr)
        return check_pieces(workers.cpu, frame, stored, workers.threads, {});
    const Source body = body_of_pyramid(workers, frame, stored);
    const Pyramid pyramid(frame.layout.ndim, frame.layout.shape.data(), frame.coding.spline.halved);
    const Top top = read_top(workers, frame, pyramid, body);
    workers.backend.decompress_pyramid(frame, pyramid, top, body, workers.threads, field);
}

void read_box_of_pyramid(const Workers& workers, const Frame& frame, const Selection& box) {
    const Source body = body_of_pyramid(workers, frame, {frame.body});
    const Pyramid pyramid(frame.layout.ndim, frame.layout.shape.data(), frame.coding.spline.halved);
    const Top top = read_top(workers, frame, pyramid, body);
    workers.cpu.decompress_pyramid_box(frame, pyramid, top, body.bytes(), workers.threads, box);
}

} // namespace

std::size_t write_archive(const Workers& workers, const Layout& layout, const Coding& given, const Source& field,
                          const Target& archive) {
    Coding coding = given;
    if (coding.predictor != CUSZ_PREDICTOR_LORENZO && coding.eb > 0 &&
        halvable_axes(layout.ndim, layout.shape.data(), 15) != 0 && layout.values > 0) {
        Backend& backend = field.on_device() ? workers.backend : workers.cpu;
        resolve_bound(backend, layout, coding, field, workers.threads);
        if (coding.step != 0)
            if (const auto bytes = write_pyramid(workers, layout, coding, field, archive)) return *bytes;
    }
    coding.predictor = CUSZ_PREDICTOR_LORENZO;
    return write_tiles(workers, layout, coding, field, archive);
}

void read_archive(const Workers& workers, const Frame& frame, const Source& body, const Target& field) {
    const auto& [backend, cpu, scratch, threads, range] = workers;
    if (frame.kind == CUSZ_KIND_RAW) return check_pieces(backend, frame, body, threads, field);
    const bool packed = frame.coding.lossless != CUSZ_LOSSLESS_NONE;
    if (packed && body.on_device())
        fail(CUSZ_ERROR_UNSUPPORTED, "the archive has a lossless stage, which runs on the CPU: copy it to the host");
    if (frame.version == 2) return read_pyramid(workers, frame, body, field);
    if (!packed) return backend.decompress(frame, body, threads, field);
    if (field.pointer == nullptr) return check_pieces(cpu, frame, body, threads, {});
    backend.decompress(frame, {unpack(workers, frame)}, threads, field);
}

void read_box(const Workers& workers, const Frame& frame, const Selection& box) {
    if (frame.kind == CUSZ_KIND_RAW) {
        check_pieces(workers.cpu, frame, {frame.body}, workers.threads, {});
        return copy_box(frame, box);
    }
    if (frame.version == 2) return read_box_of_pyramid(workers, frame, box);
    const bool packed = frame.coding.lossless != CUSZ_LOSSLESS_NONE;
    workers.cpu.decompress_box(frame, packed ? unpack(workers, frame) : frame.body, workers.threads, box);
}

} // namespace cusz
