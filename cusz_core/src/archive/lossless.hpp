// The optional lossless stage over an archive's body (paper, section 2, step 5), and over packed values: zstd, if built
// in.
#pragma once

#include <cstddef>

namespace cusz {

bool have_zstd();

// One zstd frame of `bytes` bytes into `target`. Returns its size, or 0 if it would not be smaller than `bytes`.
std::size_t zstd_pack(const void* data, std::size_t bytes, void* target, std::size_t capacity);

// The unpacked size, as the frame states it. Throws CORRUPT.
std::size_t zstd_unpacked_bytes(const void* data, std::size_t stored_bytes);

// The inverse of zstd_pack, to exactly `bytes` bytes. Throws CORRUPT.
void zstd_unpack(const void* data, std::size_t stored_bytes, void* target, std::size_t bytes);

} // namespace cusz
