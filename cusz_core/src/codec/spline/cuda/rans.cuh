// rANS with contexts (docs/format_v2.md, section 8): the entries of up to eight tiles are coded side by side by one
// warp, four lanes to a tile, since each lane's states are a chain of dependent steps.
#pragma once

#include "device/block.cuh"
#include "kernels.hpp"

namespace cusz::cuda {

inline constexpr std::uint32_t tiles_of_warp = warp_lanes / v2::max_lanes;
inline constexpr std::uint32_t max_entries = max_tile_values + 1024; // values and flags

// A run of entries of a tile: a phase's flags, or its values in significant groups. groups: which of its groups of 64
// those are, by bit, if there are others between them; otherwise 0.
struct EntryRun {
    std::uint32_t first, n, groups;
};

// This lane's tile among those of the warp, and its number among the tile's lanes.
__device__ inline std::uint32_t tile_of_warp() { return lane() / v2::max_lanes; }
__device__ inline std::uint32_t lane_of_tile() { return lane() % v2::max_lanes; }

// Of the tile's lanes that have the property: how many there are, and how many are before this one.
struct LanesOfTile {
    std::uint32_t all, before; // masks
    __device__ LanesOfTile() {
        const std::uint32_t first = lane() - lane_of_tile();
        all = ((1u << v2::max_lanes) - 1) << first;
        before = ((1u << lane_of_tile()) - 1) << first;
    }
    struct Counts {
        std::uint32_t n, before;
    };
    // By the lanes of `mask`.
    __device__ Counts count(bool has, std::uint32_t mask = whole_warp) const {
        const std::uint32_t those = __ballot_sync(mask, has);
        return {static_cast<std::uint32_t>(__popc(those & all)), static_cast<std::uint32_t>(__popc(those & before))};
    }
};

// Encodes backwards; words are put before those there are.
class RansEncoder {
public:
    // end: behind the tile's room for words; lanes: 0 if there is no tile.
    __device__ RansEncoder(const EncodingTables& tables, std::uint32_t lanes, const std::uint16_t* entries,
                           std::uint16_t* words, std::uint32_t end)
        : tables_(tables), lanes_(lanes), entries_(entries), words_(words), at_(end) {}

    __device__ void run(const EntryRun& run) {
        const std::uint32_t n = lane_of_tile() < lanes_ ? run.n : 0, each = std::max(lanes_, 1u);
        const std::uint32_t own =
            n > lane_of_tile() ? (n - lane_of_tile() + each - 1) / each : 0; // this lane's entries
        const std::uint16_t *const first = entries_ + run.first + lane_of_tile(), *entry = first + own * each;
        std::uint32_t groups = run.groups, enters = groups != 0 ? own : 0; // the next one is before this step
        const auto code_step = [&](std::uint32_t step, bool has) {
            if (step == enters) {
                const std::uint32_t g = 31 - static_cast<std::uint32_t>(__clz(static_cast<int>(groups)));
                groups ^= 1u << g;
                entry = first + (g + 1) * 64;
                enters = groups != 0 ? step - 64 / each : 0;
            }
            std::uint32_t own_entry = idle_entry;
            if (has) own_entry = *(entry -= each);
            code(tables_.interval[own_entry]);
        };
        std::uint32_t step = __reduce_max_sync(whole_warp, own);
        for (const std::uint32_t of_all = __reduce_min_sync(whole_warp, own); step > of_all; --step)
            code_step(step, step <= own);
        for (; step > 0; --step) code_step(step, true);
    }
    // Puts the states before the words. Returns where they begin.
    __device__ std::uint32_t finish() {
        at_ -= 2 * lanes_;
        if (lane_of_tile() < lanes_) {
            words_[at_ + 2 * lane_of_tile()] = static_cast<std::uint16_t>(state_);
            words_[at_ + 2 * lane_of_tile() + 1] = static_cast<std::uint16_t>(state_ >> 16);
        }
        return at_;
    }

private:
    __device__ void code(std::uint64_t interval) {
        const auto low = static_cast<std::uint32_t>(interval), reciprocal = static_cast<std::uint32_t>(interval >> 32);
        const std::uint32_t start = low & 0xFFFF, frequency = low >> 16;
        const bool full = state_ >> 20 >= frequency;
        const auto giving = lanes_of_tile_.count(full);
        at_ -= giving.n;
        if (full) {
            words_[at_ + giving.before] = static_cast<std::uint16_t>(state_);
            state_ >>= 16;
        }
        // x / f * 4096 + x % f + start = x + x / f * (4096 - f) + start. The reciprocal is rounded down.
        std::uint32_t quotient = __umulhi(state_, reciprocal);
        quotient += state_ - quotient * frequency >= frequency ? 1 : 0;
        state_ += quotient * (v2::rans_total - frequency) + start;
    }

    const EncodingTables& tables_;
    std::uint32_t lanes_;
    const std::uint16_t* entries_;
    std::uint16_t* words_;
    std::uint32_t at_, state_ = v2::rans_low;
    LanesOfTile lanes_of_tile_;
};

// What a lane keeps between a tile's phases.
struct DecoderState {
    const std::uint16_t* words; // from the states on
    std::uint32_t last, at, end, lanes, state;
};

class RansDecoder {
public:
    __device__ explicit RansDecoder(const DecodingTables& tables) : tables_(tables) {}
    __device__ RansDecoder(const DecodingTables& tables, const DecoderState& from)
        : tables_(tables), words_(from.words), last_(from.last), at_(from.at), end_(from.end), lanes_(from.lanes),
          state_(from.state) {}
    __device__ DecoderState state() const { return {words_, last_, at_, end_, lanes_, state_}; }

    // units: the archive's payloads, which may be read up to unit `limit`; states are at `at`, words end at `end`.
    // lanes: 0 if there is nothing to decode. Returns whether the states are legal.
    __device__ bool begin(const std::uint16_t* units, std::uint64_t limit, std::uint64_t at, std::uint64_t end,
                          std::uint32_t lanes) {
        lanes_ = lanes;
        state_ = v2::rans_low;
        if (lanes == 0) return true;
        words_ = units + at;
        last_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(limit - 1 - at, UINT32_MAX));
        at_ = 2 * lanes;
        end_ = static_cast<std::uint32_t>(end - at);
        if (lane_of_tile() < lanes)
            state_ = words_[2 * lane_of_tile()] | std::uint32_t{words_[2 * lane_of_tile() + 1]} << 16;
        return state_ >= v2::rans_low;
    }

    // Decodes the flags of n groups, to `significant`. sum_of(g): the sum that a group's context follows from.
    template <class Sum>
    __device__ void flags(std::uint32_t n, const Sum& sum_of, std::uint8_t* significant) {
        std::uint32_t j = 0;
        steps(
            n, [&](std::uint32_t first) { j = first; },
            [&](std::uint32_t slot) {
                const std::uint32_t g = tables_.significant[v2::group_context(sum_of(j))], others = v2::rans_total - g;
                const bool is = slot >= others;
                significant[j] = is;
                j += lanes_;
                return is ? Interval{others, g} : Interval{0, others};
            });
    }
    // Decodes n symbols, which replace their tables. places: of every 64th of them in `symbols`; the others follow.
    // Returns which bits are in some of this lane's.
    __device__ std::uint32_t symbols(std::uint32_t n, const std::uint16_t* places, std::uint8_t* symbols) {
        constexpr std::uint32_t of_table = sizeof tables_.interval[0] / sizeof tables_.interval[0][0];
        const std::uint8_t* const symbol_of = tables_.symbol_of[0];
        const std::uint32_t* const intervals = tables_.interval[0];
        std::uint8_t* own = symbols;
        std::uint32_t any = 0;
        steps(
            n, [&](std::uint32_t first) { own = symbols + places[first / 64] + first % 64; },
            [&](std::uint32_t slot) {
                const std::uint32_t table = *own, symbol = symbol_of[table * v2::rans_total + slot],
                                    interval = intervals[table * of_table + symbol];
                *own = static_cast<std::uint8_t>(symbol);
                own += lanes_;
                any |= symbol;
                return Interval{interval % v2::rans_total, interval / v2::rans_total};
            });
        return any;
    }
    // Whether everything was read, and nothing else; of this lane.
    __device__ bool finished() const { return lane_of_tile() >= lanes_ || (at_ == end_ && state_ == v2::rans_low); }

private:
    struct Interval {
        std::uint32_t start, frequency;
    };

    // Calls begin(j) with this lane's next number, of n, every 16 steps: it is in the same run of 64 until then. Then
    // decode(slot) for each.
    template <class Begin, class Decode>
    __device__ void steps(std::uint32_t n, const Begin& begin, const Decode& decode) {
        const bool works = n > 0 && lane_of_tile() < lanes_;
        const std::uint32_t log_lanes = lanes_ / 2; // of 1, 2, or 4
        const std::uint32_t own = works ? (n + lanes_ - 1 - lane_of_tile()) >> log_lanes : 0;
        const std::uint32_t most = __reduce_max_sync(whole_warp, own), those = __ballot_sync(whole_warp, works);
        if (!works) return;
        const auto advance = [&] { // to the next number. Returns whether the state is short of a word.
            const std::uint32_t slot = state_ % v2::rans_total;
            const Interval of = decode(slot);
            state_ = of.frequency * (state_ >> v2::rans_bits) + slot - of.start;
            return state_ < v2::rans_low;
        };
        for (std::uint32_t step = 0; step < most; step += 16) {
            if (own > step) begin((step << log_lanes) + lane_of_tile());
            if (__all_sync(those, own >= step + 16 && at_ + 17 * v2::max_lanes <= last_)) {
                // Each lane has loaded one of the words that are next before it is known which lanes take them.
                const std::uint16_t* next = words_ + at_ + lane_of_tile();
                std::uint32_t word = *next;
#pragma unroll 4
                for (std::uint32_t i = 0; i < 16; ++i) {
                    const bool short_of = advance();
                    const auto taking = lanes_of_tile_.count(short_of, those);
                    const std::uint32_t taken =
                        __shfl_sync(those, word, static_cast<int>(taking.before), static_cast<int>(v2::max_lanes));
                    if (short_of) state_ = state_ << 16 | taken;
                    next += taking.n;
                    word = *next;
                }
                at_ = static_cast<std::uint32_t>(next - words_) - lane_of_tile();
            } else {
                const std::uint32_t end = std::min(step + 16, most);
                for (std::uint32_t i = step; i < end; ++i) {
                    const bool short_of = i < own && advance();
                    const auto taking = lanes_of_tile_.count(short_of, those);
                    if (short_of) // words beyond the end are anything; finished() tells
                        state_ = state_ << 16 | words_[std::min(at_ + taking.before, last_)];
                    at_ += taking.n;
                }
            }
        }
    }

    const DecodingTables& tables_;
    const std::uint16_t* words_ = nullptr; // from the states on
    std::uint32_t last_ = 0, at_ = 0, end_ = 0;
    std::uint32_t lanes_ = 0, state_ = v2::rans_low;
    LanesOfTile lanes_of_tile_;
};

} // namespace cusz::cuda
