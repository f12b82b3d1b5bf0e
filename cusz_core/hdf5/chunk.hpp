// What the filter knows about a chunk, and how it is kept in the filter's cd_values, which HDF5 stores with the dataset
// (docs/guides/hdf5.md has the table).
#pragma once

#include <cusz/cusz.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cusz_hdf5 {

constexpr unsigned layout_version = 1;
constexpr std::size_t n_required = 3; // values that a user must give: the version, and two for the bound
constexpr std::size_t n_of_user = 5;  // values that a user may give, or n_values, of which type and extents are ignored
constexpr std::size_t n_values = 13;  // with those that the filter adds for a dataset

using Values = std::array<unsigned, n_values>;

// Extents as the compressor takes them.
struct Shape {
    std::int32_t ndim = 0;
    std::array<std::uint64_t, CUSZ_MAX_NDIM> extents{};
    bool operator==(const Shape&) const = default;
};

// The extents of the same values in the same order, with at most four axes: axes of one value are dropped, and if more
// than four remain, the first ones are merged.
Shape folded(std::span<const std::uint64_t> extents);

struct Chunk {
    cusz_params params;
    cusz_dtype dtype;
    Shape shape;
    std::size_t bytes; // of its values
};

// The parameters that a user gave, or another dataset has. Throws std::runtime_error.
cusz_params params_of(std::span<const unsigned> values);

// All cd_values. params: with the dataset's fill value.
Values packed(const cusz_params& params, cusz_dtype dtype, const Shape& shape);

// The reverse. Throws std::runtime_error.
Chunk unpacked(std::span<const unsigned> values);

} // namespace cusz_hdf5
