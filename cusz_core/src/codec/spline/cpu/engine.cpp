#include "engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include "archive/checksum.hpp"
#include "archive/tiling.hpp"
#include "archive/v2.hpp"
#include "choice.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/cpu/parallel.hpp"
#include "codec/cpu/payload_runs.hpp"
#include "codec/cpu/segment.hpp"
#include "codec/lorenzo/cpu/tile.hpp"
#include "codec/lorenzo/sample.hpp"
#include "codec/spline/codec.hpp"
#include "codec/spline/top.hpp"
#include "destination.hpp"
#include "errors.hpp"
#include "kernels.hpp"
#include "sample_tile.hpp"
#include "schedule.hpp"

namespace cusz::cpu {

namespace {

using spline::Top;
using spline::TopCoder;

// One thread's memory, reused by later calls.
struct Worker {
    std::tuple<SplineTiles<float>, SplineTiles<double>> all_tiles;
    std::unique_ptr<SplineScratch> scratch; // of these tiles
    std::unique_ptr<RansCounts> counts, sample_counts;
    Buffer around;  // points of coarser lattices around a tile of a sample
    Buffer payload; // one tile's, aligned and padded
    Segment<std::uint16_t> segment;
    Buffer outputs; // of tiles written at once
    std::vector<Patch> patches;

    // The first n exist.
    template <class T>
    SplineTiles<T>& tiles(std::uint32_t n) {
        auto& tiles = std::get<SplineTiles<T>>(all_tiles);
        if (!scratch) scratch = std::make_unique<SplineScratch>();
        for (std::uint32_t j = 0; j < n; ++j)
            if (!tiles[j]) tiles[j] = std::make_unique<SplineTile<T>>(*scratch);
        return tiles;
    }
    template <class T>
    SplineTile<T>& tile() {
        return *tiles<T>(1)[0];
    }
    RansCounts& made_counts() { return made(counts); }
    static RansCounts& made(std::unique_ptr<RansCounts>& counts) {
        if (!counts) counts = std::make_unique<RansCounts>();
        return *counts;
    }
    std::size_t bytes() const {
        std::size_t bytes = (counts ? sizeof *counts : 0) + (sample_counts ? sizeof *sample_counts : 0) +
                            around.bytes() + payload.bytes() + segment.bytes() + outputs.bytes() +
                            patches.capacity() * sizeof(Patch);
        if (scratch) bytes += sizeof *scratch + scratch->bytes();
        const auto& [f32, f64] = all_tiles;
        for (const auto& tile : f32) bytes += tile ? sizeof *tile + tile->bytes() : 0;
        for (const auto& tile : f64) bytes += tile ? sizeof *tile + tile->bytes() : 0;
        return bytes;
    }
};

// The sum of a tile's part of the checksum: units two to a word.
std::uint64_t weigh_units(const std::uint16_t* units, std::uint32_t n) {
    const std::uint64_t last = n % 2 != 0 ? std::uint64_t{units[n - 1]} * checksum_weight(n / 2) : 0;
    return kernels().weigh(units, n / 2) + last;
}

std::uint16_t get_unit(const std::byte* units, std::uint64_t i) {
    std::uint16_t unit;
    std::memcpy(&unit, units + 2 * i, 2);
    return unit;
}

std::uint64_t top_part(const Pyramid& pyramid, const std::byte* section, std::size_t bytes) {
    return part_of_sum(pyramid.n_tiles, kernels().weigh(section, bytes / 4), bytes / 2);
}

class Engine final : public SplineEngine {
public:
    explicit Engine(HostBackend& backend) : tops_(backend) {}

    bool choose(const Layout& layout, Coding& coding, const BoxReader& read, int threads) override {
        const Forecast found = forecast(layout, coding, read, threads);
        coding.spline = found.spline;
        return coding.predictor != CUSZ_PREDICTOR_AUTO || found.spline_pays();
    }

    Forecast forecast(const Layout& layout, const Coding& coding, const BoxReader& read, int threads) override {
        lorenzo_f32_.resize(static_cast<std::size_t>(threads));
        lorenzo_f64_.resize(static_cast<std::size_t>(threads));
        if (layout.dtype == CUSZ_F32)
            return cpu::forecast(layout, coding, read, sample_memory<float>(threads), lorenzo_f32_);
        return cpu::forecast(layout, coding, read, sample_memory<double>(threads), lorenzo_f64_);
    }

    std::optional<Encoded> encode(const Layout& layout, const Coding& coding, const Source& field, int threads,
                                  const Target& target, std::uint64_t capacity, std::optional<ValueRange>*) override {
        if (layout.dtype == CUSZ_F32)
            return compress_as(layout, coding, field.as<float>(), threads, target.bytes(), capacity);
        return compress_as(layout, coding, field.as<double>(), threads, target.bytes(), capacity);
    }

    void decode_box(const Frame& frame, const std::byte* body, int threads, const Selection& box) override {
        const Pyramid pyramid(frame.layout.ndim, frame.layout.shape.data(), frame.coding.spline.halved);
        const Top top = tops_.read(frame, pyramid, [&](void* to, std::size_t from, std::size_t bytes) {
            std::memcpy(to, body + from, bytes);
        });
        if (frame.layout.dtype == CUSZ_F32)
            decompress_as<float>(frame, pyramid, top, body, threads, box);
        else
            decompress_as<double>(frame, pyramid, top, body, threads, box);
    }

    std::size_t scratch_bytes() const override {
        std::size_t bytes = tops_.bytes() + lattices_.bytes() + first_units_.bytes() + (counts_ ? sizeof *counts_ : 0) +
                            (writing_ ? sizeof *writing_ : 0) + (reading_ ? sizeof *reading_ : 0);
        for (const Worker& worker : workers_) bytes += worker.bytes();
        for (const auto& tile : lorenzo_f32_) bytes += tile ? sizeof *tile : 0;
        for (const auto& tile : lorenzo_f64_) bytes += tile ? sizeof *tile : 0;
        return bytes;
    }

    void release_scratch() override {
        tops_.release();
        workers_.clear();
        lorenzo_f32_.clear();
        lorenzo_f64_.clear();
        writing_.reset();
        reading_.reset();
        counts_.reset();
        lattices_.release();
        first_units_.release();
    }

private:
    Worker& worker(int i) { return workers_[static_cast<std::size_t>(i)]; }

    void make_workers(int threads) {
        if (workers_.size() < static_cast<std::size_t>(threads)) workers_.resize(static_cast<std::size_t>(threads));
    }

    template <class T>
    std::vector<SampleMemory<T>> sample_memory(int threads) {
        make_workers(threads);
        std::vector<SampleMemory<T>> memory;
        memory.reserve(static_cast<std::size_t>(threads));
        for (int i = 0; i < threads; ++i)
            memory.push_back({worker(i).tile<T>(), worker(i).made_counts(),
                              i == 0 ? lattices_ : worker(i).around}); // the field's lattices come later
        return memory;
    }

    template <class T>
    static const SplineKernels<T>& stages() {
        if constexpr (sizeof(T) == 4)
            return kernels().spline_f32;
        else
            return kernels().spline_f64;
    }

    // Arrays for all lattices but the field; the top's are filled.
    template <class T>
    std::vector<LatticeArrays<T>> make_arrays(const Schedule& schedule, const Top& top, const Quantiser<T>& q,
                                              std::vector<Patch>& patches) {
        const Pyramid& pyramid = schedule.pyramid();
        const std::vector<std::uint64_t> at = schedule.places();
        const std::uint64_t values = at.back();
        auto* const value = lattices_.reserve<T>(values + lane_room + (values + lane_room) / sizeof(T) + 1);
        auto* const magnitude = reinterpret_cast<std::uint8_t*>(value + values + lane_room);
        std::vector<LatticeArrays<T>> arrays(pyramid.lattices.size());
        for (std::size_t i = 1; i < arrays.size(); ++i) arrays[i] = {value + at[i], magnitude + at[i], 0};
        const auto* const given = static_cast<const T*>(top.values);
        const Lattice& lattice = pyramid.top();
        T last = 0;
        for (std::uint64_t j = 0; j < lattice.values(); ++j) {
            const bool is_special = bits_of(given[j]) == q.special;
            const bool is_finite = std::abs(given[j]) <= std::numeric_limits<T>::max();
            if (!is_special && is_finite) last = given[j];
            arrays.back().value[j] = last;
            arrays.back().magnitude[j] = is_special ? v2::special_magnitude : std::uint8_t{0};
            if (is_special || is_finite) continue;
            Patch patch{{}, bits_of(given[j])};
            std::uint64_t rest = j;
            for (std::size_t a = 0; a < 4; ++a) {
                patch.at[a] =
                    rest % lattice.extent[a] *
                    pyramid.scale(arrays.size() - 1, static_cast<std::uint32_t>(a)); // its axes are the field's
                rest /= lattice.extent[a];
            }
            patches.push_back(patch);
        }
        return arrays;
    }

    // Makes room for the values of a stage, where a strip is kept of its lattice.
    template <class T>
    static void begin_stage(const Schedule& schedule, const Stage& stage, std::vector<LatticeArrays<T>>& arrays) {
        const std::size_t i = stage.lattice;
        if (i == 0 || schedule.is_whole(i)) return;
        LatticeArrays<T>& array = arrays[i];
        const Schedule::Strip strip = schedule.strip(i);
        if (stage.first == 0) array.before = 0; // nothing is known yet
        const std::uint64_t first = array.before / strip.step;
        if (stage.known - first <= schedule.width(i)) return;
        const std::size_t away = (stage.needed - first) * strip.step,
                          n = (schedule.position(i, stage.first) - stage.needed) * strip.step;
        for (std::uint64_t part = 0; part < strip.parts; ++part) {
            const std::size_t to = part * strip.apart;
            std::memmove(array.value + to, array.value + to + away, n * sizeof(T));
            std::memmove(array.magnitude + to, array.magnitude + to + away, n);
        }
        array.before += away;
    }

    template <class T>
    std::optional<Encoded> compress_as(const Layout& layout, const Coding& given, const T* field, int threads,
                                       std::byte* target, std::uint64_t capacity) {
        make_workers(threads);
        const Pyramid whole(layout.ndim, layout.shape.data(), given.spline.halved);
        const Top top = tops_.write(layout, given, whole, [&](void* values) {
            gather_box(field, whole.top().extent, whole.top().field_stride, static_cast<T*>(values));
        });
        const Schedule schedule(whole, sizeof(T), threads);
        const Pyramid& pyramid = schedule.pyramid();
        Coding coding = given;
        const SplineCoder<T> coder = coder_of<T>(pyramid, coding, field + pyramid.lattices[0].values());
        std::vector<Patch> patches;
        auto arrays = make_arrays<T>(schedule, top, coder.quantiser[0], patches);
        const RansModel model = count<T>(schedule, coder, field, arrays, threads);
        Encoded encoded{coding, model.bytes(), 0};
        const std::uint64_t index_bytes = (pyramid.n_tiles + 1) / 2 * 4,
                            front = encoded.model.size() + top.section.size();
        if (front + index_bytes > capacity) return std::nullopt;
        std::memcpy(target, encoded.model.data(), encoded.model.size());
        std::memcpy(target + encoded.model.size(), top.section.data(), top.section.size());
        std::byte* const index = target + front;
        std::byte* const payloads = index + index_bytes;
        std::memset(index, 0, index_bytes);
        const std::uint64_t max_units = (capacity - front - index_bytes) / 2;

        if (!writing_) writing_ = std::make_unique<RansWriting>();
        writing_->set(model);
        const bool in_place = threads == 1 && is_aligned<std::uint16_t>(payloads);
        for (int thread = 0; thread < threads; ++thread)
            worker(thread).segment.start(in_place ? reinterpret_cast<std::uint16_t*>(payloads) : nullptr,
                                         in_place ? max_units : 0);
        struct Written : PayloadRun {
            int thread = 0;
            std::uint64_t from = 0;
        };
        std::vector<Written> written;
        std::atomic<bool> too_large = false;
        for (const Stage& stage : schedule.stages(false)) {
            const std::size_t i = stage.lattice;
            const Lattice& lattice = pyramid.lattices[i];
            begin_stage(schedule, stage, arrays);
            const auto ranges = schedule.ranges(stage, threads);
            const std::size_t first_part = written.size();
            written.resize(first_part + ranges.size());
            parallel(threads, ranges.size(), [&](std::uint64_t part, int thread) {
                auto& tile = worker(thread).tile<T>();
                auto& segment = worker(thread).segment;
                auto* const outputs = worker(thread).outputs.template reserve<SplineOutput<T>>(tiles_at_once);
                const std::uint64_t from = segment.words;
                const auto [begin, end, run] = ranges[part];
                SplinePayload batch[max_tiles_written];
                for (std::uint64_t t = begin; t < end && !too_large.load(std::memory_order_relaxed);) {
                    const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(end - t, max_tiles_written));
                    const std::uint32_t n_written =
                        stages<T>().write(coder, i, t, most, field, arrays[i + 1], arrays[i], tile, *writing_, outputs,
                                          batch, segment.counts);
                    t += n_written;
                    for (std::uint32_t j = 0; j < n_written && !too_large; ++j) {
                        const auto [of_tile, units, n] = batch[j];
                        const std::uint64_t number = lattice.first_tile + of_tile;
                        const auto entry = static_cast<std::uint16_t>(n);
                        std::memcpy(index + 2 * number, &entry, 2);
                        segment.checksum += part_of_sum(number, weigh_units(units, n), n);
                        if (segment.words + n > max_units || !segment.append(units, n)) too_large = true;
                    }
                }
                written[first_part + part] = {{run, segment.words - from}, thread, from};
            });
        }
        std::uint64_t units = 0, checksum = 0;
        Counts counts;
        for (int thread = 0; thread < threads; ++thread) {
            units += worker(thread).segment.words;
            checksum += worker(thread).segment.checksum;
            counts += worker(thread).segment.counts;
        }
        const std::uint64_t body_bytes = top.section.size() + index_bytes + (units + 1) / 2 * 4;
        if (too_large || encoded.model.size() + body_bytes > capacity) return std::nullopt;
        if (in_place) {
            std::vector<PayloadRun> runs(written.begin(), written.end());
            put_in_order(reinterpret_cast<std::uint16_t*>(payloads), runs, lattices_.reserve<std::uint16_t>(0),
                         lattices_.bytes() / 2); // lattices are needed no more
        } else {
            std::stable_sort(written.begin(), written.end(),
                             [](const Written& a, const Written& b) { return a.run < b.run; });
            std::uint64_t at = 0;
            std::vector<std::uint64_t> place;
            for (const Written& run : written) {
                place.push_back(at);
                at += run.units;
            }
            parallel(threads, written.size(), [&](std::uint64_t part, int) {
                const Written& run = written[part];
                worker(run.thread).segment.copy_to(payloads + place[part] * 2, run.from, run.units);
            });
        }
        if (units % 2 != 0) std::memset(payloads + units * 2, 0, 2);
        encoded.coding.body_bytes = encoded.coding.stored_bytes = body_bytes;
        encoded.coding.n_special = counts.special;
        encoded.coding.n_unpredictable = counts.unpredictable;
        encoded.payload_checksum =
            fold(checksum + top_part(pyramid, target + encoded.model.size(), top.section.size()));
        return encoded;
    }

    // Chooses the model from the symbols of the coarser lattices and of a sample of the field (format_v2.md, section
    // 10).
    template <class T>
    RansModel count(const Schedule& schedule, const SplineCoder<T>& coder, const T* field,
                    std::vector<LatticeArrays<T>>& arrays, int threads) {
        const Pyramid& pyramid = coder.pyramid;
        const std::uint64_t n_tiles = pyramid.lattices[0].n_tiles;
        const Sample sample(n_tiles, default_r);
        const bool is_large = sample.rate() == Sample::most && pyramid.n_coded() > 1;
        for (int thread = 0; thread < threads; ++thread) {
            worker(thread).made_counts().clear();
            if (is_large) Worker::made(worker(thread).sample_counts).clear();
        }
        const std::uint64_t n = is_large ? std::max(n_tiles / 32, std::uint64_t{128}) : 0; // tiles of its sample
        std::atomic<std::uint64_t> n_around = 0; // points of lattice 1 counted with them
        std::vector<std::uint64_t> tiles(n);     // in the order in which stages come to them
        for (std::uint64_t j = 0; j < n; ++j) tiles[j] = sampled(j, n, n_tiles);
        const auto row_of = [&](std::uint64_t tile) { return schedule.row(0, tile); };
        std::ranges::stable_sort(tiles, {}, row_of);
        std::span<const std::uint64_t> left = tiles;
        for (const Stage& stage : schedule.stages(is_large)) {
            const std::size_t i = stage.lattice;
            if (is_large && i == 0) {
                const auto end = std::ranges::lower_bound(left, stage.end, {}, row_of);
                const auto of_stage = left.first(static_cast<std::size_t>(end - left.begin()));
                count_sample(coder, field, arrays[2], of_stage, threads, n_around);
                left = left.subspan(of_stage.size());
                continue;
            }
            const Lattice& lattice = pyramid.lattices[i];
            begin_stage(schedule, stage, arrays);
            const auto ranges = schedule.ranges(stage, threads);
            parallel(threads, ranges.size(), [&](std::uint64_t part, int thread) {
                for (std::uint64_t t = ranges[part].begin; t < ranges[part].end; ++t)
                    if (i > 0 || sample.counts(t))
                        stages<T>().count(coder, i, tile_of(lattice, t), field, arrays[i + 1], arrays[i],
                                          worker(thread).tile<T>(), *worker(thread).counts);
            });
        }
        if (threads == 1 && sample.rate() == 1) return choose_model(*worker(0).counts);
        if (!counts_) counts_ = std::make_unique<RansCounts>();
        counts_->clear();
        for (int thread = 0; thread < threads; ++thread) {
            counts_->add(*worker(thread).counts, sample.rate(), 1); // of a large field nothing of lattice 0
            if (is_large)
                counts_->add(*worker(thread).sample_counts, n_tiles / n,
                             std::max<std::uint64_t>(pyramid.lattices[1].values() / n_around, 1));
        }
        return choose_model(*counts_);
    }

    // Counts tiles of lattice 0, with what is around them in lattice 1. coarse: lattice 2.
    template <class T>
    void count_sample(const SplineCoder<T>& coder, const T* field, const LatticeArrays<T>& coarse,
                      std::span<const std::uint64_t> tiles, int threads, std::atomic<std::uint64_t>& n_around) {
        const Parts parts(tiles.size(), threads);
        parallel(threads, parts.number, [&](std::uint64_t part, int thread) {
            Worker& memory = worker(thread);
            SampleTile<T> one(coder, field, coarse, memory.around);
            const auto [begin, end] = parts[part];
            for (std::uint64_t j = begin; j < end; ++j)
                n_around += one.count(tiles[j], stages<T>(), memory.tile<T>(), *memory.sample_counts);
        });
    }

    template <class T>
    void decompress_as(const Frame& frame, const Pyramid& whole, const Top& top, const std::byte* body, int threads,
                       const Selection& box) {
        make_workers(threads);
        const Schedule schedule(whole, sizeof(T), threads);
        const Pyramid& pyramid = schedule.pyramid();
        const SplineCoder<T> coder = coder_of<T>(pyramid, frame.coding);
        for (Worker& worker : workers_) worker.patches.clear();
        auto arrays = make_arrays<T>(schedule, top, coder.quantiser[0], worker(0).patches);
        if (!reading_) reading_ = std::make_unique<RansReading>();
        reading_->set(RansModel::parse(frame.model));

        const std::uint64_t index_bytes = (pyramid.n_tiles + 1) / 2 * 4;
        const std::byte* const index = body + top.section.size();
        const std::byte* const payloads = index + index_bytes;
        const std::uint64_t n_units = (frame.coding.body_bytes - top.section.size() - index_bytes) / 2;
        const auto units_of_tile = [&](std::uint64_t t) {
            std::uint16_t units;
            std::memcpy(&units, index + 2 * t, 2);
            return units;
        };
        if (pyramid.n_tiles % 2 != 0 && units_of_tile(pyramid.n_tiles) != 0)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the padding of the tile index is not 0");

        const bool verify = frame.coding.lossless == CUSZ_LOSSLESS_NONE;
        const bool aligned = is_aligned<std::uint16_t>(payloads);
        std::atomic<std::uint64_t> checksum = top_part(pyramid, body, top.section.size());
        const auto wanted = wanted_tiles(pyramid, frame.layout, box);
        const Destination<T> destination = destination_of<T>(pyramid, frame.layout, box);
        auto* const first_unit = first_units_.reserve<std::uint64_t>(pyramid.n_tiles + 1); // by tile
        first_unit[0] = 0;
        for (std::uint64_t t = 0; t < pyramid.n_tiles; ++t) first_unit[t + 1] = first_unit[t] + units_of_tile(t);
        const std::uint64_t end_unit = first_unit[pyramid.n_tiles];
        if (end_unit % 2 != 0 && end_unit < n_units && get_unit(payloads, end_unit) != 0)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the padding of the payloads is not 0");
        if (end_unit + end_unit % 2 != n_units)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the tile index adds up to ", end_unit, " units, not ", n_units);
        for (const Stage& stage : schedule.stages(false)) {
            const std::size_t i = stage.lattice;
            const Lattice& lattice = pyramid.lattices[i];
            begin_stage(schedule, stage, arrays);
            const auto ranges = schedule.ranges(stage, threads);
            parallel(threads, ranges.size(), [&](std::uint64_t part, int thread) {
                Worker& memory = worker(thread);
                const auto& tiles = memory.tiles<T>(tiles_at_once);
                constexpr std::size_t room = UINT16_MAX + spline_margin_units + 1;
                SplinePayload batch[tiles_at_once];
                std::uint32_t n_batch = 0;
                const auto read_batch = [&] {
                    stages<T>().read(coder, i, batch, n_batch, arrays[i + 1], arrays[i], destination, tiles, *reading_,
                                     memory.patches);
                    n_batch = 0;
                };
                std::uint64_t sum = 0;
                for (std::uint64_t t = ranges[part].begin; t < ranges[part].end; ++t) {
                    const std::uint64_t number = lattice.first_tile + t, at = first_unit[number];
                    const std::uint32_t n = units_of_tile(number);
                    const auto* units = reinterpret_cast<const std::uint16_t*>(payloads + at * 2);
                    if (!aligned || at + n + spline_margin_units > n_units) {
                        auto* copy = memory.payload.reserve<std::uint16_t>(tiles_at_once * room) + n_batch * room;
                        std::memcpy(copy, payloads + at * 2, n * 2);
                        std::memset(copy + n, 0, spline_margin_units * 2);
                        units = copy;
                    }
                    if (verify) sum += part_of_sum(number, weigh_units(units, n), n);
                    if (!wanted[i].has(tile_of(lattice, t))) continue;
                    batch[n_batch++] = {t, units, n};
                    if (n_batch == tiles_at_once) read_batch();
                }
                if (n_batch > 0) read_batch();
                checksum += sum;
            });
        }
        if (verify && fold(checksum) != frame.payload_checksum)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
        if (box.field != nullptr)
            for (const Worker& worker : workers_)
                for (const Patch& patch : worker.patches) put<T>(patch, frame.layout, box);
    }

    // Tiles of a lattice that a box of the field needs: those that meet a box of the lattice's.
    struct Region {
        Extents begin{}, end{}; // by the lattice's axes
        bool has(const LatticeTile& tile) const {
            bool has = true;
            for (std::size_t a = 0; a < 4; ++a)
                has = has && tile.origin[a] < end[a] && begin[a] < tile.origin[a] + tile.edge[a];
            return has;
        }
    };
    static std::vector<Region> wanted_tiles(const Pyramid& pyramid, const Layout& layout, const Selection& box) {
        std::vector<Region> wanted(pyramid.n_coded());
        if (box.field == nullptr) return wanted;
        Extents begin = by_axis(layout, box.start, 0), end = by_axis(layout, box.count, 1); // by the field's axes
        for (std::size_t a = 0; a < 4; ++a) end[a] += begin[a];
        for (std::size_t i = 0; i < pyramid.n_coded(); ++i) {
            const Lattice& lattice = pyramid.lattices[i];
            for (std::size_t j = 0; j < 4; ++j) {
                const std::uint32_t a = lattice.axis[j];
                wanted[i].begin[j] = begin[a];
                wanted[i].end[j] = end[a];
                // Whole tiles are decoded; along active axes they look at one coarser point before them, two after.
                const std::uint64_t edge = lattice.edge[j];
                begin[a] = begin[a] / edge * edge;
                end[a] = std::min((end[a] + edge - 1) / edge * edge, lattice.extent[j]);
                if (!lattice.is_active(j)) continue;
                begin[a] = begin[a] / 2 > 0 ? begin[a] / 2 - 1 : 0;
                end[a] = std::min((end[a] + 1) / 2 + 2, lattice.coarse_extent(j));
            }
        }
        return wanted;
    }

    TopCoder tops_;
    std::vector<Worker> workers_;
    std::vector<std::unique_ptr<Tile<float>>> lorenzo_f32_; // of samples
    std::vector<std::unique_ptr<Tile<double>>> lorenzo_f64_;
    std::unique_ptr<RansWriting> writing_; // kept, as is all memory
    std::unique_ptr<RansReading> reading_;
    std::unique_ptr<RansCounts> counts_;
    Buffer lattices_;    // of all lattices but the field, values to predict from and magnitudes
    Buffer first_units_; // of payloads that are read
};

} // namespace

} // namespace cusz::cpu

std::unique_ptr<cusz::HostEngine> cusz::spline::on_cpu(HostBackend& backend) {
    return std::make_unique<cpu::Engine>(backend);
}
