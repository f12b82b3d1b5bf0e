// What tiles are predicted from, and values (docs/format_v2.md, sections 4 and 5); by a block.
#pragma once

#include <limits>

#include "archive/v2/frame.hpp"
#include "points.cuh"
#include "tile.cuh"

namespace cusz::cuda {

inline constexpr std::uint32_t tile_threads = 128;

// In place of the magnitude of a value that is missing (section 6), in arrays of lattices.
inline constexpr std::uint8_t special_mark = 255, verbatim_mark = 254, not_finite_mark = 253;
__device__ inline bool is_missing(std::uint8_t magnitude) { return magnitude > 127; }

template <class T>
__device__ T magnitude(T v) {
    return v < T{0} ? -v : v;
}
template <class T>
__device__ T limited(T predicted) {
    return magnitude(predicted) <= std::numeric_limits<T>::max() ? predicted : T{0};
}

// Class 0 of a tile and what lies around it, as far as the lattice has it.
template <class Boxes, class T>
__device__ void load_class_0(const DeviceLattice<T>& of, const TilePlace& place, const Boxes& boxes, T* value) {
    for (std::uint32_t p = threadIdx.x; p < boxes.size(0); p += tile_threads) {
        int x[4];
        boxes.point(0, p, x);
        if (!is_known<decltype(boxes.tile)::axes>(place, 0, x)) continue;
        auto at = static_cast<std::int64_t>(place.coarse);
        for (std::uint32_t a = 0; a < 4; ++a) at += x[a] * static_cast<std::int64_t>(of.lattice.coarse_stride[a]);
        value[p] = of.coarse[at];
    }
}

// Continues the rows of class c beyond the border of the lattice, along the axes in which it is even.
template <std::uint32_t c, class Boxes, class T>
__device__ void continue_class(const Lattice& lattice, const TilePlace& place, const Boxes& boxes, T* value) {
    constexpr std::uint32_t axes = decltype(boxes.tile)::axes;
#pragma unroll
    for (std::uint32_t a = 0; a < axes; ++a) {
        if (!Boxes::has_margin(c, a) || place.edge[a] == 1) continue; // a single position has no odd neighbour
        const int end = place.end[a], last = static_cast<int>(boxes.tile.n(c, a) + Boxes::behind) - 1;
        const bool is_first = place.begin[a] == 0, is_last = end <= last, even = lattice.extent[a] % 2 == 0;
        if (!is_first && !is_last) continue;
        const std::uint64_t extent = lattice.coarse_extent(a);
        const auto s = static_cast<int>(boxes.stride(c, a));
        const std::uint32_t lines = boxes.size(c) / boxes.length(c, a);
        for (std::uint32_t line = threadIdx.x; line < lines; line += tile_threads) {
            int x[4];
            std::uint32_t rest = line;
#pragma unroll
            for (std::uint32_t b = 0; b < 4; ++b) {
                if (b == a) {
                    x[b] = 0;
                    continue;
                }
                const std::uint32_t length = boxes.length(c, b);
                x[b] = static_cast<int>(rest % length) - static_cast<int>(Boxes::has_margin(c, b) ? Boxes::before : 0);
                rest /= length;
            }
            if (!is_known<axes>(place, c, x)) continue;
            T* const row = value + boxes.at(c, x);
            const auto straight = [=](int first, int second) { // from the values at a border and behind it
                return (row[first * s] - row[second * s]) + row[first * s];
            };
            const auto curved = [=](int first, int second, int third) {
                return T(3) * (row[first * s] - row[second * s]) + row[third * s];
            };
            if (is_first) row[-s] = extent == 1 ? row[0] : extent == 2 ? straight(0, 1) : curved(0, 1, 2);
            if (!is_last) continue;
            row[end * s] = extent == 1           ? row[(end - 1) * s]
                           : even || extent == 2 ? straight(end - 1, end - 2)
                                                 : curved(end - 1, end - 2, end - 3);
            if (even && end < last) row[(end + 1) * s] = extent == 1 ? row[(end - 1) * s] : straight(end, end - 1);
        }
    }
}

// The prediction of class c at x, not limited. of(source): the values of a class.
template <std::uint32_t c, class Boxes, class Of>
__device__ auto predict(const TilePlace& place, const Boxes& boxes, v2::Curve curve, const int (&x)[4], const Of& of) {
    using T = std::remove_cvref_t<decltype(of(0)[0])>;
    T sum{};
    for_odd_axes<c>([&](auto axis) {
        constexpr std::uint32_t a = axis, source = c ^ 1u << a;
        const T* const at = of(source) + boxes.at(source, x);
        const auto s = static_cast<int>(boxes.stride(source, a));
        const T near = at[0] + at[s];
        T of_axis = near * T(0.5);
        if (Boxes::before > 1 || curve != v2::Curve::linear) {
            const T next = at[-s] + at[2 * s];
            of_axis = (near * T(9) - next) * T(0.0625);
            if constexpr (Boxes::before > 1)
                if (x[a] >= place.begin[a] + 2 && x[a] + 3 < place.end[a])
                    of_axis = ((near * T(150) - next * T(25)) + (at[-2 * s] + at[3 * s]) * T(3)) * T(1.0 / 256);
        }
        sum = (c & ((1u << a) - 1)) == 0 ? of_axis : sum + of_axis;
    });
    if (std::popcount(c) == 2) sum *= T(0.5);
    if (std::popcount(c) == 3) sum *= T(1) / T(3);
    return sum;
}

// Memory of a block that works on a tile's values, of which dynamic shared memory has the rest: the values, predictions
// without codes, if they are wanted, and what is in place of magnitudes, by the tile's points.
struct ValueMemory {
    TilePlace place;
    std::uint32_t any_missing;
    std::uint32_t n_missing[2]; // of what is coded: special and verbatim values
};
// Bytes of the rest.
template <class T>
constexpr std::size_t value_bytes(const std::array<std::uint32_t, 4>& edge, std::uint32_t axes, v2::Curve curve) {
    const std::uint32_t margin = curve >= v2::Curve::six_points ? 5 : 3;
    std::size_t all = 1, of_class_0 = 1;
    for (std::uint32_t a = 0; a < 4; ++a) {
        all *= edge[a] + (a < axes ? margin : 0);
        of_class_0 *= a < axes ? (edge[a] + 1) / 2 + margin : edge[a];
    }
    if (curve == v2::Curve::six_points_and_codes) all += all - of_class_0;
    return all * sizeof(T) + max_tile_values;
}

// A point of a tile in raster order.
template <class Tile>
__device__ std::uint32_t raster(const TilePlace& place, std::uint32_t c, const int (&x)[4]) {
    return static_cast<std::uint32_t>(offset_of<Tile>(
        c, x, {1, place.edge[0], place.edge[0] * place.edge[1], place.edge[0] * place.edge[1] * place.edge[2]}));
}

__device__ inline std::uint8_t magnitude_of_code(std::int32_t code) {
    return static_cast<std::uint8_t>(number_of_bits(static_cast<std::uint32_t>(std::min(code < 0 ? -code : code, 64))));
}

// A value from its code. Sets what is in place of its magnitude.
template <class T>
__device__ T reconstruct(const DeviceLattice<T>& of, std::int32_t code, T p, const T* in_field, std::uint8_t& mark) {
    const Quantiser<T>& q = of.quantiser;
    mark = 0;
    if (code == special_code) {
        mark = special_mark;
        return p;
    }
    if (code == verbatim_code) {
        const T value = *in_field;
        const bool is_finite = magnitude(value) <= std::numeric_limits<T>::max();
        mark = is_finite ? verbatim_mark : not_finite_mark;
        return is_finite ? value : p;
    }
    if (code == large_code) code = static_cast<std::int32_t>(bits_of(*in_field)); // may be one that has a meaning above
    if (of.fine != nullptr) mark = magnitude_of_code(code);
    return p + static_cast<T>(code) * q.step;
}

// ---- Quantisation (section 5)

// Whether a value is coded, and the error of what it is coded as is less than e; if not, is_coded_after_all() tells.
template <class T>
__device__ bool quantise(T d, T p, const Quantiser<T>& q, T& value, std::int32_t& code) {
    constexpr T rounder = Traits<T>::rounder;
    const T t = (d - p) * q.inv, shifted = t + rounder;
    value = p + (shifted - rounder) * q.step;
    code = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits_of(shifted) - bits_of(rounder)));
    return magnitude(t) <= T(v2::max_code) && magnitude(d - value) < q.e && bits_of(d) != q.special;
}
template <class T>
__device__ bool is_coded_after_all(T d, T p, const Quantiser<T>& q, T value) {
    const T t = (d - p) * q.inv, r = d - value;
    if (bits_of(d) == q.special || !(magnitude(t) <= T(v2::max_code)) || magnitude(r) != q.e) return false;
    // The error of the subtraction says on which side of e the exact difference is.
    const T b = r - d, error = (d - (r - b)) + (-value - b);
    return r > T{0} ? error <= T{0} : error >= T{0};
}

// Decodes a point. in_field: where it is in the field; at: where its code is. Sets what is in place of its magnitude.
template <class T>
struct DecodePoint {
    const DeviceLattice<T>& of;
    bool is_live;

    __device__ T operator()(T p, std::int64_t in_field, std::uint64_t at, std::uint8_t& mark) const {
        return reconstruct(of, is_live ? static_cast<std::int16_t>(of.codes[at]) : 0, p, of.field + in_field, mark);
    }
};
// Codes a point.
template <class T>
struct CodePoint {
    const DeviceLattice<T>& of;
    std::uint32_t (&n_missing)[2];

    __device__ T operator()(T p, std::int64_t in_field, std::uint64_t at, std::uint8_t& mark) const {
        const Quantiser<T>& q = of.quantiser;
        const T d = of.original[in_field];
        T value;
        std::int32_t code;
        RecordedPoint point(0, false);
        if (quantise(d, p, q, value, code) || is_coded_after_all(d, p, q, value)) {
            point.code = code;
            mark = magnitude_of_code(code);
        } else {
            const bool is_special = bits_of(d) == q.special;
            point = {is_special ? RecordedPoint::special : RecordedPoint::verbatim, true};
            mark = is_special ? special_mark : verbatim_mark;
            value = !is_special && magnitude(d) <= std::numeric_limits<T>::max() ? d : p;
            atomicAdd(&n_missing[is_special ? 0 : 1], 1u);
        }
        of.points[at] = point.packed(of.points[at]);
        return value;
    }
};

// Predicts a tile's points phase by phase; finish() turns predictions into values. These are put where they belong.
template <bool wide, class Tile, class T, class Finish>
__device__ __forceinline__ void find_values_of(const DeviceLattice<T>& of, const Tile& tile, ValueMemory& shared,
                                               T* value, const Finish& finish) {
    constexpr std::uint32_t axes = Tile::axes;
    const Boxes<Tile, wide ? 2 : 1, wide ? 3 : 2> boxes{tile};
    const TilePlace& place = shared.place;
    const bool adds_codes = wide && of.curve == v2::Curve::six_points_and_codes;
    const std::uint32_t all = boxes.begin(1u << axes);
    T* const without = value + (adds_codes ? all - boxes.size(0) : 0);
    auto* const mark = reinterpret_cast<std::uint8_t*>(value + (adds_codes ? 2 * all - boxes.size(0) : all));
    for (std::uint32_t p = threadIdx.x; p < max_tile_values / 4; p += tile_threads)
        reinterpret_cast<std::uint32_t*>(mark)[p] = 0;
    load_class_0(of, place, boxes, value);
    __syncthreads();
    continue_class<0>(of.lattice, place, boxes, value);
    __syncthreads();
    for (std::uint32_t phase = 1; phase <= axes; ++phase) {
        for_classes<axes>(phase, [&](auto constant) {
            constexpr std::uint32_t c = constant;
            const std::uint64_t first = place.first_code + first_of_class(tile, c, false);
            for (std::uint32_t number = threadIdx.x; number < boxes.size(c); number += tile_threads) {
                int x[4];
                boxes.point(c, number, x);
                if (!is_known<axes>(place, c, x)) continue;
                T p = predict<c>(place, boxes, of.curve, x, [&](std::uint32_t) { return value; });
                if (adds_codes) {
                    T u = p;
                    if constexpr (std::popcount(c) > 1) {
                        u = limited(predict<c>(place, boxes, of.curve, x,
                                               [&](std::uint32_t source) { return source == 0 ? value : without; }));
                        p += T(0.25) * (p - u);
                    }
                    without[boxes.begin(c) + number] = limited(u);
                }
                p = limited(p);
                if (boxes.is_own(c, x)) {
                    std::uint8_t m;
                    p = finish(p,
                               static_cast<std::int64_t>(place.field) + offset_of<Tile>(c, x, of.lattice.field_stride),
                               first + ClassGroups<Tile>{tile, c}.order(x), m);
                    if (m != 0) mark[raster<Tile>(place, c, x)] = m;
                    if (is_missing(m)) shared.any_missing = 1;
                }
                value[boxes.begin(c) + number] = p;
            }
        });
        __syncthreads();
        if (phase == axes) break;
        for_classes<axes>(phase, [&](auto constant) {
            continue_class<constant>(of.lattice, place, boxes, value);
            if (adds_codes) continue_class<constant>(of.lattice, place, boxes, without);
        });
        __syncthreads();
    }
    if (of.original != nullptr && of.fine == nullptr) return; // nobody looks at them
    // Points that are even and odd along the first axis become lines again.
    const bool any_missing = shared.any_missing != 0;
    const auto special = std::bit_cast<T>(of.quantiser.special);
    const auto put_lines = [&]<std::uint32_t c>(Class<c>) {
        const std::uint32_t n_lines = tile.n(c, 1) * tile.n(c, 2) * tile.n(c, 3),
                            edge = tile.n(c, 0) + tile.n(c | 1, 0);
        for (std::uint32_t p = threadIdx.x; p < n_lines * edge; p += tile_threads) {
            std::uint32_t rest = p / edge;
            int x[4] = {static_cast<int>(p % edge / 2)};
            for (std::uint32_t a = 1; a < 4; ++a) {
                x[a] = static_cast<int>(rest % tile.n(c, a));
                rest /= tile.n(c, a);
            }
            const bool odd = p % edge % 2 != 0;
            T result = value[odd ? boxes.at(c | 1, x) : boxes.at(c, x)];
            const std::uint32_t of_class = odd ? c | 1 : c;
            std::uint8_t m = 0;
            if (of_class == 0) {
                auto at = static_cast<std::int64_t>(place.coarse);
                for (std::uint32_t a = 0; a < 4; ++a)
                    at += x[a] * static_cast<std::int64_t>(of.lattice.coarse_stride[a]);
                m = of.coarse_magnitude[at];
                if (!is_missing(m)) m = 0;
            } else if (of.fine != nullptr || any_missing) {
                m = mark[raster<Tile>(place, of_class, x)];
            }
            if (of.fine != nullptr) {
                const auto at = static_cast<std::int64_t>(place.fine) + offset_of<Tile>(of_class, x, of.lattice.stride);
                of.fine[at] = result;
                of.fine_magnitude[at] = m;
                continue;
            }
            if (m == not_finite_mark) continue; // it is there
            if (m == special_mark) result = special;
            of.field[static_cast<std::int64_t>(place.field) + offset_of<Tile>(of_class, x, of.lattice.field_stride)] =
                result;
        }
    };
    put_lines(Class<0>{});
    if constexpr (axes > 1) put_lines(Class<2>{});
    if constexpr (axes > 2) {
        put_lines(Class<4>{});
        put_lines(Class<6>{});
    }
}

} // namespace cusz::cuda
