// The bits of a tile's substreams (docs/reference/format.md, section 8).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "archive/tiling.hpp"
#include "simd/isa.hpp"

namespace cusz::cpu::CUSZ_ISA {

inline constexpr std::uint32_t max_substreams = 32;

inline std::uint32_t substream_count(std::uint32_t n) { return std::min(max_substreams, (n + 63) / 64); }

// Lengths of the substreams in bits. The payload stores them minus the shortest, in `width` bits each.
struct SubstreamBits {
    std::uint32_t count = 0;
    std::array<std::uint32_t, max_substreams> bits{};

    std::uint32_t shortest() const { return *std::min_element(bits.begin(), bits.begin() + count); }
    std::uint32_t width() const { // of longest - shortest
        return static_cast<std::uint32_t>(
            std::bit_width(*std::max_element(bits.begin(), bits.begin() + count) - shortest()));
    }
    std::uint32_t total() const { return std::accumulate(bits.begin(), bits.begin() + count, 0u); }
};

// Appends bits to memory in whole bytes; fewer than 8 bits stay pending between calls of flush().
class BitWriter {
public:
    explicit BitWriter(std::uint32_t* words) : begin_(reinterpret_cast<char*>(words)), at_(begin_) {}

    // At most 63 bits between two calls of flush(), including those pending.
    void append(std::uint64_t bits, std::uint32_t length) {
        buffer_ |= bits << pending_;
        pending_ += length;
    }
    // Writes eight bytes, of which the complete ones are kept.
    void flush() {
        std::memcpy(at_, &buffer_, 8);
        at_ += pending_ >> 3;
        buffer_ >>= pending_ & 56;
        pending_ &= 7;
    }
    std::uint32_t bits() const { return static_cast<std::uint32_t>(at_ - begin_) * 8 + pending_; }

private:
    char *begin_, *at_;
    std::uint64_t buffer_ = 0;
    std::uint32_t pending_ = 0;
};

// At least 57 bits, from bit `at` on.
inline std::uint64_t load_bits(const char* bytes, std::uint32_t at) {
    std::uint64_t window;
    std::memcpy(&window, bytes + (at >> 3), 8);
    return window >> (at & 7);
}

// Size in words of `count` numbers of `width` bits (0 to 16) each; packing them, and the inverse.
inline std::uint32_t packed_words(std::uint32_t count, std::uint32_t width) { return (count * width + 31) / 32; }

inline void pack(const std::uint32_t* numbers, std::uint32_t count, std::uint32_t width, std::uint32_t* words) {
    std::uint64_t buffer = 0;
    std::uint32_t pending = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        buffer |= std::uint64_t{numbers[i]} << pending;
        pending += width;
        if (pending < 32) continue;
        *words++ = static_cast<std::uint32_t>(buffer);
        buffer >>= 32;
        pending -= 32;
    }
    if (pending > 0) *words = static_cast<std::uint32_t>(buffer);
}

inline void unpack(const std::uint32_t* words, std::uint32_t count, std::uint32_t width, std::uint32_t* numbers) {
    std::uint64_t buffer = 0;
    std::uint32_t available = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        if (available < width) {
            buffer |= std::uint64_t{*words++} << available;
            available += 32;
        }
        numbers[i] = static_cast<std::uint32_t>(buffer) & ((1u << width) - 1);
        buffer >>= width;
        available -= width;
    }
}

} // namespace cusz::cpu::CUSZ_ISA
