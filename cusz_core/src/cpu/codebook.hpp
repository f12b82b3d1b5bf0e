// Canonical, length-limited Huffman codebook (paper, sections 3.2.2 and 3.2.3; docs/format.md, section 7).
#pragma once

#include <cstdint>
#include <vector>

#include "../alphabet.hpp"

namespace cusz::cpu {

// Optimal code lengths of at most alphabet.limit() bits, by package-merge; 0 for symbols of weight 0.
std::vector<std::uint8_t> code_lengths(const std::vector<std::uint64_t>& weights, const Alphabet& alphabet);

// Canonical codes, bit-reversed: the first bit of a code is its lowest.
std::vector<std::uint32_t> canonical_codes(const std::vector<std::uint8_t>& lengths);

// Code and raw bits of a delta in one piece, by table for the small ones.
class EncodeBook {
public:
    struct Entry {
        std::uint32_t bits, length;
    };
    EncodeBook(const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet);

    // Bits and lengths of deltas -span() to span() - 1, and at the end, for all others, a length of no_entry; so also
    // for deltas of which no code of their own says what they are.
    static constexpr std::uint32_t no_entry = 64;
    const std::uint32_t* table_bits() const { return table_bits_.data(); }
    const std::uint32_t* table_lengths() const { return table_lengths_.data(); }
    std::uint32_t span() const { return span_; }
    std::uint32_t longest_in_table() const { return longest_in_table_; } // bits; at most 15 + 6
    // |delta| from here on is an outlier.
    std::uint32_t reach() const { return reach_; }
    // Of any delta nearer to 0, or hole_delta.
    Entry compose(std::int32_t delta) const {
        std::uint32_t symbol = alphabet_.symbol(delta);
        if (codes_[symbol].length == 0) symbol = alphabet_.escape();
        const Alphabet::Meaning m = alphabet_.meaning(symbol);
        const auto raw = static_cast<std::uint32_t>(delta - m.base);
        return {codes_[symbol].bits | raw << codes_[symbol].length, codes_[symbol].length + m.raw_bits};
    }

private:
    Alphabet alphabet_;
    std::uint32_t span_, longest_in_table_ = 0, reach_;
    std::vector<Entry> codes_; // of symbols
    std::vector<std::uint32_t> table_bits_, table_lengths_;
};

// What every pattern of the longest code's width begins with (the reverse codebook of the paper's section 3.3).
class DecodeBook {
public:
    // lengths: of a complete code, of one code of length 1, or of none (frame.cpp).
    DecodeBook(const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet);

    // One word, so that the table of the default alphabet takes half of a first-level cache.
    struct Entry {
        std::int32_t word;
        static Entry of(std::uint32_t length, const Alphabet::Meaning& m) {
            return {static_cast<std::int32_t>((length + m.raw_bits) | length << 6 |
                                              static_cast<std::uint32_t>(m.base) << 10)};
        }
        std::uint32_t total() const { return static_cast<std::uint32_t>(word) & 63; }       // bits of code and raw
        std::uint32_t length() const { return static_cast<std::uint32_t>(word) >> 6 & 15; } // of the code
        std::int32_t base() const { return word >> 10; }                                    // delta = base + raw
    };
    bool empty() const { return empty_; }
    std::uint32_t mask() const { return static_cast<std::uint32_t>(table_.size()) - 1; }
    const Entry* table() const { return table_.data(); }

private:
    bool empty_ = true;
    std::vector<Entry> table_;
};

} // namespace cusz::cpu
