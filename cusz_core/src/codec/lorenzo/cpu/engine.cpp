// The Lorenzo codec on the CPU: tiles are distributed over threads. The bytes do not depend on the number of threads,
// because every choice is made per tile, or from sums over all tiles.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <tuple>
#include <vector>

#include "archive/checksum.hpp"
#include "cached_tiles.hpp"
#include "codec/backend.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/cpu/parallel.hpp"
#include "codec/lorenzo/codec.hpp"
#include "errors.hpp"
#include "segment.hpp"
#include "window.hpp"

namespace cusz::cpu {

namespace {

// One thread's memory, reused by later calls.
struct Worker {
    std::tuple<std::unique_ptr<Tile<float>>, std::unique_ptr<Tile<double>>> tiles;
    Buffer payload; // one tile's, aligned and padded
    Buffer part;    // values of a tile not decoded in place
    CachedTiles cached;
    Segment segment;

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

class LorenzoEngine final : public HostEngine {
public:
    explicit LorenzoEngine(HostBackend& backend) : backend_(backend) {}

    std::optional<Encoded> encode(const Layout& layout, const Coding& given, const Source& field, int threads,
                                  const Target& target, std::uint64_t capacity,
                                  std::optional<ValueRange>* range) override {
        Coding coding = given;
        resolve_bound(backend_, layout, coding, field, threads);
        const std::size_t model_bytes = codebook_bytes(coding.r);
        if (coding.step == 0 || model_bytes > capacity) return std::nullopt;
        std::byte* const body = target.bytes() + model_bytes;
        const std::uint64_t room = capacity - model_bytes;
        return layout.dtype == CUSZ_F32 ? compress_as(layout, coding, field.as<float>(), threads, body, room, range)
                                        : compress_as(layout, coding, field.as<double>(), threads, body, room, range);
    }

    void decode_box(const Frame& frame, const std::byte* body, int threads, const Selection& box) override {
        if (frame.layout.dtype == CUSZ_F32)
            decompress_as<float>(frame, body, threads, box);
        else
            decompress_as<double>(frame, body, threads, box);
    }

    std::size_t scratch_bytes() const override {
        std::size_t bytes = 0;
        for (const Worker& worker : workers_) bytes += worker.bytes();
        return bytes;
    }
    void release_scratch() override { workers_.clear(); }

private:
    Worker& worker(int i) { return workers_[static_cast<std::size_t>(i)]; }

    void make_workers(int threads) {
        if (workers_.size() < static_cast<std::size_t>(threads)) workers_.resize(static_cast<std::size_t>(threads));
    }

    template <class T>
    static PreparedTile prepare(const Tiling& tiling, const Quantiser<T>& quantiser, std::uint32_t reach,
                                std::uint64_t t, const T* field, Tile<T>& tile) {
        tile.begin(tiling.box(t), tiling.box(std::min(t + prefetch_distance, tiling.n_tiles() - 1)));
        return kernels().lorenzo<T>().prepare(tiling, quantiser, reach, field, tile);
    }

    // Counts the symbols of the sample. cached: receives the counted tiles that were cached; if empty, none are cached.
    template <class T>
    Histogram count_codes(const Tiling& tiling, const Quantiser<T>& quantiser, const Alphabet& alphabet,
                          const Sample& sample, const T* field, int threads, std::vector<const PreparedTile*>& cached) {
        const std::uint64_t n_tiles = tiling.n_tiles();
        std::vector<Histogram> counts(static_cast<std::size_t>(threads), Histogram(alphabet.r));
        for (int thread = 0; thread < threads; ++thread) worker(thread).cached.start(cached.size());
        const Parts parts(n_tiles, threads);
        parallel(threads, parts.number, [&](std::uint64_t part, int thread) {
            auto& tile = worker(thread).tile<T>();
            const auto [begin, end] = parts[part];
            for (std::uint64_t t = begin; t < end; ++t) {
                if (!sample.counts(t)) continue;
                const PreparedTile prepared = prepare(tiling, quantiser, alphabet.reach(), t, field, tile);
                counts[static_cast<std::size_t>(thread)].add(prepared.code, prepared.n);
                if (!cached.empty()) cached[t] = worker(thread).cached.add(prepared);
            }
        });
        for (std::size_t i = 1; i < counts.size(); ++i) counts[0].add(counts[i]);
        return counts[0];
    }

    template <class T>
    std::optional<Encoded> compress_as(const Layout& layout, Coding coding, const T* field, int threads,
                                       std::byte* body, std::uint64_t capacity, std::optional<ValueRange>* range) {
        const LorenzoKernels<T>& stages = kernels().lorenzo<T>();
        const Tiling tiling(layout.ndim, layout.shape.data());
        Quantiser<T> quantiser = Quantiser<T>::from_bound(coding.eb_abs);
        quantiser.special = static_cast<typename Traits<T>::Bits>(coding.special);
        const Alphabet alphabet(coding.r);
        const std::uint64_t n_tiles = tiling.n_tiles(), index_bytes = (n_tiles + 1) / 2 * 4;
        if (index_bytes + n_tiles * 4 > capacity) return std::nullopt;
        make_workers(threads);

        const Sample sample(n_tiles, coding.r);
        std::vector<const PreparedTile*> cached(sample.rate() <= 4 ? n_tiles : 0); // a sparser sample would not pay
        const auto counts_of_sample = count_codes(tiling, quantiser, alphabet, sample, field, threads, cached);
        const HuffmanModel model(counts_of_sample, sample, alphabet);
        // If all tiles were counted, hardly any symbol is in the weights that is not in the field.
        constexpr std::uint64_t of_escapes = 32; // bytes, at most
        if (sample.rate() == 1 && index_bytes + model.bits(alphabet) / 8 > capacity + of_escapes) return std::nullopt;
        if (counts_of_sample.has_beyond(model.book.reach())) cached.clear(); // some of their codes are now out of range
        if (n_tiles % 2 != 0) std::memset(body + n_tiles * 2, 0, 2);
        std::atomic<bool> too_large = false;
        const std::uint64_t max_words = (capacity - index_bytes) / 4;
        std::byte* const payloads = body + index_bytes;
        for (int thread = 0; thread < threads; ++thread) {
            if (thread == 0 && is_aligned<std::uint32_t>(payloads))
                worker(thread).segment.start(reinterpret_cast<std::uint32_t*>(payloads), max_words);
            else
                worker(thread).segment.start(nullptr, 0);
        }
        // The caller takes parts from the first one upwards and writes them in place; the other threads take them from
        // the last one downwards.
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
                    is_cached ? *cached[t] : prepare(tiling, quantiser, model.book.reach(), t, field, tile);
                if (range != nullptr) // while the values are in the cache
                    ranges[static_cast<std::size_t>(thread)].add(
                        stages.value_range(field, tiling.box(t), quantiser.special));
                const std::uint32_t n =
                    stages.write_payload(tiling, model.book, t, field, prepared, words, segment.counts);
                const auto entry = static_cast<std::uint16_t>(n);
                std::memcpy(body + 2 * t, &entry, 2);
                segment.checksum += part_of_sum(t, kernels().weigh(words, n), n);
                if (segment.words + n > max_words || !segment.take(words, n)) too_large = true;
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
        if (too_large || total > max_words) return std::nullopt;
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
        Encoded encoded{coding, std::vector<std::byte>(codebook_bytes(coding.r)), fold(checksum)};
        write_lengths(encoded.model.data(), model.lengths, alphabet);
        return encoded;
    }

    template <class T>
    void decompress_as(const Frame& frame, const std::byte* body, int threads, const Selection& selected) {
        const LorenzoKernels<T>& stages = kernels().lorenzo<T>();
        const Tiling tiling(frame.layout.ndim, frame.layout.shape.data());
        const Window<T> window(tiling, frame.layout, selected);
        Quantiser<T> quantiser;
        quantiser.step = static_cast<T>(frame.coding.step);
        quantiser.special = static_cast<typename Traits<T>::Bits>(frame.coding.special);
        const DecodeBook book(frame.lengths, Alphabet(frame.coding.r));
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

        // Where each part's payloads begin. The whole index is validated before any payload is read.
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
                stages.read_payload(tiling, quantiser, book, t, words, n, tile, target);
                if (target != window.field()) window.copy(t, tile.box, target);
            }
            checksum += sum;
        });
        if (verify && fold(checksum) != frame.payload_checksum)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
    }

    HostBackend& backend_;
    std::vector<Worker> workers_;
};

} // namespace

} // namespace cusz::cpu

std::unique_ptr<cusz::HostEngine> cusz::lorenzo::on_cpu(HostBackend& backend) {
    return std::make_unique<cpu::LorenzoEngine>(backend);
}
