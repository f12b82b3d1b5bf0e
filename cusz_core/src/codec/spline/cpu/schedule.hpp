// The order in which the tiles of a pyramid are worked on, so that no more than about a quarter of a field's memory is
// taken by its coarser lattices.
//
// Values and magnitudes of the coarser lattices are kept whole, and their tiles are worked on lattice by lattice. Of
// finer ones a strip is kept, across one axis of the field: some rows of tiles of the coarsest of them are worked on,
// then the rows of tiles of the next finer lattice whose surroundings are known by then, and so on to the field. What
// is still needed of a strip moves to its beginning, so nothing is worked out twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "archive/pyramid.hpp"

namespace cusz::cpu {

// The arrays of coarser lattices should not take more than this part of the field, but may take so many bytes.
inline constexpr std::uint64_t largest_part_of_field = 4; // 1/4
inline constexpr std::uint64_t min_bytes_of_arrays = 1 << 18;

// Rows of tiles of a lattice that are worked on in one go, rows being numbered along the axis of the strips.
struct Stage {
    std::size_t lattice = 0;
    std::uint64_t first = 0, end = 0;
    // Of the lattice's positions along the axis: the first that later stages, and this one, look at or write to, and
    // the end of those that are known after it.
    std::uint64_t needed = 0, known = 0;
};

// Tiles of a lattice with consecutive numbers. run: of those whose numbers go on from stage to stage, the first one's
// number in the archive.
struct TileRange {
    std::uint64_t begin = 0, end = 0, run = 0;
};

class Schedule {
public:
    Schedule(const Pyramid& of, std::size_t bytes_of_value, int threads);

    // With the strides of the arrays there are: in the field's order of axes, which for a strip has as many positions
    // along its axis as the strip is wide.
    const Pyramid& pyramid() const { return pyramid_; }
    // Of lattices from 1 on.
    bool is_whole(std::size_t i) const { return i >= first_whole_; }
    // Values in a lattice's array.
    std::uint64_t values(std::size_t i) const;
    // By lattice from 1 on, where its array begins in the memory of all of them, in values; and where this ends.
    std::vector<std::uint64_t> places() const;

    // sampled: without lattices 0 and 1, of which tiles of lattice 0 are counted with what is around them in lattice 1:
    // stages of lattice 0 say for which of them lattice 2 is known.
    std::vector<Stage> stages(bool sampled) const;
    // A stage's tiles, cut into parts for threads.
    std::vector<TileRange> ranges(const Stage& stage, int threads) const;
    // The row of a tile.
    std::uint64_t row(std::size_t i, std::uint64_t tile) const;

    // A strip: values between positions along the axis, and how often these positions begin anew in memory, `apart`
    // values from each other.
    struct Strip {
        std::uint64_t step, parts, apart;
    };
    Strip strip(std::size_t i) const;
    std::uint64_t width(std::size_t i) const { return width_[i]; } // positions
    // The first position of a row.
    std::uint64_t position(std::size_t i, std::uint64_t row) const;

private:
    std::size_t axis_in(std::size_t i) const; // that of the strips, as the lattice numbers it
    std::uint64_t rows(std::size_t i) const { return pyramid_.lattices[i].count[axis_in(i)]; }
    std::uint64_t bytes_of_whole(std::size_t first_whole) const;
    void choose_strips(std::uint64_t max_bytes, int threads);
    void make_strides();

    Pyramid pyramid_;
    std::size_t bytes_of_point_; // value and magnitude
    std::size_t first_whole_ = 1;
    std::uint32_t axis_ = 0; // of the field
    std::uint64_t rows_at_once_ = 1;
    std::vector<std::uint64_t> width_; // by lattice; of whole ones their extent
};

} // namespace cusz::cpu
