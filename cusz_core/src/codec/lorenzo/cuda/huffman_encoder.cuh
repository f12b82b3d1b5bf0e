// Encodes symbols into substreams, by a thread block (paper, sections 3.2.4 and 3.3; docs/reference/format.md,
// sections 6 to 8).
#pragma once

#include "archive/alphabet.hpp"
#include "archive/v1.hpp"
#include "kernels.hpp"
#include "payload_reader.cuh"
#include "substreams.cuh"
#include "tile.cuh"

namespace cusz::cuda {

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
    } else if (code != missing_code && Alphabet::magnitude(code) >= alphabet.direct()) { // octave - 2
        extra_bits = 29 - static_cast<std::uint32_t>(__clz(static_cast<int>(Alphabet::magnitude(code))));
    }
    const std::uint32_t length = codeword >> 16, extra = static_cast<std::uint32_t>(code) & ((1u << extra_bits) - 1);
    return {(codeword & 0xFFFF) | extra << length, length + extra_bits};
}

using SmallCodewords = Array<std::uint32_t, 2 * EncodeTables::small_span>;

// Which of the n coded symbols a thread has: its lane selects a substream, its warp a run of the substream's symbols.
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

// Where a thread's bits go, and the lengths of the substreams. Lengths are the same in every warp.
struct SubstreamPlaces {
    std::uint32_t thread_begin;    // bit where this thread's part of its substream begins
    std::uint32_t length;          // of this lane's substream, in bits
    std::uint32_t total;           // bits of all substreams
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
        buffer_ = __funnelshift_l(codeword.bits, 0, pending_ - codeword.length); // what is left of the codeword
        pending_ -= 32;
    }
    __device__ void finish() {
        if (pending_ > 0) atomicOr(&words_[at_], buffer_);
    }

private:
    Words& words_;
    std::uint32_t at_, pending_, buffer_ = 0;
};

// Writes a codeword `bit` bits after the start of word `first_word`, into words that are initially 0.
template <class Words>
__device__ void put_bits(Words& words, std::uint32_t first_word, std::uint32_t bit, Codeword codeword) {
    BitWriter<Words> writer(words, first_word, bit);
    writer.append(codeword);
    writer.finish();
}

// Shared memory of a block that writes payloads.
struct EncoderMemory {
    SmallCodewords small_codewords;
    Array<std::uint32_t, block_threads> partial;
};
__device__ inline void load_codewords(const EncodeTables& tables, EncoderMemory& memory) {
    for (std::uint32_t i = threadIdx.x; i < 2 * EncodeTables::small_span; i += block_threads)
        memory.small_codewords[i] = tables.small[i];
}

// Turns the codes of one tile into a part of its payload: lengths of the substreams, then the substreams.
class SubstreamEncoder {
public:
    // code: the codes of this thread's symbols; replaced by codewords. The array belongs to the caller because the
    // compiler spills registers if it is a member. Called by all threads of a block. Has a barrier.
    __device__ SubstreamEncoder(const EncodeTables& tables, const Substreams& symbols, EncoderMemory& memory,
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
    // Writes to the words from `at` on, which must be 0.
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
    // Marks a code that is not in the small table. The table's entries leave this bit 0: a codeword has at most 15
    // bits, a small code at most 6 extra bits, and the length takes 5 bits.
    static constexpr std::uint32_t is_code = 1u << 31;

    Substreams streams_;
    std::uint32_t (&codeword_)[values_of_thread];
    SubstreamPlaces places_;
};

} // namespace cusz::cuda
