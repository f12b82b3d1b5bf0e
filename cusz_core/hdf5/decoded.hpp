// Notices chunks that are compressed again after they were decompressed, as HDF5 does to write a part of one. Except with
// absolute bounds and the Lorenzo codec, errors add up then, which nothing else would tell.
#pragma once

#include <cstddef>
#include <span>

namespace cusz_hdf5 {

// Remembers a few values of a chunk that was decompressed; of the last few hundred chunks, by any thread.
void remember_decoded(std::span<const std::byte> chunk);

// Whether values of such a chunk are at the same places here. Constant stretches do not count, so that this does not find
// all that it could, but hardly anything else.
bool was_decoded(std::span<const std::byte> chunk);

} // namespace cusz_hdf5
