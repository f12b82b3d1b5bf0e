// Prediction and quantisation of tiles (docs/reference/format_v2.md, sections 4 and 5); by a block.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "archive/v2/frame.hpp"
#include "points.cuh"
#include "tile.cuh"

namespace cusz::cuda {

// Marks: they replace the magnitude of a missing value (section 6) in arrays of lattices.
inline constexpr std::uint8_t special_mark = 255, verbatim_mark = 254, not_finite_mark = 253;
__device__ inline bool is_missing(std::uint8_t magnitude) { return magnitude > 127; }

template <class T>
__device__ T limited(T predicted) {
    return magnitude(predicted) <= std::numeric_limits<T>::max() ? predicted : T{0};
}

// Loads class 0 of a tile and its margin from an array of the coarser lattice; beyond the lattice, zeros. turn()
// converts each value, and 0 to 0.
template <class Boxes, class From, class To, class Turn>
__device__ void load_class_0(const Extents& stride, const TilePlace& place, const Boxes& boxes, const From* array,
                             To* box, const Turn& turn) {
    constexpr std::uint32_t axes = decltype(boxes.tile)::axes, along = column_axis<axes>;
    const auto step = static_cast<std::int64_t>(stride[along]);
    move_box<0>(
        boxes,
        [&](const int (&x)[4]) {
            const From* const from = array + static_cast<std::int64_t>(place.coarse) + offset_along(x, stride);
            const KnownPart known = known_part<axes>(place, 0, x);
            return [=](std::uint32_t k) { return known.has(k) ? from[k * step] : From{0}; };
        },
        [&](const int (&x)[4]) {
            To* const to = box + boxes.at(0, x);
            const std::uint32_t apart = boxes.stride(0, along);
            return [=](std::uint32_t k, From v) { to[k * apart] = turn(v); };
        });
}
template <class Boxes, class T>
__device__ void load_values(const DeviceLattice<T>& of, const TilePlace& place, const Boxes& boxes, T* value) {
    load_class_0(of.lattice.coarse_stride, place, boxes, of.coarse, value, [](T v) { return v; });
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
            const auto straight = [=](int first, int second) { // from a value and the next one inwards
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

// The prediction for class c at x, before limited(). of(source): the values of a class.
template <std::uint32_t c, class Boxes, class Of>
__device__ auto predict(const TilePlace& place, const Boxes& boxes, v2::Curve curve, const int (&x)[4], const Of& of) {
    using T = std::remove_cvref_t<decltype(of(0)[0])>;
    T sum{};
    for_odd_axes<c>([&](auto axis) {
        constexpr std::uint32_t a = axis, source = c ^ 1u << a;
        const T* const at = of(source) + boxes.at(source, x);
        const auto s = static_cast<int>(boxes.stride(source, a));
        // Both curves, without a branch, so that all loads of a point are in flight at once.
        const T near = at[0] + at[s], next = at[-s] + at[2 * s], cubic = (near * T(9) - next) * T(0.0625);
        T of_axis = Boxes::before == 1 && curve == v2::Curve::linear ? near * T(0.5) : cubic;
        if constexpr (Boxes::before > 1)
            if (x[a] >= place.begin[a] + 2 && x[a] + 3 < place.end[a])
                of_axis = ((near * T(150) - next * T(25)) + (at[-2 * s] + at[3 * s]) * T(3)) * T(1.0 / 256);
        sum = (c & ((1u << a) - 1)) == 0 ? of_axis : sum + of_axis;
    });
    if (std::popcount(c) == 2) sum *= T(0.5);
    if (std::popcount(c) == 3) sum *= T(1) / T(3);
    return sum;
}

// Shared memory of a block that works on the values of a tile. Behind it lie the values, predictions without codes (if
// the curve needs them), and a magnitude or mark for each point of the tile.
struct ValueMemory {
    TilePlace place;
    std::uint32_t any_missing;
    std::uint32_t is_live;      // encoding: whether any code is not 0, or any value missing
    std::uint32_t n_missing[2]; // encoding: special and verbatim values
};
// Bytes of what lies behind it.
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

// The number of a point in the tile's raster order.
template <class Tile>
__device__ std::uint32_t raster(const TilePlace& place, std::uint32_t c, const int (&x)[4]) {
    return static_cast<std::uint32_t>(offset_of<Tile>(
        c, x, {1, place.edge[0], place.edge[0] * place.edge[1], place.edge[0] * place.edge[1] * place.edge[2]}));
}

__device__ inline std::uint8_t magnitude_of_code(std::int32_t code) {
    return static_cast<std::uint8_t>(number_of_bits(static_cast<std::uint32_t>(std::min(code < 0 ? -code : code, 64))));
}

// ---- Quantisation (section 5)

// Sets `value` and `code`. Returns true if d is coded with an error below e; otherwise is_coded_after_all() decides.
template <class T>
__device__ bool quantise(T d, T p, const Quantiser<T>& q, T& value, std::int32_t& code) {
    constexpr T rounder = Traits<T>::rounder;
    const T t = (d - p) * q.inv, shifted = t + rounder;
    value = p + (shifted - rounder) * q.step;
    code = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits_of(shifted) - bits_of(rounder)));
    const bool small = magnitude(t) <= T(v2::max_code), close = magnitude(d - value) < q.e;
    return small & close & (bits_of(d) != q.special); // without branches
}
template <class T>
__device__ bool is_coded_after_all(T d, T p, const Quantiser<T>& q, T value) {
    const T t = (d - p) * q.inv, r = d - value;
    if (bits_of(d) == q.special || !(magnitude(t) <= T(v2::max_code)) || magnitude(r) != q.e) return false;
    // The error of the subtraction says on which side of e the exact difference is.
    const T b = r - d, error = (d - (r - b)) + (-value - b);
    return r > T{0} ? error <= T{0} : error >= T{0};
}

// DecodePoint and CodePoint turn predictions into values, point by point. in_field: the point's offset in the field;
// of_point: its code. given() loads a point's input (code or original), which is kept in the place of its value, so
// that all loads of a tile are in flight at once. quick() sets the value and the code of most points. If it returns
// false, slow() takes the same prediction, and sets the value, and the magnitude or mark.

template <class T>
struct DecodePoint {
    using Code = const std::uint16_t; // as stored

    const DeviceLattice<T>& of;
    bool is_live;

    __device__ Code* codes() const { return of.codes; }
    __device__ T given(std::int64_t, Code& code) const { return T(number(code)); }
    __device__ std::int32_t number(Code& code) const { return is_live ? static_cast<std::int16_t>(code) : 0; }
    __device__ T value(T p, T code) const { return p + code * of.quantiser.step; }
    __device__ bool quick(T& p, T given, Code&, std::int32_t& code) const {
        code = static_cast<std::int32_t>(given);
        if (code <= large_code) return false;
        p = value(p, given);
        return true;
    }
    __device__ void slow(T& p, std::int64_t in_field, Code& of_point, std::uint8_t& mark) const {
        const std::int32_t code = number(of_point);
        if (code == special_code) {
            mark = special_mark;
            return;
        }
        const T there = of.field[in_field];
        if (code == large_code) { // also numbers that equal one of these words
            const auto large = static_cast<std::int32_t>(bits_of(there));
            mark = magnitude_of_code(large);
            p = value(p, static_cast<T>(large));
            return;
        }
        const bool is_finite = magnitude(there) <= std::numeric_limits<T>::max();
        mark = is_finite ? verbatim_mark : not_finite_mark;
        if (is_finite) p = there;
    }
};

// Hides where a number comes from. The compiler otherwise joins neighbours in memory into one register, half of which
// has no value on some paths, and tests/ptx does not support that.
template <class V>
__device__ V apart(V v) {
#ifdef __CUDA_ARCH__
    if constexpr (std::is_same_v<V, float>)
        asm("" : "+f"(v));
    else if constexpr (sizeof(V) == 4)
        asm("" : "+r"(v));
#endif
    return v;
}

template <class T>
struct CodePoint {
    using Code = std::uint32_t;

    const DeviceLattice<T>& of;
    std::uint32_t (&n_missing)[2];
    Quantiser<T> quantiser;
    mutable std::int32_t codes_of_thread = 0; // all codes by OR, with 1 for missing values

    __device__ CodePoint(const DeviceLattice<T>& its_lattice, std::uint32_t (&missing)[2])
        : of(its_lattice), n_missing(missing), quantiser{apart(of.quantiser.e), apart(of.quantiser.step),
                                                         apart(of.quantiser.inv), apart(of.quantiser.special)} {}

    __device__ bool any_code() const { return codes_of_thread != 0; }
    __device__ Code* codes() const { return of.points; }
    __device__ T given(std::int64_t in_field, Code&) const { return of.original[in_field]; }
    // By an atomic OR, because nobody has to wait for that. The code's bits of the word are still 0.
    __device__ void put(const RecordedPoint& point, Code& of_point) const {
        codes_of_thread |= point.code | (point.is_missing ? 1 : 0);
        atomicOr(&of_point, point.packed(0));
    }
    __device__ bool quick(T& p, T given, Code& of_point, std::int32_t& code) const {
        T value;
        if (!quantise(given, p, quantiser, value, code)) return false;
        put({code, false}, of_point);
        p = value;
        return true;
    }
    __device__ void slow(T& p, std::int64_t in_field, Code& of_point, std::uint8_t& mark) const {
        const T d = of.original[in_field];
        T value;
        std::int32_t code;
        quantise(d, p, quantiser, value, code);
        if (is_coded_after_all(d, p, quantiser, value)) {
            put({code, false}, of_point);
            mark = magnitude_of_code(code);
            p = value;
            return;
        }
        const bool is_special = bits_of(d) == quantiser.special;
        put({is_special ? RecordedPoint::special : RecordedPoint::verbatim, true}, of_point);
        mark = is_special ? special_mark : verbatim_mark;
        if (!is_special && magnitude(d) <= std::numeric_limits<T>::max()) p = d;
        atomicAdd(&n_missing[is_special ? 0 : 1], 1u);
    }
};

// Stores the values of class c, which is even along axis 0, and of class c | 1 where they belong, as whole lines.
// has_marks: whether classes other than 0 have magnitudes or marks.
template <std::uint32_t c, class Boxes, class T>
__device__ __forceinline__ void put_lines(const DeviceLattice<T>& of, const TilePlace& place, const Boxes& boxes,
                                          const T* value, bool has_marks, const std::uint8_t* mark) {
    using Tile = decltype(boxes.tile);
    constexpr std::uint32_t axes = Tile::axes, along = column_axis<axes>;
    const Tile& tile = boxes.tile;
    const bool is_last = of.fine == nullptr; // lattice 0
    const Extents& stride = is_last ? of.lattice.field_stride : of.lattice.stride;
    const auto step_to = static_cast<std::int64_t>((along < axes ? 2 : 1) * stride[along]);
    const auto special = std::bit_cast<T>(of.quantiser.special);
    const auto put_column = [&](const int (&x)[4], std::uint32_t steps) {
        const bool odd = x[0] % 2 != 0;
        const std::uint32_t of_class = odd ? c | 1 : c,
                            step = odd ? boxes.stride(c | 1, along) : boxes.stride(c, along);
        const int at[4] = {x[0] / 2, x[1], x[2], x[3]};
        const T* const from = value + (odd ? boxes.at(c | 1, at) : boxes.at(c, at));
        const std::int64_t to =
            static_cast<std::int64_t>(is_last ? place.field : place.fine) + offset_of<Tile>(of_class, at, stride);
        const auto mark_of = [&](std::uint32_t k) {
            int point[4] = {at[0], at[1], at[2], at[3]};
            point[along] += static_cast<int>(k);
            if (of_class != 0) return mark[raster<Tile>(place, of_class, point)];
            const auto in_coarse = static_cast<std::int64_t>(place.coarse);
            const std::uint8_t m = of.coarse_magnitude[in_coarse + offset_along(point, of.lattice.coarse_stride)];
            return is_missing(m) ? m : std::uint8_t{0};
        };
        if (has_marks || of_class == 0) {
            for (std::uint32_t k = 0; k < steps; ++k) {
                const std::uint8_t m = mark_of(k);
                if (!is_last) {
                    of.fine[to + k * step_to] = from[k * step];
                    of.fine_magnitude[to + k * step_to] = m;
                } else if (m != not_finite_mark) { // those are already in the field
                    of.field[to + k * step_to] = m == special_mark ? special : from[k * step];
                }
            }
            return;
        }
#pragma unroll(Tile::unrolled)
        for (std::uint32_t k = 0; k < std::uint32_t{most_of_column}; ++k) {
            if (k >= steps) break;
            of.field[to + k * step_to] = from[k * step];
        }
    };
    for_columns<axes>([&](std::uint32_t a) { return a == 0 ? tile.n(c, 0) + tile.n(c | 1, 0) : tile.n(c, a); },
                      put_column);
}

// Puts the given() of each point where its value will be. meanwhile(): work to do while the loads are in flight.
template <class Boxes, class T, class Finish, class Meanwhile>
__device__ __forceinline__ void give_points(const DeviceLattice<T>& of, const TilePlace& place, const Boxes& boxes,
                                            T* value, const Finish& finish, const Meanwhile& meanwhile) {
    using Tile = decltype(boxes.tile);
    constexpr std::uint32_t axes = Tile::axes, along = column_axis<axes>;
    const Tile& tile = boxes.tile;
    const auto step = static_cast<std::int64_t>((along < axes ? 2 : 1) * of.lattice.field_stride[along]);
    const auto for_all_classes = [&](const auto& use) {
        for (std::uint32_t phase = 1; phase <= axes; ++phase) for_classes<axes>(phase, use);
    };
    // A function that loads given() of point k of a column.
    const auto given = [&](auto c, const int (&x)[4]) {
        const ClassGroups<Tile> groups{tile, c};
        const typename ClassGroups<Tile>::Column order(groups, x);
        auto* const codes = finish.codes() + place.first_code + first_of_class(tile, c, false) + order.first;
        const std::int64_t in_field =
            static_cast<std::int64_t>(place.field) + offset_of<Tile>(c, x, of.lattice.field_stride);
        return [=, &finish](std::uint32_t k) {
            return finish.given(in_field + k * step, codes[order(x[along] + static_cast<int>(k))]);
        };
    };
    if constexpr (Tile::is_full && axes == 3) { // a thread owns one column of each class
        constexpr std::uint32_t n = Tile::n(0, 0), steps = Tile::n(0, along);
        static_assert(n * Tile::n(0, 1) == tile_threads);
        const int x[4] = {static_cast<int>(threadIdx.x % n), static_cast<int>(threadIdx.x / n), 0, 0};
        T held[1u << axes][steps];
        for_all_classes([&](auto c) {
            const auto of_column = given(c, x);
#pragma unroll
            for (std::uint32_t k = 0; k < steps; ++k) held[c][k] = of_column(k);
        });
        meanwhile();
        for_all_classes([&](auto c) {
#pragma unroll
            for (std::uint32_t k = 0; k < steps; ++k) value[boxes.at(c, x) + k * boxes.stride(c, along)] = held[c][k];
        });
    } else {
        meanwhile();
        for_all_classes([&](auto c) {
            for_columns<axes>([&](std::uint32_t a) { return tile.n(c, a); },
                              [&](const int (&x)[4], std::uint32_t count) {
                                  const auto of_column = given(c, x);
                                  for (std::uint32_t k = 0; k < count; ++k)
                                      value[boxes.at(c, x) + k * boxes.stride(c, along)] = of_column(k);
                              });
        });
    }
}

// Predicts a tile's points phase by phase, turns predictions into values by `finish`, and stores them where they
// belong. Positions that the lattice does not have are computed like others, but nobody looks at them.
template <bool wide, class Tile, class T, class Finish>
__device__ __forceinline__ void find_values_of(const DeviceLattice<T>& of, const Tile& tile, ValueMemory& shared,
                                               T* value, const Finish& finish) {
    constexpr std::uint32_t axes = Tile::axes, along = column_axis<axes>;
    [[maybe_unused]] constexpr int unrolled = wide ? 1 : Tile::unrolled; // to limit the size of the code
    const Boxes<Tile, wide ? 2 : 1, wide ? 3 : 2> boxes{tile};
    const TilePlace& place = shared.place;
    const bool adds_codes = wide && of.curve == v2::Curve::six_points_and_codes;
    const std::uint32_t all = boxes.begin(1u << axes);
    T* const without = value + (adds_codes ? all - boxes.size(0) : 0);
    auto* const mark = reinterpret_cast<std::uint8_t*>(value + (adds_codes ? 2 * all - boxes.size(0) : all));
    for (std::uint32_t p = threadIdx.x; p < max_tile_values / 4; p += tile_threads)
        reinterpret_cast<std::uint32_t*>(mark)[p] = 0;
    give_points(of, place, boxes, value, finish, [&] { load_values(of, place, boxes, value); });
    __syncthreads();
    continue_class<0>(of.lattice, place, boxes, value);
    __syncthreads();

    const auto find_class = [&](auto constant) {
        constexpr std::uint32_t c = constant;
        auto* const codes = finish.codes() + place.first_code + first_of_class(tile, c, false);
        const ClassGroups<Tile> groups{tile, c};
        const auto find_column = [&](int (&x)[4], std::uint32_t steps) {
            boxes.leave_margin(c, x);
            const bool beside_is_own = boxes.is_own_beside(c, x);
            const std::int64_t in_field =
                static_cast<std::int64_t>(place.field) + offset_of<Tile>(c, x, of.lattice.field_stride);
            const auto step = static_cast<std::int64_t>((along < axes ? 2 : 1) * of.lattice.field_stride[along]);
            std::uint32_t left = 0; // a bit for each point that needs slow()
            const typename ClassGroups<Tile>::Column order(groups, x);
            auto* const of_column = codes + order.first;
#pragma unroll(unrolled)
            for (std::uint32_t k = 0; k < std::uint32_t{most_of_column}; ++k) {
                if (k >= steps) break;
                int at[4] = {x[0], x[1], x[2], x[3]};
                at[along] += static_cast<int>(k);
                const std::uint32_t to = boxes.at(c, at);
                T p = predict<c>(place, boxes, of.curve, at, [&](std::uint32_t) { return value; });
                if (adds_codes) {
                    T u = p;
                    if constexpr (std::popcount(c) > 1) {
                        u = limited(predict<c>(place, boxes, of.curve, at,
                                               [&](std::uint32_t source) { return source == 0 ? value : without; }));
                        p += T(0.25) * (p - u);
                    }
                    without[to] = limited(u);
                }
                p = limited(p);
                if (beside_is_own && boxes.is_own_along(c, along, at[along])) {
                    std::int32_t code = 0;
                    if (!finish.quick(p, value[to], of_column[order(at[along])], code)) left |= 1u << k;
                    if (of.fine != nullptr) mark[raster<Tile>(place, c, at)] = magnitude_of_code(code);
                }
                value[to] = p;
            }
            for (; left != 0; left &= left - 1) {
                const int k = __ffs(static_cast<int>(left)) - 1;
                int at[4] = {x[0], x[1], x[2], x[3]};
                at[along] += k;
                std::uint8_t m = 0;
                finish.slow(value[boxes.at(c, at)], in_field + k * step, of_column[order(at[along])], m);
                mark[raster<Tile>(place, c, at)] = m;
                if (is_missing(m)) shared.any_missing = 1;
            }
        };
        for_columns<axes>([&](std::uint32_t a) { return boxes.length(c, a); }, find_column);
    };
    for (std::uint32_t phase = 1; phase <= axes; ++phase) {
        for_classes<axes>(phase, find_class);
        __syncthreads();
        if (phase == axes) break;
        for_classes<axes>(phase, [&](auto constant) {
            continue_class<constant>(of.lattice, place, boxes, value);
            if (adds_codes) continue_class<constant>(of.lattice, place, boxes, without);
        });
        __syncthreads();
    }
    if (of.original != nullptr && of.fine == nullptr) return; // nobody looks at the values
    const bool has_marks = of.fine != nullptr || shared.any_missing != 0;
    const auto put = [&](auto c) { put_lines<c>(of, place, boxes, value, has_marks, mark); };
    put(Class<0>{});
    if constexpr (axes > 1) put(Class<2>{});
    if constexpr (axes > 2) {
        put(Class<4>{});
        put(Class<6>{});
    }
}

} // namespace cusz::cuda
