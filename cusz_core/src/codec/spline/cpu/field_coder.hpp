// Fields to archives of the spline codec and back: lattices one after another, the units of each distributed over threads.
// The bytes do not depend on the number of threads. Sections, here and in the other files, are those of format_v2.md.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "archive/v2/frame.hpp"
#include "buffer.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/data.hpp"
#include "codec/lorenzo/sample.hpp"
#include "destination.hpp"

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

    UnitMemory<T> memory() { return {forms, tiles}; }
    std::size_t bytes() const {
        return forms.bytes() + tiles[0].bytes() + tiles[1].bytes() + record.bytes() + room.bytes() +
               payloads[0].bytes() + payloads[1].bytes() + patches.capacity() * sizeof(Patch);
    }
};

template <class T>
class FieldCoder {
    using Bits = typename Traits<T>::Bits;

public:
    explicit FieldCoder(const Kernels& kernels) : kernels_(kernels) {}

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
        Lattice finest{};
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

    // A field as it is coded.
    struct Field {
        Pyramid pyramid;
        std::vector<std::size_t> sizes; // of the arrays of lattices from 1 on
        std::vector<v2::Unit> units;
        PyramidCoder<T> coder;

        Field(const v2::Front& front, const Interpolation& how, const T* end);
        Field(const Field&) = delete;
    };
    // An archive, or its first bytes, and where its units begin and the last one ends.
    struct Opened {
        std::span<const std::byte> archive;
        const v2::Front& front;
        v2::Head head;
        std::size_t head_bytes;
        Field coded;
        std::vector<std::size_t> first;

        // Its head has been verified. Throws CORRUPT.
        Opened(std::span<const std::byte> whole, const v2::Front& its_front, std::size_t front_bytes)
            : Opened(whole, whole.size(), its_front, front_bytes) {}
        // archive_bytes: of all of it.
        Opened(std::span<const std::byte> prefix, std::size_t archive_bytes, const v2::Front& its_front,
               std::size_t front_bytes);
        // The lattice whose points those of unit 0 are, which others are decoded from.
        std::size_t first_lattice() const { return coded.units[0].lattice; }
    };

    // The archive of a field that is not empty nor constant, whose bound front.e may be. Returns its length; nothing if
    // it is more than `capacity` bytes. front: counters are set.
    std::optional<std::size_t> compress(v2::Front front, const Interpolation& how, const T* field, int threads,
                                        std::byte* target, std::uint64_t capacity);

    // Decodes a box of a lattice that is not coarser than those of unit 0, of an archive whose head has been verified;
    // without memory for it, the checksums of the lattices that are needed are verified, and no more. prefix: as much of
    // the archive as is needed. Throws CORRUPT.
    void decompress(std::span<const std::byte> prefix, std::size_t archive_bytes, const v2::Front& front,
                    std::size_t front_bytes, int threads, std::size_t lattice, const Selection& box);

    // Decodes unit 0 alone, so that others can be decoded elsewhere.
    struct FirstUnit {
        LatticeArrays<T> lattice; // its first one
        const UnitModel& model;
        std::span<const Patch> patches;
    };
    FirstUnit decompress_first(const Opened& opened);

    // Codes unit 0 alone, of a field whose other units are coded elsewhere: first its lattices, from the points of the
    // first one, one after another by the field's axes. Returns what other lattices are predicted from.
    LatticeArrays<T> code_first(Field& coded, const T* points);
    // Then its payload, when others are counted.
    struct WrittenFirst {
        v2::Model model;
        const UnitModel& tables;
        UnitPayload payload;
        std::uint64_t n_special, n_verbatim;
        bool live;
    };
    WrittenFirst write_first(const Field& coded, const v2::Counts& others);

    std::size_t scratch_bytes() const;
    void release_scratch();

private:
    // Units that are recorded before their tables are known: all but those of lattice 0, or these, too, if all of it is
    // counted.
    struct Recorded {
        std::size_t n;
        bool is_kept; // as it was coded for a choice
    };
    struct Written {
        std::vector<std::uint16_t> payload; // of a unit, if it is not in its place yet
        std::uint64_t n_special = 0, n_verbatim = 0;
        std::uint64_t sum = 0;
    };
    // Where payloads are written to: one thread writes them behind room for the longest head, as long as they fit there;
    // else they are kept until it is known where they belong.
    struct Output {
        std::byte* target;
        std::uint64_t capacity;
        int threads;
        std::size_t first_payload;
        std::size_t in_target = 0; // bytes
        bool is_in_order = true;   // all of them are there
        std::atomic<std::uint64_t> all_bytes = 0;
        std::vector<Written> written; // by unit

        void put(std::size_t unit, const UnitPayload& payload);
    };

    UnitWorker<T>& worker(int i) { return workers_[static_cast<std::size_t>(i)]; }
    void make_workers(int threads);
    // Made when they are first wanted.
    v2::Counts& counts() {
        if (!counts_) counts_ = std::make_unique<v2::Counts>();
        return *counts_;
    }
    void set_model(const v2::Model& model) {
        if (!model_) model_ = std::make_unique<UnitModel>();
        model_->set(model);
    }
    // from: of lattices from this one on.
    void make_arrays(const std::vector<std::size_t>& sizes, Bits top, Bits special, std::size_t from = 1);
    std::uint64_t weigh_units(const std::uint16_t* units, std::size_t n) const;

    Recorded record(const Field& coded, const Interpolation& how, const T* field, int threads);
    void record_unit(const PyramidCoder<T>& coder, const v2::Unit& unit, const T* field, UnitWorker<T>& own,
                     UnitRecord& record);
    // Sets counts_.
    void count(const Field& coded, std::size_t n_recorded, const Sample& sample, const T* field, int threads);
    v2::Model choose_model(const Field& coded, bool is_kept) const;
    // Sets payloads of `head` and what is `written`.
    void write_units(const Field& coded, const Recorded& recorded, const std::vector<v2::MapSymbol>& map,
                     const T* field, v2::Head& head, Output& to);
    // The length of the archive; nothing if it is too long.
    std::optional<std::size_t> assemble(v2::Front& front, v2::Head& head, const std::vector<v2::Unit>& units,
                                        const Output& output);

    // Of lattices from this one on.
    void verify(const Opened& opened, std::size_t lattice, int threads) const;
    // Decodes units of a lattice, up to units_at_once of them.
    void read_units(const Opened& opened, std::span<const std::size_t> units, const Destination<T>& destination,
                    int thread);
    // Those for a box of a lattice.
    std::vector<bool> wanted_units(const Pyramid& pyramid, std::size_t lattice, const std::vector<v2::Unit>& units,
                                   const Layout& layout, const Selection& box, bool is_wide) const;

    const SplineKernels<T>& kernels(bool of_unit0) const {
        return of_unit0 && kernels_.of_unit0 != nullptr ? kernels_.of_unit0->template spline<T>()
                                                        : kernels_.template spline<T>();
    }

    const Kernels& kernels_;
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
