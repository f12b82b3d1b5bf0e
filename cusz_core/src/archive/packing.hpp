// Packed blocks: values stored exactly, behind a head of 8 bytes, as they are or as a zstd frame (format.md,
// section 11).
#pragma once

#include <cstddef>
#include <cstdint>

#include "framing.hpp"

namespace cusz {

// Whether a block begins like a packed one.
bool is_packed(const std::byte* block, std::size_t block_bytes);

// Writes `bytes` bytes of values of 1, 2, 4 or 8 bytes, behind a head of CUSZ_PACKED_OVERHEAD_BYTES, with the lossless
// stage if that makes them smaller. Returns the block's size. The block lies in host memory.
std::size_t pack_values(const Workers& workers, cusz_lossless lossless, std::size_t value_bytes, const Source& values,
                        std::size_t bytes, std::byte* block);

// Verifies a packed block's checksum, and returns the size of its values. Throws CORRUPT, UNSUPPORTED.
std::size_t verified_bytes(const Workers& workers, const std::byte* block, std::size_t block_bytes);

// Writes the values of a verified block, `bytes` bytes. Throws CORRUPT, UNSUPPORTED.
void unpack_values(const Workers& workers, const std::byte* block, std::size_t block_bytes, const Target& values,
                   std::size_t bytes);

} // namespace cusz
