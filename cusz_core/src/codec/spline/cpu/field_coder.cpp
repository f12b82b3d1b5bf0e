#include "field_coder.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "archive/checksum.hpp"
#include "codec/cpu/parallel.hpp"
#include "errors.hpp"

namespace cusz::cpu {

namespace {

// Sets the strides of the arrays of lattices from 1 on, and returns their sizes in values. Rows are a little longer
// than extents, so that neighbouring ones do not compete for the same places in a cache.
std::vector<std::size_t> lay_out(Pyramid& pyramid) {
    constexpr std::uint64_t gap = lane_room;
    std::vector<std::size_t> sizes(pyramid.lattices.size());
    for (std::size_t i = 1; i < sizes.size(); ++i) {
        Lattice& lattice = pyramid.lattices[i];
        Extents extent{}, stride{1}; // by the field's axes
        for (std::size_t j = 0; j < 4; ++j) extent[lattice.axis[j]] = lattice.extent[j];
        for (std::size_t a = 1; a < 4; ++a)
            stride[a] = stride[a - 1] * extent[a - 1] + (extent[a - 1] >= 2 * gap ? gap : 0);
        for (std::size_t j = 0; j < 4; ++j) {
            lattice.stride[j] = stride[lattice.axis[j]];
            Lattice& finer = pyramid.lattices[i - 1];
            finer.coarse_stride[j] = stride[finer.axis[j]];
        }
        sizes[i] = static_cast<std::size_t>(stride[3] * extent[3]);
    }
    return sizes;
}

std::uint32_t rows_of(const Pyramid& pyramid) {
    std::uint32_t rows = 0;
    for (std::size_t i = 0; i < pyramid.n_coded(); ++i)
        for (std::uint32_t phase = 1; phase <= pyramid.lattices[i].n_active; ++phase)
            rows |= 1u << v2::row_of(i, phase);
    return rows;
}

std::size_t first_of_lattice(const std::vector<v2::Unit>& units, std::size_t u) {
    while (u > 1 && units[u - 1].lattice == units[u].lattice) --u;
    return u;
}

// A unit's payload; copied to `memory` if it is not aligned or too close to the end for a decoder to read beyond it.
template <class Opened>
UnitToRead unit_of(const Opened& opened, std::size_t u, Buffer& memory) {
    const std::byte* const begin = opened.archive.data() + opened.first[u];
    const std::size_t n = (opened.first[u + 1] - opened.first[u]) / 2;
    const auto* payload = reinterpret_cast<const std::uint16_t*>(begin);
    if (!is_aligned<std::uint16_t>(begin) || opened.first[u + 1] + 2 * unit_margin > opened.archive.size()) {
        auto* const copy = memory.reserve<std::uint16_t>(n + unit_margin);
        if (n > 0) std::memcpy(copy, begin, 2 * n);
        std::memset(copy + n, 0, 2 * unit_margin);
        payload = copy;
    }
    return {&opened.coded.units[u], payload, static_cast<std::uint32_t>(n), opened.head.units[u].log2_lanes, u == 0};
}

} // namespace

template <class T>
FieldCoder<T>::Field::Field(const v2::Front& front, const Interpolation& how, const T* end)
    : pyramid(front.layout.ndim, front.layout.shape.data(), how.axes), sizes(lay_out(pyramid)),
      units(v2::units_of(pyramid)), coder{pyramid, {}, static_cast<v2::Curve>(how.curve), end} {
    for (std::size_t i = 0; i < pyramid.n_coded(); ++i) {
        coder.quantiser.push_back(quantiser_of(static_cast<T>(front.e), v2::divisor(how.bounds, i)));
        coder.quantiser[i].special = static_cast<Bits>(front.special);
    }
}

template <class T>
FieldCoder<T>::Opened::Opened(std::span<const std::byte> prefix, std::size_t archive_bytes, const v2::Front& its_front,
                              std::size_t front_bytes)
    : archive(prefix), front(its_front), head_bytes(v2::read_head(archive, archive_bytes, front, front_bytes, head)),
      coded(front, head.how, nullptr), first(coded.units.size() + 1, head_bytes) {
    for (std::size_t u = 0; u < coded.units.size(); ++u)
        first[u + 1] = first[u] + static_cast<std::size_t>(head.units[u].bytes);
}

template <class T>
void FieldCoder<T>::Output::put(std::size_t unit, const UnitPayload& payload) {
    const std::size_t bytes = 2 * std::size_t{payload.n};
    if (threads == 1 && is_in_order && first_payload + in_target + bytes <= capacity) {
        if (bytes > 0) std::memcpy(target + first_payload + in_target, payload.begin, bytes);
        in_target += bytes;
    } else {
        if (threads == 1) is_in_order = false;
        written[unit].payload.assign(payload.begin, payload.begin + payload.n);
    }
    all_bytes += bytes;
}

template <class T>
void FieldCoder<T>::make_workers(int threads) {
    if (workers_.size() < static_cast<std::size_t>(threads)) workers_.resize(static_cast<std::size_t>(threads));
}

// A lattice needs only the next coarser one, so every second one has the same memory.
template <class T>
void LatticeMemory<T>::make(const std::vector<std::size_t>& sizes, typename Traits<T>::Bits top,
                            typename Traits<T>::Bits special, std::size_t from) {
    const std::size_t n = sizes.size();
    std::vector<std::size_t> at(n);
    std::size_t values = 0;
    for (std::size_t i = from; i < n; ++i) {
        at[i] = i >= from + 2 ? at[i - 2] : values;
        if (i < from + 2) values += sizes[i] + lane_room;
    }
    auto* const value = memory.reserve<T>(values + (values + lane_room) / sizeof(T) + 1);
    auto* const magnitude = reinterpret_cast<std::uint8_t*>(value + values);
    arrays.assign(n, {});
    for (std::size_t i = from; i < n; ++i) arrays[i] = {value + at[i], magnitude + at[i]};
    const T first = std::bit_cast<T>(top);
    const bool is_finite = std::abs(first) <= std::numeric_limits<T>::max();
    *arrays.back().value = top != special && is_finite ? first : T{0};
    *arrays.back().magnitude = top == special ? special_mark : std::uint8_t{0};
}

template <class T>
std::uint64_t FieldCoder<T>::weigh_units(const void* units, std::size_t n) const {
    std::uint16_t last = 0; // without another one in its word
    if (n % 2 != 0) std::memcpy(&last, static_cast<const std::byte*>(units) + 2 * (n - 1), sizeof last);
    return kernels_.weigh(units, n / 2) + std::uint64_t{last} * checksum_weight(static_cast<std::uint32_t>(n / 2));
}

template <class T>
void FieldCoder<T>::record_unit(const PyramidCoder<T>& coder, const v2::Unit& unit, const T* field, UnitWorker<T>& own,
                                UnitRecord& record) {
    const bool is_first = unit.first_tile == 0;
    record.clear();
    for_tiles_of(coder.pyramid, unit, [&](std::size_t i, std::uint64_t tile, std::uint32_t j) {
        const UnitRecord::Mark mark = record.mark();
        const bool live = kernels(is_first).code(coder, i, tile, field, lattices_.arrays[i + 1], lattices_.arrays[i],
                                                 own.memory(), record);
        if (is_first)
            record.live |= live;
        else if (live)
            record.live |= 1u << j;
        else
            record.go_back(mark);
    });
}

template <class T>
typename FieldCoder<T>::Recorded FieldCoder<T>::record(const Field& coded, const Interpolation& how, const T* field,
                                                       int threads) {
    const auto& units = coded.units;
    const Sample sample(coded.pyramid.lattices[0].n_tiles, default_r);
    Recorded recorded{units.size(), false};
    if (sample.rate() > 1)
        while (units[recorded.n - 1].lattice == 0 && recorded.n > 1) --recorded.n;
    records_.resize(std::max(records_.size(), recorded.n));
    const std::uint64_t n_values = coded.pyramid.lattices[0].values();
    recorded.is_kept = units.size() == 1 && kept_.n_values == n_values && kept_.how == how;
    if (recorded.is_kept)
        std::swap(records_[0], kept_.record);
    else
        record_unit(coded.coder, units[0], field, worker(0), records_[0]);
    if (records_[0].n_special + records_[0].n_verbatim > 0) recorded.is_kept = false; // a map may pay
    forget();
    for (std::size_t u = 1; u < recorded.n;) {
        std::size_t end = u;
        while (end < recorded.n && units[end].lattice == units[u].lattice) ++end;
        parallel(threads, end - u, [&](std::uint64_t part, int thread) {
            UnitWorker<T>& own = worker(thread);
            record_unit(coded.coder, units[u + part], field, own, own.record);
            records_[u + part].copy(own.record);
        });
        u = end;
    }
    passes_ = {n_values - 1, 0};
    if (!recorded.is_kept) count(coded, recorded.n, sample, field, threads);
    return recorded;
}

template <class T>
template <class Work>
void FieldCoder<T>::parallel_counts(int threads, std::uint64_t parts, const Work& work) {
    std::vector<v2::Counts> of_others(static_cast<std::size_t>(threads - 1));
    parallel(threads, parts, [&](std::uint64_t part, int thread) {
        work(part, thread, thread == 0 ? *counts_ : of_others[static_cast<std::size_t>(thread - 1)]);
    });
    for (const v2::Counts& other : of_others) counts_->add(other);
}

// Counts what is recorded; if lattice 0 is not, also codes a sample of its tiles and counts these.
template <class T>
void FieldCoder<T>::count(const Field& coded, std::size_t n_recorded, const Sample& sample, const T* field,
                          int threads) {
    counts() = {};
    parallel_counts(threads, n_recorded,
                    [&](std::uint64_t u, int, v2::Counts& counted) { records_[u].count(1, counted); });
    if (n_recorded == coded.units.size()) return;
    const Lattice& lattice = coded.pyramid.lattices[0];
    std::vector<std::uint64_t> tiles;
    for (std::uint64_t t = 0; t < lattice.n_tiles; ++t)
        if (sample.counts(t)) tiles.push_back(t);
    std::atomic<std::uint64_t> again = 0;
    parallel_counts(threads, tiles.size(), [&](std::uint64_t part, int thread, v2::Counts& counted) {
        UnitWorker<T>& own = worker(thread);
        own.record.clear();
        if (kernels(false).code(coded.coder, 0, tiles[part], field, lattices_.arrays[1], lattices_.arrays[0],
                                own.memory(), own.record))
            own.record.count(sample.rate(), counted);
        again += own.tiles[0].place.points();
    });
    passes_.again = again;
}

template <class T>
v2::Model FieldCoder<T>::choose_model(const Field& coded, bool is_kept, std::vector<v2::MapSymbol>& map) {
    const std::uint32_t n_axes = coded.pyramid.lattices[0].n_active, rows = rows_of(coded.pyramid);
    const v2::Model model =
        is_kept ? v2::model_of_preset(n_axes, kept_.preset) : v2::choose_model(*counts_, n_axes, rows);
    if (model.has_map) map = v2::map_of(model, n_axes, rows);
    set_model(model);
    return model;
}

template <class T>
void FieldCoder<T>::write_units(const Field& coded, const Recorded& recorded, const std::vector<v2::MapSymbol>& map,
                                const T* field, v2::Head& head, Output& to) {
    const auto& units = coded.units;
    head.units.resize(units.size());
    to.written.resize(units.size());
    parallel(to.threads, units.size(), [&](std::uint64_t u, int thread) {
        if (to.all_bytes.load(std::memory_order_relaxed) > to.capacity) return;
        UnitWorker<T>& own = worker(thread);
        const UnitRecord* record = u < recorded.n ? &records_[u] : &own.record;
        if (u >= recorded.n) record_unit(coded.coder, units[u], field, own, own.record);
        const std::span<const v2::MapSymbol> its_map = u == 0 ? map : std::span<const v2::MapSymbol>();
        const UnitPayload payload = kernels(u == 0).write(*record, *model_, its_map, u == 0, own.room);
        head.units[u] = {2 * std::uint64_t{payload.n}, payload.log2_lanes};
        to.written[u] = {{}, record->n_special, record->n_verbatim, 0};
        if (u > 0)
            to.written[u].sum =
                part_of_sum(u - first_of_lattice(units, u), weigh_units(payload.begin, payload.n), (payload.n + 1) / 2);
        to.put(u, payload);
    });
}

template <class T>
std::optional<std::size_t> FieldCoder<T>::assemble(v2::Front& front, v2::Head& head, const std::vector<v2::Unit>& units,
                                                   const Output& output) {
    front.n_special = front.n_verbatim = 0;
    std::uint64_t sum = 0;
    for (std::size_t u = 0; u < units.size(); ++u) {
        front.n_special += output.written[u].n_special;
        front.n_verbatim += output.written[u].n_verbatim;
        if (u == 0) continue;
        sum += output.written[u].sum;
        if (u + 1 < units.size() && units[u + 1].lattice == units[u].lattice) continue;
        head.checksums.push_back(fold(sum));
        sum = 0;
    }
    std::byte front_bytes[v2::max_front_bytes];
    const std::size_t n_front = v2::write_front(front, front_bytes);
    const std::vector<std::byte> rest = v2::write_head(front, n_front, head);
    const std::size_t head_bytes = n_front + 4 + rest.size(), in_target = output.in_target;
    if (head_bytes + output.all_bytes > output.capacity) return std::nullopt;
    std::byte* const target = output.target;
    if (in_target > 0) std::memmove(target + head_bytes, target + output.first_payload, in_target);
    std::memcpy(target, front_bytes, n_front);
    std::memcpy(target + n_front + 4, rest.data(), rest.size());
    std::vector<std::size_t> at(units.size() + 1, head_bytes);
    for (std::size_t u = 0; u < units.size(); ++u) at[u + 1] = at[u] + static_cast<std::size_t>(head.units[u].bytes);
    parallel(output.threads, units.size(), [&](std::uint64_t u, int) {
        const std::vector<std::uint16_t>& payload = output.written[u].payload;
        if (!payload.empty()) std::memcpy(target + at[u], payload.data(), 2 * payload.size());
    });
    v2::seal({target, head_bytes + static_cast<std::size_t>(head.units[0].bytes)}, n_front);
    return at.back();
}

template <class T>
std::optional<std::size_t> FieldCoder<T>::compress(v2::Front front, const Interpolation& how, const T* field,
                                                   int threads, std::byte* target, std::uint64_t capacity) {
    make_workers(threads);
    const Field coded(front, how, field + front.layout.values);
    lattices_.make(coded.sizes, bits_of(field[0]), coded.coder.quantiser[0].special);
    front.has_axes = how.axes != AxisMasks{15, 15, 15};

    const Recorded recorded = record(coded, how, field, threads);
    std::vector<v2::MapSymbol> map;
    const v2::Model model = choose_model(coded, recorded.is_kept, map);

    v2::Head head;
    head.how = how;
    head.preset = model.preset;
    head.has_map = model.has_map;
    head.top = bits_of(field[0]);
    Output output{target, capacity, threads, v2::max_head_bytes(coded.units.size(), coded.pyramid.n_coded()),
                  0,      true,     0,       {}};
    write_units(coded, recorded, map, field, head, output);
    if (output.all_bytes > capacity) return std::nullopt;
    return assemble(front, head, coded.units, output);
}

template <class T>
void FieldCoder<T>::read_units(const Opened& opened, std::span<const std::size_t> units,
                               const Destination<T>& destination, int thread) {
    UnitWorker<T>& own = worker(thread);
    UnitToRead given[units_at_once];
    for (std::size_t j = 0; j < units.size(); ++j) given[j] = unit_of(opened, units[j], own.payloads[j]);
    const Pyramid& pyramid = opened.coded.pyramid;
    const MapToRead map{pyramid.lattices[0].n_active, opened.head.preset, rows_of(pyramid)};
    const bool has_map = opened.head.has_map && units[0] == 0;
    kernels(units[0] == 0)
        .read(opened.coded.coder, {given, units.size()}, lattices_.arrays.data(), destination, own.memory(), *model_,
              has_map ? &map : nullptr, own.patches);
}

template <class T>
typename FieldCoder<T>::FirstUnit FieldCoder<T>::decompress_first(const Opened& opened) {
    make_workers(1);
    worker(0).patches.clear();
    const Field& coded = opened.coded;
    const std::size_t from = opened.first_lattice();
    lattices_.make(coded.sizes, static_cast<Bits>(opened.head.top), coded.coder.quantiser[0].special, from);
    set_model(v2::model_of_preset(coded.pyramid.lattices[0].n_active, opened.head.preset));
    const std::size_t first_unit[] = {0};
    read_units(opened, first_unit, {}, 0);
    return {lattices_.arrays[from], *model_, worker(0).patches};
}

template <class T>
LatticeArrays<T> FieldCoder<T>::code_first(Field& coded, const T* points) {
    make_workers(1);
    records_.resize(std::max<std::size_t>(records_.size(), 1));
    auto& lattices = coded.pyramid.lattices;
    const std::size_t from = coded.units[0].lattice;
    Extents extent{}, apart{}, stride{1}; // by the field's axes: of the points in the field, and where they are now
    for (std::size_t j = 0; j < 4; ++j) {
        extent[lattices[from].axis[j]] = lattices[from].extent[j];
        apart[lattices[from].axis[j]] = lattices[from].field_stride[j];
    }
    for (std::size_t a = 1; a < 4; ++a) stride[a] = stride[a - 1] * extent[a - 1];
    for (std::size_t i = from; i < lattices.size(); ++i)
        for (std::size_t j = 0; j < 4; ++j) {
            const std::uint32_t a = lattices[i].axis[j];
            lattices[i].field_stride[j] = lattices[i].field_stride[j] / apart[a] * stride[a];
        }
    coded.coder.end = points + lattices[from].values();
    lattices_.make(coded.sizes, bits_of(points[0]), coded.coder.quantiser[0].special, from);
    record_unit(coded.coder, coded.units[0], points, worker(0), records_[0]);
    return lattices_.arrays[from];
}

template <class T>
typename FieldCoder<T>::WrittenFirst FieldCoder<T>::write_first(const Field& coded, const v2::Counts& others) {
    const UnitRecord& record = records_[0];
    counts() = others;
    record.count(1, *counts_);
    std::vector<v2::MapSymbol> map;
    const v2::Model model = choose_model(coded, false, map);
    const UnitPayload payload = kernels(true).write(record, *model_, map, true, worker(0).room);
    return {model, *model_, payload, record.n_special, record.n_verbatim, record.live != 0};
}

template <class T>
void FieldCoder<T>::decompress(std::span<const std::byte> prefix, std::size_t archive_bytes, const v2::Front& front,
                               std::size_t front_bytes, int threads, std::size_t lattice, const Selection& box) {
    make_workers(threads);
    const Opened opened(prefix, archive_bytes, front, front_bytes);
    const Pyramid& pyramid = opened.coded.pyramid;
    const auto& units = opened.coded.units;
    const Bits top_bits = static_cast<Bits>(opened.head.top);
    verify(opened, lattice, threads);
    if (box.field == nullptr) return;

    for (UnitWorker<T>& each : workers_) each.patches.clear();
    // The lattice itself gets no arrays, so it goes to the destination.
    lattices_.make(opened.coded.sizes, top_bits, opened.coded.coder.quantiser[0].special, lattice + 1);
    set_model(v2::model_of_preset(pyramid.lattices[0].n_active, opened.head.preset));
    const std::vector<bool> wanted =
        wanted_units(pyramid, lattice, units, front.layout, box, opened.coded.coder.is_wide());
    const Destination<T> destination = destination_of<T>(pyramid, lattice, front.layout, box);
    const std::size_t first_unit[] = {0};
    read_units(opened, first_unit, destination, 0);
    std::vector<std::size_t> of_lattice;
    for (std::size_t u = 1; u < units.size() && units[u].lattice >= lattice;) {
        const std::size_t i = units[u].lattice;
        of_lattice.clear();
        for (; u < units.size() && units[u].lattice == i; ++u)
            if (wanted[u]) of_lattice.push_back(u);
        const std::span all(of_lattice);
        parallel(threads, (all.size() + units_at_once - 1) / units_at_once, [&](std::uint64_t part, int thread) {
            const std::size_t begin = part * units_at_once;
            read_units(opened, all.subspan(begin, std::min(units_at_once, all.size() - begin)), destination, thread);
        });
    }
    for (const UnitWorker<T>& each : workers_)
        for (const Patch& patch : each.patches) put<T>(patch, pyramid, lattice, front.layout, box);
    const T top = std::bit_cast<T>(top_bits);
    if (!(std::abs(top) <= std::numeric_limits<T>::max()))
        put<T>(Patch{{}, top_bits}, pyramid, lattice, front.layout, box);
}

template <class T>
std::size_t FieldCoder<T>::scratch_bytes() const {
    std::size_t bytes = lattices_.memory.bytes() + (model_ ? sizeof *model_ : 0) + kept_.record.bytes();
    bytes += counts_ ? sizeof *counts_ : 0;
    for (const auto& each : workers_) bytes += each.bytes();
    for (const auto& record : records_) bytes += record.bytes();
    return bytes;
}

template <class T>
void FieldCoder<T>::release_scratch() {
    workers_.clear();
    records_.clear();
    model_.reset();
    counts_.reset();
    kept_ = {};
    lattices_ = {};
}

template <class T>
typename FieldCoder<T>::Estimate FieldCoder<T>::estimate(const v2::Front& front, const Interpolation& how,
                                                         const T* fields, std::uint64_t n, std::uint64_t of_small,
                                                         int threads, bool closely) {
    make_workers(threads);
    if (closely) records_.resize(std::max<std::size_t>(records_.size(), n));
    const Field coded(front, how, fields + n * front.layout.values);
    const Pyramid& pyramid = coded.pyramid;
    const bool is_one_unit = front.layout.values <= v2::max_values_of_small_lattices;
    counts() = {};
    std::atomic<std::uint64_t> bits = 0;
    parallel_counts(threads, n, [&](std::uint64_t j, int thread, v2::Counts& counted) {
        UnitWorker<T>& own = worker(thread);
        UnitRecord& record = closely ? records_[j] : own.record;
        const T* const field = fields + j * front.layout.values;
        own.box.make(coded.sizes, bits_of(field[0]), coded.coder.quantiser[0].special);
        record.clear();
        for (std::size_t i = pyramid.n_coded(); i-- > 0;)
            for (std::uint64_t t = 0; t < pyramid.lattices[i].n_tiles; ++t) {
                const UnitRecord::Mark mark = record.mark();
                if (kernels(is_one_unit)
                        .code(coded.coder, i, t, field, own.box.arrays[i + 1], own.box.arrays[i], own.memory(), record))
                    record.live = 1;
                else if (i == 0 && !is_one_unit)
                    record.go_back(mark);
            }
        record.count(1, counted);
        bits += record.extra_bits + record.n_verbatim * 8 * sizeof(T);
    });
    Estimate estimate{.bits = bits, .finest = pyramid.lattices[0]};
    if (of_small == 0) {
        const v2::Fit fit = v2::best_fit(*counts_);
        std::uint64_t cost = closely ? 0 : fit.values;
        for (std::uint64_t j = 0; closely && j < n; ++j) cost += records_[j].cost(fit.model);
        estimate.bits += (cost + fit.groups) / 256;
    } else {
        v2::ModelCost cost;
        const std::uint32_t n_axes = pyramid.lattices[0].n_active;
        estimate.preset = v2::choose_model(*counts_, n_axes, rows_of(pyramid), &cost, of_small).preset;
        estimate.bits += cost.values / 256;
        estimate.map_bits = cost.map / 256;
    }
    return estimate;
}

template <class T>
CostsByAxis FieldCoder<T>::curve_costs(const v2::Front& front, const T* field) const {
    return kernels(front.layout.values <= v2::max_values_of_small_lattices)
        .curve_costs(field, extents_of(front.layout.ndim, front.layout.shape.data()),
                     quantiser_of(static_cast<T>(front.e), 1).inv);
}

template <class T>
void FieldCoder<T>::verify(const Opened& opened, std::size_t lattice, int threads) const {
    const auto& first = opened.first;
    const auto& units = opened.coded.units;
    std::size_t n = 1; // units up to the last one of the lattice
    while (n < units.size() && units[n].lattice >= lattice) ++n;
    std::vector<std::size_t> sum_of(n), place(n);
    for (std::size_t u = 2; u < n; ++u) {
        const bool same = units[u].lattice == units[u - 1].lattice;
        sum_of[u] = sum_of[u - 1] + (same ? 0 : 1);
        place[u] = same ? place[u - 1] + 1 : 0;
    }
    std::vector<std::atomic<std::uint64_t>> sums(n > 1 ? sum_of.back() + 1 : 0);
    const Parts parts(n - 1, threads);
    parallel(threads, n > 1 ? parts.number : 0, [&](std::uint64_t part, int) {
        const auto [begin, end] = parts[part];
        for (std::size_t u = begin + 1; u < end + 1; ++u) {
            const std::size_t n_units = (first[u + 1] - first[u]) / 2;
            sums[sum_of[u]] +=
                part_of_sum(place[u], weigh_units(opened.archive.data() + first[u], n_units), (n_units + 1) / 2);
        }
    });
    for (std::size_t i = 0; i < sums.size(); ++i)
        if (fold(sums[i]) != opened.head.checksums[i])
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
}

// Units with tiles that meet a box of a lattice, or from which wanted units are predicted. A wanted unit is decoded
// with all of its tiles, one after another.
template <class T>
std::vector<bool> FieldCoder<T>::wanted_units(const Pyramid& pyramid, std::size_t finest,
                                              const std::vector<v2::Unit>& units, const Layout& layout,
                                              const Selection& box, bool is_wide) const {
    std::vector<bool> wanted(units.size(), true);
    const Lattice& all = pyramid.lattices[finest];
    const Extents start = by_axis(layout, box.start, 0), count = by_axis(layout, box.count, 1);
    bool is_whole = true;
    for (std::size_t j = 0; j < 4; ++j) is_whole = is_whole && count[all.axis[j]] == all.extent[j];
    if (is_whole) return wanted;
    const std::uint64_t before = is_wide ? 2 : 1, behind = before + 1;
    std::vector<bool> tiles; // those of the lattice that are wanted
    std::vector<bool> next;
    const auto mark = [](const Lattice& lattice, const Extents& begin, const Extents& end, std::vector<bool>& of) {
        Extents first{}, last{}; // tiles, by the lattice's axes
        for (std::size_t j = 0; j < 4; ++j) {
            first[j] = begin[j] / lattice.edge[j];
            last[j] = (end[j] - 1) / lattice.edge[j];
        }
        for (std::uint64_t w = first[3]; w <= last[3]; ++w)
            for (std::uint64_t z = first[2]; z <= last[2]; ++z)
                for (std::uint64_t y = first[1]; y <= last[1]; ++y)
                    for (std::uint64_t x = first[0]; x <= last[0]; ++x)
                        of[((w * lattice.count[2] + z) * lattice.count[1] + y) * lattice.count[0] + x] = true;
    };
    Extents begin{}, end{};
    for (std::size_t j = 0; j < 4; ++j) {
        const std::uint32_t a = all.axis[j];
        begin[j] = start[a];
        end[j] = start[a] + count[a];
    }
    tiles.assign(all.n_tiles, false);
    mark(all, begin, end, tiles);
    std::size_t n = 1; // units up to the last one of that lattice
    while (n < units.size() && units[n].lattice >= finest) ++n;
    for (std::size_t u = n; u-- > 1;) { // the finest come first
        const std::size_t i = units[u].lattice;
        const Lattice &lattice = pyramid.lattices[i], &coarser = pyramid.lattices[i + 1];
        if (u + 1 < n && units[u + 1].lattice != i) tiles.swap(next);
        if (u + 1 == n || units[u + 1].lattice != i) next.assign(std::max<std::size_t>(coarser.n_tiles, 1), false);
        const std::uint64_t first = units[u].first_tile - lattice.first_tile;
        bool some = false;
        for (std::uint32_t j = 0; j < units[u].n_tiles; ++j) some = some || tiles[first + j];
        wanted[u] = some;
        if (!some || coarser.n_active == 0) continue;
        for (std::uint32_t j = 0; j < units[u].n_tiles; ++j) {
            const LatticeTile tile = tile_of(lattice, first + j);
            Extents from{}, to{}; // by the field's axes
            for (std::size_t a = 0; a < 4; ++a) {
                const std::uint64_t origin = tile.origin[a], behind_tile = origin + tile.edge[a];
                const bool active = lattice.is_active(a);
                from[lattice.axis[a]] = active ? origin / 2 - std::min(origin / 2, before) : origin;
                to[lattice.axis[a]] =
                    active ? std::min((behind_tile + 1) / 2 + behind, lattice.coarse_extent(a)) : behind_tile;
            }
            Extents begin_there{}, end_there{};
            for (std::size_t a = 0; a < 4; ++a) {
                begin_there[a] = from[coarser.axis[a]];
                end_there[a] = to[coarser.axis[a]];
            }
            mark(coarser, begin_there, end_there, next);
        }
    }
    return wanted;
}

template class FieldCoder<float>;
template class FieldCoder<double>;

} // namespace cusz::cpu
