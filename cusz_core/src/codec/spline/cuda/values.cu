// Values of points and, when encoding, their codes: one block per tile.
#include "launches.cuh"
#include "prediction.cuh"

namespace cusz::cuda {

template <class T>
struct ValueArguments {
    DeviceLattice<T> of;
    TileRecord* tiles; // when encoding; else null, as counts
    RecordCounts* counts;
};

// Blocks per multiprocessor that may share its registers: as many as fit its shared memory.
template <class T, std::uint32_t axes, bool wide>
constexpr int blocks_with_room = axes < 3 ? blocks_at_once : (sizeof(T) == 8 ? 3 : blocks_at_once) - 2 * wide;

// Encodes or decodes: a kernel for both would be too large for the compiler to inline all of it.
template <class T, std::uint32_t axes, bool wide, bool codes>
__global__ void __launch_bounds__(tile_threads, blocks_with_room<T, axes, wide>)
    value_kernel(const ValueArguments<T> a) {
    const DeviceLattice<T>& of = a.of;
    RecordCounts* const counts = a.counts;
    auto& shared = shared_memory<ValueMemory>();
    if (is_first_thread()) shared.n_missing[0] = shared.n_missing[1] = 0;
    for (std::uint64_t number = blockIdx.x; number < of.lattice.n_tiles; number += gridDim.x) {
        __syncthreads();
        if (is_first_thread()) {
            shared.place = place_of(of, number);
            shared.any_missing = shared.is_live = 0;
        }
        __syncthreads();
        with_form<axes>(shared.place, [&](const auto& tile) {
            T* const value = rest_of<T>(shared);
            if constexpr (codes) {
                const CodePoint<T> point(of, shared.n_missing);
                find_values_of<wide>(of, tile, shared, value, point);
                if (point.any_code()) shared.is_live = 1;
            } else {
                find_values_of<wide>(of, tile, shared, value, DecodePoint<T>{of, shared.place.live != 0});
            }
        });
        if (!codes) continue;
        __syncthreads();
        if (is_first_thread()) a.tiles[number].live = shared.is_live;
    }
    __syncthreads();
    if (!codes || !is_first_thread()) return;
    add(&counts->n_special, shared.n_missing[0]);
    add(&counts->n_verbatim, shared.n_missing[1]);
}

template <class T>
__global__ void __launch_bounds__(tile_threads) put_kernel(const PutArguments<T> a) {
    for (std::uint32_t i = blockIdx.x * tile_threads + threadIdx.x; i < a.n; i += gridDim.x * tile_threads)
        a.field[a.values[i].at] = std::bit_cast<T>(a.values[i].bits);
}

template <class T>
std::size_t value_memory_bytes(const Lattice& lattice, v2::Curve curve) {
    return rest_at<ValueMemory> + value_bytes<T>(lattice.edge, lattice.n_active, curve);
}

namespace {

template <bool codes, class T>
void launch_values(const DeviceLattice<T>& of, TileRecord* tiles, RecordCounts* counts, cudaStream_t stream) {
    with_axes(of.lattice, [&]<std::uint32_t axes>(Class<axes>) {
        const std::size_t bytes = value_memory_bytes<T>(of.lattice, of.curve);
        const ValueArguments<T> a{of, tiles, counts};
        if (of.curve >= v2::Curve::six_points)
            launch<value_kernel<T, axes, true, codes>>(a, tile_threads, bytes, of.lattice.n_tiles, false, stream);
        else
            launch<value_kernel<T, axes, false, codes>>(a, tile_threads, bytes, of.lattice.n_tiles, false, stream);
    });
}

} // namespace

template <class T>
void find_values(const DeviceLattice<T>& of, cudaStream_t stream) {
    launch_values<false, T>(of, nullptr, nullptr, stream);
}

template <class T>
void find_codes(const DeviceLattice<T>& of, TileRecord* tiles, RecordCounts* counts, cudaStream_t stream) {
    launch_values<true, T>(of, tiles, counts, stream);
}

template <class T>
void put_values(const PutArguments<T>& a, cudaStream_t stream) {
    launch<put_kernel<T>>(a, tile_threads, 0, (a.n + tile_threads - 1) / tile_threads, false, stream);
}

std::size_t max_shared_bytes() {
    int bytes = 0;
    CUSZ_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, Device::current().number));
    return static_cast<std::size_t>(bytes);
}

template std::size_t value_memory_bytes<float>(const Lattice&, v2::Curve);
template std::size_t value_memory_bytes<double>(const Lattice&, v2::Curve);
template void find_values(const DeviceLattice<float>&, cudaStream_t);
template void find_values(const DeviceLattice<double>&, cudaStream_t);
template void find_codes(const DeviceLattice<float>&, TileRecord*, RecordCounts*, cudaStream_t);
template void find_codes(const DeviceLattice<double>&, TileRecord*, RecordCounts*, cudaStream_t);
template void put_values(const PutArguments<float>&, cudaStream_t);
template void put_values(const PutArguments<double>&, cudaStream_t);

} // namespace cusz::cuda
