// Chooses the rANS coder's model (docs/format_v2.md, section 10), exactly as codec/spline/rans_model.cpp does: all sums
// are of integers, so their order does not matter. In each of four launches a warp works at one context, and the last
// block to finish then at all of them, or at the tables.
#pragma once

#include <algorithm>

#include "device/block.cuh"
#include "rans_model.hpp"

namespace cusz::cuda {

__device__ inline std::uint32_t lanes_before() { return (1u << lane()) - 1; }
__device__ inline std::uint32_t set_bits(std::uint32_t v) { return static_cast<std::uint32_t>(__popc(v)); }

// A table's symbols are spread over a warp.
inline constexpr std::uint32_t symbols_of_lane = (v2::n_symbols + warp_lanes - 1) / warp_lanes;

inline constexpr std::uint32_t model_warps = 24, model_threads = model_warps * warp_lanes;
inline constexpr std::uint32_t model_blocks = v2::n_contexts / model_warps;
static_assert(v2::n_contexts % model_warps == 0 && v2::n_contexts <= model_threads && v2::max_tables < model_warps);

struct ModelMemory {
    union {
        Array<std::uint16_t, v2::n_symbols> weight_of; // of symbols
        Array<Array<ModelScratch::PairOfTables, v2::max_tables / 2>, v2::n_symbols> size;
    };
    // To order the contexts that occur by their keys, which are first spread over buckets.
    Array<std::uint32_t, model_threads> in_bucket; // how many keys
    Array<std::uint32_t, v2::n_contexts> key;      // by bucket
    Array<std::uint16_t, v2::n_contexts> order;    // the contexts by rank
    Array<std::uint64_t, v2::n_contexts> share;    // by rank
    Array<std::uint64_t, model_warps> partial;     // sums of warps

    Array<Array<std::uint16_t, v2::n_symbols>, v2::max_tables> frequency;
    Array<std::uint32_t, model_warps> occurring; // contexts, a bit each
    Array<std::uint8_t, v2::n_contexts> table;   // of contexts that occur; in the end, of all
    std::uint32_t bits;                          // of the model
    bool is_last;                                // of the launch's blocks
};
static_assert(sizeof(ModelMemory) <= 48 * 1024); // what a block may have without asking

// Whether this is the last block of a launch that calls this: it then sees what all of them wrote before.
__device__ inline bool is_last_block(std::uint32_t* finished, std::uint32_t launches_before, bool& shared) {
    __threadfence();
    __syncthreads();
    if (is_first_thread()) shared = atomicAdd(finished, 1u) == (launches_before + 1) * gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return shared;
}

// Sums over the block's threads: over those before this one, and over all. Between two calls must be a barrier.
struct BlockSums {
    std::uint64_t before, all;
};
__device__ inline BlockSums sums_of_block(std::uint64_t v, Array<std::uint64_t, model_warps>& partial) {
    const std::uint64_t in_warp = warp_inclusive_sum(v);
    if (lane() == warp_lanes - 1) partial[warp()] = in_warp;
    __syncthreads();
    BlockSums sums{in_warp - v, 0};
    for (std::uint32_t w = 0; w < model_warps; ++w) {
        sums.before += w < warp() ? partial[w] : 0;
        sums.all += partial[w];
    }
    return sums;
}

// ---- A context; by a warp

// Counts are kept in 32 bits.
__device__ inline std::uint32_t weighted(std::uint32_t count, std::uint64_t weight) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(count * weight, UINT32_MAX));
}

// Lists the symbols that occur.
__device__ inline void condense(const ModelArguments& a, std::uint32_t c, ModelMemory& memory) {
    std::uint32_t count[symbols_of_lane];
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const std::uint32_t s = k * warp_lanes + lane();
        count[k] = s < v2::n_symbols ? a.counts->symbol[c][s] : 0;
    }
    if (threadIdx.x < v2::n_symbols) // while the counts arrive
        memory.weight_of[threadIdx.x] = static_cast<std::uint16_t>(cusz::weight_of(threadIdx.x));
    __syncthreads();
    const std::uint64_t weight = c < v2::row_of(1, 1) ? a.weight[0] : c < v2::row_of(2, 1) ? a.weight[1] : a.weight[2];
    ModelScratch::Context context{};
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const std::uint32_t s = k * warp_lanes + lane(), n = weighted(count[k], weight);
        const std::uint32_t occurring = __ballot_sync(whole_warp, n > 0);
        if (n > 0) {
            a.scratch->cell[c][context.n_cells + set_bits(occurring & lanes_before())] = {n, s};
            context.n += n;
            context.size += std::uint64_t{n} * memory.weight_of[s];
        }
        context.n_cells += set_bits(occurring);
    }
    context.n = warp_sum(context.n);
    context.size = warp_sum(context.size);
    if (lane() == 0) a.scratch->context[c] = context;
}

// A context's cells, in turn over the lanes; behind them weights are 0.
struct CellsOfWarp {
    std::uint32_t n, table;
    ModelScratch::Cell cell[symbols_of_lane];

    __device__ CellsOfWarp(const ModelScratch& scratch, std::uint32_t c)
        : n(scratch.context[c].n_cells), table(scratch.context[c].table) {
#pragma unroll
        for (std::uint32_t k = 0; k < symbols_of_lane; ++k) { // all loads are under way at once
            const std::uint32_t i = k * warp_lanes + lane();
            cell[k] = i < n ? scratch.cell[c][i] : ModelScratch::Cell{};
        }
    }
};

// Fetches what symbols cost, all loads at once.
__device__ inline void load_sizes(const ModelScratch& scratch, ModelMemory& memory) {
    constexpr std::uint32_t n = v2::max_tables / 2, of_thread = (v2::n_symbols * n + model_threads - 1) / model_threads;
    ModelScratch::PairOfTables size[of_thread];
    const auto each = [&](const auto& use) {
#pragma unroll
        for (std::uint32_t k = 0; k < of_thread; ++k) {
            const std::uint32_t i = k * model_threads + threadIdx.x;
            if (i < v2::n_symbols * n) use(size[k], i / n, i % n);
        }
    };
    each([&](auto& item, std::uint32_t s, std::uint32_t pair) { item = scratch.size[s][pair]; });
    each([&](const auto& item, std::uint32_t s, std::uint32_t pair) { memory.size[s][pair] = item; });
}

// The table that codes a context shortest. Each lane has two tables, and a quarter of the cells.
__device__ inline std::uint32_t best_table(const CellsOfWarp& cells, std::uint32_t n_tables,
                                           const ModelMemory& memory) {
    constexpr std::uint32_t pairs = v2::max_tables / 2, at_once = warp_lanes / pairs;
    const std::uint32_t pair = lane() % pairs, part = lane() / pairs;
    std::uint64_t cost[2] = {};
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        if (k * warp_lanes >= cells.n) break;
        const std::uint32_t n = std::min(+warp_lanes, cells.n - k * warp_lanes);
#pragma unroll 2
        for (std::uint32_t i = 0; i < n; i += at_once) {
            const auto from = static_cast<int>(i + part);
            const std::uint32_t weight = __shfl_sync(whole_warp, cells.cell[k].weight, from);
            const std::uint32_t symbol = __shfl_sync(whole_warp, cells.cell[k].symbol, from);
            const ModelScratch::PairOfTables size = memory.size[symbol][pair];
            cost[0] += std::uint64_t{weight} * size.of[0];
            cost[1] += std::uint64_t{weight} * size.of[1];
        }
    }
    std::uint64_t best = UINT64_MAX; // cost * 16 + table
    for (std::uint32_t k = 0; k < 2; ++k) {
        for (std::uint32_t d = pairs; d < warp_lanes; d *= 2)
            cost[k] += __shfl_xor_sync(whole_warp, cost[k], static_cast<int>(d));
        const std::uint32_t table = 2 * pair + k;
        if (table < n_tables) best = std::min(best, cost[k] * v2::max_tables + table);
    }
    for (std::uint32_t d = 1; d < pairs; d *= 2)
        best = std::min(best, __shfl_xor_sync(whole_warp, best, static_cast<int>(d)));
    return static_cast<std::uint32_t>(best % v2::max_tables);
}

// Adds a context's symbols to those of a table.
__device__ inline void merge(ModelScratch& scratch, const CellsOfWarp& cells, std::uint32_t table) {
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const auto [weight, symbol] = cells.cell[k];
        if (weight > 0) atomicAdd(reinterpret_cast<unsigned long long*>(&scratch.weight[table][symbol]), weight);
    }
}

// ---- All contexts; by the last block

// Orders the contexts and gives each a table, of about the same share of the bits.
__device__ inline void give_tables(ModelScratch& scratch, ModelMemory& memory) {
    const std::uint32_t c = threadIdx.x;
    const ModelScratch::Context context = c < v2::n_contexts ? scratch.context[c] : ModelScratch::Context{};
    const bool occurs = context.n_cells > 0;
    memory.in_bucket[threadIdx.x] = 0;
    const std::uint64_t n_values = sums_of_block(context.n, memory.partial).all;
    const auto n = static_cast<std::uint32_t>(__syncthreads_count(occurs));
    const std::uint32_t n_tables = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(std::min<std::uint64_t>(n_values / 4096 + 2, n), 1, std::uint64_t{v2::max_tables}));

    // A key is a mean and, below it, a context. There are few in a bucket, unless the means are equal.
    constexpr std::uint32_t context_bits = 10, means_of_bucket = 8;
    static_assert(v2::n_contexts <= 1 << context_bits);
    std::uint32_t key = 0, bucket = 0, at = 0;
    if (occurs) {
        const auto mean = static_cast<std::uint32_t>(context.size / context.n);
        key = mean << context_bits | c;
        bucket = std::min(mean / means_of_bucket, model_threads - 1);
        at = atomicAdd(&memory.in_bucket[bucket], 1u);
    }
    __syncthreads();
    const std::uint32_t own = memory.in_bucket[threadIdx.x];
    const BlockSums keys = sums_of_block(own, memory.partial);
    memory.in_bucket[threadIdx.x] = static_cast<std::uint32_t>(keys.before) + own; // where it ends
    __syncthreads();
    const std::uint32_t begin = bucket == 0 ? 0 : memory.in_bucket[bucket - 1];
    if (occurs) memory.key[begin + at] = key;
    __syncthreads();
    if (occurs) {
        std::uint32_t rank = begin;
        for (std::uint32_t i = begin; i < memory.in_bucket[bucket]; ++i) rank += memory.key[i] < key ? 1 : 0;
        memory.order[rank] = static_cast<std::uint16_t>(c);
        memory.share[rank] = share_of(context.n, context.size);
    }
    __syncthreads();

    const std::uint32_t rank = threadIdx.x; // from here on
    const std::uint64_t share = rank < n ? memory.share[rank] : 0;
    const BlockSums shares = sums_of_block(share, memory.partial);
    if (rank < n) {
        const std::uint64_t place = (shares.before + share / 2) * n_tables / std::max<std::uint64_t>(shares.all, 1);
        scratch.context[memory.order[rank]].table =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(n_tables - 1, place));
    }
    if (is_first_thread()) scratch.n_tables = n_tables;
}

// ---- A table; by a warp of the last block

// A lane has these symbols, one after another.
__device__ inline std::uint32_t symbol_of_lane(std::uint32_t k) { return lane() * symbols_of_lane + k; }

// Frequencies from weights, which are 0 afterwards, and what symbols cost with them.
__device__ inline void normalise(ModelScratch& scratch, std::uint32_t table, ModelMemory& memory) {
    std::uint64_t weight[symbols_of_lane], total = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const std::uint32_t s = symbol_of_lane(k);
        weight[k] = s < v2::n_symbols ? scratch.weight[table][s] : 0;
        total += weight[k];
    }
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k)
        if (symbol_of_lane(k) < v2::n_symbols) scratch.weight[table][symbol_of_lane(k)] = 0;
    total = warp_sum(total);
    // Products are below 2^54: the share is the upper half of theirs with this, or one more.
    const std::uint64_t reciprocal = total == 0 ? 0 : UINT64_MAX / total;
    std::uint32_t ranked[symbols_of_lane], sum = 0; // frequencies, and 255 - symbol below them
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const std::uint32_t s = symbol_of_lane(k);
        const std::uint64_t product = weight[k] * v2::rans_total + total / 2;
        auto share = static_cast<std::uint32_t>(__umul64hi(product, reciprocal));
        if (total > 0 && product - share * total >= total) ++share;
        const bool has = weight[k] > 0 || (s < v2::n_symbols && in_every_table(s));
        const std::uint32_t frequency = has ? std::max(share, 1u) : 0;
        ranked[k] = frequency << 8 | (255 - s);
        sum += frequency;
    }
    // What is left over, or too many, the most frequent symbols bear, the lowest of several first.
    for (auto left = static_cast<std::int32_t>(v2::rans_total - warp_sum(sum)); left != 0;) {
        std::uint32_t largest = 0;
#pragma unroll
        for (const std::uint32_t r : ranked) largest = std::max(largest, r);
        largest = __reduce_max_sync(whole_warp, largest);
        const auto part = static_cast<std::int32_t>(std::max(1u, largest >> (8 + 6)));
        const std::int32_t change = left > 0 ? left : std::max(left, -part);
#pragma unroll
        for (std::uint32_t& r : ranked) r += r == largest ? static_cast<std::uint32_t>(change) << 8 : 0;
        left -= change;
    }
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const std::uint32_t s = symbol_of_lane(k), f = ranked[k] >> 8;
        if (s >= v2::n_symbols) continue;
        memory.frequency[table][s] = static_cast<std::uint16_t>(f);
        const std::uint32_t size = size_of(std::max(f, 1u));
        scratch.size[s][table / 2].of[table % 2] = static_cast<std::uint16_t>(f == 0 ? size_of_unknown : size);
    }
}

// Writes it, and adds up how many bits it takes in the archive.
__device__ inline void write_table(const ModelArguments& a, std::uint32_t table, ModelMemory& memory) {
    std::uint32_t frequency[symbols_of_lane], sum = 0, bits = 0, first = v2::n_symbols, last = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const std::uint32_t s = symbol_of_lane(k);
        frequency[k] = s < v2::n_symbols ? memory.frequency[table][s] : 0;
        if (frequency[k] == 0) continue;
        sum += frequency[k];
        bits += static_cast<std::uint32_t>(std::bit_width(frequency[k])) - 1;
        first = std::min(first, s);
        last = s;
    }
    std::uint32_t start = warp_inclusive_sum(sum) - sum;
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const std::uint32_t s = symbol_of_lane(k), f = frequency[k];
        if (s >= v2::n_symbols) continue;
        a.model->frequency[table][s] = static_cast<std::uint16_t>(f);
        const std::uint64_t interval = interval_of(start, std::max(f, 1u));
        if (f > 0) a.encoding->interval[table * 256 + s] = interval;
        a.encoding->coded_as[table][s] =
            static_cast<std::uint8_t>(f > 0 ? s : Alphabet(default_r).escape(Alphabet(default_r).meaning(s).leading));
        start += f;
    }
    first = __reduce_min_sync(whole_warp, first);
    last = __reduce_max_sync(whole_warp, last);
    bits = warp_sum(bits) + 8 + 8 + 4 * (last - first + 1);
    if (lane() == 0) atomicAdd(&memory.bits, bits);
}

// ---- The rest of the model; by the last block

// The frequency of significant groups of a context, and the intervals of their flags.
__device__ inline void write_group(const ModelArguments& a, std::uint32_t c) {
    const auto number = [&](std::uint32_t flag) {
        const auto of = [&](std::uint32_t lattice) {
            return std::uint64_t{weighted(a.counts->group[lattice][c][flag], a.weight[lattice])};
        };
        return of(0) + std::min<std::uint64_t>(of(1) + of(2), UINT32_MAX);
    };
    const std::uint64_t significant = number(1), total = number(0) + significant;
    const std::uint64_t share = total == 0 ? v2::rans_total / 2 : (significant * v2::rans_total + total / 2) / total;
    const auto g = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(share, 1, v2::rans_total - 1));
    a.model->significant[c] = static_cast<std::uint16_t>(g);
    std::uint64_t* const interval = a.encoding->interval + (v2::max_tables + c) * 256;
    interval[0] = interval_of(0, v2::rans_total - g);
    interval[1] = interval_of(v2::rans_total - g, g);
}

// The last context that occurs up to this one, or v2::n_contexts if none does.
__device__ inline std::uint32_t last_occurring(std::uint32_t c, const ModelMemory& memory) {
    std::uint32_t word = c / 32, bits = memory.occurring[word] & ((2u << c % 32) - 1);
    while (bits == 0 && word > 0) bits = memory.occurring[--word];
    return bits == 0 ? v2::n_contexts : word * 32 + 31 - static_cast<std::uint32_t>(__clz(static_cast<int>(bits)));
}

// The table of a context that does not occur: that of the one before it, in its row if that has any that occurs, else
// in the last row before it that has.
__device__ inline std::uint32_t table_of_absent(std::uint32_t c, const ModelMemory& memory) {
    const std::uint32_t place = c % v2::n_activities;
    const std::uint32_t in_row = last_occurring(c - place + v2::n_activities - 1, memory);
    if (in_row == v2::n_contexts) return 0;
    const std::uint32_t before = last_occurring(in_row - in_row % v2::n_activities + place, memory);
    return before == v2::n_contexts ? 0 : memory.table[before];
}

// How many bits say the tables of a row of contexts, if there is more than one.
__device__ inline std::uint32_t bits_of_row(std::uint32_t row, const ModelMemory& memory) {
    const std::uint32_t begin = row * v2::n_activities;
    std::uint32_t other = 0;
    bool as_before = true;
    for (std::uint32_t c = begin; c < begin + v2::n_activities; ++c) {
        const std::uint32_t table = memory.table[c];
        as_before = as_before && table == (row == 0 ? 0 : memory.table[c - v2::n_activities]);
        other += table != (c == 0 ? 0 : memory.table[c - 1]) ? 1 : 0;
    }
    return as_before ? 1 : 1 + v2::n_activities + 4 * other;
}

// Makes the last frequencies, and writes the model.
__device__ inline void write_model(const ModelArguments& a, ModelMemory& memory) {
    const std::uint32_t c = threadIdx.x, n_tables = a.scratch->n_tables;
    const ModelScratch::Context context = c < v2::n_contexts ? a.scratch->context[c] : ModelScratch::Context{};
    if (warp() < v2::max_tables) normalise(*a.scratch, warp(), memory); // while the above arrives
    const std::uint32_t occurring = __ballot_sync(whole_warp, context.n_cells > 0);
    if (lane() == 0) memory.occurring[warp()] = occurring;
    auto table = static_cast<std::uint8_t>(context.table);
    if (context.n_cells > 0) memory.table[c] = table;
    if (is_first_thread()) memory.bits = 0;
    __syncthreads();
    if (c < v2::n_contexts && context.n_cells == 0)
        memory.table[c] = table = static_cast<std::uint8_t>(table_of_absent(c, memory));
    if (c < v2::n_contexts) a.model->table[c] = table;
    if (warp() < n_tables)
        write_table(a, warp(), memory);
    else if (warp() < v2::max_tables)
        for (std::uint32_t s = lane(); s < v2::n_symbols; s += warp_lanes) a.model->frequency[warp()][s] = 0;
    else if (threadIdx.x - v2::max_tables * warp_lanes < v2::n_group_contexts)
        write_group(a, threadIdx.x - v2::max_tables * warp_lanes);
    __syncthreads(); // the tables of contexts are there
    for (std::uint32_t i = threadIdx.x; i < n_rows * engine_places; i += model_threads) {
        const std::uint32_t row = i / engine_places, place = i % engine_places;
        a.encoding->table_of[row][place] = is_context(place) ? memory.table[context_of(row, place)] : 0;
    }
    if (n_tables > 1 && threadIdx.x < v2::n_contexts / v2::n_activities)
        atomicAdd(&memory.bits, bits_of_row(threadIdx.x, memory));
    __syncthreads();
    if (is_first_thread()) {
        a.encoding->interval[idle_entry] = interval_of(0, v2::rans_total);
        const std::uint32_t bits = 4 + memory.bits + 12 * v2::n_group_contexts;
        a.model->n_tables = n_tables;
        a.model->bytes = (bits + 31) / 32 * 4;
    }
}

// ---- Launches

// Each needs what the one before has found of all contexts.
enum class ModelStep : std::uint32_t {
    order, // the contexts, and what tables they get at first
    merge, // the frequencies of these
    again, // contexts go to the table that is best for them; the frequencies then
    write, // once more, and the model is written
};

__device__ inline void choose_model(const ModelArguments& a, ModelStep step, ModelMemory& memory) {
    ModelScratch& scratch = *a.scratch;
    const std::uint32_t c = blockIdx.x * model_warps + warp();
    if (step == ModelStep::order) {
        const std::uint32_t thread = blockIdx.x * model_threads + threadIdx.x;
        if (thread < v2::max_tables * v2::n_symbols) scratch.weight[thread / v2::n_symbols][thread % v2::n_symbols] = 0;
        condense(a, c, memory);
    } else {
        const CellsOfWarp cells(scratch, c);
        if (step != ModelStep::merge) {
            load_sizes(scratch, memory);
            __syncthreads();
        }
        if (cells.n > 0) {
            const std::uint32_t table =
                step == ModelStep::merge ? cells.table : best_table(cells, scratch.n_tables, memory);
            if (lane() == 0) scratch.context[c].table = table;
            merge(scratch, cells, table);
        }
    }
    if (!is_last_block(&a.counts->finished, static_cast<std::uint32_t>(step), memory.is_last)) return;
    if (step == ModelStep::order) return give_tables(scratch, memory);
    if (step == ModelStep::write) return write_model(a, memory);
    if (warp() < v2::max_tables) normalise(scratch, warp(), memory); // those beyond the number of tables are not used
}

} // namespace cusz::cuda
