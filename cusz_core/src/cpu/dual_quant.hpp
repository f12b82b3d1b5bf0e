// Dual-quantisation (paper, section 3.1.2): prequantisation to integers, Lorenzo prediction on them (postquantisation),
// and its reverse (section 3.3). docs/format.md, sections 4 and 5.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "isa.hpp"
#include "tile.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Stands in tile.delta for a delta outlier until the zero groups are found (it is not 0).
inline constexpr std::int32_t outlier_mark = hole_delta - 1;

// One value of docs/format.md, section 4, step by step.
template <class T>
struct Quantised {
    typename Traits<T>::Int q;
    bool in_range, predicted;
};

template <class T>
Quantised<T> quantise(T value, const Quantiser<T>& quantiser) {
    using Int = typename Traits<T>::Int;
    constexpr T rounder = Traits<T>::rounder;
    const T scaled = value * quantiser.inv;
    const T shifted = scaled + rounder;
    const T back = (shifted - rounder) * quantiser.step;
    const auto q = static_cast<Int>(bits_of(shifted) - bits_of(rounder)); // modulo: it may be far out of range
    return {q, std::abs(scaled) <= Traits<T>::quantum_limit, std::abs(value - back) <= quantiser.e};
}

template <class T>
T dequantise(typename Traits<T>::Int q, T step) {
    if constexpr (sizeof(T) == 4) {
        return static_cast<T>(q) * step;
    } else { // exact for |q| <= 2^51, and vectorised everywhere
        const T shifted = std::bit_cast<T>(bits_of(Traits<T>::rounder) + static_cast<std::uint64_t>(q));
        return (shifted - Traits<T>::rounder) * step;
    }
}

// Quantises a row under the assumption that every value is predicted and none special: the case that has to be fast.
// Returns false where it is not so.
template <class T>
bool quantise_row(const T* values, std::uint32_t n, const Quantiser<T> quantiser, typename Traits<T>::Int anchor,
                  typename Traits<T>::Int* u) {
    using Int = typename Traits<T>::Int;
    using Bits = typename Traits<T>::Bits;
    constexpr T rounder = Traits<T>::rounder;
    const Bits zero = bits_of(rounder) + static_cast<Bits>(anchor); // what the anchor's bits are after the shift
    Bits bad = 0;
    for (std::uint32_t x = 0; x < n; ++x) {
        // quantise(), in the form that compilers vectorise
        const T value = values[x], scaled = value * quantiser.inv, shifted = scaled + rounder;
        const T back = (shifted - rounder) * quantiser.step;
        u[x] = static_cast<Int>(std::bit_cast<Bits>(shifted) - zero);
        bad |= (std::abs(scaled) <= Traits<T>::quantum_limit ? Bits{0} : Bits{1}) |
               (std::abs(value - back) <= quantiser.e ? Bits{0} : Bits{1}) |
               (bits_of(value) != quantiser.special ? Bits{0} : Bits{1});
    }
    return bad == 0;
}

// A value that is not predicted at its first q: one at a rounding tie may be within the bound of the other neighbour,
// which is then taken; else it is a value outlier and keeps its q.
template <class T>
void settle_miss(T value, const Quantiser<T>& quantiser, std::uint32_t at, typename Traits<T>::Int& q, Tile<T>& tile) {
    const auto other = value > dequantise<T>(q, quantiser.step) ? q + 1 : q - 1;
    if (std::abs(static_cast<T>(other)) <= Traits<T>::quantum_limit &&
        std::abs(value - dequantise<T>(other, quantiser.step)) <= quantiser.e)
        q = other;
    else
        tile.value_outliers.add(at, bits_of(value));
}

// The case without holes. Returns false where there is one.
template <class T>
bool prequant_plain(const T* field, const Quantiser<T>& quantiser, Tile<T>& tile) {
    using Int = typename Traits<T>::Int;
    const std::uint32_t n = tile.box.edge[0], rows = tile.box.rows();
    const Int anchor = quantise(field[tile.box.offset], quantiser).q;
    for (std::uint32_t r = 0; r < rows; ++r) {
        const T* values = field + tile.row_offset(r);
        Int* u = tile.row(r);
        u[-1] = 0;
        if (quantise_row(values, n, quantiser, anchor, u)) continue;
        for (std::uint32_t x = 0; x < n; ++x) {
            Quantised<T> v = quantise(values[x], quantiser);
            if (!v.in_range || bits_of(values[x]) == quantiser.special) return false;
            if (v.predicted) continue;
            settle_miss(values[x], quantiser, r * n + x, v.q, tile);
            if (r == 0 && x == 0 && v.q != anchor) return false; // the anchor itself has moved
            u[x] = v.q - anchor;
        }
    }
    tile.anchor = anchor;
    return true;
}

// What a row holds besides predicted values.
struct RowFlags {
    bool special, hole_outlier, miss;
};

// Quantises a row to u = q and marks its holes.
template <class T>
RowFlags quantise_row_with_holes(const T* values, std::uint32_t n, const Quantiser<T> quantiser,
                                 typename Traits<T>::Int* u, std::uint8_t* hole) {
    using Int = typename Traits<T>::Int;
    using Bits = typename Traits<T>::Bits;
    constexpr T rounder = Traits<T>::rounder;
    Bits any_special = 0, any_out = 0, any_miss = 0;
    Bits mark[max_tile_values]; // of the width of T, so that the loop is one of vectors
    for (std::uint32_t x = 0; x < n; ++x) {
        // as in quantise_row
        const T value = values[x], scaled = value * quantiser.inv, shifted = scaled + rounder;
        const T back = (shifted - rounder) * quantiser.step;
        u[x] = static_cast<Int>(bits_of(shifted) - bits_of(rounder));
        const Bits special = bits_of(value) == quantiser.special ? Bits{1} : Bits{0};
        const Bits out = std::abs(scaled) <= Traits<T>::quantum_limit ? Bits{0} : Bits{1};
        const Bits missed = std::abs(value - back) <= quantiser.e ? Bits{0} : Bits{1};
        mark[x] = special | out;
        any_special |= special;
        any_out |= out & (special ^ 1);
        any_miss |= missed & ((special | out) ^ 1);
    }
    for (std::uint32_t x = 0; x < n; ++x) hole[x] = static_cast<std::uint8_t>(mark[x]);
    return {any_special != 0, any_out != 0, any_miss != 0};
}

// The general case. Returns false if every value is special.
template <class T>
bool prequant_holes(const T* field, const Quantiser<T>& quantiser, Tile<T>& tile) {
    using Int = typename Traits<T>::Int;
    const std::uint32_t n = tile.box.edge[0], rows = tile.box.rows();
    tile.value_outliers.count = 0;
    tile.has_holes = false;
    for (std::uint32_t r = 0; r < rows; ++r) {
        const T* values = field + tile.row_offset(r);
        Int* u = tile.row(r);
        u[-1] = 0;
        std::uint8_t* hole = tile.hole + r * n;
        const RowFlags flags = quantise_row_with_holes(values, n, quantiser, u, hole);
        tile.has_holes = tile.has_holes || flags.special || flags.hole_outlier;
        if (!flags.hole_outlier && !flags.miss) continue;
        for (std::uint32_t x = 0; x < n; ++x) {
            if (hole[x] == 0 && !quantise(values[x], quantiser).predicted)
                settle_miss(values[x], quantiser, r * n + x, u[x], tile);
            else if (hole[x] != 0 && bits_of(values[x]) != quantiser.special)
                tile.value_outliers.add(r * n + x, bits_of(values[x]));
        }
    }

    const std::uint32_t n_values = tile.n_values();
    const auto* valid = static_cast<const std::uint8_t*>(std::memchr(tile.hole, 0, n_values));
    if (valid == nullptr && tile.value_outliers.count == 0) return false;
    const auto first = valid == nullptr ? 0 : static_cast<std::uint32_t>(valid - tile.hole);
    tile.anchor = valid == nullptr ? 0 : tile.row(first / n)[first % n];

    for (std::uint32_t r = 0; r < rows; ++r) {
        Int* u = tile.row(r);
        const std::uint8_t* hole = tile.hole + r * n;
        const std::uint32_t previous = Neighbours(tile.box.edge, r).previous;
        Int carried = previous != Neighbours::none ? tile.row(previous)[0] : 0;
        for (std::uint32_t x = 0; x < n; ++x) // |q| is limited where it counts: no overflow
            u[x] = carried = hole[x] != 0 ? carried : u[x] - tile.anchor;
    }
    return true;
}

// The four rows around row r, for differences of up to three axes.
template <class T>
struct Rows {
    using Int = typename Traits<T>::Int;
    const Int *own, *y, *previous, *z, *zy;

    Rows(Tile<T>& tile, std::uint32_t r) {
        const Neighbours at(tile.box.edge, r);
        const auto row = [&](std::uint32_t number) {
            return number == Neighbours::none ? tile.zeros + 1 : tile.row(number);
        };
        own = tile.row(r);
        y = row(at.y);
        previous = row(at.previous);
        z = row(at.z);
        zy = row(at.zy);
    }
};

// Deltas of one row (docs/format.md, section 5), modulo the width of Int. `use` gets (x, delta).
template <class T, std::uint32_t order, class Use>
void row_deltas(const Rows<T>& rows, std::uint32_t n, const Use& use) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    const auto along_x = [](const Int* row, std::uint32_t x) {
        return static_cast<U>(row[x]) - static_cast<U>(row[static_cast<std::int64_t>(x) - 1]);
    };
    if constexpr (order == 0) {
        for (std::uint32_t x = 0; x < n; ++x) use(x, rows.own[x]);
    } else if constexpr (order == 1) {
        use(0, static_cast<Int>(static_cast<U>(rows.own[0]) - static_cast<U>(rows.previous[0])));
        for (std::uint32_t x = 1; x < n; ++x) use(x, static_cast<Int>(along_x(rows.own, x)));
    } else if constexpr (order == 2) {
        for (std::uint32_t x = 0; x < n; ++x)
            use(x, static_cast<Int>(along_x(rows.own, x) - along_x(rows.previous, x)));
    } else {
        for (std::uint32_t x = 0; x < n; ++x)
            use(x, static_cast<Int>(along_x(rows.own, x) - along_x(rows.y, x) -
                                    (along_x(rows.z, x) - along_x(rows.zy, x))));
    }
}

template <class Int>
std::uint32_t capped(Int delta) {
    using U = std::make_unsigned_t<Int>;
    const U magnitude = delta < 0 ? U{0} - static_cast<U>(delta) : static_cast<U>(delta);
    return static_cast<std::uint32_t>(std::min<U>(magnitude, 512));
}

// Adds a row's cost for every order up to `highest`.
template <class T, std::uint32_t highest, bool holes>
void add_row_costs(const Rows<T>& rows, std::uint32_t n, const std::uint8_t* hole, std::uint32_t* cost) {
    const auto add = [&]<std::uint32_t order>() {
        std::uint32_t sum = 0;
        row_deltas<T, order>(rows, n,
                             [&](std::uint32_t x, auto delta) { sum += holes && hole[x] ? 0 : capped(delta); });
        cost[order] += sum;
    };
    add.template operator()<0>();
    add.template operator()<1>();
    if constexpr (highest >= 2) add.template operator()<2>();
    if constexpr (highest >= 3) add.template operator()<3>();
}

template <class T, std::uint32_t highest>
std::uint32_t cheapest_order(Tile<T>& tile) {
    const std::uint32_t n = tile.box.edge[0], n_rows = tile.box.rows();
    std::uint32_t cost[highest + 1] = {};
    // A quarter of the rows tells as well: at most 0.23% of ratio on any field tried.
    const std::uint32_t every = n_rows < 8 ? 1 : 4;
    for (std::uint32_t r = every / 2; r < n_rows; r += every) {
        if (tile.has_holes)
            add_row_costs<T, highest, true>(Rows<T>(tile, r), n, tile.hole + r * n, cost);
        else
            add_row_costs<T, highest, false>(Rows<T>(tile, r), n, nullptr, cost);
    }
    return static_cast<std::uint32_t>(std::min_element(cost, cost + highest + 1) - cost);
}

template <class T, std::uint32_t order>
void postquant_order(Tile<T>& tile, std::uint32_t reach) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    const std::uint32_t n = tile.box.edge[0], n_rows = tile.box.rows();
    for (std::uint32_t r = 0, at = 0; r < n_rows; ++r, at += n) {
        const Rows<T> rows(tile, r);
        std::int32_t* out = tile.delta + at;
        U beyond = 0;
        row_deltas<T, order>(rows, n, [&](std::uint32_t x, Int delta) {
            out[x] = static_cast<std::int32_t>(delta);
            beyond |= static_cast<U>(delta) + (reach - 1) > 2 * U{reach} - 2 ? U{1} : U{0};
        });
        if (beyond != 0)
            row_deltas<T, order>(rows, n, [&](std::uint32_t x, Int delta) {
                if (static_cast<U>(delta) + (reach - 1) <= 2 * U{reach} - 2 || (tile.has_holes && tile.hole[at + x]))
                    return;
                tile.delta_outliers.add(at + x, delta);
                out[x] = outlier_mark;
            });
    }
    if (tile.has_holes)
        for (std::uint32_t at = 0; at < tile.n_values(); ++at)
            if (tile.hole[at]) tile.delta[at] = hole_delta;
}

// Turns tile.delta into A_1, the differences along x (docs/format.md, section 5), row by row, and sums them up.
// A hole is where its predecessor is: A_1 = 0 there, or at x = 0 that of the previous row.
template <class T, std::uint32_t order, bool holes>
void reverse_order(Tile<T>& tile, T step, typename Traits<T>::Bits special, T* field) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    const std::uint32_t n = tile.box.edge[0], n_rows = tile.box.rows();
    const Int* zeros = tile.zeros;
    Int quantised[max_tile_values]; // of a row
    // Differences along x, row after row without padding; the delta outliers of the tile are in it already.
    Int* along_x = tile.padded;
    for (std::uint32_t r = 0; r < n_rows; ++r) {
        const Neighbours at(tile.box.edge, r);
        const auto row = [&](std::uint32_t number) {
            return number == Neighbours::none ? zeros : along_x + number * n;
        };
        Int* own = along_x + r * n;
        const Int *y = row(at.y), *previous = row(at.previous), *z = row(at.z), *zy = row(at.zy);
        const auto sum = [](auto... terms) { return static_cast<Int>((static_cast<U>(terms) + ...)); };
        if constexpr (order == 1) {
            own[0] = sum(own[0], previous[0]);
        } else if constexpr (order == 2) {
            for (std::uint32_t x = 0; x < n; ++x) own[x] = sum(own[x], previous[x]);
        } else if constexpr (order == 3) {
            for (std::uint32_t x = 0; x < n; ++x) own[x] = sum(own[x], y[x], z[x], U{0} - static_cast<U>(zy[x]));
        }
        if constexpr (holes) {
            const std::uint8_t* hole = tile.hole + r * n;
            if (hole[0]) own[0] = previous[0];
            if constexpr (order > 0)
                for (std::uint32_t x = 1; x < n; ++x) own[x] = hole[x] ? 0 : own[x];
        }
        T* values = field + tile.row_offset(r);
        const U anchor = static_cast<U>(tile.anchor);
        if constexpr (order == 0) {
            for (std::uint32_t x = 0; x < n; ++x)
                values[x] = dequantise<T>(static_cast<Int>(anchor + static_cast<U>(own[x])), step);
        } else {
            U q = anchor;
            for (std::uint32_t x = 0; x < n; ++x) quantised[x] = static_cast<Int>(q += static_cast<U>(own[x]));
            for (std::uint32_t x = 0; x < n; ++x) values[x] = dequantise<T>(quantised[x], step);
        }
        if constexpr (holes) {
            const std::uint8_t* hole = tile.hole + r * n;
            for (std::uint32_t x = 0; x < n; ++x)
                if (hole[x]) std::memcpy(values + x, &special, sizeof(T));
        }
    }
}

// Field to tile.padded, anchor, holes and value outliers. Returns false if every value is special.
template <class T>
bool prequant(const T* field, const Quantiser<T>& quantiser, Tile<T>& tile) {
    return prequant_plain(field, quantiser, tile) || prequant_holes(field, quantiser, tile);
}

// The Lorenzo order of least cost among 0 to `highest`; ties go to the lower one.
template <class T>
std::uint32_t choose_order(Tile<T>& tile, std::uint32_t highest) {
    return highest == 1   ? cheapest_order<T, 1>(tile)
           : highest == 2 ? cheapest_order<T, 2>(tile)
                          : cheapest_order<T, 3>(tile);
}

// tile.padded to tile.delta and delta outliers. Deltas of magnitude `reach` or more are outliers.
template <class T>
void postquant(Tile<T>& tile, std::uint32_t order, std::uint32_t reach) {
    switch (order) {
    case 0: return postquant_order<T, 0>(tile, reach);
    case 1: return postquant_order<T, 1>(tile, reach);
    case 2: return postquant_order<T, 2>(tile, reach);
    default: return postquant_order<T, 3>(tile, reach);
    }
}

// The reverse: tile.delta (hole_delta at holes), delta outliers and anchor to the field's values, the special pattern
// at holes. Value outliers are patched by the caller.
template <class T>
void reverse(Tile<T>& tile, std::uint32_t order, T step, typename Traits<T>::Bits special, T* field) {
    const std::uint32_t n = tile.n_values();
    for (std::uint32_t at = 0; at < n; ++at) tile.padded[at] = tile.delta[at];
    for (std::uint32_t i = 0; i < tile.delta_outliers.count; ++i)
        tile.padded[tile.delta_outliers.position[i]] = tile.delta_outliers.value[i];
    if (tile.has_holes)
        for (std::uint32_t at = 0; at < n; ++at) tile.hole[at] = tile.delta[at] == hole_delta;
    const auto run = [&]<std::uint32_t k>() {
        return tile.has_holes ? reverse_order<T, k, true>(tile, step, special, field)
                              : reverse_order<T, k, false>(tile, step, special, field);
    };
    switch (order) {
    case 0: return run.template operator()<0>();
    case 1: return run.template operator()<1>();
    case 2: return run.template operator()<2>();
    default: return run.template operator()<3>();
    }
}

} // namespace cusz::cpu::CUSZ_ISA
