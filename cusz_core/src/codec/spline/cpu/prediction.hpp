// What tiles are predicted from, and predictions (sections 4 and 6).
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

// Half coordinates, relative to the tile, from begin to end along every axis.
struct HalfBox {
    std::array<std::int64_t, 4> begin{}, end{};
};
template <class Use>
[[gnu::always_inline]] inline void for_rows_in(const HalfBox& box, const Use& use) {
    for (std::int64_t w = box.begin[3]; w < box.end[3]; ++w)
        for (std::int64_t z = box.begin[2]; z < box.end[2]; ++z)
            for (std::int64_t y = box.begin[1]; y < box.end[1]; ++y) use(y, z, w);
}
// Where a row's point with x = 0 is.
inline std::size_t row_at(const ClassRows& rows, std::int64_t y, std::int64_t z, std::int64_t w) {
    return rows.first + static_cast<std::size_t>(y) * rows.stride[1] + static_cast<std::size_t>(z) * rows.stride[2] +
           static_cast<std::size_t>(w) * rows.stride[3];
}
inline std::size_t byte_row_at(const TileForm& form, std::int64_t y, std::int64_t z, std::int64_t w) {
    return form.first_byte + static_cast<std::size_t>(y) * form.byte_step[1] +
           static_cast<std::size_t>(z) * form.byte_step[2] + static_cast<std::size_t>(w) * form.byte_step[3];
}

// A class's points that the lattice has, of those in the tile and up to so many before and behind it.
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

// Continues the rows of a class beyond the border of the lattice, along the axes in which it is even.
template <class T>
void continue_class(const Lattice& lattice, const SplineTile<T>& tile, T* values, std::uint32_t c) {
    const ClassRows& rows = tile.form->rows[c];
    const HalfBox all = known_box(lattice, tile, c, 9, 9);
    for (std::uint32_t a = 0; a < tile.form->n_active; ++a) {
        if ((c >> a & 1) != 0 || tile.place.edge[a] == 1) continue; // a single position has no odd neighbour
        const auto origin = static_cast<std::int64_t>(tile.place.origin[a] / 2),
                   extent = static_cast<std::int64_t>(lattice.coarse_extent(a));
        const std::int64_t end = extent - origin, last = std::int64_t{rows.n[a]} + rows.behind[a] - 1;
        const bool is_first = origin == 0, is_last = end <= last, even = lattice.extent[a] % 2 == 0;
        if (!is_first && !is_last) continue;
        HalfBox others = all;
        others.begin[a] = 0;
        others.end[a] = 1;
        // How a row goes on behind its border, from its last value, two or three.
        enum class Course { none, same, straight, curved };
        Course before = Course::none, behind = Course::none, further = Course::none;
        if (is_first) before = extent == 1 ? Course::same : extent == 2 ? Course::straight : Course::curved;
        if (is_last) {
            behind = extent == 1 ? Course::same : even || extent == 2 ? Course::straight : Course::curved;
            if (even && end + 1 <= last) further = extent == 1 ? Course::same : Course::straight;
        }
        // Of a row, or of a vector of rows.
        const auto s = static_cast<std::ptrdiff_t>(rows.stride[a]);
        const auto continue_row = [=]<class Values>(T* row, Values) {
            const auto set = [=](Course course, std::int64_t position, std::ptrdiff_t back) {
                const auto at = [=](std::ptrdiff_t steps) {
                    Values loaded;
                    std::memcpy(&loaded, row + position * s + steps * back, sizeof loaded);
                    return loaded;
                };
                if (course == Course::none) return;
                Values v = at(1);
                if (course == Course::straight) v = (v - at(2)) + v;
                if (course == Course::curved) v = T(3) * (v - at(2)) + at(3);
                std::memcpy(row + position * s, &v, sizeof v);
            };
            set(before, -1, s);
            set(behind, end, -s);
            set(further, end + 1, -s);
        };
        using L = Lanes<T>;
        for (std::int64_t w = others.begin[3]; w < others.end[3]; ++w)
            for (std::int64_t z = others.begin[2]; z < others.end[2]; ++z) {
                T* row = values + row_at(rows, others.begin[1], z, w);
                for (std::int64_t y = others.begin[1]; y < others.end[1]; ++y, row += rows.stride[1])
                    if (a == 0)
                        continue_row(row, T{});
                    else
                        for (std::int64_t x = -std::int64_t{rows.before[0]}; x < rows.n[0] + rows.behind[0]; x += L::n)
                            continue_row(row + x, typename L::Values{});
            }
    }
}

// Class 0 of a tile and what lies around it.
template <class T>
void load_class_0(const Lattice& lattice, const LatticeArrays<T>& coarse, SplineTile<T>& tile) {
    const TileForm& form = *tile.form;
    const ClassRows& rows = form.rows[0];
    const HalfBox box = known_box(lattice, tile, 0, 9, 9), near = known_box(lattice, tile, 0, 1, 1);
    const auto& s = lattice.coarse_stride;
    std::size_t origin = 0;
    for (std::size_t a = 0; a < 4; ++a)
        origin += static_cast<std::size_t>(tile.place.origin[a] / (lattice.is_active(a) ? 2 : 1) * s[a]);
    const auto in_coarse = [&](std::int64_t x, std::int64_t y, std::int64_t z, std::int64_t w) {
        return origin + static_cast<std::size_t>(x) * s[0] + static_cast<std::size_t>(y) * s[1] +
               static_cast<std::size_t>(z) * s[2] + static_cast<std::size_t>(w) * s[3];
    };
    const auto n = static_cast<std::size_t>(box.end[0] - box.begin[0]);
    T* const values = tile.value;
    for_rows_in(box, [&](std::int64_t y, std::int64_t z, std::int64_t w) {
        const T* const from = coarse.value + in_coarse(box.begin[0], y, z, w);
        T* const to = values + row_at(rows, y, z, w) + box.begin[0];
        if (s[0] == 1) {
            for (std::size_t x = 0; x < n; x += 64 / sizeof(T)) __builtin_prefetch(from + x + tile.later_coarse, 0, 2);
            for (std::size_t x = 0; x < n; x += lane_room) std::memcpy(to + x, from + x, lane_room * sizeof(T));
        } else {
            for (std::size_t x = 0; x < n; ++x) to[x] = from[x * s[0]];
        }
    });
    Marks any{};
    const auto n_near = static_cast<std::uint32_t>(near.end[0] - near.begin[0]);
    for_rows_in(near, [&](std::int64_t y, std::int64_t z, std::int64_t w) {
        const std::uint8_t* const from = coarse.magnitude + in_coarse(near.begin[0], y, z, w);
        std::uint8_t* const to = tile.coarse + byte_row_at(form, y, z, w) + near.begin[0];
        if (s[0] == 1) __builtin_prefetch(from + tile.later_coarse, 0, 2);
        for (std::uint32_t x = 0; x < n_near; x += lane_room) {
            Marks marks{};
            if (s[0] == 1)
                marks = load_marks(from + x);
            else
                for (std::uint32_t i = 0; i < lane_room && x + i < n_near; ++i) marks[i] = from[(x + i) * s[0]];
            marks &= first_lanes(n_near - x);
            store_marks(to + x, marks); // and zeros into rows that follow
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

// Predictions of n values. v: for each odd axis the value at h of the class without it, in whose memory neighbours along
// the axis are `step` apart. six: by odd axis, whether there are six points to predict from; along the first axis from x
// = begin to end, if that is one of them.
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

// Predicts class c from `from`, in the tile and beyond it where later phases look. with_codes: besides from `without`.
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
    for (std::uint32_t o = 0; o < n_odd; ++o) {
        source[o] = &form.rows[c ^ 1u << axis[o]];
        step[o] = static_cast<std::ptrdiff_t>(source[o]->stride[axis[o]]);
    }
    const auto is_six = [&](std::size_t a, std::int64_t h) { return h >= six_begin[a] && h < six_end[a]; };
    SixPoints six{{}, six_begin[0], six_end[0]};
    for (std::int64_t w = box.begin[3]; w < box.end[3]; ++w)
        for (std::int64_t z = box.begin[2]; z < box.end[2]; ++z) {
            const T* v[n_odd];
            for (std::uint32_t o = 0; o < n_odd; ++o) {
                v[o] = values + row_at(*source[o], box.begin[1], z, w);
                six.of[o] = axis[o] == 0 ? six_begin[0] < six_end[0] : is_six(2, z); // along axis 1, by row
            }
            std::size_t at = row_at(rows, box.begin[1], z, w);
            for (std::int64_t y = box.begin[1]; y < box.end[1]; ++y) {
                if constexpr (curve == Curve::six_points)
                    for (std::uint32_t o = 0; o < n_odd; ++o)
                        if (axis[o] == 1) six.of[o] = is_six(1, y);
                predict_row<n_odd, along_x, curve, with_codes>(v, step, six, box.begin[0], box.end[0], values + at,
                                                               with_codes ? tile.without + at : nullptr);
                for (std::uint32_t o = 0; o < n_odd; ++o) v[o] += source[o]->stride[1];
                at += rows.stride[1];
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

// Predicts class c, whose values are then predictions.
template <class T>
void predict(const PyramidCoder<T>& coder, const Lattice& lattice, SplineTile<T>& tile, std::uint32_t c) {
    if (!coder.adds_codes()) return predict_into<false>(lattice, tile, c, coder.curve, tile.value);
    // What is predicted without codes, from what is predicted without codes.
    predict_into<false>(lattice, tile, c, Curve::six_points, tile.without);
    if (std::popcount(c) > 1) {
        predict_into<true>(lattice, tile, c, Curve::six_points, tile.value);
    } else {
        predict_into<false>(lattice, tile, c, Curve::six_points, tile.value);
    }
    continue_class(lattice, tile, tile.without, c);
}

// Buckets of |cubic - linear| along each axis, of class 0.
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
        for (std::int64_t w = box.begin[3]; w < box.end[3]; ++w)
            for (std::int64_t z = box.begin[2]; z < box.end[2]; ++z) {
                const T* row = tile.value + row_at(rows, box.begin[1], z, w);
                std::uint8_t* to = tile.roughness[a] + byte_row_at(form, box.begin[1], z, w);
                for (std::int64_t y = box.begin[1]; y < box.end[1]; ++y, row += rows.stride[1], to += form.byte_step[1])
                    for (std::int64_t x = 0; x < box.end[0]; x += L::n) {
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
                        if (box.end[0] - x < L::n) // zeros go into rows that follow
                            bucket &= L::counted() < static_cast<Int>(box.end[0] - x);
                        L::store(to + x, L::narrowed(bucket));
                    }
            }
    }
}

} // namespace cusz::cpu::CUSZ_ISA
