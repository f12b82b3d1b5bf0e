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
    void append(std::uint64_t bits, std::uint32_t length) {
        buffer_ |= bits << pending_;
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

// Places of n deltas in the book's table.
inline void find_places(const std::int32_t* __restrict delta, std::uint32_t n, std::uint32_t span,
                        std::uint16_t* __restrict place) {
    for (std::uint32_t i = 0; i < n; ++i)
        place[i] = static_cast<std::uint16_t>(std::min(static_cast<std::uint32_t>(delta[i]) + span, 2 * span));
}

// Encodes n deltas to at most 8 bytes beyond whole words, `batch` symbols at a time. Returns the substreams' lengths.
// stride: the number of substreams, or 0 where the compiler does not know it.
template <std::uint32_t batch, std::uint32_t stride>
SubstreamBits encode_as(const std::int32_t* delta, std::uint32_t n, const EncodeBook& book, std::uint32_t* words) {
    SubstreamBits lengths;
    const std::uint32_t count = lengths.count = stride > 0 ? stride : substream_count(n);
    const std::uint32_t *const code = book.table_bits(), *const code_length = book.table_lengths();
    std::uint16_t place[max_tile_values];
    find_places(delta, n, book.span(), place);
    BitWriter writer(words);
    const auto put = [&](const std::uint16_t* at) {
        if (code_length[*at] != EncodeBook::no_entry) {
            writer.append(code[*at], code_length[*at]);
        } else {
            const EncodeBook::Entry entry = book.compose(delta[at - place]);
            writer.append(entry.bits, entry.length);
        }
        writer.flush();
    };
    for (std::uint32_t s = 0; s < count; ++s) {
        const std::uint32_t before = writer.bits();
        const std::uint16_t* next = place + s;
        std::uint32_t left = (n - s + count - 1) / count;
        for (; left >= batch; left -= batch, next += batch * count) {
            // Joined first: the writer's state then waits for one addition a batch.
            std::uint64_t bits = 0;
            std::uint32_t length = 0;
            for (std::uint32_t i = 0; i < batch; ++i) {
                bits |= std::uint64_t{code[next[i * count]]} << (length & 63);
                length += code_length[next[i * count]];
            }
            if (length >= EncodeBook::no_entry) [[unlikely]] {
                for (std::uint32_t i = 0; i < batch; ++i) put(next + i * count);
                continue;
            }
            writer.append(bits, length);
            writer.flush();
        }
        for (; left > 0; --left, next += count) put(next);
        lengths.bits[s] = writer.bits() - before;
    }
    writer.flush(); // fills the last word with zeros
    return lengths;
}

// Up to 7 bits wait when a batch of symbols of the table is appended: 63 bits in all.
inline SubstreamBits encode(const std::int32_t* delta, std::uint32_t n, const EncodeBook& book, std::uint32_t* words) {
    if (book.longest_in_table() > 18) return encode_as<2, 0>(delta, n, book, words);
    return substream_count(n) == max_substreams ? encode_as<3, max_substreams>(delta, n, book, words)
                                                : encode_as<3, 0>(delta, n, book, words);
}

// The deltas of symbols, from what the table says and the bits looked at: many at once, by vectors.
inline void join(const std::int32_t* __restrict entries, const std::uint32_t* __restrict windows, std::size_t n,
                 std::int32_t* __restrict delta) {
    for (std::size_t i = 0; i < n; ++i) {
        const DecodeBook::Entry entry{entries[i]};
        const std::uint32_t length = entry.length(), raw_bits = entry.total() - length;
        delta[i] = entry.base() + static_cast<std::int32_t>((windows[i] >> length) & ~(~0u << raw_bits));
    }
}

// Rounds of symbols on their way from their bits to deltas: entries of the table and the bits looked at.
inline constexpr std::uint32_t block_rounds = 8;
struct Block {
    std::int32_t entry[block_rounds][max_substreams];
    std::uint32_t window[block_rounds][max_substreams];
};

// At least 57 bits from bit `at` on.
inline std::uint64_t load_bits(const char* bytes, std::uint32_t at) {
    std::uint64_t window;
    std::memcpy(&window, bytes + (at >> 3), 8);
    return window >> (at & 7);
}

// Reads a block's symbols of the substreams from `first` on, `lanes` of them in step, so that their chains of
// dependency overlap, and two symbols from every 64 bits loaded.
template <std::uint32_t lanes>
void read_lanes(const char* bytes, std::uint32_t* position, const DecodeBook& book, std::uint32_t first, Block& block) {
    const DecodeBook::Entry* const table = book.table();
    const std::uint32_t mask = book.mask();
    std::uint32_t at[lanes];
    std::memcpy(at, position + first, sizeof at);
    for (std::uint32_t round = 0; round < block_rounds; round += 2) {
        std::int32_t* const entry = block.entry[round] + first;
        std::uint32_t* const seen = block.window[round] + first;
        for (std::uint32_t lane = 0; lane < lanes; ++lane) {
            std::uint64_t window = load_bits(bytes, at[lane]);
            const DecodeBook::Entry one = table[static_cast<std::uint32_t>(window) & mask];
            entry[lane] = one.word;
            seen[lane] = static_cast<std::uint32_t>(window);
            window >>= one.total();
            const DecodeBook::Entry two = table[static_cast<std::uint32_t>(window) & mask];
            entry[lane + max_substreams] = two.word;
            const std::uint32_t both = one.total() + two.total();
            if (both > 57) [[unlikely]] // the second code was whole (at most 32 + 15 bits), its raw bits were not
                window = load_bits(bytes, at[lane] + one.total());
            seen[lane + max_substreams] = static_cast<std::uint32_t>(window);
            at[lane] += both;
        }
    }
    std::memcpy(position + first, at, sizeof at);
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
    Block block;
    std::uint32_t j = 0;
    for (; j + block_rounds * count <= n && count > 0; j += block_rounds * count) {
        std::uint32_t lane = 0;
        for (; lane + 4 <= count; lane += 4) read_lanes<4>(bytes, position.data(), book, lane, block);
        for (; lane < count; ++lane) read_lanes<1>(bytes, position.data(), book, lane, block);
        for (std::uint32_t round = 0; round < block_rounds; ++round)
            join(block.entry[round], block.window[round], count, delta + j + round * count);
    }
    for (std::uint32_t lane = 0; j < n; ++j, lane = lane + 1 == count ? 0 : lane + 1) {
        const auto window = static_cast<std::uint32_t>(load_bits(bytes, position[lane]));
        const DecodeBook::Entry entry = book.table()[window & book.mask()];
        join(&entry.word, &window, 1, delta + j);
        position[lane] += entry.total();
    }
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
