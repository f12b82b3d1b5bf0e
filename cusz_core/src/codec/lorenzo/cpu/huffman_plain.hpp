// huffman.hpp's encode() and decode(), with table lookups one value at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "codec/lorenzo/codebook.hpp"
#include "simd/isa.hpp"
#include "substreams.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Looks up the places of n codes in the book's table: no_place for codes that are not small. Returns how many are not
// small.
template <bool has_missing>
std::uint32_t find_places(const std::int32_t* __restrict code, std::uint32_t n, const EncodeBook& book,
                          std::uint16_t* __restrict place) {
    const std::uint32_t span = book.span();
    std::uint32_t wide = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
        const std::uint32_t at = std::min(static_cast<std::uint32_t>(code[i]) + span, 2 * span);
        const bool missing = has_missing && code[i] == missing_code;
        place[i] = static_cast<std::uint16_t>(missing ? book.missing_place() : at);
        wide += at == 2 * span && !missing ? 1 : 0;
    }
    return wide;
}

// As above, with places in the buckets for codes that are not small.
inline void find_wide_places(const std::int32_t* __restrict code, std::uint32_t n, const EncodeBook& book,
                             std::uint16_t* __restrict place) {
    const std::uint32_t span = book.span();
    for (std::uint32_t i = 0; i < n; ++i) {
        const std::int32_t d = code[i];
        const std::uint32_t magnitude = std::max(Alphabet::magnitude(d), 4u);
        // The octave is the exponent in single precision, which represents any code exactly.
        const std::uint32_t octave = (bits_of(static_cast<float>(static_cast<std::int32_t>(magnitude))) >> 23) - 127;
        const std::uint32_t extra_bits = octave - 2;
        const std::uint32_t bucket = book.first_bucket_place() + EncodeBook::bucket_place(extra_bits, d >> extra_bits);
        const std::uint32_t small = static_cast<std::uint32_t>(d) + span;
        const std::uint32_t at = d == missing_code ? book.missing_place() : bucket;
        place[i] = static_cast<std::uint16_t>(small < 2 * span ? small : at);
    }
}

// Encodes n codes, `batch` symbols at a time, writing at most 8 bytes past the last whole word, and returns the
// substreams' lengths. wide: places are those of find_wide_places. stride: the number of substreams, or 0 if it is not
// a compile-time constant.
template <std::uint32_t batch, bool wide, std::uint32_t stride>
SubstreamBits encode_as(const std::int32_t* code, const std::uint16_t* place, std::uint32_t n, const EncodeBook& book,
                        std::uint32_t* words) {
    SubstreamBits lengths;
    const std::uint32_t count = lengths.count = stride > 0 ? stride : substream_count(n);
    const std::uint32_t *const codeword = book.bits(), *const codeword_length = book.lengths();
    const std::uint8_t* const extra_bits = book.extra_bits();
    BitWriter writer(words);
    const auto put = [&](std::int64_t i) {
        if (wide || codeword_length[place[i]] == EncodeBook::no_entry) {
            const EncodeBook::Entry entry = book.compose(code[i]);
            writer.append(entry.bits, entry.length);
        } else {
            writer.append(codeword[place[i]], codeword_length[place[i]]);
        }
        writer.flush();
    };
    for (std::uint32_t s = 0; s < count; ++s) {
        const std::uint32_t before = writer.bits();
        std::int64_t next = s;
        std::uint32_t left = (n - s + count - 1) / count;
        for (; left >= batch; left -= batch, next += batch * count) {
            // Joined first, so that the writer's dependency chain has one addition per batch.
            std::uint64_t bits = 0;
            std::uint32_t length = 0;
            for (std::uint32_t i = 0; i < batch; ++i) {
                const std::uint16_t at = place[next + i * count];
                bits |= std::uint64_t{codeword[at]} << (length & 63);
                length += codeword_length[at];
                if constexpr (wide) {
                    const std::uint32_t raw_length = extra_bits[at];
                    const std::uint32_t extra =
                        static_cast<std::uint32_t>(code[next + i * count]) & ((1u << raw_length) - 1);
                    bits |= std::uint64_t{extra} << (length & 63);
                    length += raw_length;
                }
            }
            if (length > 56) [[unlikely]] { // more than the writer takes with 7 bits pending; or no entry
                for (std::uint32_t i = 0; i < batch; ++i) put(next + i * count);
                continue;
            }
            writer.append(bits, length);
            writer.flush();
        }
        for (; left > 0; --left, next += count) put(next);
        lengths.bits[s] = writer.bits() - before;
    }
    writer.flush(); // pads the last word with zeros
    return lengths;
}

inline SubstreamBits encode(const std::int32_t* code, std::uint32_t n, bool has_missing, const EncodeBook& book,
                            std::uint32_t* words) {
    std::uint16_t place[max_tile_values];
    const bool whole = substream_count(n) == max_substreams;
    const std::uint32_t wide =
        has_missing ? find_places<true>(code, n, book, place) : find_places<false>(code, n, book, place);
    if (wide <= n / 64 && book.longest_of_small() <= 18)
        return whole ? encode_as<3, false, max_substreams>(code, place, n, book, words)
                     : encode_as<3, false, 0>(code, place, n, book, words);
    find_wide_places(code, n, book, place);
    return whole ? encode_as<2, true, max_substreams>(code, place, n, book, words)
                 : encode_as<2, true, 0>(code, place, n, book, words);
}

// The codes of n symbols from their table entries and the bits looked up, by vectors; missing_code for missing values,
// if there are any. Returns the smallest leading number.
template <bool has_missing>
std::int32_t join(const std::uint32_t* __restrict entries, const std::uint32_t* __restrict windows, std::size_t n,
                  std::int32_t* __restrict code) {
    std::int32_t least = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const DecodeBook::Entry entry{entries[i]};
        const std::uint32_t length = entry.length(), extra_bits = entry.total() - length;
        const std::uint32_t above = ~0u << extra_bits, leading = static_cast<std::uint32_t>(entry.leading());
        least = std::min(least, entry.leading());
        code[i] = static_cast<std::int32_t>((leading << extra_bits) + ((windows[i] >> length) & ~above));
        if constexpr (has_missing) code[i] = entry.leading() == Alphabet::missing_leading ? missing_code : code[i];
    }
    return least;
}

// The read position of every substream, and rounds of symbols that are looked up but not yet codes: table entries and
// the bits looked up.
struct Reading {
    static constexpr std::uint32_t max_rounds = 6;
    std::uint32_t position[max_substreams]; // in bits
    std::uint32_t entry[max_rounds][max_substreams];
    std::uint32_t window[max_rounds][max_substreams];
};

// Reads the next `rounds` symbols of a substream, loading bits for each one separately.
[[gnu::noinline]] inline void read_one_by_one(const char* bytes, const DecodeBook& book, std::uint32_t rounds,
                                              std::uint32_t lane, Reading& reading) {
    for (std::uint32_t i = 0; i < rounds; ++i) {
        const auto window = static_cast<std::uint32_t>(load_bits(bytes, reading.position[lane]));
        const DecodeBook::Entry entry = book.table()[window & ((1u << book.width()) - 1)];
        reading.entry[i][lane] = entry.word;
        reading.window[i][lane] = window;
        reading.position[lane] += entry.total();
    }
}

// Reads the next `rounds` symbols of the substreams `first` to first + lanes - 1 from one 64-bit load each. A symbol
// depends on the previous one in its substream, and processors look only a few dozen instructions ahead, so the
// substreams take turns symbol by symbol (docs/design/decisions.md).
template <std::uint32_t rounds, std::size_t lanes>
[[gnu::always_inline]] inline void read_lanes(const char* bytes, std::size_t first, const DecodeBook& book,
                                              Reading& reading) {
    const DecodeBook::Entry* const table = book.table();
    const std::uint32_t mask = (1u << book.width()) - 1;
    // The top bit is set: the zeros above it at the end count the bits consumed.
    std::uint64_t window[lanes];
#pragma GCC unroll 8
    for (std::size_t lane = 0; lane < lanes; ++lane)
        window[lane] = load_bits(bytes, reading.position[first + lane]) | std::uint64_t{1} << 63;
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 8
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            const std::uint32_t word = table[static_cast<std::uint32_t>(window[lane]) & mask].word;
            reading.entry[i][first + lane] = word;
            reading.window[i][first + lane] = static_cast<std::uint32_t>(window[lane]);
            window[lane] >>= word & 63;
        }
    }
#pragma GCC unroll 8
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        // Symbols that end within the 57 bits are right, because codewords are prefix-free.
        const auto total = static_cast<std::uint32_t>(std::countl_zero(window[lane]));
        if (total <= 57) [[likely]]
            reading.position[first + lane] += total;
        else
            read_one_by_one(bytes, book, rounds, static_cast<std::uint32_t>(first + lane), reading);
    }
}

// Reads the next `rounds` symbols of every substream.
template <std::uint32_t rounds>
void read_rounds(const char* bytes, std::uint32_t count, const DecodeBook& book, Reading& reading) {
    static_assert(rounds <= Reading::max_rounds);
    std::size_t lane = 0;
    for (; lane + 8 <= count; lane += 8) read_lanes<rounds, 8>(bytes, lane, book, reading);
    for (; lane < count; ++lane) read_lanes<rounds, 1>(bytes, lane, book, reading);
}

template <bool has_missing>
bool decode(const std::uint32_t* words, const SubstreamBits& lengths, std::uint32_t n, const DecodeBook& book,
            std::int32_t* code) {
    if (n > 0 && book.empty()) return false;
    const char* bytes = reinterpret_cast<const char*>(words);
    const std::uint32_t count = lengths.count;
    Reading reading;
    std::uint32_t end[max_substreams], bits = 0;
    for (std::uint32_t s = 0; s < count; ++s) {
        reading.position[s] = bits;
        end[s] = bits += lengths.bits[s];
    }
    std::int32_t least = 0;
    std::uint32_t j = 0;
    const auto read_while = [&]<std::uint32_t rounds>() {
        for (; j + rounds * count <= n; j += rounds * count) {
            read_rounds<rounds>(bytes, count, book, reading);
            if (count == max_substreams) {
                least =
                    std::min(least, join<has_missing>(reading.entry[0], reading.window[0], rounds * count, code + j));
                continue;
            }
            for (std::uint32_t i = 0; i < rounds; ++i)
                least = std::min(least,
                                 join<has_missing>(reading.entry[i], reading.window[i], count, code + j + i * count));
        }
    };
    if (count > 0) { // as many symbols per load as usually end within 57 bits
        if (bits <= 7 * n) read_while.template operator()<6>();
        if (bits <= 11 * n) read_while.template operator()<4>();
        read_while.template operator()<2>();
        read_while.template operator()<1>();
        for (std::uint32_t lane = 0; j < n; ++lane, ++j) {
            read_one_by_one(bytes, book, 1, lane, reading);
            least = std::min(least, join<has_missing>(&reading.entry[0][lane], &reading.window[0][lane], 1, code + j));
        }
    }
    return (least == Alphabet::missing_leading) == has_missing &&
           std::equal(reading.position, reading.position + count, end);
}

} // namespace cusz::cpu::CUSZ_ISA
