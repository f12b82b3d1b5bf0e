// Contexts of a tile's points (docs/format_v2.md, section 6): what follows from the coarser lattice, and from codes.
#pragma once

#include "archive/v2/tables.hpp"
#include "prediction.cuh"

namespace cusz::cuda {

// A point of the coarser lattice, as its neighbours see it: roughness along three axes, 4 bits each; its magnitude;
// whether it is missing; whether it is missing or beyond the lattice.
struct CoarsePoint {
    static constexpr std::uint32_t magnitude_at = 12, missing_at = 15, gone_at = 16;
    static constexpr std::uint32_t outside = 1u << gone_at;
};

// Memory for one class 0: values with a margin, magnitudes around them, points and what is around each.
struct FixedMemory {
    TilePlace place;
};
template <class T>
constexpr std::size_t fixed_bytes(const std::array<std::uint32_t, 4>& edge, std::uint32_t axes) {
    std::size_t values = 1, magnitudes = 1, points = 1;
    for (std::uint32_t a = 0; a < 4; ++a) {
        const std::size_t n = a < axes ? (edge[a] + 1) / 2 : edge[a], of = a < axes ? 1 : 0;
        values *= n + 3 * of;
        magnitudes *= n + 2 * of;
        points *= n + of;
    }
    return values * sizeof(T) + points * 4 + magnitudes + points;
}

template <class T>
__device__ std::uint32_t bucket(T difference, T inv) {
    constexpr int mantissa_bits = sizeof(T) == 4 ? 23 : 52, bias = sizeof(T) == 4 ? 127 : 1023;
    const auto bits = bits_of(static_cast<T>(magnitude(difference) * inv)) << 1 >> 1; // a NaN may have a sign
    return static_cast<std::uint32_t>(std::clamp(static_cast<int>(bits >> mantissa_bits) - (bias - 3), 0, 7));
}

// Writes what contexts of a tile take from the coarser lattice to where its codes will be.
template <class Tile, class T>
__device__ void find_fixed_contexts_of(const DeviceLattice<T>& of, const Tile& tile, const TilePlace& place, T* value) {
    constexpr std::uint32_t axes = Tile::axes;
    const Boxes<Tile, 1, 2> values{tile};
    const Boxes<Tile, 1, 1> magnitudes{tile};
    const Boxes<Tile, 0, 1> near{tile};
    auto* const point = reinterpret_cast<std::uint32_t*>(value + values.size(0));
    auto* const magnitude_of = reinterpret_cast<std::uint8_t*>(point + near.size(0));
    std::uint8_t* const around = magnitude_of + magnitudes.size(0);
    load_class_0(of, place, values, value);
    for (std::uint32_t p = threadIdx.x; p < magnitudes.size(0); p += tile_threads) {
        int x[4];
        magnitudes.point(0, p, x);
        std::uint8_t m = 0;
        if (is_known<axes>(place, 0, x)) {
            auto at = static_cast<std::int64_t>(place.coarse);
            for (std::uint32_t a = 0; a < 4; ++a) at += x[a] * static_cast<std::int64_t>(of.lattice.coarse_stride[a]);
            m = of.coarse_magnitude[at];
        }
        magnitude_of[p] = m;
    }
    __syncthreads();
    continue_class<0>(of.lattice, place, values, value);
    __syncthreads();
    for (std::uint32_t p = threadIdx.x; p < near.size(0); p += tile_threads) {
        int x[4];
        near.point(0, p, x);
        std::uint32_t word = CoarsePoint::outside;
        if (is_known<axes>(place, 0, x)) {
            const std::uint32_t m = magnitude_of[magnitudes.at(0, x)];
            word = is_missing(static_cast<std::uint8_t>(m)) ? 1u << CoarsePoint::missing_at | 1u << CoarsePoint::gone_at
                                                            : m << CoarsePoint::magnitude_at;
#pragma unroll
            for (std::uint32_t a = 0; a < axes; ++a) {
                if (x[a] >= static_cast<int>(tile.n(1u << a, a))) continue; // no odd point there
                const T* const v = value + values.at(0, x);
                const auto s = static_cast<int>(values.stride(0, a));
                const T near_by = v[0] + v[s], next = v[-s] + v[2 * s];
                word |= bucket((near_by * T(9) - next) * T(0.0625) - near_by * T(0.5), of.quantiser.inv) << 4 * a;
            }
        }
        point[p] = word;
        if (!near.is_own(0, x)) continue;
        std::uint32_t sum = 0, missing = 0;
        const std::uint8_t* const m = magnitude_of + magnitudes.at(0, x);
        const auto add = [&](int offset) {
            const std::uint8_t v = m[offset];
            if (is_missing(v))
                missing = 128;
            else
                sum += v;
        };
        const int s1 = axes > 1 ? static_cast<int>(magnitudes.stride(0, 1)) : 0,
                  s2 = axes > 2 ? static_cast<int>(magnitudes.stride(0, 2)) : 0;
        for (int z = axes > 2 ? -1 : 0; z <= (axes > 2 ? 1 : 0); ++z)
            for (int y = axes > 1 ? -1 : 0; y <= (axes > 1 ? 1 : 0); ++y)
                for (int step = -1; step <= 1; ++step) add(z * s2 + y * s1 + step);
        around[p] = static_cast<std::uint8_t>(std::min(sum, +FixedContext::most) | missing);
    }
    __syncthreads();
    for (std::uint32_t phase = 1; phase <= axes; ++phase)
        for_classes<axes>(phase, [&](auto constant) {
            constexpr std::uint32_t c = constant;
            const ClassGroups<Tile> groups{tile, c};
            const std::uint64_t first = place.first_code + first_of_class(tile, c, false);
            const std::uint32_t n = points(tile, c);
            for (std::uint32_t p = threadIdx.x; p < n; p += tile_threads) {
                int x[4];
                std::uint32_t rest = p;
                for (std::uint32_t a = 0; a < 4; ++a) {
                    x[a] = static_cast<int>(rest % tile.n(c, a));
                    rest /= tile.n(c, a);
                }
                const std::uint32_t at = near.at(0, x);
                std::uint32_t rougher = 0, corners = 0, any = 0, all = ~0u;
#pragma unroll
                for (std::uint32_t steps = 0; steps < 1u << axes; ++steps) {
                    if ((steps & ~c) != 0) continue;
                    std::uint32_t away = 0;
                    for (std::uint32_t a = 0; a < axes; ++a) away += (steps >> a & 1) * near.stride(0, a);
                    const std::uint32_t word = point[at + away];
                    corners += word >> CoarsePoint::magnitude_at & 7;
                    any |= word;
                    all &= word;
                    for (std::uint32_t a = 0; a < axes; ++a)
                        if ((c >> a & 1) != 0 && (steps >> a & 1) == 0) rougher = std::max(rougher, word >> 4 * a & 15);
                }
                const std::uint32_t by = around[at];
                const FixedContext context{rougher, corners + (by & 127),
                                           (all >> CoarsePoint::gone_at & 1) != 0      ? 3u
                                           : (any >> CoarsePoint::missing_at & 1) != 0 ? 2u
                                                                                       : by >> 7};
                const std::uint64_t to = first + groups.order(x);
                if (of.points != nullptr)
                    of.points[to] = context.packed();
                else
                    of.codes[to] = static_cast<std::uint16_t>(context.packed());
            }
        });
}

// A code, as points of later phases see it: its magnitude, whether it is missing, and the limited code.
struct NearCode {
    static constexpr std::uint32_t missing = 8;

    __device__ static std::uint16_t packed(std::int32_t code, bool is_missing) {
        const std::int32_t limited = std::clamp(code, -64, 64);
        const std::uint32_t size = number_of_bits(static_cast<std::uint32_t>(limited < 0 ? -limited : limited));
        return static_cast<std::uint16_t>(size | (is_missing ? missing : 0) | static_cast<std::uint32_t>(limited) << 8);
    }
    __device__ static std::int32_t limited(std::uint32_t word) { return static_cast<std::int16_t>(word) >> 8; }
};

// The place of a point in its row. code: of the classes of earlier phases, in `boxes`.
template <std::uint32_t c, class Boxes>
__device__ std::uint32_t context_of(const FixedContext& fixed, const Boxes& boxes, const std::uint16_t* code,
                                    const int (&x)[4]) {
    std::uint32_t rougher = fixed.roughness, sum = fixed.sum, missing = fixed.missing;
    if constexpr (std::popcount(c) > 1) {
        constexpr std::uint32_t axes = decltype(boxes.tile)::axes;
        std::uint32_t any = 0;
        const auto add = [&]<std::uint32_t source>(Class<source>) { // what touches the point, of this class
            if constexpr (source < c && (source & ~c) == 0) {
                const std::uint32_t at = boxes.at(source, x);
#pragma unroll
                for (std::uint32_t steps = 0; steps < 1u << axes; ++steps) {
                    if ((steps & ~(c ^ source)) != 0) continue;
                    std::uint32_t away = 0;
                    for (std::uint32_t a = 0; a < axes; ++a) away += (steps >> a & 1) * boxes.stride(source, a);
                    const std::uint32_t word = code[at + away];
                    sum += word & 7;
                    any |= word;
                }
            }
        };
        add(Class<1>{});
        add(Class<2>{});
        add(Class<3>{});
        add(Class<4>{});
        add(Class<5>{});
        add(Class<6>{});
        std::int32_t least = 0, most = 0;
        bool is_large = false;
        for_odd_axes<c>([&](auto axis) {
            constexpr std::uint32_t a = axis, source = c ^ 1u << a;
            const std::uint32_t at = boxes.at(source, x), before = code[at],
                                behind = code[at + boxes.stride(source, a)];
            const std::int32_t both = NearCode::limited(before) + NearCode::limited(behind);
            const bool is_first = (c & ((1u << a) - 1)) == 0;
            least = is_first ? both : std::min(least, both);
            most = is_first ? both : std::max(most, both);
            is_large = is_large || (before & 7) == 7 || (behind & 7) == 7;
        });
        const auto apart = static_cast<std::uint32_t>(most - least);
        if (is_large)
            rougher = 7;
        else if (apart > 0)
            rougher = std::max(rougher, std::min(number_of_bits(apart) + 1, 7u));
        if ((any & NearCode::missing) != 0) missing = std::max(missing, 1u);
    }
    if (missing != 0) return v2::some_missing - 1 + missing;
    return 8 * rougher + std::min(number_of_bits(sum), 7u);
}
__device__ inline std::uint32_t weight_of(std::uint32_t place) { return (place >> 3) + (place & 7); }

// The context of a group by the sum of its weights (section 8).
__device__ inline std::uint32_t group_context(std::uint32_t sum) {
    if (sum == 0) return 0;
    const std::uint32_t bits = number_of_bits(sum), h = 2 * (bits - 1) + (bits > 1 ? sum >> (bits - 2) & 1 : 0);
    return static_cast<std::uint32_t>(std::clamp(static_cast<int>(h) - 3, 1, 15));
}

} // namespace cusz::cuda
