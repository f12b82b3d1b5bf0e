// Assigns a table to each context: a preset, which a map may change (docs/reference/format_v2.md, sections 7 and 10).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tables.hpp"

namespace cusz::v2 {

struct Model {
    std::uint32_t preset = 0;
    bool has_map = false;
    std::array<std::uint8_t, n_contexts> table;       // by context
    std::array<std::uint8_t, n_group_contexts> group; // j, by context of groups
};
// axes: the number of active axes of lattice 0, 1 to 3.
Model model_of_preset(std::uint32_t axes, std::uint32_t preset);

// Counts of the coded values and the sums of their sizes (tables.hpp), by context; counts of the groups that are not
// significant and of those that are.
struct Counts {
    std::array<std::uint64_t, n_contexts> n{}, size{};
    std::array<std::array<std::uint64_t, 2>, n_contexts>
        missing{}; // special and verbatim values, in contexts with missing neighbours
    std::array<std::array<std::uint64_t, 2>, n_group_contexts> groups{};

    void add(const Counts& other);
};
// The model that a map would give if it cost nothing, and what the counted values and groups take with it, in 1/256
// bits, without extra bits.
struct Fit {
    Model model;
    std::uint64_t values = 0, groups = 0;
};
Fit best_fit(const Counts& counts);
// A map is tried from this number of counted values on: sooner if some have missing neighbours, which presets suit less.
inline constexpr std::uint64_t map_from = 1u << 13, map_from_with_missing = 1u << 10;

// What counted values and groups take with a model, and the map itself, in 1/256 bits, without extra bits.
struct ModelCost {
    std::uint64_t values = 0, map = 0;
};
// rows: one bit for each row that occurs. cost: of the chosen model, if it is wanted. values: how many the field has, if
// it has more than are counted.
Model choose_model(const Counts& counts, std::uint32_t axes, std::uint32_t rows, ModelCost* cost = nullptr,
                   std::uint64_t values = 0);

// A symbol of a coded map, and the table that it is coded with.
struct MapSymbol {
    std::uint8_t table, symbol;
};
std::vector<MapSymbol> map_of(const Model& model, std::uint32_t axes, std::uint32_t rows);

// Reads the map, and returns the model with it. read(table) returns the next symbol. Throws CORRUPT.
template <class Read>
Model read_map(std::uint32_t axes, std::uint32_t preset, std::uint32_t rows, const Read& read);

// ---- Common to writing and reading a map

// What a change is coded with: after a change of 0, and after any other.
inline constexpr std::uint8_t tables_of_changes[] = {14, 24};

// The range of tables for contexts in an ordinary place, and for the others.
constexpr int first_table(bool is_ordinary) { return is_ordinary ? 0 : static_cast<int>(n_size_tables); }
constexpr int last_table(bool is_ordinary) { return static_cast<int>(is_ordinary ? n_size_tables : n_tables) - 1; }

// Visits all that a map can change, in its order, contexts of groups after those of values. change(context, expected,
// table) returns what to add to `expected`, and the sum must be legal. table: the one that the change is coded with.
template <class Change>
Model changed_by_map(std::uint32_t axes, std::uint32_t preset, std::uint32_t rows, const Change& change) {
    Model model = model_of_preset(axes, preset);
    const Model base = model;
    int before = 0;
    for (std::uint32_t row = 0; row < n_rows; ++row) {
        if ((rows >> row & 1) == 0) continue;
        for (std::uint32_t place = 0; place < n_places; ++place) {
            const std::uint32_t context = row * n_places + place;
            const bool is_ordinary = place < n_ordinary_places;
            int expected = base.table[context];
            if (is_ordinary && place > 0) {
                const std::uint32_t near = place % 8 > 0 ? context - 1 : context - 8;
                expected += model.table[near] - base.table[near];
            }
            expected = std::clamp(expected, first_table(is_ordinary), last_table(is_ordinary));
            before = change(context, expected, tables_of_changes[before != 0 ? 1 : 0]);
            model.table[context] = static_cast<std::uint8_t>(expected + before);
        }
    }
    for (std::uint32_t c = 0; c < n_group_contexts; ++c) {
        const int expected = std::clamp(base.group[c] + (c > 0 ? model.group[c - 1] - base.group[c - 1] : 0), 0, 63);
        before = change(n_contexts + c, expected, tables_of_changes[before != 0 ? 1 : 0]);
        model.group[c] = static_cast<std::uint8_t>(expected + before);
    }
    model.has_map = true;
    return model;
}

[[noreturn]] void fail_map();

template <class Read>
Model read_map(std::uint32_t axes, std::uint32_t preset, std::uint32_t rows, const Read& read) {
    return changed_by_map(axes, preset, rows, [&](std::uint32_t context, int expected, std::uint8_t table) {
        const std::uint32_t symbol = read(table);
        const int change = static_cast<int>(symbol) - static_cast<int>(zero_symbol), result = expected + change;
        const bool is_ordinary = context >= n_contexts || context % n_places < n_ordinary_places; // j is below 64, too
        if (symbol >= first_bucket || result < first_table(is_ordinary) || result > last_table(is_ordinary)) fail_map();
        return change;
    });
}

} // namespace cusz::v2
