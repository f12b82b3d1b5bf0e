#include "frame.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "archive/checksum.hpp"
#include "archive/header.hpp"
#include "archive/lossless.hpp"
#include "archive/quantiser.hpp"
#include "bytes.hpp"
#include "errors.hpp"

namespace cusz::v2 {

namespace {

constexpr std::uint32_t version = 2;
enum Flag : std::uint32_t {
    relative = 1u << 2,
    exact = 1u << 3,
    fill = 1u << 4,
    with_axes = 1u << 5,
    missing = 1u << 6,
    zstd = 1u << 7
};

// m * 10^x, rounded once: powers of ten up to 10^22 are exact.
double short_bound(std::uint32_t m, int x) {
    double power = 1;
    for (int i = 0; i < std::abs(x); ++i) power *= 10;
    return x >= 0 ? m * power : m / power;
}

struct ShortBound {
    std::uint32_t m = 0; // 0: there is none
    int x = 0;
};
ShortBound find_short_bound(double eb) {
    for (int x = -22; x <= 22; ++x) {
        const double m = std::nearbyint(short_bound(1, -x) * eb);
        if (m >= 1 && m <= 255 && short_bound(static_cast<std::uint32_t>(m), x) == eb) {
            ShortBound found{static_cast<std::uint32_t>(m), x};
            while (found.m % 10 == 0 && found.x < 22 && short_bound(found.m / 10, found.x + 1) == eb) {
                found.m /= 10;
                ++found.x;
            }
            return found;
        }
    }
    return {};
}

std::uint64_t bits_as(cusz_dtype dtype, double value) {
    return dtype == CUSZ_F32 ? bits_of(static_cast<float>(value)) : bits_of(value);
}

constexpr std::uint32_t all_axes = 0xFFF;
std::uint32_t packed(const AxisMasks& axes) { return axes[0] | axes[1] << 4 | axes[2] << 8; }

constexpr std::uint32_t length_bits = 21;

// The number of lattices that have units besides unit 0.
std::size_t n_large(const std::vector<Unit>& units) {
    std::size_t n = 0;
    for (std::size_t u = 1; u < units.size(); ++u) n += u == 1 || units[u].lattice != units[u - 1].lattice;
    return n;
}

// Checksum of everything up to the end of unit 0, without the checksum itself.
std::uint32_t checksum_of_head(std::span<const std::byte> head, std::size_t front_bytes) {
    const std::size_t n = head.size() - 4, words = (n + 3) / 4;
    std::vector<std::byte> covered(4 * words + 4);
    std::copy_n(head.begin(), front_bytes, covered.begin());
    std::copy(head.begin() + static_cast<std::ptrdiff_t>(front_bytes) + 4, head.end(),
              covered.begin() + static_cast<std::ptrdiff_t>(front_bytes));
    covered[4 * words] = static_cast<std::byte>(n % 4);
    std::uint64_t sum = 0;
    for (std::size_t first = 0, piece = 0; first <= words; first += piece_words, ++piece) {
        const std::size_t count = std::min<std::size_t>(piece_words, words + 1 - first);
        sum += part_of_sum(piece, weigh(covered.data() + 4 * first, count), count);
    }
    return fold(sum);
}

} // namespace

double divisor(std::uint32_t bounds, std::size_t i) {
    const auto [alpha, beta] = bounds_of_lattices[bounds];
    double power = 1;
    for (std::size_t j = 0; j < i && power < beta; ++j) power *= alpha; // exact as far as it counts
    return std::min(power, beta);
}

std::size_t write_front(const Front& front, std::byte* to) {
    Writer out(to);
    const Layout& layout = front.layout;
    const std::size_t width = layout.value_bytes();
    const ShortBound bound = find_short_bound(front.eb);
    const bool has_missing = front.n_special > 0 || front.n_verbatim > 0;
    for (const unsigned char byte : magic) out.number(byte, 1);
    out.number(version | static_cast<std::uint32_t>(front.kind) << 4 | (layout.dtype == CUSZ_F64 ? 1u << 7 : 0), 1);
    out.number(static_cast<std::uint32_t>(layout.ndim - 1) | (front.is_relative ? relative : 0u) |
                   (bound.m == 0 ? exact : 0u) | (front.has_fill ? fill : 0u) | (front.has_axes ? with_axes : 0u) |
                   (has_missing ? missing : 0u) | (front.has_zstd ? zstd : 0u),
               1);
    for (std::size_t d = 0; d < static_cast<std::size_t>(layout.ndim); ++d) out.varint(layout.shape[d]);
    if (bound.m == 0) {
        out.number(bits_of(front.eb), 8);
    } else {
        out.number(bound.m, 1);
        out.number(static_cast<std::uint64_t>(bound.x), 1);
    }
    if (front.is_relative && front.kind == Kind::spline) out.number(bits_as(layout.dtype, front.e), width);
    if (front.has_fill) out.number(front.special, width);
    if (has_missing) {
        out.varint(front.n_special);
        out.varint(front.n_verbatim);
    }
    return out.bytes();
}

Front read_front(std::span<const std::byte> archive, std::size_t& bytes) {
    Reader in(archive, 0);
    for (const unsigned char byte : magic)
        if (in.number(1) != byte) corrupt("it does not begin as one of version 2 does");
    const auto first = static_cast<std::uint32_t>(in.number(1)), second = static_cast<std::uint32_t>(in.number(1));
    const auto kind = static_cast<Kind>(first >> 4 & 7);
    if ((first & 15) > version) fail_of_newer_version(first & 15);
    if ((first & 15) != version || kind < Kind::spline || kind > Kind::constant)
        corrupt("there is no such version or kind");
    const cusz_dtype dtype = first >> 7 != 0 ? CUSZ_F64 : CUSZ_F32;
    std::array<std::uint64_t, CUSZ_MAX_NDIM> shape{};
    const std::uint32_t ndim = 1 + (second & 3);
    for (std::uint32_t d = 0; d < ndim; ++d) shape[d] = in.varint();
    Front front{.kind = kind, .layout = [&] {
                    try {
                        return Layout(dtype, static_cast<std::int32_t>(ndim), shape.data());
                    } catch (const Error& error) {
                        corrupt(error.what());
                    }
                }()};
    if (front.layout.values == 0) corrupt("an empty field");
    if (front.layout.values == 1 && kind == Kind::spline) corrupt("a pyramid of a single value");
    const std::size_t width = front.layout.value_bytes();
    if ((second & exact) != 0) {
        front.eb = std::bit_cast<double>(in.number(8));
    } else {
        const auto m = static_cast<std::uint32_t>(in.number(1));
        const auto x = static_cast<std::int8_t>(in.number(1));
        if (m == 0 || x < -22 || x > 22) corrupt("an illegal bound");
        front.eb = short_bound(m, x);
    }
    if (!(front.eb > 0 && std::isfinite(front.eb))) corrupt("an illegal bound");
    front.is_relative = (second & relative) != 0;
    const bool is_spline = kind == Kind::spline;
    if (is_spline) front.e = front.is_relative ? value_of(dtype, in.number(width)) : bound_in_force(dtype, front.eb);
    front.has_fill = (second & fill) != 0;
    front.special = front.has_fill ? in.number(width) : special_pattern(dtype, false, 0);
    front.has_axes = (second & with_axes) != 0;
    front.has_zstd = (second & zstd) != 0;
    front.n_special = front.n_verbatim = 0;
    if ((second & missing) != 0) {
        front.n_special = in.varint();
        front.n_verbatim = in.varint();
        if (front.n_special == 0 && front.n_verbatim == 0) corrupt("counters that are 0");
    }
    if (is_spline && (front.e == 0 || front.e != bound_in_force(dtype, front.e))) corrupt("an illegal bound");
    if (!is_spline && (second & (with_axes | missing | zstd)) != 0) corrupt("illegal flags");
    if (kind == Kind::logs && front.is_relative) corrupt("illegal flags");
    bytes = in.at();
    return front;
}

std::uint64_t read_constant(std::span<const std::byte> archive, const Front& front, std::size_t front_bytes) {
    Reader in(archive, front_bytes);
    in.number(4);
    const std::uint64_t bits = in.number(front.layout.value_bytes());
    if (in.at() != archive.size()) corrupt("it is longer than a constant");
    return bits;
}

std::vector<Unit> units_of(const Pyramid& pyramid) {
    std::size_t large = 0; // number of large lattices
    while (pyramid.lattices[large].values() > max_values_of_small_lattices) ++large;
    const std::uint64_t first_of_large = large > 0 ? pyramid.lattices[large - 1].first_tile : pyramid.n_tiles;
    std::vector<Unit> units{{large, 0, static_cast<std::uint32_t>(first_of_large)}};
    for (std::size_t i = large; i-- > 0;) {
        const Lattice& lattice = pyramid.lattices[i];
        for (std::uint64_t t = 0; t < lattice.n_tiles; t += tiles_of_unit)
            units.push_back({i, lattice.first_tile + t,
                             static_cast<std::uint32_t>(std::min<std::uint64_t>(tiles_of_unit, lattice.n_tiles - t))});
    }
    return units;
}

std::vector<std::byte> write_head(const Front& front, std::size_t front_bytes, const Head& head) {
    const std::size_t width = front.layout.value_bytes(), n = head.units.size();
    std::vector<std::byte> bytes(1 + 2 + 1 + width + 10 + 3 * n + 4 * head.checksums.size() + 1);
    Writer out(bytes.data());
    out.number(head.how.curve | head.how.bounds << 3, 1);
    if (front.has_axes) out.number(packed(head.how.axes), 2);
    out.number(head.preset | (head.has_map ? 1u << 4 : 0u) | head.units[0].log2_lanes << 5, 1);
    out.number(head.top, width);
    if (n > 1) out.varint(head.units[0].bytes / 2);
    for (std::size_t u = 1; u < n; ++u)
        out.number(head.units[u].bytes / 2 | std::uint64_t{head.units[u].log2_lanes} << length_bits, 3);
    for (const std::uint32_t checksum : head.checksums) out.number(checksum, 4);
    if ((front_bytes + 4 + out.bytes()) % 2 != 0) out.number(0, 1);
    bytes.resize(out.bytes());
    return bytes;
}

std::size_t read_interpolation(std::span<const std::byte> archive, const Front& front, std::size_t front_bytes,
                               Interpolation& how) {
    Reader in(archive, front_bytes);
    in.number(4);
    const auto interpolation = static_cast<std::uint32_t>(in.number(1));
    how.curve = interpolation & 7;
    how.bounds = interpolation >> 3;
    if (how.curve > static_cast<std::uint32_t>(Curve::six_points_and_codes) ||
        how.bounds >= std::size(bounds_of_lattices))
        corrupt("an illegal interpolation");
    const std::uint32_t axes = front.has_axes ? static_cast<std::uint32_t>(in.number(2)) : all_axes;
    if (axes > all_axes || (front.has_axes && axes == all_axes)) corrupt("illegal axes");
    how.axes = {axes & 15, axes >> 4 & 15, axes >> 8};
    return in.at();
}

std::uint64_t index_bytes(const Pyramid& pyramid) {
    std::uint64_t units = 0;
    for (const Lattice& lattice : pyramid.lattices)
        if (lattice.values() > max_values_of_small_lattices)
            units += (lattice.n_tiles + tiles_of_unit - 1) / tiles_of_unit;
    return 3 * units;
}

std::uint64_t head_bytes(std::span<const std::byte> prefix, const Front& front, std::size_t front_bytes) {
    Interpolation how;
    Reader in(prefix, read_interpolation(prefix, front, front_bytes, how));
    in.number(1); // the model
    in.number(front.layout.value_bytes());
    const Pyramid pyramid(front.layout.ndim, front.layout.shape.data(), how.axes);
    const std::uint64_t index = index_bytes(pyramid);
    if (index > 0) in.varint();
    std::uint64_t bytes = in.at() + index;
    for (const Lattice& lattice : pyramid.lattices)
        if (lattice.values() > max_values_of_small_lattices) bytes += 4; // its checksum
    return bytes + bytes % 2;
}

std::size_t pack(std::span<std::byte> archive, std::byte* packed) {
    std::size_t front_bytes = 0;
    Front front = read_front(archive, front_bytes);
    if (front.kind != Kind::spline) return archive.size();
    Interpolation how;
    const std::size_t begin = read_interpolation(archive, front, front_bytes, how), bytes = archive.size() - begin;
    std::byte length[10];
    Writer out(length);
    out.varint(bytes);
    const std::size_t stored = zstd_pack(archive.data() + begin, bytes, packed, bytes), at = begin + out.bytes();
    if (stored == 0 || at + stored >= archive.size()) return archive.size();
    front.has_zstd = true;
    write_front(front, archive.data());
    std::memcpy(archive.data() + begin, length, out.bytes());
    std::memcpy(archive.data() + at, packed, stored);
    seal(archive.first(at + stored), front_bytes);
    return at + stored;
}

Packed read_packed(std::span<const std::byte> archive, std::size_t archive_bytes, const Front& front,
                   std::size_t front_bytes) {
    Interpolation how;
    Packed packed{read_interpolation(archive, front, front_bytes, how)};
    Reader in(archive, packed.begin);
    packed.bytes = in.varint();
    packed.frame = in.at();
    if (packed.bytes >= front.layout.bytes() + raw_header_bytes) corrupt("it is longer than the field");
    if (packed.bytes / 32768 > archive_bytes - packed.frame) corrupt("more than zstd can have packed");
    if (index_bytes({front.layout.ndim, front.layout.shape.data(), how.axes}) > packed.bytes)
        corrupt("it is shorter than its index");
    return packed;
}

std::vector<std::byte> unpack(std::span<const std::byte> archive) {
    std::size_t front_bytes = 0;
    const Front front = read_front(archive, front_bytes);
    const Packed packed = read_packed(archive, archive.size(), front, front_bytes);
    verify_head(archive, front_bytes);
    std::vector<std::byte> unpacked(packed.begin + static_cast<std::size_t>(packed.bytes));
    std::copy_n(archive.begin(), packed.begin, unpacked.begin());
    zstd_unpack(archive.data() + packed.frame, archive.size() - packed.frame, unpacked.data() + packed.begin,
                static_cast<std::size_t>(packed.bytes));
    return unpacked;
}

std::size_t read_head(std::span<const std::byte> prefix, std::size_t archive_bytes, const Front& front,
                      std::size_t front_bytes, Head& head) {
    Reader in(prefix, read_interpolation(prefix, front, front_bytes, head.how));
    const auto model = static_cast<std::uint32_t>(in.number(1));
    head.preset = model & 15;
    head.has_map = (model >> 4 & 1) != 0;
    head.top = in.number(front.layout.value_bytes());

    const Pyramid pyramid(front.layout.ndim, front.layout.shape.data(), head.how.axes);
    if (index_bytes(pyramid) > prefix.size()) corrupt("it is shorter than its index");
    const std::vector<Unit> units = units_of(pyramid);
    head.units.assign(units.size(), {});
    head.checksums.clear();
    std::uint64_t all = 0;
    for (std::size_t u = 0; u < units.size() && units.size() > 1; ++u) {
        Head::Entry& entry = head.units[u];
        if (u == 0) {
            entry.bytes = in.varint();
        } else {
            const auto stored = static_cast<std::uint32_t>(in.number(3));
            entry = {stored & ((1u << length_bits) - 1), stored >> length_bits};
            if (entry.bytes == 0 && entry.log2_lanes != 0) corrupt("lanes of nothing");
        }
        if (entry.bytes > archive_bytes) corrupt("a unit is longer than all");
        entry.bytes *= 2;
        all += entry.bytes;
    }
    for (std::size_t i = n_large(units); i > 0; --i) head.checksums.push_back(static_cast<std::uint32_t>(in.number(4)));
    if (in.at() % 2 != 0 && in.number(1) != 0) corrupt("padding is not 0");
    if (units.size() == 1) all = head.units[0].bytes = archive_bytes - in.at();
    head.units[0].log2_lanes = model >> 5;
    for (const Head::Entry& entry : head.units)
        if (entry.log2_lanes > max_log2_lanes || entry.bytes % 2 != 0) corrupt("an illegal unit");
    if (all != archive_bytes - in.at()) corrupt("its length is not what its index says");
    return in.at();
}

void seal(std::span<std::byte> head, std::size_t front_bytes) {
    const std::uint32_t checksum = checksum_of_head(head, front_bytes);
    std::memcpy(head.data() + front_bytes, &checksum, sizeof checksum);
}

void verify_head(std::span<const std::byte> head, std::size_t front_bytes) {
    std::uint32_t stored;
    std::memcpy(&stored, head.data() + front_bytes, sizeof stored);
    if (stored != checksum_of_head(head, front_bytes)) corrupt("the head does not match its checksum");
}

void verify(std::span<const std::byte> archive, const Front& front, std::size_t front_bytes) {
    std::size_t end = archive.size(); // of the head
    if (front.kind == Kind::constant) {
        read_constant(archive, front, front_bytes);
    } else if (!front.has_zstd) {
        Head head;
        end = read_head(archive, end, front, front_bytes, head) + static_cast<std::size_t>(head.units[0].bytes);
    }
    verify_head(archive.first(end), front_bytes);
}

} // namespace cusz::v2
