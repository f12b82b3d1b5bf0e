#include "frame.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "alphabet.hpp"
#include "codec/codec.hpp"
#include "errors.hpp"
#include "header.hpp"
#include "v2/frame.hpp"
#include "v2/logs.hpp"

namespace cusz {

namespace {

constexpr unsigned char magic[4] = {0x63, 0x75, 0x53, 0x5A};

} // namespace

void write_common_header(void* archive, std::uint32_t version, const Layout& layout, cusz_kind kind,
                         std::uint32_t payload_checksum) {
    std::memcpy(archive, magic, 4);
    put(archive, version_at, static_cast<std::uint8_t>(version));
    put(archive, kind_at, static_cast<std::uint8_t>(kind));
    put(archive, dtype_at, static_cast<std::uint8_t>(layout.dtype));
    put(archive, ndim_at, static_cast<std::uint8_t>(layout.ndim));
    for (std::size_t i = 0; i < CUSZ_MAX_NDIM; ++i) put(archive, shape_at + 8 * i, layout.shape[i]);
    put(archive, payload_checksum_at, payload_checksum);
}

std::size_t max_front_bytes() {
    std::size_t max = v2::max_logs_head_bytes;
    for (const Codec& codec : codecs()) max = std::max(max, codec.header_bytes + codec.max_model_bytes);
    return max;
}

namespace {

// Parses a compact archive. Its body is the whole archive (with logarithms, what follows the head). Verifies the
// checksum of the head if the archive is on the host; otherwise this is done when the archive is read.
Frame parse_compact(const void* header, const void* archive, std::size_t archive_bytes) {
    const std::span bytes(static_cast<const std::byte*>(header), std::min(archive_bytes, max_front_bytes()));
    std::size_t front_bytes = 0;
    const v2::Front front = v2::read_front(bytes, front_bytes);
    if (archive_bytes < front_bytes + 4) fail(CUSZ_ERROR_CORRUPT, "truncated archive: ", archive_bytes, " bytes");
    if (front.kind == v2::Kind::logs) {
        Frame frame = v2::read_logs(bytes, archive_bytes, front, front_bytes);
        if (header == archive) v2::verify_head(bytes.first(frame.header_bytes), front_bytes);
        frame.body = static_cast<const std::byte*>(archive) + frame.header_bytes;
        return frame;
    }
    Frame frame{.version = 2,
                .layout = front.layout,
                .kind = CUSZ_KIND_TILED,
                .payload_checksum = get<std::uint32_t>(header, front_bytes),
                .codec = &compact_codec()};
    frame.header_bytes = front_bytes + 4;
    frame.body = static_cast<const std::byte*>(archive);
    frame.body_stored_bytes = archive_bytes;
    Coding& coding = frame.coding;
    coding.predictor = CUSZ_PREDICTOR_SPLINE;
    coding.lossless = front.has_zstd ? CUSZ_LOSSLESS_ZSTD : CUSZ_LOSSLESS_NONE;
    coding.mode = front.is_relative ? CUSZ_REL : CUSZ_ABS;
    coding.r = default_r;
    coding.has_fill = front.has_fill;
    coding.eb = front.eb;
    coding.eb_abs = front.is_relative ? front.e : front.eb;
    coding.step = 2 * front.e;
    coding.special = front.special;
    coding.body_bytes = coding.stored_bytes = archive_bytes;
    coding.n_special = front.n_special;
    coding.n_unpredictable = front.n_verbatim;
    frame.is_constant = front.kind == v2::Kind::constant;
    if (!frame.is_constant) v2::read_interpolation(bytes, front, front_bytes, coding.interpolation);
    if (front.has_zstd) {
        const v2::Packed packed = v2::read_packed(bytes, archive_bytes, front, front_bytes);
        coding.body_bytes = packed.begin + packed.bytes;
    }
    if (header == archive) v2::verify({bytes.data(), archive_bytes}, front, front_bytes);
    return frame;
}

} // namespace

bool begins_compact(const void* header, std::size_t archive_bytes) {
    if (archive_bytes >= sizeof v2::magic && std::memcmp(header, v2::magic, sizeof v2::magic) == 0) return true;
    if (archive_bytes < 5 || std::memcmp(header, magic, 4) != 0)
        fail(CUSZ_ERROR_CORRUPT, "not a cuSZ archive: ", archive_bytes, " bytes that do not begin with \"cuSZ\"");
    const std::uint32_t version = get<std::uint8_t>(header, version_at);
    if (version > CUSZ_FORMAT_VERSION) fail_of_newer_version(version);
    if (version == 0)
        fail(CUSZ_ERROR_UNSUPPORTED,
             "archive of format version 0, from before the format was settled; this library reads "
             "versions 1 and 2: compress the field again");
    if (version == 2) // revision 2 has another magic
        fail(CUSZ_ERROR_UNSUPPORTED, "archive of format version 2, revision 1, a draft of releases up to 0.2.0; this "
                                     "library reads version 1 and revision 2 of version 2: compress the field again");
    return false;
}

Layout declared_layout(const void* header) {
    const auto shape = get<std::array<std::uint64_t, CUSZ_MAX_NDIM>>(header, shape_at);
    const unsigned ndim = get<std::uint8_t>(header, ndim_at), dtype = get<std::uint8_t>(header, dtype_at);
    if (ndim < 1 || ndim > CUSZ_MAX_NDIM) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ndim is ", ndim);
    if (dtype != CUSZ_F32 && dtype != CUSZ_F64) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: dtype is ", dtype);
    for (std::size_t i = ndim; i < CUSZ_MAX_NDIM; ++i)
        if (shape[i] != 0) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: extent beyond ndim is not 0");
    try {
        return Layout(static_cast<cusz_dtype>(dtype), static_cast<std::int32_t>(ndim), shape.data());
    } catch (const Error& error) {
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", error.what());
    }
}

Frame parse(const void* header, const void* archive, std::size_t archive_bytes) {
    if (archive == nullptr) fail(CUSZ_ERROR_PARAMETER, "archive is NULL");
    if (begins_compact(header, archive_bytes)) return parse_compact(header, archive, archive_bytes);
    const std::uint32_t version = get<std::uint8_t>(header, version_at);
    const auto need = [&](std::size_t bytes) {
        if (archive_bytes < bytes)
            fail(CUSZ_ERROR_CORRUPT, "truncated archive: ", archive_bytes, " bytes, the header alone takes ", bytes);
    };
    need(raw_header_bytes);
    const unsigned kind = get<std::uint8_t>(header, kind_at);
    if (kind > CUSZ_KIND_TILED) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: kind is ", kind, "; legal: 0 and 1");
    std::size_t front_bytes = raw_header_bytes;
    const Codec* codec = nullptr;
    if (kind == CUSZ_KIND_TILED) {
        need(raw_header_bytes + 2);
        codec = &codec_of(version, get<std::uint8_t>(header, predictor_at), get<std::uint8_t>(header, coder_at));
        need(codec->header_bytes);
        front_bytes = codec->header_bytes + codec->model_bytes(header);
        need(front_bytes);
    }
    const auto checksum = get<std::uint32_t>(header, header_checksum_at);
    if (header_checksum(header, front_bytes) != checksum)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the header does not match its checksum");

    const Layout layout = declared_layout(header);
    Frame frame{.version = version,
                .layout = layout,
                .kind = static_cast<cusz_kind>(kind),
                .payload_checksum = get<std::uint32_t>(header, payload_checksum_at)};
    frame.body = static_cast<const std::byte*>(archive) + front_bytes;
    frame.body_stored_bytes = archive_bytes - front_bytes;
    std::uint64_t expected = layout.bytes();
    if (kind != CUSZ_KIND_RAW && layout.values == 0)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: an empty field in tiles");
    if (kind == CUSZ_KIND_TILED) {
        frame.codec = codec;
        frame.header_bytes = codec->header_bytes;
        const auto* const bytes = static_cast<const std::byte*>(header);
        frame.model.assign(bytes + codec->header_bytes, bytes + front_bytes);
        codec->read_header(header, frame);
        expected = frame.coding.stored_bytes;
    }
    if (frame.body_stored_bytes != expected)
        fail(CUSZ_ERROR_CORRUPT, frame.body_stored_bytes < expected ? "truncated" : "corrupt",
             " archive: ", archive_bytes, " bytes, the header declares ", front_bytes + expected);
    return frame;
}

void write_raw_header(void* archive, const Layout& layout, std::uint32_t payload_checksum) {
    write_common_header(archive, 1, layout, CUSZ_KIND_RAW, payload_checksum);
    seal_header(archive, raw_header_bytes);
}

} // namespace cusz
