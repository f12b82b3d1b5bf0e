// Lorenzo prediction (paper, section 3.1.2) on prequantised values (postquantisation), and its reverse
// (section 3.3). docs/reference/format.md, section 5.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/cpu/kernels.hpp"
#include "prequant.hpp"
#include "rows.hpp"
#include "simd/isa.hpp"
#include "simd/vector.hpp"
#include "tile.hpp"

namespace cusz::cpu::CUSZ_ISA {

template <class T>
Rows<T> padded_rows(Tile<T>& tile, const RowWalk& walk) {
    return Rows<T>(walk, tile.zeros + 1, [&](std::uint32_t row) { return tile.row(row); });
}

// Codes of one row (docs/reference/format.md, section 5), with wraparound. Calls use(x, code).
template <class T, std::uint32_t dimension, class Length, class Use>
void row_codes(const Rows<T>& rows, Length n, const Use& use) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    const auto along_x = [](const Int* row, std::uint32_t x) {
        return static_cast<U>(row[x]) - static_cast<U>(row[static_cast<std::int64_t>(x) - 1]);
    };
    if constexpr (dimension == 0) {
        for (std::uint32_t x = 0; x < n; ++x) use(x, rows.here[x]);
    } else if constexpr (dimension == 1) {
        use(0, static_cast<Int>(static_cast<U>(rows.here[0]) - static_cast<U>(rows.previous[0])));
        for (std::uint32_t x = 1; x < n; ++x) use(x, static_cast<Int>(along_x(rows.here, x)));
    } else if constexpr (dimension == 2) {
        for (std::uint32_t x = 0; x < n; ++x)
            use(x, static_cast<Int>(along_x(rows.here, x) - along_x(rows.previous, x)));
    } else {
        for (std::uint32_t x = 0; x < n; ++x)
            use(x, static_cast<Int>(along_x(rows.here, x) - along_x(rows.y, x) -
                                    (along_x(rows.z, x) - along_x(rows.zy, x))));
    }
}

// min(|code|, 512): v1::max_cost_of_residual
template <class U>
U capped(U code) {
    const U magnitude = static_cast<std::make_signed_t<U>>(code) < 0 ? U{0} - code : code;
    return std::min<U>(magnitude, v1::max_cost_of_residual);
}

// Adds a row's costs for 0-D to `highest`-D Lorenzo: whole vectors to `sums`, the remainder to `cost`.
template <class T, std::uint32_t highest, bool has_missing, class Length>
void add_row_costs(const Rows<T>& rows, Length n, const std::uint8_t* missing,
                   typename Vector<T>::Lanes (&sums)[highest + 1], std::uint64_t (&cost)[highest + 1]) {
    using V = Vector<T>;
    using U = typename Traits<T>::Bits;
    using Int = typename Traits<T>::Int;
    // Adds the codes at x, by vectors or one by one.
    const auto add = [&](auto load, auto use) {
        const auto along_x = [&](const Int* row) { return load(row) - load(row - 1); };
        const auto here = along_x(rows.here);
        use(0, load(rows.here));
        use(1, here);
        if constexpr (highest >= 2) {
            const auto plane = here - along_x(rows.previous);
            use(2, plane);
        }
        if constexpr (highest >= 3) use(3, here - along_x(rows.y) - (along_x(rows.z) - along_x(rows.zy)));
    };
    std::uint32_t x = 0;
    typename V::Lanes local_sums[highest + 1]{}; // in registers
    for (; x + V::lanes <= n; x += V::lanes)
        add([x](const Int* row) { return V::load(row + x); },
            [&](std::uint32_t dimension, typename V::Lanes code) {
                typename V::Lanes magnitude = V::capped(code, v1::max_cost_of_residual);
                if constexpr (has_missing) magnitude &= V::all_ones_unless(missing + x);
                local_sums[dimension] += magnitude;
            });
    for (std::uint32_t dimension = 0; dimension <= highest; ++dimension) sums[dimension] += local_sums[dimension];
    for (; x < n; ++x)
        add([x](const Int* row) { return static_cast<U>(row[x]); },
            [&](std::uint32_t dimension, U code) { cost[dimension] += has_missing && missing[x] ? 0 : capped(code); });
    // The first code of 1-D Lorenzo is the difference from the row before.
    const U first = static_cast<U>(rows.here[0]);
    if (!has_missing || !missing[0]) {
        cost[1] += capped<U>(first - static_cast<U>(rows.previous[0]));
        cost[1] -= capped(first);
    }
}

// Predictors are compared on these rows. A quarter of all rows suffices: it costs at most 0.23% of the ratio on any
// field tried.
inline std::uint32_t sampled_every(const TileBox& box) { return box.rows() < 8 ? 1 : 4; }
inline std::uint32_t first_sampled_row(const TileBox& box) { return sampled_every(box) / 2; }

template <class T, std::uint32_t highest, class Length>
std::uint32_t cheapest_dimension(Tile<T>& tile, Length n) {
    typename Vector<T>::Lanes sums[highest + 1]{};
    std::uint64_t cost[highest + 1]{}; // summed modulo 2^64
    const std::uint32_t every = sampled_every(tile.box);
    for (RowWalk at(tile.box); at.inside(); at.next()) {
        if (at.row % every != first_sampled_row(tile.box)) continue;
        if (tile.has_missing)
            add_row_costs<T, highest, true>(padded_rows(tile, at), n, tile.missing + at.row * n, sums, cost);
        else
            add_row_costs<T, highest, false>(padded_rows(tile, at), n, nullptr, sums, cost);
    }
    for (std::uint32_t dimension = 0; dimension <= highest; ++dimension)
        for (std::uint32_t lane = 0; lane < Vector<T>::lanes; ++lane) cost[dimension] += sums[dimension][lane];
    return static_cast<std::uint32_t>(std::min_element(cost, cost + highest + 1) - cost);
}

template <class T, std::uint32_t dimension, class Length>
void postquant_lorenzo(Tile<T>& tile, std::uint32_t reach, Length n) {
    for (RowWalk walk(tile.box); walk.inside(); walk.next()) {
        const Rows<T> rows = padded_rows(tile, walk);
        keep_row(tile, walk.row * n, reach, [&](const auto& use) { row_codes<T, dimension>(rows, n, use); });
    }
    mark_missing(tile);
}

// Differences of codes along an axis, from its third position on (docs/reference/format.md, section 5).
template <class Int, class Length>
void take_second_order(Int* values, const TileBox& box, std::size_t axis, Length n) {
    using U = std::make_unsigned_t<Int>;
    const std::uint32_t n_values = box.values();
    const auto subtract = [](Int* at, const Int* before) {
        *at = static_cast<Int>(static_cast<U>(*at) - static_cast<U>(*before));
    };
    if (axis == 0) {
        for (Int* row = values; row < values + n_values; row += n) {
            Int before[max_tile_values];
            for (std::uint32_t x = 0; x < n; ++x) before[x] = row[x];
            for (std::uint32_t x = 2; x < n; ++x) subtract(row + x, before + x - 1);
        }
        return;
    }
    // Slices perpendicular to the axis, of `stride` values each, from last to first.
    const std::uint32_t stride = axis == 1 ? n : n * box.edge[1], edge = box.edge[axis];
    for (Int* part = values; part < values + n_values; part += stride * edge)
        for (std::uint32_t i = edge; i-- > 2;)
            for (std::uint32_t x = 0; x < stride; ++x) subtract(part + i * stride + x, part + (i - 1) * stride + x);
}

// Sum over the sampled rows of floor(log2(2 |code| + 1)).
template <class Int, class Length>
std::uint32_t bit_cost(const Int* codes, const TileBox& box, Length n) {
    using U = std::make_unsigned_t<Int>;
    std::uint32_t sum = 0;
    for (std::uint32_t r = first_sampled_row(box); r < box.rows(); r += sampled_every(box))
        for (std::uint32_t x = 0; x < n; ++x) {
            const Int code = codes[r * n + x];
            const U magnitude =
                std::min(code < 0 ? U{0} - static_cast<U>(code) : static_cast<U>(code), U{v1::max_magnitude_of_bits});
            // exact in single precision; the exponent is the logarithm
            sum += (bits_of(static_cast<float>(static_cast<std::int32_t>(2 * magnitude + 1))) >> 23) - 127;
        }
    return sum;
}

// Where 3-D Lorenzo is the best predictor, the field is smooth: differencing its codes once more may pay, along x and y
// (second_order_xy) or along x, y and z (second_order_xyz). Returns the best predictor.
template <class T, class Length>
std::uint32_t postquant_smooth(Tile<T>& tile, std::uint32_t reach, Length n) {
    using Int = typename Traits<T>::Int;
    const std::uint32_t n_values = tile.n_values();
    Int codes[3][max_tile_values];
    for (RowWalk walk(tile.box); walk.inside(); walk.next())
        row_codes<T, 3>(padded_rows(tile, walk), n,
                        [out = codes[0] + walk.row * n](std::uint32_t x, Int code) { out[x] = code; });
    std::copy_n(codes[0], n_values, codes[1]);
    take_second_order(codes[1], tile.box, 1, n);
    take_second_order(codes[1], tile.box, 0, n);
    std::copy_n(codes[1], n_values, codes[2]);
    take_second_order(codes[2], tile.box, 2, n);
    std::uint32_t best = 0, least = UINT32_MAX;
    for (std::uint32_t i = 0; i < 3; ++i) {
        const std::uint32_t cost = bit_cost(codes[i], tile.box, n);
        if (cost >= least) continue;
        least = cost;
        best = i;
    }
    for (std::uint32_t at = 0; at < n_values; at += n)
        keep_row(tile, at, reach, [&, row = codes[best] + at](const auto& use) {
            for (std::uint32_t x = 0; x < n; ++x) use(x, row[x]);
        });
    return 3 + best;
}

// The cheapest of the Lorenzo predictors 0 to `highest`; ties go to the lower one.
template <class T>
std::uint32_t choose_dimension(Tile<T>& tile, std::uint32_t highest) {
    return with_row_length(tile.box.edge[0], [&](auto n) {
        return highest == 1   ? cheapest_dimension<T, 1>(tile, n)
               : highest == 2 ? cheapest_dimension<T, 2>(tile, n)
                              : cheapest_dimension<T, 3>(tile, n);
    });
}

// Turns tile.padded into tile.code; codes of magnitude `reach` or more are out of range. Returns the predictor.
template <class T>
std::uint32_t postquant(Tile<T>& tile, std::uint32_t max_dimensions, std::uint32_t reach) {
    const std::uint32_t dimension = choose_dimension(tile, max_dimensions);
    if (dimension == 3 && !tile.has_missing)
        return with_row_length(tile.box.edge[0], [&](auto n) { return postquant_smooth(tile, reach, n); });
    with_row_length(tile.box.edge[0], [&](auto n) {
        switch (dimension) {
        case 0: return postquant_lorenzo<T, 0>(tile, reach, n);
        case 1: return postquant_lorenzo<T, 1>(tile, reach, n);
        case 2: return postquant_lorenzo<T, 2>(tile, reach, n);
        default: return postquant_lorenzo<T, 3>(tile, reach, n);
        }
    });
    return dimension;
}

// ---- The reverse (paper, section 3.3).

// Turns a row's codes into A_1, the differences along x (format.md, section 5), which later rows need, and sums
// them up: values[x] = (anchor + A_1[0] + ... + A_1[x]) * step. missing: the row's marks, used only if has_missing. A
// missing value takes its predecessor's q: A_1 = 0, or at x = 0 the previous row's A_1.
template <class T, std::uint32_t dimension, bool has_missing, class Code, class Length>
void reverse_row(const Code* code, const std::uint8_t* missing, const Rows<T>& rows, Length n,
                 const Quantiser<T>& quantiser, typename Traits<T>::Int anchor, typename Traits<T>::Int* differences,
                 T* values) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    using V = Vector<T>;
    using Lanes = typename V::Lanes;
    const U previous = static_cast<U>(rows.previous[0]);
    const T step = quantiser.step;
    U sum = static_cast<U>(anchor) + (dimension == 1 ? previous : 0);
    Lanes before = Lanes{} + sum;
    std::uint32_t x = 0;
    for (; x + V::lanes <= n; x += V::lanes) {
        Lanes v = V::load(code + x);
        if constexpr (dimension == 2) v += V::load(rows.previous + x);
        if constexpr (dimension == 3) v += V::load(rows.y + x) + V::load(rows.z + x) - V::load(rows.zy + x);
        [[maybe_unused]] Lanes kept;
        if constexpr (has_missing) {
            kept = V::all_ones_unless(missing + x);
            v &= kept;
            if (dimension >= 2 && x == 0 && missing[0]) v[0] = previous;
        }
        if constexpr (dimension > 0) {
            V::store(differences + x, v);
            Lanes last;
            v = V::partial_sums(v, last) + before;
            before += last;
        } else {
            v += before;
        }
        v = V::dequantised(v, step);
        if constexpr (has_missing) v = (v & kept) | (quantiser.special & ~kept);
        V::store(values + x, v);
    }
    for (sum = before[0]; x < n; ++x) {
        const bool is_missing = has_missing && missing[x];
        U v = static_cast<U>(static_cast<Int>(code[x]));
        if constexpr (dimension == 2) v += static_cast<U>(rows.previous[x]);
        if constexpr (dimension == 3)
            v += static_cast<U>(rows.y[x]) + static_cast<U>(rows.z[x]) - static_cast<U>(rows.zy[x]);
        if (is_missing) v = dimension >= 2 && x == 0 ? previous : 0;
        differences[x] = static_cast<Int>(v);
        values[x] = dequantise<T>(static_cast<Int>(dimension > 0 ? sum += v : sum + v), step);
        if (is_missing) std::memcpy(values + x, &quantiser.special, sizeof(T));
    }
    if constexpr (dimension == 1) differences[0] = static_cast<Int>(static_cast<U>(differences[0]) + previous);
}

// Turns a tile's codes, with out-of-range codes inserted, into its values.
template <class T, std::uint32_t dimension, bool has_missing, class Code, class Length>
void reverse_lorenzo(const Code* code, Tile<T>& tile, const Quantiser<T>& quantiser, T* field, Length n) {
    typename Traits<T>::Int* const along_x = tile.padded; // rows without padding
    Prefetch<T, 1> prefetch(field, tile.prefetched);
    for (RowWalk walk(tile.box); walk.inside(); walk.next()) {
        prefetch.row();
        const std::uint32_t at = walk.row * n;
        reverse_row<T, dimension, has_missing>(
            code + at, tile.missing + at,
            Rows<T>(walk, tile.zeros, [&](std::uint32_t row) { return along_x + row * n; }), n, quantiser, tile.anchor,
            along_x + at, field + walk.offset);
    }
}

// The inverse of take_second_order.
template <class T>
void take_second_sums(typename Traits<T>::Int* values, const TileBox& box, std::size_t axis) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    const std::uint32_t n = box.edge[0], n_values = box.values();
    const auto add = [](Int* at, const Int* before) {
        *at = static_cast<Int>(static_cast<U>(*at) + static_cast<U>(*before));
    };
    if (axis == 0) {
        using V = Vector<T>;
        for (Int* row = values; row < values + n_values; row += n) {
            const Int first = row[0];
            row[0] = 0; // sums start at the second value
            typename V::Lanes carried{};
            std::uint32_t x = 0;
            for (; x + V::lanes <= n; x += V::lanes) {
                typename V::Lanes last;
                V::store(row + x, V::partial_sums(V::load(row + x), last) + carried);
                carried += last;
            }
            for (x = std::max(x, 1u); x < n; ++x) add(row + x, row + x - 1);
            row[0] = first;
        }
        return;
    }
    const std::uint32_t stride = axis == 1 ? n : n * box.edge[1], edge = box.edge[axis];
    for (Int* part = values; part < values + n_values; part += stride * edge)
        for (std::uint32_t i = 2; i < edge; ++i)
            for (std::uint32_t x = 0; x < stride; ++x) add(part + i * stride + x, part + (i - 1) * stride + x);
}

// The reverse: from tile.code (missing_code at missing values), out-of-range codes and anchor to the field's values,
// with the special pattern at missing values. The caller patches in unpredictable values. Tiles with missing values
// never use second-order Lorenzo.
template <class T>
void reverse(Tile<T>& tile, std::uint32_t predictor, const Quantiser<T>& quantiser, T* field) {
    using Int = typename Traits<T>::Int;
    const auto run = [&]<std::uint32_t dimension, bool has_missing>(const auto* codes) {
        with_row_length(tile.box.edge[0],
                        [&](auto n) { reverse_lorenzo<T, dimension, has_missing>(codes, tile, quantiser, field, n); });
    };
    const auto run_dimension = [&]<bool has_missing>(const auto* codes) {
        switch (predictor) {
        case 0: return run.template operator()<0, has_missing>(codes);
        case 1: return run.template operator()<1, has_missing>(codes);
        case 2: return run.template operator()<2, has_missing>(codes);
        default: return run.template operator()<3, has_missing>(codes);
        }
    };
    const std::int32_t* const narrow = tile.code;
    const bool second = predictor == v1::second_order_xy || predictor == v1::second_order_xyz;
    if (!second && !tile.has_missing && tile.out_of_range.count == 0)
        return run_dimension.template operator()<false>(narrow);

    Int codes[max_tile_values]; // wider than tile.code, for out-of-range codes
    widen_codes(tile, codes);
    const Int* const wide = codes;
    if (tile.has_missing) return run_dimension.template operator()<true>(wide);
    if (second)
        for (const std::size_t axis : {2u, 1u, 0u})
            if (axis < 2 || predictor == v1::second_order_xyz) take_second_sums<T>(codes, tile.box, axis);
    run_dimension.template operator()<false>(wide);
}

} // namespace cusz::cpu::CUSZ_ISA
