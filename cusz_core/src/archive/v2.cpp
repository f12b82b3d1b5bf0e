#include "v2.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "alphabet.hpp"
#include "codec/codec.hpp"
#include "errors.hpp"
#include "header.hpp"
#include "pyramid.hpp"

namespace cusz {

double Spline::divisor(std::size_t i) const {
    constexpr double alphas[] = {1, 1.25, 1.5, 1.75, 2}, betas[] = {1, 2, 3, 4};
    double power = 1;
    for (std::size_t j = 0; j < i && power < betas[beta]; ++j) power *= alphas[alpha];
    return std::min(power, betas[beta]);
}

namespace v2 {

namespace {

constexpr std::size_t revision_at = 52, halved_at = 54, interpolation_at = 55, n_special_at = 104, model_bytes_at = 112,
                      n_unpredictable_at = 120;

constexpr std::uint32_t n_alphas = 5;
constexpr std::uint8_t revision = 1;

void check_revision(const void* header) {
    const unsigned given = get<std::uint8_t>(header, revision_at);
    if (given != revision) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: revision is ", given, "; legal: ", +revision);
}

} // namespace

std::size_t model_bytes(const void* header) {
    const auto bytes = get<std::uint64_t>(header, model_bytes_at);
    if (bytes == 0 || bytes % 4 != 0 || bytes > max_model_bytes)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: a model of ", bytes, " bytes");
    return static_cast<std::size_t>(bytes);
}

void read_header(const void* header, Frame& frame) {
    check_revision(header);
    Coding& c = frame.coding;
    read_common_coding(header, frame.layout, c);
    c.r = default_r;
    c.n_special = get<std::uint64_t>(header, n_special_at);
    c.n_unpredictable = get<std::uint64_t>(header, n_unpredictable_at);
    c.spline.halved = get<std::uint8_t>(header, halved_at);
    const unsigned interpolation = get<std::uint8_t>(header, interpolation_at);
    c.spline.cubic = (interpolation & 1) != 0;
    c.spline.alpha = interpolation >> 1 & 7;
    c.spline.beta = interpolation >> 4 & 3;
    if (interpolation >> 6 != 0 || c.spline.alpha >= n_alphas)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: interpolation is ", interpolation);
    const Extents extent = extents_of(frame.layout.ndim, frame.layout.shape.data());
    std::uint32_t n_halved = 0;
    for (std::size_t a = 0; a < 8; ++a) {
        if ((c.spline.halved >> a & 1) == 0) continue;
        ++n_halved;
        if (a >= 4 || extent[a] < min_halved_extent)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: axis ", a, " cannot be halved");
    }
    if (n_halved == 0 || n_halved > max_active_axes)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", n_halved, " halved axes");
    // Every tile has an index entry. This bounds the field that a body can declare.
    const Pyramid pyramid(frame.layout.ndim, frame.layout.shape.data(), c.spline.halved);
    check_body_bytes(frame, 8 + raw_header_bytes + (pyramid.n_tiles + 1) / 2 * 4, pyramid.n_tiles);
}

void write_header(void* archive, const Layout& layout, const Encoded& encoded) {
    const Coding& c = encoded.coding;
    write_common_header(archive, 2, layout, CUSZ_KIND_TILED, encoded.payload_checksum);
    write_common_coding(archive, CUSZ_PREDICTOR_SPLINE, CUSZ_CODER_RANS, c);
    put(archive, revision_at, revision);
    put(archive, halved_at, static_cast<std::uint8_t>(c.spline.halved));
    put(archive, interpolation_at,
        static_cast<std::uint8_t>(c.spline.cubic | c.spline.alpha << 1 | c.spline.beta << 4));
    put(archive, n_special_at, c.n_special);
    put(archive, model_bytes_at, std::uint64_t{encoded.model.size()});
    put(archive, n_unpredictable_at, c.n_unpredictable);
    seal_header(archive, header_bytes + encoded.model.size());
}

namespace {

constexpr std::size_t wide_at = 48, log_fill_at = 49, min_exponent_at = 56, log_eb_at = 64, log_bound_at = 72,
                      log_special_at = 80, signs_bytes_at = 88, archive_bytes_at = 96;

} // namespace

std::uint64_t read_logs_header(const void* header, Frame& frame) {
    const Layout& layout = frame.layout;
    const auto flag = [&](std::size_t offset, const char* name) {
        const unsigned value = get<std::uint8_t>(header, offset);
        if (value > 1) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", name, " is ", value, "; legal: 0 and 1");
        return value != 0;
    };
    check_revision(header);
    Logs logs;
    logs.scale.wide = flag(wide_at, "the width of logarithms");
    logs.has_fill = flag(log_fill_at, "special kind");
    logs.scale.least = get<std::int32_t>(header, min_exponent_at);
    logs.scale.bound = get<double>(header, log_bound_at);
    logs.eb = get<double>(header, log_eb_at);
    logs.special = get<std::uint64_t>(header, log_special_at);
    logs.signs_bytes = get<std::uint64_t>(header, signs_bytes_at);
    logs.archive_bytes = get<std::uint64_t>(header, archive_bytes_at);
    const int bias = layout.dtype == CUSZ_F32 ? Digits<float>::bias : Digits<double>::bias;
    if (logs.scale.wide && layout.dtype == CUSZ_F64)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: wide logarithms of f64 values");
    if (logs.scale.least < 1 - bias || logs.scale.least > bias)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the smallest exponent is ", logs.scale.least);
    if (!(logs.eb > 0 && logs.eb < HUGE_VAL && logs.scale.bound > 0 && logs.scale.bound < HUGE_VAL))
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: error bound ", logs.eb, " (of logarithms ", logs.scale.bound,
             ") is not positive");
    if (layout.dtype == CUSZ_F32 && logs.special >> 32 != 0)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: special pattern is wider than the type");
    constexpr std::size_t reserved[] = {50, 51, 53, 54, 55, 60, 61, 62, 63, 104, 105, 106, 107, 108, 109, 110, 111};
    for (const std::size_t at : reserved)
        if (get<std::uint8_t>(header, at) != 0) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: reserved bytes are not 0");
    const std::uint64_t most = layout.bytes() + raw_header_bytes;
    if (logs.signs_bytes > most || logs.archive_bytes > most)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", logs.signs_bytes, " bytes of signs and ", logs.archive_bytes,
             " of logarithms");
    frame.has_logs = true;
    frame.logs = logs;
    frame.header_bytes = logs_header_bytes;
    return (logs.signs_bytes + 7) / 8 * 8 + logs.archive_bytes;
}

void write_logs_header(void* archive, const Layout& layout, const Logs& logs, std::uint32_t payload_checksum) {
    std::memset(archive, 0, logs_header_bytes);
    write_common_header(archive, 2, layout, CUSZ_KIND_TILED, payload_checksum);
    put(archive, kind_at, static_cast<std::uint8_t>(kind_of_logs));
    put(archive, revision_at, revision);
    put(archive, wide_at, static_cast<std::uint8_t>(logs.scale.wide));
    put(archive, log_fill_at, static_cast<std::uint8_t>(logs.has_fill));
    put(archive, min_exponent_at, static_cast<std::int32_t>(logs.scale.least));
    put(archive, log_eb_at, logs.eb);
    put(archive, log_bound_at, logs.scale.bound);
    put(archive, log_special_at, logs.special);
    put(archive, signs_bytes_at, logs.signs_bytes);
    put(archive, archive_bytes_at, logs.archive_bytes);
    seal_header(archive, logs_header_bytes);
}

} // namespace v2

} // namespace cusz
