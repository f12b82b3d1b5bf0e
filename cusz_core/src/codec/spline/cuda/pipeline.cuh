// Takes tiles of a pyramid's lattices from values to entries, and to payloads, and back (docs/format_v2.md, sections 6
// to 8), with interpolation (prediction.cuh) and rANS (rans.cuh).
#pragma once

#include <type_traits>

#include "prediction.cuh"
#include "rans.cuh"

namespace cusz::cuda {

// ---- Who works on what

// Tiles that a block takes up at once.
inline constexpr std::uint32_t max_tiles = tiles_of_warp;
struct Ticket {
    std::uint64_t number; // in the launch
    std::uint64_t first;  // tile of the lattice
    std::uint32_t lattice, n;
    bool exists;
};

// Takes the next tiles, once the lattice that they are predicted from is complete; by the whole block. Those who took
// an earlier ticket are at work, so a wait ends.
template <class T>
__device__ void take_ticket(const Work<T>& work, Ticket& ticket) {
    __syncthreads(); // all reads of the last one are done
    if (is_first_thread()) {
        const std::uint64_t number = atomicAdd(reinterpret_cast<unsigned long long*>(&work.progress->ticket), 1ull);
        ticket.number = number;
        ticket.exists = number < work.n_tickets;
        if (ticket.exists) {
            std::uint32_t i = work.last;
            while (number >= work.lattices[i].first_ticket + work.lattices[i].n_tickets) --i;
            const DeviceLattice<T>& lattice = work.lattices[i];
            ticket.lattice = i;
            ticket.first = lattice.begin + (number - lattice.first_ticket) * lattice.tiles_of_ticket;
            ticket.n = static_cast<std::uint32_t>(
                std::min<std::uint64_t>(lattice.tiles_of_ticket, lattice.end - ticket.first));
            if (lattice.waits_for > 0) {
                const volatile std::uint64_t* const done = work.progress->tiles_done + lattice.waits_for;
                while (*done < work.lattices[lattice.waits_for].n_tiles) __nanosleep(100);
                __threadfence();
            }
        }
    }
    __syncthreads();
}

// Tells that n tiles of a lattice are complete; by the whole block.
template <class T>
__device__ void complete(const Work<T>& work, const Ticket& ticket) {
    __syncthreads();
    if (!is_first_thread()) return;
    __threadfence();
    atomicAdd(reinterpret_cast<unsigned long long*>(work.progress->tiles_done + ticket.lattice),
              static_cast<unsigned long long>(ticket.n));
}

__device__ inline void add_to(std::uint64_t* sum, std::uint64_t v) {
    if (v != 0) atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(v));
}

// The sum over the threads before this one of its tile's; partial: tile_warps of them. All threads of a block call it.
template <class Partial>
__device__ std::uint32_t sum_of_threads_before(std::uint32_t v, Partial& partial, std::uint32_t& total) {
    const std::uint32_t to_here = warp_inclusive_sum(v);
    __syncthreads();
    if (lane() == warp_lanes - 1) partial[tile_warp()] = to_here;
    __syncthreads();
    std::uint32_t before = to_here - v;
    total = 0;
    for (std::uint32_t w = 0; w < tile_warps; ++w) {
        const std::uint32_t of_warp = partial[w];
        before += w < tile_warp() ? of_warp : 0;
        total += of_warp;
    }
    return before;
}

// ---- From values to entries

// A value's code, with a byte: the place of its context in the row (S * 16 + N), or the number of its extra bits.
__device__ inline std::uint32_t with_byte(std::int32_t code, std::uint32_t byte) {
    return static_cast<std::uint32_t>(code) << 8 | byte;
}

inline constexpr std::uint32_t max_extra_words = max_tile_values * 20 / 32 + 1;

// What a block writes of each of its tiles, in global memory.
struct alignas(16) TileScratch {
    Array<std::uint16_t, max_entries> entries;
    Array<std::uint16_t, max_entries + 2 * v2::max_lanes> words; // states and words, at the end
    Array<std::uint32_t, max_extra_words> extra;
    Array<std::uint32_t, max_tile_values / 32> verbatim; // a bit for each position, in raster order
};

inline constexpr std::uint32_t kind_empty = 3; // beside v2::TileKind: there is no payload

struct TileOutput {
    std::uint32_t n_values, n_significant, n_verbatim, n_special, extra_bits;
    EntryRun flags[max_active_axes], values[max_active_axes]; // by phase
    std::uint32_t kind, lanes, front, n_words, units;
};

// A tile of any shape while it is coded, in global memory; values follow.
template <class T>
struct AnyWriting {
    Array<std::uint32_t, max_tile_values> coded; // by coding order in a phase: with_byte
    AnyMemory<T> memory;
};

// Bytes of a block's scratch memory: for counting, and for writing.
constexpr std::size_t aligned_to_16(std::size_t bytes) { return (bytes + 15) / 16 * 16; }
template <class T>
constexpr std::size_t any_writing_bytes(std::uint32_t positions) {
    return aligned_to_16(sizeof(AnyWriting<T>) + positions * sizeof(T));
}
template <class T>
constexpr std::size_t spline_writing_bytes(std::uint32_t positions) {
    return max_tiles * sizeof(TileScratch) + any_writing_bytes<T>(positions);
}
// For reading: of a tile.
template <class T>
constexpr std::size_t any_memory_bytes(std::uint32_t positions) {
    return aligned_to_16(sizeof(AnyMemory<T>) + positions * sizeof(T));
}

// The groups of a tile of any shape: which one a value is in, and where that begins.
template <class T>
__device__ void note_group(AnyMemory<T>& memory, const Point& p) {
    memory.group_of[p.order] = static_cast<std::uint16_t>(p.group);
    if (p.in_group == 0) memory.starts[p.group] = static_cast<std::uint16_t>(p.order);
}
// Their contexts, from the sums.
template <class T>
__device__ void find_contexts_of_groups(AnyMemory<T>& memory, std::uint32_t phase) {
    for (std::uint32_t i = tile_thread(); i < memory.geometry().groups_of_phase(phase); i += tile_threads)
        memory.context(i) = static_cast<std::uint8_t>(v2::group_context(memory.sum(i)));
}
// How many values of significant groups are before each, from their flags; by one thread, as few such tiles have many
// groups. Returns the number of all those values.
template <class T>
__device__ std::uint32_t find_firsts(AnyMemory<T>& memory, std::uint32_t phase) {
    const std::uint32_t n_groups = memory.geometry().groups_of_phase(phase);
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < n_groups; ++i) {
        memory.firsts[i] = static_cast<std::uint16_t>(n);
        const std::uint32_t end = i + 1 < n_groups ? memory.starts[i + 1] : memory.geometry().points_of_phase(phase);
        n += memory.significant(i) != 0 ? end - memory.starts[i] : 0;
    }
    return n;
}

// Continues what a phase has known beyond the border of the lattice. All threads of the block call it, of one tile.
template <class T, class Memory>
__device__ void continue_phase(const TilePlace<T>& place, Memory& memory, std::uint32_t phase) {
    for_axes(place.low | place.high, [&](auto a) {
        continue_phase_along(place, memory, phase, a);
        __syncthreads();
    });
}

// Gets what a tile is predicted from, and puts the points of the coarser lattice into this one. All threads of the
// block call it, of one tile.
template <class T, class Memory>
__device__ void begin_tile(const TilePlace<T>& place, Memory& memory) {
    const auto& g = memory.geometry();
    if constexpr (!std::remove_cvref_t<decltype(g)>::known) {
        if (tile_thread() == 0) memory.tile.set(*place.lattice, place.edge);
        __syncthreads();
    }
    load_coarse(place, memory);
    __syncthreads();
    continue_phase(place, memory, 0);
    sum_parents(memory);
    const DeviceLattice<T>& lattice = *place.lattice;
    if (lattice.value != nullptr) {
        const PointOffsets offset(g, place.fine, lattice.stride);
        for_coarse_points(place, memory, [&](const Point& p, std::uint32_t k, T value, bool is_special) {
            const std::uint64_t at = offset(ClassConstant<0>{}, p, k);
            lattice.value[at] = value;
            lattice.magnitude[at] = is_special ? special_magnitude : 0;
        });
    }
    __syncthreads();
}

// A value that quantise() does not code. Returns its magnitude; value, code: as quantise() has left them.
template <class T, class G, class C, class Sink>
__device__ std::uint32_t code_otherwise(T d, T p, const Quantiser<T>& q, T& value, std::int32_t& code, const G& g, C c,
                                        const Point& at, Sink& sink) {
    const Coded<T> result = otherwise(d, p, q, value, code);
    value = result.value;
    code = result.code;
    if (result.verbatim) sink.verbatim(raster_position(g, c, at));
    if (code == missing_code) sink.special();
    return code == missing_code ? special_magnitude : magnitude_of(code);
}

// The classes of a phase, predicted and quantised. All threads of the block call it.
template <class T, TileShape shape, class Sink>
__device__ void code_phase(const TilePlace<T>& place, FullMemory<T, shape>& memory, std::uint32_t phase, bool cubic,
                           Sink& sink) {
    using G = FullTile<T, shape>;
    constexpr std::uint32_t n = G::column, m = G::at_once;
    const G g = memory.geometry();
    const DeviceLattice<T>& lattice = *place.lattice;
    const Quantiser<T> q = lattice.quantiser;
    const PointOffsets original(g, place.original, lattice.original_stride);
    g.for_classes(phase, [&](auto c) {
        if (G::replaces_first(c)) __syncthreads();
        if (phase < G::n_active) predict_margin(place, memory, c, cubic);
        g.for_columns(c, fresh_tile_thread(), [&](const Point& first, std::uint32_t column) {
            std::int32_t code[n];
            std::uint32_t at[n], sum = 0, any = 0; // at: the place of the context in the row, S * 16 + N
            const T* from = lattice.original + original.first(c, column);
#pragma unroll
            for (std::uint32_t i = 0; i < n; i += m) {
                const Point part = G::in_column(first, i);
                T d[m], predicted[m], value[m];
#pragma unroll
                for (std::uint32_t k = 0; k < m; ++k) {
                    d[k] = *from;
                    from += original.step();
                }
                std::uint32_t active[m], spread[m];
                activities(memory, c, part, active);
                predict_column(memory, c, part, cubic, q.inv, predicted, spread);
                if (!within_limits(predicted))
                    for (T& p : predicted) p = limited(p);
#pragma unroll
                for (std::uint32_t k = 0; k < m; ++k) {
                    at[i + k] = spread[k] << 4 | active[k];
                    sum += spread[k] + active[k];
                }
                std::uint32_t own[m];
                bool coded[m], all_coded = true;
#pragma unroll
                for (std::uint32_t k = 0; k < m; ++k) {
                    coded[k] = quantise(d[k], predicted[k], q, value[k], code[i + k]);
                    all_coded = all_coded && coded[k];
                    own[k] = magnitude_of(code[i + k]);
                }
                if (!all_coded) {
#pragma unroll
                    for (std::uint32_t k = 0; k < m; ++k)
                        if (!coded[k])
                            own[k] = code_otherwise(d[k], predicted[k], q, value[k], code[i + k], g, c,
                                                    G::in_column(part, k), sink);
                }
#pragma unroll
                for (std::uint32_t k = 0; k < m; ++k) {
                    any |= own[k];
                    memory.value(position(g, c, G::in_column(part, k))) = value[k];
                }
                put_magnitudes<false>(memory, c, part, own);
            }
            if (lattice.value != nullptr) {
                const PointOffsets fine(g, place.fine, lattice.stride);
                std::uint64_t to = fine.first(c, column);
                for (std::uint32_t k = 0; k < n; ++k, to += fine.step()) {
                    const Point p = G::in_column(first, k);
                    lattice.value[to] = memory.value(position(g, c, p));
                    lattice.magnitude[to] = memory.magnitude(magnitude_position(g, c, p));
                }
            }
            const std::uint32_t context = v2::group_context(sum_over_lanes<G::row_lanes>(sum));
            sink.column(memory, phase, first, context, any_over_lanes<G::row_lanes>(any != 0), code, at);
        });
    });
}
template <class T, class Sink>
__device__ void code_phase(const TilePlace<T>& place, AnyMemory<T>& memory, std::uint32_t phase, bool cubic,
                           Sink& sink) {
    const AnyTile& g = memory.geometry();
    const DeviceLattice<T>& lattice = *place.lattice;
    const Quantiser<T> q = lattice.quantiser;
    const PointOffsets original(g, place.original, lattice.original_stride), fine(g, place.fine, lattice.stride);
    for (std::uint32_t i = tile_thread(); i < g.groups_of_phase(phase); i += tile_threads) {
        memory.sum(i) = 0;
        memory.significant(i) = 0;
    }
    __syncthreads();
    g.for_classes(phase, [&](std::uint32_t c) {
        if (phase < lattice.n_active) predict_margin(place, memory, c, cubic);
        g.for_points(c, [&](const Point& p, std::uint32_t k) {
            std::uint32_t spread, own;
            const T predicted = predict<true>(memory, c, p, cubic, q.inv, spread);
            const T d = lattice.original[original(c, p, k)];
            T value;
            std::int32_t code;
            if (quantise(d, predicted, q, value, code))
                own = magnitude_of(code);
            else
                own = code_otherwise(d, predicted, q, value, code, g, c, p, sink);
            const std::uint32_t active = activity(memory, c, p);
            memory.value(position(g, c, p)) = value;
            memory.magnitude(magnitude_position(g, c, p)) = static_cast<std::uint8_t>(own);
            if (lattice.value != nullptr) {
                const std::uint64_t to = fine(c, p, k);
                lattice.value[to] = value;
                lattice.magnitude[to] = static_cast<std::uint8_t>(own);
            }
            sink.coded[p.order] = with_byte(code, spread << 4 | active);
            atomicAdd(&memory.sum(p.group), spread + active);
            if (own != 0) memory.significant(p.group) = 1;
            note_group(memory, p);
        });
    });
    __syncthreads();
    find_contexts_of_groups(memory, phase);
}

// Predicts and quantises all values of a tile, phase by phase; a sink (below) takes up the codes. All threads of the
// block call it.
template <class T, class Memory, class Sink>
__device__ void code_tile(const TilePlace<T>& place, Memory& memory, bool cubic, Sink& sink) {
    begin_tile(place, memory);
    for (std::uint32_t phase = 1; phase <= place.lattice->n_active; ++phase) {
        code_phase(place, memory, phase, cubic, sink);
        __syncthreads();
        sink.finish(memory, phase);
        __syncthreads();
        if (phase < place.lattice->n_active) continue_phase(place, memory, phase);
    }
}

// The symbol of a code without regard to a table.
__device__ inline std::uint32_t symbol_of(std::int32_t code) {
    const std::uint32_t direct = static_cast<std::uint32_t>(code) + Alphabet(default_r).zero();
    return direct < 2 * Alphabet(default_r).direct() ? direct : Alphabet(default_r).symbol(code);
}

// Calls use(order, at) for this thread's values of a phase in significant groups: their places in coding order, and
// among these values. in_a_row: whether a thread's values follow each other.
template <class T, class Use>
__device__ void for_values(AnyMemory<T>& memory, std::uint32_t phase, bool in_a_row, const Use& use) {
    const std::uint32_t n = memory.geometry().points_of_phase(phase), each = (n + tile_threads - 1) / tile_threads;
    for (std::uint32_t k = 0; k < each; ++k) {
        const std::uint32_t o = in_a_row ? tile_thread() * each + k : k * tile_threads + tile_thread();
        if (o >= n) break;
        const std::uint32_t g = memory.group_of[o];
        if (memory.significant(g) != 0) use(o, memory.firsts[g] + (o - memory.starts[g]));
    }
}

// A sink that counts symbols and groups.
struct Counting {
    SplineCounts& counts;
    std::uint32_t lattice;
    std::uint32_t* coded; // of a tile of any shape

    __device__ void verbatim(std::uint32_t) {}
    __device__ void special() {}
    __device__ void group(std::uint32_t context, bool significant) {
        atomicAdd(&counts.group[std::min(lattice, 2u)][context][significant], 1u);
    }
    __device__ void symbol(std::uint32_t phase, std::uint32_t place, std::int32_t code) {
        const std::uint32_t row = v2::row_of(lattice, phase) / v2::n_places;
        atomicAdd(&counts.symbol[context_of(row, place)][symbol_of(code)], 1u);
    }
    template <class T, TileShape shape, std::uint32_t n>
    __device__ void column(FullMemory<T, shape>&, std::uint32_t phase, const Point& first, std::uint32_t context,
                           bool significant, const std::int32_t (&code)[n], const std::uint32_t (&place)[n]) {
        if (first.in_group == 0) group(context, significant);
        if (significant)
            for (std::uint32_t k = 0; k < n; ++k) symbol(phase, place[k], code[k]);
    }
    template <class T, TileShape shape>
    __device__ void finish(FullMemory<T, shape>&, std::uint32_t) {}
    template <class T>
    __device__ void finish(AnyMemory<T>& memory, std::uint32_t phase) {
        for (std::uint32_t i = tile_thread(); i < memory.geometry().groups_of_phase(phase); i += tile_threads)
            group(memory.context(i), memory.significant(i) != 0);
        for_values(memory, phase, false, [&](std::uint32_t o, std::uint32_t) {
            const std::uint32_t word = coded[o];
            symbol(phase, word & 255, static_cast<std::int32_t>(word) >> 8);
        });
    }
};

// Which groups of a phase of a full tile are significant, by bit; by whole warps.
template <class T, TileShape shape>
__device__ std::uint32_t significant_groups(FullMemory<T, shape>& memory, std::uint32_t phase) {
    const bool is = lane() < FullTile<T, shape>::groups_of_phase(phase) && memory.significant(lane()) != 0;
    return __ballot_sync(whole_warp, is);
}

// What a block looks up of the tables, for a lattice: of each phase's contexts, by place; and the entry of each symbol
// of a direct code.
struct ListingTables {
    static constexpr std::uint32_t n_direct = 2 * Alphabet(default_r).direct();
    Array<std::uint8_t, max_active_axes * engine_places> table_of;
    Array<std::uint16_t, v2::max_tables * n_direct> entry_of;

    __device__ std::uint32_t table(std::uint32_t phase, std::uint32_t place) const {
        return table_of[(phase - 1) * engine_places + place];
    }
    // Of a direct code.
    __device__ std::uint32_t entry(std::uint32_t phase, std::uint32_t place, std::int32_t code) const {
        return entry_of[table(phase, place) * n_direct + Alphabet(default_r).zero() + static_cast<std::uint32_t>(code)];
    }

    // By all threads of the block.
    __device__ void set(const EncodingTables& tables, std::uint32_t n_tables) {
        for (std::uint32_t i = threadIdx.x; i < n_tables * n_direct; i += blockDim.x) {
            const std::uint32_t table = i / n_direct;
            entry_of[i] = static_cast<std::uint16_t>(table << 8 | tables.coded_as[table][i % n_direct]);
        }
    }
    __device__ void set_lattice(const EncodingTables& tables, const std::uint32_t lattice) {
        const std::uint32_t first = v2::row_of(lattice, 1) / v2::n_places;
        for (std::uint32_t i = threadIdx.x; i < table_of_size; i += blockDim.x)
            table_of[i] = tables.table_of[first + i / engine_places][i % engine_places];
    }

private:
    static constexpr std::uint32_t table_of_size = max_active_axes * engine_places;
};

__device__ inline std::uint32_t extra_bits_of_entry(std::uint32_t entry) {
    const std::uint32_t symbol = entry & 255;
    return symbol < ListingTables::n_direct ? 0 : Alphabet(default_r).meaning(symbol).extra_bits;
}

// A sink that lists entries and extra bits, and marks what is stored verbatim.
template <class Partial>
struct Listing {
    const EncodingTables& tables;
    ListingTables& near;
    TileOutput& output;
    TileScratch* const& scratch; // read anew wherever it is wanted, as it would take up registers
    Partial& partial;
    Array<std::uint32_t, warp_lanes>& extra_bits; // of a full tile's groups
    // Of a tile of any shape; or where a full tile's groups have extra bits, the codes and the numbers of such bits.
    std::uint32_t* coded;
    static constexpr std::uint32_t zero = Alphabet(default_r).zero();

    __device__ void verbatim(std::uint32_t position) {
        atomicOr(&scratch->verbatim[position / 32], 1u << position % 32);
        atomicAdd(&output.n_verbatim, 1u);
    }
    __device__ void special() { atomicAdd(&output.n_special, 1u); }

    __device__ std::uint32_t entry(std::uint32_t phase, std::uint32_t place, std::int32_t code) {
        if (code + zero < near.n_direct) return near.entry(phase, place, code);
        const std::uint32_t table = near.table(phase, place);
        return table << 8 | tables.coded_as[table][Alphabet(default_r).symbol(code)];
    }
    __device__ static std::uint16_t flag(std::uint32_t context, bool significant) {
        return static_cast<std::uint16_t>((v2::max_tables + context) << 8 | (significant ? 1 : 0));
    }

    // Of a full tile: entries are where they would be if all groups were significant.
    template <class T, TileShape shape, std::uint32_t n>
    __device__ void column(FullMemory<T, shape>& memory, std::uint32_t phase, const Point& first, std::uint32_t context,
                           bool significant, const std::int32_t (&code)[n], const std::uint32_t (&place)[n]) {
        using G = FullTile<T, shape>;
        const std::uint32_t flags = G::first_entry(phase), values = flags + G::groups_of_phase(phase);
        std::uint32_t own[n], all = 0, codes = 0;
        std::uint16_t* const to = &scratch->entries[values + first.order];
#pragma unroll
        for (std::uint32_t k = 0; k < n; ++k) codes |= code[k] + zero;
        const auto list = [&](const auto& entry_of) {
#pragma unroll
            for (std::uint32_t k = 0; k < n; ++k) {
                own[k] = entry_of(k);
                to[k * G::row_lanes] = static_cast<std::uint16_t>(own[k]);
                all |= own[k];
            }
        };
        if (codes < near.n_direct)
            list([&](std::uint32_t k) { return near.entry(phase, place[k], code[k]); });
        else
            list([&](std::uint32_t k) { return entry(phase, place[k], code[k]); });
        std::uint32_t bits = 0;
        if (__any_sync(whole_warp, (all & 255) >= near.n_direct)) {
#pragma unroll
            for (std::uint32_t k = 0; k < n; ++k) {
                const std::uint32_t of_value = extra_bits_of_entry(own[k]);
                coded[first.order + k * G::row_lanes] = with_byte(code[k], of_value);
                bits += of_value;
            }
            bits = sum_over_lanes<G::row_lanes>(bits);
        }
        if (first.in_group != 0) return;
        scratch->entries[flags + first.group] = flag(context, significant);
        memory.significant(first.group) = significant;
        extra_bits[first.group] = bits;
    }
    template <class T, TileShape shape>
    __device__ void finish(FullMemory<T, shape>& memory, std::uint32_t phase) {
        using G = FullTile<T, shape>;
        const std::uint32_t groups = significant_groups(memory, phase), n_groups = G::groups_of_phase(phase);
        const std::uint32_t bits = lane() < n_groups ? extra_bits[lane()] : 0, to_here = warp_inclusive_sum(bits),
                            all = __shfl_sync(whole_warp, to_here, warp_lanes - 1), begin = output.extra_bits;
        if (all != 0) clear_extra(begin, all);
        __syncthreads();
        if (tile_thread() == 0) {
            const std::uint32_t n = static_cast<std::uint32_t>(__popc(groups)) * 64;
            output.flags[phase - 1] = {G::first_entry(phase), n_groups, 0};
            output.values[phase - 1] = {G::first_entry(phase) + n_groups, n, groups};
            output.n_significant += n;
            output.extra_bits = begin + all;
        }
        if (all == 0) return;
        constexpr std::uint32_t own_groups = 0x11111111;
        std::uint32_t left = __ballot_sync(whole_warp, bits != 0) & own_groups << tile_warp();
        for (; left != 0; left &= left - 1) {
            const std::uint32_t g = static_cast<std::uint32_t>(__ffs(static_cast<int>(left))) - 1;
            std::uint32_t at = begin + __shfl_sync(whole_warp, to_here - bits, static_cast<int>(g));
            for (std::uint32_t half = 0; half < G::group; half += warp_lanes) {
                const std::uint32_t word = coded[g * G::group + half + lane()], n = word & 255;
                const std::uint32_t behind = warp_inclusive_sum(n);
                put_extra(at + behind - n, word >> 8, n);
                at += __shfl_sync(whole_warp, behind, warp_lanes - 1);
            }
        }
    }

    template <class T>
    __device__ void finish(AnyMemory<T>& memory, std::uint32_t phase) {
        const std::uint32_t n_groups = memory.geometry().groups_of_phase(phase);
        __syncthreads(); // contexts are known
        if (tile_thread() == 0) {
            const std::uint32_t n = find_firsts(memory, phase),
                                end = phase == 1 ? 0 : output.values[phase - 2].first + output.values[phase - 2].n;
            output.flags[phase - 1] = {end, n_groups, 0};
            output.values[phase - 1] = {end + n_groups, n, 0};
            output.n_significant += n;
        }
        __syncthreads();
        const std::uint32_t flags = output.flags[phase - 1].first, values = flags + n_groups;
        for (std::uint32_t i = tile_thread(); i < n_groups; i += tile_threads)
            scratch->entries[flags + i] = flag(memory.context(i), memory.significant(i) != 0);
        const auto entry_of = [&](std::uint32_t word) {
            return entry(phase, word & 255, static_cast<std::int32_t>(word) >> 8);
        };
        std::uint32_t bits = 0, all; // of a thread's values, which follow each other
        for_values(memory, phase, true, [&](std::uint32_t o, std::uint32_t at) {
            const std::uint32_t own = entry_of(coded[o]);
            scratch->entries[values + at] = static_cast<std::uint16_t>(own);
            bits += extra_bits_of_entry(own);
        });
        const std::uint32_t begin = output.extra_bits;
        std::uint32_t at = begin + sum_of_threads_before(bits, partial, all);
        if (all == 0) return;
        clear_extra(begin, all);
        __syncthreads();
        for_values(memory, phase, true, [&](std::uint32_t o, std::uint32_t) {
            const std::uint32_t word = coded[o], n = extra_bits_of_entry(entry_of(word));
            put_extra(at, word >> 8, n);
            at += n;
        });
        if (tile_thread() == 0) output.extra_bits = begin + all;
    }

private:
    // Words that begin in the n bits from `begin` on.
    __device__ void clear_extra(std::uint32_t begin, std::uint32_t n) {
        for (std::uint32_t i = (begin + 31) / 32 + tile_thread(); i < (begin + n + 31) / 32; i += tile_threads)
            scratch->extra[i] = 0;
    }
    __device__ void put_extra(std::uint32_t at, std::uint32_t value, std::uint32_t n) {
        if (n == 0) return;
        value &= (1u << n) - 1;
        const std::uint32_t shift = at % 32;
        atomicOr(&scratch->extra[at / 32], value << shift);
        if (shift + n > 32) atomicOr(&scratch->extra[at / 32 + 1], value >> (32 - shift));
    }
};

// ---- From entries to payloads

// What a tile becomes, once its words are known or if it has none.
template <class T>
__device__ void settle(TileOutput& output) {
    if (output.kind != v2::tile_coded) return;
    output.units = output.front + output.n_words;
    if (output.units < 1 + output.n_values * v2::units_of_value<T>) return;
    output.kind = v2::tile_raw;
    output.units = 1 + output.n_values * v2::units_of_value<T>;
}

// From what was counted: the kind, and the units before the states.
template <class T>
__device__ void begin_output(TileOutput& output) {
    const std::uint32_t n = output.n_significant, n_extra = (output.extra_bits + 15) / 16;
    output.lanes = output.n_words = output.units = output.front = 0;
    if (output.n_values > 0 && output.n_special == output.n_values) {
        output.kind = v2::tile_special;
        output.units = 1;
    } else if (n > 0 || output.n_verbatim > 0) {
        output.kind = v2::tile_coded;
        output.lanes = n <= 1024 ? 1 : n <= 2048 ? 2 : v2::max_lanes;
        output.front = 1 + (output.n_verbatim > 0 ? 1 + output.n_verbatim * (1 + v2::units_of_value<T>) : 0) +
                       (n_extra > 0 ? 1 + n_extra : 0);
    } else {
        output.kind = kind_empty;
    }
}

// Encodes the tiles of a ticket, by one warp.
template <class T>
__device__ void encode(const EncodingTables& tables, std::uint32_t n_tiles, std::uint32_t n_active,
                       Array<TileOutput, max_tiles>& outputs, TileScratch* scratch) {
    const std::uint32_t t = tile_of_warp();
    TileOutput& output = outputs[t];
    const bool works = t < n_tiles && output.kind == v2::tile_coded;
    TileScratch& own = scratch[works ? t : 0];
    constexpr std::uint32_t end = max_entries + 2 * v2::max_lanes;
    RansEncoder encoder(tables, works ? output.lanes : 0, own.entries.item, own.words.item, end);
    for (std::uint32_t phase = n_active; phase > 0; --phase) {
        encoder.run(works ? output.values[phase - 1] : EntryRun{});
        encoder.run(works ? output.flags[phase - 1] : EntryRun{});
    }
    const std::uint32_t begin = encoder.finish();
    if (works && lane_of_tile() == 0) output.n_words = end - begin;
    __syncwarp();
    if (works && lane_of_tile() == 0) settle<T>(output);
}

// Puts units of a payload where they belong, and sums up its part of the checksum.
class UnitWriter {
public:
    __device__ explicit UnitWriter(std::uint16_t* to) : to_(to) {}
    __device__ void put(std::uint32_t at, std::uint32_t unit) {
        if (to_ != nullptr) to_[at] = static_cast<std::uint16_t>(unit);
        sum += (std::uint64_t{unit & 0xFFFF} << at % 2 * 16) * checksum_weight(at / 2);
    }
    template <class Bits>
    __device__ void put_value(std::uint32_t at, Bits bits) {
        for (std::uint32_t i = 0; i < sizeof bits / 2; ++i)
            put(at + i, static_cast<std::uint32_t>(bits >> 16 * i) & 0xFFFF);
    }
    std::uint64_t sum = 0;

private:
    std::uint16_t* to_; // or null: there is no room
};

// Writes a coded tile's payload. All threads of the block call it.
template <class T, class Partial>
__device__ void write_coded(const TilePlace<T>& place, const TileOutput& output, const TileScratch& scratch,
                            Partial& partial, UnitWriter& to) {
    const std::uint32_t n_extra = (output.extra_bits + 15) / 16, n = output.n_verbatim;
    if (tile_thread() == 0)
        to.put(0, v2::TileHeader{.lanes = output.lanes, .has_verbatim = n > 0, .has_extra = n_extra > 0}.word());
    std::uint32_t at = 1;
    if (n > 0) {
        if (tile_thread() == 0) to.put(at, n);
        ++at;
        static_assert(max_tile_values / 32 == tile_threads);
        std::uint32_t bits = scratch.verbatim[tile_thread()], all;
        std::uint32_t rank = sum_of_threads_before(static_cast<std::uint32_t>(__popc(bits)), partial, all);
        const DeviceLattice<T>& lattice = *place.lattice;
        for (; bits != 0; bits &= bits - 1, ++rank) {
            const std::uint32_t position =
                tile_thread() * 32 + static_cast<std::uint32_t>(__ffs(static_cast<int>(bits))) - 1;
            std::uint32_t rest = position;
            std::uint64_t offset = place.original;
            for (std::uint32_t a = 0; a < 4; ++a) {
                offset += rest % place.edge[a] * lattice.original_stride[a];
                rest /= place.edge[a];
            }
            to.put(at + rank, position);
            to.put_value(at + n + rank * v2::units_of_value<T>, bits_of(lattice.original[offset]));
        }
        at += n * (1 + v2::units_of_value<T>);
    }
    if (n_extra > 0) {
        if (tile_thread() == 0) to.put(at, n_extra);
        ++at;
        for (std::uint32_t i = tile_thread(); i < n_extra; i += tile_threads)
            to.put(at + i, scratch.extra[i / 2] >> i % 2 * 16);
        at += n_extra;
    }
    constexpr std::uint32_t end = max_entries + 2 * v2::max_lanes;
    for (std::uint32_t i = tile_thread(); i < output.n_words; i += tile_threads)
        to.put(at + i, scratch.words[end - output.n_words + i]);
}

// Writes a tile's values as they are, which are then what is predicted from. All threads of the block call it.
template <class T, class Memory>
__device__ void write_raw(const TilePlace<T>& place, Memory& memory, bool cubic, UnitWriter& to) {
    const DeviceLattice<T>& lattice = *place.lattice;
    const Quantiser<T> q = lattice.quantiser;
    if (tile_thread() == 0) to.put(0, v2::tile_raw);
    const bool predicts = lattice.value != nullptr;
    if (predicts) {
        begin_tile(place, memory);
    } else if constexpr (!std::remove_cvref_t<decltype(memory.geometry())>::known) {
        if (tile_thread() == 0) memory.tile.set(lattice, place.edge);
        __syncthreads();
    }
    const auto& g = memory.geometry();
    const PointOffsets original(g, place.original, lattice.original_stride), fine(g, place.fine, lattice.stride);
    std::uint32_t first = 1; // unit of the phase
    for (std::uint32_t phase = 1; phase <= lattice.n_active; ++phase) {
        g.for_classes(phase, [&](auto c) {
            if (predicts && phase < lattice.n_active) predict_margin(place, memory, c, cubic);
            g.for_points(c, [&](const Point& p, std::uint32_t k) {
                const T d = lattice.original[original(c, p, k)];
                to.put_value(first + p.order * v2::units_of_value<T>, bits_of(d));
                if (!predicts) return;
                std::uint32_t spread;
                const Coded<T> result = as_it_is(d, predict<false>(memory, c, p, cubic, q.inv, spread), q);
                memory.value(position(g, c, p)) = result.value;
                const std::uint64_t at = fine(c, p, k);
                lattice.value[at] = result.value;
                lattice.magnitude[at] = result.code == missing_code ? special_magnitude : 0;
            });
        });
        first += g.points_of_phase(phase) * v2::units_of_value<T>;
        __syncthreads();
        if (predicts && phase < lattice.n_active) continue_phase(place, memory, phase);
    }
}

} // namespace cusz::cuda
