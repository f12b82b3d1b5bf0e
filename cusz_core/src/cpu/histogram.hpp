// Histogram of the symbols (paper, section 3.2.1), over a fixed sample of tiles (docs/format.md, section 7).
#pragma once

#include <algorithm>
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
    explicit Histogram(int r) : alphabet_(r), counts_(alphabet_.size()), small_(2 * 2 * span) {}

    void add(const std::int32_t* delta, std::uint32_t n) {
        // By turns in two tables: a run of equal deltas would wait for its own last addition.
        std::uint64_t *even = small_.data() + span, *odd = even + 2 * span;
        std::uint32_t i = 0;
        for (; i + 2 <= n; i += 2) {
            count(delta[i], even);
            count(delta[i + 1], odd);
        }
        if (i < n) count(delta[i], even);
    }
    void add(const Histogram& other) {
        for (std::size_t s = 0; s < counts_.size(); ++s) counts_[s] += other.counts_[s];
        for (std::size_t i = 0; i < small_.size(); ++i) small_[i] += other.small_[i];
    }
    // Whether a delta of magnitude `reach`, a power of two of at least 1024, or more was counted.
    bool has_beyond(std::uint32_t reach) const {
        if (reach >= alphabet_.reach()) return false;
        const auto from = counts_.begin() + alphabet_.symbol(static_cast<std::int32_t>(reach));
        return std::any_of(from, counts_.begin() + alphabet_.escape(0), [](std::uint64_t count) { return count > 0; });
    }
    // What the codebook is built from. Where only a sample was counted, the escapes keep codes for what it missed.
    std::vector<std::uint64_t> weights(const Sample& sample) const {
        std::vector<std::uint64_t> w(counts_);
        for (std::int32_t delta = -span; delta < span; ++delta) {
            const auto at = static_cast<std::size_t>(delta + span);
            w[alphabet_.symbol(delta)] += small_[at] + small_[at + 2 * span];
        }
        for (auto& weight : w) weight *= sample.rate();
        if (alphabet_.r == default_r) w[alphabet_.escape(0)] = w[alphabet_.escape(-1)] = 1;
        // Nothing else can say what a hole is.
        if (sample.rate() > 1) w[alphabet_.hole()] = std::max<std::uint64_t>(w[alphabet_.hole()], 1);
        return w;
    }

private:
    static constexpr std::int32_t span = 512; // deltas from -span to span - 1 are counted one by one at first

    void count(std::int32_t delta, std::uint64_t* small) {
        if (delta >= -span && delta < span) [[likely]]
            ++small[delta];
        else
            ++counts_[alphabet_.symbol(delta)];
    }

    Alphabet alphabet_;
    std::vector<std::uint64_t> counts_, small_; // of symbols, of small deltas
};

} // namespace cusz::cpu
