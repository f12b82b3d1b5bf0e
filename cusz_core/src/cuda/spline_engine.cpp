#include "spline_engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>

#include "../errors.hpp"
#include "../format/checksum.hpp"
#include "../memory.hpp"
#include "kernels.hpp"
#include "sample_boxes.hpp"
#include "spline_kernels.hpp"

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
        for (std::uint32_t s = 0; s < n_symbols; ++s) {
            const std::uint32_t frequency = model.frequency[t][s];
            tables->interval[t][s] = slot | frequency << rans_bits;
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
        if (lattices.size() > most_lattices) fail(CUSZ_ERROR_INTERNAL, "a pyramid of ", lattices.size(), " lattices");
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

    // Sets what a batch of one lattice is made of, with the strides of its originals.
    void set_batch(const SplineBatch& batch, const T* original, const Extents& stride) {
        DeviceLattice<T>& lattice = lattices[batch.finest];
        lattice.begin = batch.first_tile;
        lattice.end = batch.first_tile + batch.n_tiles;
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

std::vector<DeviceBuffer*> SplineEngine::buffers() {
    return {&field_, &archive_, &arrays_, &workspace_, &scratch_, &states_};
}

std::vector<const DeviceBuffer*> SplineEngine::buffers() const {
    return {&field_, &archive_, &arrays_, &workspace_, &scratch_, &states_};
}

std::optional<Encoded> SplineEngine::compress(const Layout& layout, const Coding& coding, const Pyramid& pyramid,
                                              const Top& top, const Source& field, const Target& target,
                                              std::uint64_t capacity) {
    if (layout.dtype == CUSZ_F32) return compress_as<float>(coding, pyramid, top, field, target, capacity);
    return compress_as<double>(coding, pyramid, top, field, target, capacity);
}

void SplineEngine::decompress(const Frame& frame, const Pyramid& pyramid, const Top& top, const Source& body,
                              const Target& field) {
    if (frame.layout.dtype == CUSZ_F32)
        decompress_as<float>(frame, pyramid, top, body, field);
    else
        decompress_as<double>(frame, pyramid, top, body, field);
}

void SplineEngine::gather_points(cusz_dtype dtype, const Lattice& lattice, const Source& field, void* values) {
    if (dtype == CUSZ_F32)
        gather_as(lattice, field, static_cast<float*>(values));
    else
        gather_as(lattice, field, static_cast<double*>(values));
}

template <class T>
void SplineEngine::gather_as(const Lattice& lattice, const Source& field, T* values) {
    GatherArguments<T> a{};
    a.from = field.as<T>();
    a.to = states_.reserve<T>(source_, lattice.values());
    copy_extents(a.extent, lattice.extent);
    copy_extents(a.from_stride, lattice.field_stride);
    copy_extents(a.to_stride, lattice.stride);
    gather(a, stream());
    done("gather_top");
    fetch(values, a.to, static_cast<std::size_t>(lattice.values()));
}

HostValues SplineEngine::read_boxes(cusz_dtype dtype, const Source& field, std::vector<TileBox>& boxes,
                                    std::vector<std::byte>& copy) {
    return dtype == CUSZ_F32 ? read_boxes_as<float>(field, boxes, copy) : read_boxes_as<double>(field, boxes, copy);
}

template <class T>
HostValues SplineEngine::read_boxes_as(const Source& field, std::vector<TileBox>& boxes, std::vector<std::byte>& copy) {
    std::vector<BoxToCopy> to_copy;
    std::uint64_t n = 0;
    for (TileBox& box : boxes) {
        to_copy.push_back({box, n});
        box.offset = room_before_boxes + n;
        for (std::size_t a = 0, stride = 1; a < 4; stride *= box.edge[a++]) box.stride[a] = stride;
        n += box.values();
    }
    auto* const device_boxes = workspace_.reserve<BoxToCopy>(source_, to_copy.size());
    staging_.copy(device_boxes, to_copy.data(), to_copy.size() * sizeof(BoxToCopy), stream());
    const CopyBoxesArguments<T> a{field.as<T>(), scratch_.reserve<T>(source_, n), device_boxes,
                                  static_cast<std::uint32_t>(to_copy.size())};
    copy_boxes(a, stream());
    done("copy_boxes");
    const std::uint64_t n_values = room_before_boxes + n;
    copy.resize(static_cast<std::size_t>(n_values) * sizeof(T));
    staging_.copy(copy.data() + room_before_boxes * sizeof(T), a.copy, static_cast<std::size_t>(n) * sizeof(T),
                  stream());
    return {copy.data(), n_values};
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
    const T* from = field.as<T>();
    std::uint64_t before = 0, n = 1;     // before: values of the copy, if it had all of the lattice
    Extents extent{}, stride_in_field{}; // by axis of the field
    bool is_packed = true;               // in the field
    for (std::uint32_t axis = 0; axis < 4; ++axis) {
        const auto a = static_cast<std::size_t>(std::ranges::find(lattice.axis, axis) - lattice.axis.begin());
        stride[a] = n;
        n *= extent[axis] = batch.extent[a];
        stride_in_field[axis] = lattice.field_stride[a];
        from += batch.origin[a] * lattice.field_stride[a];
        before += batch.origin[a] * stride[a];
        is_packed = is_packed && (extent[axis] == 1 || stride[a] == lattice.field_stride[a]);
    }
    Buffer packed;
    if (!is_packed) {
        T* const to = packed.reserve<T>(static_cast<std::size_t>(n));
        gather_box(from, extent, stride_in_field, to);
        from = to;
    }
    T* const copy = field_.reserve<T>(source_, n);
    staging_.copy(copy, from, static_cast<std::size_t>(n) * sizeof(T), stream());
    // By numbers, as there is no memory before the copy.
    return reinterpret_cast<const T*>(reinterpret_cast<std::uintptr_t>(copy) - before * sizeof(T));
}

// With too little memory for a whole field on the host, takes it in batches, and with less, in smaller ones.
template <class T>
std::optional<Encoded> SplineEngine::compress_as(const Coding& coding, const Pyramid& pyramid, const Top& top,
                                                 const Source& field, const Target& target, std::uint64_t capacity) {
    try {
        return compress_in<T>({}, coding, pyramid, top, field, target, capacity);
    } catch (const Error& error) {
        if (error.status() != CUSZ_ERROR_MEMORY || field.on_device()) throw;
    }
    const std::uint64_t least = bytes_of(batches_of(pyramid, sizeof(T), 0), sizeof(T));
    for (std::uint64_t bytes = bytes_of(batches_of(pyramid, sizeof(T), UINT64_MAX), sizeof(T));;) {
        bytes = std::max(bytes / 2, least);
        release_batch();
        try {
            return compress_in<T>(batches_of(pyramid, sizeof(T), bytes), coding, pyramid, top, field, target, capacity);
        } catch (const Error& error) {
            if (error.status() != CUSZ_ERROR_MEMORY || bytes == least) throw;
        }
    }
}

template <class T>
std::optional<Encoded> SplineEngine::compress_in(const std::vector<SplineBatch>& given_batches, const Coding& given,
                                                 const Pyramid& pyramid, const Top& top, const Source& field,
                                                 const Target& target, std::uint64_t capacity) {
    const std::uint64_t index_bytes = (pyramid.n_tiles + 1) / 2 * 4;
    const std::uint32_t n_axes = pyramid.lattices[0].n_active;
    const auto last = static_cast<std::uint32_t>(pyramid.n_coded() - 1);
    if (top.section.size() + index_bytes > capacity) return std::nullopt;
    const bool in_batches = !given_batches.empty();
    const Lattice& finest = pyramid.lattices[0];
    const SplineBatch whole{0, last, 0, finest.n_tiles, finest.values(), {}, finest.extent};
    const std::vector<SplineBatch> batches = in_batches ? given_batches : std::vector<SplineBatch>{whole};
    std::uint64_t most_values = 0, most_units = 0;
    for (const SplineBatch& batch : batches) {
        most_values = std::max(most_values, batch.values());
        most_units = std::max(most_units, batch.units(sizeof(T) / 2));
    }
    const T* const values = field.on_device() ? field.as<T>() : field_.reserve<T>(source_, most_values);

    DevicePyramid<T> lattices(pyramid, given, top, values, nullptr);
    const Sample sample(pyramid.lattices[0].n_tiles, default_r);
    const bool is_large = sample.rate() == Sample::most && pyramid.n_coded() > 1;
    const std::uint64_t n_tiles = pyramid.lattices[0].n_tiles,
                        n_boxes = is_large ? std::max(n_tiles / 32, std::uint64_t{128}) : 0;
    std::uint32_t positions_of_box = 0;
    std::uint64_t n_around = 0;
    if (is_large) {
        const Lattice& lattice = pyramid.lattices[0];
        positions_of_box = 1;
        for (std::size_t a = 0; a < 4; ++a)
            positions_of_box *= static_cast<std::uint32_t>(
                lattice.is_active(a) ? std::min<std::uint64_t>((lattice.edge[a] + 1) / 2 + 6, lattice.coarse_extent(a))
                                     : lattice.edge[a]);
        for (std::uint64_t j = 0; j < n_boxes; ++j) n_around += points_around(lattice, sampled(j, n_boxes, n_tiles));
    }
    SplinePlan counting = plan_spline<T>(SplineKernel::count, n_axes, lattices.positions, positions_of_box),
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
    std::byte* const scratch = scratch_.reserve<std::byte>(
        source_, std::max(counting.blocks * counting.scratch_bytes, writing.blocks * writing.scratch_bytes));
    auto* const states = states_.reserve<std::uint64_t>(source_, pyramid.n_tiles);
    auto* const arrays = arrays_.reserve<std::byte>(source_, lattices.bytes());
    // In batches, payloads of each take the place of those before.
    std::uint64_t room =
        in_batches ? most_model_bytes + top.section.size() + index_bytes + (most_units + 1) / 2 * 4 : capacity;
    std::byte* const body = in_batches           ? archive_.reserve<std::byte>(source_, room)
                            : target.on_device() ? target.bytes()
                                                 : room_for_archive(room);
    const auto upload_all = [&](auto* to, const auto* from, std::size_t count) { upload(to, from, count); };
    Extents stride;
    if (!field.on_device() && !in_batches) load<T>(whole, pyramid.lattices[0], field, stride);
    const auto begin_batch = [&](const SplineBatch& batch, Progress& progress) {
        if (!in_batches) return;
        const T* const original = load<T>(batch, pyramid.lattices[batch.finest], field, stride);
        lattices.set_batch(batch, original, stride);
        CUSZ_CUDA(cudaMemsetAsync(&progress, 0, sizeof progress, stream()));
    };
    done("clear");
    std::uint64_t box = 0;
    for (const SplineBatch& batch : batches) {
        const std::uint64_t end_of_batch = batch.first_tile + batch.n_tiles, first_box = box;
        if (is_large && batch.finest == 0)
            while (box < n_boxes && sampled(box, n_boxes, n_tiles) < end_of_batch) ++box;
        if (is_large && (batch.finest == 1 || (batch.finest == 0 && box == first_box))) continue; // nothing is counted
        begin_batch(batch, cleared->counting);
        std::uint64_t tickets = 0;
        if (is_large && batch.finest == 0) {
            tickets = batch.coarsest >= 2 ? lattices.deal(2, batch.coarsest, 1, counting.blocks) : 0;
            lattices.lattices[1].first_ticket = lattices.lattices[0].first_ticket = tickets;
            lattices.lattices[1].n_tickets = 0;
            lattices.lattices[0].begin = first_box;
            lattices.lattices[0].end = box;
            lattices.lattices[0].n_tickets = box - first_box;
            lattices.lattices[0].tiles_of_ticket = 1;
            lattices.lattices[0].waits_for = batch.coarsest >= 2 ? 2 : 0;
            tickets += box - first_box;
        } else {
            tickets = lattices.deal(batch.finest, batch.coarsest, 1, counting.blocks);
        }
        const SplineCountArguments<T> count{
            .work = {lattices.place(arrays, upload_all), batch.coarsest, given.spline.cubic, tickets,
                     &cleared->counting, scratch, lattices.positions, 1},
            .sample = sample,
            .counts = &cleared->counts,
            .n_boxes = n_boxes,
            .n_tiles = n_tiles,
            .positions_of_box = positions_of_box,
        };
        count_spline(count, n_axes, static_cast<std::uint32_t>(std::min<std::uint64_t>(counting.blocks, tickets)),
                     stream());
        if (!in_batches) { // of the field, in what follows
            lattices.lattices[0].begin = 0;
            lattices.lattices[0].end = n_tiles;
        }
    }
    done("count_spline");
    ModelArguments choice{&cleared->counts, {sample.rate(), 1, 1}, model_scratch, model, tables};
    if (is_large) {
        choice.weight[0] = n_tiles / n_boxes;
        choice.weight[1] = std::max<std::uint64_t>(pyramid.lattices[1].values() / n_around, 1);
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
        fetch(&chosen, model, 1);
        const std::uint64_t before = chosen.bytes + top.section.size() + index_bytes, before_batch = before + units * 2;
        units += written.units;
        if (before + (units + 1) / 2 * 4 > capacity) return std::nullopt;
        if (in_batches)
            staging_.copy(target.bytes() + before_batch, body + before, static_cast<std::size_t>(written.units * 2),
                          stream());
    }
    RansModel rans;
    rans.n_tables = chosen.n_tables;
    std::copy(std::begin(chosen.table), std::end(chosen.table), rans.table.begin());
    std::copy(std::begin(chosen.significant), std::end(chosen.significant), rans.significant.begin());
    for (std::size_t t = 0; t < most_tables; ++t)
        std::copy(std::begin(chosen.frequency[t]), std::end(chosen.frequency[t]), rans.frequency[t].begin());
    Encoded encoded{given, {}, 0, rans.bytes()};
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
void SplineEngine::decompress_as(const Frame& frame, const Pyramid& pyramid, const Top& top, const Source& from,
                                 const Target& to) {
    const std::uint64_t n = pyramid.lattices[0].values(), index_bytes = (pyramid.n_tiles + 1) / 2 * 4;
    const std::uint32_t n_axes = pyramid.lattices[0].n_active;
    const auto last = static_cast<std::uint32_t>(pyramid.n_coded() - 1);
    const std::uint64_t body_bytes = frame.coding.body_bytes, front = top.section.size();
    const std::byte* body = from.bytes();
    if (!from.on_device()) {
        auto* const copy = archive_.reserve<std::byte>(source_, body_bytes);
        staging_.copy(copy, body, static_cast<std::size_t>(body_bytes), stream());
        body = copy;
    }
    const bool decodes = to.pointer != nullptr;
    T* const values = !decodes ? nullptr : to.on_device() ? to.as<T>() : field_.reserve<T>(source_, n);
    DevicePyramid<T> lattices(pyramid, frame.coding, top, nullptr, values);
    const SplinePlan plan = plan_spline<T>(SplineKernel::read, n_axes, lattices.positions);
    const std::uint64_t tickets = lattices.deal(0, last, plan.tiles_of_block, plan.blocks, decodes);
    const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(plan.blocks, tickets));

    struct Cleared {
        Progress progress;
        SplineRead result;
        DecompressResult of_index;
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
    CUSZ_CUDA(cudaMemsetAsync(memory, 0, cleared_bytes, stream()));
    const MadeTables made = decoding_tables(RansModel::parse(frame.model));
    upload(reinterpret_cast<std::byte*>(tables), reinterpret_cast<const std::byte*>(made.tables.get()), made.bytes);
    auto* const arrays = arrays_.reserve<std::byte>(source_, lattices.bytes());
    SplineReadArguments<T> read{};
    read.work = {lattices.place(arrays, [&](auto* target, const auto* source,
                                            std::size_t count) { upload(target, source, count); }),
                 last,
                 frame.coding.spline.cubic,
                 tickets,
                 &cleared->progress,
                 scratch_.reserve<std::byte>(source_, blocks * plan.scratch_bytes),
                 lattices.positions,
                 plan.tiles_of_block};
    read.tables = tables;
    read.index = reinterpret_cast<const std::uint16_t*>(body + front);
    read.starts = starts;
    read.of_index = &cleared->of_index;
    read.payloads = reinterpret_cast<const std::uint16_t*>(body + front + index_bytes);
    read.n_units = (body_bytes - front - index_bytes) / 2;
    read.result = &cleared->result;
    read.decodes = decodes;
    done("clear_for_reading");
    const IndexArguments index{
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
    find_starts(index, stream());
    done("find_starts");
    read_spline(read, n_axes, blocks, stream());
    done("read_spline");
    Cleared outcome;
    fetch(&outcome, cleared, 1);
    if (outcome.of_index.index_error != 0)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the padding of the tile index is not 0");
    const std::uint64_t units = outcome.of_index.words;
    if (units + units % 2 != read.n_units)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the tile index adds up to ", units, " units, not ", read.n_units);
    if (outcome.result.bad_padding != 0)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the padding of the payloads is not 0");
    if (outcome.result.error != 0) {
        const std::uint64_t report = ~outcome.result.error;
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: tile ", (report >> 8) - 1, ": ",
             text_of(static_cast<SplineError>(report & 255)));
    }
    const bool verify = frame.coding.lossless == CUSZ_LOSSLESS_NONE; // else the stored bytes were verified
    if (verify && fold(outcome.result.checksum + top_part(pyramid, top)) != frame.payload_checksum)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
    if (!decodes) return;
    if (outcome.result.has_patches != 0 || lattices.top_has_patches) {
        patch_spline(read, stream());
        done("patch_spline");
        if (to.on_device()) CUSZ_CUDA(cudaStreamSynchronize(stream()));
    }
    if (!to.on_device()) staging_.copy(to.pointer, values, static_cast<std::size_t>(n) * sizeof(T), stream());
}

} // namespace cusz::cuda
