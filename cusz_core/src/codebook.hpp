// Canonical, length-limited Huffman codebook (paper, sections 3.2.2 and 3.2.3; docs/format.md, section 7).
#pragma once

#include <cstdint>
#include <vector>

#include "format/alphabet.hpp"

namespace cusz {

// Optimal code lengths of at most alphabet.limit() bits, by package-merge; 0 for symbols of weight 0.
std::vector<std::uint8_t> code_lengths(const std::vector<std::uint64_t>& weights, const Alphabet& alphabet);

// The section that an archive has of them: four bits a symbol, whole words, codebook_bytes() in all. Reading throws
// CORRUPT unless the lengths make a complete code, one codeword of length 1, or none.
std::vector<std::uint8_t> read_lengths(const void* section, const Alphabet& alphabet);
void write_lengths(void* section, const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet);

// Canonical codewords, bit-reversed: the first bit of one is its lowest.
std::vector<std::uint32_t> canonical_codewords(const std::vector<std::uint8_t>& lengths);

// Codewords of codes, by places in a table: small codes with their extra bits in one piece, then one place for what has
// no entry, one for missing values, then the buckets.
class EncodeBook {
public:
    struct Entry {
        std::uint32_t bits, length;
    };
    EncodeBook(const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet);

    // Codes from -span() to span() - 1 have the places from 0 on; span() is a power of two, at most 4096.
    std::uint32_t span() const { return span_; }
    // Others have bucket_place(octave - 2, code >> octave - 2), of which the table knows the codeword only.
    std::uint32_t no_place() const { return 2 * span_; }
    std::uint32_t missing_place() const { return 2 * span_ + 1; }
    std::uint32_t first_bucket_place() const { return 2 * span_ + 2; }
    static constexpr std::uint32_t bucket_place(std::uint32_t extra_bits, std::int32_t leading) {
        return 16 * extra_bits + static_cast<std::uint32_t>(leading + 8); // behind the first one
    }
    static constexpr std::uint32_t no_entry = 64; // the length at places of codes that have no codeword of their own
    const std::uint32_t* bits() const { return bits_.data(); }
    const std::uint32_t* lengths() const { return lengths_.data(); }
    const std::uint32_t* words() const { return words_.data(); }          // both: bits << 8 | length
    const std::uint8_t* extra_bits() const { return extra_bits_.data(); } // to be added, with the code's low bits
    std::uint32_t longest_of_small() const { return longest_of_small_; }  // bits; at most 15 + 6

    // |code| from here on is out of range.
    std::uint32_t reach() const { return reach_; }
    // Codeword and extra bits of any code nearer to 0, or of missing_code.
    Entry compose(std::int32_t code) const;

private:
    Alphabet alphabet_;
    std::uint32_t span_, longest_of_small_ = 0, reach_;
    std::vector<Entry> codewords_; // of symbols
    std::vector<std::uint32_t> bits_, lengths_, words_;
    std::vector<std::uint8_t> extra_bits_;
};

// What every pattern of the longest codeword's width begins with (the reverse codebook of the paper's section 3.3).
class DecodeBook {
public:
    // lengths: of a complete code, of one codeword of length 1, or of none (read_lengths).
    DecodeBook(const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet);

    // One word, so that the table of the default alphabet takes half of a first-level cache: bits of codeword and
    // extra bits together (8), of the codeword (4), the leading number of the quantisation code (20).
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
    std::uint32_t width() const { return width_; } // bits that tell the entry
    const Entry* table() const { return table_.data(); }

private:
    bool empty_ = true;
    std::uint32_t width_;
    std::vector<Entry> table_;
};

} // namespace cusz
