// The host interface of the spline codec's kernels (contexts.cu, values.cu, units.cu). They encode and decode lattices
// of more than 4096 points; the CPU does smaller ones, which share unit 0. Pointers are device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "archive/pyramid.hpp"
#include "archive/quantiser.hpp"
#include "archive/tiling.hpp"
#include "archive/v2/frame.hpp"
#include "archive/v2/tables.hpp"
#include "codec/lorenzo/sample.hpp"

namespace cusz::cuda {

// Where a unit's payload is, in units of length.
struct UnitPlace {
    std::uint64_t begin;
    std::uint32_t n, log2_lanes;
};

// Stored in place of a code. With the last two, the field has the value or the code (as bits) at the point's place.
inline constexpr std::int32_t special_code = -32768, verbatim_code = -32767, large_code = -32766;

// What units need to know of a lattice, whatever the type of values.
struct UnitLattice {
    Lattice lattice;
    // By tile and coding order: first what contexts take from the coarser lattice, then codes. `codes` is for decoding,
    // `points` (RecordedPoint) for encoding.
    std::uint16_t* codes;
    std::uint32_t* points;
    const UnitPlace* units; // of the lattice; null when encoding
    const std::uint16_t* payloads;
};

// The same with its values, and those of the next coarser lattice.
template <class T>
struct DeviceLattice : UnitLattice {
    Quantiser<T> quantiser;
    v2::Curve curve;
    const T* coarse;
    const std::uint8_t* coarse_magnitude;
    T* fine; // null for lattice 0
    std::uint8_t* fine_magnitude;
    T* field;          // to decode to; null when encoding
    const T* original; // the field to encode; null when decoding
};

// Values as kernels of units see them: these only move bits, so one kernel serves both types.
struct UnitValues {
    void* decoded; // the field; or null
    const void* original;
    std::uint64_t special; // the special pattern
    std::uint32_t bits;    // of a value: 32 or 64
};
template <class T>
UnitValues unit_values(const DeviceLattice<T>& of) {
    return {of.field, of.original, of.quantiser.special, 8 * sizeof(T)};
}

enum class UnitError : std::uint32_t {
    none,
    live_tiles,
    states,
    early_end,
    extra_bits,
    special_value,
    beyond_limit,
    late_end
};

// The result of reading. Must be zeroed first.
struct ReadResult {
    std::uint64_t error;        // of the first bad unit: ~((number + 1) << 8 | UnitError); or 0
    std::uint64_t checksum[64]; // by lattice
};

struct ReadArguments {
    UnitLattice of;
    UnitValues values;
    std::uint32_t lattice, n_units;
    std::uint64_t first_unit;
    const std::uint32_t* slots;          // by table and slot (codec/spline/tables.hpp)
    const std::uint8_t* table_of;        // by phase - 1 and place, 128 for each phase
    const std::uint16_t* flag_frequency; // by context of groups
    ReadResult* result;
};

// What a tile is coded as.
struct TileRecord {
    std::uint32_t live;              // whether any code is not 0, or any value missing
    std::uint32_t n_values, n_flags; // how many are coded, if it is live
    std::uint32_t extra_bits;        // an upper bound
};

// Counts of what is coded, to choose a model from: groups[1] are those of lattice 0, groups[0] of all others. Must be
// zeroed first.
struct RecordCounts {
    std::uint64_t n[v2::n_contexts], size[v2::n_contexts], missing[v2::n_contexts][2];
    std::uint64_t groups[2][v2::n_group_contexts][2];
    std::uint64_t n_special, n_verbatim;
};

struct RecordArguments {
    UnitLattice of;
    std::uint32_t lattice, value_bits;
    Sample sample;              // of the tiles that are counted
    const std::uint16_t* sizes; // by symbol (archive/v2/tables.hpp)
    TileRecord* tiles;          // `live` is given, the rest is set
    RecordCounts* counts;
};

struct WriteArguments {
    UnitLattice of;
    UnitValues values;
    std::uint32_t n_units;
    const TileRecord* tiles;
    const std::uint32_t* intervals; // by table and symbol (codec/spline/unit_tables.hpp)
    // By phase - 1 and place, 128 for each phase: tables, and the magnitude up to which codes surely have symbols.
    const std::uint8_t *table_of, *reach;
    const std::uint8_t* flag_table; // by context of groups
    const std::uint64_t* end;       // where the buffer of each unit ends
    std::uint16_t* payloads;        // zeros
    UnitPlace* units;               // set: where they are
};

// Puts the payloads of a lattice one after the other, and adds up its checksum.
struct GatherArguments {
    const std::uint16_t* payloads;
    const UnitPlace* units;
    std::uint32_t n_units;
    const std::uint64_t* to; // where each unit goes
    std::uint16_t* target;
    std::uint64_t* checksum; // to be added to
};

// Values to put into the field that no tile gives.
template <class T>
struct PutArguments {
    struct Value {
        std::uint64_t at;
        typename Traits<T>::Bits bits;
    };
    const Value* values;
    std::uint32_t n;
    T* field;
};

// Bytes of shared memory that value_kernel and fixed_kernel need.
template <class T>
std::size_t value_memory_bytes(const Lattice& lattice, v2::Curve curve);
template <class T>
std::size_t fixed_memory_bytes(const Lattice& lattice);
// Max shared memory of a block on the current device.
std::size_t max_shared_bytes();

// Each launches one kernel on the stream. Throws Error(DEVICE).
template <class T>
void find_fixed_contexts(const DeviceLattice<T>& lattice, cudaStream_t stream);
void read_units(const ReadArguments& arguments, cudaStream_t stream);
template <class T>
void find_values(const DeviceLattice<T>& lattice, cudaStream_t stream);
// Adds codes to `points`, sets `live` of each tile, and counts missing values.
template <class T>
void find_codes(const DeviceLattice<T>& lattice, TileRecord* tiles, RecordCounts* counts, cudaStream_t stream);
void record_tiles(const RecordArguments& arguments, cudaStream_t stream);
void write_units(const WriteArguments& arguments, cudaStream_t stream);
void gather_units(const GatherArguments& arguments, cudaStream_t stream);
template <class T>
void put_values(const PutArguments<T>& arguments, cudaStream_t stream);

} // namespace cusz::cuda
