// Decodes substreams to codes, by a warp (paper, section 3.3; docs/reference/format.md, sections 6 to 8).
#pragma once

#include "archive/v1.hpp"
#include "kernels.hpp"
#include "payload_reader.cuh"
#include "substreams.cuh"
#include "tile.cuh"

namespace cusz::cuda {

// Reads the codes of one substream. Words are loaded ahead of their use; whatever they contain, no word beyond the
// payload's last one is loaded.
class SubstreamReader {
public:
    SubstreamReader() = default;
    // Starts `begin` bits after the start of word `first`.
    __device__ SubstreamReader(const PayloadReader& payload, std::uint32_t first, std::uint32_t begin)
        : words_(payload.words()), last_(payload.size() - 1), next_(first + begin / 32), at_(begin % 32) {
        low_ = take();
        high_ = take();
        ahead_ = take();
    }
    // The next code. For a missing value it is an arbitrary number, and is_missing() says so.
    __device__ std::int32_t next(const DecodeTable& table) {
        const std::uint32_t window = __funnelshift_r(low_, high_, at_);
        entry_ = table.entry[window & table.mask];
        seen_ |= entry_;
        // Shifts are modulo 32. The extra bits become the highest bits, and then the lowest bits of the code.
        const std::uint32_t extra_on_top = __funnelshift_r(window, window, entry_);
        const auto leading = static_cast<std::uint32_t>(static_cast<std::int32_t>(entry_) >> DecodeTable::leading_at);
        const std::uint32_t code = __funnelshift_l(extra_on_top, leading, entry_ >> DecodeTable::extra_bits_at);
        at_ += entry_ & DecodeTable::total_bits; // at most 32
        if (at_ >= 32) {
            at_ -= 32;
            low_ = high_;
            high_ = ahead_;
            ahead_ = take();
        }
        return static_cast<std::int32_t>(code);
    }
    __device__ bool is_missing() const { return (entry_ & DecodeTable::missing) != 0; } // the last code
    __device__ bool any_missing() const { return (seen_ & DecodeTable::missing) != 0; }
    __device__ std::uint32_t bit() const { return (next_ - words_ahead) * 32 + at_; } // the next bit in the payload

private:
    __device__ std::uint32_t take() { return words_[std::min(next_++, last_)]; }

    static constexpr std::uint32_t words_ahead = 3;
    const std::uint32_t* words_ = nullptr;
    std::uint32_t last_ = 0, next_ = 0, at_ = 0, low_ = 0, high_ = 0, ahead_ = 0, entry_ = 0, seen_ = 0;
};

inline constexpr std::uint32_t shared_table_entries =
    1 << 12; // the default alphabet's; a larger table stays in global memory

// Memory shared by the warps of a block that read payloads.
struct TableMemory {
    Array<std::uint32_t, shared_table_entries> table;
};
inline bool fits_shared_memory(const DecodeTable& table) { return table.mask < shared_table_entries; }
// The decoding table, in shared memory if it fits. Called by `threads` threads; a barrier must follow.
// known_to_fit: tells the compiler what kind of memory it loads from.
template <bool known_to_fit>
__device__ DecodeTable load_table(DecodeTable table, TableMemory& memory, std::uint32_t threads) {
    if (known_to_fit || table.mask < shared_table_entries) {
        for (std::uint32_t i = threadIdx.x; i <= table.mask; i += threads) memory.table[i] = table.entry[i];
        table.entry = &memory.table[0];
    }
    return table;
}

// The substreams of a tile, one per lane; each has every count()th of n codes.
class SubstreamDecoder {
public:
    // Takes them from the payload.
    __device__ TileError open(PayloadReader& words, const v1::TileHeader& header, std::uint32_t n,
                              const DecodeTable& table) {
        count_ = substream_count(n);
        const std::uint32_t width = header.width, lengths_at = words.take(words_of_bits(count_ * width));
        if (words.failed()) return TileError::too_short;
        const std::uint32_t length =
            lane() < count_ ? header.base + (width > 0 ? words.bits(lengths_at, lane() * width, width) : 0) : 0;
        end_ = warp_inclusive_sum(length);
        const std::uint32_t all = __shfl_sync(whole_warp, end_, static_cast<int>(warp_lanes - 1));
        const std::uint32_t from = words.take(words_of_bits(all));
        if (words.failed()) return TileError::too_short;
        if (table.empty) return TileError::substream;
        reader = SubstreamReader(words, from, end_ - length);
        end_ += from * 32;
        return TileError::none;
    }
    __device__ std::uint32_t count() const { return count_; }
    // Once all codes are read: whether every substream ends where its length says, and a value is missing exactly
    // if `has_missing`.
    __device__ bool is_sound(bool has_missing) const {
        const bool ends = __all_sync(whole_warp, lane() >= count_ || reader.bit() == end_) != 0;
        return ends && (__any_sync(whole_warp, lane() < count_ && reader.any_missing()) != 0) == has_missing;
    }

    SubstreamReader reader;

private:
    std::uint32_t count_ = 0, end_ = 0;
};

// Decodes the next n codes to tile.value, in order; missing_code for missing values. By a warp.
template <class T>
__device__ TileError decode_substreams(PayloadReader& words, const v1::TileHeader& header, std::uint32_t n,
                                       const DecodeTable& table, WarpMemory<T>& tile) {
    SubstreamDecoder decoder;
    const TileError error = decoder.open(words, header, n, table);
    if (error != TileError::none) return error;
    if (lane() < decoder.count())
        for (std::uint32_t j = lane(); j < n; j += decoder.count()) {
            const std::int32_t code = decoder.reader.next(table);
            tile.value[j] = decoder.reader.is_missing() ? missing_code : code;
        }
    return decoder.is_sound(header.has_missing) ? TileError::none : TileError::substream;
}

} // namespace cusz::cuda
