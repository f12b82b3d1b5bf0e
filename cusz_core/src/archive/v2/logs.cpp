#include "logs.hpp"

#include <bit>
#include <cmath>

#include "bytes.hpp"

namespace cusz::v2 {

std::size_t write_logs_head(const Layout& layout, const Logs& logs, std::byte* to) {
    Front front{.kind = Kind::logs, .layout = layout};
    front.has_fill = logs.has_fill;
    front.eb = logs.eb;
    front.special = logs.special;
    const std::size_t front_bytes = write_front(front, to);
    Writer out(to + front_bytes + 4);
    out.number(logs.scale.wide ? 1 : 0, 1);
    out.number(static_cast<std::uint64_t>(std::int64_t{logs.scale.least}), 2);
    out.number(std::bit_cast<std::uint64_t>(logs.scale.bound), 8);
    out.varint(logs.signs_bytes);
    const std::size_t bytes = front_bytes + 4 + out.bytes();
    seal({to, bytes}, front_bytes);
    return bytes;
}

Frame read_logs(std::span<const std::byte> archive, std::size_t archive_bytes, const Front& front,
                std::size_t front_bytes) {
    const cusz_dtype dtype = front.layout.dtype;
    Reader in(archive, front_bytes);
    const auto checksum = static_cast<std::uint32_t>(in.number(4));
    Logs logs;
    const std::uint64_t wide = in.number(1);
    logs.scale.wide = wide != 0;
    logs.scale.least = static_cast<std::int16_t>(in.number(2));
    logs.scale.bound = std::bit_cast<double>(in.number(8));
    logs.signs_bytes = in.varint();
    logs.eb = front.eb;
    logs.has_fill = front.has_fill;
    logs.special = front.special;
    const int bias = dtype == CUSZ_F32 ? Digits<float>::bias : Digits<double>::bias;
    if (wide > 1 || (logs.scale.wide && dtype == CUSZ_F64)) corrupt("an illegal width of logarithms");
    if (logs.scale.least < 1 - bias || logs.scale.least > bias) corrupt("an illegal smallest exponent");
    if (!(logs.scale.bound > 0 && logs.scale.bound < HUGE_VAL)) corrupt("an illegal bound of logarithms");
    if (archive_bytes >= front.layout.bytes() + raw_header_bytes) corrupt("it is longer than the field");
    const std::size_t head_bytes = in.at(), rest = archive_bytes - head_bytes;
    if (logs.signs_bytes > rest) corrupt("signs that are longer than all");
    const auto signs_bytes = static_cast<std::size_t>(logs.signs_bytes);
    logs.archive_at = signs_bytes + logs_padding(head_bytes + signs_bytes);
    if (logs.archive_at > rest) corrupt("it ends too early");
    logs.archive_bytes = rest - logs.archive_at;
    Frame frame{
        .version = 2, .layout = front.layout, .kind = CUSZ_KIND_TILED, .payload_checksum = checksum, .has_logs = true};
    frame.logs = logs;
    frame.header_bytes = head_bytes;
    frame.body_stored_bytes = rest;
    return frame;
}

} // namespace cusz::v2
