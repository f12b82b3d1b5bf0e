// Chooses the rANS coder's model from what was counted, on the device (rans_model.cu), as choose_model does on the CPU
// (codec/spline/rans_model.hpp), and makes the tables that the encoder looks up.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "codec/spline/rans_model.hpp"

namespace cusz::cuda {

// What was counted for the model (docs/format_v2.md, section 10). Zeroed beforehand.
struct SplineCounts {
    std::uint32_t symbol[v2::n_contexts][v2::n_symbols]; // of values in significant groups, by context
    std::uint32_t group[3][v2::n_group_contexts][2];     // by lattice (0, 1, the coarser ones), context and flag
    std::uint32_t finished;                              // of choose_model: how many blocks are
};

// The model as chosen; the host fetches it and writes it with RansModel::bytes().
struct ChosenModel {
    std::uint32_t n_tables, bytes; // bytes: of RansModel::bytes()
    std::uint16_t significant[v2::n_group_contexts];
    std::uint16_t frequency[v2::max_tables][v2::n_symbols]; // 0 from n_tables on
    std::uint8_t table[v2::n_contexts];
};

// What the encoder looks up. Nothing is set for tables from n_tables on.
struct EncodingTables {
    // By entry (rans_model.hpp), of symbols with a frequency: see interval_of.
    std::uint64_t interval[idle_entry + 1];
    std::uint8_t coded_as[v2::max_tables][v2::n_symbols]; // the symbol, or the escape if its frequency is 0
    TablesOfPlaces table_of;
};

// start | frequency << 16 | reciprocal << 32: a state x divided by the frequency, rounded down, is __umulhi(x,
// reciprocal) or one more.
constexpr std::uint64_t interval_of(std::uint32_t start, std::uint32_t frequency) {
    // 2^32 / frequency, rounded down; for frequency 1 it is one less.
    const std::uint32_t power_of_two = frequency > 1 && (frequency & (frequency - 1)) == 0 ? 1 : 0;
    const std::uint32_t reciprocal = UINT32_MAX / frequency + power_of_two;
    return start | std::uint64_t{frequency} << 16 | std::uint64_t{reciprocal} << 32;
}

// What the kernel's launches leave for each other.
struct ModelScratch {
    struct Context {
        std::uint64_t n, size; // values, by weight, and the sum of their sizes
        std::uint32_t n_cells; // 0: it does not occur
        std::uint32_t table;   // of one that occurs
    };
    struct alignas(8) Cell {
        std::uint32_t weight, symbol;
    };
    struct alignas(4) PairOfTables {
        std::uint16_t of[2];
    };
    Context context[v2::n_contexts];
    Cell cell[v2::n_contexts][v2::n_symbols];             // of symbols that occur in the context, in any order
    std::uint64_t weight[v2::max_tables][v2::n_symbols];  // of a table's symbols
    PairOfTables size[v2::n_symbols][v2::max_tables / 2]; // of a symbol in each table
    std::uint32_t n_tables;
};

struct ModelArguments {
    SplineCounts* counts;
    std::uint64_t weight[3]; // of what was counted in lattice 0, in lattice 1, in the coarser ones
    ModelScratch* scratch;
    ChosenModel* model;
    EncodingTables* encoding;
};

// By four launches of one kernel, which leave nothing to be set anew but the counts.
void choose_model(const ModelArguments&, cudaStream_t);

} // namespace cusz::cuda
