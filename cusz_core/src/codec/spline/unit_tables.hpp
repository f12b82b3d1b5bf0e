// The frequency tables in the form in which encoders and decoders look them up.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "archive/v2/tables.hpp"

namespace cusz {

// Encoders list what they code as entries: table * 256 + symbol. After the tables of symbols come those of group flags,
// by j, and one entry that codes nothing.
inline constexpr std::uint32_t first_flag_table = v2::n_tables, n_flag_tables = 64;
inline constexpr std::uint16_t idle_unit_entry = (first_flag_table + n_flag_tables) * 256;

struct UnitTables {
    UnitTables();
    std::array<std::uint32_t, idle_unit_entry + 1> interval{}; // by entry: frequency << 16 | start
    // By table and slot: symbol (8 bits), its frequency less 1 (12 bits), slot less its start (12 bits).
    std::array<std::uint32_t, v2::n_tables * v2::rans_total> slot;
    // By table: the max magnitude up to which every code has a symbol of its own with a frequency above 0.
    std::array<std::uint8_t, v2::n_tables> reach{};
};
const UnitTables& unit_tables();

} // namespace cusz
