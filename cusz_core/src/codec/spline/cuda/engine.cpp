#include "engine.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>

#include "archive/checksum.hpp"
#include "archive/header.hpp"
#include "archive/v2.hpp"
#include "buffer.hpp"
#include "codec/cuda/sample_boxes.hpp"
#include "codec/lorenzo/cuda/kernels.hpp"
#include "codec/spline/codec.hpp"
#include "errors.hpp"
#include "kernels.hpp"

namespace cusz::cuda {

namespace {

const char* text_of(SplineError error) {
    switch (error) {
    case SplineError::header: return "bad tile header";
    case SplineError::header_or_length: return "bad tile header or length";
    case SplineError::too_short: return "payload is too short";
    case SplineError::too_many_verbatim: return "more verbatim values than points";
    case SplineError::verbatim_position: return "bad position of a verbatim value";
    case SplineError::verbatim_code: return "a verbatim value has a code";
    case SplineError::words: return "codewords do not end where the payload does";
    case SplineError::none: break;
    }
    return "bad";
}

// What kernels have found out about an archive with n_units units of payloads. Throws CORRUPT.
void check(const DecompressResult& of_index, const SplineRead& result, std::uint64_t n_units) {
    if (of_index.index_error != 0) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the padding of the tile index is not 0");
    if (of_index.words + of_index.words % 2 != n_units)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the tile index adds up to ", of_index.words, " units, not ",
             n_units);
    if (result.bad_padding != 0) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the padding of the payloads is not 0");
    if (result.error != 0) {
        const std::uint64_t report = ~result.error;
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: tile ", (report >> 8) - 1, ": ",
             text_of(static_cast<SplineError>(report & 255)));
    }
}

std::uint64_t top_part(const Pyramid& pyramid, const Top& top) {
    return part_of_sum(pyramid.n_tiles, weigh(top.section.data(), top.section.size() / 4), top.section.size() / 2);
}

// The points of lattice 1 with which tile `number` of lattice 0 is counted (docs/format_v2.md, section 10).
std::uint64_t points_around(const Lattice& lattice, std::uint64_t number) {
    const LatticeTile tile = tile_of(lattice, number);
    std::uint64_t points = 1;
    for (std::size_t a = 0; a < 4; ++a) {
        const std::uint64_t from = tile.origin[a], to = from + tile.edge[a];
        points *= lattice.is_active(a)
                      ? std::min((to + 1) / 2 + 2, lattice.coarse_extent(a)) - (from > 0 ? from / 2 - 2 : 0)
                      : tile.edge[a];
    }
    return points;
}

// What the model is counted from (docs/format_v2.md, section 10): of a large field, tiles of lattice 0 with what is
// around them in lattice 1, instead of these two lattices.
struct CountedTiles {
    Sample sample; // of the tiles of lattice 0
    bool is_large;
    std::uint64_t n_tiles, n_boxes = 0, n_around = 0; // of lattice 0; of them in boxes, or 0; points around those
    std::uint32_t positions_of_box = 0;               // points of lattice 1

    explicit CountedTiles(const Pyramid& pyramid)
        : sample(pyramid.lattices[0].n_tiles, default_r),
          is_large(sample.rate() == Sample::most && pyramid.n_coded() > 1), n_tiles(pyramid.lattices[0].n_tiles) {
        if (!is_large) return;
        const Lattice& lattice = pyramid.lattices[0];
        n_boxes = std::max(n_tiles / 32, std::uint64_t{128});
        positions_of_box = 1;
        for (std::size_t a = 0; a < 4; ++a)
            positions_of_box *= static_cast<std::uint32_t>(
                lattice.is_active(a) ? std::min<std::uint64_t>((lattice.edge[a] + 1) / 2 + 6, lattice.coarse_extent(a))
                                     : lattice.edge[a]);
        for (std::uint64_t j = 0; j < n_boxes; ++j) n_around += points_around(lattice, tile(j));
    }
    std::uint64_t tile(std::uint64_t box) const { return sampled(box, n_boxes, n_tiles); }
    // The first box from `box` on that is not in the batch.
    std::uint64_t end_of_boxes(std::uint64_t box, const SplineBatch& batch) const {
        if (batch.finest == 0)
            while (box < n_boxes && tile(box) < batch.first_tile + batch.n_tiles) ++box;
        return box;
    }
};

RansModel model_of(const ChosenModel& chosen) {
    RansModel model;
    model.n_tables = chosen.n_tables;
    std::copy(std::begin(chosen.table), std::end(chosen.table), model.table.begin());
    std::copy(std::begin(chosen.significant), std::end(chosen.significant), model.significant.begin());
    for (std::size_t t = 0; t < v2::max_tables; ++t)
        std::copy(std::begin(chosen.frequency[t]), std::end(chosen.frequency[t]), model.frequency[t].begin());
    return model;
}

// The tables, and how many bytes of them are used.
struct MadeTables {
    std::unique_ptr<DecodingTables> tables = std::make_unique<DecodingTables>();
    std::size_t bytes = 0;
};

MadeTables decoding_tables(const RansModel& model) {
    MadeTables made;
    DecodingTables* const tables = made.tables.get();
    for (std::uint32_t t = 0; t < model.n_tables; ++t) {
        std::uint32_t slot = 0;
        for (std::uint32_t s = 0; s < v2::n_symbols; ++s) {
            const std::uint32_t frequency = model.frequency[t][s];
            tables->interval[t][s] = slot | frequency << v2::rans_bits;
            std::fill_n(tables->symbol_of[t] + slot, frequency, static_cast<std::uint8_t>(s));
            slot += frequency;
        }
    }
    made.bytes = offsetof(DecodingTables, symbol_of) + model.n_tables * sizeof tables->symbol_of[0];
    const TablesOfPlaces table_of = tables_of_places(model);
    for (std::size_t row = 0; row < n_rows; ++row)
        std::copy(table_of[row].begin(), table_of[row].end(), tables->table_of[row]);
    std::copy(model.significant.begin(), model.significant.end(), tables->significant);
    return made;
}

void copy_extents(std::uint64_t (&to)[4], const Extents& from) { std::copy(from.begin(), from.end(), to); }

// The lattices of a pyramid as kernels see them, and memory for the values of all but the field.
template <class T>
struct DevicePyramid {
    std::vector<DeviceLattice<T>> lattices; // the top is the last
    std::vector<T> top_values, top_decoded; // to predict from, and as they are
    std::vector<std::uint8_t> top_magnitudes;
    bool top_has_patches = false;
    std::uint64_t values = 0; // of all but the field
    std::uint32_t positions = 0;

    // original: the field, to write; decoded: to read, where its values go.
    DevicePyramid(const Pyramid& pyramid, const Coding& coding, const Top& top, const T* original, T* decoded) {
        for (std::size_t i = 0; i < pyramid.lattices.size(); ++i) {
            const Lattice& from = pyramid.lattices[i];
            DeviceLattice<T> to{};
            to.n_active = from.n_active;
            to.number = static_cast<std::uint32_t>(i);
            std::copy(from.axis.begin(), from.axis.end(), to.axis);
            std::copy(from.edge.begin(), from.edge.end(), to.edge);
            copy_extents(to.extent, from.extent);
            copy_extents(to.count, from.count);
            copy_extents(to.original_stride, from.field_stride);
            copy_extents(to.stride, from.stride);
            copy_extents(to.coarse_stride, from.coarse_stride);
            to.n_tiles = from.n_tiles;
            to.first_tile = from.first_tile;
            to.end = from.n_tiles;
            to.quantiser = quantiser_of(static_cast<T>(coding.step / 2), coding.spline.divisor(i));
            to.quantiser.special = static_cast<typename Traits<T>::Bits>(coding.special);
            to.original = original;
            to.decoded = decoded;
            if (i > 0) values += from.values();
            if (from.n_active > 0) positions = std::max(positions, positions_of_tile(from));
            lattices.push_back(to);
        }
        if (lattices.size() > max_lattices) fail(CUSZ_ERROR_INTERNAL, "a pyramid of ", lattices.size(), " lattices");
        const auto* const given = static_cast<const T*>(top.values);
        const auto special = lattices.back().quantiser.special;
        T last = 0;
        for (std::uint64_t j = 0; j < pyramid.top().values(); ++j) {
            const bool is_special = bits_of(given[j]) == special;
            const bool is_finite = std::abs(given[j]) <= std::numeric_limits<T>::max();
            if (!is_special && is_finite) last = given[j];
            top_has_patches = top_has_patches || (!is_special && !is_finite);
            top_values.push_back(last);
            top_decoded.push_back(given[j]);
            top_magnitudes.push_back(is_special ? 255 : 0);
        }
    }

    // Bytes of device memory for values and magnitudes, the top's decoded values, and the lattices.
    std::size_t bytes() const { return sizes().used(); }

    // Sets pointers into that memory, and copies there what the host knows.
    template <class Upload>
    const DeviceLattice<T>* place(std::byte* memory, const Upload& upload) {
        Parts parts(memory);
        auto* value = parts.take<T>(values);
        auto* const decoded_top = parts.take<T>(top_decoded.size());
        auto* const device_lattices = parts.take<DeviceLattice<T>>(lattices.size());
        auto* magnitude = parts.take<std::uint8_t>(values);
        for (std::size_t i = 1; i < lattices.size(); ++i) {
            DeviceLattice<T>& lattice = lattices[i];
            lattice.value = value;
            lattice.magnitude = magnitude;
            lattices[i - 1].coarse_value = value;
            lattices[i - 1].coarse_magnitude = magnitude;
            const std::uint64_t n = lattice.extent[0] * lattice.extent[1] * lattice.extent[2] * lattice.extent[3];
            value += n;
            magnitude += n;
        }
        lattices.back().top = decoded_top;
        upload(lattices.back().value, top_values.data(), top_values.size());
        upload(lattices.back().magnitude, top_magnitudes.data(), top_magnitudes.size());
        upload(decoded_top, top_decoded.data(), top_decoded.size());
        upload(device_lattices, lattices.data(), lattices.size());
        return device_lattices;
    }

    // Sets which tiles are at work.
    void select(const SplineBatch& batch) {
        for (DeviceLattice<T>& lattice : lattices) {
            lattice.begin = 0;
            lattice.end = lattice.number >= batch.finest && lattice.number <= batch.coarsest ? lattice.n_tiles : 0;
        }
        lattices[batch.finest].begin = batch.first_tile;
        lattices[batch.finest].end = batch.first_tile + batch.n_tiles;
    }

    // Where values of lattice 0 go.
    void put_field(T* decoded, const Extents& stride) {
        lattices[0].decoded = decoded;
        copy_extents(lattices[0].original_stride, stride);
    }

    // Has patch_spline put values into lattice 1 instead of the field.
    void put_into_middle() {
        Extents apart{}, stride{}; // of lattice 1, by axis of the field: points in the field, and in its array
        const DeviceLattice<T>& middle = lattices[1];
        for (std::size_t j = 0; j < 4; ++j) {
            apart[middle.axis[j]] = middle.original_stride[j];
            stride[middle.axis[j]] = middle.stride[j];
        }
        for (std::size_t i = lattices.size(); i-- > 1;) {
            lattices[i].decoded = middle.value;
            for (std::size_t j = 0; j < 4; ++j) {
                const std::uint32_t a = lattices[i].axis[j];
                lattices[i].original_stride[j] = lattices[i].original_stride[j] / apart[a] * stride[a];
            }
        }
    }

    // Sets what a batch of one lattice is made of, with the strides of its originals.
    void set_batch(const SplineBatch& batch, const T* original, const Extents& stride) {
        select(batch);
        DeviceLattice<T>& lattice = lattices[batch.finest];
        lattice.original = original;
        copy_extents(lattice.original_stride, stride);
        if (batch.finest > 0) return;
        DeviceLattice<T>& middle = lattices[1]; // at the same originals, when a sample's tiles are counted
        for (std::uint32_t j = 0; j < 4; ++j)
            for (std::uint32_t k = 0; k < 4; ++k)
                if (middle.axis[k] == lattice.axis[j])
                    middle.original_stride[k] = j < lattice.n_active ? 2 * stride[j] : stride[j];
    }

    // Deals out the tiles at work in lattices `last` to `first` in tickets of up to `most` tiles, for so many blocks.
    // Returns the number of tickets.
    std::uint64_t deal(std::uint32_t first, std::uint32_t last, std::uint32_t most, std::uint32_t blocks,
                       bool waits = true) {
        std::uint64_t tickets = 0;
        for (std::uint32_t i = last + 1; i-- > first;) {
            DeviceLattice<T>& lattice = lattices[i];
            const std::uint64_t n = lattice.end - lattice.begin;
            lattice.tiles_of_ticket = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(n / blocks, 1, most));
            lattice.first_ticket = tickets;
            lattice.n_tickets = (n + lattice.tiles_of_ticket - 1) / lattice.tiles_of_ticket;
            lattice.waits_for = waits && i < last ? i + 1 : 0;
            tickets += lattice.n_tickets;
        }
        return tickets;
    }

    // Deals out boxes of a sample of lattice 0, in place of that lattice and lattice 1.
    std::uint64_t deal_boxes(std::uint64_t begin, std::uint64_t end, std::uint32_t last, std::uint32_t blocks) {
        const std::uint64_t coarser = last >= 2 ? deal(2, last, 1, blocks) : 0;
        lattices[1].first_ticket = lattices[0].first_ticket = coarser;
        lattices[1].n_tickets = 0;
        lattices[0].begin = begin;
        lattices[0].end = end;
        lattices[0].n_tickets = end - begin;
        lattices[0].tiles_of_ticket = 1;
        lattices[0].waits_for = last >= 2 ? 2 : 0;
        return coarser + end - begin;
    }

private:
    Parts sizes() const {
        Parts parts(nullptr);
        parts.take<T>(values);
        parts.take<T>(top_decoded.size());
        parts.take<DeviceLattice<T>>(lattices.size());
        parts.take<std::uint8_t>(values);
        return parts;
    }
};

} // namespace

std::optional<Encoded> SplineEngine::encode(const Layout& layout, const Coding& coding, const Source& field,
                                            int threads, const Target& target, std::uint64_t capacity,
                                            std::optional<ValueRange>* range) {
    require_aligned(field, layout.value_bytes());
    require_aligned(target, 4);
    try {
        return queue_.run([&] {
            return layout.dtype == CUSZ_F32 ? compress_as<float>(layout, coding, field, target, capacity)
                                            : compress_as<double>(layout, coding, field, target, capacity);
        });
    } catch (const Error& error) {
        if (error.status() != CUSZ_ERROR_MEMORY || field.on_device()) throw;
        release_scratch();
        return on_cpu().encode(layout, coding, field, threads, target, capacity, range);
    }
}

void SplineEngine::decode(const Frame& frame, const Source& body, int threads, const Target& field) {
    require_aligned(body, 4);
    require_aligned(field, frame.layout.value_bytes());
    try {
        queue_.run([&] {
            if (frame.layout.dtype == CUSZ_F32)
                decompress_as<float>(frame, body, field);
            else
                decompress_as<double>(frame, body, field);
        });
    } catch (const Error& error) {
        if (error.status() != CUSZ_ERROR_MEMORY || field.on_device()) throw;
        release_scratch();
        on_cpu().decode(frame, body, threads, field);
    }
}

std::size_t SplineEngine::scratch_bytes() const {
    std::size_t bytes = tops_.bytes();
    for (const DeviceBuffer* buffer : buffers(*this)) bytes += buffer->bytes();
    return bytes;
}

void SplineEngine::release_scratch() {
    queue_.release(buffers(*this));
    queue_.release(std::array{&queue_.scratch});
    tops_.release();
}

ThroughHost SplineEngine::on_cpu() {
    return {cpu_.engine(codec_of(2, CUSZ_PREDICTOR_SPLINE, CUSZ_CODER_RANS)),
            [this](void* target, const void* source, std::size_t bytes) {
                queue_.run([&] {
                    staging_.copy(target, source, bytes, stream());
                    queue_.wait();
                });
            }};
}

template <class T>
void SplineEngine::gather(const Lattice& lattice, const Source& field, T* values) {
    if (!field.on_device()) return gather_box(field.as<T>(), lattice.extent, lattice.field_stride, values);
    GatherArguments<T> a{};
    a.from = field.as<T>();
    a.to = states_.reserve<T>(source_, lattice.values());
    copy_extents(a.extent, lattice.extent);
    copy_extents(a.from_stride, lattice.field_stride);
    copy_extents(a.to_stride, lattice.stride);
    cuda::gather(a, stream());
    done("gather_top");
    queue_.fetch(values, a.to, static_cast<std::size_t>(lattice.values()));
}

// Archives are mostly much smaller than they may be. Where there is too little memory for that, half as much is tried.
std::byte* SplineEngine::room_for_archive(std::uint64_t& room) {
    for (const std::uint64_t least = room / 64;; room /= 2) {
        try {
            return archive_.reserve<std::byte>(source_, room);
        } catch (const Error& error) {
            if (error.status() != CUSZ_ERROR_MEMORY || room / 2 < least) throw;
        }
    }
}

void SplineEngine::release_batch() {
    for (DeviceBuffer* buffer : {&field_, &archive_}) buffer->release(source_);
}

template <class T>
const T* SplineEngine::load(const SplineBatch& batch, const Lattice& lattice, const Source& field, Extents& stride) {
    const BatchBox box(batch, lattice);
    const T* from = field.as<T>() + box.first;
    Buffer packed;
    if (!box.is_packed) {
        T* const to = packed.reserve<T>(static_cast<std::size_t>(box.values));
        gather_box(from, box.extent, box.stride_in_field, to);
        from = to;
    }
    T* const copy = field_.reserve<T>(source_, box.values);
    staging_.copy(copy, from, static_cast<std::size_t>(box.values) * sizeof(T), stream());
    stride = box.stride;
    return box.first_of_lattice(copy);
}

template <class T>
void SplineEngine::store(const BatchBox& box, const T* values, const Target& field) {
    T* const to = field.as<T>() + box.first;
    const auto bytes = static_cast<std::size_t>(box.values) * sizeof(T);
    if (box.is_packed) return staging_.copy(to, values, bytes, stream());
    Buffer packed;
    T* const from = packed.reserve<T>(static_cast<std::size_t>(box.values));
    staging_.copy(from, values, bytes, stream());
    for_points_of_box(box.extent, box.stride_in_field, [&](std::uint64_t n, std::uint64_t at) { to[at] = from[n]; });
}

template <class Use>
auto SplineEngine::with_batches(const Pyramid& pyramid, std::uint64_t value_bytes, std::uint64_t points_beside,
                                bool on_host, const Use& use) {
    try {
        return use({whole_field(pyramid)});
    } catch (const Error& error) {
        if (error.status() != CUSZ_ERROR_MEMORY || !on_host) throw;
    }
    const auto batches = [&](std::uint64_t bytes) { return batches_of(pyramid, value_bytes, points_beside, bytes); };
    const std::uint64_t least = bytes_of(batches(0), value_bytes);
    for (std::uint64_t bytes = bytes_of(batches(UINT64_MAX), value_bytes);;) {
        bytes = std::max(bytes / 2, least);
        release_batch();
        try {
            return use(batches(bytes));
        } catch (const Error& error) {
            if (error.status() != CUSZ_ERROR_MEMORY || bytes == least) throw;
        }
    }
}

template <class T>
std::optional<Encoded> SplineEngine::compress_as(const Layout& layout, const Coding& coding, const Source& field,
                                                 const Target& target, std::uint64_t capacity) {
    const Pyramid pyramid(layout.ndim, layout.shape.data(), coding.spline.halved);
    const Top top = tops_.write(layout, coding, pyramid,
                                [&](void* values) { gather(pyramid.top(), field, static_cast<T*>(values)); });
    return with_batches(pyramid, sizeof(T), points_beside_tile, !field.on_device(),
                        [&](const std::vector<SplineBatch>& batches) {
                            return compress_in<T>(batches, coding, pyramid, top, field, target, capacity);
                        });
}

template <class T>
std::optional<Encoded> SplineEngine::compress_in(const std::vector<SplineBatch>& batches, const Coding& given,
                                                 const Pyramid& pyramid, const Top& top, const Source& field,
                                                 const Target& target, std::uint64_t capacity) {
    const std::uint64_t index_bytes = (pyramid.n_tiles + 1) / 2 * 4;
    const std::uint32_t n_axes = pyramid.lattices[0].n_active;
    if (top.section.size() + index_bytes > capacity) return std::nullopt;
    const bool in_batches = batches.size() > 1;
    std::uint64_t max_values = 0, max_units = 0;
    for (const SplineBatch& batch : batches) {
        max_values = std::max(max_values, batch.values());
        max_units = std::max(max_units, batch.units(sizeof(T) / 2));
    }
    const T* const values = field.on_device() ? field.as<T>() : field_.reserve<T>(source_, max_values);

    DevicePyramid<T> lattices(pyramid, given, top, values, nullptr);
    const CountedTiles counted(pyramid);
    SplinePlan counting = plan_spline<T>(SplineKernel::count, n_axes, lattices.positions, counted.positions_of_box),
               writing = plan_spline<T>(SplineKernel::write, n_axes, lattices.positions);
    for (SplinePlan* plan : {&counting, &writing})
        plan->blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(plan->blocks, pyramid.n_tiles));

    // What is cleared comes first.
    struct Cleared {
        Progress counting, writing;
        SplineWritten written;
        SplineCounts counts;
    };
    Parts parts(nullptr);
    parts.take<Cleared>(1);
    parts.take<ChosenModel>(1);
    parts.take<EncodingTables>(1);
    parts.take<ModelScratch>(1);
    auto* const memory = workspace_.reserve<std::byte>(source_, parts.used());
    parts = Parts(memory);
    auto* const cleared = parts.take<Cleared>(1);
    auto* const model = parts.take<ChosenModel>(1);
    auto* const tables = parts.take<EncodingTables>(1);
    auto* const model_scratch = parts.take<ModelScratch>(1);
    CUSZ_CUDA(cudaMemsetAsync(cleared, 0, sizeof *cleared, stream()));

    // Counting, then the model. No memory is allocated again while kernels are at work.
    std::byte* const scratch = queue_.scratch.reserve<std::byte>(
        source_, std::max(counting.blocks * counting.scratch_bytes, writing.blocks * writing.scratch_bytes));
    auto* const states = states_.reserve<std::uint64_t>(source_, pyramid.n_tiles);
    auto* const arrays = arrays_.reserve<std::byte>(source_, lattices.bytes());
    // In batches, payloads of each take the place of those before.
    std::uint64_t room =
        in_batches ? v2::max_model_bytes + top.section.size() + index_bytes + (max_units + 1) / 2 * 4 : capacity;
    std::byte* const body = in_batches           ? archive_.reserve<std::byte>(source_, room)
                            : target.on_device() ? target.bytes()
                                                 : room_for_archive(room);
    const auto upload_all = [&](auto* to, const auto* from, std::size_t count) { queue_.upload(to, from, count); };
    Extents stride;
    if (!field.on_device() && !in_batches) load<T>(batches[0], pyramid.lattices[0], field, stride);
    const auto begin_batch = [&](const SplineBatch& batch, Progress& progress) {
        if (!in_batches) return;
        const T* const original = load<T>(batch, pyramid.lattices[batch.finest], field, stride);
        lattices.set_batch(batch, original, stride);
        CUSZ_CUDA(cudaMemsetAsync(&progress, 0, sizeof progress, stream()));
    };
    done("clear");
    std::uint64_t box = 0;
    for (const SplineBatch& batch : batches) {
        const std::uint64_t first_box = box;
        box = counted.end_of_boxes(first_box, batch);
        const bool in_boxes = counted.is_large && batch.finest < 2;
        if (in_boxes && box == first_box) continue; // nothing is counted
        begin_batch(batch, cleared->counting);
        const std::uint64_t tickets = in_boxes ? lattices.deal_boxes(first_box, box, batch.coarsest, counting.blocks)
                                               : lattices.deal(batch.finest, batch.coarsest, 1, counting.blocks);
        const SplineCountArguments<T> count{
            .work = {lattices.place(arrays, upload_all), batch.coarsest, given.spline.cubic, tickets,
                     &cleared->counting, scratch, lattices.positions, 1},
            .sample = counted.sample,
            .counts = &cleared->counts,
            .n_boxes = counted.n_boxes,
            .n_tiles = counted.n_tiles,
            .positions_of_box = counted.positions_of_box,
        };
        count_spline(count, n_axes, static_cast<std::uint32_t>(std::min<std::uint64_t>(counting.blocks, tickets)),
                     stream());
        if (!in_batches) { // of the field, in what follows
            lattices.lattices[0].begin = 0;
            lattices.lattices[0].end = counted.n_tiles;
        }
    }
    done("count_spline");
    ModelArguments choice{&cleared->counts, {counted.sample.rate(), 1, 1}, model_scratch, model, tables};
    if (counted.is_large) {
        choice.weight[0] = counted.n_tiles / counted.n_boxes;
        choice.weight[1] = std::max<std::uint64_t>(pyramid.lattices[1].values() / counted.n_around, 1);
    }
    choose_model(choice, stream());
    done("choose_model");

    SplineWritten written;
    ChosenModel chosen;
    std::uint64_t units = 0; // of all batches so far
    for (const SplineBatch& batch : batches) {
        begin_batch(batch, cleared->writing);
        const std::uint64_t tickets = lattices.deal(batch.finest, batch.coarsest, 8, writing.blocks);
        CUSZ_CUDA(cudaMemsetAsync(states, 0, static_cast<std::size_t>(tickets) * sizeof *states, stream()));
        SplineWriteArguments<T> write{};
        write.work = {lattices.place(arrays, upload_all),
                      batch.coarsest,
                      given.spline.cubic,
                      tickets,
                      &cleared->writing,
                      scratch,
                      lattices.positions,
                      1};
        write.model = model;
        write.tables = tables;
        write.target = body;
        write.top_bytes = top.section.size();
        write.index_bytes = index_bytes;
        write.capacity = room;
        write.states = states;
        write.result = &cleared->written;
        write_spline(write, n_axes, static_cast<std::uint32_t>(std::min<std::uint64_t>(writing.blocks, tickets)),
                     stream());
        done("write_spline");
        CUSZ_CUDA(cudaMemcpyAsync(&written, &cleared->written, sizeof written, cudaMemcpyDefault, stream()));
        queue_.fetch(&chosen, model, 1);
        const std::uint64_t before = chosen.bytes + top.section.size() + index_bytes, before_batch = before + units * 2;
        units += written.units;
        if (before + (units + 1) / 2 * 4 > capacity) return std::nullopt;
        if (in_batches)
            staging_.copy(target.bytes() + before_batch, body + before, static_cast<std::size_t>(written.units * 2),
                          stream());
    }
    Encoded encoded{given, model_of(chosen).bytes(), 0};
    const std::uint64_t front = encoded.model.size() + top.section.size(), payloads_at = front + index_bytes,
                        total = payloads_at + (units + 1) / 2 * 4;
    if (!in_batches && total > room)
        fail(CUSZ_ERROR_MEMORY, "out of memory: the archive has ", total, " bytes, and the device has room for ", room,
             " of them");
    constexpr std::byte zeros[2] = {};
    const auto put = [&](std::uint64_t at, const void* from, std::size_t bytes) {
        if (target.on_device())
            staging_.copy(target.bytes() + at, from, bytes, stream());
        else
            std::memcpy(target.bytes() + at, from, bytes);
    };
    if (in_batches)
        staging_.copy(target.bytes() + front, body + front, static_cast<std::size_t>(index_bytes), stream());
    else if (!target.on_device())
        staging_.copy(target.bytes() + front, body + front, static_cast<std::size_t>(index_bytes + units * 2),
                      stream());
    put(0, encoded.model.data(), encoded.model.size());
    put(encoded.model.size(), top.section.data(), top.section.size());
    if (pyramid.n_tiles % 2 != 0) put(payloads_at - 2, zeros, 2);
    if (units % 2 != 0) put(payloads_at + units * 2, zeros, 2);
    encoded.coding.body_bytes = encoded.coding.stored_bytes = total - encoded.model.size();
    encoded.coding.n_special = written.n_special;
    encoded.coding.n_unpredictable = written.n_unpredictable;
    encoded.payload_checksum = fold(written.checksum + top_part(pyramid, top));
    return encoded;
}

template <class T>
void SplineEngine::decompress_as(const Frame& frame, const Source& from, const Target& to) {
    const Pyramid pyramid(frame.layout.ndim, frame.layout.shape.data(), frame.coding.spline.halved);
    const Top top = tops_.read(frame, pyramid, [&](void* target, std::size_t at, std::size_t bytes) {
        if (!from.on_device()) return static_cast<void>(std::memcpy(target, from.bytes() + at, bytes));
        staging_.copy(target, from.bytes() + at, bytes, stream());
        queue_.wait();
    });
    const bool on_host = !from.on_device() || (to.pointer != nullptr && !to.on_device());
    with_batches(pyramid, sizeof(T), 0, on_host, [&](const std::vector<SplineBatch>& batches) {
        decompress_in<T>(batches, frame, pyramid, top, from, to);
    });
}

template <class T>
void SplineEngine::decompress_in(const std::vector<SplineBatch>& batches, const Frame& frame, const Pyramid& pyramid,
                                 const Top& top, const Source& from, const Target& to) {
    const std::uint64_t index_bytes = (pyramid.n_tiles + 1) / 2 * 4, front = top.section.size(),
                        n_units = (frame.coding.body_bytes - front - index_bytes) / 2;
    const std::uint32_t n_axes = pyramid.lattices[0].n_active;
    const bool decodes = to.pointer != nullptr, to_host = decodes && !to.on_device();
    const std::byte *index = from.bytes() + front, *const payloads = index + index_bytes;

    // Where the payloads of each batch begin and end, in units. Of an archive on the device, all are there. If the
    // index adds up to more than there is, kernels refuse it.
    std::vector<std::uint64_t> ends{0};
    std::uint64_t max_units = 0, max_values = 0, tile = 0, units = 0;
    for (std::size_t k = 0; k < batches.size(); ++k) {
        if (to_host && batches[k].finest == 0) max_values = std::max(max_values, batches[k].values());
        const bool is_last = k + 1 == batches.size();
        if (!is_last && !from.on_device())
            for (std::uint64_t j = 0; j < batches[k].n_tiles; ++j, ++tile)
                units += get<std::uint16_t>(index, static_cast<std::size_t>(2 * tile));
        ends.push_back(is_last || from.on_device() ? n_units : std::min(units, n_units));
        max_units = std::max(max_units, ends[k + 1] - ends[k]);
    }
    std::byte* const copy =
        from.on_device() ? nullptr : archive_.reserve<std::byte>(source_, index_bytes + max_units * 2);
    T* const values = to_host ? field_.reserve<T>(source_, max_values) : to.as<T>();
    DevicePyramid<T> lattices(pyramid, frame.coding, top, nullptr, values);
    const SplinePlan plan = plan_spline<T>(SplineKernel::read, n_axes, lattices.positions);
    const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(plan.blocks, pyramid.n_tiles));

    struct Cleared {
        SplineRead result;
        DecompressResult of_index;
        Progress progress;
    };
    const std::uint64_t n_starts = (pyramid.n_tiles + tiles_of_start - 1) / tiles_of_start,
                        n_states = (pyramid.n_tiles + tiles_of_index_block - 1) / tiles_of_index_block;
    Parts parts(nullptr);
    parts.take<Cleared>(1);
    parts.take<std::uint64_t>(n_states);
    const std::size_t cleared_bytes = parts.used();
    parts.take<std::uint64_t>(n_starts);
    parts.take<DecodingTables>(1);
    auto* const memory = workspace_.reserve<std::byte>(source_, parts.used());
    parts = Parts(memory);
    auto* const cleared = parts.take<Cleared>(1);
    auto* const states = parts.take<std::uint64_t>(n_states);
    auto* const starts = parts.take<std::uint64_t>(n_starts);
    auto* const tables = parts.take<DecodingTables>(1);
    auto* const arrays = arrays_.reserve<std::byte>(source_, lattices.bytes());
    auto* const scratch = queue_.scratch.reserve<std::byte>(source_, blocks * plan.scratch_bytes);
    CUSZ_CUDA(cudaMemsetAsync(memory, 0, cleared_bytes, stream()));
    const MadeTables made = decoding_tables(RansModel::parse(frame.model));
    queue_.upload(reinterpret_cast<std::byte*>(tables), reinterpret_cast<const std::byte*>(made.tables.get()),
                  made.bytes);
    if (copy != nullptr) {
        staging_.copy(copy, index, static_cast<std::size_t>(index_bytes + ends[1] * 2), stream());
        index = copy;
    }
    SplineReadArguments<T> read{};
    read.work.cubic = frame.coding.spline.cubic;
    read.work.progress = &cleared->progress;
    read.work.scratch = scratch;
    read.work.positions = lattices.positions;
    read.work.tiles_of_block = plan.tiles_of_block;
    read.tables = tables;
    read.index = reinterpret_cast<const std::uint16_t*>(index);
    read.starts = starts;
    read.of_index = &cleared->of_index;
    read.payloads = reinterpret_cast<const std::uint16_t*>(index + index_bytes);
    read.n_units = n_units;
    read.end = ends[1];
    read.result = &cleared->result;
    read.decodes = decodes;
    done("clear_for_reading");
    const IndexArguments index_arguments{
        .index = read.index,
        .first_tile = 0,
        .n_tiles = pyramid.n_tiles,
        .padded = pyramid.n_tiles % 2 != 0,
        .shortest = 0,
        .longest = UINT16_MAX,
        .starts = starts,
        .states = states,
        .result = &cleared->of_index,
    };
    find_starts(index_arguments, stream());
    done("find_starts");
    const auto place = [&] {
        read.work.lattices = lattices.place(
            arrays, [&](auto* target, const auto* source, std::size_t count) { queue_.upload(target, source, count); });
    };
    std::size_t there = 0; // the batch whose payloads are on the device
    const auto begin_batch = [&](std::size_t k) {
        lattices.select(batches[k]);
        if (from.on_device() || k == there) return;
        there = k;
        const std::uint64_t first = ends[k];
        std::byte* const to_copy = copy + index_bytes;
        staging_.copy(to_copy, payloads + 2 * first, static_cast<std::size_t>(ends[k + 1] - first) * 2, stream());
        read.payloads = // by numbers, as there is no memory before the copy
            reinterpret_cast<const std::uint16_t*>(reinterpret_cast<std::uintptr_t>(to_copy) - 2 * first);
        read.end = ends[k + 1];
    };
    Cleared outcome;
    for (std::size_t k = 0; k < batches.size(); ++k) {
        const SplineBatch& batch = batches[k];
        const BatchBox box(batch, pyramid.lattices[batch.finest]);
        begin_batch(k);
        const bool stores = to_host && batch.finest == 0;
        if (stores) lattices.put_field(box.first_of_lattice(values), box.stride);
        read.work.n_tickets = lattices.deal(batch.finest, batch.coarsest, plan.tiles_of_block, plan.blocks, decodes);
        read.work.last = batch.coarsest;
        place();
        if (k > 0) CUSZ_CUDA(cudaMemsetAsync(&cleared->progress, 0, sizeof cleared->progress, stream()));
        read_spline(read, n_axes, static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, read.work.n_tickets)),
                    stream());
        done("read_spline");
        queue_.fetch(&outcome, cleared, 1);
        check(outcome.of_index, outcome.result, n_units);
        const bool verify = frame.coding.lossless == CUSZ_LOSSLESS_NONE; // else the stored bytes were verified
        if (verify && k + 1 == batches.size() &&
            fold(outcome.result.checksum + top_part(pyramid, top)) != frame.payload_checksum)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
        if (stores) store(box, values, to);
    }
    if (!decodes || (outcome.result.has_patches == 0 && !lattices.top_has_patches)) return;
    // Of a field on the host, lattice 1 gets them, as all points of coarser lattices are points of it, and its values
    // are not needed any more.
    if (to_host) lattices.put_into_middle();
    read.work.last = static_cast<std::uint32_t>(pyramid.n_coded() - 1);
    for (std::size_t k = 0; k < batches.size() && (k == 0 || batches[k].coarsest > 0); ++k) {
        begin_batch(k);
        place();
        patch_spline(read, stream());
        done("patch_spline");
    }
    CUSZ_CUDA(cudaStreamSynchronize(stream()));
    if (!to_host) return;
    const Lattice& middle = pyramid.lattices[1];
    const SplineBatch whole{1, 1, 0, 0, 0, {}, middle.extent};
    const BatchBox box(whole, middle);
    Buffer patched;
    T* const patches = patched.reserve<T>(static_cast<std::size_t>(box.values));
    staging_.copy(patches, lattices.lattices[1].value, static_cast<std::size_t>(box.values) * sizeof(T), stream());
    for_points_of_box(box.extent, box.stride_in_field, [&](std::uint64_t n, std::uint64_t at) {
        if (!(std::abs(patches[n]) <= std::numeric_limits<T>::max())) to.as<T>()[at] = patches[n];
    });
}

} // namespace cusz::cuda

std::unique_ptr<cusz::Engine> cusz::spline::on_device(cuda::Queue& queue, HostBackend& cpu) {
    return std::make_unique<cuda::SplineEngine>(queue, cpu);
}
