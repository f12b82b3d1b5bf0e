// Times every kernel of the CUDA engine, with CUDA events: the engine's own kernels (kernels.hpp), called in its order
// with its arguments, on a field in device memory. gpu.py loads this with ctypes, and compares what the kernels wrote
// with what cusz_compress and cusz_decompress give: what was timed is what the engine does.
//
// Before every round a piece of memory larger than any cache is overwritten. So the caches are cold, and the host is
// ahead of the device: a stage's time is that from the end of the one before to its own end, on the device, with no
// wait for the host in it. That of nothing (two events in a row) is given as well.
#include <cusz/cusz.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "codebook.hpp"
#include "cuda/check.hpp"
#include "cuda/kernels.hpp"
#include "format/v1.hpp"

namespace {

using namespace cusz;
using namespace cusz::cuda;

constexpr int most_stages = 16;

template <class T>
class DeviceArray {
public:
    explicit DeviceArray(std::size_t count) : bytes_(std::max<std::size_t>(count, 1) * sizeof(T)) {
        CUSZ_CUDA(cudaMalloc(&memory_, bytes_));
        CUSZ_CUDA(cudaMemset(memory_, 0, bytes_));
    }
    ~DeviceArray() { static_cast<void>(cudaFree(memory_)); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    T* data() const { return static_cast<T*>(memory_); }
    std::size_t bytes() const { return bytes_; }
    void clear(cudaStream_t stream) const { CUSZ_CUDA(cudaMemsetAsync(memory_, 0, bytes_, stream)); }
    T first() const {
        T value;
        CUSZ_CUDA(cudaMemcpy(&value, memory_, sizeof(T), cudaMemcpyDefault));
        return value;
    }

private:
    void* memory_ = nullptr;
    std::size_t bytes_;
};

struct Stream {
    cudaStream_t handle = nullptr;
    Stream() { CUSZ_CUDA(cudaStreamCreate(&handle)); }
    ~Stream() { static_cast<void>(cudaStreamDestroy(handle)); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
};

struct Event {
    cudaEvent_t handle = nullptr;
    Event() { CUSZ_CUDA(cudaEventCreate(&handle)); }
    ~Event() { static_cast<void>(cudaEventDestroy(handle)); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
};

struct Stage {
    const char* name;
    std::function<void(cudaStream_t)> launch;
};

double median(std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

} // namespace

extern "C" {

// What gpu.py gets. Times are medians, in microseconds.
struct cusz_stage_times {
    std::int32_t n_stages;
    char name[most_stages][32];
    double time[most_stages];
    double nothing;              // two events in a row
    std::uint64_t archive_bytes; // 0: the field is stored raw, and no reading was timed
};

// field, archive (of cusz_max_archive_bytes), decoded: device memory. Returns 0, or 1 with a message.
CUSZ_API int cusz_time_stages(const cusz_params* params, cusz_dtype dtype, std::int32_t ndim,
                              const std::uint64_t* shape, const void* field, void* archive, void* decoded,
                              std::int32_t repeat, std::uint64_t flush_bytes, cusz_stage_times* times, char* message,
                              std::uint64_t message_bytes);
}

namespace {

class Clock {
public:
    Clock(std::int32_t repeat, std::uint64_t flush_bytes, cusz_stage_times& times)
        : repeat_(std::max(repeat, 1)), flush_(static_cast<std::size_t>(flush_bytes)), times_(times),
          events_(most_stages + 2) {}

    cudaStream_t stream() const { return stream_.handle; }

    // Runs the stages in a row, again and again, the first round untimed.
    void time(const std::vector<Stage>& stages) {
        std::vector<std::vector<double>> found(stages.size() + 1);
        for (std::int32_t round = -1; round < repeat_; ++round) {
            CUSZ_CUDA(cudaMemsetAsync(flush_.data(), round & 255, flush_.bytes(), stream()));
            std::size_t n = 0;
            record(n++);
            record(n++);
            for (const Stage& stage : stages) {
                stage.launch(stream());
                record(n++);
            }
            CUSZ_CUDA(cudaStreamSynchronize(stream()));
            if (round < 0) continue;
            for (std::size_t i = 0; i + 1 < n; ++i) {
                float milliseconds = 0;
                CUSZ_CUDA(cudaEventElapsedTime(&milliseconds, events_[i].handle, events_[i + 1].handle));
                found[i].push_back(1e3 * static_cast<double>(milliseconds));
            }
        }
        times_.nothing = median(found[0]);
        for (std::size_t i = 0; i < stages.size(); ++i) {
            const auto at = static_cast<std::size_t>(times_.n_stages++);
            std::snprintf(times_.name[at], sizeof times_.name[at], "%s", stages[i].name);
            times_.time[at] = median(found[i + 1]);
        }
    }

private:
    void record(std::size_t n) const { CUSZ_CUDA(cudaEventRecord(events_[n].handle, stream())); }

    std::int32_t repeat_;
    DeviceArray<std::byte> flush_;
    cusz_stage_times& times_;
    std::vector<Event> events_;
    Stream stream_;
};

// Words of the payloads; 0 where the field is stored raw.
template <class T>
std::uint64_t time_compression(const Layout& layout, const Coding& coding, const T* field, std::byte* archive,
                               Clock& clock) {
    struct Cleared { // what the engine clears at first, but for the counts
        std::uint64_t ticket;
        CompressResult result;
    };
    const Tiling tiling(layout.ndim, layout.shape.data());
    const Alphabet alphabet(coding.r);
    const std::uint64_t n_tiles = tiling.n_tiles(), index_bytes = (n_tiles + 1) / 2 * 4;
    const std::uint64_t in_front = v1::body_offset(coding.r) + index_bytes;
    const std::uint64_t most = layout.bytes() + raw_header_bytes - 1;
    if (in_front + n_tiles * 4 > most) return 0;

    const DeviceArray<Cleared> cleared(1);
    const DeviceArray<std::uint64_t> counts(alphabet.size()), states(n_tiles),
        book_memory(book_memory_bytes(coding.r) / 8 + 1);
    const DeviceArray<FieldState<T>> state(1);
    const DeviceArray<std::uint8_t> lengths(alphabet.size());
    const DeviceArray<std::uint32_t> small(2 * EncodeTables::small_span), of_symbol(alphabet.size());
    const std::uint32_t n_ranges = most_blocks();
    const DeviceArray<typename RangeArguments<T>::Result> ranges(n_ranges);
    const auto special = static_cast<typename Traits<T>::Bits>(coding.special);
    const bool is_rel = coding.mode == CUSZ_REL;

    const TileBatch batch{tiling, 0, n_tiles, 0};
    const Sample sample(n_tiles, coding.r);
    auto* const index = reinterpret_cast<std::uint16_t*>(archive + v1::body_offset(coding.r));
    const CompressArguments<T, Huffman> compress{
        .batch = batch,
        .field = field,
        .model = {coding.r, small.data(), of_symbol.data()},
        .state = state.data(),
        .index = index,
        .payloads = reinterpret_cast<std::uint32_t*>(archive + in_front),
        .capacity = std::min((most - in_front) / 4, n_tiles + layout.values * words_of<T>),
        .ticket = &cleared.data()->ticket,
        .states = states.data(),
        .result = &cleared.data()->result,
    };
    HeaderArguments<T> header{};
    std::vector<std::byte> host_header(v1::body_offset(coding.r));
    v1::write_tiled_header(host_header.data(), layout, coding, std::vector<std::uint8_t>(alphabet.size()), 0);
    std::memcpy(header.words, host_header.data(), sizeof header.words);
    header.n_tiles = n_tiles;
    header.state = state.data();
    header.result = &cleared.data()->result;
    header.lengths = lengths.data();
    header.r = coding.r;
    header.header = reinterpret_cast<std::uint32_t*>(archive);
    header.index = index;

    std::vector<Stage> stages;
    stages.push_back({"clear", [&](cudaStream_t stream) {
                          cleared.clear(stream);
                          counts.clear(stream);
                          states.clear(stream);
                      }});
    if (is_rel)
        stages.push_back({"compute_range", [&](cudaStream_t stream) {
                              compute_range(RangeArguments<T>{field, layout.values, special, ranges.data()}, stream);
                          }});
    stages.push_back({"resolve_bound", [&](cudaStream_t stream) {
                          cuda::resolve_bound(BoundArguments<T>{coding.eb, special, is_rel ? ranges.data() : nullptr,
                                                                is_rel ? n_ranges : 0, state.data()},
                                              stream);
                      }});
    stages.push_back({"count_symbols", [&](cudaStream_t stream) {
                          count_symbols(CountArguments<T>{batch, field, coding.r, sample, state.data(), counts.data()},
                                        stream);
                      }});
    stages.push_back({"make_book", [&](cudaStream_t stream) {
                          make_book(BookArguments{counts.data(), coding.r, sample, lengths.data(), small.data(),
                                                  of_symbol.data(), &state.data()->reach,
                                                  book_memory_bytes(coding.r) == 0 ? nullptr : book_memory.data()},
                                    stream);
                      }});
    stages.push_back({"compress_tiles", [&](cudaStream_t stream) { compress_tiles(compress, stream); }});
    stages.push_back({"finish_header", [&](cudaStream_t stream) { finish_header(header, stream); }});
    clock.time(stages);

    const Cleared end = cleared.first();
    return state.first().raw != 0 || end.result.too_large != 0 ? 0 : end.result.words;
}

template <class T>
void time_decompression(const std::byte* archive, std::size_t archive_bytes, T* field, Clock& clock) {
    std::vector<std::byte> header(std::min(archive_bytes, most_header_bytes()));
    CUSZ_CUDA(cudaMemcpy(header.data(), archive, header.size(), cudaMemcpyDefault));
    const Frame frame = parse(header.data(), archive, archive_bytes);
    const Tiling tiling(frame.layout.ndim, frame.layout.shape.data());
    const std::uint64_t n_tiles = tiling.n_tiles(), index_bytes = (n_tiles + 1) / 2 * 4;
    const std::uint64_t n_starts = (n_tiles + tiles_of_start - 1) / tiles_of_start;
    const std::uint64_t n_states = (n_tiles + tiles_of_index_block - 1) / tiles_of_index_block;
    const DecodeBook book(frame.lengths, Alphabet(frame.coding.r));
    const DeviceArray<std::uint32_t> table(std::size_t{1} << book.width());
    CUSZ_CUDA(cudaMemcpy(table.data(), book.table(), table.bytes(), cudaMemcpyDefault));
    const DeviceArray<std::uint64_t> starts(n_starts), states(n_states);
    const DeviceArray<DecompressResult> result(1);
    Quantiser<T> quantiser;
    quantiser.step = static_cast<T>(frame.coding.step);
    quantiser.special = static_cast<typename Traits<T>::Bits>(frame.coding.special);

    const IndexArguments index{
        .index = reinterpret_cast<const std::uint16_t*>(frame.body),
        .first_tile = 0,
        .n_tiles = n_tiles,
        .padded = n_tiles % 2 != 0,
        .longest = 1 + max_tile_values * static_cast<std::uint32_t>(words_of<T>),
        .starts = starts.data(),
        .states = states.data(),
        .result = result.data(),
    };
    const DecompressArguments<T, Huffman> decompress{
        .batch = {tiling, 0, n_tiles, 0},
        .quantiser = quantiser,
        .model = {table.data(), book.width(), book.empty()},
        .index = index.index,
        .starts = starts.data(),
        .payloads = reinterpret_cast<const std::uint32_t*>(frame.body + index_bytes),
        .words = (frame.coding.body_bytes - index_bytes) / 4,
        .field = field,
        .result = result.data(),
    };
    clock.time({{"clear_for_reading",
                 [&](cudaStream_t stream) {
                     states.clear(stream);
                     result.clear(stream);
                 }},
                {"find_starts", [&](cudaStream_t stream) { find_starts(index, stream); }},
                {"decompress_tiles", [&](cudaStream_t stream) { decompress_tiles(decompress, stream); }}});
    if (result.first().error != 0) fail(CUSZ_ERROR_CORRUPT, "a tile is bad");
}

// The way of fields that are stored raw: a copy with a checksum.
void time_raw(const Layout& layout, const void* field, std::byte* target, Clock& clock) {
    const DeviceArray<std::uint64_t> checksum(1);
    const PieceArguments pieces{static_cast<const std::uint32_t*>(field), layout.bytes() / 4,
                                reinterpret_cast<std::uint32_t*>(target), checksum.data()};
    clock.time({{"sum_pieces", [&](cudaStream_t stream) { sum_pieces(pieces, stream); }}});
}

template <class T>
void time_all(const Layout& layout, const Coding& coding, const T* field, std::byte* archive, T* decoded,
              std::int32_t repeat, std::uint64_t flush_bytes, cusz_stage_times& times) {
    Clock clock(repeat, flush_bytes, times);
    time_raw(layout, field, archive + raw_header_bytes, clock);
    const std::uint64_t words = time_compression(layout, coding, field, archive, clock);
    if (words == 0) return;
    const Tiling tiling(layout.ndim, layout.shape.data());
    const std::size_t bytes = v1::body_offset(coding.r) + (tiling.n_tiles() + 1) / 2 * 4 + words * 4;
    time_decompression(archive, bytes, decoded, clock);
    times.archive_bytes = bytes;
}

} // namespace

int cusz_time_stages(const cusz_params* params, cusz_dtype dtype, std::int32_t ndim, const std::uint64_t* shape,
                     const void* field, void* archive, void* decoded, std::int32_t repeat, std::uint64_t flush_bytes,
                     cusz_stage_times* times, char* message, std::uint64_t message_bytes) {
    try {
        std::memset(times, 0, sizeof *times);
        const Layout layout(dtype, ndim, shape);
        Coding coding;
        coding.mode = static_cast<cusz_mode>(params->mode);
        coding.eb = params->eb;
        coding.has_fill = params->has_fill != 0;
        while (2 << coding.r < params->bins) ++coding.r;
        auto* const bytes = static_cast<std::byte*>(archive);
        if (dtype == CUSZ_F32) {
            coding.special = special_pattern<float>(coding.has_fill, params->fill);
            time_all(layout, coding, static_cast<const float*>(field), bytes, static_cast<float*>(decoded), repeat,
                     flush_bytes, *times);
        } else {
            coding.special = special_pattern<double>(coding.has_fill, params->fill);
            time_all(layout, coding, static_cast<const double*>(field), bytes, static_cast<double*>(decoded), repeat,
                     flush_bytes, *times);
        }
        return 0;
    } catch (const std::exception& error) {
        std::snprintf(message, static_cast<std::size_t>(message_bytes), "%s", error.what());
        return 1;
    }
}
