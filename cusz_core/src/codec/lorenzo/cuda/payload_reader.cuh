// A tile's payload, and the outliers in it (docs/reference/format.md, section 8), as a warp reads them.
#pragma once

#include "tile.cuh"

namespace cusz::cuda {

__device__ inline std::uint32_t words_of_bits(std::uint32_t bits) { return (bits + 31) / 32; }

// A payload's words, followed by zeros.
class PayloadReader {
public:
    __device__ PayloadReader(const std::uint32_t* words, std::uint32_t n) : words_(words), n_(n) {}
    __device__ std::uint32_t operator[](std::uint32_t i) const { return i < n_ ? words_[i] : 0; }
    // Where the next `count` words begin. Fails for good if the payload has fewer left.
    __device__ std::uint32_t take(std::uint32_t count) {
        const std::uint32_t from = at_;
        failed_ = failed_ || count > n_ - at_;
        if (!failed_) at_ += count;
        return from;
    }
    __device__ const std::uint32_t* words() const { return words_; }
    __device__ std::uint32_t size() const { return n_; }
    __device__ bool failed() const { return failed_; }
    __device__ bool at_end() const { return at_ == n_; }
    // `width` bits, at most 16, starting `bit` bits after the start of word `from`.
    __device__ std::uint32_t bits(std::uint32_t from, std::uint32_t bit, std::uint32_t width) const {
        const std::uint32_t i = from + bit / 32;
        return __funnelshift_r((*this)[i], (*this)[i + 1], bit % 32) & ((1u << width) - 1);
    }

private:
    const std::uint32_t* words_;
    std::uint32_t n_, at_ = 0;
    bool failed_ = false;
};

__device__ inline std::uint32_t outlier_words(std::uint32_t count, std::uint32_t words_a_value) {
    return (count + 1) / 2 + count * words_a_value;
}

// Whether `count` positions of outliers, two per word, ascend and are within the tile.
__device__ inline bool are_positions(const PayloadReader& words, std::uint32_t from, std::uint32_t count,
                                     std::uint32_t n) {
    bool good = true;
    for (std::uint32_t i = lane(); i < count; i += warp_lanes) {
        const std::uint32_t position = words.bits(from, 16 * i, 16);
        good = good && position < n && (i == 0 || position > words.bits(from, 16 * (i - 1), 16));
    }
    return __all_sync(whole_warp, good) != 0;
}

template <class T>
__device__ typename Traits<T>::Bits read_value(const PayloadReader& words, std::uint32_t at) {
    if constexpr (sizeof(T) == 4)
        return words[at];
    else
        return words[at] | std::uint64_t{words[at + 1]} << 32;
}

// Outliers of a payload, by ascending position.
template <class T>
class Outliers {
public:
    __device__ Outliers(const PayloadReader& words, std::uint32_t at, std::uint32_t count)
        : words_(words), at_(at), count_(count) {}
    __device__ bool any() const { return count_ > 0; }
    // Calls use(position, bits) for the outliers at positions from `begin` to `end` - 1. (It does not remember where
    // the last call ended: registers are scarce, outliers few.)
    template <class Use>
    __device__ void within(std::uint32_t begin, std::uint32_t end, const Use& use) const {
        std::uint32_t low = 0, high = count_;
        while (low < high) {
            const std::uint32_t middle = (low + high) / 2;
            if (position(middle) < begin)
                low = middle + 1;
            else
                high = middle;
        }
        for (; low < count_ && position(low) < end; ++low)
            use(position(low),
                read_value<T>(words_, at_ + (count_ + 1) / 2 + low * static_cast<std::uint32_t>(words_of<T>)));
    }

private:
    __device__ std::uint32_t position(std::uint32_t i) const { return words_.bits(at_, 16 * i, 16); }

    const PayloadReader& words_;
    std::uint32_t at_, count_;
};

} // namespace cusz::cuda
