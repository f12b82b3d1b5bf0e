// rANS of a unit in up to 32 lanes (section 8): a step codes one symbol in each lane, so lanes map to vector lanes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "archive/v2/frame.hpp"
#include "codec/spline/unit_tables.hpp"
#include "simd/isa.hpp"

namespace cusz::cpu::CUSZ_ISA {

using v2::max_lanes;
using v2::rans_bits;
using v2::rans_low;
using v2::rans_total;

// A run of entries, which begins with lane 0. first: a multiple of max_lanes.
struct UnitRun {
    std::uint32_t first, n;
};

#if defined(__AVX2__) && !defined(__AVX512F__)
// Permutations by a mask of lanes. give: moves the words of these lanes, in order, to the end of a vector; take: moves
// words from the beginning of a vector to these lanes.
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

// 1 or 0, as a number that compilers know nothing about: otherwise they would make branches of it, which would be
// mispredicted, or vectors of four lanes.
[[gnu::always_inline]] inline std::uint32_t opaque(bool condition) {
    std::uint32_t number = condition;
    asm("" : "+r"(number));
    return number;
}

// The state of one lane.
class OneLane {
public:
    static constexpr std::uint32_t n = 1;

    explicit OneLane(const std::uint32_t* state) : x_(*state) {}
    void store(std::uint32_t* to) const { *to = x_; }

    // Encodes an entry. Words go before `words`, which is moved; up to n words there are overwritten.
    [[gnu::always_inline]] void encode(const UnitTables& tables, const std::uint16_t* entry, std::uint16_t*& words) {
        const std::uint32_t interval = tables.interval[*entry], frequency = interval >> 16;
        const std::uint32_t full = opaque(x_ >> 20 >= frequency);
        words[-1] = static_cast<std::uint16_t>(x_);
        words -= full;
        x_ >>= 16 * full;
        x_ = (x_ / frequency << rans_bits) + x_ % frequency + (interval & 0xFFFF);
    }
    // Decodes a symbol with each lane's table. Reads up to n words.
    [[gnu::always_inline]] void decode(const UnitTables& tables, const std::uint8_t* table, std::uint8_t* symbol,
                                       const std::uint16_t*& words) {
        const std::uint32_t slot = tables.slot[*table * rans_total + x_ % rans_total];
        *symbol = static_cast<std::uint8_t>(slot);
        advance((slot >> 8 & (rans_total - 1)) + 1, slot >> 20, words);
    }
    // Decodes a flag that is set with frequency g.
    std::uint8_t decode_flag(std::uint32_t g, const std::uint16_t*& words) {
        const std::uint32_t slot = x_ % rans_total, others = rans_total - g;
        const bool flag = slot >= others;
        advance(flag ? g : others, flag ? slot - others : slot, words);
        return flag;
    }

private:
    // place: the slot's place in its interval.
    void advance(std::uint32_t frequency, std::uint32_t place, const std::uint16_t*& words) {
        x_ = frequency * (x_ >> rans_bits) + place;
        const std::uint32_t empty = opaque(x_ < rans_low);
        x_ = (x_ << 16 * empty) | (*words & (0 - empty));
        words += empty;
    }

    std::uint32_t x_;
};

#ifdef __AVX2__
// The states of as many lanes as a vector holds.
class VectorLanes {
public:
#ifdef __AVX512F__
    using States = __m512i;
#else
    using States = __m256i;
#endif
    static constexpr std::uint32_t n = sizeof(States) / sizeof(std::uint32_t);

    explicit VectorLanes(const std::uint32_t* states) {
#ifdef __AVX512F__
        x_ = _mm512_loadu_si512(states);
#else
        x_ = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(states));
#endif
    }
    void store(std::uint32_t* to) const { std::memcpy(to, &x_, sizeof x_); }

    // Encodes an entry in each lane. Words go before `words`, which is moved; up to n words there are overwritten.
    [[gnu::always_inline]] void encode(const UnitTables& tables, const std::uint16_t* entry, std::uint16_t*& words) {
#ifdef __AVX512F__
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
#else
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
#endif
    }

    // Decodes a symbol with each lane's table. Reads up to n words.
    [[gnu::always_inline]] void decode(const UnitTables& tables, const std::uint8_t* table, std::uint8_t* symbol,
                                       const std::uint16_t*& words) {
#ifdef __AVX512F__
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
#else
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
#endif
    }

private:
    // Loads numbers from a table one by one, which is faster than a gather on Zen 4 and 5.
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

    States x_;
};
#else
using VectorLanes = OneLane;
#endif

// Calls use<Lanes, n>(), where n `Lanes` have the given number of lanes.
template <class Use>
[[gnu::always_inline]] inline auto with_lanes(std::uint32_t lanes, const Use& use) {
    const auto are = [&]<std::uint32_t all>() {
        if constexpr (all % VectorLanes::n == 0)
            return use.template operator()<VectorLanes, all / VectorLanes::n>();
        else
            return use.template operator()<OneLane, all>();
    };
    switch (lanes) {
    case 1: return are.template operator()<1>();
    case 2: return are.template operator()<2>();
    case 4: return are.template operator()<4>();
    case 8: return are.template operator()<8>();
    case 16: return are.template operator()<16>();
    default: static_assert(max_lanes == 32); return are.template operator()<32>();
    }
}

// Encodes the runs of a unit. Returns where states and words begin; they end at `end`, and up to max_lanes words before
// them may be overwritten. Pads the entries of each run with idle ones.
inline std::uint16_t* encode_unit(std::uint16_t* entry, const UnitRun* runs, std::size_t n_runs, std::uint32_t lanes,
                                  std::uint16_t* end) {
    const UnitTables& tables = unit_tables();
    alignas(64) std::uint32_t states[max_lanes];
    std::fill_n(states, max_lanes, rans_low);
    std::uint16_t* words = end;
    with_lanes(lanes, [&]<class Lanes, std::uint32_t count>() {
        constexpr std::uint32_t step = count * Lanes::n;
        const auto all = [&]<std::size_t... v>(std::index_sequence<v...>) {
            Lanes x[] = {Lanes(states + v * Lanes::n)...};
            for (std::size_t r = n_runs; r-- > 0;) {
                const auto [first, n] = runs[r];
                std::uint32_t at = (n + step - 1) / step * step;
                std::fill(entry + first + n, entry + first + at, idle_unit_entry);
                for (; at > 0; at -= step)
                    (x[count - 1 - v].encode(tables, entry + first + at - (v + 1) * Lanes::n, words), ...);
            }
            (x[v].store(states + v * Lanes::n), ...);
        };
        all(std::make_index_sequence<count>{});
    });
    words -= 2 * lanes;
    std::memcpy(words, states, lanes * sizeof *states);
    return words;
}

class UnitDecoder {
public:
    UnitDecoder() = default;
    // words: from the states on, with max_lanes readable behind them; n: their number, states included.
    UnitDecoder(const std::uint16_t* words, std::size_t n, std::uint32_t lanes) : lanes_(lanes), end_(words + n) {
        good_ = n >= 2 * lanes;
        if (!good_) return;
        std::memcpy(states_, words, lanes * sizeof *states_);
        words_ = words + 2 * lanes;
        for (std::uint32_t lane = 0; lane < lanes; ++lane) good_ = good_ && states_[lane] >= rans_low;
    }
    // Whether everything was legal so far. If not, what is decoded means nothing.
    bool good() const { return good_; }
    const std::uint16_t* words() const { return words_; } // that are left
    bool is_finished() const {
        return good_ && std::all_of(states_, states_ + lanes_, [](std::uint32_t x) { return x == rans_low; });
    }

    // Decodes the flags of groups, by the j of their frequencies.
    void flags(const std::uint8_t* j, std::uint32_t n, std::uint8_t* flag) {
        const auto& frequency = v2::tables().group_frequency;
        for (std::uint32_t i = 0; i < n && good_; ++i) {
            OneLane x(states_ + i % lanes_);
            flag[i] = x.decode_flag(frequency[j[i]], words_);
            x.store(states_ + i % lanes_);
            good_ = words_ <= end_;
        }
    }
    // Decodes a single symbol, number j of a sequence.
    std::uint8_t symbol(std::uint32_t j, std::uint8_t table) {
        std::uint8_t symbol = 0;
        if (!good_) return symbol;
        OneLane x(states_ + j % lanes_);
        x.decode(unit_tables(), &table, &symbol, words_);
        x.store(states_ + j % lanes_);
        good_ = words_ <= end_;
        return symbol;
    }
    // Symbols to decode, by their tables. Both arrays need room for max_lanes more.
    struct Symbols {
        const std::uint8_t* table;
        std::uint32_t n;
        std::uint8_t* symbol;
    };
    void symbols(const Symbols& of) {
        const std::uint32_t done = with_lanes(
            lanes_, [&]<class Lanes, std::uint32_t count>() { return steps<Lanes, count, 1>({this}, {of}); });
        for (std::uint32_t i = done; i < of.n; ++i) of.symbol[i] = symbol(i, of.table[i]);
    }
    // The same for two units, whose steps do not wait for each other.
    static void symbols_of_two(UnitDecoder& a, const Symbols& of_a, UnitDecoder& b, const Symbols& of_b) {
        std::uint32_t done = 0;
        if constexpr (VectorLanes::n > 1)
            if (a.lanes_ == max_lanes && b.lanes_ == max_lanes)
                done = steps<VectorLanes, max_lanes / VectorLanes::n, 2>({&a, &b}, {of_a, of_b});
        a.symbols(rest(of_a, done));
        b.symbols(rest(of_b, done));
    }

private:
    static Symbols rest(const Symbols& of, std::uint32_t done) {
        return {of.table + done, of.n - done, of.symbol + done};
    }
    // Decodes as many whole steps as all units have. Returns how many symbols of each unit that were.
    template <class Lanes, std::uint32_t count, std::size_t n_units>
    static std::uint32_t steps(const std::array<UnitDecoder*, n_units>& unit, const std::array<Symbols, n_units>& of) {
        constexpr std::uint32_t step = count * Lanes::n;
        const UnitTables& tables = unit_tables();
        std::uint32_t i = 0, n = of[0].n;
        bool good = true;
        for (std::size_t u = 0; u < n_units; ++u) {
            n = std::min(n, of[u].n);
            good = good && unit[u]->good_;
        }
        const auto all = [&]<std::size_t... v>(std::index_sequence<v...>) { // v: numbers the Lanes of all units
            Lanes x[] = {Lanes(unit[v / count]->states_ + v % count * Lanes::n)...};
            // Copies, because compilers must assume that stores may change the members.
            const std::uint16_t *words[n_units], *end[n_units];
            for (std::size_t u = 0; u < n_units; ++u) {
                words[u] = unit[u]->words_;
                end[u] = unit[u]->end_;
            }
            for (; good && i + step <= n; i += step) {
                (x[v].decode(tables, of[v / count].table + i + v % count * Lanes::n,
                             of[v / count].symbol + i + v % count * Lanes::n, words[v / count]),
                 ...);
                for (std::size_t u = 0; u < n_units; ++u) good = good && words[u] <= end[u];
            }
            for (std::size_t u = 0; u < n_units; ++u) {
                unit[u]->words_ = words[u];
                unit[u]->good_ = unit[u]->good_ && words[u] <= end[u];
            }
            (x[v].store(unit[v / count]->states_ + v % count * Lanes::n), ...);
        };
        all(std::make_index_sequence<count * n_units>{});
        return i;
    }

    std::uint32_t lanes_ = 1;
    bool good_ = false;
    const std::uint16_t *words_ = nullptr, *end_ = nullptr;
    alignas(64) std::uint32_t states_[max_lanes]{};
};

} // namespace cusz::cpu::CUSZ_ISA
