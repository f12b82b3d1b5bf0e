// Histogram of the symbols (paper, section 3.2.1), over a fixed sample of tiles (docs/format.md, section 7).
#pragma once

#include <cstdint>
#include <vector>

#include "../alphabet.hpp"

namespace cusz::cpu {

// Which tiles are counted: pairs of neighbours picked by a hash, one in 2^k of them, at least about 64 tiles.
class Sample {
public:
    Sample(std::uint64_t n_tiles, int r) {
        if (r == default_r)
            while (log2_rate_ < 4 && n_tiles >> (log2_rate_ + 1) >= 64) ++log2_rate_;
    }
    bool counts(std::uint64_t tile) const {
        return log2_rate_ == 0 || ((tile >> 1) * 0x9E3779B97F4A7C15u) >> (64 - log2_rate_) == 0;
    }
    std::uint64_t rate() const { return std::uint64_t{1} << log2_rate_; }

private:
    int log2_rate_ = 0;
};

class Histogram {
public:
    explicit Histogram(int r) : alphabet_(r), counts_(alphabet_.size()) {}
    void add(const std::int32_t* delta, std::uint32_t n) {
        for (std::uint32_t i = 0; i < n; ++i) ++counts_[alphabet_.symbol(delta[i])];
    }
    void add(const Histogram& other) {
        for (std::size_t s = 0; s < counts_.size(); ++s) counts_[s] += other.counts_[s];
    }
    // What the codebook is built from: every symbol of the default alphabet keeps a code.
    std::vector<std::uint64_t> weights(const Sample& sample) const {
        std::vector<std::uint64_t> w(counts_);
        if (alphabet_.r == default_r)
            for (auto& weight : w) weight = weight * sample.rate() + 1;
        return w;
    }

private:
    Alphabet alphabet_;
    std::vector<std::uint64_t> counts_;
};

} // namespace cusz::cpu
