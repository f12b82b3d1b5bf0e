#include "frame.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "../errors.hpp"
#include "../params.hpp"
#include "checksum.hpp"
#include "tiling.hpp"

namespace cusz {

namespace {

constexpr unsigned char magic[4] = {0x63, 0x75, 0x53, 0x5A};

template <class V>
void put(void* archive, std::size_t offset, V value) {
    std::memcpy(static_cast<char*>(archive) + offset, &value, sizeof value);
}

template <class V>
V get(const void* archive, std::size_t offset) {
    V value;
    std::memcpy(&value, static_cast<const char*>(archive) + offset, sizeof value);
    return value;
}

// The header with its own checksum taken as 0. The coding header and codebook lie behind it; all are whole words.
std::uint32_t header_checksum(const void* archive, std::size_t bytes) {
    const auto stored = get<std::uint32_t>(archive, header_checksum_at);
    const std::size_t at = header_checksum_at / 4;
    const std::uint64_t own = std::uint64_t{stored} * (0x9E3779B1u * (2 * static_cast<std::uint32_t>(at) + 1));
    return fold(mix((weigh(archive, bytes / 4) - own) ^ mix(bytes / 4)));
}

void write_common(void* archive, const Layout& layout, cusz_kind kind, std::uint32_t payload_checksum) {
    std::memcpy(archive, magic, 4);
    put(archive, 4, static_cast<std::uint8_t>(CUSZ_FORMAT_VERSION));
    put(archive, 5, static_cast<std::uint8_t>(kind));
    put(archive, 6, static_cast<std::uint8_t>(layout.dtype));
    put(archive, 7, static_cast<std::uint8_t>(layout.ndim));
    for (std::size_t i = 0; i < CUSZ_MAX_NDIM; ++i) put(archive, 8 + 8 * i, layout.shape[i]);
    put(archive, payload_checksum_at, payload_checksum);
}

// A value of T in [smallest normal, limit of docs/format.md section 4] times 2.
bool legal_step(cusz_dtype dtype, double step) {
    if (dtype == CUSZ_F64) return step >= 0x1p-1021 && step <= 0x1p1021;
    return step >= 0x1p-125 && step <= 0x1p125 && static_cast<double>(static_cast<float>(step)) == step;
}

Coding parse_coding(const void* archive, const Layout& layout) {
    const auto id = [&](std::size_t offset, unsigned most, const char* name) {
        const unsigned value = get<std::uint8_t>(archive, offset);
        if (value > most) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", name, " is ", value, "; legal: 0 to ", most);
        return value;
    };
    Coding c;
    id(48, 0, "predictor family");
    id(49, 0, "entropy coder");
    c.lossless = static_cast<cusz_lossless>(id(50, 1, "lossless stage"));
    c.mode = static_cast<cusz_mode>(id(51, 1, "mode"));
    c.r = static_cast<int>(id(52, max_r, "log2 of direct magnitudes"));
    c.has_fill = id(53, 1, "special kind") != 0;
    c.eb = get<double>(archive, 56);
    c.eb_abs = get<double>(archive, eb_abs_at);
    c.step = get<double>(archive, step_at);
    c.special = get<std::uint64_t>(archive, 80);
    c.body_bytes = get<std::uint64_t>(archive, body_bytes_at);
    c.stored_bytes = get<std::uint64_t>(archive, stored_bytes_at);
    c.n_special = get<std::uint64_t>(archive, n_special_at);
    c.n_delta_outliers = get<std::uint64_t>(archive, n_delta_outliers_at);
    c.n_value_outliers = get<std::uint64_t>(archive, n_value_outliers_at);

    if (c.r < default_r) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: log2 of direct magnitudes is ", c.r);
    if (get<std::uint16_t>(archive, 54) != 0) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: reserved bytes are not 0");
    if (!(c.eb > 0 && std::isfinite(c.eb) && c.eb_abs > 0 && std::isfinite(c.eb_abs)))
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: error bound ", c.eb, " (absolute ", c.eb_abs, ") is not positive");
    if (!legal_step(layout.dtype, c.step))
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: quantisation step ", c.step, " is out of range");
    if (layout.dtype == CUSZ_F32 && c.special >> 32 != 0)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: special pattern is wider than the type");
    const std::uint64_t nan = layout.dtype == CUSZ_F32 ? Traits<float>::canonical_nan : Traits<double>::canonical_nan;
    if (!c.has_fill && c.special != nan)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: special pattern is not NaN, and there is no fill value");
    return c;
}

std::vector<std::uint8_t> parse_codebook(const void* archive, int r) {
    const Alphabet alphabet(r);
    const auto* nibbles = static_cast<const std::uint8_t*>(archive) + tiled_header_bytes;
    std::vector<std::uint8_t> lengths(alphabet.size());
    std::uint64_t kraft = 0; // in units of 2^-limit
    std::uint32_t n_codes = 0;
    for (std::uint32_t s = 0; s < alphabet.size(); ++s) {
        const unsigned length = (nibbles[s / 2] >> (4 * (s % 2))) & 15u;
        if (length > static_cast<unsigned>(alphabet.limit()))
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: code of ", length, " bits; the limit is ", alphabet.limit());
        lengths[s] = static_cast<std::uint8_t>(length);
        if (length == 0) continue;
        kraft += 1u << (static_cast<unsigned>(alphabet.limit()) - length);
        ++n_codes;
    }
    for (std::size_t s = alphabet.size(); s < 2 * codebook_bytes(r); ++s)
        if ((nibbles[s / 2] >> (4 * (s % 2)) & 15) != 0)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the codebook has lengths behind its last symbol");
    // A complete code leaves no bit pattern without a meaning, so the decoder needs no check per symbol.
    const std::uint64_t complete = std::uint64_t{1} << alphabet.limit();
    if (kraft != complete && n_codes != 0 && !(n_codes == 1 && kraft == complete / 2))
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the codebook's ", n_codes, " lengths make no complete code");
    return lengths;
}

} // namespace

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

Frame parse(const void* header, const void* archive, std::size_t archive_bytes) {
    if (archive == nullptr) fail(CUSZ_ERROR_PARAMETER, "archive is NULL");
    if (archive_bytes < 5 || std::memcmp(header, magic, 4) != 0)
        fail(CUSZ_ERROR_CORRUPT, "not a cuSZ archive: ", archive_bytes, " bytes that do not begin with \"cuSZ\"");
    const unsigned version = get<std::uint8_t>(header, 4);
    if (version > CUSZ_FORMAT_VERSION)
        fail(CUSZ_ERROR_TOO_NEW, "archive of format version ", version, "; this library reads up to version ",
             CUSZ_FORMAT_VERSION, ": use a newer release");
    if (version == 0)
        fail(CUSZ_ERROR_UNSUPPORTED,
             "archive of format version 0, from before the format was settled; this library reads "
             "version 1: compress the field again");
    const auto need = [&](std::size_t bytes) {
        if (archive_bytes < bytes)
            fail(CUSZ_ERROR_CORRUPT, "truncated archive: ", archive_bytes, " bytes, the header alone takes ", bytes);
    };
    need(raw_header_bytes);
    const unsigned kind = get<std::uint8_t>(header, 5);
    if (kind > CUSZ_KIND_TILED) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: kind is ", kind, "; legal: 0 and 1");
    std::size_t header_bytes = raw_header_bytes;
    int r = 0;
    if (kind == CUSZ_KIND_TILED) {
        need(tiled_header_bytes);
        r = get<std::uint8_t>(header, 52);
        if (r < default_r || r > max_r) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: log2 of direct magnitudes is ", r);
        header_bytes = body_offset(r);
        need(header_bytes);
    }
    const auto checksum = get<std::uint32_t>(header, header_checksum_at);
    if (header_checksum(header, header_bytes) != checksum)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the header does not match its checksum");

    const auto shape = get<std::array<std::uint64_t, CUSZ_MAX_NDIM>>(header, 8);
    const unsigned ndim = get<std::uint8_t>(header, 7), dtype = get<std::uint8_t>(header, 6);
    if (ndim < 1 || ndim > CUSZ_MAX_NDIM) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ndim is ", ndim);
    if (dtype != CUSZ_F32 && dtype != CUSZ_F64) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: dtype is ", dtype);
    for (std::size_t i = ndim; i < CUSZ_MAX_NDIM; ++i)
        if (shape[i] != 0) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: extent beyond ndim is not 0");
    const auto layout = [&] {
        try {
            return Layout(static_cast<cusz_dtype>(dtype), static_cast<std::int32_t>(ndim), shape.data());
        } catch (const Error& error) {
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", error.what());
        }
    }();

    Frame frame{layout,
                static_cast<cusz_kind>(kind),
                get<std::uint32_t>(header, payload_checksum_at),
                {},
                {},
                static_cast<const std::byte*>(archive) + header_bytes,
                archive_bytes - header_bytes};
    std::uint64_t expected = layout.bytes();
    if (kind == CUSZ_KIND_TILED) {
        if (layout.values == 0) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: an empty field in tiles");
        frame.coding = parse_coding(header, layout);
        frame.lengths = parse_codebook(header, r);
        expected = frame.coding.stored_bytes;
        // Every tile has an index entry and a payload of at least one word: this bounds the field that a body can
        // declare, and so what a reader allocates for it.
        const std::uint64_t n_tiles = Tiling(layout.ndim, layout.shape.data()).n_tiles();
        const std::uint64_t least = (n_tiles + 1) / 2 * 4 + n_tiles * 4;
        if (frame.coding.body_bytes % 4 != 0 || frame.coding.body_bytes < least ||
            frame.coding.body_bytes > layout.bytes() + raw_header_bytes)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: body of ", frame.coding.body_bytes, " bytes for ", n_tiles,
                 " tiles");
        if (frame.coding.lossless == CUSZ_LOSSLESS_NONE ? frame.coding.stored_bytes != frame.coding.body_bytes
                                                        : frame.coding.stored_bytes >= frame.coding.body_bytes)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: stored size ", frame.coding.stored_bytes,
                 " does not fit the body of ", frame.coding.body_bytes, " bytes");
        // A block of zstd takes at least 4 bytes and gives at most 128 KiB: what is stored bounds the body, too.
        if (frame.coding.body_bytes / 32768 > frame.coding.stored_bytes)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", frame.coding.stored_bytes, " stored bytes for a body of ",
                 frame.coding.body_bytes);
    }
    if (frame.body_stored_bytes != expected)
        fail(CUSZ_ERROR_CORRUPT, frame.body_stored_bytes < expected ? "truncated" : "corrupt",
             " archive: ", archive_bytes, " bytes, the header declares ", header_bytes + expected);
    return frame;
}

void write_raw_header(void* archive, const Layout& layout, std::uint32_t payload_checksum) {
    write_common(archive, layout, CUSZ_KIND_RAW, payload_checksum);
    put(archive, header_checksum_at, std::uint32_t{0});
    put(archive, header_checksum_at, header_checksum(archive, raw_header_bytes));
}

void write_tiled_header(void* archive, const Layout& layout, const Coding& c, const std::vector<std::uint8_t>& lengths,
                        std::uint32_t payload_checksum) {
    write_common(archive, layout, CUSZ_KIND_TILED, payload_checksum);
    put(archive, 48, std::uint8_t{0}); // predictor family
    put(archive, 49, std::uint8_t{0}); // entropy coder
    put(archive, 50, static_cast<std::uint8_t>(c.lossless));
    put(archive, 51, static_cast<std::uint8_t>(c.mode));
    put(archive, 52, static_cast<std::uint8_t>(c.r));
    put(archive, 53, static_cast<std::uint8_t>(c.has_fill));
    put(archive, 54, std::uint16_t{0});
    put(archive, 56, c.eb);
    put(archive, eb_abs_at, c.eb_abs);
    put(archive, step_at, c.step);
    put(archive, 80, c.special);
    put(archive, body_bytes_at, c.body_bytes);
    put(archive, stored_bytes_at, c.stored_bytes);
    put(archive, n_special_at, c.n_special);
    put(archive, n_delta_outliers_at, c.n_delta_outliers);
    put(archive, n_value_outliers_at, c.n_value_outliers);
    auto* nibbles = static_cast<std::uint8_t*>(archive) + tiled_header_bytes;
    std::memset(nibbles, 0, codebook_bytes(c.r));
    for (std::size_t s = 0; s < lengths.size(); ++s)
        nibbles[s / 2] = static_cast<std::uint8_t>(nibbles[s / 2] | lengths[s] << (4 * (s % 2)));
    put(archive, header_checksum_at, std::uint32_t{0});
    put(archive, header_checksum_at, header_checksum(archive, body_offset(c.r)));
}

} // namespace cusz
