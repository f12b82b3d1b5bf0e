// What the tiles of a unit are coded as, before tables are chosen.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "archive/v2/model.hpp"
#include "buffer.hpp"
#include "tile.hpp"

namespace cusz::cpu {

struct UnitRecord {
    // Contexts and symbols of values, or contexts of groups and their flags; each run begins with lane 0 of the unit.
    struct Run {
        std::uint32_t first, n, row;
        bool is_flags;
    };
    std::vector<std::uint8_t> context, symbol; // with spare room
    std::vector<Run> runs;
    std::vector<std::uint32_t> extra; // of symbols that are no codes, in order: a code, or words of a verbatim value
    std::uint32_t used = 0;           // of context and symbol
    std::uint32_t n_values = 0;       // that are coded
    std::uint32_t live = 0;           // a bit for each tile
    std::uint64_t n_special = 0, n_verbatim = 0;
    std::uint64_t extra_bits = 0; // of codes

    void clear() {
        runs.clear();
        extra.clear();
        used = n_values = live = 0;
        n_special = n_verbatim = extra_bits = 0;
    }
    // Begins the two runs of a phase: of flags, and of up to n_points values.
    struct Phase {
        std::uint32_t flags, values; // where they begin
    };
    Phase begin_phase(std::uint32_t row, std::uint32_t n_flags, std::uint32_t n_points);
    static std::uint32_t next_run(std::uint32_t at) { return (at + v2::max_lanes - 1) / v2::max_lanes * v2::max_lanes; }
    // Ends the last run, of values, at `end`.
    void end_run(std::uint32_t end) {
        Run& run = runs.back();
        run.n = end - run.first;
        n_values += run.n;
        used = next_run(end);
    }
    // How far the record is, to go back to.
    struct Mark {
        std::size_t runs, extra;
        std::uint32_t used, n_values;
    };
    Mark mark() const { return {runs.size(), extra.size(), used, n_values}; }
    void go_back(const Mark& mark) {
        runs.resize(mark.runs);
        extra.resize(mark.extra);
        used = mark.used;
        n_values = mark.n_values;
    }
    // Copies only what `other` uses of its memory.
    void copy(const UnitRecord& other) {
        const auto n = static_cast<std::ptrdiff_t>(other.used + byte_room);
        context.assign(other.context.begin(), other.context.begin() + n);
        symbol.assign(other.symbol.begin(), other.symbol.begin() + n);
        runs = other.runs;
        extra = other.extra;
        used = other.used;
        n_values = other.n_values;
        live = other.live;
        n_special = other.n_special;
        n_verbatim = other.n_verbatim;
    }
    // Adds what is recorded to `counts`, `weight` times.
    void count(std::uint64_t weight, v2::Counts& counts) const;
    // What the values' symbols take with these tables, in 1/256 bits.
    std::uint64_t cost(const v2::Model& model) const;
    std::size_t bytes() const {
        return context.capacity() + symbol.capacity() + runs.capacity() * sizeof(Run) +
               extra.capacity() * sizeof(std::uint32_t);
    }
};

// A model in the form in which it is looked up: by row and place.
struct UnitModel {
    std::array<std::array<std::uint8_t, 128>, v2::n_rows> table_of{};
    std::array<std::array<std::uint8_t, 128>, v2::n_rows> reach{}; // of those tables
    std::array<std::uint8_t, v2::n_group_contexts> flag_table{};   // j, by group context

    void set(const v2::Model& model);
};

// Memory for payloads.
struct UnitRoom {
    Buffer entries, runs, units, extra;
    std::size_t bytes() const { return entries.bytes() + runs.bytes() + units.bytes() + extra.bytes(); }
};

struct UnitPayload {
    const std::uint16_t* begin = nullptr;
    std::uint32_t n = 0; // units of length
    std::uint32_t log2_lanes = 0;
};

} // namespace cusz::cpu
