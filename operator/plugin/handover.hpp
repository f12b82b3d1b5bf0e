// The write-side hand-over of cusz_operator.h, as seen by the plugin.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cusz_operator {

enum class HandOver {
    none,    // the address is not a key: the block is to be compressed as usual
    taken,   // the archive was copied
    refused, // the key is for another block
    late,    // the address is a key whose archive was used or withdrawn
};

// The size of the largest archive whose Put does not yet have the extents of the block: ADIOS2 must reserve room for
// it. Notes that ADIOS2 has asked: an archive for which it never does is refused.
std::size_t bytes_for_posted() noexcept;

// Copies out the archive posted under the key `address`, if it is for this block. `variable` may be "" if unknown;
// `type` is as in cusz_operator.h.
HandOver take_posted(const void* address, const char* variable, std::int32_t type, const std::size_t* count,
                     std::size_t ndim, char* out, std::size_t* archive_bytes) noexcept;

} // namespace cusz_operator
