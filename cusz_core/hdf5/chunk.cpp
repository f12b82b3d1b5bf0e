#include "chunk.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>

namespace cusz_hdf5 {
namespace {

// Positions in the values.
enum At : std::size_t {
    version = 0,
    eb = 1,
    mode = 3,
    predictor = 4,
    dtype = 5,
    extents = 6,
    has_fill = 10,
    fill = 11
};

double real_at(std::span<const unsigned> values, std::size_t at) {
    return std::bit_cast<double>(std::uint64_t{values[at]} << 32 | values[at + 1]);
}

void set_real(Values& values, std::size_t at, double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    values[at] = static_cast<unsigned>(bits >> 32);
    values[at + 1] = static_cast<unsigned>(bits);
}

} // namespace

Shape folded(std::span<const std::uint64_t> extents) {
    std::vector<std::uint64_t> long_ones;
    std::copy_if(extents.begin(), extents.end(), std::back_inserter(long_ones), [](std::uint64_t n) { return n != 1; });
    if (long_ones.empty()) long_ones.push_back(1);
    while (long_ones.size() > CUSZ_MAX_NDIM) {
        long_ones[1] *= long_ones[0];
        long_ones.erase(long_ones.begin());
    }
    Shape shape;
    shape.ndim = static_cast<std::int32_t>(long_ones.size());
    std::copy(long_ones.begin(), long_ones.end(), shape.extents.begin());
    return shape;
}

cusz_params params_of(std::span<const unsigned> values) {
    if (values.size() < n_required || (values.size() > n_of_user && values.size() != n_values)) {
        throw std::runtime_error(
            "the filter has " + std::to_string(values.size()) +
            " parameters; legal: 3 to 5 (1, the bound's upper and lower 32 bits, mode, predictor), or " +
            std::to_string(n_values) + " with a fill value");
    }
    if (values[At::version] != layout_version) {
        throw std::runtime_error("the filter's first parameter is " + std::to_string(values[At::version]) +
                                 "; this version, " + cusz_version() + ", knows 1: use a newer release");
    }
    cusz_params params;
    cusz_params_init(&params);
    params.eb = real_at(values, At::eb);
    params.backend = CUSZ_BACKEND_CPU; // HDF5's buffers are in host memory
    if (values.size() > At::mode) params.mode = static_cast<std::int32_t>(values[At::mode]);
    if (values.size() > At::predictor) params.predictor = static_cast<std::int32_t>(values[At::predictor]);
    if (params.mode < CUSZ_ABS || params.mode > CUSZ_PW_REL) {
        throw std::runtime_error("mode is " + std::to_string(values[At::mode]) +
                                 "; legal: 0 (abs), 1 (rel), 2 (pw_rel)");
    }
    if (values.size() == n_values) {
        params.has_fill = static_cast<std::int32_t>(values[At::has_fill]);
        params.fill = real_at(values, At::fill);
    }
    return params;
}

Values packed(const cusz_params& params, cusz_dtype dtype, const Shape& shape) {
    Values values{};
    values[At::version] = layout_version;
    set_real(values, At::eb, params.eb);
    values[At::mode] = static_cast<unsigned>(params.mode);
    values[At::predictor] = static_cast<unsigned>(params.predictor);
    values[At::dtype] = static_cast<unsigned>(dtype);
    for (std::size_t axis = 0; axis < shape.extents.size(); ++axis) {
        if (shape.extents[axis] > std::numeric_limits<unsigned>::max())
            throw std::runtime_error("an extent of the chunk is above 2^32 - 1 values; choose smaller chunks");
        values[At::extents + axis] = static_cast<unsigned>(shape.extents[axis]);
    }
    values[At::has_fill] = static_cast<unsigned>(params.has_fill);
    set_real(values, At::fill, params.fill);
    return values;
}

Chunk unpacked(std::span<const unsigned> values) {
    Chunk chunk{params_of(values), CUSZ_F32, {}, 0};
    if (values.size() != n_values)
        throw std::runtime_error("the dataset was created without this filter, so nothing is known of its chunks");
    chunk.dtype = static_cast<cusz_dtype>(values[At::dtype]);
    for (std::size_t axis = 0; axis < chunk.shape.extents.size() && values[At::extents + axis] != 0; ++axis) {
        chunk.shape.extents[axis] = values[At::extents + axis];
        chunk.shape.ndim = static_cast<std::int32_t>(axis + 1);
    }
    if (cusz_max_archive_bytes(chunk.dtype, chunk.shape.ndim, chunk.shape.extents.data(), &chunk.bytes) != CUSZ_OK)
        throw std::runtime_error("the filter's parameters describe no chunk");
    chunk.bytes -= CUSZ_RAW_OVERHEAD_BYTES;
    return chunk;
}

} // namespace cusz_hdf5
