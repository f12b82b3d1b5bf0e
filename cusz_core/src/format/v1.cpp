#include "v1.hpp"

#include <cmath>
#include <cstring>

#include "../codebook.hpp"
#include "../errors.hpp"
#include "../params.hpp"
#include "header.hpp"
#include "tiling.hpp"

namespace cusz::v1 {

namespace {

constexpr std::size_t predictor_family_at = 48, entropy_coder_at = 49, lossless_at = 50, mode_at = 51, r_at = 52,
                      has_fill_at = 53, reserved_at = 54, eb_at = 56, special_at = 80;

// Twice a value of T between the smallest normal and the limit of docs/format.md, section 4.
bool legal_step(cusz_dtype dtype, double step) {
    if (dtype == CUSZ_F64) return step >= 0x1p-1021 && step <= 0x1p1021;
    return step >= 0x1p-125 && step <= 0x1p125 && static_cast<double>(static_cast<float>(step)) == step;
}

Coding read_coding(const void* archive, const Layout& layout) {
    const auto id = [&](std::size_t offset, unsigned most, const char* name) {
        const unsigned value = get<std::uint8_t>(archive, offset);
        if (value > most) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", name, " is ", value, "; legal: 0 to ", most);
        return value;
    };
    Coding c;
    c.predictor = static_cast<cusz_predictor>(id(predictor_family_at, 0, "predictor family"));
    c.coder = static_cast<cusz_coder>(id(entropy_coder_at, 0, "entropy coder"));
    c.lossless = static_cast<cusz_lossless>(id(lossless_at, 1, "lossless stage"));
    c.mode = static_cast<cusz_mode>(id(mode_at, 1, "mode"));
    c.r = static_cast<int>(id(r_at, max_r, "log2 of direct magnitudes"));
    c.has_fill = id(has_fill_at, 1, "special kind") != 0;
    c.eb = get<double>(archive, eb_at);
    c.eb_abs = get<double>(archive, eb_abs_at);
    c.step = get<double>(archive, step_at);
    c.special = get<std::uint64_t>(archive, special_at);
    c.body_bytes = get<std::uint64_t>(archive, body_bytes_at);
    c.stored_bytes = get<std::uint64_t>(archive, stored_bytes_at);
    c.n_special = get<std::uint64_t>(archive, n_special_at);
    c.n_out_of_range = get<std::uint64_t>(archive, n_out_of_range_at);
    c.n_unpredictable = get<std::uint64_t>(archive, n_unpredictable_at);

    if (c.r < default_r) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: log2 of direct magnitudes is ", c.r);
    if (get<std::uint16_t>(archive, reserved_at) != 0)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: reserved bytes are not 0");
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

} // namespace

std::size_t body_offset(const void* header) {
    const int r = get<std::uint8_t>(header, r_at);
    if (r < default_r || r > max_r) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: log2 of direct magnitudes is ", r);
    return body_offset(r);
}

void read_tiled_header(const void* header, Frame& frame) {
    frame.coding = read_coding(header, frame.layout);
    const Coding& coding = frame.coding;
    frame.header_bytes = tiled_header_bytes;
    frame.model_bytes = codebook_bytes(coding.r);
    frame.lengths = read_lengths(static_cast<const std::byte*>(header) + tiled_header_bytes, Alphabet(coding.r));
    // Every tile has an index entry and a payload of at least one word. This bounds the field that a body can declare,
    // and so the memory that a reader allocates for it.
    const std::uint64_t n_tiles = Tiling(frame.layout.ndim, frame.layout.shape.data()).n_tiles();
    const std::uint64_t least = (n_tiles + 1) / 2 * 4 + n_tiles * 4;
    if (coding.body_bytes % 4 != 0 || coding.body_bytes < least ||
        coding.body_bytes > frame.layout.bytes() + raw_header_bytes)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: body of ", coding.body_bytes, " bytes for ", n_tiles, " tiles");
    if (coding.lossless == CUSZ_LOSSLESS_NONE ? coding.stored_bytes != coding.body_bytes
                                              : coding.stored_bytes >= coding.body_bytes)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: stored size ", coding.stored_bytes, " does not fit the body of ",
             coding.body_bytes, " bytes");
    // A zstd block takes at least 4 bytes and expands to at most 128 KiB, so the stored size bounds the body.
    if (coding.body_bytes / 32768 > coding.stored_bytes)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", coding.stored_bytes, " stored bytes for a body of ",
             coding.body_bytes);
}

void write_tiled_header(void* archive, const Layout& layout, const Coding& c, const std::vector<std::uint8_t>& lengths,
                        std::uint32_t payload_checksum) {
    write_common_header(archive, 1, layout, CUSZ_KIND_TILED, payload_checksum);
    put(archive, predictor_family_at, static_cast<std::uint8_t>(c.predictor));
    put(archive, entropy_coder_at, static_cast<std::uint8_t>(c.coder));
    put(archive, lossless_at, static_cast<std::uint8_t>(c.lossless));
    put(archive, mode_at, static_cast<std::uint8_t>(c.mode));
    put(archive, r_at, static_cast<std::uint8_t>(c.r));
    put(archive, has_fill_at, static_cast<std::uint8_t>(c.has_fill));
    put(archive, reserved_at, std::uint16_t{0});
    put(archive, eb_at, c.eb);
    put(archive, eb_abs_at, c.eb_abs);
    put(archive, step_at, c.step);
    put(archive, special_at, c.special);
    put(archive, body_bytes_at, c.body_bytes);
    put(archive, stored_bytes_at, c.stored_bytes);
    put(archive, n_special_at, c.n_special);
    put(archive, n_out_of_range_at, c.n_out_of_range);
    put(archive, n_unpredictable_at, c.n_unpredictable);
    write_lengths(static_cast<std::byte*>(archive) + tiled_header_bytes, lengths, Alphabet(c.r));
    seal_header(archive, body_offset(c.r));
}

} // namespace cusz::v1
