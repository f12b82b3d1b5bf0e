// The CPU backend: tiles shared out over threads. Bytes do not depend on the number of threads: every choice is made
// per tile, or over sums of all tiles.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "../backend.hpp"
#include "../checksum.hpp"
#include "../errors.hpp"
#include "../float_mode.hpp"
#include "histogram.hpp"
#include "kept_tiles.hpp"
#include "kernels.hpp"

namespace cusz::cpu {

namespace {

// Runs work(0) to work(threads - 1), each with IEEE arithmetic, and rethrows the first failure. The threads live for
// this call: none is left to wait for after a fork, or when ADIOS2 unloads its plugins. Where the system refuses a
// thread, those there are take its share.
template <class Work>
void parallel(int threads, const Work& work) {
    if (threads == 1) return work(0);
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(threads));
    std::atomic<int> next = 0;
    const auto take_shares = [&] {
        const FloatMode mode;
        for (int i = next++; i < threads; i = next++) {
            try {
                work(i);
            } catch (...) {
                failures[static_cast<std::size_t>(i)] = std::current_exception();
            }
        }
    };
    {
        std::vector<std::jthread> helpers;
        helpers.reserve(static_cast<std::size_t>(threads));
        try {
            for (int i = 1; i < threads; ++i) helpers.emplace_back(take_shares);
        } catch (const std::system_error&) {
        }
        take_shares();
    }
    for (const auto& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

bool is_aligned(const std::byte* words) { return reinterpret_cast<std::uintptr_t>(words) % 4 == 0; }

// The share of `count` things that thread i of `threads` takes.
struct Share {
    std::uint64_t begin, end;
    Share(std::uint64_t count, int i, int threads) {
        const auto n = static_cast<std::uint64_t>(threads), t = static_cast<std::uint64_t>(i);
        begin = count / n * t + std::min(count % n, t);
        end = begin + count / n + (t < count % n ? 1 : 0);
    }
};

// Payloads that one thread has finished, one behind the other: where they belong if that is known, as it is for the
// first thread, else in memory of the segment's own.
class Segment {
public:
    std::size_t words = 0;
    std::uint64_t checksum = 0;
    Counts counts;

    // begin, capacity: where the payloads belong, words that may be written there; or null.
    void start(std::uint32_t* begin, std::size_t capacity) {
        in_place_ = begin != nullptr;
        begin_ = in_place_ ? begin : own_.reserve<std::uint32_t>(0);
        capacity_ = in_place_ ? capacity : own_.bytes() / 4;
        words = 0;
        checksum = 0;
        counts = {};
    }
    // Room for the next payload, of at most `longest` words.
    std::uint32_t* room(std::size_t longest) {
        if (words + longest <= capacity_) return begin_ + words;
        if (in_place_) return last_.reserve<std::uint32_t>(longest);
        Buffer larger;
        larger.reserve((words + longest) * 6);
        if (words > 0) std::memcpy(larger.reserve(0), begin_, words * 4);
        std::swap(own_, larger);
        begin_ = own_.reserve<std::uint32_t>(0);
        capacity_ = own_.bytes() / 4;
        return begin_ + words;
    }
    // Takes the payload that was written to room(). Returns false where it does not fit in place.
    bool take(const std::uint32_t* payload, std::size_t n) {
        if (words + n > capacity_) return false;
        if (payload != begin_ + words) std::memcpy(begin_ + words, payload, n * 4);
        words += n;
        return true;
    }
    // Copies the words of a share to where they belong; target: the place of the first word of all.
    void copy_to(std::byte* target, const Share& share) const {
        if (!in_place_ && share.end > share.begin)
            std::memcpy(target + share.begin * 4, begin_ + share.begin, (share.end - share.begin) * 4);
    }
    std::size_t bytes() const { return own_.bytes() + last_.bytes(); }

private:
    Buffer own_, last_; // last_: for a payload that might not fit in place
    bool in_place_ = false;
    std::uint32_t* begin_ = nullptr;
    std::size_t capacity_ = 0;
};

// One thread's memory, reused over calls.
struct Worker {
    std::unique_ptr<Tile<float>> f32;
    std::unique_ptr<Tile<double>> f64;
    Buffer payload; // of one tile, aligned and padded
    KeptTiles kept;
    Segment segment;

    template <class T>
    Tile<T>& tile() {
        const auto made = [](auto& own) -> auto& {
            if (!own) own = std::make_unique<Tile<T>>();
            return *own;
        };
        if constexpr (sizeof(T) == 4)
            return made(f32);
        else
            return made(f64);
    }
    std::size_t bytes() const {
        return (f32 ? sizeof *f32 : 0) + (f64 ? sizeof *f64 : 0) + payload.bytes() + kept.bytes() + segment.bytes();
    }
};

class CpuBackend final : public Backend {
public:
    ValueRange value_range(cusz_dtype dtype, std::uint64_t values, const void* field, std::uint64_t special,
                           int threads) override {
        std::vector<ValueRange> parts(static_cast<std::size_t>(threads));
        parallel(threads, [&](int i) {
            const Share share(values, i, threads);
            const std::uint64_t n = share.end - share.begin;
            parts[static_cast<std::size_t>(i)] =
                dtype == CUSZ_F32
                    ? kernels().f32.value_range(static_cast<const float*>(field) + share.begin, n,
                                                static_cast<std::uint32_t>(special))
                    : kernels().f64.value_range(static_cast<const double*>(field) + share.begin, n, special);
        });
        ValueRange range;
        for (const ValueRange& part : parts) {
            if (part.n_valid == 0) continue;
            range.min = range.n_valid == 0 ? part.min : std::min(range.min, part.min);
            range.max = range.n_valid == 0 ? part.max : std::max(range.max, part.max);
            range.n_valid += part.n_valid;
        }
        return range;
    }

    std::size_t compress(const Layout& layout, Coding coding, const void* field, int threads, void* archive) override {
        return layout.dtype == CUSZ_F32
                   ? compress_as(layout, coding, static_cast<const float*>(field), threads, archive)
                   : compress_as(layout, coding, static_cast<const double*>(field), threads, archive);
    }

    void decompress(const Frame& frame, const std::byte* body, int threads, void* field) override {
        if (frame.layout.dtype == CUSZ_F32)
            decompress_as(frame, body, threads, static_cast<float*>(field));
        else
            decompress_as(frame, body, threads, static_cast<double*>(field));
    }

    std::uint32_t piece_checksum(const void* data, std::uint64_t bytes, int threads, void* target) override {
        std::atomic<std::uint64_t> sum = 0;
        parallel(threads, [&](int i) {
            const Share share(piece_count(bytes), i, threads);
            std::uint64_t own = 0;
            for (std::uint64_t p = share.begin; p < share.end; ++p) {
                own += piece(p, data, bytes);
                if (target == nullptr) continue;
                const std::uint64_t begin = p * piece_words * 4;
                std::memcpy(static_cast<char*>(target) + begin, static_cast<const char*>(data) + begin,
                            std::min<std::uint64_t>(piece_words * 4, bytes - begin));
            }
            sum += own;
        });
        return fold(sum);
    }

    std::size_t scratch_bytes() const override {
        std::size_t bytes = 0;
        for (const Worker& worker : workers_) bytes += worker.bytes();
        return bytes;
    }

    void release_scratch() override { workers_.clear(); }

private:
    Worker& worker(int i) { return workers_[static_cast<std::size_t>(i)]; }

    void hire(int threads) {
        if (workers_.size() < static_cast<std::size_t>(threads)) workers_.resize(static_cast<std::size_t>(threads));
    }

    template <class T>
    Histogram count_symbols(const TileCoder<T>& coder, const Sample& sample, const T* field, int threads) {
        std::vector<Histogram> parts(static_cast<std::size_t>(threads), Histogram(coder.alphabet.r));
        parallel(threads, [&](int i) {
            auto& tile = worker(i).tile<T>();
            KeptTiles& kept = worker(i).kept;
            const Share share(coder.tiling.n_tiles(), i, threads);
            kept.start(sample.rate() <= 4 ? share.end - share.begin : 0); // where few are counted it saves nothing
            for (std::uint64_t t = share.begin; t < share.end; ++t) {
                if (!sample.counts(t)) continue;
                const PreparedTile prepared = kernels().of<T>().prepare(coder, coder.alphabet.reach(), t, field, tile);
                parts[static_cast<std::size_t>(i)].add(prepared.delta, prepared.n);
                kept.keep(t, prepared);
            }
        });
        for (std::size_t i = 1; i < parts.size(); ++i) parts[0].add(parts[i]);
        return parts[0];
    }

    template <class T>
    std::size_t compress_as(const Layout& layout, Coding coding, const T* field, int threads, void* archive) {
        const Tiling tiling(layout.ndim, layout.shape.data());
        Quantiser<T> quantiser = Quantiser<T>::from_bound(coding.eb_abs);
        quantiser.special = static_cast<typename Traits<T>::Bits>(coding.special);
        const TileCoder<T> coder{tiling, quantiser, Alphabet(coding.r)};
        const std::uint64_t n_tiles = tiling.n_tiles(), index_bytes = (n_tiles + 1) / 2 * 4;
        const std::uint64_t in_front = body_offset(coding.r) + index_bytes;
        const std::uint64_t most = layout.bytes() + raw_header_bytes - 1; // a raw archive is as good from there on
        if (in_front + n_tiles * 4 > most) return 0;
        hire(threads);

        const Sample sample(n_tiles, coding.r);
        const Histogram histogram = count_symbols(coder, sample, field, threads);
        const std::vector<std::uint8_t> lengths = code_lengths(histogram.weights(sample), coder.alphabet);
        const EncodeBook book(lengths, coder.alphabet);
        const bool kept_are_right = !histogram.has_beyond(book.reach()); // else some of their deltas are outliers now
        auto* const index = static_cast<std::byte*>(archive) + body_offset(coding.r);
        if (n_tiles % 2 != 0) std::memset(index + n_tiles * 2, 0, 2);
        std::atomic<bool> too_large = false;
        const std::uint64_t most_words = (most - in_front) / 4;
        std::byte* const payloads = static_cast<std::byte*>(archive) + in_front;
        const bool aligned = is_aligned(payloads);
        parallel(threads, [&](int i) {
            auto& tile = worker(i).tile<T>();
            Segment& segment = worker(i).segment;
            if (i == 0 && aligned)
                segment.start(reinterpret_cast<std::uint32_t*>(payloads), most_words);
            else
                segment.start(nullptr, 0);
            const Share share(n_tiles, i, threads);
            for (std::uint64_t t = share.begin; t < share.end && !too_large.load(std::memory_order_relaxed); ++t) {
                std::uint32_t* const words = segment.room(longest_payload<T>);
                const PreparedTile* kept = kept_are_right ? worker(i).kept.find(t) : nullptr;
                const PreparedTile prepared =
                    kept != nullptr ? *kept : kernels().of<T>().prepare(coder, book.reach(), t, field, tile);
                const std::uint32_t n =
                    kernels().of<T>().write_payload(coder, book, t, field, prepared, words, segment.counts);
                const auto entry = static_cast<std::uint16_t>(n);
                std::memcpy(index + 2 * t, &entry, 2);
                segment.checksum += part_of_sum(t, kernels().weigh(words, n), n);
                if (segment.words + n > most_words || !segment.take(words, n)) too_large = true;
            }
        });
        std::uint64_t total = 0, checksum = 0;
        Counts counts;
        for (int i = 0; i < threads; ++i) {
            total += worker(i).segment.words;
            checksum += worker(i).segment.checksum;
            counts += worker(i).segment.counts;
        }
        if (too_large || total > most_words) return 0;
        parallel(threads, [&](int i) {
            std::uint64_t before = 0;
            for (int j = 0; j < threads; ++j) { // a part of every segment, as the first one needs no copy
                const Segment& segment = worker(j).segment;
                segment.copy_to(payloads + before * 4, Share(segment.words, i, threads));
                before += segment.words;
            }
        });
        coding.step = static_cast<double>(quantiser.step);
        coding.body_bytes = coding.stored_bytes = index_bytes + total * 4;
        coding.n_special = counts.special;
        coding.n_delta_outliers = counts.delta_outliers;
        coding.n_value_outliers = counts.value_outliers;
        write_tiled_header(archive, layout, coding, lengths, fold(checksum));
        return static_cast<std::size_t>(in_front + total * 4);
    }

    template <class T>
    void decompress_as(const Frame& frame, const std::byte* body, int threads, T* field) {
        const Tiling tiling(frame.layout.ndim, frame.layout.shape.data());
        Quantiser<T> quantiser;
        quantiser.step = static_cast<T>(frame.coding.step);
        quantiser.special = static_cast<typename Traits<T>::Bits>(frame.coding.special);
        const TileCoder<T> coder{tiling, quantiser, Alphabet(frame.coding.r)};
        const DecodeBook book(frame.lengths, coder.alphabet);
        const std::uint64_t n_tiles = tiling.n_tiles(), index_bytes = (n_tiles + 1) / 2 * 4;
        const std::byte* const payloads = body + index_bytes;
        const std::uint64_t payload_words = (frame.coding.body_bytes - index_bytes) / 4;
        const auto words_of_tile = [&](std::uint64_t t) {
            std::uint16_t words;
            std::memcpy(&words, body + 2 * t, 2);
            return words;
        };
        hire(threads);
        if (n_tiles % 2 != 0 && words_of_tile(n_tiles) != 0)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the padding of the tile index is not 0");

        // Where every thread's tiles begin; the index has to fit the body before anything of it is followed.
        std::vector<std::uint64_t> begin(static_cast<std::size_t>(threads) + 1, 0);
        parallel(threads, [&](int i) {
            const Share share(n_tiles, i, threads);
            std::uint64_t words = 0;
            for (std::uint64_t t = share.begin; t < share.end; ++t) {
                if (words_of_tile(t) == 0 || words_of_tile(t) > 1 + max_tile_values * words_of<T>)
                    fail(CUSZ_ERROR_CORRUPT, "corrupt archive: tile ", t, " has ", words_of_tile(t), " words");
                words += words_of_tile(t);
            }
            begin[static_cast<std::size_t>(i) + 1] = words;
        });
        for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
        if (begin.back() != payload_words)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the tile index adds up to ", begin.back(), " words of ",
                 payload_words);

        const bool verify = frame.coding.lossless == CUSZ_LOSSLESS_NONE; // else the stored bytes were verified
        // Payloads are read where they lie, save those whose margin would reach behind the body.
        const bool aligned = is_aligned(payloads);
        std::atomic<std::uint64_t> checksum = 0;
        parallel(threads, [&](int i) {
            Worker& own = worker(i);
            auto& tile = own.tile<T>();
            const Share share(n_tiles, i, threads);
            std::uint64_t sum = 0, at = begin[static_cast<std::size_t>(i)];
            for (std::uint64_t t = share.begin; t < share.end; ++t) {
                const std::uint32_t n = words_of_tile(t);
                const std::uint32_t* words = reinterpret_cast<const std::uint32_t*>(payloads + at * 4);
                if (!aligned || at + n + payload_margin_words > payload_words) {
                    auto* copy = own.payload.reserve<std::uint32_t>(UINT16_MAX + payload_margin_words);
                    std::memcpy(copy, payloads + at * 4, n * 4);
                    std::memset(copy + n, 0, payload_margin_words * 4);
                    words = copy;
                }
                at += n;
                if (verify) sum += part_of_sum(t, kernels().weigh(words, n), n);
                if (field != nullptr) kernels().of<T>().read_payload(coder, book, t, words, n, tile, field);
            }
            checksum += sum;
        });
        if (verify && fold(checksum) != frame.payload_checksum)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
    }

    std::vector<Worker> workers_;
};

} // namespace

} // namespace cusz::cpu

std::unique_ptr<cusz::Backend> cusz::make_cpu_backend() { return std::make_unique<cusz::cpu::CpuBackend>(); }
