// Range asymmetric numeral systems (rANS) with a static table for each context and a few interleaved lanes
// (docs/format_v2.md, sections 7 and 8).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "isa.hpp"
#include "rans_tables.hpp"

namespace cusz::cpu::CUSZ_ISA {

__extension__ typedef unsigned __int128 Wide; // for the high half of a product

// Codes entries backwards: those of the last run first. Each run starts with lane 0.
class RansEncoder {
public:
    // Words are written before `end`.
    RansEncoder(const RansWriting& writing, std::uint32_t lanes, std::uint16_t* end)
        : writing_(writing), lanes_(lanes), words_(end) {
        for (auto& state : state_) state = rans_low;
    }

    void run(const std::uint16_t* entry, std::uint32_t n) {
        std::uint32_t j = n;
        while (j % lanes_ != 0) { // the last, incomplete step
            --j;
            code(entry[j], state_[j % lanes_], words_);
        }
        std::uint16_t* words = words_;
        if (lanes_ == 4) {
            std::uint32_t a = state_[0], b = state_[1], c = state_[2], d = state_[3];
            for (; j > 0; j -= 4) {
                code(entry[j - 1], d, words);
                code(entry[j - 2], c, words);
                code(entry[j - 3], b, words);
                code(entry[j - 4], a, words);
            }
            state_[0] = a;
            state_[1] = b;
            state_[2] = c;
            state_[3] = d;
        } else if (lanes_ == 2) {
            std::uint32_t a = state_[0], b = state_[1];
            for (; j > 0; j -= 2) {
                code(entry[j - 1], b, words);
                code(entry[j - 2], a, words);
            }
            state_[0] = a;
            state_[1] = b;
        } else {
            for (; j > 0; --j) code(entry[j - 1], state_[0], words);
        }
        words_ = words;
    }

    // Puts the states before the words; returns where the payload's coded part begins.
    std::uint16_t* finish() {
        for (std::uint32_t lane = lanes_; lane-- > 0;) {
            *--words_ = static_cast<std::uint16_t>(state_[lane] >> 16);
            *--words_ = static_cast<std::uint16_t>(state_[lane]);
        }
        return words_;
    }

private:
    [[gnu::always_inline]] void code(std::uint16_t entry, std::uint32_t& state, std::uint16_t*& words) {
        const RansInterval& of = writing_.of_entry[entry];
        std::uint32_t x = state;
        words[-1] = static_cast<std::uint16_t>(x);
        const std::uint32_t full = x > of.most; // without a branch, which would be mispredicted
        words -= full;
        x >>= 16 * full;
        const auto quotient = static_cast<std::uint32_t>(static_cast<Wide>(x) * of.reciprocal >> 64);
        state = x + quotient * of.complement + of.bias;
    }

    const RansWriting& writing_;
    std::uint32_t lanes_;
    std::uint32_t state_[most_lanes];
    std::uint16_t* words_;
};

class RansDecoder {
public:
    // From the states on. Reads up to `margin` words beyond the end.
    static constexpr std::uint32_t margin = 64;

    RansDecoder(const RansReading& reading, std::uint32_t lanes, const std::uint16_t* words, const std::uint16_t* end)
        : reading_(reading), lanes_(std::min(lanes, most_lanes)), words_(words), end_(end) {
        for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
            state_[lane] = words_[0] | std::uint32_t{words_[1]} << 16;
            good_ = good_ && state_[lane] >= rans_low;
            words_ += 2;
        }
    }

    // Whether symbol 1 of groups with these contexts was coded.
    void flags(const std::uint8_t* context, std::uint32_t n, std::uint8_t* flag) {
        for (std::uint32_t j = 0; j < n && good_; ++j) {
            std::uint32_t& x = state_[j % lanes_];
            const std::uint32_t g = reading_.model.significant[context[j]], slot = x % rans_total;
            flag[j] = slot >= rans_total - g;
            x = flag[j] != 0 ? g * (x >> rans_bits) + slot - (rans_total - g)
                             : (rans_total - g) * (x >> rans_bits) + slot;
            renew(x, words_);
            good_ = words_ <= end_;
        }
    }

    // place, slots: of contexts in their row, and where each one's slots begin.
    void symbols(const std::uint8_t* place, const std::uint32_t* slots, std::uint32_t n, std::uint8_t* symbol) {
        for (std::uint32_t from = 0; from < n && good_; from += margin) { // in pieces that take at most `margin` words
            const std::uint32_t to = from + margin < n ? from + margin : n;
            const std::uint16_t* words =
                words_; // not the member, which stores of bytes might change, as far as C++ knows
            const std::uint32_t* const of_slot = reading_.of_slot;
            if (lanes_ == 4) {
                std::uint32_t a = state_[0], b = state_[1], c = state_[2], d = state_[3], j = from;
                for (; j + 4 <= to; j += 4) {
                    const std::uint8_t s0 = next(of_slot + slots[place[j]], a, words),
                                       s1 = next(of_slot + slots[place[j + 1]], b, words),
                                       s2 = next(of_slot + slots[place[j + 2]], c, words),
                                       s3 = next(of_slot + slots[place[j + 3]], d, words);
                    symbol[j] = s0;
                    symbol[j + 1] = s1;
                    symbol[j + 2] = s2;
                    symbol[j + 3] = s3;
                }
                if (j < to) symbol[j] = next(of_slot + slots[place[j]], a, words);
                if (j + 1 < to) symbol[j + 1] = next(of_slot + slots[place[j + 1]], b, words);
                if (j + 2 < to) symbol[j + 2] = next(of_slot + slots[place[j + 2]], c, words);
                state_[0] = a;
                state_[1] = b;
                state_[2] = c;
                state_[3] = d;
            } else {
                for (std::uint32_t j = from; j < to; ++j)
                    symbol[j] = next(of_slot + slots[place[j]], state_[j % lanes_], words);
            }
            words_ = words;
            good_ = words_ <= end_;
        }
    }

    // Whether everything was read, and nothing else.
    bool finished() const {
        bool done = good_ && words_ == end_;
        for (std::uint32_t lane = 0; lane < lanes_; ++lane) done = done && state_[lane] == rans_low;
        return done;
    }
    bool good() const { return good_; }

private:
    [[gnu::always_inline]] static void renew(std::uint32_t& x, const std::uint16_t*& words) {
        const std::uint32_t low = x < rans_low; // without a branch, which would be mispredicted
        x = x << 16 * low | (*words & (0 - low));
        words += low;
    }
    [[gnu::always_inline]] static std::uint8_t next(const std::uint32_t* of_slot, std::uint32_t& x,
                                                    const std::uint16_t*& words) {
        const std::uint32_t of = of_slot[x % rans_total];
        x = ((of >> 8 & 0xFFF) + 1) * (x >> rans_bits) + (of >> 20);
        renew(x, words);
        return static_cast<std::uint8_t>(of);
    }

    const RansReading& reading_;
    std::uint32_t lanes_;
    std::uint32_t state_[most_lanes] = {rans_low, rans_low, rans_low, rans_low};
    const std::uint16_t* words_;
    const std::uint16_t* end_;
    bool good_ = true;
};

} // namespace cusz::cpu::CUSZ_ISA
