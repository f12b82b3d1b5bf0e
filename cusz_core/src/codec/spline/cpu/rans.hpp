// Range asymmetric numeral systems (rANS) with a static table for each context and a few interleaved lanes
// (docs/format_v2.md, sections 7 and 8).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "rans_tables.hpp"
#include "simd/isa.hpp"

namespace cusz::cpu::CUSZ_ISA {

__extension__ typedef unsigned __int128 Wide; // for the high half of a product

#ifdef __AVX2__
// How bytes are moved, by the lanes of a tile that take or give a word.
struct WordsOfLanes {
    alignas(16) std::uint8_t take[16][16]; // the next words, in order, to those lanes
    alignas(16) std::uint8_t give[16][16]; // those lanes' lower words, in order, to where they end at byte 8
    constexpr WordsOfLanes() : take(), give() {
        for (std::uint32_t lanes = 0; lanes < 16; ++lanes) {
            for (std::uint32_t byte = 0; byte < 16; ++byte) take[lanes][byte] = give[lanes][byte] = 0x80; // gives 0
            const auto number = static_cast<std::uint32_t>(std::popcount(lanes));
            for (std::uint32_t lane = 0, word = 0; lane < 4; ++lane) {
                if ((lanes >> lane & 1) == 0) continue;
                for (std::uint32_t byte = 0; byte < 2; ++byte) {
                    take[lanes][4 * lane + byte] = static_cast<std::uint8_t>(2 * word + byte);
                    give[lanes][8 - 2 * (number - word) + byte] = static_cast<std::uint8_t>(4 * lane + byte);
                }
                ++word;
            }
        }
    }
};
inline constexpr WordsOfLanes words_of_lanes{};
#endif

#ifdef __AVX512F__
[[gnu::always_inline]] inline __m512i joined(const __m128i (&part)[4]) {
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_inserti128_si256(_mm256_castsi128_si256(part[0]), part[1], 1)),
        _mm256_inserti128_si256(_mm256_castsi128_si256(part[2]), part[3], 1), 1);
}
#endif

// Codes entries backwards: those of the last run first.
class RansEncoder {
public:
    // Several tiles' sequences.
#ifdef __AVX2__
    static constexpr std::uint32_t max_at_once = 8;
#else
    static constexpr std::uint32_t max_at_once = 1; // so that its entries are still in the cache
#endif
    static void encode(const RansWriting& writing, RansSequence** of, std::uint32_t n_tiles) {
#ifdef __AVX2__
        std::uint32_t all = 0;
        for (std::uint32_t t = 0; t < n_tiles; ++t) all += steps(*of[t]);
        // The longest one by itself, as long as the others' steps would fill too little of the room beside it.
        constexpr std::uint32_t min_filled = 5; // of max_at_once; measured
        for (; n_tiles > 0; ++of, --n_tiles) {
            std::swap(*of, *std::max_element(of, of + n_tiles,
                                             [](const auto* a, const auto* b) { return steps(*a) < steps(*b); }));
            if (all >= min_filled * steps(**of)) return side_by_side(writing, of, n_tiles);
            all -= steps(**of);
            encode(writing, **of);
        }
#else
        for (std::uint32_t t = 0; t < n_tiles; ++t) encode(writing, *of[t]);
#endif
    }

private:
    static void encode(const RansWriting& writing, RansSequence& of) {
        RansEncoder encoder(writing, of.lanes, of.words);
        for (std::uint32_t r = of.n_runs; r-- > 0;) encoder.run(of.entry + of.run[r].first, of.run[r].n);
        of.words = encoder.finish();
    }

    // Words are written before `end`.
    RansEncoder(const RansWriting& writing, std::uint32_t lanes, std::uint16_t* end)
        : writing_(writing), lanes_(lanes), words_(end) {
        for (auto& state : state_) state = v2::rans_low;
    }

    void run(const std::uint16_t* entry, std::uint32_t n) {
        std::uint32_t j = n;
        while (j % lanes_ != 0) { // the last, incomplete step
            --j;
            code(entry[j], state_[j % lanes_], words_);
        }
        std::uint16_t* words = words_;
        if (lanes_ == 4) {
            std::uint32_t a = state_[0], b = state_[1], c = state_[2], d = state_[3];
            for (; j > 0; j -= 4) {
                code(entry[j - 1], d, words);
                code(entry[j - 2], c, words);
                code(entry[j - 3], b, words);
                code(entry[j - 4], a, words);
            }
            state_[0] = a;
            state_[1] = b;
            state_[2] = c;
            state_[3] = d;
        } else if (lanes_ == 2) {
            std::uint32_t a = state_[0], b = state_[1];
            for (; j > 0; j -= 2) {
                code(entry[j - 1], b, words);
                code(entry[j - 2], a, words);
            }
            state_[0] = a;
            state_[1] = b;
        } else {
            for (; j > 0; --j) code(entry[j - 1], state_[0], words);
        }
        words_ = words;
    }

    // Puts the states before the words; returns where the payload's coded part begins.
    std::uint16_t* finish() {
        for (std::uint32_t lane = lanes_; lane-- > 0;) {
            *--words_ = static_cast<std::uint16_t>(state_[lane] >> 16);
            *--words_ = static_cast<std::uint16_t>(state_[lane]);
        }
        return words_;
    }

    [[gnu::always_inline]] void code(std::uint16_t entry, std::uint32_t& state, std::uint16_t*& words) {
        const RansInterval& of = writing_.of_entry[entry];
        std::uint32_t x = state;
        words[-1] = static_cast<std::uint16_t>(x);
        const std::uint32_t full = x > of.most; // without a branch, which would be mispredicted
        words -= full;
        x >>= 16 * full;
        const auto quotient = static_cast<std::uint32_t>(static_cast<Wide>(x) * of.reciprocal >> 64);
        state = x + quotient * of.complement + of.bias;
    }

#ifdef __AVX2__
    static std::uint32_t steps(const RansSequence& of) {
        std::uint32_t n = 0;
        for (std::uint32_t r = 0; r < of.n_runs; ++r) n += (of.run[r].n + of.lanes - 1) / of.lanes;
        return n;
    }

    // Makes every step one of v2::max_lanes entries, with idle ones where a lane has none, and appends idle steps.
    static void fill_steps(RansSequence& of, std::uint32_t n_steps) {
        std::uint32_t step = steps(of);
        std::fill(of.entry + step * v2::max_lanes, of.entry + n_steps * v2::max_lanes,
                  static_cast<std::uint16_t>(idle_entry));
        for (std::uint32_t r = of.n_runs; r-- > 0;) { // backwards, since entries move back
            const std::uint32_t n = of.run[r].n, n_in_place = of.lanes == v2::max_lanes ? n / v2::max_lanes : 0;
            std::uint32_t j = (n + of.lanes - 1) / of.lanes;
            for (; j > n_in_place; --j) {
                const std::uint32_t done = (j - 1) * of.lanes;
                std::uint64_t four;
                std::memcpy(&four, of.entry + of.run[r].first + done, sizeof four);
                const std::uint64_t own = ~std::uint64_t{0} >> (64 - 16 * std::min(of.lanes, n - done));
                four = (four & own) | (idle_entry * 0x0001000100010001ull & ~own);
                std::memcpy(of.entry + --step * v2::max_lanes, &four, sizeof four);
            }
            step -= n_in_place;
        }
    }

    // As many tiles to a vector as it has 128 bits, each for a tile's lanes. The first tile has the most steps.
    static void side_by_side(const RansWriting& writing, RansSequence* const* of, std::uint32_t n_tiles) {
        static_assert(v2::max_lanes == 4);
        constexpr std::uint32_t n_vectors = max_at_once / States::tiles;
        const std::uint32_t n_steps = steps(**of);
        const std::uint16_t* entry[max_at_once];
        std::uint16_t* words[max_at_once];
        for (std::uint32_t t = 0; t < max_at_once; ++t) {
            RansSequence& sequence = *of[t < n_tiles ? t : 0]; // spare lanes do what the first tile's do, and where
            if (t < n_tiles) fill_steps(sequence, n_steps);
            entry[t] = sequence.entry + n_steps * v2::max_lanes;
            words[t] = sequence.words;
        }
        States x[n_vectors];
        for (std::uint32_t step = 0; step < n_steps; ++step)
            for (std::uint32_t v = 0; v < n_vectors; ++v)
                x[v].step(writing, entry + States::tiles * v, words + States::tiles * v);
        alignas(64) std::uint32_t states[max_at_once][v2::max_lanes];
        for (std::uint32_t v = 0; v < n_vectors; ++v) x[v].store(states[States::tiles * v]);
        for (std::uint32_t t = 0; t < n_tiles; ++t) {
            const std::uint32_t bytes = of[t]->lanes * 4;
            of[t]->words = words[t] - bytes / 2;
            std::memcpy(of[t]->words, states[t], bytes);
        }
    }

    // A tile's frequencies and starts of the step before `entry`, which is moved there. Loaded one by one, which on
    // Zen 4 is faster than a gather.
    [[gnu::always_inline]] static __m128i intervals_of_step(const RansWriting& writing, const std::uint16_t*& entry) {
        entry -= v2::max_lanes;
        const auto of_lane = [&](std::size_t lane) {
            return static_cast<int>(writing.frequency_and_start[entry[lane]]);
        };
        return _mm_set_epi32(of_lane(3), of_lane(2), of_lane(1), of_lane(0));
    }

    // Puts the lower words of full lanes of a tile before its others. Writes up to four words there.
    [[gnu::always_inline]] static void give_words(__m128i x, std::uint32_t full, std::uint16_t*& words) {
        const __m128i given =
            _mm_shuffle_epi8(x, _mm_load_si128(reinterpret_cast<const __m128i*>(words_of_lanes.give[full])));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(words - 4), given);
        words -= std::popcount(full);
    }

#ifdef __AVX512F__
    struct States {
        static constexpr std::uint32_t tiles = 4;
        __m512i x = _mm512_set1_epi32(v2::rans_low);

        void store(std::uint32_t* to) const { _mm512_store_si512(to, x); }

        // Codes the entries of the step before.
        [[gnu::always_inline]] void step(const RansWriting& writing, const std::uint16_t** entry,
                                         std::uint16_t** words) {
            __m128i of_tile[tiles];
            for (std::uint32_t t = 0; t < tiles; ++t) of_tile[t] = intervals_of_step(writing, entry[t]);
            const __m512i interval = joined(of_tile), frequency = _mm512_srli_epi32(interval, 16),
                          start = _mm512_and_si512(interval, _mm512_set1_epi32(0xFFFF));
            const std::uint32_t full = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(x, 20), frequency);
            const __m128i part[] = {_mm512_castsi512_si128(x), _mm512_extracti32x4_epi32(x, 1),
                                    _mm512_extracti32x4_epi32(x, 2), _mm512_extracti32x4_epi32(x, 3)};
            for (std::uint32_t t = 0; t < tiles; ++t) give_words(part[t], full >> 4 * t & 15, words[t]);
            x = _mm512_mask_srli_epi32(x, static_cast<__mmask16>(full), x, 16);
            // Quotients are below 2^20, so rounded down at each step they are right or one too small.
            constexpr int down = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
            const __m512i quotient = _mm512_cvttps_epu32(
                _mm512_div_round_ps(_mm512_cvt_roundepu32_ps(x, down), _mm512_cvtepi32_ps(frequency), down));
            const __m512i rest = _mm512_sub_epi32(x, _mm512_mullo_epi32(quotient, frequency));
            const __mmask16 too_small = _mm512_cmpge_epu32_mask(rest, frequency);
            const __m512i next =
                _mm512_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(quotient, v2::rans_bits), rest), start);
            x = _mm512_mask_add_epi32(next, too_small, next,
                                      _mm512_sub_epi32(_mm512_set1_epi32(v2::rans_total), frequency));
        }
    };
#else
    struct States {
        static constexpr std::uint32_t tiles = 2;
        __m256i x = _mm256_set1_epi32(v2::rans_low);

        void store(std::uint32_t* to) const { _mm256_store_si256(reinterpret_cast<__m256i*>(to), x); }

        [[gnu::always_inline]] void step(const RansWriting& writing, const std::uint16_t** entry,
                                         std::uint16_t** words) {
            const __m128i first = intervals_of_step(writing, entry[0]), second = intervals_of_step(writing, entry[1]);
            const __m256i interval = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1),
                          frequency = _mm256_srli_epi32(interval, 16), low_half = _mm256_set1_epi32(0xFFFF),
                          start = _mm256_and_si256(interval, low_half);
            const __m256i has_room = _mm256_cmpgt_epi32(frequency, _mm256_srli_epi32(x, 20));
            const auto full = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(has_room))) ^ 0xFF;
            give_words(_mm256_castsi256_si128(x), full & 15, words[0]);
            give_words(_mm256_extracti128_si256(x, 1), full >> 4, words[1]);
            x = _mm256_blendv_epi8(_mm256_srli_epi32(x, 16), x, has_room);
            // Quotients are below 2^20, and off by less than a fourth before they are rounded down: right, or one too
            // small or too large.
            const __m256 high = _mm256_cvtepi32_ps(_mm256_srli_epi32(x, 16)),
                         low = _mm256_cvtepi32_ps(_mm256_and_si256(x, low_half)),
                         whole = _mm256_add_ps(_mm256_mul_ps(high, _mm256_set1_ps(65536)), low);
            const __m256i quotient = _mm256_cvttps_epi32(_mm256_div_ps(whole, _mm256_cvtepi32_ps(frequency)));
            const __m256i rest = _mm256_sub_epi32(x, _mm256_mullo_epi32(quotient, frequency));
            const __m256i next =
                _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(quotient, v2::rans_bits), rest), start);
            const __m256i one_more = _mm256_sub_epi32(_mm256_set1_epi32(v2::rans_total), frequency);
            const __m256i is_right = _mm256_cmpgt_epi32(frequency, rest), too_large = _mm256_srai_epi32(rest, 31);
            x = _mm256_sub_epi32(_mm256_add_epi32(next, _mm256_andnot_si256(is_right, one_more)),
                                 _mm256_and_si256(too_large, one_more));
        }
    };
#endif
#endif

    const RansWriting& writing_;
    std::uint32_t lanes_;
    std::uint32_t state_[v2::max_lanes];
    std::uint16_t* words_;
};

class RansDecoder {
public:
    // From the states on. Reads up to `margin` words beyond the end.
    static constexpr std::uint32_t margin = 64;

    RansDecoder() = default;
    RansDecoder(const RansReading& reading, std::uint32_t lanes, const std::uint16_t* words, const std::uint16_t* end)
        : reading_(&reading), lanes_(std::min(lanes, v2::max_lanes)), words_(words), end_(end) {
        for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
            state_[lane] = words_[0] | std::uint32_t{words_[1]} << 16;
            good_ = good_ && state_[lane] >= v2::rans_low;
            words_ += 2;
        }
    }

    // Whether symbol 1 of groups with these contexts was coded.
    void flags(const std::uint8_t* context, std::uint32_t n, std::uint8_t* flag) {
        for (std::uint32_t j = 0; j < n && good_; ++j) {
            std::uint32_t& x = state_[j & (lanes_ - 1)];
            const std::uint32_t g = reading_->model.significant[context[j]], slot = x % v2::rans_total;
            flag[j] = slot >= v2::rans_total - g;
            x = flag[j] != 0 ? g * (x >> v2::rans_bits) + slot - (v2::rans_total - g)
                             : (v2::rans_total - g) * (x >> v2::rans_bits) + slot;
            renew(x, words_);
            good_ = words_ <= end_;
        }
    }

    // n symbols of a phase to come, with these tables.
    struct Symbols {
        RansDecoder* decoder = nullptr;
        const std::uint8_t* table = nullptr;
        std::uint8_t* symbol = nullptr; // some more may be written
        std::uint32_t n = 0;
    };
    // Those of several tiles at once.
    static constexpr std::uint32_t max_at_once = 8;
    static void symbols(Symbols* of, std::uint32_t n_tiles) {
        std::uint32_t done[max_at_once] = {};
#ifdef __AVX2__
        if (n_tiles > max_at_once / 2)
            side_by_side<max_at_once>(of, n_tiles, done);
        else if (n_tiles > 1)
            side_by_side<max_at_once / 2>(of, n_tiles, done);
#endif
        for (std::uint32_t t = 0; t < n_tiles; ++t) {
            RansDecoder& decoder = *of[t].decoder;
            if (decoder.lanes_ == 4)
                decoder.symbols_of<4>(of[t], done[t]);
            else if (decoder.lanes_ == 2)
                decoder.symbols_of<2>(of[t], done[t]);
            else
                decoder.symbols_of<1>(of[t], done[t]);
        }
    }

    // Whether everything was read, and nothing else.
    bool finished() const {
        bool done = good_ && words_ == end_;
        for (std::uint32_t lane = 0; lane < lanes_; ++lane) done = done && state_[lane] == v2::rans_low;
        return done;
    }
    bool good() const { return good_; }

private:
    // The symbols of one tile from number `done` on, which is lane 0's.
    template <std::uint32_t lanes>
    void symbols_of(const Symbols& of, std::uint32_t done) {
        std::uint32_t x[lanes];
        for (std::uint32_t l = 0; l < lanes; ++l) x[l] = state_[l];
        // Not the members, which stores of bytes might change, as far as C++ knows.
        const std::uint16_t* words = words_;
        const std::uint32_t* const of_slot = reading_->of_slot;
        const std::uint32_t n = of.n;
        while (done < n && good_) { // in pieces that take at most `margin` words
            const std::uint32_t to = std::min(done + margin, n);
            for (; done + lanes <= to; done += lanes)
                for (std::uint32_t l = 0; l < lanes; ++l)
                    of.symbol[done + l] = next(of_slot + of.table[done + l] * v2::rans_total, x[l], words);
            if (to == n)
                for (std::uint32_t l = 0; l < lanes && done < n; ++l, ++done)
                    of.symbol[done] = next(of_slot + of.table[done] * v2::rans_total, x[l], words);
            good_ = words <= end_;
        }
        for (std::uint32_t l = 0; l < lanes; ++l) state_[l] = x[l];
        words_ = words;
    }

#ifdef __AVX2__
#ifdef __AVX512F__
    // The lanes of four tiles, each tile's in 128 bits.
    struct States {
        static constexpr std::uint32_t tiles = 4;
        using Mask = __mmask16;
        __m512i x;

        static Mask mask_of(std::uint32_t lanes) { return static_cast<Mask>(lanes); }
        void load(const std::uint32_t* from) { x = _mm512_load_si512(from); }
        void store(std::uint32_t* to) const { _mm512_store_si512(to, x); }

        // A symbol of each of the lanes of `mask`; table, words: of each tile, the tables of these symbols and the next
        // words, which are then behind those taken. Returns the symbols, four bytes of each tile.
        [[gnu::always_inline]] __m128i step(const std::uint32_t* of_slot, Mask mask,
                                            const std::uint32_t (&table)[tiles], const std::uint16_t** words) {
            const __m512i tables =
                _mm512_cvtepu8_epi32(_mm_set_epi32(static_cast<int>(table[3]), static_cast<int>(table[2]),
                                                   static_cast<int>(table[1]), static_cast<int>(table[0])));
            const __m512i at = _mm512_add_epi32(_mm512_slli_epi32(tables, v2::rans_bits),
                                                _mm512_and_si512(x, _mm512_set1_epi32(v2::rans_total - 1)));
            const __m512i slot = _mm512_mask_i32gather_epi32(__m512i{}, mask, at, of_slot, 4);
            const __m512i frequency = _mm512_add_epi32(
                _mm512_and_si512(_mm512_srli_epi32(slot, 8), _mm512_set1_epi32(0xFFF)), _mm512_set1_epi32(1));
            const __m512i next = _mm512_add_epi32(_mm512_mullo_epi32(frequency, _mm512_srli_epi32(x, v2::rans_bits)),
                                                  _mm512_srli_epi32(slot, 20));
            const std::uint32_t low =
                _mm512_mask_cmplt_epu32_mask(mask, next, _mm512_set1_epi32(static_cast<int>(v2::rans_low)));
            __m128i part[tiles];
            for (std::uint32_t i = 0; i < tiles; ++i) part[i] = take_words(low >> 4 * i & 15, words[i]);
            const __m512i after =
                _mm512_or_si512(_mm512_mask_slli_epi32(next, static_cast<__mmask16>(low), next, 16), joined(part));
            x = _mm512_mask_mov_epi32(x, mask, after);
            return _mm512_cvtepi32_epi8(slot);
        }
    };
#else
    struct States { // of two tiles
        static constexpr std::uint32_t tiles = 2;
        using Mask = __m256i;
        __m256i x;

        static Mask mask_of(std::uint32_t lanes) {
            const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(lanes)), bit), bit);
        }
        void load(const std::uint32_t* from) { x = _mm256_load_si256(reinterpret_cast<const __m256i*>(from)); }
        void store(std::uint32_t* to) const { _mm256_store_si256(reinterpret_cast<__m256i*>(to), x); }

        [[gnu::always_inline]] __m128i step(const std::uint32_t* of_slot, Mask mask,
                                            const std::uint32_t (&table)[tiles], const std::uint16_t** words) {
            const __m256i tables =
                _mm256_cvtepu8_epi32(_mm_set_epi32(0, 0, static_cast<int>(table[1]), static_cast<int>(table[0])));
            const __m256i at =
                _mm256_and_si256(mask, _mm256_add_epi32(_mm256_slli_epi32(tables, v2::rans_bits),
                                                        _mm256_and_si256(x, _mm256_set1_epi32(v2::rans_total - 1))));
            alignas(32) std::uint32_t place[8]; // not by a gather, which Intel's microcode slows down
            _mm256_store_si256(reinterpret_cast<__m256i*>(place), at);
            const auto of_lane = [&](std::size_t lane) { return static_cast<int>(of_slot[place[lane]]); };
            const __m256i slot = _mm256_setr_epi32(of_lane(0), of_lane(1), of_lane(2), of_lane(3), of_lane(4),
                                                   of_lane(5), of_lane(6), of_lane(7));
            const __m256i frequency = _mm256_add_epi32(
                _mm256_and_si256(_mm256_srli_epi32(slot, 8), _mm256_set1_epi32(0xFFF)), _mm256_set1_epi32(1));
            const __m256i next = _mm256_add_epi32(_mm256_mullo_epi32(frequency, _mm256_srli_epi32(x, v2::rans_bits)),
                                                  _mm256_srli_epi32(slot, 20));
            const __m256i is_low = _mm256_and_si256(mask, _mm256_cmpeq_epi32(_mm256_srli_epi32(next, 16), __m256i{}));
            const auto low = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(is_low)));
            const __m128i first = take_words(low & 15, words[0]), second = take_words(low >> 4, words[1]);
            const __m256i taken = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
            const __m256i after = _mm256_or_si256(_mm256_blendv_epi8(next, _mm256_slli_epi32(next, 16), is_low), taken);
            x = _mm256_blendv_epi8(x, after, mask);
            const __m256i bytes = _mm256_shuffle_epi8(
                slot, _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, //
                                       0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
            return _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
        }
    };
#endif
    // The next words to those lanes of a tile.
    [[gnu::always_inline]] static __m128i take_words(std::uint32_t lanes, const std::uint16_t*& words) {
        const __m128i four = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(words));
        words += std::popcount(lanes);
        return _mm_shuffle_epi8(four, _mm_load_si128(reinterpret_cast<const __m128i*>(words_of_lanes.take[lanes])));
    }

    // Whole steps (a symbol of each lane) of at least two tiles at a time, of up to `room`. done: symbols decoded.
    template <std::uint32_t room>
    static void side_by_side(Symbols* of, std::uint32_t n_tiles, std::uint32_t* done) {
        constexpr std::uint32_t in_vector = States::tiles, n_vectors = room / in_vector;
        alignas(64) std::uint32_t states[room][v2::max_lanes] = {};
        const std::uint16_t* words[room];
        const std::uint8_t* table[room];
        std::uint8_t* symbol[room];
        std::uint32_t lanes[room] = {}, steps[room] = {};
        alignas(16) static constexpr std::uint16_t nothing[8] = {};
        std::uint8_t spare[16];
        const std::uint32_t* const of_slot = of[0].decoder->reading_->of_slot;
        for (std::uint32_t t = 0; t < room; ++t) {
            words[t] = nothing;
            table[t] = reinterpret_cast<const std::uint8_t*>(nothing);
            symbol[t] = spare;
            if (t >= n_tiles) continue;
            const RansDecoder& decoder = *of[t].decoder;
            lanes[t] = decoder.lanes_;
            steps[t] = decoder.good_ ? of[t].n / lanes[t] : 0;
            std::memcpy(states[t], decoder.state_, sizeof decoder.state_);
            words[t] = decoder.words_;
            table[t] = of[t].table;
            symbol[t] = of[t].symbol;
        }
        States x[n_vectors];
        for (std::uint32_t v = 0; v < n_vectors; ++v) x[v].load(states[in_vector * v]);
        for (std::uint32_t step = 0;;) {
            std::uint32_t until = UINT32_MAX, n_active = 0, active[n_vectors] = {};
            std::size_t advance[room] = {};
            for (std::uint32_t t = 0; t < room; ++t) {
                if (steps[t] <= step) continue;
                active[t / in_vector] |= ((1u << lanes[t]) - 1) << t % in_vector * v2::max_lanes;
                advance[t] = lanes[t];
                until = std::min(until, steps[t]);
                ++n_active;
            }
            if (n_active < 2) break;
            until = std::min(until, step + margin / v2::max_lanes);
            const std::uint32_t n_steps = until - step;
            typename States::Mask mask[n_vectors];
            for (std::uint32_t v = 0; v < n_vectors; ++v) mask[v] = States::mask_of(active[v]);
            for (std::uint32_t k = 0; k < n_steps; ++k)
                for (std::uint32_t v = 0; v < n_vectors; ++v) {
                    const std::uint32_t t = in_vector * v;
                    std::uint32_t tables[in_vector], symbols[4];
                    for (std::uint32_t i = 0; i < in_vector; ++i)
                        std::memcpy(tables + i, table[t + i] + k * advance[t + i], 4);
                    const __m128i bytes = x[v].step(of_slot, mask[v], tables, words + t);
                    std::memcpy(symbols, &bytes, sizeof symbols);
                    for (std::uint32_t i = 0; i < in_vector; ++i)
                        std::memcpy(symbol[t + i] + k * advance[t + i], symbols + i, 4);
                }
            for (std::uint32_t t = 0; t < room; ++t) {
                table[t] += advance[t] * n_steps;
                symbol[t] += advance[t] * n_steps;
            }
            step = until;
            for (std::uint32_t t = 0; t < n_tiles; ++t)
                if (words[t] > of[t].decoder->end_ && advance[t] > 0) { // this one is corrupt
                    of[t].decoder->good_ = false;
                    steps[t] = 0;
                    words[t] = nothing; // loaded from further on, though not used
                }
        }
        for (std::uint32_t v = 0; v < n_vectors; ++v) x[v].store(states[in_vector * v]);
        for (std::uint32_t t = 0; t < n_tiles; ++t) {
            RansDecoder& decoder = *of[t].decoder;
            std::memcpy(decoder.state_, states[t], sizeof decoder.state_);
            decoder.words_ = words[t];
            done[t] = static_cast<std::uint32_t>(symbol[t] - of[t].symbol);
        }
    }
#endif

    [[gnu::always_inline]] static void renew(std::uint32_t& x, const std::uint16_t*& words) {
        const std::uint32_t low = x < v2::rans_low; // without a branch, which would be mispredicted
        x = x << 16 * low | (*words & (0 - low));
        words += low;
    }
    [[gnu::always_inline]] static std::uint8_t next(const std::uint32_t* of_slot, std::uint32_t& x,
                                                    const std::uint16_t*& words) {
        const std::uint32_t of = of_slot[x % v2::rans_total];
        x = ((of >> 8 & 0xFFF) + 1) * (x >> v2::rans_bits) + (of >> 20);
        renew(x, words);
        return static_cast<std::uint8_t>(of);
    }

    const RansReading* reading_ = nullptr;
    std::uint32_t lanes_ = 1;
    std::uint32_t state_[v2::max_lanes] = {v2::rans_low, v2::rans_low, v2::rans_low, v2::rans_low};
    const std::uint16_t* words_ = nullptr;
    const std::uint16_t* end_ = nullptr;
    bool good_ = true;
};

} // namespace cusz::cpu::CUSZ_ISA
