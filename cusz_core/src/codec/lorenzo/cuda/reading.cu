// Decompression: each warp decodes one tile at a time.
#include <algorithm>

#include "archive/checksum.hpp"
#include "launches.cuh"
#include "reading.cuh"

namespace cusz::cuda {

struct IndexMemory {
    Array<std::uint64_t, block_warps> sum_of_warp;
    std::uint64_t ticket, place;
};

__global__ void __launch_bounds__(block_threads) start_kernel(const IndexArguments a) {
    auto& shared = shared_memory<IndexMemory>();
    if (is_first_thread()) shared.ticket = atomicAdd(reinterpret_cast<unsigned long long*>(&a.result->ticket), 1ull);
    __syncthreads();
    const std::uint64_t part = shared.ticket, start = part * block_threads + threadIdx.x;
    const std::uint64_t first = start * tiles_of_start, last = std::min(first + tiles_of_start, a.n_tiles);
    std::uint64_t words = 0;
    for (std::uint64_t t = first; t < last; ++t) {
        const std::uint32_t n = a.index[t];
        if (n < a.shortest || n > a.longest) report(&a.result->index_error, a.first_tile + t, TileError::index_entry);
        words += n;
    }
    std::uint64_t end = warp_inclusive_sum(words);
    if (lane() == warp_lanes - 1) shared.sum_of_warp[warp()] = end;
    __syncthreads();
    std::uint64_t sum = 0;
    for (std::uint32_t w = 0; w < block_warps; ++w) {
        if (w == warp()) end += sum;
        sum += shared.sum_of_warp[w];
    }
    if (warp() == 0) {
        if (lane() == 0) look_back::publish(a.states, part, look_back::own_sum | sum);
        const std::uint64_t before = look_back::sum_before(a.states, part);
        if (lane() == 0) {
            look_back::publish(a.states, part, look_back::sum_to_end | (before + sum));
            shared.place = before;
        }
    }
    __syncthreads();
    if (first < a.n_tiles) a.starts[start] = shared.place + end - words;
    if (!is_first_thread() || (part + 1) * tiles_of_index_block < a.n_tiles) return;
    a.result->words = shared.place + sum;
    if (a.padded && a.index[a.n_tiles] != 0)
        report(&a.result->index_error, a.first_tile + a.n_tiles, TileError::index_padding);
}

// Tiles per block. They share the table; more of them would leave room for fewer blocks.
template <class T, TileShape shape>
inline constexpr std::uint32_t decode_warps = shape != TileShape::any ? 8
                                              : sizeof(T) == 4        ? 4
                                                                      : 2;
template <class T, TileShape shape>
inline constexpr std::uint32_t decode_threads = decode_warps<T, shape> * warp_lanes;
// Blocks per multiprocessor: as many as registers and shared memory allow.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
inline constexpr int decode_blocks_of_floats = 4;
#else
inline constexpr int decode_blocks_of_floats = 3;
#endif
template <class T, TileShape shape>
inline constexpr int decode_blocks = shape == TileShape::any    ? 2
                                     : sizeof(T) == 8           ? 2
                                     : shape == TileShape::line ? 3
                                                                : decode_blocks_of_floats;

template <class T, TileShape shape>
struct DecompressMemory {
    using OfWarp = std::conditional_t<shape == TileShape::any, WarpMemory<T>, RowMemory<T, shape>>;

    TableMemory table;
    Array<OfWarp, decode_warps<T, shape>> warp;
    Array<std::uint64_t, decode_warps<T, shape>> checksum; // of each warp's tiles; for its first lane
};

template <class T, TileShape shape>
__global__ void __launch_bounds__(decode_threads<T, shape>, decode_blocks<T, shape>)
    decompress_kernel(const DecompressArguments<T> a) {
    auto& shared = shared_memory<DecompressMemory<T, shape>>();
    if (a.result->words != a.words || a.result->index_error != 0) return; // the index must not be used
    const DecodeTable table = load_table<shape != TileShape::any>(a.table, shared.table, decode_threads<T, shape>);
    __syncthreads();
    auto& tile = shared.warp[warp()];
    if (lane() == 0) shared.checksum[warp()] = 0;
    constexpr std::uint32_t warps = decode_warps<T, shape>;
    const auto n_tiles = static_cast<std::uint32_t>(a.batch.n_tiles); // at most 2^31
    for (std::uint32_t number = blockIdx.x * warps + warp(); number < n_tiles; number += gridDim.x * warps) {
        __syncwarp(); // all reads of the previous tile are done; the sums below do not order memory
        const std::uint32_t first = number / tiles_of_start * tiles_of_start;
        const std::uint64_t begin = a.starts[number / tiles_of_start] +
                                    warp_sum(first + lane() < number ? std::uint32_t{a.index[first + lane()]} : 0u);
        const std::uint32_t n = a.index[number];
        const std::uint32_t* const words = a.payloads + begin;
        std::uint64_t sum = 0;
        for (std::uint32_t i = lane(); i < n; i += warp_lanes) sum += std::uint64_t{words[i]} * checksum_weight(i);
        sum = warp_sum(sum);
        if (lane() == 0) shared.checksum[warp()] += part_of_sum(a.batch.first_tile + number, sum, n);
        if (a.field == nullptr) continue;
        if (lane() == 0) {
            tile.box = a.batch.tiling.box(a.batch.first_tile + number);
            tile.box.offset -= a.batch.first_value;
        }
        __syncwarp();
        TileError error;
        if constexpr (shape == TileShape::any)
            error = read_payload(a.batch.tiling, a.quantiser, table, words, n, tile, a.field);
        else
            error = read_payload<shape>(a.quantiser, table, words, n, tile, a.field);
        if (error != TileError::none && lane() == 0) report(&a.result->error, a.batch.first_tile + number, error);
    }
    if (lane() == 0) add(&a.result->checksum, shared.checksum[warp()]);
}

void find_starts(const IndexArguments& a, cudaStream_t stream) {
    const std::uint64_t parts = (a.n_tiles + tiles_of_index_block - 1) / tiles_of_index_block;
    launch<start_kernel>(a, block_threads, sizeof(IndexMemory), parts, true, stream);
}

template <class T>
void decompress_tiles(const DecompressArguments<T>& a, cudaStream_t stream) {
    // The kernels for known shapes need the table in shared memory.
    const TileShape of_tiles = fits_shared_memory(a.table) ? a.batch.tiling.shape() : TileShape::any;
    with_shape(of_tiles, [&]<TileShape shape>(Shape<shape>) {
        const std::uint64_t parts = (a.batch.n_tiles + decode_warps<T, shape> - 1) / decode_warps<T, shape>;
        launch<decompress_kernel<T, shape>>(a, decode_threads<T, shape>, sizeof(DecompressMemory<T, shape>), parts,
                                            false, stream);
    });
}

template void decompress_tiles(const DecompressArguments<float>&, cudaStream_t);
template void decompress_tiles(const DecompressArguments<double>&, cudaStream_t);

} // namespace cusz::cuda
