// Makes the payload of a unit from the record of its tiles (recording.hpp).
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "archive/v2/model.hpp"
#include "kernels.hpp"
#include "rans.hpp"
#include "record.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Writes extra bits, from the lowest up.
class ExtraBitsWriter {
public:
    // units: where to; with three more behind those that are filled.
    explicit ExtraBitsWriter(std::uint16_t* units) : next_(units) {}
    [[gnu::always_inline]] void put(std::uint32_t value, std::uint32_t bits) { // at most 32
        held_ |= (value & ((std::uint64_t{1} << bits) - 1)) << n_;
        n_ += bits;
        std::memcpy(next_, &held_, sizeof held_);
        next_ += n_ / 16;
        held_ >>= n_ / 16 * 16;
        n_ %= 16;
    }
    std::uint16_t* end() const { return next_ + (n_ > 0); }

private:
    std::uint16_t* next_;
    std::uint64_t held_ = 0; // n_ bits that are not yet a whole unit
    std::uint32_t n_ = 0;
};

// A value's entry (the escape for a code's symbol of frequency 0); puts its extra bits. next: what they are made of.
template <std::uint32_t value_bits>
[[gnu::always_inline]] inline std::uint16_t entry_of(const UnitTables& tables, std::uint32_t table,
                                                     std::uint32_t symbol, const std::uint32_t*& next,
                                                     ExtraBitsWriter& extra) {
    if (symbol < v2::special) [[likely]] {
        const std::uint32_t number = symbol < v2::first_bucket ? symbol - zero_symbol : *next++;
        if (tables.interval[table << 8 | symbol] >> 16 == 0) [[unlikely]]
            symbol = v2::escape;
        extra.put(number, v2::meanings[symbol].extra_bits);
    } else if (symbol == v2::verbatim) {
        for (std::uint32_t word = 0; word < value_bits / 32; ++word) extra.put(*next++, 32);
    }
    return static_cast<std::uint16_t>(table << 8 | symbol);
}

// Makes the payload of a unit, in `room`. map: what comes first in unit 0. is_first: it is unit 0. Returns an empty
// payload if no tile is live and there is no map.
template <std::uint32_t value_bits>
UnitPayload write_unit(const UnitRecord& record, const UnitModel& model, std::span<const v2::MapSymbol> map,
                       bool is_first, UnitRoom& room) {
    using L = ByteLanes;
    using Bytes = typename L::Bytes;
    if (record.live == 0 && map.empty()) return {};
    const auto of_map = static_cast<std::uint32_t>((map.size() + max_lanes - 1) / max_lanes * max_lanes);
    const std::size_t n_entries = of_map + record.used + 2 * max_lanes + L::n;
    std::uint16_t* const entry = room.entries.template reserve<std::uint16_t>(n_entries);
    auto* const runs = room.runs.template reserve<UnitRun>(record.runs.size() + 1);
    std::size_t n_runs = 0;
    if (!map.empty()) {
        for (std::size_t j = 0; j < map.size(); ++j)
            entry[j] = static_cast<std::uint16_t>(map[j].table << 8 | map[j].symbol);
        runs[n_runs++] = {0, static_cast<std::uint32_t>(map.size())};
    }
    const UnitTables& all_tables = unit_tables();
    // A value has up to two words of extra bits: a code, or a verbatim value.
    auto* const extra_units =
        room.extra.template reserve<std::uint16_t>(2 * (std::size_t{record.n_values} + record.extra.size()) + 4);
    ExtraBitsWriter extra(extra_units);
    const std::uint32_t* next = record.extra.data();
    for (const UnitRecord::Run& run : record.runs) {
        if (run.n == 0) continue;
        const std::uint8_t *const context = record.context.data() + run.first, *const symbol =
                                                                                   record.symbol.data() + run.first;
        std::uint16_t* const to = entry + of_map + run.first;
        runs[n_runs++] = {of_map + run.first, run.n};
        if (run.is_flags) {
            for (std::uint32_t x = 0; x < run.n; ++x)
                to[x] = static_cast<std::uint16_t>((first_flag_table + model.flag_table[context[x]]) << 8 | symbol[x]);
            continue;
        }
        const std::uint8_t *const table_of = model.table_of[run.row].data(), *const reach = model.reach[run.row].data();
        const ByteTable tables(table_of), reaches(reach);
        for (std::uint32_t x = 0; x < run.n; x += L::n) {
            const Bytes place = L::load(context + x), of = L::load(symbol + x);
            const Bytes table = tables[place];
            const auto zero = static_cast<std::uint8_t>(zero_symbol);
            const Bytes size = of < zero ? zero - of : of - zero;
            typedef std::uint16_t Entries __attribute__((vector_size(2 * L::n)));
            const auto entries = __builtin_convertvector(table, Entries) << 8 | __builtin_convertvector(of, Entries);
            std::memcpy(to + x, &entries, sizeof entries);
            const Bytes beyond = reinterpret_cast<Bytes>(size > reaches[place]),
                        special = reinterpret_cast<Bytes>(of == static_cast<std::uint8_t>(v2::special));
            std::uint64_t others = L::highest_bits(beyond & ~special);
            if (run.n - x < L::n) others &= (std::uint64_t{1} << (run.n - x)) - 1;
            for (; others != 0; others &= others - 1) {
                const std::uint32_t j = x + static_cast<std::uint32_t>(std::countr_zero(others));
                to[j] = entry_of<value_bits>(all_tables, table_of[context[j]], symbol[j], next, extra);
            }
        }
    }
    UnitPayload payload;
    while (payload.log2_lanes < v2::max_log2_lanes && record.n_values > 1024u << payload.log2_lanes)
        ++payload.log2_lanes;
    const std::uint32_t lanes = 1u << payload.log2_lanes;
    const std::size_t most = of_map + record.used + 3 * max_lanes + 1,
                      n_extra = static_cast<std::size_t>(extra.end() - extra_units);
    auto* const units = room.units.template reserve<std::uint16_t>(most + n_extra);
    std::uint16_t* begin = encode_unit(entry, runs, n_runs, lanes, units + most);
    std::reverse_copy(extra_units, extra_units + n_extra, units + most);
    if (!is_first) *--begin = static_cast<std::uint16_t>(record.live);
    payload.begin = begin;
    payload.n = static_cast<std::uint32_t>(units + most + n_extra - begin);
    return payload;
}

} // namespace cusz::cpu::CUSZ_ISA
