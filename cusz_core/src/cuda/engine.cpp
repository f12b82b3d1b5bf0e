// The CUDA backend: the same archives as the CPU's, with the field, the archive, or both on the device. What lies on
// the host is copied in batches of layers of tiles, as large as there is memory for.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

#include "../backend.hpp"
#include "../codebook.hpp"
#include "../errors.hpp"
#include "../format/checksum.hpp"
#include "device.hpp"
#include "kernels.hpp"
#include "memory.hpp"

namespace cusz::cuda {

namespace {

// To be asked once in a call: after a failure of the device CUDA may answer otherwise. Throws DEVICE.
bool is_on_device(const void* pointer, const char* name) {
    const int device = device_of(pointer);
    if (device == unknown) fail_unknown(name);
    return device != host;
}

// Layers of tiles, with their tiles and values.
struct Batch {
    std::uint64_t first_tile, n_tiles, first_value, n_values;
    Batch(const Tiling& tiling, std::uint64_t first_layer, std::uint64_t layers)
        : first_tile(first_layer * tiling.tiles_of_layer()), n_tiles(layers * tiling.tiles_of_layer()),
          first_value(tiling.first_value(first_layer)),
          n_values(tiling.first_value(first_layer + layers) - first_value) {}
};

// Calls reserve(batch), then use(batch), for the whole field. Where there is no memory to reserve for that,
// make_room(), and again for batches of half of the layers.
template <class MakeRoom, class Reserve, class Use>
void in_batches(const Tiling& tiling, std::uint64_t& layers_at_once, const MakeRoom& make_room, const Reserve& reserve,
                const Use& use) {
    for (std::uint64_t layer = 0; layer < tiling.layers();) {
        const std::uint64_t layers = std::min(layers_at_once, tiling.layers() - layer);
        const Batch batch(tiling, layer, layers);
        try {
            reserve(batch);
        } catch (const Error& error) {
            if (error.status() != CUSZ_ERROR_MEMORY || layers == 1) throw;
            make_room();
            layers_at_once = (layers + 1) / 2;
            continue;
        }
        use(batch);
        layer += layers;
    }
}

void require_aligned(const void* pointer, std::size_t bytes, const char* name) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % bytes != 0)
        fail(CUSZ_ERROR_PARAMETER, name, " lies on a device and is not aligned to ", bytes, " bytes");
}

const char* text_of(TileError error) {
    switch (error) {
    case TileError::head_or_length: return "bad tile header or length";
    case TileError::head: return "bad tile header";
    case TileError::too_short: return "payload is too short";
    case TileError::too_many_outliers: return "more outliers than values";
    case TileError::mask: return "bad mask";
    case TileError::substream:
        return "a substream does not end where its length says, or missing values do not match the tile header";
    case TileError::outlier_position: return "bad outlier position";
    case TileError::too_long: return "payload is too long";
    case TileError::index_entry: return "bad length in the tile index";
    case TileError::index_padding: return "the padding of the tile index is not 0";
    case TileError::none: break;
    }
    return "bad";
}

// What the kernels of one compression share on the device.
template <class T>
struct Workspace {
    using Range = typename RangeArguments<T>::Result;

    // What is cleared at first.
    std::uint64_t* counts;
    std::uint64_t* ticket;
    CompressResult* result;
    // What is fetched at the end, the result before it included.
    FieldState<T>* state;
    std::uint32_t* header;
    std::size_t cleared_bytes, fetched_from, fetched_bytes;

    std::uint8_t* lengths;
    std::uint32_t *small, *of_symbol;
    Range* ranges;
    std::uint64_t* book; // memory for make_book
    std::size_t bytes;

    Workspace(void* memory, const Alphabet& alphabet, std::size_t n_ranges) {
        Parts parts(memory);
        counts = parts.take<std::uint64_t>(alphabet.size());
        ticket = parts.take<std::uint64_t>(1);
        fetched_from = parts.used();
        result = parts.take<CompressResult>(1);
        cleared_bytes = parts.used();
        state = parts.take<FieldState<T>>(1);
        header = parts.take<std::uint32_t>(v1::body_offset(alphabet.r) / 4);
        fetched_bytes = parts.used() - fetched_from;
        lengths = parts.take<std::uint8_t>(alphabet.size());
        small = parts.take<std::uint32_t>(2 * EncodeTables::small_span);
        of_symbol = parts.take<std::uint32_t>(alphabet.size());
        ranges = parts.take<Range>(n_ranges);
        book = book_memory_bytes(alphabet.r) == 0 ? nullptr
                                                  : parts.take<std::uint64_t>(book_memory_bytes(alphabet.r) / 8 + 1);
        bytes = parts.used();
    }
    // The same parts of a copy of what was fetched.
    const CompressResult& result_in(const std::byte* copy) const {
        return *reinterpret_cast<const CompressResult*>(copy);
    }
    const FieldState<T>& state_in(const std::byte* copy) const {
        return *reinterpret_cast<const FieldState<T>*>(copy + (cleared_bytes - fetched_from));
    }
    const std::byte* header_in(const std::byte* copy) const {
        return copy + (cleared_bytes - fetched_from) + (sizeof(FieldState<T>) + 15) / 16 * 16;
    }
};

class CudaBackend final : public DeviceBackend {
public:
    CudaBackend() {
        const char* reason = nullptr;
        if (device_count(&reason) == 0) fail(CUSZ_ERROR_DEVICE, reason, ": use the cpu backend (or auto)");
        device_ = current_device();
    }
    ~CudaBackend() override { release_scratch(); }

    int current_device() override {
        int device = 0;
        CUSZ_CUDA(cudaGetDevice(&device));
        return device;
    }
    void use(int device) override {
        if (device == device_) return;
        release_scratch();
        device_ = device;
    }
    // Scratch memory stays: all work on it has ended.
    void set_stream(void* stream) override { source_.stream = static_cast<cudaStream_t>(stream); }
    void set_allocator(const cusz_allocator* allocator) override {
        const cusz_allocator next = allocator != nullptr ? *allocator : cusz_allocator{};
        const cusz_allocator& last = source_.allocator;
        if (next.allocate == last.allocate && next.release == last.release && next.user == last.user) return;
        release_scratch();
        source_.allocator = next;
    }
    void copy(void* target, const void* source, std::size_t bytes) override {
        on_stream([&] { staging_.copy(target, source, bytes, stream()); });
    }

    ValueRange value_range(cusz_dtype dtype, std::uint64_t values, const void* field, std::uint64_t special,
                           int threads) override {
        if (!is_on_device(field, "field")) return cpu_->value_range(dtype, values, field, special, threads);
        return on_stream([&] {
            return dtype == CUSZ_F32
                       ? value_range_of(static_cast<const float*>(field), values, static_cast<std::uint32_t>(special))
                       : value_range_of(static_cast<const double*>(field), values, special);
        });
    }

    std::size_t compress(const Layout& layout, Coding coding, const void* field, int threads, void* archive) override {
        const bool from_device = is_on_device(field, "field"), to_device = is_on_device(archive, "archive");
        if (!from_device) { // the host is the faster one to look at it
            resolve_bound(*this, layout, coding, field, threads);
            if (coding.step == 0) return 0;
        }
        return on_stream([&] {
            return layout.dtype == CUSZ_F32
                       ? compress_as(layout, coding, static_cast<const float*>(field), from_device, archive, to_device)
                       : compress_as(layout, coding, static_cast<const double*>(field), from_device, archive,
                                     to_device);
        });
    }

    void decompress(const Frame& frame, const std::byte* body, int, void* field) override {
        on_stream([&] {
            if (frame.layout.dtype == CUSZ_F32)
                decompress_as(frame, body, static_cast<float*>(field));
            else
                decompress_as(frame, body, static_cast<double*>(field));
        });
    }

    std::uint32_t piece_checksum(const void* data, std::uint64_t bytes, int threads, void* target) override {
        const bool from_device = is_on_device(data, "field or archive");
        const bool to_device = is_on_device(target, "archive or field");
        if (!from_device && !to_device) return cpu_->piece_checksum(data, bytes, threads, target);
        return on_stream([&] {
            if (!from_device) staging_.copy(target, data, static_cast<std::size_t>(bytes), stream());
            const void* const words = from_device ? data : target;
            require_aligned(words, 4, from_device ? "field or archive" : "archive or field");
            PieceArguments arguments{};
            arguments.words = static_cast<const std::uint32_t*>(words);
            arguments.n = bytes / 4;
            if (from_device && to_device) {
                require_aligned(target, 4, "archive or field");
                arguments.target = static_cast<std::uint32_t*>(target);
            }
            arguments.checksum = cleared<std::uint64_t>(result_, 1);
            if (arguments.n > 0) sum_pieces(arguments, stream());
            const auto checksum = fetched(arguments.checksum);
            if (from_device && !to_device && target != nullptr)
                staging_.copy(target, data, static_cast<std::size_t>(bytes), stream());
            return fold(checksum);
        });
    }

    std::size_t scratch_bytes() const override {
        std::size_t bytes = staging_.bytes() + cpu_->scratch_bytes();
        for (const DeviceBuffer* buffer : buffers()) bytes += buffer->bytes();
        return bytes;
    }

    void release_scratch() override {
        try {
            const CurrentDevice current(device_);
            for (DeviceBuffer* buffer : {&field_, &index_, &payloads_, &states_, &result_, &workspace_, &tables_})
                buffer->release(source_);
        } catch (const Error&) { // the device is gone, and its memory with it
        }
        staging_.release();
        cpu_->release_scratch();
    }

private:
    cudaStream_t stream() const { return source_.stream; }
    void wait() const { CUSZ_CUDA(cudaStreamSynchronize(stream())); }
    std::array<const DeviceBuffer*, 7> buffers() const {
        return {&field_, &index_, &payloads_, &states_, &result_, &workspace_, &tables_};
    }

    // Runs work on the device. Nothing of it is left when it fails: the caller may free the memory it passed.
    template <class Work>
    std::invoke_result_t<Work> on_stream(const Work& work) {
        const CurrentDevice current(device_);
        try {
            return work();
        } catch (...) {
            static_cast<void>(cudaStreamSynchronize(stream()));
            static_cast<void>(cudaGetLastError());
            throw;
        }
    }

    // The memory that holds a batch.
    void release_batch() {
        for (DeviceBuffer* buffer : {&field_, &index_, &payloads_, &states_}) buffer->release(source_);
    }

    // Zeros on the device.
    template <class V>
    V* cleared(DeviceBuffer& buffer, std::uint64_t count) {
        V* const memory = buffer.reserve<V>(source_, count);
        CUSZ_CUDA(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(count) * sizeof(V), stream()));
        return memory;
    }
    // Copies from the device, when all work before has ended.
    template <class V>
    V fetched(const V* memory) {
        V value;
        fetch(memory, 1, &value);
        return value;
    }
    template <class V>
    void fetch(const V* memory, std::size_t count, V* target) {
        CUSZ_CUDA(cudaMemcpyAsync(target, memory, count * sizeof(V), cudaMemcpyDefault, stream()));
        wait();
    }

    template <class T>
    ValueRange value_range_of(const T* field, std::uint64_t n, typename Traits<T>::Bits special) {
        require_aligned(field, sizeof(T), "field");
        using Result = typename RangeArguments<T>::Result;
        std::vector<Result> results(most_blocks());
        const RangeArguments<T> arguments{field, n, special, result_.reserve<Result>(source_, results.size())};
        compute_range(arguments, stream());
        fetch(arguments.results, results.size(), results.data());
        ValueRange range;
        for (const Result& own : results) {
            if (own.n_valid == 0) continue;
            const double low = static_cast<double>(own.min) + 0.0, high = static_cast<double>(own.max) + 0.0; // no -0
            range.min = range.n_valid == 0 ? low : std::min(range.min, low);
            range.max = range.n_valid == 0 ? high : std::max(range.max, high);
            range.n_valid += own.n_valid;
        }
        return range;
    }

    // The batch's values on the device: where they are, or copied there. kept: the batch that the buffer has already.
    template <class T>
    const T* field_of(const T* field, bool from_device, const Batch& batch, std::uint64_t& kept) {
        if (from_device) return field + batch.first_value;
        T* const copy = field_.reserve<T>(source_, batch.n_values);
        if (kept != batch.first_tile)
            staging_.copy(copy, field + batch.first_value, static_cast<std::size_t>(batch.n_values) * sizeof(T),
                          stream());
        kept = batch.first_tile;
        return copy;
    }
    static constexpr std::uint64_t no_batch = ~std::uint64_t{0};

    template <class T>
    std::size_t compress_as(const Layout& layout, const Coding& coding, const T* field, bool from_device, void* archive,
                            bool to_device) {
        if (from_device) require_aligned(field, sizeof(T), "field");
        if (to_device) require_aligned(archive, 4, "archive");
        const Tiling tiling(layout.ndim, layout.shape.data());
        const Alphabet alphabet(coding.r);
        const std::uint64_t n_tiles = tiling.n_tiles(), index_bytes = (n_tiles + 1) / 2 * 4;
        const std::uint64_t in_front = v1::body_offset(coding.r) + index_bytes;
        const std::uint64_t most = layout.bytes() + raw_header_bytes - 1; // a raw archive is as good from there on
        if (in_front + n_tiles * 4 > most) return 0;
        const auto tiles_of = [&](const Batch& batch) {
            return TileBatch{tiling, batch.first_tile, batch.n_tiles, batch.first_value};
        };
        std::uint64_t layers = tiling.layers(), kept = no_batch;
        const auto make_room = [&] {
            release_batch();
            kept = no_batch;
        };
        const std::uint64_t most_words = (most - in_front) / 4;
        const auto capacity_of = [&](const Batch& batch) {
            return std::min(most_words, batch.n_tiles + batch.n_values * words_of<T>);
        };
        const auto reserve = [&](const Batch& batch) {
            if (!from_device) field_.reserve<T>(source_, batch.n_values);
            if (!to_device) index_.reserve<std::uint16_t>(source_, batch.n_tiles);
            if (!to_device) payloads_.reserve<std::uint32_t>(source_, capacity_of(batch));
            states_.reserve<std::uint64_t>(source_, batch.n_tiles);
        };

        const bool finds_range = from_device && coding.mode == CUSZ_REL;
        const std::size_t n_ranges = finds_range ? most_blocks() : 0;
        auto* const memory = workspace_.reserve<std::byte>(source_, Workspace<T>(nullptr, alphabet, n_ranges).bytes);
        const Workspace<T> work(memory, alphabet, n_ranges);
        CUSZ_CUDA(cudaMemsetAsync(memory, 0, work.cleared_bytes, stream()));
        const auto special = static_cast<typename Traits<T>::Bits>(coding.special);
        if (finds_range) compute_range(RangeArguments<T>{field, layout.values, special, work.ranges}, stream());
        cuda::resolve_bound(BoundArguments<T>{finds_range || coding.mode == CUSZ_ABS ? coding.eb : coding.eb_abs,
                                              special, finds_range ? work.ranges : nullptr,
                                              static_cast<std::uint32_t>(n_ranges), work.state},
                            stream());

        const Sample sample(n_tiles, coding.r);
        in_batches(tiling, layers, make_room, reserve, [&](const Batch& batch) {
            const T* const values = field_of(field, from_device, batch, kept);
            count_symbols(CountArguments<T>{tiles_of(batch), values, coding.r, sample, work.state, work.counts},
                          stream());
        });
        make_book(BookArguments{work.counts, coding.r, sample, work.lengths, work.small, work.of_symbol,
                                &work.state->reach, work.book},
                  stream());

        auto* const bytes = static_cast<std::byte*>(archive);
        std::byte *const index = bytes + v1::body_offset(coding.r), *const payloads = bytes + in_front;
        std::vector<std::byte> fetched(work.fetched_bytes);
        std::uint64_t words = 0; // of the batches before
        bool is_raw = false;
        in_batches(tiling, layers, make_room, reserve, [&](const Batch& batch) {
            if (is_raw) return;
            const std::uint64_t capacity = std::min(most_words - words, capacity_of(batch));
            const CompressArguments<T, Huffman> a{
                .batch = tiles_of(batch),
                .field = field_of(field, from_device, batch, kept),
                .model = {coding.r, work.small, work.of_symbol},
                .state = work.state,
                .index = to_device ? reinterpret_cast<std::uint16_t*>(index) + batch.first_tile
                                   : index_.reserve<std::uint16_t>(source_, batch.n_tiles),
                .payloads = to_device ? reinterpret_cast<std::uint32_t*>(payloads) + words
                                      : payloads_.reserve<std::uint32_t>(source_, capacity),
                .capacity = capacity,
                .ticket = work.ticket,
                .states = cleared<std::uint64_t>(states_, batch.n_tiles),
                .result = work.result,
            };
            if (batch.first_tile > 0) CUSZ_CUDA(cudaMemsetAsync(work.ticket, 0, sizeof *work.ticket, stream()));
            compress_tiles(a, stream());
            if (batch.first_tile + batch.n_tiles == n_tiles)
                finish_header(header_of<T>(layout, coding, work, to_device ? bytes : nullptr), stream());
            fetch(memory + work.fetched_from, fetched.size(), fetched.data());
            const CompressResult& result = work.result_in(fetched.data());
            is_raw = work.state_in(fetched.data()).raw != 0 || result.too_large != 0;
            if (is_raw) return;
            if (!to_device) {
                staging_.copy(index + 2 * batch.first_tile, a.index, static_cast<std::size_t>(batch.n_tiles) * 2,
                              stream());
                staging_.copy(payloads + 4 * words, a.payloads, static_cast<std::size_t>(result.words - words) * 4,
                              stream());
            }
            words = result.words;
        });
        if (is_raw) return 0;
        if (!to_device) {
            std::memcpy(archive, work.header_in(fetched.data()), v1::body_offset(coding.r));
            if (n_tiles % 2 != 0) std::memset(index + n_tiles * 2, 0, 2);
        }
        return static_cast<std::size_t>(in_front + words * 4);
    }

    // archive: on the device, or null.
    template <class T>
    HeaderArguments<T> header_of(const Layout& layout, const Coding& coding, const Workspace<T>& work,
                                 std::byte* archive) const {
        HeaderArguments<T> a{};
        std::vector<std::byte> header(v1::body_offset(coding.r));
        v1::write_tiled_header(header.data(), layout, coding, std::vector<std::uint8_t>(Alphabet(coding.r).size()), 0);
        std::memcpy(a.words, header.data(), sizeof a.words);
        a.n_tiles = Tiling(layout.ndim, layout.shape.data()).n_tiles();
        a.state = work.state;
        a.result = work.result;
        a.lengths = work.lengths;
        a.r = coding.r;
        a.header = archive != nullptr ? reinterpret_cast<std::uint32_t*>(archive) : work.header;
        a.index = archive != nullptr ? reinterpret_cast<std::uint16_t*>(archive + v1::body_offset(coding.r)) : nullptr;
        return a;
    }

    template <class T>
    void decompress_as(const Frame& frame, const std::byte* body, T* field) {
        const bool from_device = is_on_device(body, "archive"), to_device = is_on_device(field, "field");
        if (from_device) require_aligned(body, 4, "archive");
        if (to_device) require_aligned(field, sizeof(T), "field");
        const Tiling tiling(frame.layout.ndim, frame.layout.shape.data());
        Quantiser<T> quantiser;
        quantiser.step = static_cast<T>(frame.coding.step);
        quantiser.special = static_cast<typename Traits<T>::Bits>(frame.coding.special);
        const std::uint64_t n_tiles = tiling.n_tiles(), index_bytes = (n_tiles + 1) / 2 * 4;
        const std::byte* const payloads = body + index_bytes;
        const std::uint64_t payload_words = (frame.coding.body_bytes - index_bytes) / 4;
        const DecodeBook book(frame.lengths, Alphabet(frame.coding.r));
        const std::size_t entries = std::size_t{1} << book.width();
        auto* const table = tables_.reserve<std::uint32_t>(source_, entries);
        CUSZ_CUDA(cudaMemcpyAsync(table, book.table(), entries * 4, cudaMemcpyDefault, stream()));

        std::uint64_t layers = tiling.layers(), words_before = 0, checksum = 0;
        std::vector<std::uint16_t> index; // on the host, where there are several batches
        const auto make_room = [&] { release_batch(); };
        const auto words_of_batch = [&](const Batch& batch) {
            if (batch.n_tiles == n_tiles) return payload_words;
            if (index.empty()) {
                std::vector<std::uint16_t> whole(n_tiles);
                staging_.copy(whole.data(), body, whole.size() * 2, stream());
                index.swap(whole);
            }
            std::uint64_t words = 0;
            for (std::uint64_t t = 0; t < batch.n_tiles; ++t) words += index[batch.first_tile + t];
            if (words > payload_words - words_before) fail_index(words_before + words, payload_words);
            return words;
        };
        const auto starts_of = [](const Batch& batch) { return (batch.n_tiles + tiles_of_start - 1) / tiles_of_start; };
        const auto states_of = [](const Batch& batch) {
            return (batch.n_tiles + tiles_of_index_block - 1) / tiles_of_index_block;
        };
        const auto reserve = [&](const Batch& batch) {
            if (field != nullptr && !to_device) field_.reserve<T>(source_, batch.n_values);
            if (!from_device) index_.reserve<std::uint16_t>(source_, batch.n_tiles + 1);
            if (!from_device) payloads_.reserve<std::uint32_t>(source_, words_of_batch(batch));
            states_.reserve<std::uint64_t>(source_, states_of(batch) + starts_of(batch));
        };
        in_batches(tiling, layers, make_room, reserve, [&](const Batch& batch) {
            const std::uint64_t words = words_of_batch(batch);
            const bool padded = n_tiles % 2 != 0 && batch.first_tile + batch.n_tiles == n_tiles;
            const std::byte* const own_index = body + 2 * batch.first_tile;
            const std::byte* const own_payloads = payloads + 4 * words_before;
            auto const* index_words = reinterpret_cast<const std::uint16_t*>(own_index);
            auto const* payload_words_at = reinterpret_cast<const std::uint32_t*>(own_payloads);
            if (!from_device) {
                const std::uint64_t entries_of_index = batch.n_tiles + (padded ? 1 : 0);
                auto* const index_copy = index_.reserve<std::uint16_t>(source_, batch.n_tiles + 1);
                auto* const payload_copy = payloads_.reserve<std::uint32_t>(source_, words);
                staging_.copy(index_copy, own_index, static_cast<std::size_t>(entries_of_index) * 2, stream());
                staging_.copy(payload_copy, own_payloads, static_cast<std::size_t>(words) * 4, stream());
                index_words = index_copy;
                payload_words_at = payload_copy;
            }
            T* const values = field == nullptr ? nullptr
                              : to_device      ? field + batch.first_value
                                               : field_.reserve<T>(source_, batch.n_values);
            auto* const states = cleared<std::uint64_t>(states_, states_of(batch) + starts_of(batch));
            auto* const result = cleared<DecompressResult>(result_, 1);
            const IndexArguments starts{
                .index = index_words,
                .first_tile = batch.first_tile,
                .n_tiles = batch.n_tiles,
                .padded = padded,
                .longest = 1 + max_tile_values * static_cast<std::uint32_t>(words_of<T>),
                .starts = states + states_of(batch),
                .states = states,
                .result = result,
            };
            const DecompressArguments<T, Huffman> a{
                .batch = {tiling, batch.first_tile, batch.n_tiles, batch.first_value},
                .quantiser = quantiser,
                .model = {table, book.width(), book.empty()},
                .index = index_words,
                .starts = starts.starts,
                .payloads = payload_words_at,
                .words = words,
                .field = values,
                .result = result,
            };
            find_starts(starts, stream());
            decompress_tiles(a, stream());
            const DecompressResult own = fetched(a.result);
            if (own.index_error != 0 || own.error != 0) {
                const std::uint64_t report = ~(own.index_error != 0 ? own.index_error : own.error);
                const auto what = static_cast<TileError>(report & 255);
                if (what == TileError::index_padding) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", text_of(what));
                fail(CUSZ_ERROR_CORRUPT, "corrupt archive: tile ", (report >> 8) - 1, ": ", text_of(what));
            }
            if (own.words != words) fail_index(words_before + own.words, payload_words);
            if (field != nullptr && !to_device)
                staging_.copy(field + batch.first_value, values, static_cast<std::size_t>(batch.n_values) * sizeof(T),
                              stream());
            words_before += words;
            checksum += own.checksum;
        });
        if (words_before != payload_words) fail_index(words_before, payload_words);
        const bool verify = frame.coding.lossless == CUSZ_LOSSLESS_NONE; // else the stored bytes were verified
        if (verify && fold(checksum) != frame.payload_checksum)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
    }

    [[noreturn]] static void fail_index(std::uint64_t words, std::uint64_t expected) {
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the tile index adds up to ", words, " words of ", expected);
    }

    int device_ = 0;
    MemorySource source_;
    DeviceBuffer field_, index_, payloads_, states_, result_, workspace_, tables_;
    Staging staging_;
    std::unique_ptr<Backend> cpu_ = make_cpu_backend(); // for what lies on the host alone
};

} // namespace

std::unique_ptr<DeviceBackend> make_backend() { return std::make_unique<CudaBackend>(); }

} // namespace cusz::cuda
