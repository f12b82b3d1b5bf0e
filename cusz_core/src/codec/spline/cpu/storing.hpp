// Stores a tile's values to predict from in its lattice's arrays, or its decoded values at their destination: classes
// that are even and odd along the first axis become lines again.
#pragma once

#include <algorithm>
#include <cstdint>

#include "prediction.hpp"

namespace cusz::cpu::CUSZ_ISA {

// A line of a tile along the first axis: where the values of its even and of its odd points are, and their bytes.
struct TileLine {
    std::uint32_t c; // of the even ones
    std::size_t even, odd, byte;
};
// The lines of a plane, by y.
class LinesOfPlane {
public:
    LinesOfPlane(const TileForm& form, std::uint32_t z, std::uint32_t w)
        : halves_(form.n_active > 1 ? 1 : 0), byte_step_(form.byte_step[1]) {
        std::array<std::uint32_t, 4> h{0, 0, z, w};
        std::uint32_t c = 0;
        for (std::uint32_t a = 2; a < form.n_active; ++a) {
            c |= (h[a] & 1) << a;
            h[a] /= 2;
        }
        for (std::uint32_t odd = 0; odd <= halves_; ++odd) {
            const std::uint32_t of = c | odd << 1;
            const ClassRows &even = form.rows[of], &odd_rows = form.rows[of | 1];
            first_[odd] = {of, even.at(0, h[2], h[3]), odd_rows.at(0, h[2], h[3]), form.byte_at(0, h[2], h[3])};
            even_step_[odd] = even.stride[1];
            odd_step_[odd] = odd_rows.stride[1];
        }
    }
    [[gnu::always_inline]] TileLine operator[](std::uint32_t y) const {
        const std::uint32_t odd = y & halves_;
        TileLine line = first_[odd];
        const std::size_t h = y >> halves_;
        line.even += h * even_step_[odd];
        line.odd += h * odd_step_[odd];
        line.byte += h * byte_step_;
        return line;
    }

private:
    std::uint32_t halves_; // 1 if y is halved
    std::size_t byte_step_, even_step_[2], odd_step_[2];
    TileLine first_[2];
};

template <class T>
void store_tile(const Lattice& lattice, const SplineTile<T>& tile, const LatticeArrays<T>& fine) {
    const TileForm& form = *tile.form;
    const std::uint32_t n = form.edge[0], n_even = (n + 1) / 2;
    const auto step = static_cast<std::size_t>(lattice.stride[0]);
    T values[max_tile_values + 2 * lane_room];
    std::uint8_t magnitudes[max_tile_values + 2 * lane_room], marks[max_tile_values / 2 + lane_room];
    std::fill_n(marks, n_even, std::uint8_t{0});
    const bool in_place = step == 1 && n == 2 * n_even && n_even % lane_room == 0;
    const auto at = [&](std::size_t a, std::uint32_t x) {
        return static_cast<std::size_t>((tile.place.origin[a] + x) * lattice.stride[a]);
    };
    for (std::uint32_t w = 0; w < form.edge[3]; ++w)
        for (std::uint32_t z = 0; z < form.edge[2]; ++z) {
            const LinesOfPlane lines(form, z, w);
            std::size_t to = at(0, 0) + at(1, 0) + at(2, z) + at(3, w);
            for (std::uint32_t y = 0; y < form.edge[1]; ++y, to += static_cast<std::size_t>(lattice.stride[1])) {
                const TileLine line = lines[y];
                const std::uint8_t* even = tile.of_class(tile.magnitude, line.c) + line.byte;
                if (line.c == 0) { // its points have marks, but no magnitudes here
                    if (tile.has_missing_around)
                        for (std::uint32_t p = 0; p < n_even; ++p) {
                            const std::uint8_t m = tile.coarse[line.byte + p];
                            marks[p] = is_missing(m) ? m : std::uint8_t{0};
                        }
                    even = marks;
                }
                const std::uint8_t* const odd = tile.of_class(tile.magnitude, line.c | 1) + line.byte;
                if (in_place) {
                    interleave(tile.value + line.even, tile.value + line.odd, n_even, fine.value + to);
                    interleave_marks(even, odd, n_even, fine.magnitude + to);
                    continue;
                }
                interleave(tile.value + line.even, tile.value + line.odd, n_even, values);
                interleave_marks(even, odd, n_even, magnitudes);
                if (step == 1) {
                    std::memcpy(fine.value + to, values, n * sizeof(T));
                    std::memcpy(fine.magnitude + to, magnitudes, n);
                } else {
                    for (std::uint32_t p = 0; p < n; ++p) fine.value[to + p * step] = values[p];
                    for (std::uint32_t p = 0; p < n; ++p) fine.magnitude[to + p * step] = magnitudes[p];
                }
            }
        }
}

// Puts the special values of a line in place.
template <class T>
[[gnu::noinline]] void put_special(const SplineTile<T>& tile, const TileLine& of, typename Traits<T>::Bits special,
                                   T* line) {
    const std::uint32_t n_even = (tile.form->edge[0] + 1) / 2;
    std::uint8_t marks[max_tile_values + 2 * lane_room];
    const std::uint8_t* const even = of.c == 0 ? tile.coarse + of.byte : tile.of_class(tile.magnitude, of.c) + of.byte;
    interleave_marks(even, tile.of_class(tile.magnitude, of.c | 1) + of.byte, n_even, marks);
    using L = Lanes<T>;
    constexpr auto mark = static_cast<std::int8_t>(special_mark);
    std::uint32_t x = 0;
    for (; x + L::n <= 2 * n_even; x += L::n) {
        const auto is_special = __builtin_convertvector(widened_bytes<T>(marks + x) == mark, typename L::Ints);
        const auto v = L::template load<typename L::Ints>(line + x);
        L::store(line + x, is_special ? static_cast<typename L::Int>(special) : v);
    }
    for (; x < 2 * n_even; ++x)
        if (marks[x] == special_mark) line[x] = std::bit_cast<T>(special);
}

// Writes what is wanted of a tile to its destination.
template <class T>
void put_out_tile(const SplineTile<T>& tile, typename Traits<T>::Bits special, const Destination<T>& to) {
    const TileForm& form = *tile.form;
    std::array<std::uint32_t, 4> first{}, end{}; // of the tile's points that are wanted
    for (std::size_t a = 0; a < 4; ++a) {
        const std::uint64_t origin = tile.place.origin[a], wanted = to.start[a] + to.count[a];
        if (to.start[a] >= origin + form.edge[a] || wanted <= origin) return;
        first[a] = static_cast<std::uint32_t>(std::max(origin, to.start[a]) - origin);
        end[a] = static_cast<std::uint32_t>(std::min(origin + form.edge[a], wanted) - origin);
    }
    using L = Lanes<T>;
    const std::uint32_t n_even = (form.edge[0] + 1) / 2, n = end[0] - first[0];
    const bool in_place = to.stride[0] == 1 && n == 2 * n_even && n_even % L::n == 0;
    T own_line[max_tile_values + 2 * lane_room];
    T* const begin = to.field + (tile.place.origin[0] + first[0] - to.start[0]) * to.stride[0];
    const auto in_field = [&](std::size_t a, std::uint32_t x) {
        return static_cast<std::size_t>((tile.place.origin[a] + x - to.start[a]) * to.stride[a]);
    };
    // Copies, because compilers must assume that stores may change `tile` and `to`.
    const std::ptrdiff_t later = tile.later;
    const std::size_t stride = to.stride[0], line_stride = to.stride[1];
    const T* const values = tile.value;
    const bool has_missing = tile.has_missing, has_missing_around = tile.has_missing_around;
    for (std::uint32_t w = first[3]; w < end[3]; ++w)
        for (std::uint32_t z = first[2]; z < end[2]; ++z) {
            const LinesOfPlane lines(form, z, w);
            T* target = begin + in_field(3, w) + in_field(2, z) + in_field(1, first[1]);
            for (std::uint32_t y = first[1]; y < end[1]; ++y, target += line_stride) {
                const TileLine of = lines[y];
                T* const line = in_place ? target : own_line;
                if (stride == 1)
                    for (std::uint32_t x = 0; x < n; x += 64 / sizeof(T)) __builtin_prefetch(target + x + later, 1, 2);
                interleave(values + of.even, values + of.odd, n_even, line);
                if (has_missing || (of.c == 0 && has_missing_around)) put_special(tile, of, special, line);
                if (in_place) continue;
                const T* const from = line + first[0];
                if (stride == 1)
                    std::memcpy(target, from, n * sizeof(T));
                else
                    for (std::uint32_t x = 0; x < n; ++x) target[x * stride] = from[x];
            }
        }
}

} // namespace cusz::cpu::CUSZ_ISA
