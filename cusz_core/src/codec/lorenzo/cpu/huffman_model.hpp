// The Huffman coder's model: a histogram of the symbols (paper, section 3.2.1) over a fixed sample of tiles, and the
// codebook built from it (docs/reference/format.md, section 7).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "archive/alphabet.hpp"
#include "codec/lorenzo/codebook.hpp"
#include "codec/lorenzo/sample.hpp"

namespace cusz::cpu {

class Histogram {
public:
    explicit Histogram(int r) : alphabet_(r), counts_(alphabet_.size()), small_(2 * 2 * span) {}

    void add(const std::int32_t* code, std::uint32_t n) {
        // Alternates between two tables, because in a run of equal codes each addition would wait for the previous one.
        std::uint64_t *even = small_.data() + span, *odd = even + 2 * span;
        std::uint32_t i = 0;
        for (; i + 2 <= n; i += 2) {
            count(code[i], even);
            count(code[i + 1], odd);
        }
        if (i < n) count(code[i], even);
    }
    void add(const Histogram& other) {
        for (std::size_t s = 0; s < counts_.size(); ++s) counts_[s] += other.counts_[s];
        for (std::size_t i = 0; i < small_.size(); ++i) small_[i] += other.small_[i];
    }
    // Whether a code of magnitude `reach` or more was counted; reach: a power of two, at least 1024.
    bool has_beyond(std::uint32_t reach) const {
        if (reach >= alphabet_.reach()) return false;
        const auto from = counts_.begin() + alphabet_.symbol(static_cast<std::int32_t>(reach));
        return std::any_of(from, counts_.begin() + alphabet_.escape(0), [](std::uint64_t count) { return count > 0; });
    }
    // The weights from which the codebook is built.
    std::vector<std::uint64_t> weights(const Sample& sample) const {
        std::vector<std::uint64_t> w(counts_);
        for (std::int32_t code = -span; code < span; ++code) {
            const auto at = static_cast<std::size_t>(code + span);
            if (const std::uint64_t n = small_[at] + small_[at + 2 * span]; n > 0) w[alphabet_.symbol(code)] += n;
        }
        make_weights(w, sample, alphabet_);
        return w;
    }

private:
    static constexpr std::int32_t span = 512; // codes from -span to span - 1 are first counted individually

    void count(std::int32_t code, std::uint64_t* small) {
        if (code >= -span && code < span) [[likely]]
            ++small[code];
        else
            ++counts_[alphabet_.symbol(code)];
    }

    Alphabet alphabet_;
    std::vector<std::uint64_t> counts_, small_; // of symbols, of small codes
};

// The model built from counted codes: the lengths that the archive stores, and the book that encodes tiles.
struct HuffmanModel {
    HuffmanModel(const Histogram& histogram, const Sample& sample, const Alphabet& alphabet)
        : weights(histogram.weights(sample)), lengths(code_lengths(weights, alphabet)), book(lengths, alphabet) {}
    // Of all symbols together.
    std::uint64_t bits(const Alphabet& alphabet) const {
        std::uint64_t sum = 0;
        for (std::uint32_t s = 0; s < alphabet.size(); ++s)
            if (weights[s] > 0) sum += weights[s] * (lengths[s] + alphabet.meaning(s).extra_bits);
        return sum;
    }
    std::vector<std::uint64_t> weights; // by symbol
    std::vector<std::uint8_t> lengths;  // of the codewords, by symbol
    EncodeBook book;
};

} // namespace cusz::cpu
