// The kernels, built from the stages in the files beside this one.
#include "kernels.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "codebook.cuh"
#include "codec/cuda/value_range.cuh"
#include "device/launch.cuh"
#include "histogram.cuh"
#include "pipeline.cuh"

namespace cusz::cuda {

// ---- Compression: one block, one tile at a time

// The bound that follows from the ranges of all blocks, and its quantiser; by one block.
template <class T>
__global__ void __launch_bounds__(block_threads) bound_kernel(const BoundArguments<T> a) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    double eb_abs = a.eb;
    if (a.results != nullptr) {
        typename RangeArguments<T>::Result all{infinity, -infinity, 0};
        for (std::uint32_t i = threadIdx.x; i < a.n_results; i += block_threads) {
            const auto partial = a.results[i];
            all.min = partial.min < all.min ? partial.min : all.min;
            all.max = partial.max > all.max ? partial.max : all.max;
            all.n_valid += partial.n_valid;
        }
        all = range_of_block(all, shared_memory<RangeMemory<T>>());
        eb_abs =
            all.n_valid == 0 ? 0 : absolute_bound(a.eb, static_cast<double>(all.min), static_cast<double>(all.max));
    }
    if (!is_first_thread()) return;
    a.state->quantiser = Quantiser<T>::from_bound(eb_abs);
    a.state->quantiser.special = a.special;
    a.state->eb_abs = eb_abs;
    a.state->raw = a.state->quantiser.step == 0 ? 1 : 0;
}

// Blocks per multiprocessor: as many as registers allow without spilling. Code for newer processors takes more
// registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
template <class T, TileShape shape>
inline constexpr int compress_blocks = shape == TileShape::any || sizeof(T) == 8 ? 1 : 2;
#else
template <class T, TileShape shape>
inline constexpr int compress_blocks = sizeof(T) == 8 || shape == TileShape::line ? 2 : 3;
#endif

template <class T, class Pipeline, TileShape shape>
__global__ void __launch_bounds__(block_threads, sizeof(T) == 4 ? compress_blocks<T, shape> : 1)
    count_kernel(const CountArguments<T> a) {
    auto& shared = shared_memory<CountMemory<T, shape>>();
    const Alphabet alphabet(a.r);
    if (a.state->raw != 0) return;
    for (std::uint32_t s = threadIdx.x; s < alphabet.size(); s += block_threads) shared.count[s] = 0;
    for (std::uint64_t number = blockIdx.x; number < a.batch.n_tiles; number += gridDim.x) {
        if (!a.sample.counts(a.batch.first_tile + number)) continue;
        if constexpr (shape == TileShape::any) {
            const PreparedTile prepared =
                prepare<Pipeline>(a.batch, *a.state, alphabet.reach(), number, a.field, shared.tile);
            add_tile(prepared, alphabet, shared.tile, shared.count);
        } else {
            typename Traits<T>::Bits column[values_of_thread];
            Bits16 missing;
            const PreparedTile prepared = prepare<shape, Pipeline>(a.batch, *a.state, alphabet.reach(), number, a.field,
                                                                   shared.tile, shared.exchange, column, missing);
            add_tile<shape>(prepared, alphabet, shared.tile, column, missing, shared.count);
        }
    }
    __syncthreads();
    for (std::uint32_t s = threadIdx.x; s < alphabet.size(); s += block_threads)
        if (shared.count[s] != 0)
            atomicAdd(reinterpret_cast<unsigned long long*>(a.counts + s),
                      static_cast<unsigned long long>(shared.count[s]));
}

// r_limit: of the alphabets that there is room for.
template <int r_limit>
using BookMemoryFor = BookMemory<Alphabet(r_limit).size()>;

template <int r_limit>
__global__ void __launch_bounds__(book_threads, 1) book_kernel(const BookArguments a) {
    using Memory = BookMemoryFor<r_limit>;
    if constexpr (r_limit <= largest_r_in_shared_memory)
        make_book(a, shared_memory<Memory>());
    else
        make_book(a, *static_cast<Memory*>(a.memory));
}

template <class T, class Coder, TileShape shape>
struct CompressMemory {
    std::conditional_t<shape == TileShape::any, TileMemory<T>, ColumnMemory<T>> tile;
    PayloadMemory<T, Coder> payload;
    CompressResult totals; // of the block; of the first thread
    std::uint64_t ticket, place;
};

template <class T, class Pipeline, TileShape shape>
__global__ void __launch_bounds__(block_threads, compress_blocks<T, shape>)
    compress_kernel(const CompressArguments<T, typename Pipeline::Coder::Model> a) {
    auto& shared = shared_memory<CompressMemory<T, typename Pipeline::Coder, shape>>();
    if (a.state->raw != 0) return;
    const std::uint32_t reach = a.state->reach;
    Pipeline::Coder::load(a.model, shared.payload.coder);
    CompressResult& totals = shared.totals;
    if (is_first_thread()) totals = {};
    for (;;) {
        if (is_first_thread()) shared.ticket = atomicAdd(reinterpret_cast<unsigned long long*>(a.ticket), 1ull);
        __syncthreads();
        const std::uint64_t number = shared.ticket;
        if (number >= a.batch.n_tiles) break;
        const auto announce = [&](std::uint32_t words) {
            if (is_first_thread()) look_back::publish(a.states, number, look_back::own_sum | words);
        };
        PreparedTile prepared;
        WrittenTile written;
        if constexpr (shape == TileShape::any) {
            prepared = prepare<Pipeline>(a.batch, *a.state, reach, number, a.field, shared.tile);
            const CodesInMemory<T> codes{a.batch.tiling, a.field, prepared, shared.tile};
            written = write_payload<Pipeline>(a.model, prepared, shared.tile, codes, shared.payload, announce);
        } else {
            typename Traits<T>::Bits column[values_of_thread];
            Bits16 missing;
            prepared = prepare<shape, Pipeline>(a.batch, *a.state, reach, number, a.field, shared.tile,
                                                shared.payload.exchange(), column, missing);
            const CodesInColumns<shape, T> codes{a.field, prepared, shared.tile, column, missing};
            written = write_payload<Pipeline>(a.model, prepared, shared.tile, codes, shared.payload, announce);
        }
        if (warp() == 0) {
            const std::uint64_t before = look_back::sum_before(a.states, number);
            if (lane() == 0) {
                look_back::publish(a.states, number, look_back::sum_to_end | (before + written.words));
                shared.place = before;
            }
        }
        __syncthreads();
        const std::uint64_t end = shared.place + written.words;
        const std::uint64_t part =
            store_payload<T>(a.field, shared.tile, shared.payload, written, a.batch.first_tile + number,
                             end <= a.capacity ? a.payloads + shared.place : nullptr);
        if (!is_first_thread()) continue;
        a.index[number] = static_cast<std::uint16_t>(written.words);
        totals.checksum += part;
        totals.too_large |= end <= a.capacity ? 0 : 1;
        const std::uint32_t n = shared.tile.box.values();
        if (prepared.all_special) {
            totals.n_special += n;
        } else if (written.raw) {
            totals.n_unpredictable += n;
        } else {
            totals.n_special += prepared.has_missing ? shared.tile.n_special : 0;
            totals.n_out_of_range += prepared.has_out_of_range ? shared.tile.out_of_range.count : 0;
            totals.n_unpredictable += prepared.has_unpredictable ? shared.tile.unpredictable.count : 0;
        }
        if (number == a.batch.n_tiles - 1) totals.words = end;
    }
    if (!is_first_thread()) return;
    add(&a.result->words, totals.words);
    add(&a.result->checksum, totals.checksum);
    add(&a.result->n_special, totals.n_special);
    add(&a.result->n_out_of_range, totals.n_out_of_range);
    add(&a.result->n_unpredictable, totals.n_unpredictable);
    add(&a.result->too_large, totals.too_large);
}

// ---- Decompression: one warp, one tile at a time

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

template <class T, class Coder, TileShape shape>
struct DecompressMemory {
    using OfWarp = std::conditional_t<shape == TileShape::any, WarpMemory<T>, RowMemory<T, shape>>;

    typename Coder::ReadingMemory coder;
    Array<OfWarp, decode_warps<T, shape>> warp;
    Array<std::uint64_t, decode_warps<T, shape>> checksum; // of each warp's tiles; of its first lane
};

template <class T, class Pipeline, TileShape shape>
__global__ void __launch_bounds__(decode_threads<T, shape>, decode_blocks<T, shape>)
    decompress_kernel(const DecompressArguments<T, typename Pipeline::Coder::Model> a) {
    auto& shared = shared_memory<DecompressMemory<T, typename Pipeline::Coder, shape>>();
    if (a.result->words != a.words || a.result->index_error != 0) return; // the index must not be used
    const auto model =
        Pipeline::Coder::template load<shape != TileShape::any>(a.model, shared.coder, decode_threads<T, shape>);
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
            error = read_payload<Pipeline>(a.batch.tiling, a.quantiser, model, words, n, tile, a.field);
        else
            error = read_payload<shape, Pipeline>(a.quantiser, model, words, n, tile, a.field);
        if (error != TileError::none && lane() == 0) report(&a.result->error, a.batch.first_tile + number, error);
    }
    if (lane() == 0) add(&a.result->checksum, shared.checksum[warp()]);
}

// ---- Launches

namespace {

template <TileShape shape>
using Shape = std::integral_constant<TileShape, shape>;

template <class Use>
void with_shape(TileShape shape, const Use& use) {
    switch (shape) {
    case TileShape::any: return use(Shape<TileShape::any>{});
    case TileShape::line: return use(Shape<TileShape::line>{});
    case TileShape::square: return use(Shape<TileShape::square>{});
    case TileShape::box: return use(Shape<TileShape::box>{});
    }
}

using Stages = Pipeline<Lorenzo, HuffmanCoder>;

} // namespace

template <class T>
void count_symbols(const CountArguments<T>& a, cudaStream_t stream) {
    with_shape(a.batch.tiling.shape(), [&]<TileShape shape>(Shape<shape>) {
        launch<count_kernel<T, Stages, shape>>(a, block_threads, count_memory_bytes<T, shape>(a.r), a.batch.n_tiles,
                                               false, stream);
    });
}

template <class T>
void resolve_bound(const BoundArguments<T>& a, cudaStream_t stream) {
    launch<bound_kernel<T>>(a, block_threads, sizeof(RangeMemory<T>), 1, true, stream);
}

std::size_t book_memory_bytes(int r) { return r <= largest_r_in_shared_memory ? 0 : sizeof(BookMemoryFor<max_r>); }

namespace {
template <int r_limit>
void make_book_of(const BookArguments& a, cudaStream_t stream) {
    const std::size_t shared_bytes = a.memory != nullptr ? 0 : sizeof(BookMemoryFor<r_limit>);
    launch<book_kernel<r_limit>>(a, book_threads, shared_bytes, 1, true, stream);
}
} // namespace

void make_book(const BookArguments& a, cudaStream_t stream) {
    if (a.r <= default_r) return make_book_of<default_r>(a, stream);
    if (a.r <= largest_r_in_shared_memory) return make_book_of<largest_r_in_shared_memory>(a, stream);
    return make_book_of<max_r>(a, stream);
}

template <class T>
void compress_tiles(const CompressArguments<T, Huffman>& a, cudaStream_t stream) {
    with_shape(a.batch.tiling.shape(), [&]<TileShape shape>(Shape<shape>) {
        launch<compress_kernel<T, Stages, shape>>(a, block_threads, sizeof(CompressMemory<T, Stages::Coder, shape>),
                                                  a.batch.n_tiles, false, stream);
    });
}

void find_starts(const IndexArguments& a, cudaStream_t stream) {
    const std::uint64_t parts = (a.n_tiles + tiles_of_index_block - 1) / tiles_of_index_block;
    launch<start_kernel>(a, block_threads, sizeof(IndexMemory), parts, true, stream);
}

template <class T>
void decompress_tiles(const DecompressArguments<T, Huffman>& a, cudaStream_t stream) {
    // The kernels for known shapes have the table in shared memory.
    const TileShape of_tiles = HuffmanCoder::fits(a.model) ? a.batch.tiling.shape() : TileShape::any;
    with_shape(of_tiles, [&]<TileShape shape>(Shape<shape>) {
        const std::uint64_t parts = (a.batch.n_tiles + decode_warps<T, shape> - 1) / decode_warps<T, shape>;
        launch<decompress_kernel<T, Stages, shape>>(
            a, decode_threads<T, shape>, sizeof(DecompressMemory<T, Stages::Coder, shape>), parts, false, stream);
    });
}

template void resolve_bound(const BoundArguments<float>&, cudaStream_t);
template void resolve_bound(const BoundArguments<double>&, cudaStream_t);
template void count_symbols(const CountArguments<float>&, cudaStream_t);
template void count_symbols(const CountArguments<double>&, cudaStream_t);
template void compress_tiles(const CompressArguments<float, Huffman>&, cudaStream_t);
template void compress_tiles(const CompressArguments<double, Huffman>&, cudaStream_t);
template void decompress_tiles(const DecompressArguments<float, Huffman>&, cudaStream_t);
template void decompress_tiles(const DecompressArguments<double, Huffman>&, cudaStream_t);

} // namespace cusz::cuda
