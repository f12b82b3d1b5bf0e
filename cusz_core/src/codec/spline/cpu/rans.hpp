// rANS of a unit in up to 32 lanes (section 8): a step codes one symbol in each lane, so lanes are those of vectors.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "archive/v2/frame.hpp"
#include "simd/isa.hpp"
#include "tables.hpp"

namespace cusz::cpu::CUSZ_ISA {

using v2::max_lanes;
using v2::rans_bits;
using v2::rans_low;
using v2::rans_total;

// Entries that begin with lane 0. first: a multiple of max_lanes.
struct UnitRun {
    std::uint32_t first, n;
    std::uint32_t end_of_room() const { return first + (n + max_lanes - 1) / max_lanes * max_lanes; }
};

#if defined(__AVX2__) && !defined(__AVX512F__)
// How the lanes of a vector that have a bit give their words to the end of another one, in order, and take words from
// the beginning of one.
struct LaneMoves {
    alignas(32) std::int32_t give[256][8]{}, take[256][8]{};
    constexpr LaneMoves() {
        for (std::uint32_t lanes = 0; lanes < 256; ++lanes) {
            const int n = std::popcount(lanes);
            for (int lane = 0, word = 0; lane < 8; ++lane) {
                if ((lanes >> lane & 1) == 0) continue;
                give[lanes][8 - n + word] = lane;
                take[lanes][lane] = word++;
            }
        }
    }
};
inline constexpr LaneMoves lane_moves{};
#endif

// States of lanes, as many as a vector has, or one after the other.
class LaneStates {
public:
#if defined(__AVX512F__)
    using States = __m512i;
#elif defined(__AVX2__)
    using States = __m256i;
#else
    using States = std::uint32_t;
#endif
    static constexpr std::uint32_t n = sizeof(States) / sizeof(std::uint32_t);

    explicit LaneStates(const std::uint32_t* states) {
#if defined(__AVX512F__)
        x_ = _mm512_loadu_si512(states);
#elif defined(__AVX2__)
        x_ = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(states));
#else
        x_ = *states;
#endif
    }
    void store(std::uint32_t* to) const { std::memcpy(to, &x_, sizeof x_); }

    // Codes an entry in each lane. Words go before `words`, which is moved; up to n of them are written over.
    [[gnu::always_inline]] void encode(const UnitTables& tables, const std::uint16_t* entry, std::uint16_t*& words) {
#if defined(__AVX512F__)
        const __m512i interval = loaded(tables.interval.data(), [=](std::size_t i) { return std::uint32_t{entry[i]}; });
        const __m512i frequency = _mm512_srli_epi32(interval, 16),
                      start = _mm512_and_si512(interval, _mm512_set1_epi32(0xFFFF));
        const __mmask16 full = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(x_, 20), frequency);
        words -= std::popcount(static_cast<std::uint32_t>(full));
        const auto given = static_cast<__mmask16>((1u << std::popcount(static_cast<std::uint32_t>(full))) - 1);
        _mm512_mask_cvtepi32_storeu_epi16(words, given, _mm512_maskz_compress_epi32(full, x_));
        x_ = _mm512_mask_srli_epi32(x_, full, x_, 16);
        // Quotients are below 2^20, so rounded down at each step they are right or one too small.
        constexpr int down = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
        const __m512i quotient = _mm512_cvttps_epu32(
            _mm512_div_round_ps(_mm512_cvt_roundepu32_ps(x_, down), _mm512_cvtepi32_ps(frequency), down));
        const __m512i rest = _mm512_sub_epi32(x_, _mm512_mullo_epi32(quotient, frequency));
        const __mmask16 too_small = _mm512_cmpge_epu32_mask(rest, frequency);
        const __m512i next = _mm512_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(quotient, rans_bits), rest), start);
        x_ = _mm512_mask_add_epi32(next, too_small, next, _mm512_sub_epi32(_mm512_set1_epi32(rans_total), frequency));
#elif defined(__AVX2__)
        const __m256i interval = loaded(tables.interval.data(), [=](std::size_t i) { return std::uint32_t{entry[i]}; });
        const __m256i low_half = _mm256_set1_epi32(0xFFFF), frequency = _mm256_srli_epi32(interval, 16),
                      start = _mm256_and_si256(interval, low_half);
        const __m256i has_room = _mm256_cmpgt_epi32(frequency, _mm256_srli_epi32(x_, 20));
        const std::uint32_t full = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(has_room))) ^ 0xFF;
        const __m256i given = _mm256_permutevar8x32_epi32(
            _mm256_and_si256(x_, low_half), _mm256_load_si256(reinterpret_cast<const __m256i*>(lane_moves.give[full])));
        const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(given), _mm256_extracti128_si256(given, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(words - n), halves);
        words -= std::popcount(full);
        x_ = _mm256_blendv_epi8(_mm256_srli_epi32(x_, 16), x_, has_room);
        // Quotients are below 2^20, and off by less than a fourth before they are rounded down: right, or one too small
        // or too large.
        const __m256 high = _mm256_cvtepi32_ps(_mm256_srli_epi32(x_, 16)),
                     low = _mm256_cvtepi32_ps(_mm256_and_si256(x_, low_half)),
                     whole = _mm256_add_ps(_mm256_mul_ps(high, _mm256_set1_ps(65536)), low);
        const __m256i quotient = _mm256_cvttps_epi32(_mm256_div_ps(whole, _mm256_cvtepi32_ps(frequency)));
        const __m256i rest = _mm256_sub_epi32(x_, _mm256_mullo_epi32(quotient, frequency));
        const __m256i next = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(quotient, rans_bits), rest), start);
        const __m256i one_more = _mm256_sub_epi32(_mm256_set1_epi32(rans_total), frequency);
        const __m256i is_right = _mm256_cmpgt_epi32(frequency, rest), too_large = _mm256_srai_epi32(rest, 31);
        x_ = _mm256_sub_epi32(_mm256_add_epi32(next, _mm256_andnot_si256(is_right, one_more)),
                              _mm256_and_si256(too_large, one_more));
#else
        encode_one(tables, *entry, x_, words);
#endif
    }

    // Decodes a symbol of each lane's table. Up to n words are looked at.
    [[gnu::always_inline]] void decode(const UnitTables& tables, const std::uint8_t* table, std::uint8_t* symbol,
                                       const std::uint16_t*& words) {
#if defined(__AVX512F__)
        const __m512i of_lane = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
        alignas(64) std::uint32_t at[n];
        _mm512_store_si512(at, _mm512_or_si512(_mm512_slli_epi32(of_lane, rans_bits),
                                               _mm512_and_si512(x_, _mm512_set1_epi32(rans_total - 1))));
        const __m512i slot = loaded(tables.slot.data(), [&](std::size_t i) { return at[i]; });
        _mm_storeu_si128(reinterpret_cast<__m128i*>(symbol), _mm512_cvtepi32_epi8(slot));
        const __m512i frequency = _mm512_add_epi32(
            _mm512_and_si512(_mm512_srli_epi32(slot, 8), _mm512_set1_epi32(rans_total - 1)), _mm512_set1_epi32(1));
        const __m512i next = _mm512_add_epi32(_mm512_mullo_epi32(frequency, _mm512_srli_epi32(x_, rans_bits)),
                                              _mm512_srli_epi32(slot, 20));
        const __mmask16 empty = _mm512_cmplt_epu32_mask(next, _mm512_set1_epi32(rans_low));
        const __m512i given = _mm512_maskz_expand_epi32(
            empty, _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words))));
        x_ = _mm512_mask_or_epi32(next, empty, _mm512_slli_epi32(next, 16), given);
        words += std::popcount(static_cast<std::uint32_t>(empty));
#elif defined(__AVX2__)
        const __m256i of_lane = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(table)));
        alignas(32) std::uint32_t at[n];
        _mm256_store_si256(reinterpret_cast<__m256i*>(at),
                           _mm256_or_si256(_mm256_slli_epi32(of_lane, rans_bits),
                                           _mm256_and_si256(x_, _mm256_set1_epi32(rans_total - 1))));
        const __m256i slot = loaded(tables.slot.data(), [&](std::size_t i) { return at[i]; });
        const __m256i bytes = _mm256_and_si256(slot, _mm256_set1_epi32(0xFF));
        const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(symbol), _mm_packus_epi16(halves, halves));
        const __m256i frequency = _mm256_add_epi32(
            _mm256_and_si256(_mm256_srli_epi32(slot, 8), _mm256_set1_epi32(rans_total - 1)), _mm256_set1_epi32(1));
        const __m256i next = _mm256_add_epi32(_mm256_mullo_epi32(frequency, _mm256_srli_epi32(x_, rans_bits)),
                                              _mm256_srli_epi32(slot, 20));
        const __m256i empty = _mm256_cmpeq_epi32(_mm256_srli_epi32(next, 16), __m256i{});
        const auto lanes = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(empty)));
        const __m256i given =
            _mm256_permutevar8x32_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(words))),
                                        _mm256_load_si256(reinterpret_cast<const __m256i*>(lane_moves.take[lanes])));
        x_ = _mm256_blendv_epi8(next, _mm256_or_si256(_mm256_slli_epi32(next, 16), given), empty);
        words += std::popcount(lanes);
#else
        decode_one(tables, *table, *symbol, x_, words);
#endif
    }

    [[gnu::always_inline]] static void encode_one(const UnitTables& tables, std::uint16_t entry, std::uint32_t& x,
                                                  std::uint16_t*& words) {
        const std::uint32_t interval = tables.interval[entry], frequency = interval >> 16;
        if (x >> 20 >= frequency) {
            *--words = static_cast<std::uint16_t>(x);
            x >>= 16;
        }
        x = (x / frequency << rans_bits) + x % frequency + (interval & 0xFFFF);
    }
    [[gnu::always_inline]] static void decode_one(const UnitTables& tables, std::uint8_t table, std::uint8_t& symbol,
                                                  std::uint32_t& x, const std::uint16_t*& words) {
        const std::uint32_t slot = tables.slot[table * rans_total + x % rans_total];
        symbol = static_cast<std::uint8_t>(slot);
        advance(x, (slot >> 8 & (rans_total - 1)) + 1, slot >> 20, words);
    }
    // place: of the slot in the interval.
    [[gnu::always_inline]] static void advance(std::uint32_t& x, std::uint32_t frequency, std::uint32_t place,
                                               const std::uint16_t*& words) {
        x = frequency * (x >> rans_bits) + place;
        const bool empty = x < rans_low; // without a branch, which would be mispredicted
        x = empty ? x << 16 | *words : x;
        words += empty;
    }

private:
#ifdef __AVX2__
    // Numbers from a table, one by one, which is faster than a gather on Zen 4 and 5.
    template <class At>
    [[gnu::always_inline]] static States loaded(const std::uint32_t* from, const At& at) {
        const auto number = [&](std::size_t i) { return static_cast<int>(from[at(i)]); };
        const auto four = [&](std::size_t i) {
            return _mm_set_epi32(number(i + 3), number(i + 2), number(i + 1), number(i));
        };
        const __m256i eight = _mm256_set_m128i(four(4), four(0));
#ifdef __AVX512F__
        return _mm512_inserti64x4(_mm512_castsi256_si512(eight), _mm256_set_m128i(four(12), four(8)), 1);
#else
        return eight;
#endif
    }
#endif

    States x_;
};

// Codes the runs of a unit. Returns where states and words begin, which end at `end`; max_lanes words before them may be
// written over. Entries are filled up with idle ones.
inline std::uint16_t* encode_unit(std::uint16_t* entry, const UnitRun* runs, std::size_t n_runs, std::uint32_t lanes,
                                  std::uint16_t* end) {
    const UnitTables& tables = unit_tables();
    alignas(64) std::uint32_t states[max_lanes];
    std::fill_n(states, max_lanes, rans_low);
    std::uint16_t* words = end;
    const auto in_vectors = [&]<std::uint32_t n_vectors>() {
        constexpr std::uint32_t step = n_vectors * LaneStates::n;
        const auto all = [&]<std::size_t... v>(std::index_sequence<v...>) {
            LaneStates x[n_vectors] = {LaneStates(states + v * LaneStates::n)...};
            for (std::size_t r = n_runs; r-- > 0;) {
                const auto [first, n] = runs[r];
                std::uint32_t at = (n + step - 1) / step * step;
                std::fill(entry + first + n, entry + first + at, idle_unit_entry);
                for (; at > 0; at -= step)
                    (x[n_vectors - 1 - v].encode(tables, entry + first + at - (v + 1) * LaneStates::n, words), ...);
            }
            (x[v].store(states + v * LaneStates::n), ...);
        };
        all(std::make_index_sequence<n_vectors>{});
    };
    if constexpr (LaneStates::n > 1) {
        if (lanes == max_lanes) in_vectors.template operator()<max_lanes / LaneStates::n>();
        if (lanes == max_lanes / 2) in_vectors.template operator()<max_lanes / 2 / LaneStates::n>();
    }
    if (LaneStates::n == 1 || lanes < max_lanes / 2)
        for (std::size_t r = n_runs; r-- > 0;)
            for (std::uint32_t j = runs[r].n; j-- > 0;)
                LaneStates::encode_one(tables, entry[runs[r].first + j], states[j % lanes], words);
    words -= 2 * lanes;
    std::memcpy(words, states, lanes * sizeof *states);
    return words;
}

class UnitDecoder {
public:
    // Words that may be looked at beyond the end.
    static constexpr std::size_t margin = max_lanes;

    UnitDecoder() = default;
    // From the states on; n: words, with those of the states.
    UnitDecoder(const std::uint16_t* words, std::size_t n, std::uint32_t lanes) : lanes_(lanes), end_(words + n) {
        good_ = n >= 2 * lanes;
        if (!good_) return;
        std::memcpy(states_, words, lanes * sizeof *states_);
        words_ = words + 2 * lanes;
        for (std::uint32_t lane = 0; lane < lanes; ++lane) good_ = good_ && states_[lane] >= rans_low;
    }
    // Whether so far all was as it may be. What is decoded otherwise means nothing.
    bool good() const { return good_; }
    const std::uint16_t* words() const { return words_; } // that are left
    bool is_finished() const {
        return good_ && std::all_of(states_, states_ + lanes_, [](std::uint32_t x) { return x == rans_low; });
    }

    // The flags of groups whose frequencies have these j.
    void flags(const std::uint8_t* j, std::uint32_t n, std::uint8_t* flag) {
        const auto& frequency = v2::tables().group_frequency;
        for (std::uint32_t i = 0; i < n && good_; ++i) {
            const std::uint32_t g = frequency[j[i]];
            std::uint32_t& x = states_[i % lanes_];
            const std::uint32_t slot = x % rans_total, others = rans_total - g;
            flag[i] = slot >= others;
            LaneStates::advance(x, flag[i] != 0 ? g : others, flag[i] != 0 ? slot - others : slot, words_);
            good_ = words_ <= end_;
        }
    }
    // Number j of symbols that are decoded one by one.
    std::uint8_t symbol(std::uint32_t j, std::uint8_t table) {
        std::uint8_t symbol = 0;
        if (!good_) return symbol;
        LaneStates::decode_one(unit_tables(), table, symbol, states_[j % lanes_], words_);
        good_ = words_ <= end_;
        return symbol;
    }
    // Symbols of these tables. Room for max_lanes more is needed in both arrays.
    struct Symbols {
        const std::uint8_t* table;
        std::uint32_t n;
        std::uint8_t* symbol;
    };
    void symbols(const Symbols& of) { one_by_one(of, in_vectors(of)); }
    // The same of two units, whose steps do not wait for each other.
    static void symbols_of_two(UnitDecoder& a, const Symbols& of_a, UnitDecoder& b, const Symbols& of_b) {
        std::uint32_t done = 0;
        if constexpr (LaneStates::n > 1)
            if (a.lanes_ == max_lanes && b.lanes_ == max_lanes)
                done = in_vectors<max_lanes / LaneStates::n, 2>({&a, &b}, {of_a, of_b});
        a.symbols(rest(of_a, done));
        b.symbols(rest(of_b, done));
    }

private:
    static Symbols rest(const Symbols& of, std::uint32_t done) {
        return {of.table + done, of.n - done, of.symbol + done};
    }
    void one_by_one(const Symbols& of, std::uint32_t first) {
        const UnitTables& tables = unit_tables();
        for (std::uint32_t i = first; i < of.n && good_; ++i) {
            LaneStates::decode_one(tables, of.table[i], of.symbol[i], states_[i % lanes_], words_);
            good_ = words_ <= end_;
        }
    }
    std::uint32_t in_vectors(const Symbols& of) {
        if constexpr (LaneStates::n > 1) {
            if (lanes_ == max_lanes) return in_vectors<max_lanes / LaneStates::n, 1>({this}, {of});
            if (lanes_ == max_lanes / 2) return in_vectors<max_lanes / 2 / LaneStates::n, 1>({this}, {of});
        }
        return 0;
    }
    // Decodes as many steps of all units as each of them has. Returns how many symbols of each that were.
    template <std::uint32_t n_vectors, std::size_t n_units>
    static std::uint32_t in_vectors(const std::array<UnitDecoder*, n_units>& unit,
                                    const std::array<Symbols, n_units>& of) {
        constexpr std::uint32_t step = n_vectors * LaneStates::n;
        const UnitTables& tables = unit_tables();
        std::uint32_t i = 0, n = of[0].n;
        bool good = true;
        for (std::size_t u = 0; u < n_units; ++u) {
            n = std::min(n, of[u].n);
            good = good && unit[u]->good_;
        }
        const auto all = [&]<std::size_t... v>(std::index_sequence<v...>) { // v: vectors of all units
            LaneStates x[] = {LaneStates(unit[v / n_vectors]->states_ + v % n_vectors * LaneStates::n)...};
            // Not the members, which stores might change, as far as C++ knows.
            const std::uint16_t *words[n_units], *end[n_units];
            for (std::size_t u = 0; u < n_units; ++u) {
                words[u] = unit[u]->words_;
                end[u] = unit[u]->end_;
            }
            for (; good && i + step <= n; i += step) {
                (x[v].decode(tables, of[v / n_vectors].table + i + v % n_vectors * LaneStates::n,
                             of[v / n_vectors].symbol + i + v % n_vectors * LaneStates::n, words[v / n_vectors]),
                 ...);
                for (std::size_t u = 0; u < n_units; ++u) good = good && words[u] <= end[u];
            }
            for (std::size_t u = 0; u < n_units; ++u) {
                unit[u]->words_ = words[u];
                unit[u]->good_ = unit[u]->good_ && words[u] <= end[u];
            }
            (x[v].store(unit[v / n_vectors]->states_ + v % n_vectors * LaneStates::n), ...);
        };
        all(std::make_index_sequence<n_vectors * n_units>{});
        return i;
    }

    std::uint32_t lanes_ = 1;
    bool good_ = false;
    const std::uint16_t *words_ = nullptr, *end_ = nullptr;
    alignas(64) std::uint32_t states_[max_lanes]{};
};

} // namespace cusz::cpu::CUSZ_ISA
