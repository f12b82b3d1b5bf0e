// The stages of tiles and units, compiled once per instruction set (recording.hpp, writing.hpp, reading.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "archive/v2/frame.hpp"
#include "destination.hpp"
#include "record.hpp"
#include "tile.hpp"

namespace cusz::cpu {

// What all tiles of a field share.
template <class T>
struct PyramidCoder {
    const Pyramid& pyramid;
    std::vector<Quantiser<T>> quantiser; // by lattice
    v2::Curve curve;
    const T* end; // of the values that are coded: memory may be read up to here

    bool is_wide() const { return curve >= v2::Curve::six_points; }
    bool adds_codes() const { return curve == v2::Curve::six_points_and_codes; }
};

// A lattice's values to predict from and magnitudes, in arrays in the field's order of axes; null if they are not kept.
template <class T>
struct LatticeArrays {
    T* value = nullptr;
    std::uint8_t* magnitude = nullptr;
};

// Throws CORRUPT. Not inline, so that shared code is not compiled for one instruction set.
[[noreturn]] void corrupt_unit(const char* what);

// Calls use(i, number, j) for the tiles of a unit: the lattice, the tile's number in it and its number in the unit.
template <class Use>
void for_tiles_of(const Pyramid& pyramid, const v2::Unit& unit, const Use& use) {
    std::size_t i = pyramid.n_coded() - 1;
    for (std::uint32_t j = 0; j < unit.n_tiles; ++j) {
        const std::uint64_t tile = unit.first_tile + j;
        while (tile >= pyramid.lattices[i].first_tile + pyramid.lattices[i].n_tiles) --i;
        use(i, tile - pyramid.lattices[i].first_tile, j);
    }
}

// How many units of a lattice are decoded side by side, because a unit's codewords are a chain of dependent steps.
inline constexpr std::size_t units_at_once = 2;

// A thread's memory.
template <class T>
struct UnitMemory {
    TileForms& forms;
    std::array<SplineTile<T>, units_at_once>& tiles; // encoding uses the first
    std::array<Buffer, units_at_once>& extra;        // bits, for decoding
};

// A unit's payload to be read.
struct UnitToRead {
    const v2::Unit* unit;
    const std::uint16_t* payload; // with unit_margin readable behind it
    std::uint32_t n;              // units of length
    std::uint32_t log2_lanes;
    bool is_first;
};
// How far behind a payload decoders may read, in units of length.
inline constexpr std::size_t unit_margin = 64;

// What it takes to read the map that unit 0 begins with.
struct MapToRead {
    std::uint32_t axes, preset, rows;
};

// What interpolation along an axis leaves to be coded: sums of the logarithms of errors at `points`, in 1/2048 bits.
// `others` are points next to missing values, which are not in the sums.
struct CurveCosts {
    static constexpr std::uint64_t of_bit = 2048; // parts of a bit
    std::uint64_t linear = 0, cubic = 0, points = 0, others = 0;

    std::uint64_t least() const { return std::min(linear, cubic); }
    bool tell_enough() const { return points > 64 * others; }
    void add(const CurveCosts& of) {
        linear += of.linear;
        cubic += of.cubic;
        points += of.points;
        others += of.others;
    }
};
using CostsByAxis = std::array<CurveCosts, 4>;

template <class T>
struct SplineKernels {
    // By axis of the field, the fastest first (curve_costs.hpp).
    CostsByAxis (*curve_costs)(const T* field, const Extents& extent, T inv);
    // Predicts, quantises and records a tile of lattice i; its values to predict from and magnitudes go to `fine`.
    // Returns whether any code is not 0 or any value is missing.
    bool (*code)(const PyramidCoder<T>& coder, std::size_t i, std::uint64_t number, const T* field,
                 const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, const UnitMemory<T>& memory,
                 UnitRecord& record);
    // Makes the payload of a record, in `room`. map: of unit 0.
    UnitPayload (*write)(const UnitRecord& record, const UnitModel& model, std::span<const v2::MapSymbol> map,
                         bool is_first, UnitRoom& room);
    // Decodes one unit, or units_at_once of a lattice, to `arrays` or, where they are null, to `destination`. map: of
    // unit 0, if it has one; it sets the model. Throws CORRUPT.
    void (*read)(const PyramidCoder<T>& coder, std::span<const UnitToRead> units, const LatticeArrays<T>* arrays,
                 const Destination<T>& destination, const UnitMemory<T>& memory, UnitModel& model, const MapToRead* map,
                 std::vector<Patch>& patches);
};

} // namespace cusz::cpu
