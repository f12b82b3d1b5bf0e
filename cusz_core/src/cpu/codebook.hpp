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

    // Of deltas -span() to span() - 1.
    const Entry* table() const { return table_.data(); }
    std::uint32_t span() const { return span_; }
    // Of any delta inside the alphabet, or hole_delta.
    Entry compose(std::int32_t delta) const;

private:
    Alphabet alphabet_;
    std::uint32_t span_;
    std::vector<std::uint8_t> lengths_;
    std::vector<std::uint32_t> codes_;
    std::vector<Entry> table_;
};

// What every pattern of the longest code's width begins with (the reverse codebook of the paper's section 3.3).
class DecodeBook {
public:
    // lengths: of a complete code, of one code of length 1, or of none (frame.cpp).
    DecodeBook(const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet);

    // One word, so that the table of the default alphabet takes half of a first-level cache.
    struct Entry {
        std::int32_t word;
        std::uint32_t length() const { return static_cast<std::uint32_t>(word) & 15; }        // of the code
        std::uint32_t raw_bits() const { return static_cast<std::uint32_t>(word) >> 4 & 31; } // behind it
        std::int32_t base() const { return word >> 9; }                                       // delta = base + raw
    };
    bool empty() const { return empty_; }
    std::uint32_t mask() const { return static_cast<std::uint32_t>(table_.size()) - 1; }
    const Entry* table() const { return table_.data(); }

private:
    bool empty_ = true;
    std::vector<Entry> table_;
};

} // namespace cusz::cpu
