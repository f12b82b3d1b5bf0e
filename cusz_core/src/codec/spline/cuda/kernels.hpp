// The spline codec's kernels (kernels.cu), as the host sees them, and the data passed to them
// (docs/format_v2.md). Pointers are device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "archive/pyramid.hpp"
#include "archive/quantiser.hpp"
#include "codec/lorenzo/cuda/kernels.hpp"
#include "codec/lorenzo/sample.hpp"
#include "codec/spline/rans_model.hpp"
#include "rans_model.hpp"

namespace cusz::cuda {

// A lattice, or a box of one that is coded by itself, as kernels see it. Axes are the lattice's own.
template <class T>
struct DeviceLattice {
    std::uint32_t n_active, number; // number: in the pyramid; 0 is the field
    std::uint32_t axis[4];          // of the field, by axis of the lattice
    std::uint32_t edge[4];          // of a full tile
    std::uint64_t extent[4], count[4], n_tiles, first_tile;
    Quantiser<T> quantiser;

    // Originals, or where decoded values of lattice 0 go; and the strides between points.
    const T* original;
    T* decoded;
    std::uint64_t original_stride[4];
    // Values to predict from and magnitudes: of this lattice (null for lattice 0), and of the next coarser one.
    T* value;
    std::uint8_t* magnitude;
    std::uint64_t stride[4];
    const T* coarse_value;
    const std::uint8_t* coarse_magnitude;
    std::uint64_t coarse_stride[4];

    // The top's values as they are decoded; in it, and for patch_spline.
    const T* top;

    // The tiles at work: those of a batch, or all. For them, `original` and `decoded` point to where the first point of
    // the lattice would be.
    std::uint64_t begin, end;
    // Tickets, in the order of which blocks take up the work.
    std::uint64_t first_ticket, n_tickets;
    std::uint32_t tiles_of_ticket;
    std::uint32_t waits_for; // number of the lattice that has to be complete before, or 0
};

// What the blocks of a launch share. Zeroed beforehand.
inline constexpr std::uint32_t max_lattices = 64;
struct Progress {
    std::uint64_t ticket;
    std::uint64_t tiles_done[max_lattices]; // by lattice
};

// The work of a launch: lattices below the top.
template <class T>
struct Work {
    const DeviceLattice<T>* lattices; // all, by number
    std::uint32_t last;               // number of the coarsest one at work
    bool cubic;
    std::uint64_t n_tickets;
    Progress* progress;
    std::byte* scratch;           // of all blocks (SplinePlan)
    std::uint32_t positions;      // that a tile of any shape may take
    std::uint32_t tiles_of_block; // at once
};

template <class T>
struct SplineCountArguments {
    Work<T> work;
    Sample sample; // of the tiles of lattice 0
    SplineCounts* counts;
    // Of a large field: this many of the n_tiles tiles of lattice 0, each with what it needs of lattice 1 around it,
    // instead of both lattices; or 0.
    std::uint64_t n_boxes, n_tiles;
    std::uint32_t positions_of_box; // points of lattice 1
};

// Totals. Zeroed before the first launch.
struct SplineWritten {
    std::uint64_t units; // of all payloads, also where they exceed the capacity and are incomplete
    std::uint64_t checksum, n_special, n_unpredictable;
};

template <class T>
struct SplineWriteArguments {
    Work<T> work;
    const ChosenModel* model;
    const EncodingTables* tables;
    // Where model, top, index and payloads are to be, one after the other; index and payloads are written.
    std::byte* target;
    std::uint64_t top_bytes, index_bytes, capacity; // bytes
    std::uint64_t* states;                          // for the look-back, one per ticket, initially 0
    SplineWritten* result;
};

// What a decoder looks up: a symbol by table and slot, and its interval, first slot + frequency << 12. A table by slots
// alone would be four times as long, too long for a cache near a multiprocessor.
struct DecodingTables {
    std::uint8_t table_of[n_rows][engine_places];
    std::uint16_t significant[v2::n_group_contexts];
    std::uint32_t interval[v2::max_tables][256];
    std::uint8_t symbol_of[v2::max_tables][v2::rans_total]; // as many as the model has
};

enum class SplineError : std::uint32_t {
    none,
    header,
    header_or_length,
    too_short,
    too_many_verbatim,
    verbatim_position,
    verbatim_code,
    words
};

struct SplineRead {
    std::uint64_t checksum;
    std::uint64_t error;       // of the first bad tile: ~((number + 1) << 8 | SplineError); or 0
    std::uint64_t has_patches; // nonzero: values of coarser lattices are not finite, and not in their places yet
    std::uint64_t bad_padding; // nonzero: the unit behind the last payload is not 0
};

template <class T>
struct SplineReadArguments {
    Work<T> work;
    const DecodingTables* tables;
    const std::uint16_t* index;
    const std::uint64_t* starts; // of every 32nd tile, in units
    const DecompressResult* of_index;
    const std::uint16_t* payloads; // of a batch: where the first of all would be
    std::uint64_t n_units;         // of all, with the one that fills the last word
    std::uint64_t end;             // unit up to which they are on the device
    SplineRead* result;
    bool decodes; // or only the checksum is wanted
};

// Copies the points of a lattice, or a box, from or to memory of its own.
template <class T>
struct GatherArguments {
    const T* from;
    T* to;
    std::uint64_t extent[4], from_stride[4], to_stride[4];
};

// How a kernel is launched on the current device.
struct SplinePlan {
    std::uint32_t blocks;         // at once
    std::uint32_t tiles_of_block; // at once
    std::size_t scratch_bytes;    // of a block
};
enum class SplineKernel { count, write, read };
// n_axes: that are halved in lattice 0; positions: Work's.
template <class T>
SplinePlan plan_spline(SplineKernel kernel, std::uint32_t n_axes, std::uint32_t positions,
                       std::uint32_t positions_of_box = 0);
// Positions that a tile of any shape takes, of a lattice with these edges.
std::uint32_t positions_of_tile(const Lattice& lattice);

// Each launches one kernel with that many blocks. Throws Error(DEVICE).
template <class T>
void count_spline(const SplineCountArguments<T>& arguments, std::uint32_t n_axes, std::uint32_t blocks,
                  cudaStream_t stream);
template <class T>
void write_spline(const SplineWriteArguments<T>& arguments, std::uint32_t n_axes, std::uint32_t blocks,
                  cudaStream_t stream);
template <class T>
void read_spline(const SplineReadArguments<T>& arguments, std::uint32_t n_axes, std::uint32_t blocks,
                 cudaStream_t stream);
template <class T>
void patch_spline(const SplineReadArguments<T>& arguments, cudaStream_t stream);
template <class T>
void gather(const GatherArguments<T>& arguments, cudaStream_t stream);

} // namespace cusz::cuda
