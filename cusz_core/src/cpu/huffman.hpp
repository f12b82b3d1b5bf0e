// Encoding of deltas into substreams and back (paper, sections 3.2.4 and 3.3; docs/format.md, sections 6 and 8).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "../tiling.hpp"
#include "codebook.hpp"
#include "isa.hpp"

namespace cusz::cpu::CUSZ_ISA {

inline constexpr std::uint32_t max_substreams = 32;

inline std::uint32_t substream_count(std::uint32_t n) { return std::min(max_substreams, (n + 63) / 64); }

// Bits of every substream, and how the payload stores them: less the shortest, `width` bits each.
struct SubstreamBits {
    std::uint32_t count = 0;
    std::array<std::uint32_t, max_substreams> bits{};

    std::uint32_t shortest() const { return *std::min_element(bits.begin(), bits.begin() + count); }
    std::uint32_t width() const { // of longest - shortest
        return static_cast<std::uint32_t>(
            std::bit_width(*std::max_element(bits.begin(), bits.begin() + count) - shortest()));
    }
    std::uint32_t total() const { return std::accumulate(bits.begin(), bits.begin() + count, 0u); }
};

// Appends bits to memory, whole bytes at a time; fewer than 8 bits wait between calls of flush().
class BitWriter {
public:
    explicit BitWriter(std::uint32_t* words) : begin_(reinterpret_cast<char*>(words)), at_(begin_) {}

    // At most 63 bits together between two calls of flush(), those waiting included.
    void append(std::uint32_t bits, std::uint32_t length) {
        buffer_ |= std::uint64_t{bits} << pending_;
        pending_ += length;
    }
    // Writes eight bytes, of which those that are full count.
    void flush() {
        std::memcpy(at_, &buffer_, 8);
        at_ += pending_ >> 3;
        buffer_ >>= pending_ & 56;
        pending_ &= 7;
    }
    std::uint32_t bits() const { return static_cast<std::uint32_t>(at_ - begin_) * 8 + pending_; }

private:
    char *begin_, *at_;
    std::uint64_t buffer_ = 0;
    std::uint32_t pending_ = 0;
};

// Encodes the substreams `first` to `last` - 1 of n deltas; lengths.count is known.
inline void encode_substreams(const std::int32_t* delta, std::uint32_t n, const EncodeBook& book, std::uint32_t first,
                              std::uint32_t last, BitWriter& out, SubstreamBits& lengths) {
    BitWriter writer = out; // a copy whose address nobody has stays in registers
    const EncodeBook::Entry* const table = book.table();
    const std::uint32_t span = book.span(), count = lengths.count;
    // Between two calls of flush(): 7 bits that wait, and two symbols of the table, each at most 15 + 7 bits. Others
    // take up to 32 bits, so they flush first.
    const auto put = [&](std::int32_t d) {
        const std::uint32_t at = static_cast<std::uint32_t>(d) + span;
        if (at < 2 * span) [[likely]]
            return writer.append(table[at].bits, table[at].length);
        writer.flush();
        const EncodeBook::Entry entry = book.compose(d);
        writer.append(entry.bits, entry.length);
    };
    for (std::uint32_t s = first; s < last; ++s) {
        const std::uint32_t before = writer.bits();
        const std::int32_t* next = delta + s;
        std::uint32_t left = (n - s + count - 1) / count;
        for (; left >= 2; left -= 2, next += 2 * count) {
            put(next[0]);
            put(next[count]);
            writer.flush();
        }
        if (left == 1) put(*next);
        writer.flush();
        lengths.bits[s] = writer.bits() - before;
    }
    writer.flush();
    out = writer;
}

// Encodes n deltas to at most 8 bytes beyond whole words. Returns the substreams' lengths.
inline SubstreamBits encode(const std::int32_t* delta, std::uint32_t n, const EncodeBook& book, std::uint32_t* words) {
    SubstreamBits lengths;
    lengths.count = substream_count(n);
    BitWriter writer(words);
    encode_substreams(delta, n, book, 0, lengths.count, writer, lengths);
    return lengths;
}

// Decodes `lanes` neighbouring substreams in step: their dependency chains overlap.
template <std::uint32_t lanes>
void decode_lanes(const char* bytes, std::uint32_t* position, std::uint32_t stride, std::uint32_t rounds,
                  const DecodeBook& book, std::int32_t* delta) {
    const DecodeBook::Entry* const table = book.table();
    const std::uint32_t mask = book.mask();
    std::uint32_t at[lanes];
    std::memcpy(at, position, sizeof at);
    for (std::uint32_t i = 0; i < rounds; ++i, delta += stride) {
        for (std::uint32_t lane = 0; lane < lanes; ++lane) {
            std::uint64_t window;
            std::memcpy(&window, bytes + (at[lane] >> 3), 8);
            window >>= at[lane] & 7;
            const DecodeBook::Entry entry = table[static_cast<std::uint32_t>(window) & mask];
            const std::uint32_t length = entry.length(), raw_bits = entry.raw_bits();
            const auto raw = static_cast<std::uint32_t>(window >> length) & ((1u << raw_bits) - 1);
            delta[lane] = entry.base() + static_cast<std::int32_t>(raw);
            at[lane] += length + raw_bits;
        }
    }
    std::memcpy(position, at, sizeof at);
}

// Words that decode() may read behind the last substream.
inline constexpr std::uint32_t decode_margin_words = max_tile_values / max_substreams * 2 + 4;

// Decodes n deltas. words: the substreams, readable for decode_margin_words more. Returns false if a substream does not
// end where its length says.
inline bool decode(const std::uint32_t* words, const SubstreamBits& lengths, std::uint32_t n, const DecodeBook& book,
                   std::int32_t* delta) {
    if (n > 0 && book.empty()) return false;
    const char* bytes = reinterpret_cast<const char*>(words);
    const std::uint32_t count = lengths.count;
    std::array<std::uint32_t, max_substreams> position{}, end{};
    for (std::uint32_t s = 0, at = 0; s < count; ++s) {
        position[s] = at;
        at += lengths.bits[s];
        end[s] = at;
    }
    const std::uint32_t rounds = count == 0 ? 0 : n / count; // in which every substream has a symbol
    std::uint32_t s = 0;
    for (; s + 4 <= count; s += 4) decode_lanes<4>(bytes, &position[s], count, rounds, book, delta + s);
    for (; s < count; ++s) decode_lanes<1>(bytes, &position[s], count, rounds, book, delta + s);
    for (std::uint32_t j = rounds * count; j < n; ++j)
        decode_lanes<1>(bytes, &position[j - rounds * count], count, 1, book, delta + j);
    return std::equal(position.begin(), position.begin() + count, end.begin());
}

// Words of `count` numbers of `width` bits (0 to 16), their packing, and the inverse.
inline std::uint32_t packed_words(std::uint32_t count, std::uint32_t width) { return (count * width + 31) / 32; }

inline void pack(const std::uint32_t* numbers, std::uint32_t count, std::uint32_t width, std::uint32_t* words) {
    std::uint64_t buffer = 0;
    std::uint32_t pending = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        buffer |= std::uint64_t{numbers[i]} << pending;
        pending += width;
        if (pending < 32) continue;
        *words++ = static_cast<std::uint32_t>(buffer);
        buffer >>= 32;
        pending -= 32;
    }
    if (pending > 0) *words = static_cast<std::uint32_t>(buffer);
}

inline void unpack(const std::uint32_t* words, std::uint32_t count, std::uint32_t width, std::uint32_t* numbers) {
    std::uint64_t buffer = 0;
    std::uint32_t available = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        if (available < width) {
            buffer |= std::uint64_t{*words++} << available;
            available += 32;
        }
        numbers[i] = static_cast<std::uint32_t>(buffer) & ((1u << width) - 1);
        buffer >>= width;
        available -= width;
    }
}

} // namespace cusz::cpu::CUSZ_ISA
