// Builds the canonical, length-limited Huffman codebook in one thread block (paper, sections 3.2.2 and 3.2.3;
// docs/format.md, section 7): package-merge, whose sorted lists are merged by each item's rank in the other list.
// ../codebook.cpp does the same on the CPU.
#pragma once

#include <algorithm>

#include "../format/alphabet.hpp"
#include "../format/sample.hpp"
#include "huffman.cuh"

namespace cusz::cuda {

inline constexpr std::uint32_t book_threads = 512, book_warps = book_threads / warp_lanes;
inline constexpr std::uint32_t most_codeword_bits = 15;

// The block's working memory for an alphabet of n symbols: shared or, for large alphabets, global.
class BookMemory {
public:
    __device__ BookMemory(void* memory, std::uint32_t n)
        : key(static_cast<std::uint64_t*>(memory)), list(key + n), next(list + 2 * n),
          symbol(reinterpret_cast<std::uint16_t*>(next + 2 * n)), other_symbol(symbol + n), place(other_symbol + n),
          n_(n) {}
    static constexpr std::size_t bytes(std::uint32_t n) {
        return n * std::size_t{5 * sizeof(std::uint64_t) + (2 + most_codeword_bits) * sizeof(std::uint16_t)};
    }
    __device__ std::uint16_t* places(std::uint32_t i) const { return place + i * n_; }

    std::uint64_t* key;                   // weights of the leaves, ascending
    std::uint64_t *list, *next;           // of package-merge, up to 2 n items
    std::uint16_t *symbol, *other_symbol; // of the leaves
    std::uint16_t* place;                 // of each leaf in every list

private:
    std::uint32_t n_;
};

struct BookShared {
    Array<std::uint32_t, book_warps> partial;
    Array<std::uint32_t, most_codeword_bits + 1> leaves_taken, of_length, first_codeword, first_place;
    std::uint32_t n_leaves, narrow;
};

// Number of items, out of n, for which `before` holds. Once it fails for an item, it must fail for all later ones.
template <class Before>
__device__ std::uint32_t count_before(std::uint32_t n, const Before& before) {
    std::uint32_t low = 0, high = n;
    while (low < high) {
        const std::uint32_t middle = (low + high) / 2;
        if (before(middle))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Sorts n distinct pairs by (key, symbol), using the other arrays as scratch. The result is in key and symbol. Ends
// with a barrier.
__device__ inline void sort_pairs(std::uint32_t n, std::uint64_t*& key, std::uint64_t*& other_key,
                                  std::uint16_t*& symbol, std::uint16_t*& other_symbol) {
    for (std::uint32_t width = 1; width < n; width *= 2) { // runs of this length are sorted
        for (std::uint32_t i = threadIdx.x; i < n; i += book_threads) {
            const std::uint32_t run = i / width * width, pair = run / (2 * width) * (2 * width);
            const std::uint32_t sibling = run == pair ? std::min(run + width, n) : pair;
            const std::uint32_t length = std::min(sibling + width, n) - sibling;
            const std::uint32_t rank = count_before(length, [&](std::uint32_t at) {
                const std::uint64_t k = key[sibling + at];
                return k < key[i] || (k == key[i] && symbol[sibling + at] < symbol[i]);
            });
            other_key[pair + i - run + rank] = key[i];
            other_symbol[pair + i - run + rank] = symbol[i];
        }
        __syncthreads();
        std::uint64_t* const k = key;
        key = other_key;
        other_key = k;
        std::uint16_t* const s = symbol;
        symbol = other_symbol;
        other_symbol = s;
    }
}

// The weight of a symbol with this count (sample.hpp's make_weights).
__device__ inline std::uint64_t weight_of(std::uint32_t symbol, std::uint64_t count, const Sample& sample,
                                          const Alphabet& alphabet) {
    if (alphabet.r == default_r && (symbol == alphabet.escape(0) || symbol == alphabet.escape(-1))) return 1;
    const std::uint64_t weight = count * sample.rate();
    return symbol == alphabet.missing() && sample.rate() > 1 && weight == 0 ? 1 : weight;
}

// Lengths of the codewords, optimal under the limit. Ends with a barrier.
__device__ inline void find_lengths(const BookArguments& a, const Alphabet& alphabet, BookMemory& memory,
                                    BookShared& shared) {
    const std::uint32_t size = alphabet.size(), limit = static_cast<std::uint32_t>(alphabet.limit());
    // The leaves: symbols with a weight, in order.
    std::uint32_t n = 0;
    for (std::uint32_t first = 0; first < size; first += book_threads) {
        const std::uint32_t s = first + threadIdx.x;
        const std::uint64_t weight = s < size ? weight_of(s, a.counts[s], a.sample, alphabet) : 0;
        const std::uint32_t in_warp = warp_inclusive_sum(weight > 0 ? 1u : 0u);
        if (lane() == warp_lanes - 1) shared.partial[warp()] = in_warp;
        __syncthreads();
        std::uint32_t before = n;
        for (std::uint32_t w = 0; w < book_warps; ++w) {
            if (w < warp()) before += shared.partial[w];
            n += shared.partial[w];
        }
        if (weight > 0) {
            memory.key[before + in_warp - 1] = weight;
            memory.symbol[before + in_warp - 1] = static_cast<std::uint16_t>(s);
        }
        if (s < size) a.lengths[s] = 0;
        __syncthreads();
    }
    if (n <= 1) {
        if (n == 1 && is_first_thread()) a.lengths[memory.symbol[0]] = 1;
        __syncthreads();
        return;
    }
    std::uint64_t *key = memory.key, *other_key = memory.next;
    sort_pairs(n, key, other_key, memory.symbol, memory.other_symbol);
    for (std::uint32_t i = threadIdx.x; i < n; i += book_threads) memory.list[i] = key[i];
    __syncthreads();
    if (key != memory.key) // in `next`, which is needed
        for (std::uint32_t i = threadIdx.x; i < n; i += book_threads) memory.key[i] = memory.list[i];
    __syncthreads();

    // The lists of package-merge: only the places of the leaves in each are needed later.
    std::uint64_t *list = memory.list, *next = memory.next;
    for (std::uint32_t i = threadIdx.x; i < n; i += book_threads) memory.places(0)[i] = static_cast<std::uint16_t>(i);
    for (std::uint32_t i = 1, length = n; i < limit; ++i) {
        const std::uint32_t n_sums = length / 2;
        const auto sum = [&](std::uint32_t k) { return list[2 * k] + list[2 * k + 1]; };
        for (std::uint32_t item = threadIdx.x; item < n + n_sums; item += book_threads) {
            const bool is_leaf = item < n;
            const std::uint32_t k = is_leaf ? item : item - n;
            const std::uint64_t weight = is_leaf ? memory.key[k] : sum(k);
            // A leaf comes before a sum of the same weight.
            const std::uint32_t rank =
                is_leaf ? count_before(n_sums, [&](std::uint32_t at) { return sum(at) < weight; })
                        : count_before(n, [&](std::uint32_t at) { return memory.key[at] <= weight; });
            next[k + rank] = weight;
            if (is_leaf) memory.places(i)[k] = static_cast<std::uint16_t>(k + rank);
        }
        __syncthreads();
        length = n + n_sums;
        std::uint64_t* const former = list;
        list = next;
        next = former;
    }
    if (is_first_thread()) {
        std::uint32_t take = 2 * n - 2;
        for (std::uint32_t i = limit; i-- > 0;) {
            const std::uint16_t* const places = memory.places(i);
            const std::uint32_t leaves = count_before(n, [&](std::uint32_t j) { return places[j] < take; });
            shared.leaves_taken[i] = leaves;
            take = 2 * (take - leaves);
        }
    }
    __syncthreads();
    for (std::uint32_t j = threadIdx.x; j < n; j += book_threads) {
        std::uint32_t length = 0;
        for (std::uint32_t i = 0; i < limit; ++i) length += shared.leaves_taken[i] > j ? 1 : 0;
        a.lengths[memory.symbol[j]] = static_cast<std::uint8_t>(length);
    }
    __syncthreads();
}

// Canonical codewords from the lengths: a.of_symbol. Ends with a barrier.
__device__ inline void find_codewords(const BookArguments& a, const Alphabet& alphabet, BookMemory& memory,
                                      BookShared& shared) {
    const std::uint32_t size = alphabet.size();
    if (threadIdx.x <= most_codeword_bits) shared.of_length[threadIdx.x] = 0;
    __syncthreads();
    for (std::uint32_t s = threadIdx.x; s < size; s += book_threads) {
        memory.key[s] = a.lengths[s];
        memory.symbol[s] = static_cast<std::uint16_t>(s);
        atomicAdd(&shared.of_length[a.lengths[s]], 1u);
    }
    __syncthreads();
    if (is_first_thread()) {
        std::uint32_t codeword = 0, place = shared.of_length[0];
        for (std::uint32_t l = 1; l <= most_codeword_bits; ++l) {
            shared.first_codeword[l] = codeword <<= 1;
            shared.first_place[l] = place;
            codeword += shared.of_length[l];
            place += shared.of_length[l];
        }
    }
    std::uint64_t *key = memory.key, *other_key = memory.next;
    sort_pairs(size, key, other_key, memory.symbol, memory.other_symbol);
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < size; i += book_threads) {
        const auto length = static_cast<std::uint32_t>(key[i]);
        std::uint32_t codeword = 0;
        if (length > 0) // stored first bit lowest
            codeword = __brev(shared.first_codeword[length] + i - shared.first_place[length]) >> (32 - length);
        a.of_symbol[memory.symbol[i]] = codeword | length << 16;
    }
    __syncthreads();
}

// Builds the codebook from counts: lengths, codewords, the table of small codes, and the reach.
__device__ inline void make_book(const BookArguments& a, BookMemory& memory, BookShared& shared) {
    const Alphabet alphabet(a.r);
    find_lengths(a, alphabet, memory, shared);
    find_codewords(a, alphabet, memory, shared);
    constexpr auto span = static_cast<std::int32_t>(EncodeTables::small_span);
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < 2 * span; i += book_threads) {
        const std::int32_t code = i - span;
        const std::uint32_t symbol = alphabet.symbol(code), codeword = a.of_symbol[symbol], length = codeword >> 16;
        const std::uint32_t extra_bits = alphabet.meaning(symbol).extra_bits;
        const std::uint32_t extra = static_cast<std::uint32_t>(code) & ((1u << extra_bits) - 1);
        a.small[i] = length == 0 ? 0 : ((codeword & 0xFFFF) | extra << length) << 5 | (length + extra_bits);
    }
    // Codes beyond the escape need their own symbols.
    bool missing = false;
    if (a.r == default_r)
        for (std::uint32_t s = alphabet.symbol(static_cast<std::int32_t>(alphabet.escape_reach())) + threadIdx.x;
             s < alphabet.escape(0); s += book_threads)
            missing = missing || a.lengths[s] == 0;
    missing = __syncthreads_or(missing) != 0;
    if (is_first_thread()) *a.reach = missing ? alphabet.escape_reach() : alphabet.reach();
}

} // namespace cusz::cuda
