// Canonical, length-limited Huffman codebook (paper, sections 3.2.2 and 3.2.3; docs/reference/format.md, section 7).
#pragma once

#include <cstdint>
#include <vector>

#include "archive/alphabet.hpp"

namespace cusz {

// Optimal code lengths of at most alphabet.limit() bits, by package-merge; 0 for symbols of weight 0.
std::vector<std::uint8_t> code_lengths(const std::vector<std::uint64_t>& weights, const Alphabet& alphabet);

// The archive section that stores them: four bits per symbol, in whole words, codebook_bytes() in all. Reading throws
// CORRUPT unless the lengths form a complete code, a single codeword of length 1, or no code at all.
std::vector<std::uint8_t> read_lengths(const void* section, const Alphabet& alphabet);
void write_lengths(void* section, const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet);

// Canonical codewords, bit-reversed: the first bit is the lowest.
std::vector<std::uint32_t> canonical_codewords(const std::vector<std::uint8_t>& lengths);

// Lookup table from quantisation codes to codewords. Its entries, in order: small codes with their extra bits included,
// one for codes that have no entry, one for missing values, then the buckets.
class EncodeBook {
public:
    struct Entry {
        std::uint32_t bits, length;
    };
    EncodeBook(const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet);

    // Codes from -span() to span() - 1 start at place 0; span() is a power of two, at most 4096.
    std::uint32_t span() const { return span_; }
    // Other codes are in buckets, at bucket_place(octave - 2, code >> octave - 2); the table holds only their codeword.
    std::uint32_t no_place() const { return 2 * span_; }
    std::uint32_t missing_place() const { return 2 * span_ + 1; }
    std::uint32_t first_bucket_place() const { return 2 * span_ + 2; }
    static constexpr std::uint32_t bucket_place(std::uint32_t extra_bits, std::int32_t leading) {
        return 16 * extra_bits + static_cast<std::uint32_t>(leading + 8); // after first_bucket_place()
    }
    static constexpr std::uint32_t no_entry = 64; // length stored for codes without their own codeword
    const std::uint32_t* bits() const { return bits_.data(); }
    const std::uint32_t* lengths() const { return lengths_.data(); }
    const std::uint32_t* words() const { return words_.data(); }          // both: bits << 8 | length
    const std::uint8_t* extra_bits() const { return extra_bits_.data(); } // to append: the code's low bits
    std::uint32_t longest_of_small() const { return longest_of_small_; }  // bits; at most 15 + 6

    // A |code| of at least this is out of range.
    std::uint32_t reach() const { return reach_; }
    // Codeword and extra bits of any code in range, or of missing_code.
    Entry compose(std::int32_t code) const;

private:
    Alphabet alphabet_;
    std::uint32_t span_, longest_of_small_ = 0, reach_;
    std::vector<Entry> codewords_; // of symbols
    std::vector<std::uint32_t> bits_, lengths_, words_;
    std::vector<std::uint8_t> extra_bits_;
};

// For every bit pattern as wide as the longest codeword, the codeword it begins with (the reverse codebook of the
// paper's section 3.3).
class DecodeBook {
public:
    // lengths: of a complete code, of a single codeword of length 1, or of no code, as read_lengths() returns them.
    DecodeBook(const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet);

    // One word, so that the default alphabet's table takes half of an L1 cache: length of codeword and extra bits
    // together (8 bits), length of the codeword (4), leading number of the quantisation code (20).
    struct Entry {
        std::uint32_t word;
        static Entry of(std::uint32_t length, const Alphabet::Meaning& m) {
            return {(length + m.extra_bits) | length << 8 | static_cast<std::uint32_t>(m.leading) << 12};
        }
        std::uint32_t total() const { return word & 255; }
        std::uint32_t length() const { return word >> 8 & 15; }
        std::int32_t leading() const { return static_cast<std::int32_t>(word) >> 12; }
    };
    bool empty() const { return empty_; }
    std::uint32_t width() const { return width_; } // bits that select an entry
    const Entry* table() const { return table_.data(); }

private:
    bool empty_ = true;
    std::uint32_t width_;
    std::vector<Entry> table_;
};

} // namespace cusz
