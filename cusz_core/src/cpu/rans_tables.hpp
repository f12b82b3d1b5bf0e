// The rANS coder's tables, for either direction (docs/format_v2.md, sections 7 and 8).
#pragma once

#include <cstdint>

#include "../format/rans_model.hpp"

namespace cusz::cpu {

// Entries of a symbol to be coded: table * 256 + symbol; a group's flag has the table most_tables + its context.
inline constexpr std::uint32_t n_direct = 2 * Alphabet(default_r).direct(); // codes with a symbol of their own
inline constexpr std::uint32_t n_coding_tables = most_tables + n_group_contexts;

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
          complement(static_cast<std::uint16_t>(rans_total - frequency)),
          bias(static_cast<std::uint16_t>(start + (frequency == 1 ? rans_total - 1 : 0))) {}
};

struct RansWriting {
    void set(const RansModel& of) {
        model = of;
        constexpr Alphabet alphabet(default_r);
        for (std::uint32_t t = 0; t < model.n_tables; ++t) {
            std::uint32_t start = 0;
            for (std::uint32_t s = 0; s < n_symbols; ++s) {
                if (model.frequency[t][s] > 0) of_entry[t * 256 + s] = {model.frequency[t][s], start};
                coded_as[t][s] = static_cast<std::uint8_t>(
                    model.frequency[t][s] > 0 ? s : alphabet.escape(alphabet.meaning(s).leading));
                start += model.frequency[t][s];
            }
        }
        for (std::uint32_t c = 0; c < n_group_contexts; ++c) {
            const std::uint32_t g = model.significant[c];
            of_entry[(most_tables + c) * 256] = {rans_total - g, 0};
            of_entry[(most_tables + c) * 256 + 1] = {g, rans_total - g};
        }
        for (std::uint32_t c = 0; c < n_contexts; ++c)
            for (std::uint32_t s = 0; s < n_direct; ++s)
                entry_of[c * n_direct + s] =
                    static_cast<std::uint16_t>(model.table[c] << 8 | coded_as[model.table[c]][s]);
    }
    RansModel model;
    RansInterval of_entry[n_coding_tables * 256]{};
    std::uint8_t coded_as[most_tables][n_symbols]; // the symbol, or the escape if its frequency is 0
    std::uint16_t entry_of[n_contexts * n_direct]; // of a code that has a symbol of its own, by context and symbol
};

struct RansReading {
    void set(const RansModel& of) {
        model = of;
        for (std::uint32_t t = 0; t < model.n_tables; ++t) {
            std::uint32_t slot = 0;
            for (std::uint32_t s = 0; s < n_symbols; ++s)
                for (std::uint32_t i = 0; i < model.frequency[t][s]; ++i)
                    of_slot[t * rans_total + slot++] = s | (model.frequency[t][s] - 1u) << 8 | i << 20;
        }
    }
    RansModel model;
    // By table and slot: symbol (8 bits), its frequency less 1 (12 bits), slot less its start (12 bits).
    std::uint32_t of_slot[most_tables * rans_total]{};
};

} // namespace cusz::cpu
