// The Lorenzo codec on a device. Data on the host is copied in batches of layers of tiles, as large as memory allows.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "archive/checksum.hpp"
#include "codec/backend.hpp"
#include "codec/lorenzo/codebook.hpp"
#include "codec/lorenzo/codec.hpp"
#include "device/queue.hpp"
#include "errors.hpp"
#include "huffman_model.hpp"
#include "kernels.hpp"
#include "many_fields.hpp"

namespace cusz::cuda {

namespace {

// A run of layers of tiles: which tiles and values it has.
struct Batch {
    std::uint64_t first_tile, n_tiles, first_value, n_values;
    Batch(const Tiling& tiling, std::uint64_t first_layer, std::uint64_t layers)
        : first_tile(first_layer * tiling.tiles_of_layer()), n_tiles(layers * tiling.tiles_of_layer()),
          first_value(tiling.first_value(first_layer)),
          n_values(tiling.first_value(first_layer + layers) - first_value) {}
};

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

// Device data shared by the kernels of one compression.
template <class T>
struct Workspace {
    using Range = typename RangeArguments<T>::Result;

    HuffmanModel model;
    std::uint64_t* ticket;
    CompressResult* result;
    FieldState<T>* state;
    Range* ranges;
    std::size_t cleared_bytes, bytes;

    // memory: `bytes` bytes; or null, if only `bytes` is wanted.
    Workspace(void* memory, int r, std::size_t n_ranges) : model(r) {
        Parts parts(memory);
        model.take_cleared(parts);
        ticket = parts.take<std::uint64_t>(1);
        result_at_ = parts.used();
        result = parts.take<CompressResult>(1);
        cleared_bytes = parts.used();
        state = parts.take<FieldState<T>>(1);
        lengths_at_ = parts.used();
        model.take_lengths(parts);
        lengths_end_ = lengths_at_ + model.n_lengths();
        model.take(parts);
        ranges = parts.take<Range>(n_ranges);
        bytes = parts.used();
    }

    // The results of compression, copied to the host in one piece.
    struct Fetched {
        CompressResult result;
        FieldState<T> state;
        std::vector<std::uint8_t> lengths;
    };
    template <class Fetch>
    Fetched fetch(const Fetch& fetch) const {
        std::vector<std::byte> copy(lengths_end_ - result_at_);
        fetch(reinterpret_cast<const std::byte*>(result), copy.size(), copy.data());
        Fetched fetched;
        std::memcpy(&fetched.result, copy.data(), sizeof fetched.result);
        std::memcpy(&fetched.state, copy.data() + (cleared_bytes - result_at_), sizeof fetched.state);
        const auto* lengths = reinterpret_cast<const std::uint8_t*>(copy.data() + (lengths_at_ - result_at_));
        fetched.lengths.assign(lengths, lengths + model.n_lengths());
        return fetched;
    }

private:
    std::size_t result_at_, lengths_at_, lengths_end_;
};

class LorenzoEngine final : public Engine {
    static auto buffers(auto& own) {
        return std::array{&own.field_,     &own.index_,  &own.payloads_,  &own.states_,      &own.result_,
                          &own.workspace_, &own.tables_, &own.many_.work, &own.many_.bodies, &own.many_.gathered};
    }

public:
    LorenzoEngine(Queue& queue, HostBackend& cpu) : queue_(queue), source_(queue.source), cpu_(cpu) {}

    std::optional<Encoded> encode(const Layout& layout, const Coding& given, const Source& field, int threads,
                                  const Target& target, std::uint64_t capacity, std::optional<ValueRange>*) override {
        Coding coding = given;
        const std::size_t model_bytes = codebook_bytes(coding.r);
        if (model_bytes > capacity) return std::nullopt;
        if (!field.on_device()) { // scanning it on the host is faster than copying it
            resolve_bound(cpu_, layout, coding, field, threads);
            if (coding.step == 0) return std::nullopt;
        }
        const Target body = target.at(model_bytes);
        return queue_.run([&] {
            return layout.dtype == CUSZ_F32 ? compress_as<float>(layout, coding, field, body, capacity - model_bytes)
                                            : compress_as<double>(layout, coding, field, body, capacity - model_bytes);
        });
    }

    bool encode_together(const Coding& coding, bool with_ranges, std::span<FieldToEncode> fields) override {
        if (book_memory_bytes(coding.r) != 0 || fields.size() > max_fields_of_launch) return false;
        std::array<std::vector<FieldToEncode*>, 4> by_shape;
        for (FieldToEncode& field : fields) {
            const TileShape shape = Tiling(field.layout.ndim, field.layout.shape.data()).shape();
            by_shape.at(static_cast<std::size_t>(shape)).push_back(&field);
        }
        queue_.run([&] {
            for (const std::vector<FieldToEncode*>& own : by_shape) {
                if (own.empty()) continue;
                if (own.front()->layout.dtype == CUSZ_F32)
                    ManyFields<float>(queue_, many_, coding, with_ranges, own).encode();
                else
                    ManyFields<double>(queue_, many_, coding, with_ranges, own).encode();
            }
        });
        return true;
    }

    void decode(const Frame& frame, const Source& body, int, const Target& field) override {
        queue_.run([&] {
            if (frame.layout.dtype == CUSZ_F32)
                decompress_as<float>(frame, body, field);
            else
                decompress_as<double>(frame, body, field);
        });
    }

    std::size_t scratch_bytes() const override {
        std::size_t bytes = many_.host_bytes();
        for (const DeviceBuffer* buffer : buffers(*this)) bytes += buffer->bytes();
        return bytes;
    }
    void release_scratch() override {
        queue_.release(buffers(*this));
        many_.release_host();
    }

private:
    cudaStream_t stream() const { return queue_.stream(); }
    void done(const char* stage) const { queue_.done(stage); }

    // Calls reserve(batch), then use(batch), for the whole field. If reserve runs out of memory, frees the buffers that
    // hold a batch, and retries with half as many layers per batch. This happens before any batch is kept, because the
    // first batch of either pass needs at least as much memory as those after it.
    template <class Reserve, class Use>
    void in_batches(const Tiling& tiling, std::uint64_t& layers_at_once, const Reserve& reserve, const Use& use) {
        for (std::uint64_t layer = 0; layer < tiling.layers();) {
            const std::uint64_t layers = std::min(layers_at_once, tiling.layers() - layer);
            const Batch batch(tiling, layer, layers);
            try {
                reserve(batch);
            } catch (const Error& error) {
                if (error.status() != CUSZ_ERROR_MEMORY || layers == 1) throw;
                queue_.make_room(std::array{&field_, &index_, &payloads_, &states_});
                layers_at_once = (layers + 1) / 2;
                continue;
            }
            use(batch);
            layer += layers;
        }
    }

    // The batch's values on the device: in place, or copied there. kept: the first tile of the batch in the buffer.
    template <class T>
    const T* field_of(const Source& field, const Batch& batch, std::uint64_t& kept) {
        if (field.on_device()) return field.as<T>() + batch.first_value;
        T* const copy = field_.reserve<T>(source_, batch.n_values);
        if (kept != batch.first_tile)
            queue_.staging.copy(copy, field.as<T>() + batch.first_value,
                                static_cast<std::size_t>(batch.n_values) * sizeof(T), stream());
        kept = batch.first_tile;
        return copy;
    }
    static constexpr std::uint64_t no_batch = ~std::uint64_t{0};

    template <class T>
    std::optional<Encoded> compress_as(const Layout& layout, Coding coding, const Source& field, const Target& body,
                                       std::uint64_t capacity_bytes) {
        const bool from_device = field.on_device(), to_device = body.on_device();
        require_aligned(field, sizeof(T));
        require_aligned(body, 4);
        const Tiling tiling(layout.ndim, layout.shape.data());
        const std::uint64_t n_tiles = tiling.n_tiles(), index_bytes = (n_tiles + 1) / 2 * 4;
        if (index_bytes + n_tiles * 4 > capacity_bytes) return std::nullopt;
        const auto tiles_of = [&](const Batch& batch) {
            return TileBatch{tiling, batch.first_tile, batch.n_tiles, batch.first_value};
        };
        std::uint64_t layers = tiling.layers(), kept = no_batch;
        const std::uint64_t max_words = (capacity_bytes - index_bytes) / 4;
        const auto capacity_of = [&](const Batch& batch) {
            return std::min(max_words, batch.n_tiles + batch.n_values * words_of<T>);
        };
        const auto reserve = [&](const Batch& batch) {
            if (!from_device) field_.reserve<T>(source_, batch.n_values);
            if (!to_device) index_.reserve<std::uint16_t>(source_, batch.n_tiles);
            if (!to_device) payloads_.reserve<std::uint32_t>(source_, capacity_of(batch));
            states_.reserve<std::uint64_t>(source_, batch.n_tiles);
        };

        const bool finds_range = from_device && coding.mode == CUSZ_REL;
        const std::size_t n_ranges = finds_range ? max_blocks() : 0;
        auto* const memory = workspace_.reserve<std::byte>(source_, Workspace<T>(nullptr, coding.r, n_ranges).bytes);
        const Workspace<T> work(memory, coding.r, n_ranges);
        CUSZ_CUDA(cudaMemsetAsync(memory, 0, work.cleared_bytes, stream()));
        done("clear");
        const auto special = static_cast<typename Traits<T>::Bits>(coding.special);
        if (finds_range) {
            compute_range(RangeArguments<T>{field.as<T>(), layout.values, special, work.ranges}, stream());
            done("compute_range");
        }
        cuda::resolve_bound(BoundArguments<T>{finds_range || coding.mode == CUSZ_ABS ? coding.eb : coding.eb_abs,
                                              special, finds_range ? work.ranges : nullptr,
                                              static_cast<std::uint32_t>(n_ranges), work.state},
                            stream());
        done("resolve_bound");

        const Sample sample(n_tiles, coding.r);
        in_batches(tiling, layers, reserve, [&](const Batch& batch) {
            const T* const values = field_of<T>(field, batch, kept);
            count_symbols(CountArguments<T>{tiles_of(batch), values, coding.r, sample, work.state, work.model.counts()},
                          stream());
        });
        done("count_symbols");
        work.model.build(sample, &work.state->reach, stream());
        done("make_book");

        std::byte *const index = body.bytes(), *const payloads = index + index_bytes;
        typename Workspace<T>::Fetched found;
        std::uint64_t words = 0; // of the previous batches
        bool is_raw = false;
        in_batches(tiling, layers, reserve, [&](const Batch& batch) {
            if (is_raw) return;
            const std::uint64_t capacity = std::min(max_words - words, capacity_of(batch));
            const CompressArguments<T> a{
                .batch = tiles_of(batch),
                .field = field_of<T>(field, batch, kept),
                .tables = work.model.writing(),
                .state = work.state,
                .index = to_device ? reinterpret_cast<std::uint16_t*>(index) + batch.first_tile
                                   : index_.reserve<std::uint16_t>(source_, batch.n_tiles),
                .payloads = to_device ? reinterpret_cast<std::uint32_t*>(payloads) + words
                                      : payloads_.reserve<std::uint32_t>(source_, capacity),
                .capacity = capacity,
                .ticket = work.ticket,
                .states = queue_.cleared<std::uint64_t>(states_, batch.n_tiles),
                .result = work.result,
            };
            if (batch.first_tile > 0) CUSZ_CUDA(cudaMemsetAsync(work.ticket, 0, sizeof *work.ticket, stream()));
            done("clear_states");
            compress_tiles(a, stream());
            done("compress_tiles");
            found = work.fetch([&](const std::byte* from, std::size_t n, std::byte* to) { queue_.fetch(to, from, n); });
            is_raw = found.state.raw != 0 || found.result.too_large != 0;
            if (is_raw) return;
            if (!to_device) {
                queue_.staging.copy(index + 2 * batch.first_tile, a.index, static_cast<std::size_t>(batch.n_tiles) * 2,
                                    stream());
                queue_.staging.copy(payloads + 4 * words, a.payloads,
                                    static_cast<std::size_t>(found.result.words - words) * 4, stream());
            }
            words = found.result.words;
        });
        if (is_raw) return std::nullopt;
        if (n_tiles % 2 != 0) { // pad the index
            if (to_device)
                CUSZ_CUDA(cudaMemsetAsync(index + n_tiles * 2, 0, 2, stream()));
            else
                std::memset(index + n_tiles * 2, 0, 2);
        }
        return encoded_of(coding, found.result, found.state, found.lengths.data(), index_bytes);
    }

    template <class T>
    void decompress_as(const Frame& frame, const Source& from, const Target& to) {
        const bool from_device = from.on_device(), to_device = to.on_device();
        require_aligned(from, 4);
        require_aligned(to, sizeof(T));
        const std::byte* const body = from.bytes();
        T* const field = to.as<T>();
        const Tiling tiling(frame.layout.ndim, frame.layout.shape.data());
        Quantiser<T> quantiser;
        quantiser.step = static_cast<T>(frame.coding.step);
        quantiser.special = static_cast<typename Traits<T>::Bits>(frame.coding.special);
        const std::uint64_t n_tiles = tiling.n_tiles(), index_bytes = (n_tiles + 1) / 2 * 4;
        const std::byte* const payloads = body + index_bytes;
        const std::uint64_t payload_words = (frame.coding.body_bytes - index_bytes) / 4;
        const HuffmanTable table(frame, table_entries_, tables_, source_);

        // Kernels count tiles in 32 bits, in steps of all warps. Memory may not limit a batch: a check has no output.
        constexpr std::uint64_t most_tiles = std::uint64_t{1} << 31;
        const std::uint64_t of_layer = std::max<std::uint64_t>(1, tiling.tiles_of_layer());
        if (of_layer > most_tiles)
            fail(CUSZ_ERROR_UNSUPPORTED, "a layer of the field has ", of_layer,
                 " tiles, more than can be read on a device: use backend cpu");
        std::uint64_t layers = std::min(tiling.layers(), most_tiles / of_layer);
        std::uint64_t words_before = 0, checksum = 0;
        std::vector<std::uint16_t> index; // on the host, if there are several batches
        const auto words_of_batch = [&](const Batch& batch) {
            if (batch.n_tiles == n_tiles) return payload_words;
            if (index.empty()) {
                std::vector<std::uint16_t> whole(n_tiles);
                queue_.staging.copy(whole.data(), body, whole.size() * 2, stream());
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
        in_batches(tiling, layers, reserve, [&](const Batch& batch) {
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
                queue_.staging.copy(index_copy, own_index, static_cast<std::size_t>(entries_of_index) * 2, stream());
                queue_.staging.copy(payload_copy, own_payloads, static_cast<std::size_t>(words) * 4, stream());
                index_words = index_copy;
                payload_words_at = payload_copy;
            }
            T* const values = field == nullptr ? nullptr
                              : to_device      ? field + batch.first_value
                                               : field_.reserve<T>(source_, batch.n_values);
            auto* const states = queue_.cleared<std::uint64_t>(states_, states_of(batch) + starts_of(batch));
            auto* const result = queue_.cleared<DecompressResult>(result_, 1);
            const IndexArguments starts{
                .index = index_words,
                .first_tile = batch.first_tile,
                .n_tiles = batch.n_tiles,
                .padded = padded,
                .shortest = 1,
                .longest = 1 + max_tile_values * static_cast<std::uint32_t>(words_of<T>),
                .starts = states + states_of(batch),
                .states = states,
                .result = result,
            };
            const DecompressArguments<T> a{
                .batch = {tiling, batch.first_tile, batch.n_tiles, batch.first_value},
                .quantiser = quantiser,
                .table = table.reading(),
                .index = index_words,
                .starts = starts.starts,
                .payloads = payload_words_at,
                .words = words,
                .field = values,
                .result = result,
            };
            done("clear_for_reading");
            find_starts(starts, stream());
            done("find_starts");
            decompress_tiles(a, stream());
            done("decompress_tiles");
            const DecompressResult outcome = queue_.fetched(a.result);
            if (outcome.index_error != 0 || outcome.error != 0) {
                const std::uint64_t report = ~(outcome.index_error != 0 ? outcome.index_error : outcome.error);
                const auto what = static_cast<TileError>(report & 255);
                if (what == TileError::index_padding) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", text_of(what));
                fail(CUSZ_ERROR_CORRUPT, "corrupt archive: tile ", (report >> 8) - 1, ": ", text_of(what));
            }
            if (outcome.words != words) fail_index(words_before + outcome.words, payload_words);
            if (field != nullptr && !to_device)
                queue_.staging.copy(field + batch.first_value, values,
                                    static_cast<std::size_t>(batch.n_values) * sizeof(T), stream());
            words_before += words;
            checksum += outcome.checksum;
        });
        if (words_before != payload_words) fail_index(words_before, payload_words);
        const bool verify = frame.coding.lossless == CUSZ_LOSSLESS_NONE; // else the stored bytes were verified
        if (verify && fold(checksum) != frame.payload_checksum)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
    }

    [[noreturn]] static void fail_index(std::uint64_t words, std::uint64_t expected) {
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the tile index adds up to ", words, " words, not ", expected);
    }

    Queue& queue_;
    const MemorySource& source_;
    HostBackend& cpu_;
    DeviceBuffer field_, index_, payloads_, states_, result_, workspace_, tables_;
    std::vector<std::uint32_t> table_entries_; // what is copied to `tables_`
    ManyFieldsMemory many_;
};

} // namespace

} // namespace cusz::cuda

std::unique_ptr<cusz::Engine> cusz::lorenzo::on_device(cuda::Queue& queue, HostBackend& cpu) {
    return std::make_unique<cuda::LorenzoEngine>(queue, cpu);
}
