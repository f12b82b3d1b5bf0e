#include <cmath>

#include "errors.hpp"
#include "header.hpp"
#include "quantiser.hpp"

namespace cusz {

namespace {

constexpr std::size_t lossless_at = 50, mode_at = 51, has_fill_at = 53, eb_at = 56, eb_abs_at = 64, step_at = 72,
                      special_at = 80, body_bytes_at = 88, stored_bytes_at = 96;

// Twice a value of T between the smallest normal and the limit of docs/reference/format.md, section 4.
bool legal_step(cusz_dtype dtype, double step) {
    if (dtype == CUSZ_F64) return step >= 0x1p-1021 && step <= 0x1p1021;
    return step >= 0x1p-125 && step <= 0x1p125 && static_cast<double>(static_cast<float>(step)) == step;
}

} // namespace

void read_common_coding(const void* header, const Layout& layout, Coding& c) {
    const auto id = [&](std::size_t offset, const char* name) {
        const unsigned value = get<std::uint8_t>(header, offset);
        if (value > 1) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", name, " is ", value, "; legal: 0 to 1");
        return value;
    };
    c.lossless = static_cast<cusz_lossless>(id(lossless_at, "lossless stage"));
    c.mode = static_cast<cusz_mode>(id(mode_at, "mode"));
    c.has_fill = id(has_fill_at, "special kind") != 0;
    c.eb = get<double>(header, eb_at);
    c.eb_abs = get<double>(header, eb_abs_at);
    c.step = get<double>(header, step_at);
    c.special = get<std::uint64_t>(header, special_at);
    c.body_bytes = get<std::uint64_t>(header, body_bytes_at);
    c.stored_bytes = get<std::uint64_t>(header, stored_bytes_at);

    if (!(c.eb > 0 && std::isfinite(c.eb) && c.eb_abs > 0 && std::isfinite(c.eb_abs)))
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: error bound ", c.eb, " (absolute ", c.eb_abs, ") is not positive");
    if (!legal_step(layout.dtype, c.step))
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: quantisation step ", c.step, " is out of range");
    if (layout.dtype == CUSZ_F32 && c.special >> 32 != 0)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: special pattern is wider than the type");
    if (!c.has_fill && c.special != special_pattern(layout.dtype, false, 0))
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: special pattern is not NaN, and there is no fill value");
}

void write_common_coding(void* archive, cusz_predictor predictor, cusz_coder coder, const Coding& c) {
    put(archive, predictor_at, static_cast<std::uint8_t>(predictor));
    put(archive, coder_at, static_cast<std::uint8_t>(coder));
    put(archive, lossless_at, static_cast<std::uint8_t>(c.lossless));
    put(archive, mode_at, static_cast<std::uint8_t>(c.mode));
    put(archive, has_fill_at, static_cast<std::uint8_t>(c.has_fill));
    put(archive, eb_at, c.eb);
    put(archive, eb_abs_at, c.eb_abs);
    put(archive, step_at, c.step);
    put(archive, special_at, c.special);
    put(archive, body_bytes_at, c.body_bytes);
    put(archive, stored_bytes_at, c.stored_bytes);
}

void check_body_bytes(const Frame& frame, std::uint64_t least, std::uint64_t n_tiles) {
    const Coding& coding = frame.coding;
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

} // namespace cusz
