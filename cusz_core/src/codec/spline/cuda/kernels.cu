// The spline codec's kernels, built from the stages in the files beside this one.
#include "kernels.hpp"

#include <algorithm>
#include <type_traits>

#include "device/launch.cuh"
#include "reading.cuh"

namespace cusz::cuda {

namespace {

// Parts of dynamic shared memory: of a known type, and what comes behind.
template <class Known>
inline constexpr std::size_t rest_at = (sizeof(Known) + 15) / 16 * 16;
template <class T, class Known>
__device__ T* rest_of(Known& shared) {
    return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(&shared) + rest_at<Known>);
}

bool fits(const Lattice& lattice) {
    bool fits = true;
    for (std::size_t a = 0; a < 4; ++a) fits = fits && lattice.edge[a] <= tile_edges(lattice.n_active)[a];
    return fits;
}

template <class Use>
void with_axes(const Lattice& lattice, const Use& use) {
    if (lattice.n_active == 1) return use(Class<1>{});
    if (lattice.n_active == 2) return use(Class<2>{});
    use(Class<3>{});
}

} // namespace

template <class T, std::uint32_t axes>
__global__ void __launch_bounds__(tile_threads) fixed_kernel(const DeviceLattice<T> of) {
    auto& shared = shared_memory<FixedMemory>();
    for (std::uint64_t number = blockIdx.x; number < of.lattice.n_tiles; number += gridDim.x) {
        __syncthreads();
        if (is_first_thread()) shared.place = place_of(of, number);
        __syncthreads();
        if (shared.place.live == 0) continue;
        with_form<axes>(shared.place,
                        [&](const auto& tile) { find_fixed_contexts_of(of, tile, shared.place, rest_of<T>(shared)); });
    }
}

template <class T, std::uint32_t axes, bool wide>
__global__ void __launch_bounds__(tile_threads) value_kernel(const DeviceLattice<T> of) {
    auto& shared = shared_memory<ValueMemory>();
    for (std::uint64_t number = blockIdx.x; number < of.lattice.n_tiles; number += gridDim.x) {
        __syncthreads();
        if (is_first_thread()) {
            shared.place = place_of(of, number);
            shared.any_missing = 0;
        }
        __syncthreads();
        with_form<axes>(shared.place,
                        [&](const auto& tile) { find_values_of<wide>(of, tile, shared, rest_of<T>(shared)); });
    }
}

template <std::uint32_t axes, bool fits>
struct ReadMemory {
    static constexpr std::uint32_t warps = fits ? 4 : 2;
    ReadTables tables;
    Array<UnitMemory<axes, fits>, warps> unit;
};

template <class T, std::uint32_t axes, bool fits>
__global__ void __launch_bounds__(ReadMemory<axes, fits>::warps* warp_lanes) read_kernel(const ReadArguments<T> a) {
    constexpr std::uint32_t warps = ReadMemory<axes, fits>::warps, threads = warps * warp_lanes;
    auto& shared = shared_memory<ReadMemory<axes, fits>>();
    for (std::uint32_t i = threadIdx.x; i < 3 * 128; i += threads) shared.tables.table_of[i] = a.table_of[i];
    for (std::uint32_t i = threadIdx.x; i < v2::n_group_contexts; i += threads)
        shared.tables.flag_frequency[i] = a.flag_frequency[i];
    __syncthreads();
    for (std::uint32_t number = blockIdx.x * warps + warp(); number < a.n_units; number += gridDim.x * warps) {
        const UnitPlace unit = a.of.units[number];
        const std::uint16_t* const words = a.of.payloads + unit.begin;
        std::uint64_t sum = 0;
        for (std::uint32_t i = lane(); 2 * i < unit.n; i += warp_lanes) {
            const std::uint32_t high = 2 * i + 1 < unit.n ? words[2 * i + 1] : 0;
            sum += std::uint64_t{words[2 * i] | high << 16} * checksum_weight(i);
        }
        sum = warp_sum(sum);
        if (lane() == 0)
            atomicAdd(reinterpret_cast<unsigned long long*>(&a.result->checksum[a.lattice]),
                      static_cast<unsigned long long>(part_of_sum(number, sum, (unit.n + 1) / 2)));
        if (!a.decode) continue;
        __syncwarp();
        const UnitError error = read_unit(a, shared.tables, number, shared.unit[warp()]);
        if (error != UnitError::none && lane() == 0)
            atomicMax(reinterpret_cast<unsigned long long*>(&a.result->error),
                      static_cast<unsigned long long>(
                          ~((a.first_unit + number + 1) << 8 | static_cast<std::uint32_t>(error))));
    }
}

template <class T>
__global__ void __launch_bounds__(tile_threads) put_kernel(const PutArguments<T> a) {
    for (std::uint32_t i = blockIdx.x * tile_threads + threadIdx.x; i < a.n; i += gridDim.x * tile_threads)
        a.field[a.values[i].at] = std::bit_cast<T>(a.values[i].bits);
}

// ---- Launches

template <class T>
std::size_t value_memory_bytes(const Lattice& lattice, v2::Curve curve) {
    return rest_at<ValueMemory> + value_bytes<T>(lattice.edge, lattice.n_active, curve);
}

std::size_t max_shared_bytes() {
    int bytes = 0;
    CUSZ_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, Device::current().number));
    return static_cast<std::size_t>(bytes);
}

template <class T>
void find_fixed_contexts(const DeviceLattice<T>& of, cudaStream_t stream) {
    with_axes(of.lattice, [&]<std::uint32_t axes>(Class<axes>) {
        const std::size_t bytes = rest_at<FixedMemory> + fixed_bytes<T>(of.lattice.edge, axes);
        launch<fixed_kernel<T, axes>>(of, tile_threads, bytes, of.lattice.n_tiles, false, stream);
    });
}

template <class T>
void read_units(const ReadArguments<T>& a, cudaStream_t stream) {
    with_axes(a.of.lattice, [&]<std::uint32_t axes>(Class<axes>) {
        const auto with = [&]<bool does_fit>(std::bool_constant<does_fit>) {
            using Memory = ReadMemory<axes, does_fit>;
            const std::uint64_t parts = (a.n_units + Memory::warps - 1) / Memory::warps;
            launch<read_kernel<T, axes, does_fit>>(a, Memory::warps * warp_lanes, sizeof(Memory), parts, false, stream);
        };
        if (fits(a.of.lattice)) return with(std::true_type{});
        with(std::false_type{});
    });
}

template <class T>
void find_values(const DeviceLattice<T>& of, cudaStream_t stream) {
    with_axes(of.lattice, [&]<std::uint32_t axes>(Class<axes>) {
        const std::size_t bytes = value_memory_bytes<T>(of.lattice, of.curve);
        if (of.curve >= v2::Curve::six_points)
            launch<value_kernel<T, axes, true>>(of, tile_threads, bytes, of.lattice.n_tiles, false, stream);
        else
            launch<value_kernel<T, axes, false>>(of, tile_threads, bytes, of.lattice.n_tiles, false, stream);
    });
}

template <class T>
void put_values(const PutArguments<T>& a, cudaStream_t stream) {
    launch<put_kernel<T>>(a, tile_threads, 0, (a.n + tile_threads - 1) / tile_threads, false, stream);
}

template std::size_t value_memory_bytes<float>(const Lattice&, v2::Curve);
template std::size_t value_memory_bytes<double>(const Lattice&, v2::Curve);
template void find_fixed_contexts(const DeviceLattice<float>&, cudaStream_t);
template void find_fixed_contexts(const DeviceLattice<double>&, cudaStream_t);
template void read_units(const ReadArguments<float>&, cudaStream_t);
template void read_units(const ReadArguments<double>&, cudaStream_t);
template void find_values(const DeviceLattice<float>&, cudaStream_t);
template void find_values(const DeviceLattice<double>&, cudaStream_t);
template void put_values(const PutArguments<float>&, cudaStream_t);
template void put_values(const PutArguments<double>&, cudaStream_t);

} // namespace cusz::cuda
