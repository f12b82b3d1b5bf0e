// Prequantisation (paper, sections 3.1.2 and 3.3): values to integers and back, and how a tile stores its codes.
// docs/reference/format.md, section 4.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/cpu/kernels.hpp"
#include "rows.hpp"
#include "simd/isa.hpp"
#include "simd/vector.hpp"
#include "tile.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Stands in tile.code for an out-of-range code until the significance masks have been found (it is not 0).
inline constexpr std::int32_t outlier_mark = missing_code - 1;

// Quantises one value, following docs/reference/format.md, section 4, step by step.
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
    const auto q = static_cast<Int>(bits_of(shifted) - bits_of(rounder)); // wraps: it may be far out of range
    return {q, std::abs(scaled) <= Traits<T>::quantum_limit, std::abs(value - back) <= quantiser.e};
}

template <class T>
T dequantise(typename Traits<T>::Int q, T step) {
    if constexpr (sizeof(T) == 4) {
        return static_cast<T>(q) * step;
    } else { // exact for |q| <= 2^51, and vectorises everywhere
        const T shifted = std::bit_cast<T>(bits_of(Traits<T>::rounder) + static_cast<std::uint64_t>(q));
        return (shifted - Traits<T>::rounder) * step;
    }
}

// Quantises a row, assuming that every value is predicted and none is special: the case that has to be fast. Returns
// false if the assumption does not hold.
template <class T, class Length>
bool quantise_row(const T* values, Length n, const Quantiser<T> quantiser, typename Traits<T>::Int anchor,
                  typename Traits<T>::Int* u) {
    using Int = typename Traits<T>::Int;
    using Bits = typename Traits<T>::Bits;
    constexpr T rounder = Traits<T>::rounder;
    const Bits zero = bits_of(rounder) + static_cast<Bits>(anchor); // the bits of the anchor after the shift
    Bits bad = 0;
    std::uint32_t x = 0;
#ifdef __AVX512F__
    using V = Vector<T>; // by hand: compilers copy mask registers to vectors and back
    typename V::Mask marked = 0;
    for (; x + V::lanes <= n; x += V::lanes) {
        const auto value = V::load_values(values + x), scaled = value * quantiser.inv, shifted = scaled + rounder;
        const auto back = (shifted - rounder) * quantiser.step;
        V::store(u + x, V::bits(shifted) - zero);
        marked |= V::beyond(scaled, Traits<T>::quantum_limit) | V::beyond(value - back, quantiser.e) |
                  V::equal(V::bits(value), quantiser.special);
    }
    bad = marked;
#endif
    for (; x < n; ++x) {
        // quantise(), in a form that compilers vectorise
        const T value = values[x], scaled = value * quantiser.inv, shifted = scaled + rounder;
        const T back = (shifted - rounder) * quantiser.step;
        u[x] = static_cast<Int>(std::bit_cast<Bits>(shifted) - zero);
        bad |= (std::abs(scaled) <= Traits<T>::quantum_limit ? Bits{0} : Bits{1}) |
               (std::abs(value - back) <= quantiser.e ? Bits{0} : Bits{1}) |
               (bits_of(value) != quantiser.special ? Bits{0} : Bits{1});
    }
    return bad == 0;
}

// Handles a value that is not predicted with its first q. If the neighbouring q satisfies the bound, as it may near a
// rounding tie, the value takes that; otherwise it is unpredictable and keeps its first q.
template <class T>
void resolve_miss(T value, const Quantiser<T>& quantiser, std::uint32_t at, typename Traits<T>::Int& q, Tile<T>& tile) {
    const auto other = value > dequantise<T>(q, quantiser.step) ? q + 1 : q - 1;
    if (std::abs(static_cast<T>(other)) <= Traits<T>::quantum_limit &&
        std::abs(value - dequantise<T>(other, quantiser.step)) <= quantiser.e)
        q = other;
    else
        tile.unpredictable.add(at, bits_of(value));
}

// The case without missing values. Returns false if there is one, or if the first value does not keep its first q.
template <class T, class Length>
bool prequant_plain(const T* field, const Quantiser<T>& quantiser, Tile<T>& tile, Length n) {
    using Int = typename Traits<T>::Int;
    const Int anchor = quantise(field[tile.box.offset], quantiser).q;
    Prefetch<T, 0> prefetch(field, tile.prefetched);
    for (RowWalk at(tile.box); at.inside(); at.next()) {
        const T* values = field + at.offset;
        Int* u = tile.row(at.row);
        u[-1] = 0;
        prefetch.row();
        if (quantise_row(values, n, quantiser, anchor, u)) continue;
        for (std::uint32_t x = 0; x < n; ++x) {
            Quantised<T> v = quantise(values[x], quantiser);
            if (!v.in_range || bits_of(values[x]) == quantiser.special) return false;
            if (v.predicted) continue;
            resolve_miss(values[x], quantiser, at.row * n + x, v.q, tile);
            if (at.row == 0 && x == 0 && v.q != anchor) return false; // the anchor itself has changed
            u[x] = v.q - anchor;
        }
    }
    tile.anchor = anchor;
    return true;
}

inline bool has_missing(const std::uint8_t* missing, std::uint32_t n) { return std::memchr(missing, 1, n) != nullptr; }

// What a row contains besides predicted values.
struct RowFlags {
    bool special, out_of_limit, miss;
};

// Quantises a row to u = q and marks its missing values.
template <class T, class Length>
RowFlags quantise_row_with_missing(const T* values, Length n, const Quantiser<T> quantiser, typename Traits<T>::Int* u,
                                   std::uint8_t* missing) {
    using Int = typename Traits<T>::Int;
    using Bits = typename Traits<T>::Bits;
    constexpr T rounder = Traits<T>::rounder;
    Bits any_special = 0, any_out = 0, any_unpredictable = 0;
    Bits mark[max_tile_values]; // as wide as T, so that the loop vectorises
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
        any_unpredictable |= missed & ((special | out) ^ 1);
    }
    for (std::uint32_t x = 0; x < n; ++x) missing[x] = static_cast<std::uint8_t>(mark[x]);
    return {any_special != 0, any_out != 0, any_unpredictable != 0};
}

// The general case. Returns false if every value is special.
template <class T>
bool prequant_with_missing(const T* field, const Quantiser<T>& quantiser, Tile<T>& tile) {
    using Int = typename Traits<T>::Int;
    const std::uint32_t n = tile.box.edge[0];
    tile.unpredictable.count = 0;
    tile.has_missing = false;
    for (RowWalk at(tile.box); at.inside(); at.next()) {
        const std::uint32_t r = at.row;
        const T* values = field + at.offset;
        Int* u = tile.row(r);
        u[-1] = 0;
        std::uint8_t* missing = tile.missing + r * n;
        const RowFlags flags = with_row_length(
            n, [&](auto length) { return quantise_row_with_missing(values, length, quantiser, u, missing); });
        tile.has_missing = tile.has_missing || flags.special || flags.out_of_limit;
        if (!flags.out_of_limit && !flags.miss) continue;
        for (std::uint32_t x = 0; x < n; ++x) {
            if (missing[x] == 0 && !quantise(values[x], quantiser).predicted)
                resolve_miss(values[x], quantiser, r * n + x, u[x], tile);
            else if (missing[x] != 0 && bits_of(values[x]) != quantiser.special)
                tile.unpredictable.add(r * n + x, bits_of(values[x]));
        }
    }

    const std::uint32_t n_values = tile.n_values();
    const auto* valid = static_cast<const std::uint8_t*>(std::memchr(tile.missing, 0, n_values));
    if (valid == nullptr && tile.unpredictable.count == 0) return false;
    const auto first = valid == nullptr ? 0 : static_cast<std::uint32_t>(valid - tile.missing);
    tile.anchor = valid == nullptr ? 0 : tile.row(first / n)[first % n];

    for (RowWalk at(tile.box); at.inside(); at.next()) {
        Int* u = tile.row(at.row);
        const std::uint8_t* missing = tile.missing + at.row * n;
        if (!has_missing(missing, n)) {
            for (std::uint32_t x = 0; x < n; ++x) u[x] -= tile.anchor;
            continue;
        }
        const std::uint32_t previous = Neighbours(at).previous;
        Int carried = previous != Neighbours::none ? tile.row(previous)[0] : 0;
        for (std::uint32_t x = 0; x < n; ++x) // |q| is limited wherever it is used: no overflow
            u[x] = carried = missing[x] != 0 ? carried : u[x] - tile.anchor;
    }
    return true;
}

// From the field to tile.padded, anchor, missing and unpredictable values. Returns false if every value is special.
template <class T>
bool prequant(const T* field, const Quantiser<T>& quantiser, Tile<T>& tile) {
    return with_row_length(tile.box.edge[0], [&](auto n) { return prequant_plain(field, quantiser, tile, n); }) ||
           prequant_with_missing(field, quantiser, tile);
}

// Stores a row's codes in tile.code, and those of magnitude `reach` or more as out-of-range codes. each(f) calls f(x,
// code) for every code of the row.
template <class T, class Each>
void keep_row(Tile<T>& tile, std::uint32_t at, std::uint32_t reach, const Each& each) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    std::int32_t* const out = tile.code + at;
    U beyond = 0;
    each([&](std::uint32_t x, Int code) {
        out[x] = static_cast<std::int32_t>(code);
        beyond |= static_cast<U>(code) + (reach - 1) > 2 * U{reach} - 2 ? U{1} : U{0};
    });
    if (beyond == 0) return;
    each([&](std::uint32_t x, Int code) {
        if (static_cast<U>(code) + (reach - 1) <= 2 * U{reach} - 2 || (tile.has_missing && tile.missing[at + x]))
            return;
        tile.out_of_range.add(at + x, code);
        out[x] = outlier_mark;
    });
}

// Stores missing_code where values are missing. Call it once all codes are stored.
template <class T>
void mark_missing(Tile<T>& tile) {
    if (!tile.has_missing) return;
    const std::uint32_t n_values = tile.n_values();
    // Without a branch: with one, GCC 12 at -O1 (the emulator's build) treats the function as free of side effects.
    for (std::uint32_t at = 0; at < n_values; ++at) tile.code[at] = tile.missing[at] ? missing_code : tile.code[at];
}

// The reverse: widens a tile's codes, inserts those out of range, and sets tile.missing from missing_code.
template <class T>
void widen_codes(Tile<T>& tile, typename Traits<T>::Int* codes) {
    const std::uint32_t n_values = tile.n_values();
    for (std::uint32_t at = 0; at < n_values; ++at) codes[at] = tile.code[at];
    for (std::uint32_t i = 0; i < tile.out_of_range.count; ++i)
        codes[tile.out_of_range.position[i]] = tile.out_of_range.value[i];
    if (!tile.has_missing) return;
    for (std::uint32_t at = 0; at < n_values; ++at) tile.missing[at] = tile.code[at] == missing_code;
}

} // namespace cusz::cpu::CUSZ_ISA
