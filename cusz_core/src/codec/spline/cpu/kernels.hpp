// The spline codec's stages of one tile, compiled once per instruction set (pipeline.hpp,
// reading.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "archive/pyramid.hpp"
#include "codec/lorenzo/cpu/tile.hpp"
#include "rans_tables.hpp"
#include "tile.hpp"

namespace cusz::cpu {

// What all tiles of a field share.
template <class T>
struct SplineCoder {
    const Pyramid& pyramid;
    std::vector<Quantiser<T>> quantiser; // by lattice, the top included
    bool cubic;
    const T* end; // behind the last of the values that are coded: memory may be read up to there
};

// A lattice's values to predict from and magnitudes, in arrays in the field's order of axes; null for lattice 0.
// before: values that would lie before the first one, if the lattice were there from its beginning (modulo 2^64).
template <class T>
struct LatticeArrays {
    T* value = nullptr;
    std::uint8_t* magnitude = nullptr;
    std::size_t before = 0;
};

// A value, not finite and not special, of a coarser lattice: it is put in its place when all is decoded.
struct Patch {
    Extents at; // in the field, by its axes
    std::uint64_t bits;
};

// Where decoded values of lattice 0 go, by that lattice's axes: a box of the field.
template <class T>
struct Destination {
    T* field = nullptr;
    Extents start{}, count{}, stride{};
};

// The longest payload, in units: tile header, counts, verbatim values and their positions, extra bits, states, words;
// or raw values.
template <class T>
inline constexpr std::size_t longest_spline_payload =
    4 + (1 + sizeof(T) / 2) * max_tile_values + 2 * max_tile_values + 2 * v2::max_lanes + 2 * max_tile_values;
// Units that a decoder may read beyond the end of a payload.
inline constexpr std::size_t spline_margin_units = 64;

// A tile's payload.
struct SplinePayload {
    std::uint64_t tile = 0; // its number in its lattice
    const std::uint16_t* units = nullptr;
    std::uint32_t n = 0;
};
// Tiles that are coded, or decoded, side by side, since each one's codewords are a chain of dependent steps.
inline constexpr std::uint32_t tiles_at_once = 8;
inline constexpr std::uint32_t max_tiles_written = 64; // at once, if few of them have entries
template <class T>
using SplineTiles = std::array<std::unique_ptr<SplineTile<T>>, tiles_at_once>;

// A tile with entries whose payload is being written.
template <class T>
struct SplineOutput {
    std::uint64_t tile;
    std::uint32_t n_values, n_significant, n_verbatim, n_special; // n_significant: in groups that are
    RansSequence sequence;
    std::uint32_t n_front; // units at the beginning of `room`, before states and words
    std::uint16_t room[longest_spline_payload<T>];
};

template <class T>
struct SplineKernels {
    // Predicts and quantises a tile of lattice i, and counts its symbols; its values to predict from and magnitudes go
    // to `fine`.
    void (*count)(const SplineCoder<T>& coder, std::size_t i, const LatticeTile& place, const T* field,
                  const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, SplineTile<T>& tile,
                  RansCounts& counts);
    // The same of up to n tiles from number `first` on, without counting, until as many have entries as are
    // encoded at once; and writes their payloads, into `outputs` (tiles_at_once of them). Returns how many tiles that
    // were.
    std::uint32_t (*write)(const SplineCoder<T>& coder, std::size_t i, std::uint64_t first, std::uint32_t n,
                           const T* field, const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine,
                           SplineTile<T>& tile, const RansWriting& writing, SplineOutput<T>* outputs,
                           SplinePayload* payloads, Counts& counts);
    // Decodes up to tiles_at_once payloads, to `fine` or, for lattice 0, to `destination`. Throws CORRUPT.
    void (*read)(const SplineCoder<T>& coder, std::size_t i, const SplinePayload* payloads, std::uint32_t n_payloads,
                 const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, const Destination<T>& destination,
                 const SplineTiles<T>& tiles, const RansReading& reading, std::vector<Patch>& patches);
};

} // namespace cusz::cpu
