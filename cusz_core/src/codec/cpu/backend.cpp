// The CPU backend: tiles are distributed over threads. The bytes do not depend on the number of threads: every choice
// is made per tile, or from sums over all tiles.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <tuple>
#include <vector>

#include "archive/checksum.hpp"
#include "codec/backend.hpp"
#include "codec/lorenzo/cpu/cached_tiles.hpp"
#include "codec/lorenzo/cpu/window.hpp"
#include "codec/spline/cpu/engine.hpp"
#include "errors.hpp"
#include "kernels.hpp"
#include "parallel.hpp"
#include "segment.hpp"

namespace cusz::cpu {

namespace {

// One thread's memory, reused by later calls.
struct Worker {
    std::tuple<std::unique_ptr<Tile<float>>, std::unique_ptr<Tile<double>>> tiles;
    Buffer payload; // one tile's, aligned and padded
    Buffer part;    // values of a tile not wanted whole
    CachedTiles cached;
    Segment<std::uint32_t> segment;

    template <class T>
    Tile<T>& tile() {
        auto& tile = std::get<std::unique_ptr<Tile<T>>>(tiles);
        if (!tile) tile = std::make_unique<Tile<T>>();
        return *tile;
    }
    std::size_t bytes() const {
        const auto& [f32, f64] = tiles;
        return (f32 ? sizeof *f32 : 0) + (f64 ? sizeof *f64 : 0) + payload.bytes() + part.bytes() + cached.bytes() +
               segment.bytes();
    }
};

constexpr std::uint64_t log_run = 1 << 12; // values; their logarithms stay in the cache

// The rows of a box, or runs of them.
struct Rows {
    struct Row {
        std::uint64_t n;
        std::uint64_t place;    // of the first value in the field
        std::uint64_t from, to; // in a dense box, and in the caller's array
    };

    Rows(const Layout& whole, const Selection& selection, std::uint64_t longest) : layout(whole), box(selection) {
        last = static_cast<std::size_t>(layout.ndim) - 1;
        std::uint64_t rows = 1;
        for (std::size_t d = 0; d < last; ++d) rows *= box.count[d];
        run = longest;
        runs = (box.count[last] + run - 1) / run;
        number = rows * runs;
        stride = box.stride[last];
    }
    Row operator[](std::uint64_t index) const {
        const std::uint64_t row = index / runs, begin = index % runs * run;
        std::uint64_t rest = row, place = box.start[last] + begin, to = begin * stride, extent = layout.shape[last];
        for (std::size_t d = last; d-- > 0; extent *= layout.shape[d]) {
            const std::uint64_t i = rest % box.count[d];
            rest /= box.count[d];
            place += (box.start[d] + i) * extent;
            to += i * box.stride[d];
        }
        return {std::min(run, box.count[last] - begin), place, row * box.count[last] + begin, to};
    }

    const Layout& layout;
    const Selection& box;
    std::size_t last;
    std::uint64_t run, runs, number, stride;
};

class CpuBackend final : public HostBackend {
public:
    ValueRange value_range(cusz_dtype dtype, std::uint64_t values, const Source& field, std::uint64_t special,
                           int threads) override {
        constexpr std::uint64_t batch = 1 << 16;
        const Parts parts(values, threads);
        std::vector<ValueRange> ranges(parts.number);
        parallel(threads, parts.number, [&](std::uint64_t part, int) {
            const auto [begin, end] = parts[part];
            for (std::uint64_t at = begin; at < end; at += batch) {
                const std::uint64_t n = std::min(batch, end - at);
                ranges[part].add(dtype == CUSZ_F32 ? kernels().value_range_f32(field.as<float>() + at, n,
                                                                               static_cast<std::uint32_t>(special))
                                                   : kernels().value_range_f64(field.as<double>() + at, n, special));
            }
        });
        ValueRange range;
        for (const ValueRange& partial : ranges) range.add(partial);
        return range;
    }

    std::optional<Encoded> compress(const Layout& layout, Coding coding, const Source& field, int threads,
                                    const Target& body, std::uint64_t capacity,
                                    std::optional<ValueRange>* range) override {
        resolve_bound(*this, layout, coding, field, threads);
        if (coding.step == 0) return std::nullopt;
        const auto& stages = kernels().of(coding.predictor);
        return layout.dtype == CUSZ_F32
                   ? compress_as(stages.f32, layout, coding, field.as<float>(), threads, body.bytes(), capacity, range)
                   : compress_as(stages.f64, layout, coding, field.as<double>(), threads, body.bytes(), capacity,
                                 range);
    }

    void decompress(const Frame& frame, const Source& body, int threads, const Target& field) override {
        decompress_box(frame, body.bytes(), threads, whole(frame.layout, field.pointer));
    }

    void decompress_box(const Frame& frame, const std::byte* body, int threads, const Selection& box) override {
        const auto& stages = kernels().of(frame.coding.predictor);
        if (frame.layout.dtype == CUSZ_F32)
            decompress_as(stages.f32, frame, body, threads, box);
        else
            decompress_as(stages.f64, frame, body, threads, box);
    }

    std::optional<Encoded> compress_pyramid(const Layout& layout, const Coding& coding, const Pyramid& pyramid,
                                            const Top& top, const Source& field, int threads, const Target& target,
                                            std::uint64_t capacity) override {
        return spline().compress(layout, coding, pyramid, top, field.pointer, threads, target.bytes(), capacity);
    }

    void decompress_pyramid(const Frame& frame, const Pyramid& pyramid, const Top& top, const Source& body, int threads,
                            const Target& field) override {
        decompress_pyramid_box(frame, pyramid, top, body.bytes(), threads, whole(frame.layout, field.pointer));
    }

    void decompress_pyramid_box(const Frame& frame, const Pyramid& pyramid, const Top& top, const std::byte* body,
                                int threads, const Selection& box) override {
        spline().decompress(frame, pyramid, top, body, threads, box);
    }

    void gather_points(const Layout& layout, const Lattice& lattice, const Source& field, void* values) override {
        if (layout.dtype == CUSZ_F32)
            gather_box(field.as<float>(), lattice.extent, lattice.field_stride, static_cast<float*>(values));
        else
            gather_box(field.as<double>(), lattice.extent, lattice.field_stride, static_cast<double*>(values));
    }

    Forecast forecast(const Layout& layout, const Coding& coding, const Source& field, int threads) override {
        return forecast_by_boxes(
            layout, coding, [&](std::vector<TileBox>&) { return HostValues{field.pointer, layout.values}; }, threads);
    }

    Forecast forecast_by_boxes(const Layout& layout, const Coding& coding, const BoxReader& read,
                               int threads) override {
        if (layout.dtype == CUSZ_F32) return spline().forecast(layout, coding, read, tiles<float>(threads));
        return spline().forecast(layout, coding, read, tiles<double>(threads));
    }

    ExponentRange exponent_range(const Layout& layout, const Source& field, std::uint64_t special,
                                 int threads) override {
        const auto of = [&]<class T>(const LogKernels<T>& log_kernels) {
            const Parts parts(layout.values, threads);
            std::vector<ExponentRange> ranges(parts.number);
            parallel(threads, parts.number, [&](std::uint64_t part, int) {
                const auto [begin, end] = parts[part];
                ranges[part] = log_kernels.exponent_range(field.as<T>() + begin, end - begin,
                                                          static_cast<typename Traits<T>::Bits>(special));
            });
            ExponentRange range = ranges[0];
            for (const ExponentRange& other : ranges)
                range = {std::min(range.least, other.least), std::max(range.most, other.most)};
            return range;
        };
        return layout.dtype == CUSZ_F32 ? of(kernels().logs_f32) : of(kernels().logs_f64);
    }

    Target log_memory(const Source&, std::size_t bytes) override { return {logs_.reserve(bytes)}; }

    bool to_logs(const Layout& layout, const Source& field, const LogScale& scale, std::uint64_t special, int threads,
                 const Target& logs, std::uint64_t* signs) override {
        const auto to = [&]<class T>(const LogKernels<T>& log_kernels) {
            std::atomic<std::uint64_t> any = 0;
            const Parts parts((layout.values + log_run - 1) / log_run, threads);
            parallel(threads, parts.number, [&](std::uint64_t part, int) {
                const auto [first, last] = parts[part];
                for (std::uint64_t run = first; run < last; ++run) {
                    const std::uint64_t begin = run * log_run, n = std::min(log_run, layout.values - begin);
                    log_kernels.to_logs(field.as<T>() + begin, n, scale, static_cast<typename Traits<T>::Bits>(special),
                                        logs.bytes() + begin * scale.value_bytes(layout.dtype), signs + begin / 64);
                    std::uint64_t found = 0;
                    for (std::uint64_t word = begin / 64; word * 64 < begin + n; ++word) found |= signs[word];
                    if (found != 0) any = 1;
                }
            });
            return any != 0;
        };
        return layout.dtype == CUSZ_F32 ? to(kernels().logs_f32) : to(kernels().logs_f64);
    }

    void from_logs(const Layout& layout, const Source& logs, const LogScale& scale, std::uint64_t special,
                   const std::uint64_t* signs, int threads, const Target& field) override {
        const Layout row(layout.dtype, 1, &layout.values); // long runs
        from_logs_box(row, logs.pointer, scale, special, signs, threads, whole(row, field.pointer));
    }

    void from_logs_box(const Layout& layout, const void* logs, const LogScale& scale, std::uint64_t special,
                       const std::uint64_t* signs, int threads, const Selection& box) override {
        const auto from = [&]<class T>(const LogKernels<T>& log_kernels) {
            const Rows rows(layout, box, log_run);
            const Parts parts(rows.number, threads);
            parallel(threads, parts.number, [&](std::uint64_t part, int) {
                std::vector<T> apart; // values that are not neighbours in the caller's array
                const auto [first, last] = parts[part];
                for (std::uint64_t number = first; number < last; ++number) {
                    const auto [n, place, begin, to] = rows[number];
                    T* const target = static_cast<T*>(box.field) + to;
                    if (rows.stride != 1) apart.resize(n);
                    log_kernels.from_logs(static_cast<const std::byte*>(logs) + begin * scale.value_bytes(layout.dtype),
                                          n, scale, static_cast<typename Traits<T>::Bits>(special), signs, place,
                                          rows.stride == 1 ? target : apart.data());
                    if (rows.stride == 1) continue;
                    for (std::uint64_t i = 0; i < n; ++i) target[i * rows.stride] = apart[i];
                }
            });
        };
        layout.dtype == CUSZ_F32 ? from(kernels().logs_f32) : from(kernels().logs_f64);
    }

    std::uint32_t piece_checksum(const Source& data, std::uint64_t bytes, int threads, const Target& target) override {
        std::atomic<std::uint64_t> sum = 0;
        const Parts parts(piece_count(bytes), threads);
        parallel(threads, parts.number, [&](std::uint64_t part, int) {
            const auto [first, last] = parts[part];
            std::uint64_t partial = 0;
            for (std::uint64_t p = first; p < last; ++p) {
                partial += piece(p, data.pointer, bytes);
                if (target.pointer == nullptr) continue;
                const std::uint64_t begin = p * piece_words * 4;
                std::memcpy(target.bytes() + begin, data.bytes() + begin,
                            std::min<std::uint64_t>(piece_words * 4, bytes - begin));
            }
            sum += partial;
        });
        return fold(sum);
    }

    void copy(void* target, const void* source, std::size_t bytes) override { std::memcpy(target, source, bytes); }

    std::size_t scratch_bytes() const override {
        std::size_t bytes = logs_.bytes() + (spline_ ? spline_->scratch_bytes() : 0);
        for (const Worker& worker : workers_) bytes += worker.bytes();
        return bytes;
    }

    void release_scratch() override {
        workers_.clear();
        spline_.reset();
        logs_.release();
    }

private:
    Worker& worker(int i) { return workers_[static_cast<std::size_t>(i)]; }

    void make_workers(int threads) {
        if (workers_.size() < static_cast<std::size_t>(threads)) workers_.resize(static_cast<std::size_t>(threads));
    }

    template <class T>
    std::vector<Tile<T>*> tiles(int threads) {
        make_workers(threads);
        std::vector<Tile<T>*> tiles(static_cast<std::size_t>(threads));
        for (int i = 0; i < threads; ++i) tiles[static_cast<std::size_t>(i)] = &worker(i).tile<T>();
        return tiles;
    }

    // Prepares tile number t of the field.
    template <class Coder, class T>
    static PreparedTile prepare(const TileKernels<T, Coder>& stages, const TileCoder<T>& coder, std::uint32_t reach,
                                std::uint64_t t, const T* field, Tile<T>& tile) {
        const Tiling& tiling = coder.tiling;
        tile.begin(tiling.box(t), tiling.box(std::min(t + prefetch_distance, tiling.n_tiles() - 1)));
        return stages.prepare(coder, reach, field, tile);
    }

    // Counts the symbols of the sample. cached: gets the counted tiles that were cached; empty: caches none.
    template <class Coder, class T>
    typename Coder::Counts count_codes(const TileKernels<T, Coder>& stages, const TileCoder<T>& coder,
                                       const Alphabet& alphabet, const Sample& sample, const T* field, int threads,
                                       std::vector<const PreparedTile*>& cached) {
        const std::uint64_t n_tiles = coder.tiling.n_tiles();
        using Counts = typename Coder::Counts;
        std::vector<Counts> counts(static_cast<std::size_t>(threads), Counts(alphabet.r));
        for (int thread = 0; thread < threads; ++thread) worker(thread).cached.start(cached.size());
        const Parts parts(n_tiles, threads);
        parallel(threads, parts.number, [&](std::uint64_t part, int thread) {
            auto& tile = worker(thread).tile<T>();
            const auto [begin, end] = parts[part];
            for (std::uint64_t t = begin; t < end; ++t) {
                if (!sample.counts(t)) continue;
                const PreparedTile prepared = prepare(stages, coder, alphabet.reach(), t, field, tile);
                counts[static_cast<std::size_t>(thread)].add(prepared.code, prepared.n);
                if (!cached.empty()) cached[t] = worker(thread).cached.add(prepared);
            }
        });
        for (std::size_t i = 1; i < counts.size(); ++i) counts[0].add(counts[i]);
        return counts[0];
    }

    template <class Coder, class T>
    std::optional<Encoded> compress_as(const TileKernels<T, Coder>& stages, const Layout& layout, Coding coding,
                                       const T* field, int threads, std::byte* body, std::uint64_t capacity,
                                       std::optional<ValueRange>* range) {
        const Tiling tiling(layout.ndim, layout.shape.data());
        Quantiser<T> quantiser = Quantiser<T>::from_bound(coding.eb_abs);
        quantiser.special = static_cast<typename Traits<T>::Bits>(coding.special);
        const TileCoder<T> coder{tiling, quantiser};
        const Alphabet alphabet(coding.r);
        const std::uint64_t n_tiles = tiling.n_tiles(), index_bytes = (n_tiles + 1) / 2 * 4;
        if (index_bytes + n_tiles * 4 > capacity) return std::nullopt;
        make_workers(threads);

        const Sample sample(n_tiles, coding.r);
        std::vector<const PreparedTile*> cached(sample.rate() <= 4 ? n_tiles : 0); // at lower rates it would not pay
        const auto counts_of_sample = count_codes(stages, coder, alphabet, sample, field, threads, cached);
        const typename Coder::Model model(counts_of_sample, sample, alphabet);
        if (counts_of_sample.has_beyond(model.writing.reach()))
            cached.clear(); // some of their codes are now out of range
        if (n_tiles % 2 != 0) std::memset(body + n_tiles * 2, 0, 2);
        std::atomic<bool> too_large = false;
        const std::uint64_t most_words = (capacity - index_bytes) / 4;
        std::byte* const payloads = body + index_bytes;
        for (int thread = 0; thread < threads; ++thread) {
            if (thread == 0 && is_aligned<std::uint32_t>(payloads))
                worker(thread).segment.start(reinterpret_cast<std::uint32_t*>(payloads), most_words);
            else
                worker(thread).segment.start(nullptr, 0);
        }
        // The caller takes parts from the first one upwards and writes them in place; the others from the last one
        // downwards.
        struct Written {
            int thread;
            std::uint64_t from, words;
        };
        const Parts parts(n_tiles, threads);
        std::vector<Written> written(parts.number);
        std::vector<ValueRange> ranges(static_cast<std::size_t>(threads));
        std::uint64_t next_of_caller = 0;
        std::atomic<std::uint64_t> taken_by_others = 0;
        parallel(threads, parts.number, [&](std::uint64_t, int thread) {
            const std::uint64_t part = thread == 0 ? next_of_caller++ : parts.number - 1 - taken_by_others++;
            auto& tile = worker(thread).tile<T>();
            auto& segment = worker(thread).segment;
            const std::uint64_t from = segment.words;
            const auto [begin, end] = parts[part];
            for (std::uint64_t t = begin; t < end && !too_large.load(std::memory_order_relaxed); ++t) {
                std::uint32_t* const words = segment.room(longest_payload<T>);
                const bool is_cached = !cached.empty() && cached[t] != nullptr;
                const PreparedTile prepared =
                    is_cached ? *cached[t] : prepare(stages, coder, model.writing.reach(), t, field, tile);
                if (range != nullptr) // while the values are in the cache
                    ranges[static_cast<std::size_t>(thread)].add(
                        stages.value_range(field, tiling.box(t), quantiser.special));
                const std::uint32_t n =
                    stages.write_payload(coder, model.writing, t, field, prepared, words, segment.counts);
                const auto entry = static_cast<std::uint16_t>(n);
                std::memcpy(body + 2 * t, &entry, 2);
                segment.checksum += part_of_sum(t, kernels().weigh(words, n), n);
                if (segment.words + n > most_words || !segment.take(words, n)) too_large = true;
            }
            written[part] = {thread, from, segment.words - from};
        });
        std::uint64_t total = 0, checksum = 0;
        Counts counts;
        for (int thread = 0; thread < threads; ++thread) {
            total += worker(thread).segment.words;
            checksum += worker(thread).segment.checksum;
            counts += worker(thread).segment.counts;
        }
        if (too_large || total > most_words) return std::nullopt;
        std::vector<std::uint64_t> place(parts.number, 0);
        for (std::size_t part = 1; part < place.size(); ++part) place[part] = place[part - 1] + written[part - 1].words;
        parallel(threads, parts.number, [&](std::uint64_t part, int) {
            const Written& run = written[part];
            worker(run.thread).segment.copy_to(payloads + place[part] * 4, run.from, run.words);
        });
        if (range != nullptr) {
            range->emplace();
            for (const ValueRange& of_thread : ranges) (*range)->add(of_thread);
        }
        coding.body_bytes = coding.stored_bytes = index_bytes + total * 4;
        coding.n_special = counts.special;
        coding.n_out_of_range = counts.out_of_range;
        coding.n_unpredictable = counts.unpredictable;
        return Encoded{coding, model.lengths, fold(checksum)};
    }

    template <class Coder, class T>
    void decompress_as(const TileKernels<T, Coder>& stages, const Frame& frame, const std::byte* body, int threads,
                       const Selection& selected) {
        const Tiling tiling(frame.layout.ndim, frame.layout.shape.data());
        const Window<T> window(tiling, frame.layout, selected);
        Quantiser<T> quantiser;
        quantiser.step = static_cast<T>(frame.coding.step);
        quantiser.special = static_cast<typename Traits<T>::Bits>(frame.coding.special);
        const TileCoder<T> coder{tiling, quantiser};
        const typename Coder::Reading model(frame.lengths, Alphabet(frame.coding.r));
        const std::uint64_t n_tiles = tiling.n_tiles(), index_bytes = (n_tiles + 1) / 2 * 4;
        const std::byte* const payloads = body + index_bytes;
        const std::uint64_t payload_words = (frame.coding.body_bytes - index_bytes) / 4;
        const auto words_of_tile = [&](std::uint64_t t) {
            std::uint16_t words;
            std::memcpy(&words, body + 2 * t, 2);
            return words;
        };
        make_workers(threads);
        if (n_tiles % 2 != 0 && words_of_tile(n_tiles) != 0)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the padding of the tile index is not 0");

        // Where each part's tiles begin. The index is validated as a whole before any entry is used.
        const Parts parts(n_tiles, threads);
        std::vector<std::uint64_t> begin(parts.number + 1, 0);
        parallel(threads, parts.number, [&](std::uint64_t part, int) {
            const auto [first, last] = parts[part];
            std::uint64_t words = 0;
            for (std::uint64_t t = first; t < last; ++t) {
                if (words_of_tile(t) == 0 || words_of_tile(t) > 1 + max_tile_values * words_of<T>)
                    fail(CUSZ_ERROR_CORRUPT, "corrupt archive: tile ", t, " has ", words_of_tile(t), " words");
                words += words_of_tile(t);
            }
            begin[part + 1] = words;
        });
        for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
        if (begin.back() != payload_words)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the tile index adds up to ", begin.back(), " words, not ",
                 payload_words);

        const bool verify = frame.coding.lossless == CUSZ_LOSSLESS_NONE; // else the stored bytes were verified
        // Payloads are read in place, except those whose margin would extend past the end of the body.
        const bool aligned = is_aligned<std::uint32_t>(payloads);
        std::atomic<std::uint64_t> checksum = 0;
        parallel(threads, parts.number, [&](std::uint64_t part, int thread) {
            Worker& memory = worker(thread);
            auto& tile = memory.tile<T>();
            const auto [first, last] = parts[part];
            std::uint64_t sum = 0, at = begin[part];
            for (std::uint64_t t = first; t < last; ++t) {
                const std::uint32_t n = words_of_tile(t);
                const std::uint32_t* words = reinterpret_cast<const std::uint32_t*>(payloads + at * 4);
                if (!aligned || at + n + payload_margin_words > payload_words) {
                    auto* copy = memory.payload.reserve<std::uint32_t>(UINT16_MAX + payload_margin_words);
                    std::memcpy(copy, payloads + at * 4, n * 4);
                    std::memset(copy + n, 0, payload_margin_words * 4);
                    words = copy;
                }
                at += n;
                if (verify) sum += part_of_sum(t, kernels().weigh(words, n), n);
                T* const target = window.begin(t, tile, memory.part);
                if (target == nullptr) continue;
                stages.read_payload(coder, model, t, words, n, tile, target);
                if (target != window.field()) window.copy(t, tile.box, target);
            }
            checksum += sum;
        });
        if (verify && fold(checksum) != frame.payload_checksum)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
    }

    SplineEngine& spline() {
        if (!spline_) spline_ = make_spline_engine();
        return *spline_;
    }

    std::vector<Worker> workers_;
    Buffer logs_;
    std::unique_ptr<SplineEngine> spline_;
};

} // namespace

} // namespace cusz::cpu

std::unique_ptr<cusz::HostBackend> cusz::make_cpu_backend() { return std::make_unique<cusz::cpu::CpuBackend>(); }
