// One bit for every value, or every group of values, of a tile, in shared memory.
#pragma once

#include <algorithm>

#include "archive/tiling.hpp"
#include "device/block.cuh"

namespace cusz::cuda {

inline constexpr std::uint32_t bitmap_words = max_tile_values / 32;

struct Bitmap {
    Array<std::uint32_t, bitmap_words> word;

    __device__ bool test(std::uint32_t i) const { return test(i / 32, i % 32); }
    // Bit `bit` of word `at`.
    __device__ bool test(std::uint32_t at, std::uint32_t bit) const { return (word[at] >> bit & 1) != 0; }

    // Whether any of `length` bits from `begin` on is set.
    __device__ bool any(std::uint32_t begin, std::uint32_t length) const {
        std::uint32_t found = 0;
        each_word(begin, length, [&](std::uint32_t at, std::uint32_t bits) { found |= word[at] & bits; });
        return found != 0;
    }
    // Sets `length` bits from `begin` on; other threads may be setting other bits of the same words.
    __device__ void set(std::uint32_t begin, std::uint32_t length) {
        each_word(begin, length, [&](std::uint32_t at, std::uint32_t bits) { atomicOr(&word[at], bits); });
    }

private:
    template <class Use>
    __device__ static void each_word(std::uint32_t begin, std::uint32_t length, const Use& use) {
        while (length > 0) {
            const std::uint32_t first = begin % 32, here = std::min(32 - first, length);
            use(begin / 32, (whole_warp >> (32 - here)) << first);
            begin += here;
            length -= here;
        }
    }
};

// A bitmap that also knows how many bits are set before each one.
struct RankedBitmap : Bitmap {
    Array<std::uint16_t, bitmap_words> before;
    std::uint32_t count;

    // Computes the ranks; by one whole warp, once the words are complete.
    __device__ void rank() {
        constexpr std::uint32_t each = bitmap_words / warp_lanes;
        std::uint32_t in_lane = 0;
        for (std::uint32_t i = 0; i < each; ++i) in_lane += static_cast<std::uint32_t>(__popc(word[lane() * each + i]));
        std::uint32_t sum = warp_inclusive_sum(in_lane);
        if (lane() == warp_lanes - 1) count = sum;
        sum -= in_lane;
        for (std::uint32_t i = 0; i < each; ++i) {
            before[lane() * each + i] = static_cast<std::uint16_t>(sum);
            sum += static_cast<std::uint32_t>(__popc(word[lane() * each + i]));
        }
    }
    // Number of bits set before bit i.
    __device__ std::uint32_t rank_of(std::uint32_t i) const { return rank_of(i / 32, i % 32); }
    __device__ std::uint32_t rank_of(std::uint32_t at, std::uint32_t bit) const {
        return before[at] + static_cast<std::uint32_t>(__popc(word[at] & ((1u << bit) - 1)));
    }
};

} // namespace cusz::cuda
