// Builds the canonical, length-limited Huffman codebook in one thread block (paper, sections 3.2.2 and 3.2.3;
// format.md, section 7): package-merge, whose sorted lists are merged by each item's rank in the other list.
// ../codebook.cpp does the same on the CPU.
#pragma once

#include <algorithm>

#include "archive/alphabet.hpp"
#include "codec/lorenzo/sample.hpp"
#include "kernels.hpp"
#include "substreams.cuh"

namespace cusz::cuda {

inline constexpr std::uint32_t book_threads = 512, book_warps = book_threads / warp_lanes;
inline constexpr std::uint32_t max_codeword_bits = 15;
inline constexpr int largest_r_in_shared_memory = 9; // takes 84 KiB; every GPU from sm_80 on has 99

// The block's working memory for alphabets of up to n symbols: shared or, for large ones, global.
template <std::uint32_t n>
struct BookMemory {
    Array<std::uint64_t, n> weight;                        // of the leaves, ascending
    Array<Array<std::uint64_t, 2 * n>, 2> list;            // of package-merge: the previous list and the next
    Array<std::uint32_t, max_codeword_bits + 1> of_length; // number of codewords
    Array<std::uint32_t, n> codeword;                      // of every symbol
    // Of every list of package-merge but the first: how many sums are among its first 0, 1, 2, ... pairs of items.
    Array<Array<std::uint16_t, n + 1>, max_codeword_bits> sums_of_pairs;
    Array<std::uint16_t, n> symbol; // of the leaves
    Array<std::uint8_t, n> length;  // of every symbol's codeword
};

// The largest power of 4 that is at most n > 0.
__device__ inline std::uint32_t power_of_4(std::uint32_t n) { return 1u << ((bit_width(n) - 1) & ~1u); }

// How many of n ascending items are less than a limit. Loads three items at a time: half the steps of a binary search.
// part: a power of 4, at least power_of_4(n).
template <class Item>
__device__ std::uint32_t count_less(std::uint32_t n, const Item& item, std::uint64_t limit, std::uint32_t part) {
    if (n == 0) return 0;
    std::uint32_t count = 0;
    for (; part > 0; part /= 4) { // the result is less than 4 * part away
        std::uint32_t parts[3];
#pragma unroll
        for (std::uint32_t k = 0; k < 3; ++k) {
            const std::uint32_t at = count + ((k + 1) * part - 1);
            parts[k] = item(std::min(at, n - 1)) < (at < n ? limit : 0) ? part : 0;
        }
        count += parts[0] + parts[1] + parts[2];
    }
    return count;
}

inline constexpr std::uint32_t short_run = 128;

// Sorts n distinct keys; greater keys follow them up to the next multiple of short_run. Returns whichever of the two
// arrays holds the result. Ends with a barrier.
__device__ inline const std::uint64_t* sort(std::uint32_t n, std::uint64_t* keys, std::uint64_t* other) {
    for (std::uint32_t i = threadIdx.x; i < n; i += book_threads) { // a key's place is the number of smaller keys
        const std::uint64_t key = keys[i];
        const std::uint32_t run = i / short_run * short_run;
        std::uint32_t less[4] = {};
#pragma unroll 16
        for (std::uint32_t k = 0; k < short_run; ++k) less[k % 4] += keys[run + k] < key ? 1 : 0;
        const std::uint32_t rank = less[0] + less[1] + less[2] + less[3];
        other[run + rank] = key;
    }
    __syncthreads();
    for (std::uint32_t width = short_run; width < n; width *= 2) { // runs of this length are sorted
        std::uint64_t* const sorted = other;
        other = keys;
        keys = sorted;
        for (std::uint32_t i = threadIdx.x; i < n; i += book_threads) {
            const std::uint32_t run = i & ~(width - 1), pair = run & ~width; // where they begin
            const std::uint32_t sibling = run == pair ? std::min(run + width, n) : pair;
            const auto item = [&](std::uint32_t at) { return keys[sibling + at]; };
            const std::uint32_t rank =
                count_less(std::min(sibling + width, n) - sibling, item, keys[i], power_of_4(width));
            other[pair + i - run + rank] = keys[i];
        }
        __syncthreads();
    }
    return other;
}

// The weight of a symbol with this count (sample.hpp's make_weights).
__device__ inline std::uint64_t weight_of(std::uint32_t symbol, std::uint64_t count, const Sample& sample,
                                          const Alphabet& alphabet) {
    if (alphabet.r == default_r && (symbol == alphabet.escape(0) || symbol == alphabet.escape(-1))) return 1;
    const std::uint64_t weight = count * sample.rate();
    return symbol == alphabet.missing() && sample.rate() > 1 && weight == 0 ? 1 : weight;
}

// Lengths of the codewords, optimal under the limit. Ends with a barrier.
template <class Memory>
__device__ void find_lengths(const BookArguments& a, const Alphabet& alphabet, Memory& memory) {
    const std::uint32_t size = alphabet.size(), limit = static_cast<std::uint32_t>(alphabet.limit());
    // The leaves are the symbols with a weight above 0. The others come last when sorted.
    constexpr std::uint32_t symbol_bits = 16; // leaves 48 bits for a weight: enough for a petabyte of values
    constexpr std::uint64_t none = UINT64_MAX >> symbol_bits;
    std::uint32_t n = 0;
    for (std::uint32_t first = 0; first < size; first += book_threads) {
        const std::uint32_t s = first + threadIdx.x;
        const std::uint64_t weight = s < size ? weight_of(s, a.counts[s], a.sample, alphabet) : 0;
        if (s < size) memory.length[s] = 0;
        if (s < (size + short_run - 1) / short_run * short_run)
            memory.list[0][s] = (weight > 0 ? weight : none) << symbol_bits | s;
        n += static_cast<std::uint32_t>(__syncthreads_count(weight > 0));
    }
    const std::uint64_t* const sorted = sort(size, memory.list[0].item, memory.list[1].item);
    for (std::uint32_t i = threadIdx.x; i < n; i += book_threads) {
        memory.weight[i] = sorted[i] >> symbol_bits;
        memory.symbol[i] = static_cast<std::uint16_t>(sorted[i]);
    }
    __syncthreads();
    if (n <= 1) {
        if (n == 1 && is_first_thread()) memory.length[memory.symbol[0]] = 1;
        __syncthreads();
        return;
    }

    // The lists of package-merge: all that is needed of them later is how many sums precede an item. Half of the
    // threads place leaves, half sums, so that no warp does both.
    constexpr std::uint32_t half = book_threads / 2;
    const bool is_leaf = threadIdx.x < half;
    const std::uint32_t part = power_of_4(n); // a list has fewer sums than leaves
    if (threadIdx.x < limit) memory.sums_of_pairs[threadIdx.x][0] = 0;
    const std::uint64_t* list = memory.weight.item;
    for (std::uint32_t i = 1, length = n; i < limit; ++i) {
        std::uint64_t* const next = memory.list[i % 2].item;
        const std::uint32_t n_sums = length / 2;
        const auto sum = [&](std::uint32_t k) { return list[2 * k] + list[2 * k + 1]; };
        const auto leaf = [&](std::uint32_t k) { return memory.weight[k]; };
        const auto put = [&](std::uint32_t leaves, std::uint32_t sums, std::uint64_t weight) {
            const std::uint32_t at = leaves + sums;
            next[at] = weight;
            if (at % 2 != 0) // it ends a pair
                memory.sums_of_pairs[i][at / 2 + 1] = static_cast<std::uint16_t>(is_leaf ? sums : sums + 1);
        };
        if (is_leaf) { // comes before a sum of the same weight
            for (std::uint32_t k = threadIdx.x; k < n; k += half)
                put(k, count_less(n_sums, sum, leaf(k), part), leaf(k));
        } else {
            for (std::uint32_t k = threadIdx.x - half; k < n_sums; k += half)
                put(count_less(n, leaf, sum(k) + 1, part), k, sum(k));
        }
        __syncthreads();
        length = n + n_sums;
        list = next;
    }
    // Takes the first 2 n - 2 items of the last list; from every other list, the items of the sums taken from the next.
    for (std::uint32_t j = threadIdx.x; j < n; j += book_threads) {
        std::uint32_t length = 0, pairs = n - 1;
        for (std::uint32_t i = limit - 1; i > 0; --i) {
            const std::uint32_t sums = memory.sums_of_pairs[i][pairs];
            length += j < 2 * pairs - sums ? 1 : 0;
            pairs = sums;
        }
        length += j < 2 * pairs ? 1 : 0;
        memory.length[memory.symbol[j]] = static_cast<std::uint8_t>(length);
    }
    __syncthreads();
}

// Makes canonical codewords from the lengths: codewords of one length follow each other in the order of their symbols,
// after all shorter ones. Ends with a barrier.
template <class Memory>
__device__ void find_codewords(const BookArguments& a, const Alphabet& alphabet, Memory& memory) {
    static_assert(max_codeword_bits + 1 == book_warps);
    const std::uint32_t size = alphabet.size(), length_of_warp = warp();
    std::uint32_t of_length = 0;
    for (std::uint32_t first = 0; first < size; first += warp_lanes) {
        const std::uint32_t s = first + lane();
        const bool has = s < size && memory.length[s] == length_of_warp;
        const std::uint32_t all = __ballot_sync(whole_warp, has);
        if (has) memory.codeword[s] = of_length + static_cast<std::uint32_t>(__popc(all & ((1u << lane()) - 1)));
        of_length += static_cast<std::uint32_t>(__popc(all));
    }
    if (lane() == 0) memory.of_length[length_of_warp] = of_length;
    __syncthreads();
    for (std::uint32_t s = threadIdx.x; s < size; s += book_threads) {
        const std::uint32_t length = memory.length[s];
        std::uint32_t shorter = 0; // shorter codewords, counted in codewords of the maximum length
#pragma unroll
        for (std::uint32_t l = 1; l < max_codeword_bits; ++l) {
            const std::uint32_t of_greatest = memory.of_length[l] << (max_codeword_bits - l);
            shorter += l < length ? of_greatest : 0;
        }
        std::uint32_t codeword = memory.codeword[s] + (shorter >> (max_codeword_bits - length));
        codeword = length == 0 ? 0 : __brev(codeword) >> (32 - length) | length << 16; // stored first bit lowest
        memory.codeword[s] = a.of_symbol[s] = codeword;
        a.lengths[s] = static_cast<std::uint8_t>(length);
    }
    __syncthreads();
}

// Builds the codebook from counts: lengths, codewords, the table of small codes, and the reach.
template <class Memory>
__device__ void make_book(const BookArguments& a, Memory& memory) {
    const Alphabet alphabet(a.r);
    find_lengths(a, alphabet, memory);
    find_codewords(a, alphabet, memory);
    constexpr auto span = static_cast<std::int32_t>(EncodeTables::small_span);
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < 2 * span; i += book_threads) {
        const std::int32_t code = i - span;
        const std::uint32_t symbol = alphabet.symbol(code), codeword = memory.codeword[symbol], length = codeword >> 16;
        const std::uint32_t extra_bits = alphabet.meaning(symbol).extra_bits;
        const std::uint32_t extra = static_cast<std::uint32_t>(code) & ((1u << extra_bits) - 1);
        a.small[i] = length == 0 ? 0 : ((codeword & 0xFFFF) | extra << length) << 5 | (length + extra_bits);
    }
    // Codes beyond the escape's reach need their own symbols.
    bool missing = false;
    if (a.r == default_r)
        for (std::uint32_t s = alphabet.symbol(static_cast<std::int32_t>(alphabet.escape_reach())) + threadIdx.x;
             s < alphabet.escape(0); s += book_threads)
            missing = missing || memory.length[s] == 0;
    missing = __syncthreads_or(missing) != 0;
    if (is_first_thread()) *a.reach = missing ? alphabet.escape_reach() : alphabet.reach();
}

} // namespace cusz::cuda
