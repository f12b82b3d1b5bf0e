// huffman.hpp's encode() and decode() with one substream per lane, 16 neighbouring substreams at a time: their next
// symbols are adjacent in tile order, and one gather looks up all of them. This needs AVX-512 with gathers that are
// faster than single loads (docs/benchmarks/cpu.md).
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "codec/lorenzo/codebook.hpp"
#include "simd/isa.hpp"
#include "substreams.hpp"

namespace cusz::cpu::CUSZ_ISA {

inline constexpr std::uint32_t halves = max_substreams / 16;

// Mask of the lanes of one half that have a symbol in this round: those of `first` to first + 15 that are below `end`.
// `end` may be at most `first` + 255, or less than `first`.
inline __mmask16 lanes_below(std::uint32_t first, std::uint32_t end) {
    return static_cast<__mmask16>(first < end ? _bzhi_u32(0xFFFF, end - first) : 0);
}

// The lower (0) or upper (1) eight numbers, widened to 64 bits.
template <int part>
__m512i widened(__m512i numbers) {
    return _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(numbers, part));
}

struct Codewords {
    __m512i bits, length; // length > 32: a symbol without a codeword
};

// Codewords and extra bits of 16 codes. wide: handles any code; else only codes from -span() to span() - 1.
template <bool has_missing, bool wide>
Codewords look_up(__m512i code, __mmask16 lanes, const EncodeBook& book) {
    const auto all = [](std::uint32_t n) { return _mm512_set1_epi32(static_cast<int>(n)); };
    const __m512i small = _mm512_add_epi32(code, all(book.span()));
    __m512i place;
    [[maybe_unused]] __m512i extra_bits;
    if constexpr (wide) {
        const __m512i magnitude =
            _mm512_max_epi32(_mm512_xor_si512(code, _mm512_srai_epi32(code, 31)), all(4)); // Alphabet::magnitude
        extra_bits = _mm512_sub_epi32(all(29), _mm512_lzcnt_epi32(magnitude));             // octave - 2
        place = _mm512_add_epi32(_mm512_slli_epi32(extra_bits, 4), _mm512_srav_epi32(code, extra_bits));
        place = _mm512_add_epi32(place, all(book.first_bucket_place() + EncodeBook::bucket_place(0, 0)));
        const __mmask16 is_small = _mm512_cmplt_epu32_mask(small, all(2 * book.span()));
        place = _mm512_mask_mov_epi32(place, is_small, small);
        extra_bits = _mm512_mask_mov_epi32(extra_bits, is_small, _mm512_setzero_si512());
    } else {
        place = _mm512_min_epu32(small, all(book.no_place()));
    }
    if constexpr (has_missing) {
        const __mmask16 is_missing = _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(missing_code));
        place = _mm512_mask_mov_epi32(place, is_missing, all(book.missing_place()));
        if constexpr (wide) extra_bits = _mm512_mask_mov_epi32(extra_bits, is_missing, _mm512_setzero_si512());
    }
    const __m512i word = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), lanes, place, book.words(), 4);
    Codewords codewords{_mm512_srli_epi32(word, 8), _mm512_and_si512(word, all(255))};
    if constexpr (wide) {
        const __m512i extra = _mm512_andnot_si512(_mm512_sllv_epi32(all(~0u), extra_bits), code);
        codewords.bits = _mm512_or_si512(codewords.bits, _mm512_sllv_epi32(extra, codewords.length));
        codewords.length = _mm512_mask_add_epi32(codewords.length, lanes, codewords.length, extra_bits);
    }
    return codewords;
}

// Writes substreams, each to its own memory, 64 bits at a time; the bits of an incomplete word stay pending in the
// substream's lane. Small enough to live in registers.
struct LaneWriters {
    static constexpr std::uint32_t eights = max_substreams / 8;
    static constexpr std::uint32_t room =
        72; // words of a substream: at most 128 codewords of 32 bits, and pending bits
    static_assert(max_tile_values / max_substreams / 2 < room);

    std::uint64_t* buffer;                                // `room` words for each substream
    __m512i waiting[eights], pending[eights], at[eights]; // pending bits, their number, word in buffer

    explicit LaneWriters(std::uint64_t* memory) : buffer(memory) {
        const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
#pragma GCC unroll 4
        for (std::uint32_t eight = 0; eight < eights; ++eight) {
            at[eight] =
                _mm512_mullo_epi64(_mm512_add_epi64(lane, _mm512_set1_epi64(8 * eight)), _mm512_set1_epi64(room));
            waiting[eight] = pending[eight] = _mm512_setzero_si512();
        }
    }
    // Appends `length` bits, at most 64, to each of eight substreams. Higher bits must be 0.
    [[gnu::always_inline]] void append(std::uint32_t eight, __m512i bits, __m512i length) {
        const __m512i all = _mm512_set1_epi64(64);
        const __m512i word = _mm512_or_si512(waiting[eight], _mm512_sllv_epi64(bits, pending[eight]));
        const __m512i rest = _mm512_srlv_epi64(bits, _mm512_sub_epi64(all, pending[eight]));
        const __m512i sum = _mm512_add_epi64(pending[eight], length);
        const __mmask8 full = _mm512_test_epi64_mask(sum, all);
        _mm512_mask_i64scatter_epi64(buffer, full, at[eight], word, 8);
        at[eight] = _mm512_mask_add_epi64(at[eight], full, at[eight], _mm512_set1_epi64(1));
        waiting[eight] = _mm512_mask_mov_epi64(word, full, rest);
        pending[eight] = _mm512_andnot_si512(all, sum);
    }
    [[gnu::always_inline]] void append_to_half(std::uint32_t half, __m512i bits, __m512i length) {
        append(2 * half, widened<0>(bits), widened<0>(length));
        append(2 * half + 1, widened<1>(bits), widened<1>(length));
    }
};

inline __mmask8 eight_below(std::uint32_t first, std::uint32_t end) {
    return static_cast<__mmask8>(first < end ? _bzhi_u32(0xFF, end - first) : 0);
}

// Concatenates the first `count` substreams, with zeros up to whole 64 bits. Returns their lengths.
inline SubstreamBits join_substreams(const LaneWriters& writers, std::uint32_t count, std::uint32_t* words) {
    alignas(64) std::uint64_t end[max_substreams], pending[max_substreams];
    for (std::uint32_t eight = 0; eight < LaneWriters::eights; ++eight) {
        _mm512_i64scatter_epi64(writers.buffer, writers.at[eight], writers.waiting[eight], 8);
        _mm512_store_si512(end + 8 * eight, writers.at[eight]);
        _mm512_store_si512(pending + 8 * eight, writers.pending[eight]);
    }
    SubstreamBits lengths;
    lengths.count = count;
    char* to = reinterpret_cast<char*>(words);
    std::uint32_t shift = 0;               // bits used in the last word written
    __m512i last = _mm512_setzero_si512(); // that word, in every lane
    for (std::uint32_t s = 0; s < count; ++s) {
        const std::uint64_t* const substream = writers.buffer + s * LaneWriters::room;
        const auto n_full = static_cast<std::uint32_t>(end[s] - s * LaneWriters::room);
        const std::uint32_t bits = lengths.bits[s] = n_full * 64 + static_cast<std::uint32_t>(pending[s]);
        const std::uint32_t n = (shift + bits + 63) / 64;
        const __m512i left = _mm512_set1_epi64(shift), right = _mm512_set1_epi64(64 - shift);
        __m512i before = _mm512_sllv_epi64(last, right), shifted = last;
        for (std::uint32_t k = 0; k < n; k += 8) {
            const __m512i here = _mm512_maskz_loadu_epi64(eight_below(k, n_full + 1), substream + k);
            shifted = _mm512_or_si512(_mm512_sllv_epi64(here, left),
                                      _mm512_srlv_epi64(_mm512_alignr_epi64(here, before, 7), right));
            _mm512_mask_storeu_epi64(to + 8 * k, eight_below(k, n), shifted);
            before = here;
        }
        to += (shift + bits) / 64 * 8;
        shift = (shift + bits) % 64;
        last = shift == 0 ? _mm512_setzero_si512() : _mm512_permutexvar_epi64(_mm512_set1_epi64(n - 1), shifted);
    }
    return lengths;
}

// Appends codewords that do not fit into two halves of 32 bits, or one of which is not in the table.
template <std::size_t batch>
[[gnu::noinline]] LaneWriters append_one_by_one(LaneWriters writers, const Codewords (&codewords)[batch],
                                                __mmask16 lanes, const std::int32_t* code, std::uint32_t count,
                                                std::uint32_t half, const EncodeBook& book) {
    for (std::uint32_t i = 0; i < batch; ++i, code += count) {
        alignas(64) std::uint32_t bits[16], length[16];
        _mm512_store_si512(bits, _mm512_maskz_mov_epi32(lanes, codewords[i].bits));
        _mm512_store_si512(length, _mm512_maskz_mov_epi32(lanes, codewords[i].length));
        for (std::uint32_t lane = 0; lane < 16; ++lane)
            if (length[lane] > 32) {
                const EncodeBook::Entry entry = book.compose(code[lane]);
                bits[lane] = entry.bits;
                length[lane] = entry.length;
            }
        writers.append_to_half(half, _mm512_load_si512(bits), _mm512_load_si512(length));
    }
    return writers;
}

// Joins the codewords of `batch` rounds before writing them. Returns false if more than `max_slow` batches could not be
// joined.
template <bool has_missing, bool wide>
bool encode_as(const std::int32_t* code, std::uint32_t n, const EncodeBook& book, std::uint32_t max_slow,
               std::uint32_t* words, SubstreamBits& lengths) {
    constexpr std::uint32_t batch = wide ? 2 : 4;
    const std::uint32_t count = substream_count(n);
    alignas(64) std::uint64_t buffer[max_substreams * LaneWriters::room];
    LaneWriters writers(buffer);
    for (std::uint32_t round = 0; round < n; round += batch * count)
#pragma GCC unroll 2
        for (std::uint32_t half = 0; half < halves; ++half) {
            Codewords codewords[batch];
#pragma GCC unroll 4
            for (std::uint32_t i = 0; i < batch; ++i) {
                const std::uint32_t first = round + i * count + 16 * half;
                const __mmask16 lanes = lanes_below(first, std::min(round + (i + 1) * count, n));
                codewords[i] = look_up<has_missing, wide>(_mm512_maskz_loadu_epi32(lanes, code + first), lanes, book);
            }
            // Two halves of the batch, of at most 32 bits each.
            __m512i bits[2], length[2];
            __mmask16 too_long = 0;
#pragma GCC unroll 2
            for (std::uint32_t i = 0; i < 2; ++i) {
                if constexpr (batch == 4) {
                    const Codewords &one = codewords[2 * i], &two = codewords[2 * i + 1];
                    bits[i] = _mm512_or_si512(one.bits, _mm512_sllv_epi32(two.bits, one.length));
                    length[i] = _mm512_add_epi32(one.length, two.length);
                } else {
                    bits[i] = codewords[i].bits;
                    length[i] = codewords[i].length;
                }
                too_long |= _mm512_cmpgt_epu32_mask(length[i], _mm512_set1_epi32(32));
            }
            if (too_long != 0) [[unlikely]] {
                if (max_slow-- == 0) return false;
                writers = append_one_by_one(writers, codewords, too_long, code + round + 16 * half, count, half, book);
                for (std::uint32_t i = 0; i < 2; ++i) {
                    bits[i] = _mm512_maskz_mov_epi32(static_cast<__mmask16>(~too_long), bits[i]);
                    length[i] = _mm512_maskz_mov_epi32(static_cast<__mmask16>(~too_long), length[i]);
                }
            }
            const auto append = [&]<int part>() __attribute__((always_inline)) {
                writers.append(2 * half + part,
                               _mm512_or_si512(widened<part>(bits[0]),
                                               _mm512_sllv_epi64(widened<part>(bits[1]), widened<part>(length[0]))),
                               _mm512_add_epi64(widened<part>(length[0]), widened<part>(length[1])));
            };
            append.template operator()<0>();
            append.template operator()<1>();
        }
    lengths = join_substreams(writers, count, words);
    return true;
}

inline SubstreamBits encode(const std::int32_t* code, std::uint32_t n, bool has_missing, const EncodeBook& book,
                            std::uint32_t* words) {
    SubstreamBits lengths;
    const auto as = [&]<bool wide>(std::uint32_t max_slow) {
        return has_missing ? encode_as<true, wide>(code, n, book, max_slow, words, lengths)
                           : encode_as<false, wide>(code, n, book, max_slow, words, lengths);
    };
    // The first codes usually tell whether nearly all codes are small enough for the table.
    const std::uint32_t some = std::min(n, 512u), span = book.span();
    std::uint32_t wide = 0;
    for (std::uint32_t i = 0; i < some; ++i)
        wide += static_cast<std::uint32_t>(code[i]) + span >= 2 * span && code[i] != missing_code ? 1 : 0;
    if (wide > some / 128 || !as.template operator()<false>(n / 512)) as.template operator()<true>(n);
    return lengths;
}

// The read position of every substream, in bits; within each half, even-numbered substreams come before odd-numbered
// ones, to suit vectors of 64-bit elements.
struct Positions {
    alignas(64) std::uint64_t at[halves][2][8];
    std::uint64_t& of(std::uint32_t substream) { return at[substream / 16][substream % 2][substream % 16 / 2]; }
};

// Decodes the next `rounds` symbols of a substream, loading bits for each one separately, to every `count`th code.
// Returns the smallest leading number.
template <bool has_missing>
[[gnu::noinline]] std::int32_t decode_one_by_one(const char* bytes, const DecodeBook& book, std::uint32_t rounds,
                                                 std::uint32_t count, std::uint64_t& position, std::int32_t* code) {
    std::int32_t least = 0;
    for (; rounds > 0; --rounds, code += count) {
        const auto window = static_cast<std::uint32_t>(load_bits(bytes, static_cast<std::uint32_t>(position)));
        const DecodeBook::Entry entry = book.table()[window & ((1u << book.width()) - 1)];
        const std::uint32_t extra_bits = entry.total() - entry.length(), above = ~0u << extra_bits;
        *code = static_cast<std::int32_t>((static_cast<std::uint32_t>(entry.leading()) << extra_bits) +
                                          (window >> entry.length() & ~above));
        if (has_missing && entry.leading() == Alphabet::missing_leading) *code = missing_code;
        least = std::min(least, entry.leading());
        position += entry.total();
    }
    return least;
}

// Makes 16 codes from their table entries and the bits looked up; updates the smallest leading number.
template <bool has_missing>
__m512i join(__m512i entry, __m512i window, __m512i& least) {
    const __m512i length = _mm512_and_si512(_mm512_srli_epi32(entry, 8), _mm512_set1_epi32(15));
    const __m512i extra_bits = _mm512_sub_epi32(_mm512_and_si512(entry, _mm512_set1_epi32(255)), length);
    const __m512i leading = _mm512_srai_epi32(entry, 12), above = _mm512_sllv_epi32(_mm512_set1_epi32(-1), extra_bits);
    const __m512i extra = _mm512_andnot_si512(above, _mm512_srlv_epi32(window, length));
    least = _mm512_min_epi32(least, leading);
    const __m512i code = _mm512_add_epi32(_mm512_sllv_epi32(leading, extra_bits), extra);
    if constexpr (!has_missing) return code;
    return _mm512_mask_mov_epi32(code, _mm512_cmpeq_epi32_mask(leading, _mm512_set1_epi32(Alphabet::missing_leading)),
                                 _mm512_set1_epi32(missing_code));
}

// Decodes the next `rounds` symbols of the substreams in `lanes` from one 64-bit load each. Returns the smallest
// leading number.
template <std::uint32_t rounds, bool has_missing>
std::int32_t decode_rounds(const char* bytes, const DecodeBook& book, const __mmask16 (&lanes)[halves],
                           std::uint32_t count, Positions& positions, std::int32_t* code) {
    const __m512i table_mask = _mm512_set1_epi32(static_cast<int>((1u << book.width()) - 1));
    const __m512i six_bits = _mm512_set1_epi64(63);
    __m512i position[halves][2], window[halves][2], least[halves]{};
    for (std::uint32_t half = 0; half < halves; ++half)
        for (std::uint32_t odd = 0; odd < 2; ++odd) {
            const __m512i at = position[half][odd] = _mm512_load_si512(positions.at[half][odd]);
            const __m512i loaded = _mm512_i64gather_epi64(_mm512_srli_epi64(at, 3), bytes, 1);
            // The top bit is set: the zeros above it at the end count the bits consumed.
            window[half][odd] = _mm512_or_si512(_mm512_srlv_epi64(loaded, _mm512_and_si512(at, _mm512_set1_epi64(7))),
                                                _mm512_set1_epi64(INT64_MIN));
        }
    for (std::uint32_t i = 0; i < rounds; ++i)
        for (std::uint32_t half = 0; half < halves; ++half) {
            __m512i &even = window[half][0], &odd = window[half][1];
            const __m512i both = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
            const __m512i entry = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), lanes[half],
                                                              _mm512_and_si512(both, table_mask), book.table(), 4);
            _mm512_mask_storeu_epi32(code + i * count + 16 * half, lanes[half],
                                     join<has_missing>(entry, both, least[half]));
            even = _mm512_srlv_epi64(even, _mm512_and_si512(entry, six_bits));
            odd = _mm512_srlv_epi64(odd, _mm512_and_si512(_mm512_srli_epi64(entry, 32), six_bits));
        }
    std::int32_t of_others = 0;
    for (std::uint32_t half = 0; half < halves; ++half) {
        std::uint32_t wrong = 0; // bit mask of the 16 lanes
        for (std::uint32_t odd = 0; odd < 2; ++odd) {
            // Symbols that end within the 57 bits are right, because codewords are prefix-free.
            const __m512i total = _mm512_lzcnt_epi64(window[half][odd]);
            const __mmask8 right = _mm512_cmple_epi64_mask(total, _mm512_set1_epi64(57));
            _mm512_store_si512(positions.at[half][odd],
                               _mm512_mask_add_epi64(position[half][odd], right, position[half][odd], total));
            wrong |= _pdep_u32(0xFFu ^ right, 0x5555u << odd);
        }
        if (wrong == 0) [[likely]]
            continue;
        least[half] = _mm512_maskz_mov_epi32(static_cast<__mmask16>(~wrong), least[half]);
        for (; wrong != 0; wrong &= wrong - 1) {
            const std::uint32_t substream = 16 * half + static_cast<std::uint32_t>(std::countr_zero(wrong));
            of_others = std::min(of_others, decode_one_by_one<has_missing>(bytes, book, rounds, count,
                                                                           positions.of(substream), code + substream));
        }
    }
    return std::min(of_others, _mm512_reduce_min_epi32(_mm512_min_epi32(least[0], least[1])));
}

template <bool has_missing>
bool decode(const std::uint32_t* words, const SubstreamBits& lengths, std::uint32_t n, const DecodeBook& book,
            std::int32_t* code) {
    if (n > 0 && book.empty()) return false;
    const char* bytes = reinterpret_cast<const char*>(words);
    const std::uint32_t count = lengths.count;
    Positions positions{};
    std::uint32_t bits = 0;
    for (std::uint32_t s = 0; s < count; bits += lengths.bits[s++]) positions.of(s) = bits;
    std::int32_t least = 0;
    std::uint32_t j = 0;
    const auto decode_while = [&]<std::uint32_t rounds>() {
        const __mmask16 lanes[halves]{lanes_below(0, count), lanes_below(16, count)};
        for (; j + rounds * count <= n; j += rounds * count)
            least = std::min(least, decode_rounds<rounds, has_missing>(bytes, book, lanes, count, positions, code + j));
    };
    if (count > 0) { // as many symbols per load as usually end within 57 bits
        if (bits <= 7 * n) decode_while.template operator()<6>();
        if (bits <= 11 * n) decode_while.template operator()<4>();
        decode_while.template operator()<2>();
        decode_while.template operator()<1>();
    }
    if (j < n) {
        const __mmask16 lanes[halves]{lanes_below(j, n), lanes_below(j + 16, n)};
        least = std::min(least, decode_rounds<1, has_missing>(bytes, book, lanes, count, positions, code + j));
    }
    bool whole = true;
    std::uint32_t end = 0;
    for (std::uint32_t s = 0; s < count; ++s) whole = whole && positions.of(s) == (end += lengths.bits[s]);
    return whole && (least == Alphabet::missing_leading) == has_missing;
}

} // namespace cusz::cpu::CUSZ_ISA
