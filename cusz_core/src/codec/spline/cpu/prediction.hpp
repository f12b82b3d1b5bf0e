// Loads what tiles are predicted from, predicts, and finds roughness (sections 4 and 6).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels.hpp"
#include "simd/lanes.hpp"

namespace cusz::cpu::CUSZ_ISA {

using v2::Curve;

// Calls use(c) for the classes of a phase that have points.
template <class Use>
[[gnu::always_inline]] inline void for_classes_of(const TileForm& form, std::uint32_t phase, const Use& use) {
    for (std::uint32_t c = 1; c < 1u << form.n_active; ++c)
        if (static_cast<std::uint32_t>(std::popcount(c)) == phase && form.rows[c].points() > 0) use(c);
}

// A box of half coordinates relative to the tile, from begin to end along every axis.
struct HalfBox {
    std::array<std::int64_t, 4> begin{}, end{};
};
// An array indexed by half coordinates: where its origin is, and how far apart neighbours along each axis are.
template <class V>
struct RowsOf {
    V* origin;
    std::array<std::size_t, 4> stride;
};
// For the values of a class, and for bytes in the layout of a class.
template <class V>
RowsOf<V> rows_of(V* values, const ClassRows& rows) {
    return {values + rows.first, rows.stride};
}
template <class V>
RowsOf<V> rows_of(V* bytes, const TileForm& form) {
    return {bytes + form.first_byte, form.byte_step};
}
// Calls use(from, to) for the rows of a box in two arrays, with pointers to each row's point at x = 0. Box and arrays
// are copied: otherwise compilers must assume that stores may change them, and reload them for every row.
template <class From, class To, class Use>
[[gnu::always_inline]] inline void for_rows_in(const HalfBox& box, RowsOf<From> from, RowsOf<To> to, const Use& use) {
    const auto begin = box.begin, end = box.end;
    const auto at = [&](const auto& rows, std::int64_t z, std::int64_t w) {
        return rows.origin + begin[1] * static_cast<std::ptrdiff_t>(rows.stride[1]) +
               z * static_cast<std::ptrdiff_t>(rows.stride[2]) + w * static_cast<std::ptrdiff_t>(rows.stride[3]);
    };
    for (std::int64_t w = begin[3]; w < end[3]; ++w)
        for (std::int64_t z = begin[2]; z < end[2]; ++z) {
            From* a = at(from, z, w);
            To* b = at(to, z, w);
            for (std::int64_t n = end[1] - begin[1]; n > 0; --n, a += from.stride[1], b += to.stride[1]) use(a, b);
        }
}

// The box of a class's points that exist in the lattice: in the tile, and up to `before` and `behind` many around it.
template <class T>
HalfBox known_box(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t c, std::uint32_t before,
                  std::uint32_t behind) {
    const ClassRows& rows = tile.form->rows[c];
    HalfBox box;
    for (std::size_t a = 0; a < 4; ++a) {
        box.end[a] = rows.n[a];
        if (a >= tile.form->n_active || (c >> a & 1) != 0) continue;
        const auto origin = static_cast<std::int64_t>(tile.place.origin[a] / 2);
        box.begin[a] = std::max(-std::int64_t{std::min(before, rows.before[a])}, -origin);
        box.end[a] = std::min(box.end[a] + std::min(behind, rows.behind[a]),
                              static_cast<std::int64_t>(lattice.coarse_extent(a)) - origin);
    }
    return box;
}

// How a row continues beyond its border: from its last one, two or three values, which lie `back` apart.
enum class Course { same, straight, curved };
// For one row, or for a vector of rows.
template <Course course, class Values, class T>
[[gnu::always_inline]] inline void continue_at(T* position, std::ptrdiff_t back) {
    const auto value = [=](std::ptrdiff_t steps) {
        Values loaded;
        std::memcpy(&loaded, position + steps * back, sizeof loaded);
        return loaded;
    };
    Values v = value(1);
    if constexpr (course == Course::straight) v = (v - value(2)) + v;
    if constexpr (course == Course::curved) v = T(3) * (v - value(2)) + value(3);
    std::memcpy(position, &v, sizeof v);
}
template <Course course, class T>
[[gnu::noinline]] void continue_rows(const HalfBox& box, RowsOf<T> rows, std::ptrdiff_t back, bool along_x) {
    using L = Lanes<T>;
    if (along_x)
        for_rows_in(box, rows, rows, [=](T*, T* row) { continue_at<course, T>(row, back); });
    else
        for_rows_in(box, rows, rows, [=, begin = box.begin[0], end = box.end[0]](T*, T* row) {
            for (std::int64_t x = begin; x < end; x += L::n) continue_at<course, typename L::Values>(row + x, back);
        });
}

// Continues the rows of a class beyond the border of the lattice, along the axes in which it is even.
template <class T>
void continue_class(const Lattice& lattice, const SplineTile<T>& tile, T* values, std::uint32_t c) {
    const ClassRows& rows = tile.form->rows[c];
    HalfBox all = known_box(lattice, tile, c, 9, 9);
    all.begin[0] = -std::int64_t{rows.before[0]};
    all.end[0] = std::int64_t{rows.n[0]} + rows.behind[0];
    for (std::uint32_t a = 0; a < tile.form->n_active; ++a) {
        if ((c >> a & 1) != 0 || tile.place.edge[a] == 1) continue; // a single position has no odd neighbour
        const auto origin = static_cast<std::int64_t>(tile.place.origin[a] / 2),
                   extent = static_cast<std::int64_t>(lattice.coarse_extent(a));
        const std::int64_t end = extent - origin, last = std::int64_t{rows.n[a]} + rows.behind[a] - 1;
        const bool even = lattice.extent[a] % 2 == 0;
        HalfBox others = all;
        others.begin[a] = 0;
        others.end[a] = 1;
        const auto s = static_cast<std::ptrdiff_t>(rows.stride[a]);
        const auto go_on = [&](Course course, std::int64_t position, std::ptrdiff_t back) {
            const RowsOf<T> at = rows_of(values + position * s, rows);
            if (course == Course::same) return continue_rows<Course::same>(others, at, back, a == 0);
            if (course == Course::straight) return continue_rows<Course::straight>(others, at, back, a == 0);
            continue_rows<Course::curved>(others, at, back, a == 0);
        };
        const auto course = [=](bool can_be_curved) {
            return extent == 1 ? Course::same : extent == 2 || !can_be_curved ? Course::straight : Course::curved;
        };
        if (origin == 0) go_on(course(true), -1, s);
        if (end > last) continue;
        go_on(course(!even), end, -s);
        if (even && end < last) go_on(course(false), end + 1, -s);
    }
}

// Loads class 0 of a tile and what lies around it.
template <class T>
void load_class_0(const Lattice& lattice, const LatticeArrays<T>& coarse, SplineTile<T>& tile) {
    const TileForm& form = *tile.form;
    const ClassRows& rows = form.rows[0];
    const HalfBox box = known_box(lattice, tile, 0, 9, 9), near = known_box(lattice, tile, 0, 1, 1);
    std::array<std::size_t, 4> s{};
    std::size_t origin = 0;
    for (std::size_t a = 0; a < 4; ++a) {
        s[a] = static_cast<std::size_t>(lattice.coarse_stride[a]);
        origin += static_cast<std::size_t>(tile.place.origin[a]) / (lattice.is_active(a) ? 2 : 1) * s[a];
    }
    const bool is_dense = s[0] == 1;
    const std::ptrdiff_t later = tile.later_coarse;
    const std::int64_t begin = box.begin[0], end = box.end[0];
    const RowsOf<const T> from{coarse.value + origin, s};
    const RowsOf<T> to = rows_of(tile.value, rows);
    if (is_dense)
        for_rows_in(box, from, to, [=](const T* of, T* row) {
            for (std::int64_t x = begin; x < end; x += 64 / sizeof(T)) __builtin_prefetch(of + x + later, 0, 2);
            for (std::int64_t x = begin; x < end; x += lane_room) std::memcpy(row + x, of + x, lane_room * sizeof(T));
        });
    else
        for_rows_in(box, from, to, [=, step = static_cast<std::int64_t>(s[0])](const T* of, T* row) {
            for (std::int64_t x = begin; x < end; ++x) row[x] = of[x * step];
        });
    Marks any{};
    const std::int64_t first = near.begin[0];
    const auto n_near = static_cast<std::uint32_t>(near.end[0] - first);
    for_rows_in(near, RowsOf<const std::uint8_t>{coarse.magnitude + origin, s}, rows_of(tile.coarse, form),
                [=, &any, step = static_cast<std::int64_t>(s[0])](const std::uint8_t* of, std::uint8_t* row) {
                    if (is_dense) __builtin_prefetch(of + first + later, 0, 2);
                    for (std::uint32_t x = 0; x < n_near; x += lane_room) {
                        Marks marks{};
                        if (is_dense)
                            marks = load_marks(of + first + x);
                        else
                            for (std::uint32_t i = 0; i < lane_room && x + i < n_near; ++i)
                                marks[i] = of[(first + x + i) * step];
                        marks &= first_lanes(n_near - x);
                        store_marks(row + first + x, marks); // and zeros into following rows
                        any |= marks;
                    }
                });
    std::uint64_t words[2];
    std::memcpy(words, &any, sizeof any);
    const std::uint64_t all = words[0] | words[1];
    tile.has_coarse_magnitudes = all != 0;
    tile.has_missing_around = (all & 0x8080808080808080u) != 0;
    continue_class(lattice, tile, tile.value, 0);
    if (tile.without != nullptr) std::copy(tile.value + rows.begin, tile.value + rows.end, tile.without + rows.begin);
}

// Predicts the values of a row from x to end. v: for each odd axis the value at h of the class without it, in whose
// memory neighbours along the axis are `step` apart. six: by odd axis, whether there are six points to predict from;
// if x is an odd axis, only from x = six.begin to six.end.
struct SixPoints {
    bool of[3];
    std::int64_t begin, end;
};
template <std::uint32_t n_odd, bool along_x, Curve curve, bool with_codes, class T>
[[gnu::always_inline]] inline void predict_row(const T* const (&v)[n_odd], const std::ptrdiff_t (&step)[n_odd],
                                               const SixPoints& six, std::int64_t x, std::int64_t end, T* out,
                                               const T* without) {
    using L = Lanes<T>;
    using Values = typename L::Values;
    for (; x < end; x += L::n) {
        Values sum{};
        for (std::uint32_t o = 0; o < n_odd; ++o) {
            const T* const at = v[o] + x;
            const std::ptrdiff_t s = step[o];
            const auto load = [=](std::ptrdiff_t steps) { return L::template load<Values>(at + steps * s); };
            const Values near = load(0) + load(1);
            Values of_axis;
            if constexpr (curve == Curve::linear) {
                of_axis = near * T(0.5);
            } else {
                const Values next = load(-1) + load(2);
                of_axis = (near * T(9) - next) * T(0.0625);
                if constexpr (curve == Curve::six_points) {
                    if (six.of[o]) {
                        const Values of_six =
                            ((near * T(150) - next * T(25)) + (load(-2) + load(3)) * T(3)) * T(1.0 / 256);
                        if (along_x && o == 0) {
                            const auto lanes = L::counted() + static_cast<typename L::Int>(x);
                            const auto inside = (lanes >= static_cast<typename L::Int>(six.begin)) &
                                                (lanes < static_cast<typename L::Int>(six.end));
                            of_axis = inside ? of_six : of_axis;
                        } else {
                            of_axis = of_six;
                        }
                    }
                }
            }
            sum = o == 0 ? of_axis : sum + of_axis;
        }
        if (n_odd == 2) sum *= T(0.5);
        if (n_odd == 3) sum *= T(1) / T(3);
        if constexpr (with_codes) sum += T(0.25) * (sum - L::template load<Values>(without + x));
        L::store(out + x, L::absolute(sum) <= std::numeric_limits<T>::max() ? sum : Values{});
    }
}

// Predicts class c in `values`, in the tile and beyond it where later phases look. with_codes: uses `without`, too.
template <std::uint32_t n_odd, bool along_x, Curve curve, bool with_codes, class T>
[[gnu::noinline]] void predict_rows(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t c, T* values) {
    const TileForm& form = *tile.form;
    const ClassRows& rows = form.rows[c];
    const HalfBox box = known_box(lattice, tile, c, 9, 9);
    std::uint32_t axis[n_odd] = {};
    for (std::uint32_t a = 0, o = 0; a < form.n_active; ++a)
        if ((c >> a & 1) != 0) axis[o++] = a;
    std::int64_t six_begin[4] = {}, six_end[4] = {};
    for (std::size_t a = 0; a < form.n_active; ++a) {
        const auto origin = static_cast<std::int64_t>(tile.place.origin[a] / 2);
        six_begin[a] = 2 - origin;
        six_end[a] = static_cast<std::int64_t>(lattice.coarse_extent(a)) - 3 - origin;
    }
    std::ptrdiff_t step[n_odd];
    const ClassRows* source[n_odd];
    std::size_t row_step[n_odd];
    for (std::uint32_t o = 0; o < n_odd; ++o) {
        source[o] = &form.rows[c ^ 1u << axis[o]];
        step[o] = static_cast<std::ptrdiff_t>(source[o]->stride[axis[o]]);
        row_step[o] = source[o]->stride[1];
    }
    const std::size_t own_step = rows.stride[1];
    const std::int64_t begin = box.begin[0], end = box.end[0];
    const T* const without = tile.without;
    const auto is_six = [&](std::size_t a, std::int64_t h) { return h >= six_begin[a] && h < six_end[a]; };
    SixPoints six{{}, six_begin[0], six_end[0]};
    for (std::int64_t w = box.begin[3]; w < box.end[3]; ++w)
        for (std::int64_t z = box.begin[2]; z < box.end[2]; ++z) {
            const T* v[n_odd];
            for (std::uint32_t o = 0; o < n_odd; ++o) {
                v[o] = values + source[o]->at(box.begin[1], z, w);
                six.of[o] = axis[o] == 0 ? six_begin[0] < six_end[0] : is_six(2, z); // along axis 1 it varies by row
            }
            std::size_t at = rows.at(box.begin[1], z, w);
            for (std::int64_t y = box.begin[1], y_end = box.end[1]; y < y_end; ++y) {
                if constexpr (curve == Curve::six_points)
                    for (std::uint32_t o = 0; o < n_odd; ++o)
                        if (axis[o] == 1) six.of[o] = is_six(1, y);
                predict_row<n_odd, along_x, curve, with_codes>(v, step, six, begin, end, values + at,
                                                               with_codes ? without + at : nullptr);
                for (std::uint32_t o = 0; o < n_odd; ++o) v[o] += row_step[o];
                at += own_step;
            }
        }
}

template <bool with_codes, class T>
void predict_into(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t c, Curve curve, T* values) {
    const auto along = [&]<std::uint32_t n_odd, bool along_x>() {
        if constexpr (!with_codes) {
            if (curve == Curve::linear)
                return predict_rows<n_odd, along_x, Curve::linear, false>(lattice, tile, c, values);
            if (curve == Curve::cubic)
                return predict_rows<n_odd, along_x, Curve::cubic, false>(lattice, tile, c, values);
        }
        predict_rows<n_odd, along_x, Curve::six_points, with_codes>(lattice, tile, c, values);
    };
    const bool along_x = (c & 1) != 0;
    switch (std::popcount(c)) {
    case 1: return along_x ? along.template operator()<1, true>() : along.template operator()<1, false>();
    case 2: return along_x ? along.template operator()<2, true>() : along.template operator()<2, false>();
    default: return along.template operator()<3, true>();
    }
}

// Predicts class c: its values are the predictions afterwards.
template <class T>
void predict(const PyramidCoder<T>& coder, const Lattice& lattice, SplineTile<T>& tile, std::uint32_t c) {
    if (!coder.adds_codes()) return predict_into<false>(lattice, tile, c, coder.curve, tile.value);
    // Predictions without codes are made from class 0 and earlier predictions without codes.
    predict_into<false>(lattice, tile, c, Curve::six_points, tile.without);
    if (std::popcount(c) > 1) {
        predict_into<true>(lattice, tile, c, Curve::six_points, tile.value);
    } else {
        predict_into<false>(lattice, tile, c, Curve::six_points, tile.value);
    }
    continue_class(lattice, tile, tile.without, c);
}

// Finds the roughness of class 0 along each active axis: buckets of |cubic - linear|.
template <class T>
void find_roughness(const Lattice& lattice, const SplineTile<T>& tile, T inv) {
    using L = Lanes<T>;
    using Values = typename L::Values;
    using Ints = typename L::Ints;
    using Int = typename L::Int;
    constexpr int mantissa_bits = sizeof(T) == 4 ? 23 : 52;
    constexpr Int exponent_mask = sizeof(T) == 4 ? 0xFF : 0x7FF, exponent_bias = sizeof(T) == 4 ? 127 : 1023;
    const TileForm& form = *tile.form;
    const ClassRows& rows = form.rows[0];
    for (std::uint32_t a = 0; a < form.n_active; ++a) {
        if (form.rows[1u << a].points() == 0) continue;
        HalfBox box = known_box(lattice, tile, 0, 0, 1);
        box.end[a] = form.rows[1u << a].n[a];
        const auto s = static_cast<std::ptrdiff_t>(rows.stride[a]);
        const std::int64_t end = box.end[0];
        for_rows_in(
            box, rows_of(tile.value, rows), rows_of(tile.roughness[a], form), [=](const T* row, std::uint8_t* to) {
                for (std::int64_t x = 0; x < end; x += L::n) {
                    const auto load = [=](std::ptrdiff_t steps) {
                        return L::template load<Values>(row + x + steps * s);
                    };
                    const Values near = load(0) + load(1), next = load(-1) + load(2);
                    const Values difference = (near * T(9) - next) * T(0.0625) - near * T(0.5);
                    Ints bucket =
                        (reinterpret_cast<Ints>(L::absolute(difference) * inv) >> mantissa_bits & exponent_mask) -
                        (exponent_bias - 3);
                    bucket = bucket < 0 ? Ints{} : bucket;
                    bucket = bucket > 7 ? Ints{} + 7 : bucket;
                    if (end - x < L::n) // zeros go into following rows
                        bucket &= L::counted() < static_cast<Int>(end - x);
                    L::store(to + x, L::narrowed(bucket));
                }
            });
    }
}

} // namespace cusz::cpu::CUSZ_ISA
