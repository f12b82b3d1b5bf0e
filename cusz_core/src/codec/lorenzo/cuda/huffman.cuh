// Encodes symbols into substreams, by a thread block, and decodes them, by a warp (paper, sections 3.2.4 and 3.3;
// docs/reference/format.md, sections 6 to 8).
#pragma once

#include <algorithm>
#include <bit>

#include "archive/alphabet.hpp"
#include "device/block.cuh"
#include "payload_reader.cuh"
#include "tile.cuh"

namespace cusz::cuda {

inline constexpr std::uint32_t max_substreams = 32;

__device__ inline std::uint32_t substream_count(std::uint32_t n) { return std::min((n + 63) / 64, +max_substreams); }

__device__ inline std::uint32_t bit_width(std::uint32_t v) {
    return 32 - static_cast<std::uint32_t>(__clz(static_cast<int>(v)));
}

// ---- Encoding

struct Codeword {
    std::uint32_t bits, length; // at most 32
};

// Codeword and extra bits of a code not in the small table, or of missing_code.
__device__ inline Codeword compose(const EncodeTables& tables, std::int32_t code) {
    const Alphabet alphabet(tables.r);
    std::uint32_t symbol = alphabet.symbol(code), codeword = __ldg(tables.of_symbol + symbol), extra_bits = 0;
    if (codeword >> 16 == 0) {
        symbol = alphabet.escape(code);
        codeword = __ldg(tables.of_symbol + symbol);
        extra_bits = alphabet.escape_bits();
    } else if (code != missing_code && Alphabet::magnitude(code) >= alphabet.direct()) { // two bits below the octave's
        extra_bits = 29 - static_cast<std::uint32_t>(__clz(static_cast<int>(Alphabet::magnitude(code))));
    }
    const std::uint32_t length = codeword >> 16, extra = static_cast<std::uint32_t>(code) & ((1u << extra_bits) - 1);
    return {(codeword & 0xFFFF) | extra << length, length + extra_bits};
}

using SmallCodewords = Array<std::uint32_t, 2 * EncodeTables::small_span>;

// Which of the n coded symbols a thread has: its lane is a substream, its warp a run of that substream's symbols.
struct Substreams {
    std::uint32_t n, count, own; // own: symbols of this thread
    __device__ explicit Substreams(std::uint32_t coded) : n(coded), count(substream_count(coded)) {
        own = lane() < count && symbol(0) < n ? (n - symbol(0) + count - 1) / count : 0;
    }
    __device__ bool has(std::uint32_t k) const { return k < own; }
    // Calls use(k) for every symbol of this thread.
    template <class Use>
    __device__ void for_each(const Use& use) const {
        if (n == max_tile_values) {
#pragma unroll
            for (std::uint32_t k = 0; k < values_of_thread; ++k) use(k);
        } else {
#pragma unroll
            for (std::uint32_t k = 0; k < values_of_thread; ++k)
                if (has(k)) use(k);
        }
    }
    __device__ std::uint32_t symbol(std::uint32_t k) const { return (warp() * values_of_thread + k) * count + lane(); }
};
static_assert(block_warps * values_of_thread * max_substreams == max_tile_values);

// Where a thread's bits go, and the lengths of substreams, which are the same in every warp.
struct SubstreamPlaces {
    std::uint32_t thread_begin;    // bit where this thread's part of its substream begins
    std::uint32_t length;          // of this lane's substream, in bits
    std::uint32_t total;           // bits of all
    std::uint32_t shortest, width; // width: bits of (longest - shortest)
};

// bits: total of this thread's symbols. partial: shared scratch memory.
__device__ inline SubstreamPlaces place_substreams(const Substreams& streams, std::uint32_t bits,
                                                   Array<std::uint32_t, block_threads>& partial) {
    partial[threadIdx.x] = bits;
    __syncthreads();
    SubstreamPlaces places{};
    std::uint32_t before = 0;
    for (std::uint32_t w = 0; w < block_warps; ++w) {
        if (w == warp()) before = places.length;
        places.length += partial[w * warp_lanes + lane()];
    }
    const std::uint32_t end = warp_inclusive_sum(places.length);
    places.thread_begin = end - places.length + before;
    places.total = __shfl_sync(whole_warp, end, warp_lanes - 1);
    const bool is_one = lane() < streams.count;
    places.shortest = __reduce_min_sync(whole_warp, is_one ? places.length : UINT32_MAX);
    places.width = bit_width(__reduce_max_sync(whole_warp, is_one ? places.length : 0) - places.shortest);
    return places;
}

// Appends codewords to words that are initially 0 and that other threads also write bits into.
template <class Words>
class BitWriter {
public:
    __device__ BitWriter(Words& words, std::uint32_t first_word, std::uint32_t bit)
        : words_(words), at_(first_word + bit / 32), pending_(bit % 32) {}
    __device__ void append(Codeword codeword) {
        buffer_ |= codeword.bits << pending_;
        pending_ += codeword.length;
        if (pending_ < 32) return;
        atomicOr(&words_[at_++], buffer_);
        buffer_ = __funnelshift_l(codeword.bits, 0, pending_ - codeword.length); // shifted by where it began
        pending_ -= 32;
    }
    __device__ void finish() {
        if (pending_ > 0) atomicOr(&words_[at_], buffer_);
    }

private:
    Words& words_;
    std::uint32_t at_, pending_, buffer_ = 0;
};

// Writes `width` bits (at most 32) at bit `bit` of words that are initially 0.
template <class Words>
__device__ void put_bits(Words& words, std::uint32_t first_word, std::uint32_t bit, Codeword codeword) {
    BitWriter<Words> writer(words, first_word, bit);
    writer.append(codeword);
    writer.finish();
}

// ---- Decoding

// The codes of one substream. Its words are loaded ahead of their use, and whatever they contain, none beyond the
// payload's last one.
class SubstreamReader {
public:
    SubstreamReader() = default;
    // From bit `begin` after the start of word `first` on.
    __device__ SubstreamReader(const PayloadReader& payload, std::uint32_t first, std::uint32_t begin)
        : words_(payload.words()), last_(payload.size() - 1), next_(first + begin / 32), at_(begin % 32) {
        low_ = take();
        high_ = take();
        ahead_ = take();
    }
    // The next code; any number for a missing value, which is then noted.
    __device__ std::int32_t next(const DecodeTable& table) {
        const std::uint32_t window = __funnelshift_r(low_, high_, at_);
        entry_ = table.entry[window & table.mask];
        seen_ |= entry_;
        // Shifts are modulo 32. The extra bits become the highest ones, and then the lowest ones of the code.
        const std::uint32_t extra_on_top = __funnelshift_r(window, window, entry_);
        const auto leading = static_cast<std::uint32_t>(static_cast<std::int32_t>(entry_) >> DecodeTable::leading_at);
        const std::uint32_t code = __funnelshift_l(extra_on_top, leading, entry_ >> DecodeTable::extra_bits_at);
        at_ += entry_ & DecodeTable::total_bits; // at most 32
        if (at_ >= 32) {
            at_ -= 32;
            low_ = high_;
            high_ = ahead_;
            ahead_ = take();
        }
        return static_cast<std::int32_t>(code);
    }
    __device__ bool is_missing() const { return (entry_ & DecodeTable::missing) != 0; } // the last one
    __device__ bool any_missing() const { return (seen_ & DecodeTable::missing) != 0; }
    __device__ std::uint32_t bit() const { return (next_ - words_ahead) * 32 + at_; } // of the payload, that is next

private:
    __device__ std::uint32_t take() { return words_[std::min(next_++, last_)]; }

    static constexpr std::uint32_t words_ahead = 3;
    const std::uint32_t* words_ = nullptr;
    std::uint32_t last_ = 0, next_ = 0, at_ = 0, low_ = 0, high_ = 0, ahead_ = 0, entry_ = 0, seen_ = 0;
};

// ---- What a codec requires of a coder (pipeline.cuh)

inline constexpr std::uint32_t shared_table_entries =
    1 << 12; // the default alphabet's; a larger table stays in global memory

struct HuffmanCoder {
    using Model = Huffman;

    // Shared memory of a block that writes payloads.
    struct WritingMemory {
        SmallCodewords small_codewords;
        Array<std::uint32_t, block_threads> partial;
    };
    __device__ static void load(const EncodeTables& tables, WritingMemory& memory) {
        for (std::uint32_t i = threadIdx.x; i < 2 * EncodeTables::small_span; i += block_threads)
            memory.small_codewords[i] = tables.small[i];
    }

    // Which symbols of the tile a thread writes: those numbers of it that are below the tile's number of symbols.
    using Symbols = Substreams;

    // Turns the codes of one tile into the coder's part of the payload: lengths of the substreams, then the substreams.
    class Encoder {
    public:
        // code: of this thread's symbols; they are replaced by codewords, and belong to the caller because the compiler
        // spills registers if they are a member. Called by all threads of a block. Has a barrier.
        __device__ Encoder(const EncodeTables& tables, const Symbols& symbols, WritingMemory& memory,
                           std::uint32_t (&code)[values_of_thread])
            : streams_(symbols), codeword_(code) {
            std::uint32_t bits = 0;
            streams_.for_each([&](std::uint32_t k) {
                const std::uint32_t at = code[k] + EncodeTables::small_span;
                const std::uint32_t entry = at < 2 * EncodeTables::small_span ? memory.small_codewords[at] : 0;
                if (entry != 0) {
                    bits += entry & 31;
                    code[k] = entry;
                } else {
                    bits += compose(tables, static_cast<std::int32_t>(code[k])).length;
                    code[k] |= is_code;
                }
            });
            places_ = place_substreams(streams_, bits, memory.partial);
        }

        __device__ std::uint32_t words() const {
            return words_of_bits(streams_.count * places_.width) + words_of_bits(places_.total);
        }
        __device__ void describe(v1::TileHeader& header) const {
            header.width = places_.width;
            header.base = places_.shortest;
        }
        // Writes to words from `at` on, which must be 0.
        template <class Words>
        __device__ void write(const EncodeTables& tables, Words& words, std::uint32_t at) const {
            if (threadIdx.x < streams_.count)
                put_bits(words, at, lane() * places_.width, {places_.length - places_.shortest, places_.width});
            BitWriter<Words> writer(words, at + words_of_bits(streams_.count * places_.width), places_.thread_begin);
            streams_.for_each([&](std::uint32_t k) {
                const std::uint32_t entry = codeword_[k];
                if ((entry & is_code) == 0)
                    writer.append({entry >> 5, entry & 31});
                else // sign-extended from the 22 bits that codes have
                    writer.append(compose(tables, static_cast<std::int32_t>(entry << 10) >> 10));
            });
            writer.finish();
        }

    private:
        // A code that the small table does not have. Entries of that have 12 bits of a codeword, at most 9 extra bits,
        // and 5 bits of their number.
        static constexpr std::uint32_t is_code = 1u << 31;

        Substreams streams_;
        std::uint32_t (&codeword_)[values_of_thread];
        SubstreamPlaces places_;
    };

    // Memory shared by the warps of a block that read payloads.
    struct ReadingMemory {
        Array<std::uint32_t, shared_table_entries> table;
    };
    static bool fits(const DecodeTable& table) { return table.mask < shared_table_entries; }
    // The decoding table, in shared memory if it fits. Called by `threads` threads; a barrier must follow.
    // known_to_fit: so that the compiler knows what kind of memory it loads from.
    template <bool known_to_fit>
    __device__ static DecodeTable load(DecodeTable table, ReadingMemory& memory, std::uint32_t threads) {
        if (known_to_fit || table.mask < shared_table_entries) {
            for (std::uint32_t i = threadIdx.x; i <= table.mask; i += threads) memory.table[i] = table.entry[i];
            table.entry = &memory.table[0];
        }
        return table;
    }

    // The substreams of a tile, one to a lane, each of which has every count()th of n codes.
    class Decoder {
    public:
        // Takes them from the payload.
        __device__ TileError open(PayloadReader& words, const v1::TileHeader& header, std::uint32_t n,
                                  const DecodeTable& table) {
            count_ = substream_count(n);
            const std::uint32_t width = header.width, lengths_at = words.take(words_of_bits(count_ * width));
            if (words.failed()) return TileError::too_short;
            const std::uint32_t length =
                lane() < count_ ? header.base + (width > 0 ? words.bits(lengths_at, lane() * width, width) : 0) : 0;
            end_ = warp_inclusive_sum(length);
            const std::uint32_t all = __shfl_sync(whole_warp, end_, static_cast<int>(warp_lanes - 1));
            const std::uint32_t from = words.take(words_of_bits(all));
            if (words.failed()) return TileError::too_short;
            if (table.empty) return TileError::substream;
            reader = SubstreamReader(words, from, end_ - length);
            end_ += from * 32;
            return TileError::none;
        }
        __device__ std::uint32_t count() const { return count_; }
        // Once all codes are read: whether every substream ends where its length says, and a value is missing exactly
        // if `has_missing`.
        __device__ bool is_sound(bool has_missing) const {
            const bool ends = __all_sync(whole_warp, lane() >= count_ || reader.bit() == end_) != 0;
            return ends && (__any_sync(whole_warp, lane() < count_ && reader.any_missing()) != 0) == has_missing;
        }

        SubstreamReader reader;

    private:
        std::uint32_t count_ = 0, end_ = 0;
    };

    // Decodes the next n codes to tile.value, in order; missing_code for missing values. By a warp.
    template <class T>
    __device__ static TileError decode(PayloadReader& words, const v1::TileHeader& header, std::uint32_t n,
                                       const DecodeTable& table, WarpMemory<T>& tile) {
        Decoder decoder;
        const TileError error = decoder.open(words, header, n, table);
        if (error != TileError::none) return error;
        if (lane() < decoder.count())
            for (std::uint32_t j = lane(); j < n; j += decoder.count()) {
                const std::int32_t code = decoder.reader.next(table);
                tile.value[j] = decoder.reader.is_missing() ? missing_code : code;
            }
        return decoder.is_sound(header.has_missing) ? TileError::none : TileError::substream;
    }
};

} // namespace cusz::cuda
