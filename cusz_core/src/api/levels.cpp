#include "levels.hpp"

#include <algorithm>
#include <array>

#include "archive/header.hpp"
#include "archive/v2/logs.hpp"
#include "errors.hpp"
#include "pointwise.hpp"

namespace cusz {

namespace {

static_assert(CUSZ_MIN_PREFIX_BYTES >= v2::max_logs_head_bytes && CUSZ_MIN_PREFIX_BYTES >= v2::max_head_bytes(0, 0) &&
              CUSZ_MIN_PREFIX_BYTES >= raw_header_bytes);

// The head of an archive of version 2.
struct Opened {
    std::size_t front_bytes = 0; // set with the front
    v2::Front front;
    v2::Head head{};
    std::size_t head_bytes = 0;

    explicit Opened(const Prefix& prefix)
        : front(v2::read_front(prefix.span().first(std::min(prefix.bytes, v2::max_front_bytes)), front_bytes)) {}
    bool has_lattices() const { return front.kind == v2::Kind::spline && !front.has_zstd; }
    // The frame of an archive of logarithms.
    Frame logs(const Prefix& prefix) const {
        Frame frame = v2::read_logs(prefix.span(), prefix.archive_bytes, front, front_bytes);
        v2::verify_head(prefix.span().first(frame.header_bytes), front_bytes);
        frame.body = prefix.data + frame.header_bytes;
        return frame;
    }
    void read_head(const Prefix& prefix) {
        head_bytes = v2::read_head(prefix.span(), prefix.archive_bytes, front, front_bytes, head);
    }
};

// Decodes all points of a box of a lattice, or of the field, and keeps those of the level, which are `stride` apart.
template <class Read>
void strided(const Workers& workers, const Layout& layout, const Selection& box,
             const std::array<std::uint64_t, CUSZ_MAX_NDIM>& stride, const Read& read) {
    std::array<std::uint64_t, CUSZ_MAX_NDIM> count{}, apart{};
    for (std::size_t d = 0; d < static_cast<std::size_t>(layout.ndim); ++d)
        count[d] = (box.count[d] - 1) * stride[d] + 1;
    const Layout decoded(layout.dtype, layout.ndim, count.data());
    auto* const values = workers.scratch.strided.reserve<std::byte>(static_cast<std::size_t>(decoded.bytes()));
    Selection all = whole(decoded, values);
    for (std::size_t d = 0; d < count.size(); ++d) {
        all.start[d] = box.start[d] * stride[d];
        apart[d] = stride[d] * all.stride[d];
    }
    read(all);
    copy_points(decoded, values, apart, box);
}

// Where the archive of a frame's logarithms begins.
std::size_t logs_begin(const Frame& frame) { return frame.header_bytes + frame.logs.archive_at; }

// That archive, as far as the prefix has it. Throws CORRUPT.
Prefix logs_in(const Prefix& prefix, const Frame& frame) {
    const std::size_t begin = logs_begin(frame);
    for (auto at = static_cast<std::size_t>(frame.logs.signs_bytes); at < frame.logs.archive_at; ++at)
        if (frame.body[at] != std::byte{0}) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: padding is not 0");
    return {prefix.data + begin, prefix.bytes - begin, static_cast<std::size_t>(frame.logs.archive_bytes)};
}

// Reads a box of a level from a whole archive.
void read_whole(const Workers& workers, const Prefix& archive, const Level& level, const Selection& box) {
    const Frame frame = parse(archive.data, archive.data, archive.archive_bytes);
    if (box.field == nullptr) return read_any_archive(workers, frame, {frame.body}, {});
    strided(workers, frame.layout, box, level.step, [&](const Selection& all) { read_any_box(workers, frame, all); });
}

} // namespace

std::size_t checked_level(const Layout& layout, std::int32_t level) {
    const std::size_t n = n_levels(layout);
    if (level < 0 || static_cast<std::size_t>(level) >= n)
        fail(CUSZ_ERROR_PARAMETER, "level is ", level, "; the field has the levels 0 to ", n - 1);
    return static_cast<std::size_t>(level);
}

LevelOfArchive inspect_level(const Prefix& prefix, std::int32_t level) {
    const std::size_t least = std::min<std::size_t>(prefix.archive_bytes, CUSZ_MIN_PREFIX_BYTES);
    if (prefix.bytes < least || prefix.bytes > prefix.archive_bytes)
        fail(CUSZ_ERROR_PARAMETER, "prefix_bytes is ", prefix.bytes, "; legal: ", least, " to ", prefix.archive_bytes,
             ", the archive's length");
    const auto found = [&](const Layout& layout, bool is_exact, std::size_t needed_bytes, std::uint32_t checksum) {
        const std::size_t k = checked_level(layout, level);
        return LevelOfArchive{layout, n_levels(layout), level_of(layout, k), is_exact, needed_bytes, checksum};
    };
    const auto whole = [&](const Layout& layout, std::uint32_t checksum) {
        if (prefix.is_whole()) parse(prefix.data, prefix.data, prefix.archive_bytes);
        return found(layout, level == 0, prefix.archive_bytes, checksum);
    };
    if (!begins_compact(prefix.data, prefix.bytes)) {
        if (prefix.bytes < raw_header_bytes) fail(CUSZ_ERROR_CORRUPT, "truncated archive: ", prefix.bytes, " bytes");
        return whole(declared_layout(prefix.data), get<std::uint32_t>(prefix.data, payload_checksum_at));
    }
    Opened opened(prefix);
    const Layout& layout = opened.front.layout;
    if (prefix.bytes < opened.front_bytes + 4) fail(CUSZ_ERROR_CORRUPT, "truncated archive: ", prefix.bytes, " bytes");
    const auto checksum = get<std::uint32_t>(prefix.data, opened.front_bytes);
    if (opened.front.kind == v2::Kind::logs) {
        const Frame frame = opened.logs(prefix);
        const std::size_t begin = logs_begin(frame),
                          end = begin + std::min<std::size_t>(prefix.archive_bytes - begin, CUSZ_MIN_PREFIX_BYTES);
        if (prefix.bytes < end) return found(layout, true, end, checksum);
        const Prefix inner = logs_in(prefix, frame);
        if (!begins_compact(inner.data, inner.bytes)) return whole(layout, checksum);
        require_logs(frame, Opened(inner).front);
        const LevelOfArchive of = inspect_level(inner, level);
        return found(layout, of.is_exact, begin + of.needed_bytes, checksum);
    }
    if (!opened.has_lattices()) {
        LevelOfArchive of_whole = whole(layout, checksum);
        if (opened.front.kind == v2::Kind::constant) of_whole.is_exact = true;
        return of_whole;
    }
    const std::uint64_t head_bytes = v2::head_bytes(prefix.span(), opened.front, opened.front_bytes);
    if (head_bytes > prefix.archive_bytes) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: it is shorter than its index");
    if (prefix.bytes < head_bytes) return found(layout, true, static_cast<std::size_t>(head_bytes), checksum);
    opened.read_head(prefix);
    const LatticeOfLevel at = lattice_of(opened.front, opened.head, opened.head_bytes, checked_level(layout, level));
    const std::size_t head_end = opened.head_bytes + static_cast<std::size_t>(opened.head.units[0].bytes);
    if (prefix.bytes >= head_end) v2::verify_head(prefix.span().first(head_end), opened.front_bytes);
    return found(layout, at.is_exact, std::max(at.needed_bytes, least), checksum);
}

void read_level(const Workers& workers, const Prefix& prefix, std::int32_t level, const Selection& box) {
    const LevelOfArchive info = inspect_level(prefix, level);
    if (prefix.bytes < info.needed_bytes)
        fail(CUSZ_ERROR_PARAMETER, "prefix_bytes is ", prefix.bytes, "; level ", level, " needs the first ",
             info.needed_bytes, " of the archive's ", prefix.archive_bytes, " bytes (cusz_inspect_level)");
    if (!begins_compact(prefix.data, prefix.bytes)) return read_whole(workers, prefix, info.level, box);
    const Opened opened(prefix);
    if (opened.front.kind == v2::Kind::logs) {
        const Frame frame = opened.logs(prefix);
        const Prefix inner = logs_in(prefix, frame);
        if (box.field == nullptr || !begins_compact(inner.data, inner.bytes))
            return prefix.bytes >= prefix.archive_bytes ? read_whole(workers, prefix, info.level, box)
                                                        : read_level(workers, inner, level, box);
        return read_pointwise_level(workers, frame, info.level, box,
                                    [&](const Selection& logs) { read_level(workers, inner, level, logs); });
    }
    HostEngine& engine = workers.cpu.engine(compact_codec());
    if (opened.front.kind == v2::Kind::constant) return engine.decode_lattice(prefix, workers.threads, 0, box);
    std::vector<std::byte> unpacked;
    Prefix needed = prefix;
    if (opened.front.has_zstd) {
        unpacked = v2::unpack(prefix.span());
        needed = {unpacked.data(), unpacked.size(), unpacked.size()};
    }
    Opened of_needed(needed);
    of_needed.read_head(needed);
    const LatticeOfLevel at =
        lattice_of(of_needed.front, of_needed.head, of_needed.head_bytes, static_cast<std::size_t>(level));
    needed.bytes = at.needed_bytes; // what follows is ignored
    const bool is_dense = std::ranges::all_of(at.stride, [](std::uint64_t stride) { return stride == 1; });
    const auto decode = [&](const Selection& all) { engine.decode_lattice(needed, workers.threads, at.lattice, all); };
    if (is_dense || box.field == nullptr) return decode(box);
    strided(workers, info.layout, box, at.stride, decode);
}

} // namespace cusz
