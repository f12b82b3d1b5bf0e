#include "logs.hpp"

#include <cmath>
#include <cstring>

#include "errors.hpp"
#include "header.hpp"

namespace cusz {

namespace {

constexpr std::size_t revision_at = 52, wide_at = 48, log_fill_at = 49, min_exponent_at = 56, log_eb_at = 64,
                      log_bound_at = 72, log_special_at = 80, signs_bytes_at = 88, archive_bytes_at = 96;

constexpr std::uint8_t revision = 2;

} // namespace

void fail_of_revision_1() {
    fail(CUSZ_ERROR_UNSUPPORTED,
         "archive of format version 2, revision 1, a draft of releases up to 0.2.0; this library reads version 1 and "
         "revision 2 of version 2: compress the field again");
}

std::uint64_t read_logs_header(const void* header, Frame& frame) {
    const Layout& layout = frame.layout;
    const auto flag = [&](std::size_t offset, const char* name) {
        const unsigned value = get<std::uint8_t>(header, offset);
        if (value > 1) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", name, " is ", value, "; legal: 0 and 1");
        return value != 0;
    };
    const unsigned given = get<std::uint8_t>(header, revision_at);
    if (given == 1) fail_of_revision_1();
    if (given != revision) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: revision is ", given, "; legal: ", +revision);
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

} // namespace cusz
