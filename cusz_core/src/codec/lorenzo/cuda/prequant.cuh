// Prequantisation: a thread block turns a tile's values into integers, and integers into values (paper, sections 3.1.2
// and 3.3). docs/reference/format.md, section 4.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "tile.cuh"

namespace cusz::cuda {

template <class T>
__device__ T dequantise(typename Traits<T>::Int q, T step) {
    if constexpr (sizeof(T) == 4) {
        return static_cast<T>(q) * step;
    } else { // exact for |q| <= 2^51, and cheaper than the conversion
        const T shifted = std::bit_cast<T>(bits_of(Traits<T>::rounder) + static_cast<std::uint64_t>(q));
        return (shifted - Traits<T>::rounder) * step;
    }
}

// Quantises one value (docs/reference/format.md, section 4).
template <class T>
struct Quantised {
    typename Traits<T>::Int q;
    bool missing, special, missed;
};

template <class T>
__device__ Quantised<T> quantise(T value, const Quantiser<T>& quantiser) {
    using Int = typename Traits<T>::Int;
    constexpr T rounder = Traits<T>::rounder, limit = Traits<T>::quantum_limit;
    const T scaled = value * quantiser.inv, shifted = scaled + rounder;
    const T back = (shifted - rounder) * quantiser.step;
    Quantised<T> v;
    v.q = static_cast<Int>(bits_of(shifted) - bits_of(rounder)); // wraps: it may be far out of range
    v.special = bits_of(value) == quantiser.special;
    v.missing = v.special || !(magnitude(scaled) <= limit);
    v.missed = !v.missing && !(magnitude(value - back) <= quantiser.e);
    if (v.missed) { // the neighbouring d' may be within the bound
        const Int other = value > dequantise<T>(v.q, quantiser.step) ? v.q + 1 : v.q - 1;
        if (magnitude(static_cast<T>(other)) <= limit &&
            magnitude(value - dequantise<T>(other, quantiser.step)) <= quantiser.e) {
            v.q = other;
            v.missed = false;
        }
    }
    return v;
}

// The position from which a missing value takes its q, or nowhere. The search goes back along the row and then from row
// to row (docs/reference/format.md, section 4).
inline constexpr std::uint32_t nowhere = UINT32_MAX;

template <class T>
__device__ std::uint32_t source_of_missing(const TileMemory<T>& tile, std::uint32_t position) {
    const auto& edge = tile.box.edge;
    for (std::uint32_t row = position / edge[0];;) {
        const std::uint32_t begin = row * edge[0];
        // The last position in the row, up to `position`, that is not missing; word by word.
        for (std::uint32_t end = position + 1; end > begin;) { // [.., end) remains to be searched
            const std::uint32_t at = (end - 1) / 32, first = std::max(begin, at * 32);
            std::uint32_t valid = ~tile.missing.word[at];
            valid &= whole_warp >> (31 - (end - 1) % 32);
            valid &= whole_warp << first % 32;
            if (valid != 0) return at * 32 + 31 - static_cast<std::uint32_t>(__clz(static_cast<int>(valid)));
            end = first;
        }
        const std::uint32_t y = row % edge[1], z = row / edge[1] % edge[2], w = row / edge[1] / edge[2];
        if (y > 0)
            row -= 1;
        else if (z > 0)
            row -= edge[1];
        else if (w > 0)
            row -= edge[1] * edge[2];
        else
            return nowhere;
        position = row * edge[0];
    }
}

// The result of prequant(), the same for every thread.
struct Prequantised {
    bool has_missing, all_special;
};

// From the field to tile.value (u = q - anchor), anchor, missing and unpredictable values. Ends with a barrier.
template <class T>
__device__ Prequantised prequant(const T* field, const Quantiser<T>& quantiser, TileMemory<T>& tile) {
    using Int = typename Traits<T>::Int;
    using U = typename Traits<T>::Bits;
    const std::uint32_t n = tile.box.values();
    bool any_missing = false, all_special = true;
    {
        Positions at(tile.box);
        constexpr std::uint32_t at_once = 8; // loads in flight, to hide memory latency
#pragma unroll
        for (std::uint32_t k = 0; k < values_of_thread; k += at_once) {
            T value[at_once];
            Positions ahead = at;
#pragma unroll
            for (std::uint32_t i = 0; i < at_once; ++i, ahead.next())
                value[i] = ahead.inside() ? field[ahead.offset(tile.box)] : T{0};
#pragma unroll
            for (std::uint32_t i = 0; i < at_once; ++i, at.next()) {
                Quantised<T> v{0, false, true, false};
                if (at.inside()) {
                    v = quantise(value[i], quantiser);
                    tile.value[at.at] = v.q;
                }
                any_missing = any_missing || v.missing;
                all_special = all_special && v.special;
                const std::uint32_t missing_bits = __ballot_sync(whole_warp, v.missing);
                const std::uint32_t outliers = __ballot_sync(whole_warp, v.missed || (v.missing && !v.special));
                if (lane() == 0) {
                    tile.missing.word[at.at / 32] = missing_bits;
                    tile.unpredictable.word[at.at / 32] = outliers;
                }
            }
        }
    }
    const Prequantised found{__syncthreads_or(any_missing) != 0, __syncthreads_and(all_special) != 0};
    if (found.all_special) return found;

    // The anchor is the q of the first value that is not missing.
    std::uint32_t first = 0;
    if (found.has_missing)
        while (first < n && tile.missing.test(first)) {
            const std::uint32_t valid = ~tile.missing.word[first / 32] >> first % 32;
            first += valid != 0 ? static_cast<std::uint32_t>(__ffs(static_cast<int>(valid))) - 1 : 32 - first % 32;
        }
    const Int anchor = first < n ? tile.value[first] : 0;
    if (found.has_missing) {
        std::uint32_t at = warp() * values_of_warp + lane();
        for (std::uint32_t k = 0; k < values_of_thread; ++k, at += warp_lanes) {
            if (at >= n || !tile.missing.test(at)) continue;
            const std::uint32_t source = source_of_missing(tile, at); // not missing, so no thread writes it here
            tile.value[at] = source == nowhere ? anchor : tile.value[source];
        }
    }
    __syncthreads();
    if (is_first_thread()) tile.anchor = anchor;
    std::uint32_t at = warp() * values_of_warp + lane();
#pragma unroll
    for (std::uint32_t k = 0; k < values_of_thread; ++k, at += warp_lanes)
        if (at < n) tile.value[at] = static_cast<Int>(static_cast<U>(tile.value[at]) - static_cast<U>(anchor));
    __syncthreads();
    return found;
}

// Replaces tile.value at every position with the result of `next`. Ends with a barrier.
template <class T, class Next>
__device__ void replace_values(TileMemory<T>& tile, const Next& next) {
    typename Traits<T>::Int made[values_of_thread];
    {
        Positions at(tile.box);
#pragma unroll
        for (std::uint32_t k = 0; k < values_of_thread; ++k, at.next())
            if (at.inside()) made[k] = next(at);
    }
    __syncthreads();
    std::uint32_t at = warp() * values_of_warp + lane();
#pragma unroll
    for (std::uint32_t k = 0; k < values_of_thread; ++k, at += warp_lanes)
        if (at < tile.box.values()) tile.value[at] = made[k];
    __syncthreads();
}

// The result of prediction, the same for every thread.
struct Predicted {
    bool plain;                                       // as in QuantisedColumns; false for a tile of any shape
    bool all_special, has_missing, has_unpredictable; // has_unpredictable: some may be
    std::uint32_t predictor;
};

} // namespace cusz::cuda
