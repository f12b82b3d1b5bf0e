// Turns fields into archives of the spline codec and back, one lattice after another; its units are distributed over
// threads. The bytes do not depend on the number of threads. Sections, in all files here, are those of format_v2.md.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "archive/v2/frame.hpp"
#include "buffer.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/data.hpp"
#include "codec/lorenzo/sample.hpp"
#include "destination.hpp"

namespace cusz::cpu {

// The lattices of a field but for lattice 0: values to predict from and magnitudes.
template <class T>
struct LatticeMemory {
    std::vector<LatticeArrays<T>> arrays; // by lattice
    Buffer memory;

    // Makes arrays for the lattices from `from` on, and fills the top's. sizes: by lattice, in values.
    void make(const std::vector<std::size_t>& sizes, typename Traits<T>::Bits top, typename Traits<T>::Bits special,
              std::size_t from = 1);
};

// Memory of a thread, reused by later calls.
template <class T>
struct UnitWorker {
    TileForms forms;
    std::array<SplineTile<T>, units_at_once> tiles;
    UnitRecord record;
    UnitRoom room;
    std::array<Buffer, units_at_once> payloads; // copies of those that are read, with room behind them
    std::array<Buffer, units_at_once> extra;    // their extra bits
    std::vector<Patch> patches;
    LatticeMemory<T> box; // that it estimates

    UnitMemory<T> memory() { return {forms, tiles, extra}; }
    std::size_t bytes() const {
        return forms.bytes() + tiles[0].bytes() + tiles[1].bytes() + record.bytes() + room.bytes() +
               payloads[0].bytes() + payloads[1].bytes() + extra[0].bytes() + extra[1].bytes() +
               patches.capacity() * sizeof(Patch) + box.memory.bytes();
    }
};

template <class T>
class FieldCoder {
    using Bits = typename Traits<T>::Bits;

public:
    explicit FieldCoder(const Kernels& kernels) : kernels_(kernels) {}

    // How many values were predicted for the last archive, and how many of them once more to choose a model.
    struct Passes {
        std::uint64_t values = 0, again = 0;
    };
    const Passes& passes() const { return passes_; }

    // How long a field's units would be, and what they would be coded with.
    struct Estimate {
        std::uint64_t bits = 0, map_bits = 0; // of the units, about, and of the map if the field is small
        std::uint32_t preset = 0;             // if the field is small
        Lattice finest{};
    };
    // Estimates n fields, one after another in memory: parts of a larger field, or the only one. of_small: how many values
    // that one has if its model is to be chosen as for itself; 0: it is large, and its map is assumed to fit. closely:
    // then every symbol's own cost is taken, not that of all symbols of a context from their number and sizes.
    Estimate estimate(const v2::Front& front, const Interpolation& how, const T* fields, std::uint64_t n,
                      std::uint64_t of_small, int threads, bool closely = false);
    // What linear and cubic interpolation leave of such a field, by the layout's axes, the fastest first.
    CostsByAxis curve_costs(const v2::Front& front, const T* field) const;
    // Keeps how the last estimated field was coded; it must be one unit without a map. The next call of compress(), for
    // this field with the same interpolation, then need not code it again.
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
        std::vector<std::size_t> sizes; // of the arrays of lattices from 1 on, in values
        std::vector<v2::Unit> units;
        PyramidCoder<T> coder;

        Field(const v2::Front& front, const Interpolation& how, const T* end);
        Field(const Field&) = delete;
    };
    // An archive, or its first bytes. first: where each unit begins, and where the last one ends.
    struct Opened {
        std::span<const std::byte> archive;
        const v2::Front& front;
        v2::Head head;
        std::size_t head_bytes;
        Field coded;
        std::vector<std::size_t> first;

        // The head must have been verified. archive_bytes: of the whole archive. Throws CORRUPT.
        Opened(std::span<const std::byte> prefix, std::size_t archive_bytes, const v2::Front& its_front,
               std::size_t front_bytes);
        // The finest lattice of unit 0, from which the other units are decoded.
        std::size_t first_lattice() const { return coded.units[0].lattice; }
    };

    // Compresses a field that is neither empty nor constant, with the bound front.e, which has to be legal for it.
    // Returns the archive's length, or nothing if that exceeds `capacity` bytes. Sets the counters of `front`.
    std::optional<std::size_t> compress(v2::Front front, const Interpolation& how, const T* field, int threads,
                                        std::byte* target, std::uint64_t capacity);

    // Verifies the checksums of the lattices that are needed, and decodes a box of a lattice that is not coarser than
    // any of unit 0; without memory for the box, only verifies. The head must have been verified. prefix: as much of
    // the archive as is needed. Throws CORRUPT.
    void decompress(std::span<const std::byte> prefix, std::size_t archive_bytes, const v2::Front& front,
                    std::size_t front_bytes, int threads, std::size_t lattice, const Selection& box);

    // Decodes only unit 0, so that the others can be decoded elsewhere.
    struct FirstUnit {
        LatticeArrays<T> lattice; // the finest one of unit 0
        const UnitModel& model;
        std::span<const Patch> patches;
    };
    FirstUnit decompress_first(const Opened& opened);

    // Codes only unit 0 of a field whose other units are coded elsewhere. First its lattices. points: of the finest of
    // them, without gaps, in the field's order of axes. Returns what the other lattices are predicted from.
    LatticeArrays<T> code_first(Field& coded, const T* points);
    // Then its payload, once the other units are counted.
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
    // Units that are recorded before their tables are known: all, or all but those of lattice 0 if that is counted from
    // a sample.
    struct Recorded {
        std::size_t n;
        bool is_kept; // the record is what a choice has kept, and so is the preset
    };
    struct Written {
        std::vector<std::uint16_t> payload; // of a unit, unless it is already in its place
        std::uint64_t n_special = 0, n_verbatim = 0;
        std::uint64_t sum = 0;
    };
    // Where payloads go. A single thread writes them to `target`, behind room for the longest head, as long as they
    // fit; otherwise they are kept until their places are known.
    struct Output {
        std::byte* target;
        std::uint64_t capacity;
        int threads;
        std::size_t first_payload;
        std::size_t in_target = 0; // bytes
        bool is_in_order = true;   // all payloads so far are there
        std::atomic<std::uint64_t> all_bytes = 0;
        std::vector<Written> written; // by unit

        void put(std::size_t unit, const UnitPayload& payload);
    };

    UnitWorker<T>& worker(int i) { return workers_[static_cast<std::size_t>(i)]; }
    void make_workers(int threads);
    // Allocated on first use.
    v2::Counts& counts() {
        if (!counts_) counts_ = std::make_unique<v2::Counts>();
        return *counts_;
    }
    void set_model(const v2::Model& model) {
        if (!model_) model_ = std::make_unique<UnitModel>();
        model_->set(model);
    }
    std::uint64_t weigh_units(const void* units, std::size_t n) const;

    Recorded record(const Field& coded, const Interpolation& how, const T* field, int threads);
    void record_unit(const PyramidCoder<T>& coder, const v2::Unit& unit, const T* field, UnitWorker<T>& own,
                     UnitRecord& record);
    // Like parallel(), for work(part, thread, counts) that counts. Adds all counts to counts_.
    template <class Work>
    void parallel_counts(int threads, std::uint64_t parts, const Work& work);
    // Sets counts_.
    void count(const Field& coded, std::size_t n_recorded, const Sample& sample, const T* field, int threads);
    // Sets model_ and, if the model has one, its map.
    v2::Model choose_model(const Field& coded, bool is_kept, std::vector<v2::MapSymbol>& map);
    // Sets head.units and to.written.
    void write_units(const Field& coded, const Recorded& recorded, const std::vector<v2::MapSymbol>& map,
                     const T* field, v2::Head& head, Output& to);
    // Returns the length of the archive, or nothing if it is too long.
    std::optional<std::size_t> assemble(v2::Front& front, v2::Head& head, const std::vector<v2::Unit>& units,
                                        const Output& output);

    // Verifies the checksums of this lattice and of coarser ones.
    void verify(const Opened& opened, std::size_t lattice, int threads) const;
    // Decodes up to units_at_once units of one lattice.
    void read_units(const Opened& opened, std::span<const std::size_t> units, const Destination<T>& destination,
                    int thread);
    // The units that are needed for a box of a lattice.
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
    LatticeMemory<T> lattices_;
    Passes passes_;
    std::unique_ptr<v2::Counts> counts_;
    struct {
        UnitRecord record;
        std::uint64_t n_values = 0; // of the field; 0: nothing is kept
        Interpolation how;
        std::uint32_t preset = 0;
    } kept_;
};

extern template class FieldCoder<float>;
extern template class FieldCoder<double>;

} // namespace cusz::cpu
