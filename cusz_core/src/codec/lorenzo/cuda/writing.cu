// Compression: each block encodes one tile at a time.
#include "launches.cuh"
#include "writing.cuh"

namespace cusz::cuda {

template <class T, TileShape shape>
struct CompressMemory {
    std::conditional_t<shape == TileShape::any, TileMemory<T>, ColumnMemory<T>> tile;
    PayloadMemory<T> payload;
    CompressResult totals; // of the block; for the first thread
    std::uint64_t ticket, place;
};

template <class T, TileShape shape, class Arguments>
__global__ void __launch_bounds__(block_threads, compress_blocks<T, shape>) compress_kernel(const Arguments given) {
    const CompressArguments<T>& a = own(given);
    auto& shared = shared_memory<CompressMemory<T, shape>>();
    if (a.state->raw != 0) return;
    const std::uint32_t reach = a.state->reach;
    load_codewords(a.tables, shared.payload.encoder);
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
            prepared = prepare(a.batch, *a.state, reach, number, a.field, shared.tile);
            const CodesInMemory<T> codes{a.batch.tiling, a.field, prepared, shared.tile};
            written = write_payload(a.tables, prepared, shared.tile, codes, shared.payload, announce);
        } else {
            typename Traits<T>::Bits column[values_of_thread];
            Bits16 missing;
            prepared = prepare<shape>(a.batch, *a.state, reach, number, a.field, shared.tile, shared.payload.exchange(),
                                      column, missing);
            const CodesInColumns<shape, T> codes{a.field, prepared, shared.tile, column, missing};
            written = write_payload(a.tables, prepared, shared.tile, codes, shared.payload, announce);
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

namespace {
template <class T, class Arguments>
void launch_compression(const Arguments& given, TileShape tiles, std::uint64_t n_tiles, cudaStream_t stream) {
    with_shape(tiles, [&]<TileShape shape>(Shape<shape>) {
        launch<compress_kernel<T, shape, Arguments>>(given, block_threads, sizeof(CompressMemory<T, shape>), n_tiles,
                                                     false, stream);
    });
}
} // namespace

template <class T>
void compress_tiles(const CompressArguments<T>& a, cudaStream_t stream) {
    launch_compression<T>(a, a.batch.tiling.shape(), a.batch.n_tiles, stream);
}
template <class T>
void compress_tiles(const Each<CompressArguments<T>>& fields, const ManyTiles& tiles, cudaStream_t stream) {
    launch_compression<T>(fields, tiles.shape, tiles.max_tiles, stream);
}

template void compress_tiles(const CompressArguments<float>&, cudaStream_t);
template void compress_tiles(const CompressArguments<double>&, cudaStream_t);
template void compress_tiles(const Each<CompressArguments<float>>&, const ManyTiles&, cudaStream_t);
template void compress_tiles(const Each<CompressArguments<double>>&, const ManyTiles&, cudaStream_t);

} // namespace cusz::cuda
