// The bound, the histogram of the symbols, and the codebook.
#include <algorithm>
#include <limits>

#include "codebook.cuh"
#include "codec/cuda/value_range.cuh"
#include "histogram.cuh"
#include "launches.cuh"

namespace cusz::cuda {

// One block finds the bound from the ranges of all blocks, and its quantiser.
template <class T, class Arguments>
__global__ void __launch_bounds__(block_threads) bound_kernel(const Arguments given) {
    const BoundArguments<T>& a = own(given);
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

// As compress_blocks. Arguments in memory take registers, too.
template <class T, TileShape shape, class Arguments>
inline constexpr int count_blocks =
    sizeof(T) == 8                                  ? 1
    : is_each<Arguments> && shape == TileShape::any ? std::min(compress_blocks<T, shape>, 2)
                                                    : compress_blocks<T, shape>;

template <class T, TileShape shape, class Arguments>
__global__ void __launch_bounds__(block_threads, count_blocks<T, shape, Arguments>)
    count_kernel(const Arguments given) {
    const CountArguments<T>& a = own(given);
    auto& shared = shared_memory<CountMemory<T, shape>>();
    const Alphabet alphabet(a.r);
    if (a.state->raw != 0) return;
    for (std::uint32_t s = threadIdx.x; s < alphabet.size(); s += block_threads) shared.count[s] = 0;
    for (std::uint64_t number = blockIdx.x; number < a.batch.n_tiles; number += gridDim.x) {
        if (!a.sample.counts(a.batch.first_tile + number)) continue;
        if constexpr (shape == TileShape::any) {
            const PreparedTile prepared = prepare(a.batch, *a.state, alphabet.reach(), number, a.field, shared.tile);
            add_tile(prepared, alphabet, shared.tile, shared.count);
        } else {
            typename Traits<T>::Bits column[values_of_thread];
            Bits16 missing;
            const PreparedTile prepared = prepare<shape>(a.batch, *a.state, alphabet.reach(), number, a.field,
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

// r_limit: the largest r that there is room for.
template <int r_limit>
using BookMemoryFor = BookMemory<Alphabet(r_limit).size()>;

template <int r_limit, class Arguments>
__global__ void __launch_bounds__(book_threads, 1) book_kernel(const Arguments given) {
    const BookArguments& a = own(given);
    using Memory = BookMemoryFor<r_limit>;
    if constexpr (r_limit <= largest_r_in_shared_memory)
        make_book(a, shared_memory<Memory>());
    else
        make_book(a, *static_cast<Memory*>(a.memory));
}

namespace {
template <class T, class Arguments>
void launch_count(const Arguments& given, const ManyTiles& tiles, cudaStream_t stream) {
    with_shape(tiles.shape, [&]<TileShape shape>(Shape<shape>) {
        launch<count_kernel<T, shape, Arguments>>(given, block_threads, count_memory_bytes<T, shape>(tiles.r),
                                                  tiles.max_tiles, false, stream);
    });
}
} // namespace

template <class T>
void count_symbols(const CountArguments<T>& a, cudaStream_t stream) {
    launch_count<T>(a, {a.batch.tiling.shape(), a.r, a.batch.n_tiles}, stream);
}
template <class T>
void count_symbols(const Each<CountArguments<T>>& fields, const ManyTiles& tiles, cudaStream_t stream) {
    launch_count<T>(fields, tiles, stream);
}

template <class T>
void resolve_bound(const BoundArguments<T>& a, cudaStream_t stream) {
    launch<bound_kernel<T, BoundArguments<T>>>(a, block_threads, sizeof(RangeMemory<T>), 1, true, stream);
}
template <class T>
void resolve_bound(const Each<BoundArguments<T>>& fields, cudaStream_t stream) {
    launch<bound_kernel<T, Each<BoundArguments<T>>>>(fields, block_threads, sizeof(RangeMemory<T>), 1, true, stream);
}

std::size_t book_memory_bytes(int r) { return r <= largest_r_in_shared_memory ? 0 : sizeof(BookMemoryFor<max_r>); }

namespace {
template <int r_limit, class Arguments>
void launch_book(const Arguments& given, cudaStream_t stream) {
    const std::size_t shared_bytes = r_limit > largest_r_in_shared_memory ? 0 : sizeof(BookMemoryFor<r_limit>);
    launch<book_kernel<r_limit, Arguments>>(given, book_threads, shared_bytes, 1, true, stream);
}
} // namespace

void make_book(const BookArguments& a, cudaStream_t stream) {
    if (a.r <= default_r) return launch_book<default_r>(a, stream);
    if (a.r <= largest_r_in_shared_memory) return launch_book<largest_r_in_shared_memory>(a, stream);
    return launch_book<max_r>(a, stream);
}
void make_books(const Each<BookArguments>& fields, int r, cudaStream_t stream) {
    if (r <= default_r) return launch_book<default_r>(fields, stream);
    return launch_book<largest_r_in_shared_memory>(fields, stream);
}

template void resolve_bound(const BoundArguments<float>&, cudaStream_t);
template void resolve_bound(const BoundArguments<double>&, cudaStream_t);
template void resolve_bound(const Each<BoundArguments<float>>&, cudaStream_t);
template void resolve_bound(const Each<BoundArguments<double>>&, cudaStream_t);
template void count_symbols(const CountArguments<float>&, cudaStream_t);
template void count_symbols(const CountArguments<double>&, cudaStream_t);
template void count_symbols(const Each<CountArguments<float>>&, const ManyTiles&, cudaStream_t);
template void count_symbols(const Each<CountArguments<double>>&, const ManyTiles&, cudaStream_t);

} // namespace cusz::cuda
