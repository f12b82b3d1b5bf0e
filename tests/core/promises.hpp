// What the tests of the core demand. A broken promise aborts the process, which fuzzers notice too.
#pragma once

#include <cusz/cusz.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

namespace cusz_test {

inline void demand(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken promise: %s\n", what);
    std::abort();
}

// |a - b| <= bound, exactly: the difference is s + e (Knuth's two-sum), where s is the double nearest to it.
inline bool within(double a, double b, double bound) {
    const double s = a - b, bb = s - a, e = (a - (s - bb)) + (-b - bb);
    const double distance = std::fabs(s), beyond = s < 0 ? -e : e;
    return distance < bound || (distance == bound && beyond <= 0);
}

// Checks the promises for n values x that came back as y; bound 0: lossless.
template <class T>
void demand_bound(const T* x, const T* y, std::size_t n, double bound, bool has_fill, double fill) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const auto fill_bits = std::bit_cast<Bits>(static_cast<T>(has_fill ? fill : 0));
    for (std::size_t i = 0; i < n; ++i) {
        const auto before = std::bit_cast<Bits>(x[i]), after = std::bit_cast<Bits>(y[i]);
        if (before == after) continue;
        demand(bound > 0, "lossless");
        demand(std::isfinite(x[i]) && !(has_fill && before == fill_bits), "NaN, infinity or fill, bit for bit");
        demand(std::isfinite(y[i]) && within(static_cast<double>(x[i]), static_cast<double>(y[i]), bound), "the bound");
    }
}

// A box of the field equals that part of `whole`, and nothing outside it is written. Without `whole`, the archive may
// also be refused as corrupt.
inline void demand_boxes(cusz_context* context, const void* archive, std::size_t archive_bytes, const cusz_info& info,
                         std::uint64_t seed, const char* whole) {
    const std::size_t size = info.dtype == CUSZ_F32 ? 4 : 8, ndim = static_cast<std::size_t>(info.ndim);
    std::uint64_t start[CUSZ_MAX_NDIM] = {}, count[CUSZ_MAX_NDIM] = {}, stride[CUSZ_MAX_NDIM] = {}, values = 1;
    for (std::size_t d = ndim; d-- > 0; seed = seed * 6364136223846793005u + 1442695040888963407u) {
        start[d] = (seed >> 33) % (info.shape[d] + 1);
        count[d] = (seed >> 13) % (info.shape[d] - start[d] + 1);
        stride[d] = values;
        values *= count[d];
    }
    const auto box = std::make_unique<char[]>(values * size); // a separate allocation, so that overruns are caught
    const cusz_status status =
        cusz_decompress_box(context, archive, archive_bytes, 1 + seed % 3, start, count, stride, box.get());
    demand(status == CUSZ_OK || (whole == nullptr && status == CUSZ_ERROR_CORRUPT), "a box");
    for (std::uint64_t i = 0; whole != nullptr && i < values; ++i) {
        std::uint64_t rest = i, at = 0, distance = 1;
        for (std::size_t d = ndim; d-- > 0; distance *= info.shape[d]) {
            at += (start[d] + rest % count[d]) * distance;
            rest /= count[d];
        }
        demand(std::memcmp(box.get() + i * size, whole + at * size, size) == 0, "a box's values");
    }
}

// Levels, decoded from copies of just the bytes that they need, equal the same points of `whole`; one byte less is
// refused. Without `whole`, the archive may also be refused as corrupt.
inline void demand_levels(cusz_context* context, const void* archive, std::size_t archive_bytes, const cusz_info& info,
                          std::uint64_t seed, const char* whole) {
    const std::size_t size = info.dtype == CUSZ_F32 ? 4 : 8, ndim = static_cast<std::size_t>(info.ndim);
    cusz_level level{};
    level.struct_bytes = sizeof level;
    std::int32_t n_levels = 1;
    for (std::int32_t k = 0; k < n_levels; ++k) {
        cusz_status status = cusz_inspect_level(context, archive, archive_bytes, archive_bytes, k, &level);
        demand(status == CUSZ_OK || (whole == nullptr && status == CUSZ_ERROR_CORRUPT), "what a level is");
        if (status != CUSZ_OK) return;
        n_levels = level.n_levels;
        demand(level.needed_bytes <= archive_bytes, "a level takes no more than the archive");
        const std::size_t needed = level.needed_bytes;
        std::uint64_t start[CUSZ_MAX_NDIM] = {}, count[CUSZ_MAX_NDIM] = {}, stride[CUSZ_MAX_NDIM] = {}, values = 1;
        for (std::size_t d = ndim; d-- > 0; seed = seed * 6364136223846793005u + 1442695040888963407u) {
            start[d] = (seed >> 33) % 3 == 0 ? (seed >> 35) % (level.shape[d] + 1) : 0;
            count[d] = level.shape[d] - start[d];
            stride[d] = values;
            values *= count[d];
        }
        const auto prefix = std::make_unique<char[]>(needed), box = std::make_unique<char[]>(values * size);
        std::memcpy(prefix.get(), archive, needed);
        const std::int32_t threads = 1 + seed % 3;
        status = cusz_decompress_level(context, prefix.get(), needed, archive_bytes, k, threads, start, count, stride,
                                       box.get());
        demand(status == CUSZ_OK || (whole == nullptr && status == CUSZ_ERROR_CORRUPT), "a level");
        for (std::uint64_t i = 0; whole != nullptr && i < values; ++i) {
            std::uint64_t rest = i, at = 0, distance = 1;
            for (std::size_t d = ndim; d-- > 0; distance *= info.shape[d]) {
                at += (start[d] + rest % count[d]) * level.step[d] * distance;
                rest /= count[d];
            }
            demand(std::memcmp(box.get() + i * size, whole + at * size, size) == 0, "a level's values");
        }
        if (whole == nullptr || needed == 0) continue;
        const auto less = std::make_unique<char[]>(needed - 1);
        std::memcpy(less.get(), archive, needed - 1);
        demand(cusz_decompress_level(context, less.get(), needed - 1, archive_bytes, k, threads, start, count, stride,
                                     box.get()) == CUSZ_ERROR_PARAMETER,
               "a prefix that is too short");
    }
}

} // namespace cusz_test
