// Encoding of symbols into substreams by a thread block, and decoding by a warp (paper, sections 3.2.4 and 3.3;
// docs/format.md, sections 6 to 8).
#pragma once

#include <algorithm>
#include <bit>

#include "../format/alphabet.hpp"
#include "block.cuh"
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

// Codeword and extra bits of a code that the small table does not have, or of missing_code.
__device__ inline Codeword compose(const EncodeTables& tables, int r, std::int32_t code) {
    const Alphabet alphabet(r);
    std::uint32_t symbol = alphabet.symbol(code);
    std::uint32_t codeword = __ldg(tables.of_symbol + symbol);
    if (codeword >> 16 == 0) {
        symbol = alphabet.escape(code);
        codeword = __ldg(tables.of_symbol + symbol);
    }
    const std::uint32_t length = codeword >> 16, extra_bits = alphabet.meaning(symbol).extra_bits;
    const std::uint32_t extra = static_cast<std::uint32_t>(code) & ((1u << extra_bits) - 1);
    return {(codeword & 0xFFFF) | extra << length, length + extra_bits};
}

using SmallCodewords = Array<std::uint32_t, 2 * EncodeTables::small_span>;

__device__ inline Codeword codeword_of(const SmallCodewords& small, const EncodeTables& tables, int r,
                                       std::int32_t code) {
    const std::uint32_t at = static_cast<std::uint32_t>(code) + EncodeTables::small_span;
    const std::uint32_t entry = at < 2 * EncodeTables::small_span ? small[at] : 0;
    if (entry != 0) return {entry >> 5, entry & 31};
    return compose(tables, r, code);
}

// Which symbols of the n coded ones a thread has: its lane is a substream, its warp a run of the substream's symbols.
struct Substreams {
    std::uint32_t n, count;
    __device__ explicit Substreams(std::uint32_t coded) : n(coded), count(substream_count(coded)) {}
    __device__ bool has(std::uint32_t k) const { return lane() < count && symbol(k) < n; }
    __device__ std::uint32_t symbol(std::uint32_t k) const { return (warp() * values_of_thread + k) * count + lane(); }
};
static_assert(block_warps * values_of_thread * max_substreams == max_tile_values);

// Where a thread's bits lie, and how long substreams are; the same in every warp.
struct SubstreamPlaces {
    std::uint32_t own_begin;       // bit where this thread's part of its substream begins
    std::uint32_t length;          // of the substream that is this lane, in bits
    std::uint32_t total;           // bits of all
    std::uint32_t shortest, width; // width: bits of (longest - shortest)
};

// bits: of this thread's symbols. partial: shared memory for it alone.
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
    places.own_begin = end - places.length + before;
    places.total = __shfl_sync(whole_warp, end, warp_lanes - 1);
    const bool is_one = lane() < streams.count;
    places.shortest = __reduce_min_sync(whole_warp, is_one ? places.length : UINT32_MAX);
    places.width = bit_width(__reduce_max_sync(whole_warp, is_one ? places.length : 0) - places.shortest);
    return places;
}

// Appends codewords to words that begin as 0 and that other threads write bits into, too.
template <class Words>
class BitWriter {
public:
    __device__ BitWriter(Words& words, std::uint32_t first_word, std::uint32_t bit)
        : words_(words), at_(first_word + bit / 32), pending_(bit % 32) {}
    __device__ void append(Codeword codeword) {
        buffer_ |= std::uint64_t{codeword.bits} << pending_;
        pending_ += codeword.length;
        if (pending_ < 32) return;
        atomicOr(&words_[at_++], static_cast<std::uint32_t>(buffer_));
        buffer_ >>= 32;
        pending_ -= 32;
    }
    __device__ void finish() {
        if (pending_ > 0) atomicOr(&words_[at_], static_cast<std::uint32_t>(buffer_));
    }

private:
    Words& words_;
    std::uint32_t at_, pending_;
    std::uint64_t buffer_ = 0;
};

// Sets `width` bits (at most 32) from bit `bit` of words that begin as 0.
template <class Words>
__device__ void put_bits(Words& words, std::uint32_t first_word, std::uint32_t bit, Codeword codeword) {
    BitWriter<Words> writer(words, first_word, bit);
    writer.append(codeword);
    writer.finish();
}

// ---- Decoding

// A payload's words; behind them there are zeros.
class PayloadReader {
public:
    __device__ PayloadReader(const std::uint32_t* words, std::uint32_t n) : words_(words), n_(n) {}
    __device__ std::uint32_t operator[](std::uint32_t i) const { return i < n_ ? words_[i] : 0; }
    // Where the next `count` words begin. If they are not there, nothing more is.
    __device__ std::uint32_t take(std::uint32_t count) {
        const std::uint32_t from = at_;
        failed_ = failed_ || count > n_ - at_;
        if (!failed_) at_ += count;
        return from;
    }
    __device__ bool failed() const { return failed_; }
    __device__ bool at_end() const { return at_ == n_; }
    // `width` bits, at most 16, from bit `bit` behind word `from`.
    __device__ std::uint32_t bits(std::uint32_t from, std::uint32_t bit, std::uint32_t width) const {
        const std::uint32_t i = from + bit / 32;
        return __funnelshift_r((*this)[i], (*this)[i + 1], bit % 32) & ((1u << width) - 1);
    }

private:
    const std::uint32_t* words_;
    std::uint32_t n_, at_ = 0;
    bool failed_ = false;
};

// The bits of one substream.
class BitReader {
public:
    __device__ BitReader(const PayloadReader& words, std::uint32_t first_word, std::uint32_t bit)
        : words_(words), next_(first_word + bit / 32 + 1), available_(32 - bit % 32),
          buffer_(words[first_word + bit / 32] >> bit % 32) {}
    // The next 32 bits.
    __device__ std::uint32_t window() {
        if (available_ < 32) {
            buffer_ |= std::uint64_t{words_[next_++]} << available_;
            available_ += 32;
        }
        return static_cast<std::uint32_t>(buffer_);
    }
    __device__ void skip(std::uint32_t bits) { // at most 32, after window()
        buffer_ >>= bits;
        available_ -= bits;
    }

private:
    const PayloadReader& words_;
    std::uint32_t next_, available_;
    std::uint64_t buffer_;
};

// Decodes the n coded symbols to tile.value, in order; missing_code for missing values. Returns false if a substream
// does not end where its length says, or if there is no missing value although `has_missing` says so, or one although
// not.
template <class T>
__device__ bool decode(const PayloadReader& words, std::uint32_t codewords_at, std::uint32_t begin,
                       std::uint32_t length, std::uint32_t n, bool has_missing, const DecodeTable& table,
                       WarpMemory<T>& tile) {
    const std::uint32_t count = substream_count(n), mask = (1u << table.width) - 1;
    BitReader reader(words, codewords_at, begin);
    std::uint32_t read = 0;
    bool missing = false;
    if (lane() < count) {
        for (std::uint32_t j = lane(); j < n; j += count) {
            const std::uint32_t window = reader.window(), entry = table.entry[window & mask];
            const std::uint32_t total = entry & 255, codeword_length = entry >> 8 & 15;
            const std::int32_t leading = static_cast<std::int32_t>(entry) >> 12;
            const std::uint32_t extra_bits = total - codeword_length;
            const std::uint32_t extra = window >> codeword_length & ((1u << extra_bits) - 1);
            const bool is_missing = leading == Alphabet::missing_leading;
            missing = missing || is_missing;
            tile.value[j] =
                is_missing ? missing_code
                           : static_cast<std::int32_t>((static_cast<std::uint32_t>(leading) << extra_bits) + extra);
            reader.skip(total);
            read += total;
        }
    }
    const bool ends = __all_sync(whole_warp, lane() >= count || read == length) != 0;
    return ends && (__any_sync(whole_warp, missing) != 0) == has_missing;
}

} // namespace cusz::cuda
