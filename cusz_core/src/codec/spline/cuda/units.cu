// Units, from payloads to codes and back: one warp per unit, or per tile when tiles are recorded.
#include "launches.cuh"
#include "reading.cuh"
#include "recording.cuh"
#include "writing.cuh"

namespace cusz::cuda {

// The weighted sum of a unit's words (archive/checksum.hpp), which are copied if there is a target; by a warp.
__device__ inline std::uint64_t weigh_unit(const std::uint16_t* units, std::uint32_t n, std::uint16_t* target) {
    std::uint64_t sum = 0;
#pragma unroll 4
    for (std::uint32_t i = lane(); 2 * i < n; i += warp_lanes) {
        const std::uint32_t low = units[2 * i], high = 2 * i + 1 < n ? units[2 * i + 1] : 0;
        sum += std::uint64_t{low | high << 16} * checksum_weight(i);
        if (target == nullptr) continue;
        target[2 * i] = static_cast<std::uint16_t>(low);
        if (2 * i + 1 < n) target[2 * i + 1] = static_cast<std::uint16_t>(high);
    }
    return warp_sum(sum);
}

template <std::uint32_t axes, bool fits>
struct ReadMemory {
    static constexpr std::uint32_t warps = fits ? 4 : 2;
    ReadTables tables;
    Array<UnitMemory<axes, fits>, warps> unit;
};

template <std::uint32_t axes, bool fits>
__global__ void __launch_bounds__(ReadMemory<axes, fits>::warps* warp_lanes, blocks_at_once)
    read_kernel(const ReadArguments a) {
    constexpr std::uint32_t warps = ReadMemory<axes, fits>::warps, threads = warps * warp_lanes;
    auto& shared = shared_memory<ReadMemory<axes, fits>>();
    for (std::uint32_t i = threadIdx.x; i < 3 * 128; i += threads) shared.tables.table_of[i] = a.table_of[i];
    for (std::uint32_t i = threadIdx.x; i < v2::n_group_contexts; i += threads)
        shared.tables.flag_frequency[i] = a.flag_frequency[i];
    __syncthreads();
    for (std::uint32_t number = blockIdx.x * warps + warp(); number < a.n_units; number += gridDim.x * warps) {
        const UnitPlace unit = a.of.units[number];
        const std::uint64_t sum = weigh_unit(a.of.payloads + unit.begin, unit.n, nullptr);
        if (lane() == 0) add(&a.result->checksum[a.lattice], part_of_sum(number, sum, (unit.n + 1) / 2));
        __syncwarp();
        const UnitError error = read_unit(a, shared.tables, number, shared.unit[warp()]);
        if (error != UnitError::none && lane() == 0) report(&a.result->error, a.first_unit + number, error);
    }
}

template <std::uint32_t axes, bool fits>
struct RecordMemory {
    static constexpr std::uint32_t warps = fits ? 4 : 2;
    CountMemory counts;
    Array<TileMemory<axes, fits>, warps> tile;
};

template <std::uint32_t axes, bool fits>
__global__ void __launch_bounds__(RecordMemory<axes, fits>::warps* warp_lanes, blocks_at_once)
    record_kernel(const RecordArguments a) {
    constexpr std::uint32_t warps = RecordMemory<axes, fits>::warps, threads = warps * warp_lanes;
    auto& shared = shared_memory<RecordMemory<axes, fits>>();
    CountMemory& counts = shared.counts;
    for (std::uint32_t i = threadIdx.x; i < CountMemory::contexts; i += threads) {
        counts.size[i] = 0;
        counts.n[i] = counts.special[i] = counts.verbatim[i] = 0;
        if (i < 2 * v2::n_group_contexts) counts.groups[i] = 0;
    }
    __syncthreads();
    auto& own = shared.tile[warp()];
    for (std::uint64_t number = blockIdx.x * warps + warp(); number < a.of.lattice.n_tiles;
         number += gridDim.x * warps) {
        if (a.tiles[number].live == 0) continue; // nobody looks at the rest of its record
        __syncwarp();
        if (lane() == 0) own.place = place_of(a.of, number);
        __syncwarp();
        const TileRecord result = with_form<axes, fits>(
            own.place, [&](const auto& tile) { return record_tile(a, tile, a.sample.counts(number), counts, own); });
        if (lane() == 0) a.tiles[number] = result;
    }
    __syncthreads();
    const std::uint32_t first = v2::row_of(a.lattice, 1) * v2::n_places;
    for (std::uint32_t i = threadIdx.x; i < axes * v2::n_places; i += threads) {
        add(&a.counts->n[first + i], counts.n[i]);
        add(&a.counts->size[first + i], counts.size[i]);
        add(&a.counts->missing[first + i][0], counts.special[i]);
        add(&a.counts->missing[first + i][1], counts.verbatim[i]);
    }
    for (std::uint32_t i = threadIdx.x; i < 2 * v2::n_group_contexts; i += threads)
        add(&a.counts->groups[a.lattice == 0 ? 1 : 0][i / 2][i % 2], counts.groups[i]);
}

template <std::uint32_t axes, bool fits>
struct WriteMemory {
    static constexpr std::uint32_t warps = fits ? 4 : 2;
    WriteTables tables;
    Array<WriteUnitMemory<axes, fits>, warps> unit;
};

template <std::uint32_t axes, bool fits>
__global__ void __launch_bounds__(WriteMemory<axes, fits>::warps* warp_lanes, blocks_at_once + 1)
    write_kernel(const WriteArguments a) {
    constexpr std::uint32_t warps = WriteMemory<axes, fits>::warps, threads = warps * warp_lanes;
    auto& shared = shared_memory<WriteMemory<axes, fits>>();
    for (std::uint32_t i = threadIdx.x; i < 3 * 128; i += threads)
        shared.tables.table_of[i] = static_cast<std::uint16_t>(a.table_of[i] | a.reach[i] << 8);
    for (std::uint32_t i = threadIdx.x; i < v2::n_group_contexts; i += threads)
        shared.tables.flag_table[i] = a.flag_table[i];
    __syncthreads();
    for (std::uint32_t number = blockIdx.x * warps + warp(); number < a.n_units; number += gridDim.x * warps) {
        const UnitPlace unit = write_unit(a, shared.tables, number, shared.unit[warp()]);
        if (lane() == 0) a.units[number] = unit;
    }
}

__global__ void __launch_bounds__(tile_threads) gather_kernel(const GatherArguments a) {
    constexpr std::uint32_t warps = tile_threads / warp_lanes;
    for (std::uint32_t number = blockIdx.x * warps + warp(); number < a.n_units; number += gridDim.x * warps) {
        const UnitPlace unit = a.units[number];
        const std::uint64_t sum = weigh_unit(a.payloads + unit.begin, unit.n, a.target + a.to[number]);
        if (lane() == 0) add(a.checksum, part_of_sum(number, sum, (unit.n + 1) / 2));
    }
}

void read_units(const ReadArguments& a, cudaStream_t stream) {
    with_axes_and_fit(a.of.lattice, [&]<std::uint32_t axes, bool does_fit>(Class<axes>, std::bool_constant<does_fit>) {
        using Memory = ReadMemory<axes, does_fit>;
        launch<read_kernel<axes, does_fit>>(a, Memory::warps * warp_lanes, sizeof(Memory),
                                            blocks_for(a.n_units, Memory::warps), false, stream);
    });
}

void record_tiles(const RecordArguments& a, cudaStream_t stream) {
    with_axes_and_fit(a.of.lattice, [&]<std::uint32_t axes, bool does_fit>(Class<axes>, std::bool_constant<does_fit>) {
        using Memory = RecordMemory<axes, does_fit>;
        launch<record_kernel<axes, does_fit>>(a, Memory::warps * warp_lanes, sizeof(Memory),
                                              blocks_for(a.of.lattice.n_tiles, Memory::warps), false, stream);
    });
}

void write_units(const WriteArguments& a, cudaStream_t stream) {
    with_axes_and_fit(a.of.lattice, [&]<std::uint32_t axes, bool does_fit>(Class<axes>, std::bool_constant<does_fit>) {
        using Memory = WriteMemory<axes, does_fit>;
        launch<write_kernel<axes, does_fit>>(a, Memory::warps * warp_lanes, sizeof(Memory),
                                             blocks_for(a.n_units, Memory::warps), false, stream);
    });
}

void gather_units(const GatherArguments& a, cudaStream_t stream) {
    launch<gather_kernel>(a, tile_threads, 0, blocks_for(a.n_units, tile_threads / warp_lanes), false, stream);
}

} // namespace cusz::cuda
