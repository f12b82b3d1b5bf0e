// Decodes a unit's payload to codes (docs/reference/format_v2.md, section 8); by a warp.
#pragma once

#include "archive/checksum.hpp"
#include "contexts.cuh"

namespace cusz::cuda {

// The layout of those codes of a tile that later phases look at.
template <class Tile>
using NearBoxes = std::conditional_t<Tile::is_full, EqualBoxes<Tile>, Boxes<Tile, 0, 1>>;

// Shared memory of a warp. fits: no edge of a tile is longer than a full tile's. Thin lattices may have longer ones.
template <std::uint32_t axes, bool fits>
struct TileMemory {
    // Codes of all classes but 0 and the last one, with their margins; cleared eight at a time.
    static constexpr std::uint32_t near_codes() {
        if (!fits) return 9728; // 2 x 2 x 2 x 512 points
        if (axes == 1) return 8;
        constexpr FullTile<axes> full;
        int last[4] = {static_cast<int>(full.n(0, 0)), 0, 0, 0};
        for (std::uint32_t a = 1; a < axes; ++a) last[a] = static_cast<int>(full.n(0, a)) - 1;
        using All = EqualBoxes<FullTile<axes>>;
        return (All::at((1u << axes) - 2, last) - All::begin(1)) / 8 * 8 + 8;
    }

    TilePlace place;
    alignas(16) Array<NearCode, near_codes()> code;
};

// The same for a unit that is read. Units that are written use its sizes.
template <std::uint32_t axes, bool fits>
struct UnitMemory : TileMemory<axes, fits> {
    static constexpr std::uint32_t class_points = max_tile_values >> axes; // of a full tile
    // Max points of a phase, and groups with flags.
    static constexpr std::uint32_t most_points = fits && axes > 1 ? axes * class_points : max_tile_values / 2;
    static constexpr std::uint32_t most_flags = fits ? most_points / v2::max_group_points : most_points;

    Array<std::uint8_t, most_points> entry; // of a phase: contexts, then symbols
    Array<std::uint8_t, most_flags> flag;   // contexts, then flags
};

// Clears the codes of earlier phases; beyond the tile they stay 0. Returns an array to index by `boxes`. By a warp.
template <class Boxes, std::uint32_t room>
__device__ NearCode* cleared_codes(const Boxes& boxes, Array<NearCode, room>& code) {
    constexpr std::uint32_t axes = decltype(boxes.tile)::axes;
    const std::uint32_t of_class_0 = boxes.size(0);
    if constexpr (axes > 1) {
        struct alignas(16) Eight {
            std::uint32_t two[4];
        };
        const std::uint32_t n = decltype(boxes.tile)::is_full ? room : boxes.begin((1u << axes) - 1) - of_class_0;
        for (std::uint32_t i = 8 * lane(); i < n; i += 8 * warp_lanes)
            reinterpret_cast<Eight&>(code[i]) = {
                {NearCode::two_zeros, NearCode::two_zeros, NearCode::two_zeros, NearCode::two_zeros}};
        __syncwarp();
    }
    return &code[0] - of_class_0;
}

// Shared memory of a block: what its warps look up.
struct ReadTables {
    Array<std::uint8_t, 3 * 128> table_of;
    Array<std::uint16_t, v2::n_group_contexts> flag_frequency;
};

class UnitReader {
public:
    __device__ UnitReader(const std::uint16_t* payload, const UnitPlace& unit)
        : payload_(payload + unit.begin), n_(unit.n), lanes_(1u << unit.log2_lanes) {
        const std::uint32_t first = 1 + 2 * lane();
        words_ = 1 + 2 * lanes_;
        has_states_ = words_ <= n_;
        if (has_states_ && lane() < lanes_)
            state_ = payload_[first] | static_cast<std::uint32_t>(payload_[first + 1]) << 16;
        window_at_ = words_;
        window_ = word_at(window_at_ + lane()) | word_at(window_at_ + warp_lanes + lane()) << 16;
        next_ = word_at(window_at_ + 2 * warp_lanes + lane());
        has_states_ = __all_sync(whole_warp, has_states_ && (lane() >= lanes_ || state_ >= v2::rans_low)) != 0;
    }

    // Neither this nor the next is kept in a register: there are too few.
    __device__ std::uint32_t live() const { return payload_[0]; }
    __device__ std::uint32_t extra_units() const { return n_ - (1 + 2 * lanes_); } // if there are states
    __device__ bool has_states() const { return has_states_; }
    __device__ bool ends_early() const { return words_ > n_; }
    __device__ bool has_extra_bits() const { return extra_bits_ <= 16 * extra_units(); }
    // Whether everything is used up, and nothing is left over.
    __device__ bool is_finished() const {
        const std::uint32_t used = (extra_bits_ + 15) / 16;
        const bool good = words_ + used == n_ && (extra_bits_ % 16 == 0 || payload_[words_] >> extra_bits_ % 16 == 0);
        return __all_sync(whole_warp, good && (lane() >= lanes_ || state_ == v2::rans_low)) != 0;
    }

    // Replaces contexts of groups by their flags.
    template <std::uint32_t room>
    __device__ void flags(const ReadTables& tables, Array<std::uint8_t, room>& flag, std::uint32_t n) {
        for (std::uint32_t first = 0; first < n; first += lanes_) {
            const std::uint32_t i = first + lane();
            const bool active = lane() < lanes_ && i < n;
            const std::uint32_t frequency = active ? tables.flag_frequency[flag[i]] : 0,
                                others = v2::rans_total - frequency, slot = state_ % v2::rans_total;
            const bool is_set = slot >= others;
            advance(active, is_set ? frequency : others, is_set ? slot - others : slot);
            if (active) flag[i] = is_set ? 1 : 0;
        }
    }
    // Replaces contexts of values by their symbols.
    template <std::uint32_t room>
    __device__ void symbols(const std::uint32_t* slots, const std::uint8_t* table_of, Array<std::uint8_t, room>& entry,
                            std::uint32_t n) {
        // For the next step, which then does not wait for them.
        bool active = lane() < lanes_ && lane() < n;
        std::uint32_t table = active ? table_of[entry[lane()]] : 0;
        for (std::uint32_t i = lane(); i < n + lane(); i += lanes_) {
            const bool now = active;
            std::uint32_t slot = 0;
            if (now) slot = slots[table * v2::rans_total + state_ % v2::rans_total];
            active = lane() < lanes_ && i + lanes_ < n;
            if (active) table = table_of[entry[i + lanes_]];
            advance(now, (slot >> 8 & (v2::rans_total - 1)) + 1, slot >> 20);
            if (now) entry[i] = static_cast<std::uint8_t>(slot);
        }
    }
    // Reads `bits` extra bits for each lane, in the order of lanes.
    __device__ std::uint64_t extra(std::uint32_t bits) {
        const std::uint32_t end = warp_inclusive_sum(bits), begin = extra_bits_ + end - bits;
        extra_bits_ += __shfl_sync(whole_warp, end, warp_lanes - 1);
        if (bits == 0) return 0;
        std::uint64_t value = 0;
        std::uint32_t have = 0;
        for (std::uint32_t unit = begin / 16; have < bits; ++unit) {
            const std::uint64_t here = unit < extra_units() ? payload_[n_ - 1 - unit] : 0;
            const std::uint32_t skipped = have == 0 ? begin % 16 : 0;
            value |= here >> skipped << have;
            have += 16 - skipped;
        }
        return bits == 64 ? value : value & ((std::uint64_t{1} << bits) - 1);
    }

private:
    // A step of the active lanes. place: of the slot in its interval.
    __device__ void advance(bool active, std::uint32_t frequency, std::uint32_t place) {
        if (active) state_ = frequency * (state_ >> v2::rans_bits) + place;
        const bool is_empty = active && state_ < v2::rans_low;
        const std::uint32_t empty = __ballot_sync(whole_warp, is_empty);
        const std::uint32_t ahead =
            words_ - window_at_ + static_cast<std::uint32_t>(__popc(empty & ((1u << lane()) - 1)));
        const std::uint32_t two = __shfl_sync(whole_warp, window_, static_cast<int>(ahead % warp_lanes));
        if (is_empty) state_ = __byte_perm(two, state_, ahead < warp_lanes ? 0x5410 : 0x5432);
        words_ += static_cast<std::uint32_t>(__popc(empty));
        if (words_ - window_at_ < warp_lanes) return;
        window_at_ += warp_lanes;
        window_ = window_ >> 16 | next_ << 16;
        next_ = word_at(window_at_ + 2 * warp_lanes + lane());
    }
    __device__ std::uint32_t word_at(std::uint32_t i) const { return i < n_ ? payload_[i] : 0; }

    const std::uint16_t* payload_;
    std::uint32_t n_, lanes_, state_ = v2::rans_low, words_, extra_bits_ = 0;
    // The next words. A lane has word window_at_ + lane() in the lower half of window_, the one 32 words later in the
    // upper half, and in next_ the one 64 words later, which is loaded ahead.
    std::uint32_t window_at_, window_, next_;
    bool has_states_;
};

// A code as later phases see it, and as it is stored for value kernels.
struct ReadCode {
    std::int32_t value, stored;
    bool is_missing = false;

    __device__ explicit ReadCode(std::uint32_t symbol)
        : value(static_cast<std::int32_t>(symbol) - static_cast<std::int32_t>(v2::zero_symbol)), stored(value) {}
};

__device__ inline void put_value(const UnitValues& values, std::int64_t at, std::uint64_t bits) {
    if (values.bits == 64)
        static_cast<double*>(values.decoded)[at] = std::bit_cast<double>(bits);
    else
        static_cast<float*>(values.decoded)[at] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

// Adds what the symbol alone does not say, and sets `error` if it is wrong; by a warp in which some lane has such a
// symbol. in_field: the point's offset in the field, where codes that are too large and verbatim values are put.
__device__ inline void read_rest(ReadCode& code, std::uint32_t symbol, UnitReader& unit, const UnitValues& values,
                                 std::int64_t in_field, UnitError& error) {
    const bool is_code = symbol >= v2::first_bucket && symbol < v2::special;
    const v2::Meaning meaning = is_code ? v2::meaning_of(symbol) : v2::Meaning{code.value, 0};
    const std::uint64_t bits = unit.extra(symbol == v2::verbatim ? values.bits : meaning.extra_bits);
    code.is_missing = symbol == v2::special || symbol == v2::verbatim;
    if (is_code) {
        constexpr std::int32_t sign = 1 << (v2::escape_bits - 1);
        const auto taken = static_cast<std::int32_t>(bits);
        code.stored = code.value = symbol == v2::escape ? (taken ^ sign) - sign : meaning.first + taken;
        if (code.value > v2::max_code || code.value < -v2::max_code) error = UnitError::beyond_limit;
        if (code.value < -32765 || code.value > 32767) {
            code.stored = large_code;
            put_value(values, in_field, static_cast<std::uint32_t>(code.value));
        }
    } else if (code.is_missing) {
        code.value = 0;
        code.stored = symbol == v2::special ? special_code : verbatim_code;
        if (symbol == v2::verbatim) {
            if (bits == values.special) error = UnitError::special_value;
            put_value(values, in_field, bits);
        }
    }
}

// Reads a tile of a unit. Returns what is wrong with it.
template <class Memory, class Tile>
__device__ UnitError read_tile(const ReadArguments& a, const ReadTables& tables, UnitReader& unit, const Tile& tile,
                               Memory& shared) {
    constexpr std::uint32_t axes = Tile::axes;
    const NearBoxes<Tile> boxes{tile};
    // Codes of the tile. The pointer is not kept in registers: there are too few.
    const auto codes_from = [&](std::uint32_t c, std::uint32_t first) {
        return a.of.codes + shared.place.first_code + (first_of_class(tile, c, false) + first);
    };
    NearCode* const code = cleared_codes(boxes, shared.code);
    UnitError error = UnitError::none;
    for (std::uint32_t phase = 1; phase <= axes; ++phase) {
        std::uint32_t n_flags = 0;
        const auto fixed_of = [&](auto constant, const auto& group, std::uint32_t slot) {
            int x[4];
            std::uint32_t number;
            if (!ClassGroups<Tile>::point(group, slot, x, number)) return std::uint32_t{0};
            return std::uint32_t{codes_from(constant, group.first)[number]};
        };
        for_groups_ahead<1, 1>(tile, phase, fixed_of, [&](auto constant, const auto& group, const auto& fixed) {
            constexpr std::uint32_t c = constant;
            const std::uint32_t first = first_of_class(tile, c, true);
            std::uint32_t weight = 0;
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                int x[4];
                std::uint32_t number;
                if (!ClassGroups<Tile>::point(group, half * warp_lanes + lane(), x, number)) continue;
                const std::uint32_t context = context_of<c>(FixedContext::unpacked(fixed[half]), boxes, code, x);
                shared.entry[first + group.first + number] = static_cast<std::uint8_t>(context);
                weight += weight_of(context);
            }
            if (points(tile, c) < v2::least_with_flags) return;
            weight = warp_sum(weight);
            if (lane() == 0) shared.flag[n_flags] = static_cast<std::uint8_t>(group_context(weight));
            ++n_flags;
        });
        __syncwarp();
        unit.flags(tables, shared.flag, n_flags);
        __syncwarp();

        // Calls use(c, group, number of coded values before it, whether it is significant). Returns all coded values.
        const auto for_groups = [&](const auto& use) {
            std::uint32_t flag = 0, coded = 0;
            for_classes<axes>(phase, [&](auto constant) {
                constexpr std::uint32_t c = constant;
                const ClassGroups<Tile> groups{tile, c};
                const bool has_flags = points(tile, c) >= v2::least_with_flags;
                const std::uint32_t n = groups.number();
                for (std::uint32_t g = 0; g < n; ++g) {
                    const auto group = groups[g];
                    const bool is_significant = !has_flags || shared.flag[flag] != 0;
                    flag += has_flags ? 1 : 0;
                    use(constant, group, coded, is_significant);
                    coded += is_significant ? group.n : 0;
                }
            });
            return coded;
        };
        const std::uint32_t n_coded =
            for_groups([&](auto c, const auto& group, std::uint32_t coded, bool is_significant) {
                const std::uint32_t first = first_of_class(tile, c, true) + group.first;
                if (!is_significant || first == coded) return;
                std::uint8_t context[2]{};
                for (std::uint32_t half = 0; half < 2; ++half)
                    if (half * warp_lanes + lane() < group.n)
                        context[half] = shared.entry[first + half * warp_lanes + lane()];
                __syncwarp();
                for (std::uint32_t half = 0; half < 2; ++half)
                    if (half * warp_lanes + lane() < group.n)
                        shared.entry[coded + half * warp_lanes + lane()] = context[half];
                __syncwarp();
            });
        __syncwarp();
        unit.symbols(a.slots, &tables.table_of[(phase - 1) * 128], shared.entry, n_coded);
        __syncwarp();
        for_groups([&](auto constant, const auto& group, std::uint32_t coded, bool is_significant) {
            constexpr std::uint32_t c = constant;
            std::uint16_t* const to = codes_from(c, group.first);
#pragma unroll
            for (std::uint32_t half = 0; half < v2::max_group_points; half += warp_lanes) {
                int x[4];
                std::uint32_t number;
                const bool is_inside = ClassGroups<Tile>::point(group, half + lane(), x, number);
                std::uint32_t symbol = v2::zero_symbol;
                if (is_inside && is_significant) symbol = shared.entry[coded + number];
                ReadCode read(symbol);
                if (__any_sync(whole_warp, symbol >= v2::first_bucket)) {
                    const std::int64_t at = static_cast<std::int64_t>(shared.place.field) +
                                            offset_of<Tile>(c, x, a.of.lattice.field_stride);
                    read_rest(read, symbol, unit, a.values, at, error);
                }
                if (!is_inside) continue;
                to[number] = static_cast<std::uint16_t>(read.stored);
                if constexpr (c != (1u << axes) - 1) code[boxes.at(c, x)] = NearCode::of(read.value, read.is_missing);
            }
        });
        __syncwarp();
        if (unit.ends_early()) return UnitError::early_end;
        if (!unit.has_extra_bits()) return UnitError::extra_bits;
        if (__any_sync(whole_warp, error == UnitError::special_value)) return UnitError::special_value;
        if (__any_sync(whole_warp, error == UnitError::beyond_limit)) return UnitError::beyond_limit;
    }
    return UnitError::none;
}

template <std::uint32_t axes, bool fits>
__device__ UnitError read_unit(const ReadArguments& a, const ReadTables& tables, std::uint32_t number,
                               UnitMemory<axes, fits>& shared) {
    const UnitPlace unit = a.of.units[number];
    if (unit.n == 0) return UnitError::none;
    const auto first_tile = static_cast<std::uint64_t>(number) * v2::tiles_of_unit;
    const auto n_tiles =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(+v2::tiles_of_unit, a.of.lattice.n_tiles - first_tile));
    UnitReader reader(a.of.payloads, unit);
    if (reader.live() == 0 || reader.live() >> n_tiles != 0) return UnitError::live_tiles;
    if (!reader.has_states()) return UnitError::states;
    for (std::uint32_t t = 0; t < n_tiles; ++t) {
        if ((reader.live() >> t & 1) == 0) continue;
        __syncwarp();
        if (lane() == 0) shared.place = place_of(a.of, first_tile + t);
        __syncwarp();
        const UnitError error = with_form<axes, fits>(
            shared.place, [&](const auto& tile) { return read_tile(a, tables, reader, tile, shared); });
        if (error != UnitError::none) return error;
    }
    return reader.is_finished() ? UnitError::none : UnitError::late_end;
}

} // namespace cusz::cuda
