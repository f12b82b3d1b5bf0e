// Contexts of a tile's points (format_v2.md, section 6): what they take from the coarser lattice, and from codes.
#pragma once

#include "archive/v2/tables.hpp"
#include "prediction.cuh"

namespace cusz::cuda {

// A point of the coarser lattice as its neighbours see it, in a form to combine by OR (rough) and addition (sums).
struct alignas(8) CoarsePoint {
    static constexpr std::uint32_t missing = 1 << 8, gone = 1 << 12, around_at = 16;

    std::uint32_t rough; // along three axes, a byte each, in unary
    std::uint32_t sums;  // magnitude; whether missing; whether missing or beyond the lattice; the sum around it
};
// A magnitude, and whether the point is missing: sums of 27 do not overflow.
using WideMagnitude = std::uint16_t;

// Shared memory of a block. Behind it lie, for class 0 of a tile, points, values and magnitudes, all with margins.
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
    return points * sizeof(CoarsePoint) + values * sizeof(T) + magnitudes * sizeof(WideMagnitude);
}

// The roughness of a difference in unary: as many ones.
template <class T>
__device__ std::uint32_t ones_of(T difference, T inv) {
    constexpr int mantissa_bits = sizeof(T) == 4 ? 23 : 52, bias = sizeof(T) == 4 ? 127 : 1023;
    const auto bits = bits_of(static_cast<T>(magnitude(difference) * inv)) << 1 >> 1; // a NaN may have a sign
    return 127u >> std::clamp(bias + 4 - static_cast<int>(bits >> mantissa_bits), 0, 7);
}

// The sum of magnitudes around a point within one layer: the positions with the same coordinate along columns.
template <class Boxes>
__device__ std::uint32_t sum_of_layer(const Boxes& boxes, const WideMagnitude* at) {
    constexpr std::uint32_t axes = decltype(boxes.tile)::axes;
    const int s1 = axes > 2 ? static_cast<int>(boxes.stride(0, 1)) : 0;
    std::uint32_t sum = 0;
#pragma unroll
    for (int y = axes > 2 ? -1 : 0; y <= (axes > 2 ? 1 : 0); ++y) sum += at[y * s1 - 1] + at[y * s1] + at[y * s1 + 1];
    return sum;
}

// CoarsePoint::rough of a point of class 0. value: points to its value.
template <class Tile, class Boxes, class T>
__device__ std::uint32_t roughness_at(const Tile& tile, const Boxes& values, const int (&x)[4], const T* value, T inv) {
    std::uint32_t rough = 0;
#pragma unroll
    for (std::uint32_t a = 0; a < Tile::axes; ++a) {
        if (x[a] >= static_cast<int>(tile.n(1u << a, a))) continue; // no odd point there
        const auto s = static_cast<int>(values.stride(0, a));
        const T near = value[0] + value[s], next = value[-s] + value[2 * s];
        const T apart = (near * T(9) - next) * T(0.0625) - near * T(0.5);
        rough |= ones_of(apart, inv) << 8 * a;
    }
    return rough;
}

template <class Tile, class T>
__device__ void find_coarse_points(const DeviceLattice<T>& of, const Tile& tile, const TilePlace& place, const T* value,
                                   const WideMagnitude* magnitude, CoarsePoint* point) {
    constexpr std::uint32_t axes = Tile::axes, along = column_axis<axes>;
    const Boxes<Tile, 1, 2> values{tile};
    const Boxes<Tile, 1, 1> magnitudes{tile};
    const Boxes<Tile, 0, 1> near{tile};
    const auto find = [&](const int (&x)[4], std::uint32_t steps) {
        const T* const v = value + values.at(0, x);
        const WideMagnitude* const m = magnitude + magnitudes.at(0, x);
        CoarsePoint* const to = point + near.at(0, x);
        const KnownPart known = known_part<axes>(place, 0, x);
        const std::uint32_t layer = magnitudes.stride(0, along);
        const bool beside_is_own = near.is_own_beside(0, x);
        std::uint32_t before = 0, here = 0; // sums of layers
        if (axes > 1 && beside_is_own) {
            before = sum_of_layer(magnitudes, m - layer);
            here = sum_of_layer(magnitudes, m);
        }
#pragma unroll(Tile::unrolled)
        for (std::uint32_t k = 0; k < std::uint32_t{most_of_column}; ++k) {
            if (k >= steps) break;
            int at[4] = {x[0], x[1], x[2], x[3]};
            at[along] += static_cast<int>(k);
            CoarsePoint result{0, CoarsePoint::gone};
            if (known.has(k)) {
                result.sums = m[k * layer];
                if (result.sums == CoarsePoint::missing)
                    result.sums += CoarsePoint::gone;
                else
                    result.rough = roughness_at(tile, values, at, v + k * values.stride(0, along), of.quantiser.inv);
            }
            if (beside_is_own && near.is_own_along(0, along, at[along])) {
                const std::uint32_t behind = sum_of_layer(magnitudes, m + (k + (axes > 1 ? 1 : 0)) * layer);
                result.sums |= (before + here + behind) << CoarsePoint::around_at;
                if (axes > 1) {
                    before = here;
                    here = behind;
                }
            }
            to[k * near.stride(0, along)] = result;
        }
    };
    for_columns<axes>([&](std::uint32_t a) { return near.length(0, a); }, find);
}

// The contribution of the corners in one layer to the context of a point of class c.
struct CoarseLayer {
    std::uint32_t sums = 0, rough = 0, rough_along = 0, around = 0;
};
template <std::uint32_t c, class Boxes>
__device__ CoarseLayer layer_of(const Boxes& near, const CoarsePoint* point) {
    constexpr std::uint32_t axes = decltype(near.tile)::axes, along = column_axis<axes>;
    CoarseLayer layer;
#pragma unroll
    for (std::uint32_t steps = 0; steps < 1u << axes; ++steps) {
        if ((steps & ~c) != 0 || (steps >> along & 1) != 0) continue;
        std::uint32_t away = 0, mask = 0;
        for (std::uint32_t a = 0; a < axes; ++a) {
            away += (steps >> a & 1) * near.stride(0, a);
            if (a != along && (c >> a & 1) != 0 && (steps >> a & 1) == 0) mask |= 255u << 8 * a;
        }
        const CoarsePoint at = point[away];
        layer.sums += at.sums;
        layer.rough |= at.rough & mask;
        layer.rough_along |= at.rough;
        if (steps == 0) layer.around = at.sums >> CoarsePoint::around_at;
    }
    layer.rough_along &= along < axes ? 255u << 8 * along : 0;
    return layer;
}

// A packed FixedContext, from the layer of a point and, if it is odd along columns, the next layer.
template <std::uint32_t c, bool odd_along>
__device__ std::uint32_t fixed_context(const CoarseLayer& here, const CoarseLayer& next) {
    constexpr std::uint32_t magnitudes = CoarsePoint::missing - 1, flags = 0xFFFF & ~magnitudes,
                            corners = std::popcount(c);
    const std::uint32_t of_corners = here.sums + (odd_along ? next.sums : 0), all = of_corners + here.around,
                        rough = here.rough | (odd_along ? next.rough | here.rough_along : 0);
    FixedContext context{static_cast<std::uint32_t>(__popc((rough | rough >> 8 | rough >> 16) & 127)), all & magnitudes,
                         0};
    if ((all & flags) != 0) {
        if ((of_corners & flags) / CoarsePoint::gone == 1u << corners)
            context.missing = 3;
        else if ((of_corners & (CoarsePoint::gone - CoarsePoint::missing)) != 0)
            context.missing = 2;
        else if (here.around >= CoarsePoint::missing)
            context.missing = 1;
    }
    return context.packed();
}

// Writes what contexts of a tile take from the coarser lattice to where its codes will be.
template <class Tile, class T, class Code>
__device__ void find_fixed_contexts_of(const DeviceLattice<T>& of, const Tile& tile, const TilePlace& place,
                                       CoarsePoint* point, Code* codes) {
    constexpr std::uint32_t axes = Tile::axes, along = column_axis<axes>;
    const Boxes<Tile, 1, 2> values{tile};
    const Boxes<Tile, 1, 1> magnitudes{tile};
    const Boxes<Tile, 0, 1> near{tile};
    T* const value = reinterpret_cast<T*>(point + near.size(0));
    auto* const magnitude = reinterpret_cast<WideMagnitude*>(value + values.size(0));
    load_values(of, place, values, value);
    load_class_0(of.lattice.coarse_stride, place, magnitudes, of.coarse_magnitude, magnitude,
                 [](std::uint8_t m) { return is_missing(m) ? WideMagnitude{CoarsePoint::missing} : WideMagnitude{m}; });
    __syncthreads();
    continue_class<0>(of.lattice, place, values, value);
    __syncthreads();
    find_coarse_points(of, tile, place, value, magnitude, point);
    __syncthreads();
    const auto find_class = [&](auto constant) {
        constexpr std::uint32_t c = constant;
        constexpr bool odd_along = (c >> along & 1) != 0;
        const ClassGroups<Tile> groups{tile, c};
        Code* const of_class = codes + place.first_code + first_of_class(tile, c, false);
        const auto find_column = [&](const int (&x)[4], std::uint32_t steps) {
            const typename ClassGroups<Tile>::Column order(groups, x);
            Code* const to = of_class + order.first;
            const CoarsePoint* const corner = point + near.at(0, x);
            const std::uint32_t layer = near.stride(0, along);
            CoarseLayer here, next = layer_of<c>(near, corner);
#pragma unroll(Tile::unrolled)
            for (std::uint32_t k = 0; k < std::uint32_t{most_of_column}; ++k) {
                if (k >= steps) break;
                here = next;
                if (odd_along || k + 1 < steps) next = layer_of<c>(near, corner + (k + 1) * layer);
                to[order(x[along] + static_cast<int>(k))] = static_cast<Code>(fixed_context<c, odd_along>(here, next));
            }
        };
        for_columns<axes>([&](std::uint32_t a) { return tile.n(c, a); }, find_column);
    };
    for (std::uint32_t phase = 1; phase <= axes; ++phase) for_classes<axes>(phase, find_class);
}

// A code as points of later phases see it. The lower byte has its magnitude, to be added up, and whether it is missing;
// the upper one has the code plus 64, or 255 if the limited code is -64 or 64.
struct NearCode {
    static constexpr std::uint32_t magnitudes = 127; // mask of their sum
    static constexpr std::uint32_t large = 255;
    static constexpr std::int32_t nearest = 64; // the least magnitude that is too large
    static constexpr std::uint32_t two_zeros = (nearest << 16 | nearest) << 8;

    std::uint16_t bits;

    __device__ static NearCode of(std::int32_t code, bool is_missing) {
        const std::int32_t magnitude = std::min(code < 0 ? -code : code, +nearest);
        const std::uint32_t shifted = magnitude == nearest ? large : static_cast<std::uint32_t>(code + nearest);
        return {static_cast<std::uint16_t>(number_of_bits(static_cast<std::uint32_t>(magnitude)) |
                                           (is_missing ? magnitudes + 1 : 0) | shifted << 8)};
    }
    // Both bytes, in 16 bits each, so that one addition adds both.
    __device__ std::uint32_t wide() const { return __byte_perm(bits, 0, 0x4140); }
};

// The place of a point's context in its row. code: of the classes of earlier phases, by `boxes`.
template <std::uint32_t c, class Boxes>
__device__ std::uint32_t context_of(const FixedContext& fixed, const Boxes& boxes, const NearCode* code,
                                    const int (&x)[4]) {
    std::uint32_t rougher = fixed.roughness, magnitudes = fixed.sum, missing = fixed.missing;
    if constexpr (std::popcount(c) > 1) {
        constexpr std::uint32_t axes = decltype(boxes.tile)::axes;
        std::uint32_t sum = 0;                                      // only its lower half is used
        const auto add = [&]<std::uint32_t source>(Class<source>) { // points of this class around the point
            if constexpr (source < c && (source & ~c) == 0 && std::popcount(c ^ source) > 1) {
                const std::uint32_t at = boxes.at(source, x);
#pragma unroll
                for (std::uint32_t steps = 0; steps < 1u << axes; ++steps) {
                    if ((steps & ~(c ^ source)) != 0) continue;
                    std::uint32_t away = 0;
                    for (std::uint32_t a = 0; a < axes; ++a) away += (steps >> a & 1) * boxes.stride(source, a);
                    sum += code[at + away].wide();
                }
            }
        };
        add(Class<1>{});
        add(Class<2>{});
        add(Class<4>{});
        std::uint32_t least = 0, most = 0; // of sums of two codes
        for_odd_axes<c>([&](auto axis) {
            constexpr std::uint32_t a = axis, source = c ^ 1u << a;
            const std::uint32_t at = boxes.at(source, x),
                                two = code[at].wide() + code[at + boxes.stride(source, a)].wide(), both = two >> 16;
            const bool is_first = (c & ((1u << a) - 1)) == 0;
            sum += two;
            least = is_first ? both : std::min(least, both);
            most = is_first ? both : std::max(most, both);
        });
        sum &= 0xFFFF;
        const std::uint32_t apart = most - least;
        if (most >= NearCode::large)
            rougher = 7;
        else if (apart > 0)
            rougher = std::max(rougher, std::min(number_of_bits(apart) + 1, 7u));
        magnitudes += sum & NearCode::magnitudes;
        if (sum > NearCode::magnitudes) missing = std::max(missing, 1u);
    }
    if (missing != 0) return v2::some_missing - 1 + missing;
    return 8 * rougher + std::min(number_of_bits(magnitudes), 7u);
}
__device__ inline std::uint32_t weight_of(std::uint32_t place) { return (place >> 3) + (place & 7); }

// The context of a group, from the sum of its weights (section 8).
__device__ inline std::uint32_t group_context(std::uint32_t sum) {
    if (sum == 0) return 0;
    const std::uint32_t bits = number_of_bits(sum), h = 2 * (bits - 1) + (bits > 1 ? sum >> (bits - 2) & 1 : 0);
    return static_cast<std::uint32_t>(std::clamp(static_cast<int>(h) - 3, 1, 15));
}

} // namespace cusz::cuda
