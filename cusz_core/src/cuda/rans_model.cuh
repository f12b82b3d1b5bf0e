// Chooses the rANS coder's model (docs/format_v2.md, section 10), exactly as ../format/rans_model.cpp does: all sums
// are of integers, so their order does not matter. In each of four launches a warp works at one context, and the last
// block to finish then at all of them, or at the tables.
#pragma once

#include <algorithm>

#include "block.cuh"
#include "rans_model.hpp"

namespace cusz::cuda {

__device__ inline std::uint32_t lanes_before() { return (1u << lane()) - 1; }
__device__ inline std::uint32_t number_of(std::uint32_t bits) { return static_cast<std::uint32_t>(__popc(bits)); }

// A table's symbols are spread over a warp.
inline constexpr std::uint32_t symbols_of_lane = (n_symbols + warp_lanes - 1) / warp_lanes;

inline constexpr std::uint32_t model_warps = 24, model_threads = model_warps * warp_lanes;
inline constexpr std::uint32_t model_blocks = n_contexts / model_warps;
static_assert(n_contexts % model_warps == 0 && n_contexts <= model_threads && most_tables < model_warps);

struct ModelMemory {
    union {
        Array<std::uint16_t, n_symbols> weight_of; // of symbols
        Array<Array<ModelScratch::PairOfTables, most_tables / 2>, n_symbols> size;
    };
    // To order the contexts that occur by their keys, which are first spread over buckets.
    Array<std::uint32_t, model_threads> in_bucket; // how many keys
    Array<std::uint32_t, n_contexts> key;          // by bucket
    Array<std::uint16_t, n_contexts> order;        // the contexts by rank
    Array<std::uint64_t, n_contexts> share;        // by rank
    Array<std::uint64_t, model_warps> partial;     // of sums over the block

    Array<Array<std::uint16_t, n_symbols>, most_tables> frequency;
    Array<std::uint32_t, model_warps> occurring; // contexts, a bit each
    Array<std::uint8_t, n_contexts> table;       // of contexts that occur; in the end, of all
    std::uint32_t bits;                          // of the model
    bool is_last;
};

// Whether this is the last block of a launch that calls this: it then sees what all of them wrote before.
__device__ inline bool is_last_block(std::uint32_t* finished, std::uint32_t launches_before, bool& shared) {
    __threadfence();
    __syncthreads();
    if (is_first_thread()) shared = atomicAdd(finished, 1u) == (launches_before + 1) * gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return shared;
}

// The sum over the block's threads up to and including this one. partial: as block_sum has it.
template <class U>
__device__ U sum_to_thread(U v, Array<std::uint64_t, model_warps>& partial) {
    v = warp_inclusive_sum(v);
    __syncthreads(); // all reads of the previous sums are done
    if (lane() == warp_lanes - 1) partial[warp()] = v;
    __syncthreads();
    for (std::uint32_t w = 0; w < model_warps; ++w) v += w < warp() ? static_cast<U>(partial[w]) : 0;
    return v;
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
        count[k] = s < n_symbols ? a.counts->symbol[c][s] : 0;
    }
    if (threadIdx.x < n_symbols) // while the counts arrive
        memory.weight_of[threadIdx.x] = static_cast<std::uint16_t>(cusz::weight_of(threadIdx.x));
    __syncthreads();
    const std::uint64_t weight = c < row_of(1, 1) ? a.weight[0] : c < row_of(2, 1) ? a.weight[1] : a.weight[2];
    ModelScratch::Context context{};
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const std::uint32_t s = k * warp_lanes + lane(), n = weighted(count[k], weight);
        const std::uint32_t occurring = __ballot_sync(whole_warp, n > 0);
        if (n > 0) {
            a.scratch->cell[c][context.n_cells + number_of(occurring & lanes_before())] = {n, s};
            context.n += n;
            context.size += std::uint64_t{n} * memory.weight_of[s];
        }
        context.n_cells += number_of(occurring);
    }
    context.n = warp_sum(context.n);
    context.size = warp_sum(context.size);
    if (lane() == 0) a.scratch->context[c] = context;
}

// The table that codes a context shortest. Each lane has two tables, and a quarter of the cells.
__device__ inline std::uint32_t best_table(const ModelScratch& scratch, std::uint32_t c, std::uint32_t n_cells,
                                           const ModelMemory& memory) {
    constexpr std::uint32_t pairs = most_tables / 2, at_once = warp_lanes / pairs;
    const std::uint32_t pair = lane() % pairs, part = lane() / pairs;
    std::uint64_t cost[2] = {};
    for (std::uint32_t first = 0; first < n_cells; first += warp_lanes) {
        const ModelScratch::Cell mine =
            first + lane() < n_cells ? scratch.cell[c][first + lane()] : ModelScratch::Cell{};
        const std::uint32_t n = std::min(+warp_lanes, n_cells - first);
#pragma unroll 4
        for (std::uint32_t i = 0; i < n; i += at_once) { // beyond the last one weights are 0
            const std::uint32_t weight = __shfl_sync(whole_warp, mine.weight, static_cast<int>(i + part));
            const std::uint32_t symbol = __shfl_sync(whole_warp, mine.symbol, static_cast<int>(i + part));
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
        if (table < scratch.n_tables) best = std::min(best, cost[k] * most_tables + table);
    }
    for (std::uint32_t d = 1; d < pairs; d *= 2)
        best = std::min(best, __shfl_xor_sync(whole_warp, best, static_cast<int>(d)));
    return static_cast<std::uint32_t>(best % most_tables);
}

// Adds a context's symbols to those of a table.
__device__ inline void merge(ModelScratch& scratch, std::uint32_t c, std::uint32_t n_cells, std::uint32_t table) {
    for (std::uint32_t i = lane(); i < n_cells; i += warp_lanes) {
        const ModelScratch::Cell cell = scratch.cell[c][i];
        atomicAdd(reinterpret_cast<unsigned long long*>(&scratch.weight[table][cell.symbol]), cell.weight);
    }
}

// ---- All contexts; by the last block

// Orders the contexts and gives each a table, of about the same share of the bits.
__device__ inline void give_tables(ModelScratch& scratch, ModelMemory& memory) {
    const std::uint32_t c = threadIdx.x;
    const ModelScratch::Context context = c < n_contexts ? scratch.context[c] : ModelScratch::Context{};
    const bool occurs = context.n_cells > 0;
    memory.in_bucket[threadIdx.x] = 0;
    const std::uint64_t n_values = block_sum<model_warps>(context.n, memory.partial);
    const auto n = static_cast<std::uint32_t>(__syncthreads_count(occurs));
    const std::uint32_t n_tables = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(std::min<std::uint64_t>(n_values / 4096 + 2, n), 1, std::uint64_t{most_tables}));

    // A key is a mean and, below it, a context. There are few in a bucket, unless the means are equal.
    constexpr std::uint32_t context_bits = 10, means_of_bucket = 8;
    static_assert(n_contexts <= 1 << context_bits);
    std::uint32_t key = 0, bucket = 0, at = 0;
    if (occurs) {
        const auto mean = static_cast<std::uint32_t>(context.size / context.n);
        key = mean << context_bits | c;
        bucket = std::min(mean / means_of_bucket, model_threads - 1);
        at = atomicAdd(&memory.in_bucket[bucket], 1u);
    }
    __syncthreads();
    const std::uint32_t own = memory.in_bucket[threadIdx.x];
    const std::uint32_t end = sum_to_thread(own, memory.partial);
    memory.in_bucket[threadIdx.x] = end; // where it ends
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
    const std::uint64_t before = sum_to_thread(share, memory.partial) - share;
    const std::uint64_t all = block_sum<model_warps>(share, memory.partial);
    if (rank < n) {
        const std::uint64_t place = (before + share / 2) * n_tables / std::max<std::uint64_t>(all, 1);
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
        weight[k] = s < n_symbols ? scratch.weight[table][s] : 0;
        total += weight[k];
    }
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k)
        if (symbol_of_lane(k) < n_symbols) scratch.weight[table][symbol_of_lane(k)] = 0;
    total = warp_sum(total);
    // Products are below 2^54: the share is the upper half of theirs with this, or one more.
    const std::uint64_t reciprocal = total == 0 ? 0 : UINT64_MAX / total;
    std::uint32_t frequency[symbols_of_lane], sum = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const std::uint32_t s = symbol_of_lane(k);
        const std::uint64_t product = weight[k] * rans_total + total / 2;
        auto share = static_cast<std::uint32_t>(__umul64hi(product, reciprocal));
        if (total > 0 && product - share * total >= total) ++share;
        const bool has = weight[k] > 0 || (s < n_symbols && in_every_table(s));
        frequency[k] = has ? std::max(share, 1u) : 0;
        sum += frequency[k];
    }
    // What is left over, or too many, the most frequent symbols bear, the lowest of several first.
    for (int left = static_cast<int>(rans_total) - static_cast<int>(warp_sum(sum)); left != 0;) {
        std::uint32_t largest = 0; // frequency, and 255 - symbol
#pragma unroll
        for (std::uint32_t k = 0; k < symbols_of_lane; ++k)
            largest = std::max(largest, frequency[k] << 8 | (255 - symbol_of_lane(k)));
        largest = __reduce_max_sync(whole_warp, largest);
        const int change = left > 0 ? left : -std::min(-left, std::max(1, static_cast<int>(largest >> 8) / 64));
#pragma unroll
        for (std::uint32_t k = 0; k < symbols_of_lane; ++k)
            if (symbol_of_lane(k) == 255 - largest % 256) frequency[k] += static_cast<std::uint32_t>(change);
        left -= change;
    }
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const std::uint32_t s = symbol_of_lane(k), f = frequency[k];
        if (s >= n_symbols) continue;
        memory.frequency[table][s] = static_cast<std::uint16_t>(f);
        scratch.size[s][table / 2].of[table % 2] = static_cast<std::uint16_t>(f == 0 ? size_of_unknown : size_of(f));
    }
}

// Writes it, and adds up how many bits it takes in the archive.
__device__ inline void write_table(const ModelArguments& a, std::uint32_t table, ModelMemory& memory) {
    constexpr Alphabet alphabet(default_r);
    std::uint32_t frequency[symbols_of_lane], sum = 0, bits = 0, first = n_symbols, last = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < symbols_of_lane; ++k) {
        const std::uint32_t s = symbol_of_lane(k);
        frequency[k] = s < n_symbols ? memory.frequency[table][s] : 0;
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
        if (s >= n_symbols) continue;
        a.model->frequency[table][s] = static_cast<std::uint16_t>(f);
        if (f > 0) a.encoding->interval[table * 256 + s] = interval_of(start, f);
        a.encoding->coded_as[table][s] =
            static_cast<std::uint8_t>(f > 0 ? s : alphabet.escape(alphabet.meaning(s).leading));
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
    const std::uint64_t share = total == 0 ? rans_total / 2 : (significant * rans_total + total / 2) / total;
    const auto g = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(share, 1, rans_total - 1));
    a.model->significant[c] = static_cast<std::uint16_t>(g);
    std::uint64_t* const interval = a.encoding->interval + (most_tables + c) * 256;
    interval[0] = interval_of(0, rans_total - g);
    interval[1] = interval_of(rans_total - g, g);
}

// The last context that occurs up to this one, or n_contexts if none does.
__device__ inline std::uint32_t last_occurring(std::uint32_t c, const ModelMemory& memory) {
    std::uint32_t word = c / 32, bits = memory.occurring[word] & ((2u << c % 32) - 1);
    while (bits == 0 && word > 0) bits = memory.occurring[--word];
    return bits == 0 ? n_contexts : word * 32 + 31 - static_cast<std::uint32_t>(__clz(static_cast<int>(bits)));
}

// The table of any context: of one that does not occur that of the one before it, in its row if that has any, else in
// the last row before it that has.
__device__ inline std::uint32_t table_of(std::uint32_t c, const ModelMemory& memory) {
    const std::uint32_t place = c % n_activities;
    const std::uint32_t in_row = last_occurring(c - place + n_activities - 1, memory);
    if (in_row == n_contexts) return 0;
    const std::uint32_t before = last_occurring(in_row - in_row % n_activities + place, memory);
    return before == n_contexts ? 0 : memory.table[before];
}

// How many bits say the tables of a row of contexts, if there is more than one.
__device__ inline std::uint32_t bits_of_row(std::uint32_t row, const ModelMemory& memory) {
    const std::uint32_t begin = row * n_activities;
    std::uint32_t other = 0;
    bool as_before = true;
    for (std::uint32_t c = begin; c < begin + n_activities; ++c) {
        const std::uint32_t table = memory.table[c];
        as_before = as_before && table == (row == 0 ? 0 : memory.table[c - n_activities]);
        other += table != (c == 0 ? 0 : memory.table[c - 1]) ? 1 : 0;
    }
    return as_before ? 1 : 1 + n_activities + 4 * other;
}

// Writes the model. The tables' frequencies are in shared memory.
__device__ inline void write_model(const ModelArguments& a, ModelMemory& memory) {
    const std::uint32_t c = threadIdx.x, n_tables = a.scratch->n_tables;
    const ModelScratch::Context context = c < n_contexts ? a.scratch->context[c] : ModelScratch::Context{};
    const std::uint32_t occurring = __ballot_sync(whole_warp, context.n_cells > 0);
    if (lane() == 0) memory.occurring[warp()] = occurring;
    if (c < n_contexts) memory.table[c] = static_cast<std::uint8_t>(context.table);
    if (is_first_thread()) memory.bits = 0;
    __syncthreads();
    const auto table = static_cast<std::uint8_t>(c < n_contexts ? table_of(c, memory) : 0);
    __syncthreads(); // all tables are read
    if (c < n_contexts) memory.table[c] = a.model->table[c] = table;
    if (warp() < n_tables)
        write_table(a, warp(), memory);
    else if (warp() < most_tables)
        for (std::uint32_t s = lane(); s < n_symbols; s += warp_lanes) a.model->frequency[warp()][s] = 0;
    else if (threadIdx.x - most_tables * warp_lanes < n_group_contexts)
        write_group(a, threadIdx.x - most_tables * warp_lanes);
    __syncthreads(); // the tables of contexts are there
    for (std::uint32_t i = threadIdx.x; i < n_rows * engine_places; i += model_threads) {
        const std::uint32_t row = i / engine_places, place = i % engine_places;
        a.encoding->table_of[row][place] = is_context(place) ? memory.table[context_of(row, place)] : 0;
    }
    if (n_tables > 1 && threadIdx.x < n_contexts / n_activities)
        atomicAdd(&memory.bits, bits_of_row(threadIdx.x, memory));
    __syncthreads();
    if (is_first_thread()) {
        a.encoding->interval[idle_entry] = interval_of(0, rans_total);
        const std::uint32_t bits = 4 + memory.bits + 12 * n_group_contexts;
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
        if (thread < most_tables * n_symbols) scratch.weight[thread / n_symbols][thread % n_symbols] = 0;
        condense(a, c, memory);
    } else if (step == ModelStep::merge) {
        merge(scratch, c, scratch.context[c].n_cells, scratch.context[c].table);
    } else {
        for (std::uint32_t i = threadIdx.x; i < n_symbols * most_tables / 2; i += model_threads)
            memory.size[i / (most_tables / 2)][i % (most_tables / 2)] =
                scratch.size[i / (most_tables / 2)][i % (most_tables / 2)];
        __syncthreads();
        const std::uint32_t n_cells = scratch.context[c].n_cells;
        if (n_cells > 0) {
            const std::uint32_t table = best_table(scratch, c, n_cells, memory);
            if (lane() == 0) scratch.context[c].table = table;
            merge(scratch, c, n_cells, table);
        }
    }
    if (!is_last_block(&a.counts->finished, static_cast<std::uint32_t>(step), memory.is_last)) return;
    if (step == ModelStep::order) return give_tables(scratch, memory);
    if (warp() < scratch.n_tables) normalise(scratch, warp(), memory);
    if (step == ModelStep::write) {
        __syncthreads();
        write_model(a, memory);
    }
}

} // namespace cusz::cuda
