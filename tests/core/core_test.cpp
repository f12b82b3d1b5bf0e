// The C interface end to end, for builds with sanitizers: every branch of the codec, several threads per call,
// concurrent calls, damaged archives. The Python tests check the values; this one checks that nothing on the way is
// undefined behaviour.
#include <cusz/cusz.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <locale>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "api/params.hpp"
#include "archive/logarithm.hpp"
#include "archive/quantiser.hpp"
#include "promises.hpp"
#include "seal.hpp"

namespace {

using cusz_test::demand;

// Well-mixed integers, the same on every platform.
std::uint64_t hash(std::uint64_t x) { return cusz::mix(x * 0x9E3779B97F4A7C15u + 1); }

enum class Kind { smooth, steep, sparse, missing, jumps, bits, constant, last };

// n values in rows of `row`.
template <class T>
std::vector<T> field(Kind kind, std::size_t n, std::size_t row, std::uint64_t seed) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    std::vector<T> x(n);
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint64_t h = hash(seed << 40 ^ i);
        const auto noise = static_cast<T>(h >> 40) / T(1 << 24);
        const auto along = static_cast<T>(i % row), across = static_cast<T>(i / row);
        switch (kind) {
        case Kind::smooth: x[i] = along * along / T(64) + across / T(4) + noise / T(64); break;
        case Kind::steep: x[i] = along * along * along + across * across * along; break;
        case Kind::sparse: x[i] = h % 50 == 0 ? T(3) : T(0); break;
        case Kind::missing:
            x[i] = h % 3 == 0 ? T(1e20) : h % 97 == 0 ? std::numeric_limits<T>::quiet_NaN() : along + noise;
            break;
        case Kind::jumps: x[i] = h % 40 == 0 ? T(h % 2 == 0 ? 1e6 : -1e30) : along / T(8); break;
        case Kind::bits: x[i] = std::bit_cast<T>(static_cast<Bits>(h)); break;
        default: x[i] = T(-2.5);
        }
    }
    return x;
}

struct Case {
    std::vector<std::uint64_t> shape;
    Kind kind;
    double eb;
    int mode, bins, lossless, has_fill, predictor;
};

std::vector<Case> cases(bool few) {
    const std::vector<std::vector<std::uint64_t>> shapes = {
        {0},       {1},         {33},         {4096},     {8193},       {1, 1},         {65, 129},      {1, 4097},
        {2000, 3}, {9, 17, 33}, {31, 37, 41}, {1, 1, 40}, {16, 32, 64}, {2, 9, 17, 33}, {300, 1, 1, 3}, {0, 2, 3, 4}};
    std::vector<Case> all;
    std::uint64_t number = 0;
    for (const auto& shape : shapes)
        for (int kind = 0; kind < static_cast<int>(Kind::last); ++kind)
            for (const double eb : {0.0, 1e-4, 1e-2, 1e300}) {
                const std::uint64_t h = hash(++number);
                if (few && h % 4 != 0) continue;
                all.push_back({shape, static_cast<Kind>(kind), eb, h % 3 == 0 ? CUSZ_REL : CUSZ_ABS,
                               h % 5 == 0 ? 64 << (h >> 8) % 8 : 64,
                               (h >> 24) % 4 == 0 && cusz_has_lossless(CUSZ_LOSSLESS_ZSTD) ? CUSZ_LOSSLESS_ZSTD
                                                                                           : CUSZ_LOSSLESS_NONE,
                               static_cast<Kind>(kind) == Kind::missing || h % 7 == 0,
                               (h >> 20) % 8 == 0   ? CUSZ_PREDICTOR_AUTO
                               : (h >> 20) % 2 == 0 ? CUSZ_PREDICTOR_SPLINE
                                                    : CUSZ_PREDICTOR_LORENZO});
            }
    return all;
}

struct Bytes {
    std::unique_ptr<std::uint8_t[]> data;
    std::size_t size;
};

template <class T>
Bytes round_trip(cusz_context* context, const Case& c, std::uint64_t seed) {
    const cusz_dtype dtype = sizeof(T) == 4 ? CUSZ_F32 : CUSZ_F64;
    const auto ndim = static_cast<std::int32_t>(c.shape.size());
    std::size_t n = 1;
    for (const std::uint64_t extent : c.shape) n *= extent;
    const std::vector<T> x = field<T>(c.kind, n, std::max<std::size_t>(c.shape.back(), 1), seed);
    std::vector<T> y(n);

    cusz_params params;
    cusz_params_init(&params);
    params.eb = c.eb;
    params.mode = c.mode;
    params.bins = c.bins;
    params.lossless = c.lossless;
    params.predictor = c.predictor;
    params.has_fill = c.has_fill;
    params.fill = 1e20;
    std::size_t capacity = 0, size[2] = {};
    demand(cusz_max_archive_bytes(dtype, ndim, c.shape.data(), &capacity) == CUSZ_OK, "capacity");
    std::array<std::unique_ptr<std::uint8_t[]>, 2> archive;
    for (std::size_t i = 0; i < 2; ++i) { // an odd address, and three threads
        archive[i] = std::make_unique<std::uint8_t[]>(capacity + i);
        params.threads = i == 0 ? 1 : 3;
        demand(cusz_compress(context, &params, dtype, ndim, c.shape.data(), x.data(), archive[i].get() + i, capacity,
                             &size[i]) == CUSZ_OK,
               "compress");
    }
    demand(size[0] == size[1] && std::memcmp(archive[0].get(), archive[1].get() + 1, size[0]) == 0, "the same bytes");

    cusz_info info{};
    info.struct_bytes = sizeof info;
    for (std::size_t i = 0; i < 2; ++i) {
        const auto threads = static_cast<std::int32_t>(i == 0 ? 1 : 3);
        demand(cusz_inspect(context, archive[i].get() + i, size[0], &info) == CUSZ_OK, "inspect");
        demand(cusz_check(context, archive[i].get() + i, size[0], threads) == CUSZ_OK, "check");
        std::fill(y.begin(), y.end(), T(7));
        demand(cusz_decompress(context, archive[i].get() + i, size[0], CUSZ_BACKEND_CPU, threads, y.data(),
                               n * sizeof(T)) == CUSZ_OK,
               "decompress");
        cusz_test::demand_bound(x.data(), y.data(), n, info.eb_abs, c.has_fill != 0, params.fill);
        for (std::uint64_t k = 0; k < 3; ++k)
            cusz_test::demand_boxes(context, archive[i].get() + i, size[0], info, hash(seed << 8 ^ k ^ i),
                                    reinterpret_cast<const char*>(y.data()));
        cusz_test::demand_levels(context, archive[i].get() + i, size[0], info, hash(seed << 8 ^ i),
                                 reinterpret_cast<const char*>(y.data()));
    }
    return {std::move(archive[0]), size[0]};
}

// Damages the header and other parts: the archive is refused or decoded, and nothing else happens. Returns how many
// were decoded.
std::size_t damage(cusz_context* context, const Bytes& good, std::uint64_t seed, std::size_t count) {
    std::size_t decoded = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const auto bytes =
            std::make_unique<std::uint8_t[]>(good.size); // a separate allocation, so that overruns are caught
        std::memcpy(bytes.get(), good.data.get(), good.size);
        for (std::uint64_t k = 0, h = hash(seed << 20 ^ i); k <= h % 3; ++k) {
            const std::size_t reach = i % 4 == 0 ? std::min<std::size_t>(good.size, 260) : good.size;
            const std::size_t bit = hash(h + k) % (8 * reach);
            bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
        }
        cusz_test::seal(bytes.get(), good.size, cusz_test::version_of(good.data.get(), good.size));
        cusz_info info{};
        info.struct_bytes = sizeof info;
        if (cusz_inspect(context, bytes.get(), good.size, &info) != CUSZ_OK || info.raw_bytes > 1 << 24) continue;
        if (!cusz_has_lossless(static_cast<cusz_lossless>(info.lossless))) continue; // now asks for zstd
        const auto out = std::make_unique<char[]>(info.raw_bytes);
        const cusz_status status =
            cusz_decompress(context, bytes.get(), good.size, CUSZ_BACKEND_CPU, 1, out.get(), info.raw_bytes);
        demand(status == CUSZ_OK || status == CUSZ_ERROR_CORRUPT, "kind of error");
        cusz_test::demand_boxes(context, bytes.get(), good.size, info, seed + i,
                                status == CUSZ_OK ? out.get() : nullptr);
        cusz_test::demand_levels(context, bytes.get(), good.size, info, seed + i,
                                 status == CUSZ_OK ? out.get() : nullptr);
        decoded += status == CUSZ_OK ? 1 : 0;
    }
    return decoded;
}

// Fields whose archives have several units in several lattices.
void large_fields(cusz_context* context, std::size_t n_damaged) {
    const std::vector<std::vector<std::uint64_t>> shapes = {{300'000}, {620, 530}, {110'000, 3}, {130, 64, 41}};
    for (std::size_t i = 0; i < shapes.size(); ++i)
        for (const Kind kind : {Kind::smooth, Kind::missing, Kind::jumps}) {
            const bool has_fill = kind == Kind::missing;
            const Case c{shapes[i], kind, 1e-2, CUSZ_ABS, 64, CUSZ_LOSSLESS_NONE, has_fill, CUSZ_PREDICTOR_SPLINE};
            const Bytes f32 = round_trip<float>(context, c, i), f64 = round_trip<double>(context, c, i);
            for (const Bytes* archive : {&f32, &f64}) {
                demand(cusz_test::version_of(archive->data.get(), archive->size) == 2, "the spline codec");
                damage(context, *archive, i, n_damaged);
            }
        }
}

// The last unit lacks words. Units are decoded side by side, so it may go on reading past its end, and no memory lies
// behind the archive.
void words_beyond_the_end(cusz_context* context) {
    const std::vector<std::uint64_t> shape = {40, 64, 64}, start = {8, 0, 0}, count = {32, 64, 64},
                                     stride = {4096, 64, 1};
    const Bytes good = round_trip<float>(
        context, {shape, Kind::smooth, 1e-3, CUSZ_ABS, 64, CUSZ_LOSSLESS_NONE, 0, CUSZ_PREDICTOR_SPLINE}, 1);
    const std::span whole(reinterpret_cast<const std::byte*>(good.data.get()), good.size);
    const cusz_test::v2::Parts parts(whole);
    const cusz::v2::Head::Entry last = parts.head.units.back();
    const std::size_t begin = good.size - static_cast<std::size_t>(last.bytes),
                      states = 2 + (std::size_t{4} << last.log2_lanes); // and the live tiles
    demand(parts.head.units.size() > 4 && last.bytes > states + 256, "several units of several words");
    for (std::size_t words = 0; words <= 128; ++words) {
        const std::size_t bytes = states + 2 * words;
        const auto cut = std::make_unique<std::uint8_t[]>(begin + bytes);
        std::memset(cut.get(), 0xFF, begin + bytes); // words of the rarest symbol
        std::memcpy(cut.get(), good.data.get(), begin + states);
        cusz_test::v2::Parts changed = parts;
        changed.head.units.back().bytes = bytes;
        changed.write({reinterpret_cast<std::byte*>(cut.get()), begin + bytes});
        std::vector<float> out(40 * 64 * 64);
        const auto all = cusz_decompress(context, cut.get(), begin + bytes, CUSZ_BACKEND_CPU, 1, out.data(),
                                         4 * out.size()),
                   box = cusz_decompress_box(context, cut.get(), begin + bytes, 1, start.data(), count.data(),
                                             stride.data(), out.data());
        demand(all == CUSZ_ERROR_CORRUPT && box == CUSZ_ERROR_CORRUPT, "a unit of too few words");
    }
}

// Structures of version 0.1.0 and of a future version, in memory of exactly their sizes, so that overruns are caught.
void structures_of_other_versions(cusz_context* context) {
    const std::uint64_t shape = 1000;
    const std::vector<float> x = field<float>(Kind::smooth, shape, 50, 1);
    std::vector<std::uint8_t> archive(4 * shape + CUSZ_RAW_OVERHEAD_BYTES);
    for (const std::size_t more : {0, 104}) {
        const std::size_t params_bytes = cusz::first_params_bytes + more, info_bytes = cusz::first_info_bytes + more;
        std::vector<std::uint64_t> params_memory(params_bytes / 8), info_memory(info_bytes / 8);
        auto* const params = reinterpret_cast<cusz_params*>(params_memory.data());
        auto* const info = reinterpret_cast<cusz_info*>(info_memory.data());
        cusz_params_init_sized(params, params_bytes);
        demand(cusz_params_set(params, "eb", "1e-3", nullptr, 0) == CUSZ_OK, "set");
        std::size_t size = 0;
        demand(cusz_compress(context, params, CUSZ_F32, 1, &shape, x.data(), archive.data(), archive.size(), &size) ==
                   CUSZ_OK,
               "compress");
        info->struct_bytes = static_cast<std::uint32_t>(info_bytes);
        demand(cusz_inspect(context, archive.data(), size, info) == CUSZ_OK && info->eb == 1e-3, "inspect");
    }
}

// Checks the errors of log2_of and exp2_of, on which the proof of pw_rel bounds rests. Both treat exponents exactly, so
// only mantissas are tried: for float all of them, unless `few`.
void logarithms(bool few) {
    const auto above_rounding = [](long double error, long double of, int digits) {
        return error - std::ldexp(1.0L, std::max(std::ilogb(of), -1000) - digits);
    };
    for (std::uint32_t bits = 0x3F800000; bits < 0x40000000; bits += few ? 97 : 1) {
        const auto value = std::bit_cast<float>(bits);
        const float log = cusz::log2_of(value, 0.0f);
        const long double exact = std::log2(static_cast<long double>(value));
        demand(above_rounding(std::abs(log - exact), log, 24) < cusz::log_error<float>, "log2 of float");
        const float power = cusz::exp2_of<float>(value - 1, 0);
        const long double relative = power / std::exp2(static_cast<long double>(value - 1)) - 1;
        demand(std::abs(relative) < cusz::exp_error<float>, "exp2 of float");
    }
    for (std::uint64_t i = 0; i < (few ? 100'000u : 10'000'000u); ++i) {
        const auto value = std::bit_cast<double>(0x3FF0000000000000u | hash(i) >> 12);
        const double log = cusz::log2_of(value, 0.0);
        const long double exact = std::log2(static_cast<long double>(value));
        demand(above_rounding(std::abs(log - exact), log, 53) < cusz::log_error<double>, "log2 of double");
        const double power = cusz::exp2_of<double>(value - 1, 0);
        const long double relative = power / std::exp2(static_cast<long double>(value - 1)) - 1;
        demand(std::abs(relative) < cusz::exp_error<double>, "exp2 of double");
    }
}

// Packed blocks of every size of values, in memory of exactly their sizes, whole and damaged.
void packed_blocks(cusz_context* context) {
    std::size_t damaged = 0;
    for (const std::size_t value_bytes : {1, 2, 4, 8}) {
        for (const std::size_t n : {0, 1, 300, 4097}) {
            for (const cusz_lossless lossless : {CUSZ_LOSSLESS_NONE, CUSZ_LOSSLESS_ZSTD}) {
                std::vector<std::uint8_t> values(n * value_bytes), block(values.size() + CUSZ_PACKED_OVERHEAD_BYTES);
                for (std::size_t i = 0; i < n; ++i) values[i * value_bytes] = static_cast<std::uint8_t>(i / 7);
                std::size_t size = 0;
                const auto size_of_value = static_cast<std::int32_t>(value_bytes);
                demand(cusz_pack(context, lossless, size_of_value, n, values.data(), block.data(), block.size(),
                                 &size) == CUSZ_OK,
                       "pack");
                demand(cusz_pack(context, lossless, size_of_value, n, values.data(), block.data(), block.size() - 1,
                                 &size) == CUSZ_ERROR_PARAMETER,
                       "too little room is refused");
                demand(cusz_pack(context, lossless, 3, n, values.data(), block.data(), block.size(), &size) ==
                           CUSZ_ERROR_PARAMETER,
                       "3 is no size of a value");
                demand(cusz_is_packed(block.data(), size) != 0, "packed");
                block.resize(size);
                block.shrink_to_fit();
                const auto unpacks = [&] {
                    std::size_t bytes = 0;
                    if (cusz_unpacked_bytes(context, block.data(), size, &bytes) != CUSZ_OK) return false;
                    std::vector<std::uint8_t> back(bytes);
                    demand(cusz_unpack(context, block.data(), size, back.data(), bytes + 1) == CUSZ_ERROR_PARAMETER,
                           "another size is refused");
                    return cusz_unpack(context, block.data(), size, back.data(), bytes) == CUSZ_OK && back == values;
                };
                demand(unpacks(), "the values come back");
                for (std::size_t bit = 0; bit < 8 * size; bit += 1 + bit / 64) {
                    block[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
                    demand(!unpacks(), "damage is found");
                    block[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
                    ++damaged;
                }
            }
        }
    }
    demand(damaged > 1000, "enough of them");
}

// Blocks of every kind in one call, over threads: gives the archives of single calls, and names a block that fails.
void many_blocks(cusz_context* context, bool few) {
    constexpr std::uint64_t shape[3] = {9, 16, 17}, values = 9 * 16 * 17;
    std::vector<std::vector<float>> fields;
    for (std::uint64_t i = 0; i < (few ? 21u : 84u); ++i)
        fields.push_back(field<float>(static_cast<Kind>(i % static_cast<unsigned>(Kind::last)), values, 17, i));
    std::vector<cusz_block> blocks(fields.size());
    std::vector<cusz_info> infos(fields.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        infos[i].struct_bytes = sizeof(cusz_info);
        blocks[i] = {sizeof(cusz_block), 0, shape, fields[i].data(), &infos[i], nullptr, 0, 0, 0, 0};
    }
    std::vector<std::uint8_t> archives(fields.size() * (values * sizeof(float) + CUSZ_RAW_OVERHEAD_BYTES)),
        one(archives);
    cusz_params params;
    cusz_params_init(&params);
    params.eb = 1e-2;
    for (const int threads : {1, 2, 4}) {
        params.threads = threads;
        demand(cusz_compress_many(context, &params, CUSZ_F32, 3, blocks.size(), blocks.data(), 1, archives.data(),
                                  archives.size()) == CUSZ_OK,
               "many blocks");
        const std::uint8_t* next = archives.data();
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            std::size_t size = 0;
            demand(cusz_compress(context, &params, CUSZ_F32, 3, shape, fields[i].data(), one.data(), one.size(),
                                 &size) == CUSZ_OK,
                   "a block alone");
            demand(blocks[i].archive == next && blocks[i].archive_bytes == size && infos[i].archive_bytes == size &&
                       std::memcmp(next, one.data(), size) == 0,
                   "the archive of a single call");
            next += size;
        }
    }
    constexpr std::uint64_t start[3] = {}, stride[3] = {16 * 17, 17, 1};
    std::vector<float> made(fields.size() * values), alone(values);
    std::vector<cusz_box> boxes(fields.size());
    for (std::size_t i = 0; i < boxes.size(); ++i)
        boxes[i] = {sizeof(cusz_box),        0, blocks[i].archive, blocks[i].archive_bytes, start, shape, stride,
                    made.data() + i * values};
    for (const int threads : {1, 2, 4}) {
        std::ranges::fill(made, 0.0f);
        demand(cusz_decompress_many(context, CUSZ_F32, 3, threads, boxes.size(), boxes.data()) == CUSZ_OK,
               "many archives");
        for (std::size_t i = 0; i < boxes.size(); ++i)
            demand(cusz_decompress(context, boxes[i].archive, boxes[i].archive_bytes, CUSZ_BACKEND_CPU, 1, alone.data(),
                                   values * sizeof(float)) == CUSZ_OK &&
                       std::memcmp(made.data() + i * values, alone.data(), values * sizeof(float)) == 0,
                   "the values of a single call");
    }
    boxes[7].archive_bytes -= 1;
    demand(cusz_decompress_many(context, CUSZ_F32, 3, 4, boxes.size(), boxes.data()) == CUSZ_ERROR_CORRUPT &&
               std::strncmp(cusz_last_error(context), "archive 7 of ", 13) == 0,
           "an archive that fails is named");
    demand(cusz_compress_many(context, &params, CUSZ_F32, 3, blocks.size(), blocks.data(), 1, archives.data(),
                              archives.size() - 1) == CUSZ_ERROR_PARAMETER,
           "too little room is refused");
    params.mode = CUSZ_RATIO;
    params.eb = 1e6; // of blocks of 10 kB
    demand(cusz_compress_many(context, &params, CUSZ_F32, 3, blocks.size(), blocks.data(), 0, archives.data(),
                              archives.size()) == CUSZ_ERROR_PARAMETER &&
               std::strncmp(cusz_last_error(context), "block ", 6) == 0,
           "a block that fails is named");
}

// Messages do not use the number format of the application's locale.
void messages_in_any_locale(cusz_context* context) {
    struct Groups : std::numpunct<char> {
        char do_decimal_point() const override { return ','; }
        char do_thousands_sep() const override { return '.'; }
        std::string do_grouping() const override { return "\3"; }
    };
    const std::locale before = std::locale::global(std::locale(std::locale(), new Groups)); // the locale owns it
    const std::vector<float> x = field<float>(Kind::bits, 5000, 50, 1);
    const std::uint64_t shape[]{100, 50};
    std::size_t size = 0;
    demand(cusz_max_archive_bytes(CUSZ_F32, 2, shape, &size) == CUSZ_OK, "the size of an archive");
    std::vector<std::uint8_t> archive(size);
    cusz_params params;
    cusz_params_init(&params);
    params.mode = CUSZ_RATIO;
    params.eb = 1e6;
    demand(cusz_compress(context, &params, CUSZ_F32, 2, shape, x.data(), archive.data(), archive.size(), &size) ==
               CUSZ_ERROR_PARAMETER,
           "out of reach");
    const std::string_view told = cusz_last_error(context);
    demand(told.find("ratio is 1000000;") != told.npos && told.find(',') == told.rfind(", with the bound"),
           "numbers are plain in messages");
    std::locale::global(before);
}

} // namespace

// core_test [few|threads]: `threads` is `few` without the parts that only one thread runs.
int main(int argc, char** argv) {
    const std::string_view form = argc > 1 ? argv[1] : "";
    const bool only_threads = form == "threads", few = only_threads || form == "few";
    const std::vector<Case> all = cases(few);
    cusz_context* const context = cusz_create();
    std::size_t damaged = 0, decoded = 0;
    std::uint64_t digest = 0; // of all archives: the same on every platform, if the library has no zstd
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Bytes f32 = round_trip<float>(context, all[i], i), f64 = round_trip<double>(context, all[i], i);
        for (const Bytes* archive : {&f32, &f64})
            for (std::size_t byte = 0; byte < archive->size; ++byte) digest = hash(digest ^ archive->data[byte]);
        if (i % 16 != 0 || only_threads) continue;
        for (const Bytes* archive : {&f32, &f64}) {
            const std::size_t count = few ? 300 : 1500;
            decoded += damage(context, *archive, i, count);
            damaged += count;
        }
    }
    large_fields(context, only_threads ? 0 : few ? 5 : 50);
    many_blocks(context, few);
    if (!only_threads) {
        words_beyond_the_end(context);
        structures_of_other_versions(context);
        packed_blocks(context);
        logarithms(few);
        messages_in_any_locale(context);
    }
    demand(cusz_scratch_bytes(context) > 0, "scratch is kept");
    cusz_release_scratch(context);
    demand(cusz_scratch_bytes(context) == 0, "scratch is given back");
    cusz_destroy(context);

    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t)
        threads.emplace_back([&all, t] {
            cusz_context* const local = cusz_create();
            for (std::size_t i = t; i < all.size(); i += 5) round_trip<float>(local, all[i], t);
            cusz_destroy(local);
        });
    for (std::thread& thread : threads) thread.join();
    std::printf(
        "%zu cases in two types; %zu damaged archives, %zu of them decoded; 4 threads at once; archives: %016llx\n",
        all.size(), damaged, decoded, static_cast<unsigned long long>(digest));
    return 0;
}
