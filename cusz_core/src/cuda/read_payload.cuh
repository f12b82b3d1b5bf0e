// A tile from its payload, by one warp (docs/format.md, section 8). Whatever the payload says, nothing outside the
// payload is read, and nothing outside the tile is written.
#pragma once

#include "payload.cuh"
#include "reverse.cuh"

namespace cusz::cuda {

// A payload's words; behind them there are zeros.
class PayloadReader {
public:
    __device__ PayloadReader(const std::uint32_t* words, std::uint32_t n) : words_(words), n_(n) {}
    __device__ std::uint32_t operator[](std::uint32_t i) const { return i < n_ ? words_[i] : 0; }
    // Where the next `count` words begin. If they are not there, nothing more is.
    __device__ std::uint32_t take(std::uint32_t count) {
        const std::uint32_t from = at_;
        failed_ = failed_ || count > n_ - at_;
        if (!failed_) at_ += count;
        return from;
    }
    __device__ bool failed() const { return failed_; }
    __device__ bool at_end() const { return at_ == n_; }
    // `width` bits, at most 16, from bit `bit` behind word `from`.
    __device__ std::uint32_t bits(std::uint32_t from, std::uint32_t bit, std::uint32_t width) const {
        const std::uint32_t i = from + bit / 32;
        return __funnelshift_r((*this)[i], (*this)[i + 1], bit % 32) & ((1u << width) - 1);
    }

private:
    const std::uint32_t* words_;
    std::uint32_t n_, at_ = 0;
    bool failed_ = false;
};

// The bits of one substream.
class BitReader {
public:
    __device__ BitReader(const PayloadReader& words, std::uint32_t first_word, std::uint32_t bit)
        : words_(words), next_(first_word + bit / 32 + 1), available_(32 - bit % 32),
          buffer_(words[first_word + bit / 32] >> bit % 32) {}
    // The next 32 bits.
    __device__ std::uint32_t window() {
        if (available_ < 32) {
            buffer_ |= std::uint64_t{words_[next_++]} << available_;
            available_ += 32;
        }
        return static_cast<std::uint32_t>(buffer_);
    }
    __device__ void skip(std::uint32_t bits) { // at most 32, after window()
        buffer_ >>= bits;
        available_ -= bits;
    }

private:
    const PayloadReader& words_;
    std::uint32_t next_, available_;
    std::uint64_t buffer_;
};

// Decodes the n coded symbols to tile.value, in order; hole_delta for holes. Returns false if a substream does not end
// where its length says, or if there is no hole although `has_holes` says so, or one although not.
template <class T>
__device__ bool decode(const PayloadReader& words, std::uint32_t codes_at, std::uint32_t begin, std::uint32_t length,
                       std::uint32_t n, bool has_holes, const DecodeTable& table, WarpMemory<T>& tile) {
    const std::uint32_t count = substream_count(n), mask = (1u << table.width) - 1;
    BitReader reader(words, codes_at, begin);
    std::uint32_t read = 0;
    bool hole = false;
    if (lane() < count) {
        for (std::uint32_t j = lane(); j < n; j += count) {
            const std::uint32_t window = reader.window(), entry = table.entry[window & mask];
            const std::uint32_t total = entry & 255, code = entry >> 8 & 15;
            const std::int32_t leading = static_cast<std::int32_t>(entry) >> 12;
            const std::uint32_t raw_bits = total - code;
            const std::uint32_t raw = window >> code & ((1u << raw_bits) - 1);
            const bool is_hole = leading == Alphabet::hole_leading;
            hole = hole || is_hole;
            tile.value[j] = is_hole
                                ? hole_delta
                                : static_cast<std::int32_t>((static_cast<std::uint32_t>(leading) << raw_bits) + raw);
            reader.skip(total);
            read += total;
        }
    }
    const bool ends = __all_sync(whole_warp, lane() >= count || read == length) != 0;
    return ends && (__any_sync(whole_warp, hole) != 0) == has_holes;
}

// Whether `count` positions of outliers, two a word, ascend and lie in the tile.
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

template <class T>
__device__ void store_whole(const PayloadReader& words, bool raw, const TileBox& box, const Quantiser<T>& quantiser,
                            T* field) {
    for (Positions at(box, lane()); at.inside(); at.next())
        field[at.offset(box)] = std::bit_cast<T>(
            raw ? read_value<T>(words, 1 + at.at * static_cast<std::uint32_t>(words_of<T>)) : quantiser.special);
}

// Decodes tile.box from exactly n_words words.
template <class T>
__device__ TileError read_payload(const Tiling& tiling, const Quantiser<T>& quantiser, const DecodeTable& table,
                                  const std::uint32_t* payload, std::uint32_t n_words, WarpMemory<T>& tile, T* field) {
    constexpr auto each = static_cast<std::uint32_t>(words_of<T>);
    using Int = typename Traits<T>::Int;
    const TileBox& box = tile.box;
    PayloadReader words(payload, n_words);
    const std::uint32_t n = box.values(), head = words[words.take(1)];
    const v1::TileHeader header = v1::TileHeader::of(head);
    const bool is_raw = header.kind == v1::tile_raw;
    if (header.kind == v1::tile_special || is_raw) {
        if (head != header.kind || n_words != (is_raw ? 1 + n * each : 1)) return TileError::head_or_length;
        store_whole(words, is_raw, box, quantiser, field);
        return TileError::none;
    }
    if (!v1::TileHeader::is_legal(head)) return TileError::head;
    const bool flat = header.is_all_zero, masked = header.has_mask, fine = header.has_fine_mask;
    const bool has_holes = header.has_missing;
    const std::uint32_t width = header.width;

    const auto anchor = static_cast<Int>(read_value<T>(words, words.take(each)));
    std::uint32_t n_delta = 0, n_value = 0;
    if (header.has_outliers) {
        const std::uint32_t both = words[words.take(1)];
        n_delta = both & 0xFFFF;
        n_value = both >> 16;
        if (n_delta > n || n_value > n) return TileError::too_many_outliers;
    }
    if (words.failed()) return TileError::too_short;

    std::uint32_t n_coded = flat ? 0 : n;
    if (masked) {
        const GroupGrid groups(box.edge, tiling.group()), subgroups(box.edge, tiling.subgroup());
        const std::uint32_t mask_words = words_of_bits(groups.total()), mask_at = words.take(mask_words);
        std::uint64_t mask = words[mask_at];
        if (mask_words == 2) mask |= std::uint64_t{words[mask_at + 1]} << 32;
        if (words.failed() || mask == 0 || (groups.total() < 64 && mask >> groups.total() != 0)) return TileError::mask;
        for (std::uint32_t i = lane(); i < bitmap_words; i += warp_lanes) tile.coded.word[i] = 0;
        __syncwarp();
        if (fine) {
            for (std::uint32_t first = 0; first < max_tile_values; first += warp_lanes) {
                const std::uint32_t s = first + lane();
                const bool candidate = s < subgroups.total() && (mask >> groups.group_around(subgroups, s) & 1) != 0;
                const std::uint32_t bits = __ballot_sync(whole_warp, candidate);
                if (lane() == 0) tile.subgroup.word[first / 32] = bits;
            }
            __syncwarp();
            tile.subgroup.rank();
            __syncwarp();
            const std::uint32_t fine_at = words.take(words_of_bits(tile.subgroup.count));
            if (words.failed()) return TileError::too_short;
            mark_coded(tile.coded, subgroups, lane(), warp_lanes, [&](std::uint32_t s) {
                return tile.subgroup.test(s) && words.bits(fine_at, tile.subgroup.rank_of(s), 1) != 0;
            });
        } else {
            mark_coded(tile.coded, groups, lane(), warp_lanes, [&](std::uint32_t g) { return (mask >> g & 1) != 0; });
        }
        __syncwarp();
        tile.coded.rank();
        __syncwarp();
        n_coded = tile.coded.count;
        if (n_coded == 0) return TileError::mask;
    }

    if (flat) {
        for (std::uint32_t at = lane(); at < n; at += warp_lanes) tile.value[at] = 0;
    } else {
        const std::uint32_t count = substream_count(n_coded);
        const std::uint32_t lengths_at = words.take(words_of_bits(count * width));
        if (words.failed()) return TileError::too_short;
        const std::uint32_t length =
            lane() < count ? header.base + (width > 0 ? words.bits(lengths_at, lane() * width, width) : 0) : 0;
        const std::uint32_t end = warp_inclusive_sum(length);
        const std::uint32_t codes_at =
            words.take(words_of_bits(__shfl_sync(whole_warp, end, static_cast<int>(warp_lanes - 1))));
        if (words.failed()) return TileError::too_short;
        if (table.empty || !decode(words, codes_at, end - length, length, n_coded, has_holes, table, tile))
            return TileError::substream;
    }
    __syncwarp();
    if (masked) // from the last to the first: a value's place is never in front of its rank
        for (std::uint32_t first = (n - 1) / warp_lanes * warp_lanes;; first -= warp_lanes) {
            const std::uint32_t at = first + lane();
            const Int value = at < n && tile.coded.test(at) ? tile.value[tile.coded.rank_of(at)] : 0;
            __syncwarp();
            if (at < n) tile.value[at] = value;
            __syncwarp();
            if (first == 0) break;
        }
    if (has_holes)
        for (std::uint32_t first = 0; first < n; first += warp_lanes) {
            const std::uint32_t at = first + lane();
            const std::uint32_t holes = __ballot_sync(whole_warp, at < n && tile.value[at] == hole_delta);
            if (lane() == 0) tile.hole.word[first / 32] = holes;
        }

    const std::uint32_t delta_at = words.take(outlier_words(n_delta, each));
    const std::uint32_t value_at = words.take(outlier_words(n_value, each));
    if (words.failed()) return TileError::too_short;
    if (!words.at_end()) return TileError::too_long;
    if (!are_positions(words, delta_at, n_delta, n) || !are_positions(words, value_at, n_value, n))
        return TileError::outlier_position;
    __syncwarp();
    for (std::uint32_t i = lane(); i < n_delta; i += warp_lanes)
        tile.value[words.bits(delta_at, 16 * i, 16)] =
            static_cast<Int>(read_value<T>(words, delta_at + (n_delta + 1) / 2 + i * each));
    __syncwarp();
    reverse(tile, header.predictor, has_holes, anchor, quantiser, field);
    __syncwarp();
    for (std::uint32_t i = lane(); i < n_value; i += warp_lanes)
        field[field_offset(box, words.bits(value_at, 16 * i, 16))] =
            std::bit_cast<T>(read_value<T>(words, value_at + (n_value + 1) / 2 + i * each));
    return TileError::none;
}

} // namespace cusz::cuda
