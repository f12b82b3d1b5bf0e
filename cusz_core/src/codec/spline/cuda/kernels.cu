// The spline codec's kernels. One launch goes through all lattices, from the coarsest to the field: blocks take up
// tiles in that order, and wait until the coarser lattice is complete.
#include "kernels.hpp"

#include <algorithm>

#include "device/launch.cuh"
#include "reading.cuh"

namespace cusz::cuda {

// ---- Compression: a tile at a time, by a block of 128 threads

template <class T, TileShape shape>
struct CountMemoryOf {
    FullMemory<T, shape> full;
    TilePlace<T> place;
    Ticket ticket;
    DeviceLattice<T> field, middle; // of a box
};

// By all threads of a block.
template <class Value>
__device__ void copy_words(Value& to, const Value& from) {
    static_assert(sizeof to % 4 == 0 && std::is_trivially_copyable_v<Value>);
    for (std::uint32_t i = threadIdx.x; i < sizeof to / 4; i += blockDim.x)
        reinterpret_cast<std::uint32_t*>(&to)[i] = reinterpret_cast<const std::uint32_t*>(&from)[i];
}

// Scratch memory of a block: points of lattice 1, with their magnitudes, after what a tile of any shape takes.
template <class T>
constexpr std::size_t box_bytes(std::uint32_t positions_of_box) {
    return aligned_to_16(positions_of_box * (sizeof(T) + 1));
}

// Sets lattices that begin a little before a tile of lattice 0, as if the field did, and the place of that tile, or of
// its points of lattice 1 and those around it, which are all that it is predicted from (section 10). field, middle:
// copies of lattices 0 and 1. By one thread.
template <TileShape shape, class T>
__device__ void set_box(const DeviceLattice<T>* lattices, std::uint64_t number, T* values, std::uint32_t room,
                        DeviceLattice<T>& field, DeviceLattice<T>& middle, TilePlace<T>& place, bool in_middle) {
    std::uint64_t first[4], extent[4], begin[4], stride[4]; // by the field's axes, as lattices[0].axis has them
    std::uint64_t values_before = 1;
    set_place<shape>(place, lattices[0], number);
    for (std::uint32_t j = 0; j < 4; ++j) {
        const std::uint32_t a = field.axis[j];
        const std::uint64_t from = place.origin[j], to = from + place.edge[j];
        if (j < field.n_active) {
            first[a] = from > 0 ? from / 2 - 2 : 0; // what is not at the border must not seem to be
            extent[a] = std::min((to + 1) / 2 + 2, (field.extent[j] + 1) / 2) - first[a];
            begin[a] = from > 0 ? first[a] - 2 : 0;
        } else {
            first[a] = begin[a] = from;
            extent[a] = place.edge[j];
        }
    }
    for (std::uint32_t a = 0; a < 4; ++a) {
        stride[a] = values_before;
        values_before *= first[a] - begin[a] + extent[a];
    }
    auto* const magnitudes = reinterpret_cast<std::uint8_t*>(values + room);
    field.coarse_value = middle.value = values;
    field.coarse_magnitude = middle.magnitude = magnitudes;
    for (std::uint32_t j = 0; j < 4; ++j) {
        const std::uint32_t a = middle.axis[j];
        middle.extent[j] -= begin[a];
        const std::uint64_t offset = (j < middle.n_active ? begin[a] / 2 : begin[a]) * middle.coarse_stride[j];
        middle.coarse_value += offset;
        middle.coarse_magnitude += offset;
        middle.stride[j] = stride[a];
    }
    for (std::uint32_t j = 0; j < 4; ++j) {
        const std::uint32_t a = field.axis[j];
        const std::uint64_t before = j < field.n_active ? 2 * begin[a] : begin[a];
        field.extent[j] -= before;
        field.coarse_stride[j] = stride[a];
        field.original += before * field.original_stride[j];
        place.origin[j] -= before;
    }
    middle.original = field.original;
    if (!in_middle) return set_place(place, field);
    place.full = false;
    for (std::uint32_t j = 0; j < 4; ++j) {
        const std::uint32_t a = middle.axis[j];
        place.origin[j] = first[a] - begin[a];
        place.edge[j] = static_cast<std::uint32_t>(extent[a]);
    }
    set_place(place, middle);
}

template <class T, TileShape shape>
__global__ void __launch_bounds__(tile_threads, 4) count_spline_kernel(const SplineCountArguments<T> a) {
    auto& shared = shared_memory<CountMemoryOf<T, shape>>();
    const std::size_t any_bytes = any_writing_bytes<T>(a.work.positions);
    std::byte* const own = a.work.scratch + blockIdx.x * (any_bytes + box_bytes<T>(a.positions_of_box));
    auto& any = *reinterpret_cast<AnyWriting<T>*>(own);
    clear_magnitudes(shared.full);
    for (;;) {
        take_ticket(a.work, shared.ticket);
        const Ticket ticket = shared.ticket;
        if (!ticket.exists) break;
        const bool is_box = ticket.lattice == 0 && a.n_boxes > 0;
        for (std::uint32_t j = 0; j < (is_box ? 2 : ticket.n); ++j) {
            const DeviceLattice<T>* lattice = a.work.lattices + ticket.lattice;
            if (is_box) { // first what is in lattice 1
                const std::uint64_t number = sampled(ticket.first, a.n_boxes, a.n_tiles);
                copy_words(shared.field, a.work.lattices[0]);
                copy_words(shared.middle, a.work.lattices[1]);
                __syncthreads();
                if (is_first_thread())
                    set_box<shape>(a.work.lattices, number, reinterpret_cast<T*>(own + any_bytes), a.positions_of_box,
                                   shared.field, shared.middle, shared.place, j == 0);
                lattice = j == 0 ? &shared.middle : &shared.field;
            } else {
                if (ticket.lattice == 0 && !a.sample.counts(ticket.first + j)) continue;
                if (is_first_thread()) set_place<shape>(shared.place, *lattice, ticket.first + j);
            }
            __syncthreads();
            Counting counting{*a.counts, lattice->number, any.coded.item};
            const auto count = [&](auto& memory) { code_tile(shared.place, memory, a.work.cubic, counting); };
            if (shared.place.full)
                count(shared.full);
            else
                count(any.memory);
            __syncthreads();
        }
        if (!is_box) complete(a.work, ticket);
    }
}

template <class T, TileShape shape>
struct WriteMemory {
    FullMemory<T, shape> full;
    TilePlace<T> place;
    Array<TileOutput, max_tiles> outputs;
    ListingTables tables;
    Array<std::uint32_t, warp_lanes> extra_bits;
    TileScratch* scratch; // of the tile that is coded
    std::byte* own;       // the block's scratch memory; here, as registers are short
    Array<std::uint32_t, tile_warps> partial;
    Array<std::uint64_t, tile_warps> wide_partial;
    Ticket ticket;
    std::uint64_t begin, checksum, n_special, n_unpredictable; // begin: unit of the ticket's payloads
};

template <class T, TileShape shape>
__global__ void __launch_bounds__(tile_threads, 4) write_spline_kernel(const SplineWriteArguments<T> a) {
    auto& shared = shared_memory<WriteMemory<T, shape>>();
    clear_magnitudes(shared.full);
    shared.tables.set(*a.tables, a.model->n_tables);
    if (is_first_thread()) shared.own = a.work.scratch + blockIdx.x * spline_writing_bytes<T>(a.work.positions);
    if (is_first_thread()) shared.checksum = shared.n_special = shared.n_unpredictable = 0;
    for (;;) {
        take_ticket(a.work, shared.ticket);
        const Ticket ticket = shared.ticket;
        if (!ticket.exists) break;
        const DeviceLattice<T>& lattice = a.work.lattices[ticket.lattice];
        shared.tables.set_lattice(*a.tables, ticket.lattice);
        auto* const scratch = reinterpret_cast<TileScratch*>(shared.own);
        auto& any = *reinterpret_cast<AnyWriting<T>*>(shared.own + max_tiles * sizeof(TileScratch));
        for (std::uint32_t j = 0; j < ticket.n; ++j) {
            TileOutput& output = shared.outputs[j];
            if (is_first_thread()) {
                set_place<shape>(shared.place, lattice, ticket.first + j);
                shared.scratch = scratch + j;
                output.n_significant = output.n_verbatim = output.n_special = output.extra_bits = 0;
            }
            scratch[j].verbatim[threadIdx.x] = 0;
            __syncthreads();
            Listing listing{*a.tables,      shared.tables,     output,        shared.scratch,
                            shared.partial, shared.extra_bits, any.coded.item};
            const auto list = [&](auto& memory) {
                code_tile(shared.place, memory, a.work.cubic, listing);
                if (is_first_thread()) output.n_values = memory.geometry().coded_points;
            };
            if (shared.place.full)
                list(shared.full);
            else
                list(any.memory);
            if (is_first_thread()) begin_output<T>(output);
            __syncthreads();
        }
        if (warp() == 0) {
            encode<T>(*a.tables, ticket.n, lattice.n_active, shared.outputs, scratch);
            __syncwarp();
            const std::uint64_t units = warp_sum(lane() < ticket.n ? shared.outputs[lane()].units : 0u);
            if (lane() == 0) look_back::publish(a.states, ticket.number, look_back::own_sum | units);
            const std::uint64_t before = look_back::sum_before(a.states, ticket.number);
            if (lane() == 0) {
                look_back::publish(a.states, ticket.number, look_back::sum_to_end | (before + units));
                shared.begin = before;
                if (ticket.number + 1 == a.work.n_tickets) a.result->units = before + units;
            }
        }
        __syncthreads();
        const std::uint64_t before_index = a.model->bytes + a.top_bytes, before_payloads = before_index + a.index_bytes;
        auto* const index = reinterpret_cast<std::uint16_t*>(a.target + before_index);
        auto* const payloads = reinterpret_cast<std::uint16_t*>(a.target + before_payloads);
        const bool has_index = before_payloads <= a.capacity;
        const std::uint64_t capacity = has_index ? (a.capacity - before_payloads) / 2 : 0; // units
        std::uint64_t at = shared.begin;
        for (std::uint32_t j = 0; j < ticket.n; ++j) {
            const TileOutput& output = shared.outputs[j];
            if (is_first_thread()) set_place<shape>(shared.place, lattice, ticket.first + j);
            __syncthreads();
            const std::uint64_t number = shared.place.number;
            const bool fits = has_index && at + output.units <= capacity;
            UnitWriter to(fits ? payloads + at : nullptr);
            if (output.kind == v2::tile_coded) {
                write_coded(shared.place, output, scratch[j], shared.partial, to);
            } else if (output.kind == v2::tile_raw) {
                write_raw(shared.place, any.memory, a.work.cubic, to);
            } else if (output.kind == v2::tile_special && is_first_thread()) {
                to.put(0, v2::tile_special);
            }
            const std::uint64_t sum = block_sum<tile_warps>(to.sum, shared.wide_partial);
            if (is_first_thread()) {
                if (has_index) index[number] = static_cast<std::uint16_t>(output.units);
                shared.checksum += part_of_sum(number, sum, output.units);
                if (output.kind == v2::tile_special) shared.n_special += output.n_values;
                if (output.kind == v2::tile_raw) shared.n_unpredictable += output.n_values;
                if (output.kind == v2::tile_coded) {
                    shared.n_special += output.n_special;
                    shared.n_unpredictable += output.n_verbatim;
                }
            }
            at += output.units;
        }
        complete(a.work, ticket);
    }
    if (!is_first_thread()) return;
    add_to(&a.result->checksum, shared.checksum);
    add_to(&a.result->n_special, shared.n_special);
    add_to(&a.result->n_unpredictable, shared.n_unpredictable);
}

// ---- Decompression: several tiles at a time, 128 threads for each

// More of them would have to do with half as many registers.
inline constexpr std::uint32_t max_tiles_read = 4;

template <class T, TileShape shape>
struct ReadMemory {
    Array<TileReading<T>, max_tiles_read> readings;
    Array<std::uint64_t, max_tiles_read * tile_warps> wide_partial;
    Array<DecoderState, warp_lanes> decoders; // of the warp that decodes
    alignas(4) ContextTables<T, shape> tables;
    std::uint32_t tables_of; // the lattice that they are of
    std::uint32_t large;     // lanes that have decoded symbols with extra bits, or missing ones
    std::byte* own;          // the block's scratch memory; here, as registers are short
    Ticket ticket;
    std::uint64_t checksum;
    Array<FullReading<T, shape>, max_tiles_read> full; // as many as there are
};

template <class T, TileShape shape>
constexpr std::size_t read_memory_bytes(std::uint32_t tiles) {
    return sizeof(ReadMemory<T, shape>) - (max_tiles_read - tiles) * sizeof(FullReading<T, shape>);
}

__device__ inline void report(std::uint64_t* first, std::uint64_t tile, std::uint32_t error) {
    atomicMax(reinterpret_cast<unsigned long long*>(first),
              static_cast<unsigned long long>(~((tile + 1) << 8 | error)));
}

template <class T, TileShape shape>
__global__ void __launch_bounds__(max_tiles_read* tile_threads, 1) read_spline_kernel(const SplineReadArguments<T> a) {
    auto& shared = shared_memory<ReadMemory<T, shape>>();
    const std::uint64_t n_indexed = a.of_index->words;
    if (n_indexed + n_indexed % 2 != a.n_units || a.of_index->index_error != 0) return; // the index must not be used
    const bool has_padding = n_indexed % 2 != 0 && n_indexed < a.end;
    if (blockIdx.x == 0 && is_first_thread() && has_padding && a.payloads[n_indexed] != 0) a.result->bad_padding = 1;
    const std::uint32_t t = tile_of_block(), tiles = blockDim.x / tile_threads;
    const auto any_of = [&](std::uint32_t tile) -> AnyMemory<T>& {
        return *reinterpret_cast<AnyMemory<T>*>(shared.own + tile * any_memory_bytes<T>(a.work.positions));
    };
    TileReading<T>& reading = shared.readings[t];
    const TilePlace<T>& place = reading.place;
    const std::uint16_t* const units = a.payloads;
    if (is_first_thread()) {
        shared.checksum = 0;
        shared.tables_of = UINT32_MAX;
        shared.own = a.work.scratch + std::size_t{blockIdx.x} * tiles * any_memory_bytes<T>(a.work.positions);
    }
    clear_magnitudes(shared.full[t]);
    using Tables = ContextTables<T, shape>;
    for (;;) {
        take_ticket(a.work, shared.ticket);
        const Ticket ticket = shared.ticket;
        if (!ticket.exists) break;
        const DeviceLattice<T>& lattice = a.work.lattices[ticket.lattice];
        const bool has_tile = t < ticket.n;
        if (has_tile && tile_thread() == 0) set_place<shape>(reading.place, lattice, ticket.first + t);
        if (!has_tile && tile_thread() == 0) {
            reading.kind = kind_empty;
            reading.lanes = reading.n_values = reading.n_groups = 0;
            reading.place.low = reading.place.high = 0;
        }
        __syncthreads();
        if (has_tile && tile_warp() == 0) {
            const std::uint64_t first = place.number / tiles_of_start * tiles_of_start;
            const std::uint64_t begin =
                a.starts[place.number / tiles_of_start] +
                warp_sum(first + lane() < place.number ? std::uint32_t{a.index[first + lane()]} : 0u);
            if (lane() == 0) {
                reading.begin = begin;
                reading.end = begin + a.index[place.number];
                read_header(units, reading);
            }
        }
        __syncthreads();
        if (has_tile) {
            const std::uint16_t* const first = units + reading.begin;
            const auto n_units = static_cast<std::uint32_t>(reading.end - reading.begin);
            const std::uint16_t* word = first + 2 * tile_thread();
            std::uint64_t sum = 0;
            std::uint32_t i = tile_thread();
            for (; i < n_units / 2; i += tile_threads, word += 2 * tile_threads)
                sum += std::uint64_t{word[0] | std::uint32_t{word[1]} << 16} * checksum_weight(i);
            if (n_units % 2 != 0 && i == n_units / 2) sum += std::uint64_t{word[0]} * checksum_weight(i);
            const std::uint64_t of_warp = warp_sum(sum);
            if (lane() == 0) shared.wide_partial[warp()] = of_warp;
            if (!legal_positions(units, reading))
                reading.error = static_cast<std::uint32_t>(SplineError::verbatim_position);
        }
        __syncthreads();
        if (has_tile && tile_thread() == 0) {
            std::uint64_t sum = 0;
            for (std::uint32_t w = 0; w < tile_warps; ++w) sum += shared.wide_partial[t * tile_warps + w];
            add_to(&shared.checksum, part_of_sum(place.number, sum, reading.end - reading.begin));
            if (reading.error != static_cast<std::uint32_t>(SplineError::none)) {
                reading.kind = kind_empty;
                reading.lanes = reading.n_verbatim = reading.n_extra = 0;
            }
        }
        if (!a.decodes) continue; // as on the CPU, no more than the checksum is verified
        __syncthreads();

        const bool full = place.full;
        const auto with_tile = [&](const auto& use) {
            if (!has_tile) return;
            if (full)
                use(shared.full[t]);
            else
                use(any_of(t));
        };
        std::uint32_t borders = 0; // axes along which some of the tiles are to be continued
        for (std::uint32_t j = 0; j < tiles; ++j)
            borders |= shared.readings[j].place.low | shared.readings[j].place.high;
        const auto continue_all = [&](std::uint32_t phase) {
            for_axes(borders, [&](auto axis) {
                __syncthreads();
                with_tile([&](auto& memory) { continue_phase_along(place, memory, phase, axis); });
            });
            __syncthreads();
        };
        if (warp() == 0) {
            RansDecoder decoder(*a.tables);
            bool good = true;
            if (tile_of_warp() < tiles) {
                const TileReading<T>& of_lane = shared.readings[tile_of_warp()];
                good = decoder.begin(units, a.end, of_lane.rest, of_lane.end, of_lane.lanes);
            }
            shared.decoders[lane()] = decoder.state();
            if (!good) shared.readings[tile_of_warp()].error = static_cast<std::uint32_t>(SplineError::words);
        }
        if (has_tile && !full && tile_thread() == 0) any_of(t).tile.set(lattice, place.edge);
        const bool has_any = __syncthreads_or(has_tile && !full) != 0; // a tile of another shape
        with_tile([&](auto& memory) { load_coarse(place, memory); });
        continue_all(0);
        with_tile([&](auto& memory) {
            sum_parents(memory);
            put_coarse(place, memory);
        });
        bool patches = has_tile && ticket.lattice > 0 && raw_has_to_be_patched(reading, units);
        std::uint32_t first_value = 0; // of the phase, in a raw tile
        for (std::uint32_t phase = 1; phase <= lattice.n_active; ++phase) {
            if (has_tile && !full) {
                AnyMemory<T>& memory = any_of(t);
                for (std::uint32_t i = tile_thread(); i < memory.tile.groups_of_phase(phase); i += tile_threads)
                    memory.sum(i) = 0;
            }
            if (ticket.lattice != shared.tables_of || (Tables::phases == 1 && lattice.n_active > 1))
                shared.tables.set(*a.tables, lattice.number, Tables::phases == 1 ? phase : 1);
            __syncthreads();
            if (is_first_thread()) shared.tables_of = ticket.lattice;
            for (std::uint32_t part = 0; part < (FullTile<T, shape>::in_place ? 2 : 1); ++part) {
                with_tile([&](auto& memory) {
                    predict_phase(reading, memory, phase, a.work.cubic, shared.tables, *a.tables, part == 1);
                    if (tile_thread() == 0) reading.n_groups = memory.geometry().groups_of_phase(phase);
                });
                __syncthreads();
            }
            if (warp() == 0) { // each lane for its tile
                RansDecoder decoder(*a.tables, shared.decoders[lane()]);
                const std::uint32_t mine = tile_of_warp() < tiles ? tile_of_warp() : 0;
                TileReading<T>& of_lane = shared.readings[mine];
                const bool is_full = of_lane.place.full;
                decoder.flags(
                    of_lane.n_groups,
                    [&](std::uint32_t g) {
                        return is_full ? std::uint32_t{shared.full[mine].sum(g)} : any_of(mine).sum(g);
                    },
                    is_full ? shared.full[mine].significant_flags.item : any_of(mine).significant_flags.item);
                shared.decoders[lane()] = decoder.state();
                __syncwarp();
                if (lane_of_tile() == 0 && tile_of_warp() < tiles && of_lane.lanes > 0)
                    of_lane.n_values =
                        is_full ? find_symbols(shared.full[mine], phase) : find_symbols(any_of(mine), phase);
            }
            __syncthreads();
            const bool codes = has_tile && reading.kind == v2::tile_coded;
            if (codes || (has_tile && reading.kind == kind_empty))
                with_tile([&](auto& memory) { gather_tables(reading, memory, phase); });
            if (has_any) __syncthreads();
            if (warp() == 0) {
                RansDecoder decoder(*a.tables, shared.decoders[lane()]);
                const std::uint32_t mine = tile_of_warp() < tiles ? tile_of_warp() : 0;
                TileReading<T>& of_lane = shared.readings[mine];
                const bool is_full = of_lane.place.full;
                const std::uint32_t bits = decoder.symbols(
                    of_lane.n_values, is_full ? shared.full[mine].places.item : any_of(mine).places.item,
                    is_full ? shared.full[mine].orders.item : any_of(mine).symbols.item);
                shared.decoders[lane()] = decoder.state();
                const std::uint32_t large = __ballot_sync(whole_warp, !is_direct(bits));
                if (lane() == 0) shared.large = large;
            }
            __syncthreads();
            if (has_any) {
                if (codes) with_tile([&](auto& memory) { spread_symbols(memory, phase); });
                __syncthreads();
            }
            if (shared.large != 0) {
                const bool large = (shared.large >> t * v2::max_lanes & ((1u << v2::max_lanes) - 1)) != 0;
                ExtraBits own;
                std::uint32_t all_bits;
                if (large) with_tile([&](auto& memory) { own = count_extra_bits(memory, phase); });
                const std::uint32_t before = sum_of_threads_before(own.bits, reading.partial, all_bits);
                if (own.symbols)
                    with_tile([&](auto& memory) { read_codes(reading, memory, phase, units, a.end, before); });
                __syncthreads();
                if (tile_thread() == 0) reading.extra_at += all_bits;
            }
            with_tile([&](auto& memory) { reconstruct_phase(reading, memory, phase, units, first_value); });
            __syncthreads();
            with_tile([&](auto& memory) {
                patches |= put_verbatim(reading, memory, phase, units);
                first_value += memory.geometry().points_of_phase(phase);
            });
            __syncthreads();
            if (phase < lattice.n_active) continue_all(phase);
        }
        if (warp() == 0 && !RansDecoder(*a.tables, shared.decoders[lane()]).finished())
            shared.readings[tile_of_warp()].error = static_cast<std::uint32_t>(SplineError::words);
        __syncthreads();
        if (has_tile && tile_thread() == 0) {
            if (reading.kind == v2::tile_coded && reading.error == 0 && !extra_bits_end(reading, units))
                reading.error = static_cast<std::uint32_t>(SplineError::words);
            if (reading.error != 0) report(&a.result->error, place.number, reading.error);
        }
        if (patches && ticket.lattice > 0) a.result->has_patches = 1;
        complete(a.work, ticket);
    }
    if (is_first_thread()) add_to(&a.result->checksum, shared.checksum);
}

template <class T>
struct PatchMemory {
    TileReading<T> reading;
    AnyTile tile;
};

// Puts values that are not finite into the field, or whatever the lattices' `decoded` and `original_stride` say: those
// that are stored as they are in coarser lattices, or the top.
template <class T>
__global__ void __launch_bounds__(tile_threads, 8) patch_spline_kernel(const SplineReadArguments<T> a) {
    auto& shared = shared_memory<PatchMemory<T>>();
    TileReading<T>& reading = shared.reading;
    const DeviceLattice<T>& top = a.work.lattices[a.work.last + 1];
    const std::uint64_t n = top.extent[0] * top.extent[1] * top.extent[2] * top.extent[3];
    for (std::uint64_t j = std::uint64_t{blockIdx.x} * tile_threads + threadIdx.x; j < n;
         j += std::uint64_t{gridDim.x} * tile_threads) {
        if (!has_to_be_patched<T>(bits_of(top.top[j]), top.quantiser)) continue;
        std::uint64_t rest = j, offset = 0;
        for (std::uint32_t axis = 0; axis < 4; ++axis) {
            offset += rest % top.extent[axis] * top.original_stride[axis];
            rest /= top.extent[axis];
        }
        top.decoded[offset] = top.top[j];
    }
    for (std::uint32_t i = 1; i <= a.work.last; ++i) {
        const DeviceLattice<T>& lattice = a.work.lattices[i];
        const auto put = [&](std::uint32_t c, const Point& p, typename Traits<T>::Bits bits) {
            if (!has_to_be_patched<T>(bits, lattice.quantiser)) return;
            const std::uint64_t offset =
                offset_of(reading.place, reading.place.original, c, p, lattice.original_stride);
            lattice.decoded[offset] = std::bit_cast<T>(bits);
        };
        for (std::uint64_t tile = lattice.begin + blockIdx.x; tile < lattice.end; tile += gridDim.x) {
            __syncthreads();
            if (is_first_thread()) {
                set_place<TileShape::any>(reading.place, lattice, tile);
                const std::uint64_t number = reading.place.number, first = number / tiles_of_start * tiles_of_start;
                reading.begin = a.starts[number / tiles_of_start];
                for (std::uint64_t before = first; before < number; ++before) reading.begin += a.index[before];
                reading.end = reading.begin + a.index[number];
                read_header(a.payloads, reading);
            }
            __syncthreads();
            for (std::uint32_t j = tile_thread(); j < reading.n_verbatim; j += tile_threads) {
                Point p;
                const std::uint32_t c = class_at(reading.place, a.payloads[reading.verbatim + j], p);
                put(c, p,
                    value_at<T>(a.payloads,
                                reading.verbatim + reading.n_verbatim + std::uint64_t{j} * v2::units_of_value<T>));
            }
            if (reading.kind != v2::tile_raw) continue;
            if (is_first_thread()) shared.tile.set(lattice, reading.place.edge);
            __syncthreads();
            const AnyTile& g = shared.tile;
            std::uint32_t first = 0;
            for (std::uint32_t phase = 1; phase <= lattice.n_active; ++phase) {
                g.for_classes(phase, [&](std::uint32_t c) {
                    g.for_points(c, [&](const Point& p, std::uint32_t) {
                        put(c, p,
                            value_at<T>(a.payloads,
                                        reading.rest + std::uint64_t{first + p.order} * v2::units_of_value<T>));
                    });
                });
                first += g.points_of_phase(phase);
            }
        }
    }
}

// ---- The points of a lattice, by themselves

template <class T>
__global__ void __launch_bounds__(256) gather_kernel(const GatherArguments<T> a) {
    const std::uint64_t n = a.extent[0] * a.extent[1] * a.extent[2] * a.extent[3];
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
         i += std::uint64_t{gridDim.x} * blockDim.x) {
        std::uint64_t rest = i, from = 0, to = 0;
        for (std::uint32_t axis = 0; axis < 4; ++axis) {
            const std::uint64_t x = rest % a.extent[axis];
            rest /= a.extent[axis];
            from += x * a.from_stride[axis];
            to += x * a.to_stride[axis];
        }
        a.to[to] = a.from[from];
    }
}

// ---- Launches

namespace {

template <class Use>
void with_axes(std::uint32_t n_active, const Use& use) {
    switch (n_active) {
    case 1: return use(std::integral_constant<TileShape, TileShape::line>{});
    case 2: return use(std::integral_constant<TileShape, TileShape::square>{});
    default: return use(std::integral_constant<TileShape, TileShape::box>{});
    }
}

} // namespace

std::uint32_t positions_of_tile(const Lattice& lattice) {
    std::uint32_t positions = 0;
    for (std::uint32_t c = 0; c < 1u << lattice.n_active; ++c) {
        std::uint32_t of_class = 1;
        for (std::uint32_t a = 0; a < 4; ++a) {
            const bool active = a < lattice.n_active, odd = (c >> a & 1) != 0;
            of_class *= active ? (lattice.edge[a] + !odd) / 2 + (odd ? 0 : 3) : lattice.edge[a];
        }
        positions += of_class;
    }
    return positions;
}

template <class T>
SplinePlan plan_spline(SplineKernel kernel, std::uint32_t n_axes, std::uint32_t positions,
                       std::uint32_t positions_of_box) {
    SplinePlan plan{0, 1, 0};
    with_axes(n_axes, [&]<TileShape shape>(std::integral_constant<TileShape, shape>) {
        const Device device = Device::current();
        const auto at_once = [&](int of_processor) {
            return static_cast<std::uint32_t>(of_processor) * static_cast<std::uint32_t>(device.processors);
        };
        if (kernel == SplineKernel::count) {
            plan.blocks = at_once(blocks_of_processor<count_spline_kernel<T, shape>>(device, tile_threads,
                                                                                     sizeof(CountMemoryOf<T, shape>)));
            plan.scratch_bytes = any_writing_bytes<T>(positions) + box_bytes<T>(positions_of_box);
        } else if (kernel == SplineKernel::write) {
            plan.blocks = at_once(blocks_of_processor<write_spline_kernel<T, shape>>(device, tile_threads,
                                                                                     sizeof(WriteMemory<T, shape>)));
            plan.scratch_bytes = spline_writing_bytes<T>(positions);
        } else {
            int max_bytes = 0;
            CUSZ_CUDA(cudaDeviceGetAttribute(&max_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.number));
            const std::size_t left = static_cast<std::size_t>(max_bytes) - read_memory_bytes<T, shape>(0);
            plan.tiles_of_block = static_cast<std::uint32_t>(
                std::clamp<std::size_t>(left / sizeof(FullReading<T, shape>), 1, max_tiles_read));
            plan.blocks = at_once(blocks_of_processor<read_spline_kernel<T, shape>>(
                device, plan.tiles_of_block * tile_threads, read_memory_bytes<T, shape>(plan.tiles_of_block)));
            plan.scratch_bytes = plan.tiles_of_block * any_memory_bytes<T>(positions);
        }
    });
    return plan;
}

template <class T>
void count_spline(const SplineCountArguments<T>& a, std::uint32_t n_axes, std::uint32_t blocks, cudaStream_t stream) {
    with_axes(n_axes, [&]<TileShape shape>(std::integral_constant<TileShape, shape>) {
        launch<count_spline_kernel<T, shape>>(a, tile_threads, sizeof(CountMemoryOf<T, shape>), blocks, true, stream);
    });
}

template <class T>
void write_spline(const SplineWriteArguments<T>& a, std::uint32_t n_axes, std::uint32_t blocks, cudaStream_t stream) {
    with_axes(n_axes, [&]<TileShape shape>(std::integral_constant<TileShape, shape>) {
        launch<write_spline_kernel<T, shape>>(a, tile_threads, sizeof(WriteMemory<T, shape>), blocks, true, stream);
    });
}

template <class T>
void read_spline(const SplineReadArguments<T>& a, std::uint32_t n_axes, std::uint32_t blocks, cudaStream_t stream) {
    with_axes(n_axes, [&]<TileShape shape>(std::integral_constant<TileShape, shape>) {
        launch<read_spline_kernel<T, shape>>(a, a.work.tiles_of_block * tile_threads,
                                             read_memory_bytes<T, shape>(a.work.tiles_of_block), blocks, true, stream);
    });
}

template <class T>
void patch_spline(const SplineReadArguments<T>& a, cudaStream_t stream) {
    launch<patch_spline_kernel<T>>(a, tile_threads, sizeof(PatchMemory<T>), UINT32_MAX, false, stream);
}

template <class T>
void gather(const GatherArguments<T>& a, cudaStream_t stream) {
    const std::uint64_t n = a.extent[0] * a.extent[1] * a.extent[2] * a.extent[3];
    launch<gather_kernel<T>>(a, 256, 0, (n + 255) / 256, false, stream);
}

template SplinePlan plan_spline<float>(SplineKernel, std::uint32_t, std::uint32_t, std::uint32_t);
template SplinePlan plan_spline<double>(SplineKernel, std::uint32_t, std::uint32_t, std::uint32_t);
template void count_spline(const SplineCountArguments<float>&, std::uint32_t, std::uint32_t, cudaStream_t);
template void count_spline(const SplineCountArguments<double>&, std::uint32_t, std::uint32_t, cudaStream_t);
template void write_spline(const SplineWriteArguments<float>&, std::uint32_t, std::uint32_t, cudaStream_t);
template void write_spline(const SplineWriteArguments<double>&, std::uint32_t, std::uint32_t, cudaStream_t);
template void read_spline(const SplineReadArguments<float>&, std::uint32_t, std::uint32_t, cudaStream_t);
template void read_spline(const SplineReadArguments<double>&, std::uint32_t, std::uint32_t, cudaStream_t);
template void patch_spline(const SplineReadArguments<float>&, cudaStream_t);
template void patch_spline(const SplineReadArguments<double>&, cudaStream_t);
template void gather(const GatherArguments<float>&, cudaStream_t);
template void gather(const GatherArguments<double>&, cudaStream_t);

} // namespace cusz::cuda
