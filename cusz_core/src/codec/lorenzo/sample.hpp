// The sample of tiles from which the codebook is built, and how its counts become weights (format.md, section 7).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "archive/alphabet.hpp"

namespace cusz {

// Which tiles are counted: a hash picks one in 2^k pairs of adjacent tiles, about 64 tiles or more.
class Sample {
public:
    static constexpr std::uint64_t most = 16;

    constexpr Sample(std::uint64_t n_tiles, int r) {
        if (r == default_r)
            while (rate() < most && n_tiles >> (log2_rate_ + 1) >= 64) ++log2_rate_;
    }
    constexpr bool counts(std::uint64_t tile) const {
        return log2_rate_ == 0 || ((tile >> 1) * 0x9E3779B97F4A7C15u) >> (64 - log2_rate_) == 0;
    }
    constexpr std::uint64_t rate() const { return std::uint64_t{1} << log2_rate_; }

private:
    int log2_rate_ = 0;
};

// Tile j of n tiles spread over a field: one from each of n runs of about the same length.
constexpr std::uint64_t sampled(std::uint64_t j, std::uint64_t n, std::uint64_t n_tiles) {
    const std::uint64_t begin = n_tiles * j / n, end = n_tiles * (j + 1) / n;
    return begin + ((j + 1) * 0x9E3779B97F4A7C15u >> 32) % (end - begin);
}

// Turns counts of the sample's symbols into weights. Where not all tiles were counted, the escapes keep codewords for
// symbols that the sample missed.
inline void make_weights(std::vector<std::uint64_t>& counts, const Sample& sample, const Alphabet& alphabet) {
    for (auto& weight : counts) weight *= sample.rate();
    if (alphabet.r == default_r) counts[alphabet.escape(0)] = counts[alphabet.escape(-1)] = 1;
    // No escape can stand for a missing value.
    if (sample.rate() > 1) counts[alphabet.missing()] = std::max<std::uint64_t>(counts[alphabet.missing()], 1);
}

} // namespace cusz
