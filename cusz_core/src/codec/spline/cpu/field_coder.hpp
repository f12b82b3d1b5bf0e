// Fields to archives of the spline codec and back: lattices one after another, the units of each distributed over threads.
// The bytes do not depend on the number of threads. Sections, here and in the other files, are those of docs/format_v2.md.
#pragma once

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "archive/checksum.hpp"
#include "archive/v2/frame.hpp"
#include "codec/cpu/parallel.hpp"
#include "codec/cpu/segment.hpp"
#include "codec/data.hpp"
#include "codec/lorenzo/sample.hpp"
#include "destination.hpp"
#include "errors.hpp"
#include "kernels.hpp"

namespace cusz::cpu {

// Memory of a thread, reused by later calls.
template <class T>
struct UnitWorker {
    TileForms forms;
    std::array<SplineTile<T>, units_at_once> tiles;
    UnitRecord record;
    UnitRoom room;
    std::array<Buffer, units_at_once> payloads; // that are read, with room behind them
    std::vector<Patch> patches;
    std::vector<std::uint16_t> written; // payloads, one after the other

    UnitMemory<T> memory() { return {forms, tiles}; }
    std::size_t bytes() const {
        return forms.bytes() + tiles[0].bytes() + tiles[1].bytes() + record.bytes() + room.bytes() +
               payloads[0].bytes() + payloads[1].bytes() + patches.capacity() * sizeof(Patch) + written.capacity() * 2;
    }
};

using Weigh = std::uint64_t (*)(const void* data, std::size_t words);

template <class T>
class FieldCoder {
    using Bits = typename Traits<T>::Bits;

public:
    FieldCoder(const SplineKernels<T>& kernels, Weigh weigh) : kernels_(kernels), weigh_(weigh) {}

    // How often values were predicted for archives: those of fields, and those of them that were predicted again to
    // choose a model.
    struct Passes {
        std::uint64_t values = 0, again = 0;
    };
    const Passes& passes() const { return passes_; }

    // What a field would be coded with.
    struct Estimate {
        std::uint64_t bits = 0;   // of its units, about
        std::uint32_t preset = 0; // without a map
    };
    // Of n fields, one after the other, that are parts of a larger one, or it is the only one.
    Estimate estimate(const v2::Front& front, const Interpolation& how, const T* fields, std::uint64_t n, bool has_map);
    // What is left of such fields by straight lines and by cubics, by the layout's axes, the fastest first.
    CostsByAxis curve_costs(const v2::Front& front, const T* fields, std::uint64_t n) const;
    // Keeps how the last one was coded, if it has but one unit and no map: then the next call of compress(), for it with
    // the same interpolation, need not code it again.
    void keep(const v2::Front& front, const Interpolation& how, std::uint32_t preset) {
        std::swap(kept_.record, worker(0).record);
        kept_.n_values = front.layout.values;
        kept_.how = how;
        kept_.preset = preset;
    }
    void forget() { kept_.n_values = 0; }

    // The archive of a field that is not empty nor constant, whose bound front.e may be. Returns its length; nothing if
    // it is more than `capacity` bytes. front: counters are set.
    std::optional<std::size_t> compress(v2::Front front, const Interpolation& how, const T* field, int threads,
                                        std::byte* target, std::uint64_t capacity) {
        using namespace v2;
        make_workers(threads);
        Pyramid pyramid(front.layout.ndim, front.layout.shape.data(), how.axes);
        const std::vector<std::size_t> sizes = lay_out(pyramid);
        const std::vector<Unit> units = v2::units_of(pyramid);
        const PyramidCoder<T> coder = coder_of(pyramid, front, how, field + front.layout.values);
        arrays_ = make_arrays(sizes, bits_of(field[0]), coder.quantiser[0].special);
        front.has_axes = how.axes != AxisMasks{15, 15, 15};

        // Lattices from 1 on are recorded as they are coded, as is lattice 0 if all of it is counted.
        const Sample sample(pyramid.lattices[0].n_tiles, default_r);
        std::size_t n_recorded = units.size();
        if (sample.rate() > 1)
            while (units[n_recorded - 1].lattice == 0 && n_recorded > 1) --n_recorded;
        records_.resize(std::max(records_.size(), n_recorded));
        passes_ = {};
        passes_.values = front.layout.values - 1;
        const bool is_kept = units.size() == 1 && kept_.n_values == front.layout.values && kept_.how == how;
        if (is_kept) {
            std::swap(records_[0], kept_.record);
        } else {
            record_unit(coder, units[0], field, worker(0), records_[0]);
        }
        forget();
        for (std::size_t u = 1; u < n_recorded;) {
            std::size_t end = u;
            while (end < n_recorded && units[end].lattice == units[u].lattice) ++end;
            parallel(threads, end - u, [&](std::uint64_t part, int thread) {
                UnitWorker<T>& own = worker(thread);
                record_unit(coder, units[u + part], field, own, own.record);
                records_[u + part].copy(own.record);
            });
            u = end;
        }
        if (!is_kept) count(coder, units, n_recorded, sample, field, threads);
        const std::uint32_t n_axes = pyramid.lattices[0].n_active;
        const Model model =
            is_kept ? model_of_preset(n_axes, kept_.preset) : choose_model(*counts_, n_axes, rows_of(pyramid));
        const std::vector<MapSymbol> map =
            model.has_map ? map_of(model, n_axes, rows_of(pyramid)) : std::vector<MapSymbol>{};
        if (!model_) model_ = std::make_unique<UnitModel>();
        model_->set(model);

        Head head;
        head.how = how;
        head.preset = model.preset;
        head.has_map = model.has_map;
        head.top = bits_of(field[0]);
        head.units.resize(units.size());
        struct Written {
            int thread = 0;
            std::size_t from = 0;
            std::uint64_t n_special = 0, n_verbatim = 0;
            std::uint64_t sum = 0;
        };
        std::vector<Written> written(units.size());
        for (UnitWorker<T>& each : workers_) each.written.clear();
        std::atomic<std::uint64_t> all_bytes = 0;
        // One thread writes payloads behind room for the longest head, as long as they fit there; else each keeps them
        // until it is known where they belong.
        const std::size_t first_payload = max_head_bytes(units.size(), pyramid.n_coded());
        std::size_t in_target = 0; // bytes
        const auto put = [&](UnitWorker<T>& own, const UnitPayload& payload) {
            const std::size_t bytes = 2 * std::size_t{payload.n};
            if (threads == 1 && own.written.empty() && first_payload + in_target + bytes <= capacity) {
                if (bytes > 0) std::memcpy(target + first_payload + in_target, payload.begin, bytes);
                in_target += bytes;
            } else {
                own.written.insert(own.written.end(), payload.begin, payload.begin + payload.n);
            }
        };
        parallel(threads, units.size(), [&](std::uint64_t u, int thread) {
            if (all_bytes.load(std::memory_order_relaxed) > capacity) return;
            UnitWorker<T>& own = worker(thread);
            const UnitRecord* record = u < n_recorded ? &records_[u] : &own.record;
            if (u >= n_recorded) record_unit(coder, units[u], field, own, own.record);
            const UnitPayload payload = kernels_.write(
                *record, *model_, u == 0 ? std::span<const MapSymbol>(map) : std::span<const MapSymbol>(), u == 0,
                own.room);
            head.units[u] = {2 * std::uint64_t{payload.n}, payload.log2_lanes};
            written[u] = {thread, own.written.size(), record->n_special, record->n_verbatim, 0};
            if (u > 0)
                written[u].sum = part_of_sum(u - first_of_lattice(units, u), weigh_units(payload.begin, payload.n),
                                             (payload.n + 1) / 2);
            put(own, payload);
            all_bytes += 2 * payload.n;
        });
        if (all_bytes > capacity) return std::nullopt;
        front.n_special = front.n_verbatim = 0;
        std::uint64_t sum = 0;
        for (std::size_t u = 0; u < units.size(); ++u) {
            front.n_special += written[u].n_special;
            front.n_verbatim += written[u].n_verbatim;
            if (u == 0) continue;
            sum += written[u].sum;
            if (u + 1 < units.size() && units[u + 1].lattice == units[u].lattice) continue;
            head.checksums.push_back(fold(sum));
            sum = 0;
        }
        std::byte front_bytes[v2::max_front_bytes];
        const std::size_t n_front = write_front(front, front_bytes);
        const std::vector<std::byte> rest = write_head(front, n_front, head);
        const std::size_t head_bytes = n_front + 4 + rest.size();
        if (head_bytes + all_bytes > capacity) return std::nullopt;
        if (in_target > 0) std::memmove(target + head_bytes, target + first_payload, in_target);
        std::memcpy(target, front_bytes, n_front);
        std::memcpy(target + n_front + 4, rest.data(), rest.size());
        std::size_t at = head_bytes;
        for (std::size_t u = 0; u < units.size(); ++u) {
            const auto n = static_cast<std::size_t>(head.units[u].bytes);
            if (n > 0 && at >= head_bytes + in_target)
                std::memcpy(target + at, worker(written[u].thread).written.data() + written[u].from, n);
            at += n;
        }
        const std::size_t end_of_head = head_bytes + static_cast<std::size_t>(head.units[0].bytes);
        const std::uint32_t checksum = checksum_of_head({target, end_of_head}, n_front);
        std::memcpy(target + n_front, &checksum, sizeof checksum);
        return at;
    }

    // Decodes a box of the field that an archive is of, whose head has been verified; without a field, the checksums of
    // lattices are verified, and no more. Throws CORRUPT.
    void decompress(std::span<const std::byte> archive, const v2::Front& front, std::size_t front_bytes, int threads,
                    const Selection& box) {
        using namespace v2;
        make_workers(threads);
        Head head;
        const std::size_t head_bytes = read_head(archive, front, front_bytes, head);
        Pyramid pyramid(front.layout.ndim, front.layout.shape.data(), head.how.axes);
        const std::vector<std::size_t> sizes = lay_out(pyramid);
        const std::vector<Unit> units = v2::units_of(pyramid);
        std::vector<std::size_t> first(units.size() + 1, head_bytes);
        for (std::size_t u = 0; u < units.size(); ++u)
            first[u + 1] = first[u] + static_cast<std::size_t>(head.units[u].bytes);
        verify(archive, units, first, head, threads);
        if (box.field == nullptr) return;

        const PyramidCoder<T> coder = coder_of(pyramid, front, head.how, nullptr);
        for (UnitWorker<T>& each : workers_) each.patches.clear();
        arrays_ = make_arrays(sizes, static_cast<Bits>(head.top), coder.quantiser[0].special);
        const std::uint32_t n_axes = pyramid.lattices[0].n_active;
        if (!model_) model_ = std::make_unique<UnitModel>();
        model_->set(model_of_preset(n_axes, head.preset));
        const MapToRead map{n_axes, head.preset, rows_of(pyramid)};
        const std::vector<bool> wanted = wanted_units(pyramid, units, front.layout, box, coder.is_wide());
        const Destination<T> destination = destination_of<T>(pyramid, front.layout, box);
        // Payloads where a decoder may look behind them.
        const auto to_read = [&](std::size_t u, Buffer& memory) -> UnitToRead {
            const std::size_t n = (first[u + 1] - first[u]) / 2;
            const auto* payload = reinterpret_cast<const std::uint16_t*>(archive.data() + first[u]);
            if (!is_aligned<std::uint16_t>(archive.data() + first[u]) ||
                first[u + 1] + 2 * unit_margin > archive.size()) {
                auto* const copy = memory.reserve<std::uint16_t>(n + unit_margin);
                if (n > 0) std::memcpy(copy, archive.data() + first[u], 2 * n);
                std::memset(copy + n, 0, 2 * unit_margin);
                payload = copy;
            }
            return {&units[u], payload, static_cast<std::uint32_t>(n), head.units[u].log2_lanes, u == 0};
        };
        const auto read = [&](std::span<const std::size_t> of, int thread, const MapToRead* with_map) {
            UnitWorker<T>& own = worker(thread);
            UnitToRead given[units_at_once];
            for (std::size_t j = 0; j < of.size(); ++j) given[j] = to_read(of[j], own.payloads[j]);
            kernels_.read(coder, {given, of.size()}, arrays_.data(), destination, own.memory(), *model_, with_map,
                          own.patches);
        };
        const std::size_t first_unit[] = {0};
        read(first_unit, 0, head.has_map ? &map : nullptr);
        std::vector<std::size_t> of_lattice;
        for (std::size_t u = 1; u < units.size();) {
            const std::size_t lattice = units[u].lattice;
            of_lattice.clear();
            for (; u < units.size() && units[u].lattice == lattice; ++u)
                if (wanted[u]) of_lattice.push_back(u);
            const std::span all(of_lattice);
            parallel(threads, (all.size() + units_at_once - 1) / units_at_once, [&](std::uint64_t part, int thread) {
                const std::size_t begin = part * units_at_once;
                read(all.subspan(begin, std::min(units_at_once, all.size() - begin)), thread, nullptr);
            });
        }
        for (const UnitWorker<T>& each : workers_)
            for (const Patch& patch : each.patches) put<T>(patch, front.layout, box);
        const T top = std::bit_cast<T>(static_cast<Bits>(head.top));
        if (!(std::abs(top) <= std::numeric_limits<T>::max())) put<T>(Patch{{}, head.top}, front.layout, box);
    }

    std::size_t scratch_bytes() const {
        std::size_t bytes = lattices_.bytes() + (model_ ? sizeof *model_ : 0) + kept_.record.bytes();
        bytes += counts_ ? sizeof *counts_ : 0;
        for (const auto& each : workers_) bytes += each.bytes();
        for (const auto& record : records_) bytes += record.bytes();
        return bytes;
    }
    void release_scratch() {
        workers_.clear();
        records_.clear();
        model_.reset();
        counts_.reset();
        kept_ = {};
        lattices_.release();
    }

private:
    UnitWorker<T>& worker(int i) { return workers_[static_cast<std::size_t>(i)]; }
    void make_workers(int threads) {
        if (workers_.size() < static_cast<std::size_t>(threads)) workers_.resize(static_cast<std::size_t>(threads));
    }

    static PyramidCoder<T> coder_of(const Pyramid& pyramid, const v2::Front& front, const Interpolation& how,
                                    const T* end) {
        PyramidCoder<T> coder{pyramid, {}, static_cast<v2::Curve>(how.curve), end};
        for (std::size_t i = 0; i < pyramid.n_coded(); ++i) {
            coder.quantiser.push_back(quantiser_of(static_cast<T>(front.e), v2::divisor(how.bounds, i)));
            coder.quantiser[i].special = static_cast<Bits>(front.special);
        }
        return coder;
    }

    static std::uint32_t rows_of(const Pyramid& pyramid) {
        std::uint32_t rows = 0;
        for (std::size_t i = 0; i < pyramid.n_coded(); ++i)
            for (std::uint32_t phase = 1; phase <= pyramid.lattices[i].n_active; ++phase)
                rows |= 1u << v2::row_of(i, phase);
        return rows;
    }

    static std::size_t first_of_lattice(const std::vector<v2::Unit>& units, std::size_t u) {
        while (u > 1 && units[u - 1].lattice == units[u].lattice) --u;
        return u;
    }

    std::uint64_t weigh_units(const std::uint16_t* units, std::size_t n) const {
        const std::uint64_t last =
            n % 2 != 0 ? std::uint64_t{units[n - 1]} * checksum_weight(static_cast<std::uint32_t>(n / 2)) : 0;
        return weigh_(units, n / 2) + last;
    }

    // Of lattices from 1 on, the values their arrays take: rows are a little longer than extents, so that neighbouring
    // ones do not compete for the same places in a cache.
    static std::vector<std::size_t> lay_out(Pyramid& pyramid) {
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

    // Arrays for all lattices but the field; the top's are filled. Of those each needs only the next coarser one: every
    // second one has the same memory.
    std::vector<LatticeArrays<T>> make_arrays(const std::vector<std::size_t>& sizes, Bits top, Bits special) {
        const std::size_t n = sizes.size();
        std::vector<std::size_t> at(n);
        std::size_t values = 0;
        for (std::size_t i = 1; i < n; ++i) {
            at[i] = i >= 3 ? at[i - 2] : values;
            if (i < 3) values += sizes[i] + lane_room;
        }
        auto* const value = lattices_.reserve<T>(values + (values + lane_room) / sizeof(T) + 1);
        auto* const magnitude = reinterpret_cast<std::uint8_t*>(value + values);
        std::vector<LatticeArrays<T>> arrays(n);
        for (std::size_t i = 1; i < n; ++i) arrays[i] = {value + at[i], magnitude + at[i], 0};
        const T first = std::bit_cast<T>(top);
        const bool is_finite = std::abs(first) <= std::numeric_limits<T>::max();
        *arrays.back().value = top != special && is_finite ? first : T{0};
        *arrays.back().magnitude = top == special ? special_mark : std::uint8_t{0};
        return arrays;
    }

    void record_unit(const PyramidCoder<T>& coder, const v2::Unit& unit, const T* field, UnitWorker<T>& own,
                     UnitRecord& record) {
        const bool is_first = unit.first_tile == 0;
        record.clear();
        for_tiles_of(coder.pyramid, unit, [&](std::size_t i, std::uint64_t tile, std::uint32_t j) {
            const UnitRecord::Mark mark = record.mark();
            const bool live = kernels_.code(coder, i, tile, field, arrays_[i + 1], arrays_[i], own.memory(), record);
            if (is_first)
                record.live |= live;
            else if (live)
                record.live |= 1u << j;
            else
                record.go_back(mark);
        });
    }

    // Sets counts_.
    void count(const PyramidCoder<T>& coder, const std::vector<v2::Unit>& units, std::size_t n_recorded,
               const Sample& sample, const T* field, int threads);

    void verify(std::span<const std::byte> archive, const std::vector<v2::Unit>& units,
                const std::vector<std::size_t>& first, const v2::Head& head, int threads);

    std::vector<bool> wanted_units(const Pyramid& pyramid, const std::vector<v2::Unit>& units, const Layout& layout,
                                   const Selection& box, bool is_wide) const;

    const SplineKernels<T>& kernels_;
    Weigh weigh_;
    std::vector<UnitWorker<T>> workers_;
    std::vector<UnitRecord> records_;
    std::unique_ptr<UnitModel> model_;
    std::vector<LatticeArrays<T>> arrays_;
    Buffer lattices_; // of all lattices but the field, values to predict from and magnitudes
    Passes passes_;
    std::unique_ptr<v2::Counts> counts_;
    struct {
        UnitRecord record;
        std::uint64_t n_values = 0; // of the field; 0: none is kept
        Interpolation how;
        std::uint32_t preset = 0;
    } kept_;
};

extern template class FieldCoder<float>;
extern template class FieldCoder<double>;

} // namespace cusz::cpu
