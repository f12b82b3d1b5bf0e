// The range of a field's values, to which a relative bound refers (docs/reference/format.md, section 4).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "codec/backend.hpp"
#include "codec/lorenzo/cpu/rows.hpp"
#include "simd/isa.hpp"

namespace cusz::cpu::CUSZ_ISA {

// One minimum, maximum and count per lane, so that loops vectorise. plain: assumes that there are no infinities, and
// that the special pattern is a NaN.
template <class T, bool plain>
struct RangeLanes {
    using Bits = typename Traits<T>::Bits;
    static constexpr std::size_t number = 64 / sizeof(T) * 2;
    static constexpr T infinity = std::numeric_limits<T>::infinity();
    T low[number], high[number];
    Bits valid[number];

    RangeLanes() {
        std::fill_n(low, number, infinity);
        std::fill_n(high, number, -infinity);
        std::fill_n(valid, number, 0);
    }

    void take(T value, std::size_t lane, Bits special) {
        const bool is_finite = std::abs(value) < infinity, is_usual = bits_of(value) != special;
        const bool counts = plain ? value == value : is_finite & is_usual;
        const T a = plain || counts ? value : infinity, b = plain || counts ? value : -infinity;
        low[lane] = a < low[lane] ? a : low[lane]; // not if it is NaN
        high[lane] = b > high[lane] ? b : high[lane];
        valid[lane] += counts ? 1 : 0;
    }

    // ahead: how far to prefetch, in bytes.
    template <std::size_t ahead>
    void take_row(const T* values, std::uint64_t n, Bits special) {
        const std::uint64_t in_lanes = n - n % number;
        for (std::uint64_t i = 0; i < in_lanes; i += number) {
            for (std::size_t line = 0; ahead > 0 && line < number * sizeof(T); line += 64)
                __builtin_prefetch(reinterpret_cast<const char*>(values + i) + ahead + line);
            for (std::size_t lane = 0; lane < number; ++lane) take(values[i + lane], lane, special);
        }
        for (std::uint64_t i = in_lanes; i < n; ++i) take(values[i], i - in_lanes, special);
    }

    ValueRange range() const {
        const auto n_valid = std::accumulate(valid, valid + number, std::uint64_t{0});
        if (n_valid == 0) return {};
        // + 0.0 turns -0 into +0
        return {static_cast<double>(*std::min_element(low, low + number)) + 0.0,
                static_cast<double>(*std::max_element(high, high + number)) + 0.0, n_valid};
    }
};

// take(lanes): feeds all values to the lanes.
template <class T, class Take>
ValueRange range_by_lanes(typename Traits<T>::Bits special, const Take& take) {
    if (std::isnan(std::bit_cast<T>(special))) {
        RangeLanes<T, true> lanes;
        take(lanes);
        const ValueRange range = lanes.range();
        if (std::isfinite(range.min) && std::isfinite(range.max)) return range;
    }
    RangeLanes<T, false> lanes;
    take(lanes);
    return lanes.range();
}

template <class T>
ValueRange value_range(const T* field, std::uint64_t n, typename Traits<T>::Bits special) {
    constexpr std::size_t ahead = 2048; // further than the hardware prefetcher looks
    return range_by_lanes<T>(special, [&](auto& lanes) { lanes.template take_row<ahead>(field, n, special); });
}

template <class T>
ValueRange value_range_of_tile(const T* field, const TileBox& box, typename Traits<T>::Bits special) {
    return range_by_lanes<T>(special, [&](auto& lanes) {
        with_row_length(box.edge[0], [&](auto n) {
            for (RowWalk at(box); at.inside(); at.next()) lanes.template take_row<0>(field + at.offset, n, special);
        });
    });
}

} // namespace cusz::cpu::CUSZ_ISA
