// The rANS coder's tables, for either direction (docs/format_v2.md, sections 7 and 8).
#pragma once

#include <array>
#include <cstdint>
#include <iterator>

#include "archive/pyramid.hpp"
#include "archive/tiling.hpp"
#include "codec/spline/rans_model.hpp"

namespace cusz::cpu {

inline constexpr std::uint32_t n_direct = 2 * v2::alphabet.direct(); // codes with a symbol of their own

// v2::group_context, looked up.
struct GroupContexts {
    std::uint8_t of_sum[64 * (v2::n_spreads - 1 + v2::n_activities - 1) + 1];
    constexpr GroupContexts() : of_sum() {
        for (std::uint32_t sum = 0; sum < std::size(of_sum); ++sum)
            of_sum[sum] = static_cast<std::uint8_t>(v2::group_context(sum));
    }
};
inline constexpr GroupContexts group_contexts{};

// To code a symbol: a state above `most` first gives up 16 bits; x is then x + (x * reciprocal >> 64) * complement +
// bias. x * reciprocal >> 64 is x / frequency, exactly for all 32-bit x; for frequency 1 it is x - 1, which the bias
// makes good.
struct RansInterval {
    std::uint64_t reciprocal = 0;
    std::uint32_t most = 0;
    std::uint16_t complement = 0, bias = 0;

    RansInterval() = default;
    RansInterval(std::uint32_t frequency, std::uint32_t start)
        : reciprocal(~std::uint64_t{0} / frequency + (frequency == 1 ? 0 : 1)),
          most(static_cast<std::uint32_t>((std::uint64_t{frequency} << 20) - 1)),
          complement(static_cast<std::uint16_t>(v2::rans_total - frequency)),
          bias(static_cast<std::uint16_t>(start + (frequency == 1 ? v2::rans_total - 1 : 0))) {}
};

// Symbols' meanings, looked up.
struct SymbolTables {
    struct Meaning {
        std::int32_t first; // the code if the extra bits are 0
        std::uint32_t extra_bits;
    };
    std::array<Meaning, v2::n_symbols> meaning{};

    constexpr SymbolTables() {
        for (std::uint32_t s = 0; s < v2::n_symbols; ++s) {
            const auto [leading, bits] = v2::alphabet.meaning(s);
            meaning[s] = {static_cast<std::int32_t>(static_cast<std::uint32_t>(leading) << bits), bits};
        }
        meaning[v2::alphabet.missing()] = {missing_code, 0};
    }
};
inline constexpr SymbolTables symbol_tables{};

struct RansWriting {
    void set(const RansModel& of) {
        model = of;
        for (std::uint32_t t = 0; t < model.n_tables; ++t) {
            std::uint32_t start = 0;
            for (std::uint32_t s = 0; s < v2::n_symbols; ++s) {
                if (model.frequency[t][s] > 0) set_interval(t * 256 + s, model.frequency[t][s], start);
                coded_as[t][s] = static_cast<std::uint8_t>(
                    model.frequency[t][s] > 0 ? s : v2::alphabet.escape(v2::alphabet.meaning(s).leading));
                start += model.frequency[t][s];
            }
        }
        for (std::uint32_t c = 0; c < v2::n_group_contexts; ++c) {
            const std::uint32_t g = model.significant[c];
            set_interval((v2::max_tables + c) * 256, v2::rans_total - g, 0);
            set_interval((v2::max_tables + c) * 256 + 1, g, v2::rans_total - g);
        }
        set_interval(idle_entry, v2::rans_total, 0);
        for (std::uint32_t t = 0; t < model.n_tables; ++t) {
            constexpr std::uint32_t most = n_direct / 2;
            std::uint8_t &direct = direct_reach[t], &bucket = bucket_reach[t];
            direct = bucket = 0;
            while (direct < most && has(t, most - direct - 1) && (direct + 1u == most || has(t, most + direct + 1)))
                ++direct;
            const auto first = [&] { return n_direct + 2u * bucket; }; // symbol of the next bucket
            // Larger codes do not occur, and special values look like them.
            while (first() < v2::alphabet.symbol(1 << 20) && has(t, first()) && has(t, first() + 1)) ++bucket;
        }
        table_of = tables_of_places(model);
    }
    bool has(std::uint32_t t, std::uint32_t s) const { return model.frequency[t][s] > 0; }
    RansModel model;
    RansInterval of_entry[idle_entry + 1]{};
    std::uint32_t frequency_and_start[idle_entry + 1]{};  // by entry: frequency << 16 | start
    std::uint8_t coded_as[v2::max_tables][v2::n_symbols]; // the symbol, or the escape if its frequency is 0
    // By table: all codes with symbols of their own up to this magnitude are coded so, and as many buckets of either
    // sign.
    std::uint8_t direct_reach[v2::max_tables]{}, bucket_reach[v2::max_tables]{};
    TablesOfPlaces table_of{};

private:
    void set_interval(std::uint32_t entry, std::uint32_t frequency, std::uint32_t start) {
        of_entry[entry] = {frequency, start};
        frequency_and_start[entry] = frequency << 16 | start;
    }
};

inline constexpr std::uint32_t max_for_one_lane = 1024; // values

// The entries of a tile (table * 256 + symbol), in runs that start with lane 0 each.
struct RansSequence {
    struct Run {
        std::uint32_t first, n; // first: a multiple of v2::max_lanes
    };
    std::uint32_t lanes, n_runs;
    Run run[2 * max_active_axes];
    std::uint16_t* words; // where states and words are to end; when they are there, where they begin
    // Room for steps of v2::max_lanes, even if there is one lane.
    std::uint16_t entry[v2::max_lanes * (max_for_one_lane + max_tile_values + 2 * max_active_axes)];
};

struct RansReading {
    void set(const RansModel& of) {
        model = of;
        for (std::uint32_t t = 0; t < model.n_tables; ++t) {
            std::uint32_t* slot = of_slot + t * v2::rans_total;
            for (std::uint32_t s = 0; s < v2::n_symbols; ++s) {
                const std::uint32_t frequency = model.frequency[t][s], first = s | (frequency - 1) << 8;
                for (std::uint32_t i = 0; i < frequency; ++i) slot[i] = first + (i << 20);
                slot += frequency;
            }
        }
        table_of = tables_of_places(model);
    }
    RansModel model;
    // By table and slot: symbol (8 bits), its frequency less 1 (12 bits), slot less its start (12 bits).
    std::uint32_t of_slot[v2::max_tables * v2::rans_total]{};
    TablesOfPlaces table_of{};
};

} // namespace cusz::cpu
