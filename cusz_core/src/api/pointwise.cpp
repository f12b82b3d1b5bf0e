#include "pointwise.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "archive/lossless.hpp"
#include "archive/packing.hpp"
#include "archive/v2/logs.hpp"
#include "errors.hpp"

namespace cusz {
namespace {

std::uint64_t special_log_bits(cusz_dtype dtype) {
    return dtype == CUSZ_F32 ? bits_of(special_log<float>) : bits_of(special_log<double>);
}

std::optional<LogScale> scale_of(cusz_dtype dtype, double eb, const ExponentRange& range) {
    const auto [least, most] = range.min <= range.max ? range : ExponentRange{0, 0};
    return dtype == CUSZ_F32 ? log_scale<float>(eb, least, most) : log_scale<double>(eb, least, most);
}

// The coding of the logarithms.
Coding coding_of_logs(const Coding& given, const Logs& logs, cusz_dtype dtype) {
    Coding coding = given;
    coding.mode = CUSZ_ABS;
    coding.eb = coding.eb_abs = logs.scale.bound;
    coding.has_fill = true; // so that the special value, which is common, is a symbol
    coding.special = special_log_bits(logs.scale.dtype(dtype));
    return coding;
}

} // namespace

std::size_t write_pointwise(const Workers& workers, const Layout& layout, const Coding& coding, const Source& given,
                            const Target& archive) {
    HostBackend& cpu = workers.cpu;
    Scratch& scratch = workers.scratch;
    Backend& own = given.on_device() ? workers.backend : cpu; // where the field resides
    const std::size_t bytes = static_cast<std::size_t>(layout.bytes());
    const auto write_raw = [&] {
        Coding exact = coding;
        exact.mode = CUSZ_ABS;
        exact.eb = exact.eb_abs = 0;
        return write_archive(workers, layout, exact, given, archive);
    };
    if (coding.eb == 0 || layout.values == 0) return write_raw();
    const auto scale =
        scale_of(layout.dtype, coding.eb, own.exponent_range(layout, given, coding.special, workers.threads));
    if (!scale) return write_raw();

    Logs logs{.scale = *scale, .eb = coding.eb, .has_fill = coding.has_fill, .special = coding.special};
    const Layout of_logs(scale->dtype(layout.dtype), layout.ndim, layout.shape.data());
    const auto log_bytes = static_cast<std::size_t>(of_logs.bytes());
    const Target values = own.log_memory(given, log_bytes);
    const std::size_t sign_words = static_cast<std::size_t>((layout.values + 63) / 64);
    auto* const signs = scratch.signs.reserve<std::uint64_t>(sign_words);
    const bool any = own.to_logs(layout, given, *scale, coding.special, workers.threads, values, signs);

    const Workers on_cpu{cpu, cpu, scratch, workers.threads}, there{own, cpu, scratch, workers.threads};
    std::vector<std::byte> packed(any ? sign_words * 8 + CUSZ_PACKED_OVERHEAD_BYTES : 0);
    if (any)
        logs.signs_bytes = pack_values(on_cpu, have_zstd() ? CUSZ_LOSSLESS_ZSTD : CUSZ_LOSSLESS_NONE, 1, {signs},
                                       sign_words * 8, packed.data());
    packed.resize(static_cast<std::size_t>(logs.signs_bytes));
    std::vector<std::byte> front(v2::max_logs_head_bytes);
    front.resize(v2::write_logs_head(layout, logs, front.data()));
    front.insert(front.end(), packed.begin(), packed.end());
    front.resize(front.size() + v2::logs_padding(front.size()));
    // The archive of the logarithms may be larger than the field.
    const std::size_t front_bytes = front.size();
    auto* const whole = scratch.inner.reserve<std::byte>(front_bytes + log_bytes + raw_header_bytes);
    std::byte* const inner = whole + front_bytes;
    logs.archive_bytes = write_archive(there, of_logs, coding_of_logs(coding, logs, layout.dtype), values, {inner});
    const std::size_t total = front_bytes + static_cast<std::size_t>(logs.archive_bytes);
    const bool is_raw = parse(inner, inner, static_cast<std::size_t>(logs.archive_bytes)).kind == CUSZ_KIND_RAW;
    if (is_raw || total >= bytes + raw_header_bytes) return write_raw();

    std::memcpy(whole, front.data(), front_bytes);
    workers.backend.copy(archive.pointer, whole, total);
    return total;
}

Frame parse_logs(const Frame& frame) {
    const Logs& logs = frame.logs;
    const std::byte* const archive = frame.body + logs.archive_at;
    for (auto at = static_cast<std::size_t>(logs.signs_bytes); at < logs.archive_at; ++at)
        if (frame.body[at] != std::byte{0}) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: padding is not 0");
    const Frame inner = parse(archive, archive, static_cast<std::size_t>(logs.archive_bytes));
    const Coding expected = coding_of_logs(inner.coding, logs, frame.layout.dtype);
    const Coding& c = inner.coding;
    const bool fits = !inner.has_logs && inner.kind == CUSZ_KIND_TILED && inner.layout.ndim == frame.layout.ndim &&
                      inner.layout.shape == frame.layout.shape &&
                      inner.layout.dtype == logs.scale.dtype(frame.layout.dtype) && c.mode == CUSZ_ABS &&
                      c.eb == expected.eb && c.has_fill && c.special == expected.special;
    if (!fits) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the logarithms are not those of this field");
    return inner;
}

namespace {

// The signs of a whole field; null if there are none.
const std::uint64_t* read_signs(const Workers& workers, const Frame& frame) {
    const auto stored = static_cast<std::size_t>(frame.logs.signs_bytes);
    if (stored == 0) return nullptr;
    const std::size_t bytes = static_cast<std::size_t>((frame.layout.values + 63) / 64 * 8);
    if (!is_packed(frame.body, stored) || verified_bytes(workers, frame.body, stored) != bytes)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the signs are not those of this field");
    auto* const signs = workers.scratch.signs.reserve<std::uint64_t>(bytes / 8);
    unpack_values(workers, frame.body, stored, {signs}, bytes);
    return signs;
}

// The signs of a box of a level, numbered as if the box were a field.
std::vector<std::uint64_t> signs_of_level(const std::uint64_t* signs, const Layout& layout, const Level& level,
                                          const Selection& box, std::uint64_t values) {
    std::vector<std::uint64_t> picked(static_cast<std::size_t>((values + 63) / 64));
    const auto ndim = static_cast<std::size_t>(layout.ndim);
    for (std::uint64_t i = 0; i < values; ++i) {
        std::uint64_t rest = i, at = 0, distance = 1;
        for (std::size_t d = ndim; d-- > 0; distance *= layout.shape[d]) {
            at += (box.start[d] + rest % box.count[d]) * level.step[d] * distance;
            rest /= box.count[d];
        }
        picked[i / 64] |= (signs[at / 64] >> at % 64 & 1) << i % 64;
    }
    return picked;
}

} // namespace

void require_logs(const Frame& frame, const v2::Front& inner) {
    const Logs& logs = frame.logs;
    const cusz_dtype dtype = logs.scale.dtype(frame.layout.dtype);
    if (inner.kind == v2::Kind::logs || inner.layout.ndim != frame.layout.ndim ||
        inner.layout.shape != frame.layout.shape || inner.layout.dtype != dtype || inner.is_relative ||
        inner.eb != logs.scale.bound || !inner.has_fill || inner.special != special_log_bits(dtype))
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the logarithms are not those of this field");
}

void read_any_archive(const Workers& workers, const Frame& frame, const Source& body, const Target& field) {
    if (!frame.has_logs) return read_archive(workers, frame, body, field);
    const Workers on_cpu{workers.cpu, workers.cpu, workers.scratch, workers.threads};
    const Frame inner = parse_logs(frame);
    const std::uint64_t* const signs = read_signs(on_cpu, frame);
    if (field.pointer == nullptr) return read_archive(on_cpu, inner, {inner.body}, {});
    Backend& own = field.on_device() ? workers.backend : workers.cpu; // where the field resides
    const Workers there{own, workers.cpu, workers.scratch, workers.threads};
    const Target values = own.log_memory(field, static_cast<std::size_t>(inner.layout.bytes()));
    read_archive(there, inner, {inner.body}, values);
    own.from_logs(frame.layout, values, frame.logs.scale, frame.logs.special, signs, workers.threads, field);
}

void read_any_box(const Workers& workers, const Frame& frame, const Selection& box) {
    if (!frame.has_logs) return read_box(workers, frame, box);
    const Frame inner = parse_logs(frame);
    const std::uint64_t* const signs = read_signs(workers, frame);
    const Layout dense(inner.layout.dtype, inner.layout.ndim, box.count.data());
    void* const values = workers.cpu.log_memory({}, static_cast<std::size_t>(dense.bytes())).pointer;
    Selection selected = whole(dense, values);
    selected.start = box.start;
    read_box(workers, inner, selected);
    workers.cpu.from_logs_box(frame.layout, values, frame.logs.scale, frame.logs.special, signs, workers.threads, box);
}

void read_pointwise_level(const Workers& workers, const Frame& frame, const Level& level, const Selection& box,
                          const std::function<void(const Selection&)>& read) {
    const std::uint64_t* const signs = read_signs(workers, frame);
    const LogScale& scale = frame.logs.scale;
    const Layout dense(scale.dtype(frame.layout.dtype), frame.layout.ndim, box.count.data());
    void* const values = workers.cpu.log_memory({}, static_cast<std::size_t>(dense.bytes())).pointer;
    Selection selected = whole(dense, values);
    selected.start = box.start;
    read(selected);
    std::vector<std::uint64_t> own;
    if (signs != nullptr) own = signs_of_level(signs, frame.layout, level, box, dense.values);
    const Layout of_box(frame.layout.dtype, frame.layout.ndim, box.count.data());
    Selection there = box;
    there.start = {};
    workers.cpu.from_logs_box(of_box, values, scale, frame.logs.special, signs != nullptr ? own.data() : nullptr,
                              workers.threads, there);
}

} // namespace cusz
