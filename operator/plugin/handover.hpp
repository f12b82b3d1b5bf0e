// The write-side hand-over of cusz_operator.h, from the plugin's side.
#pragma once

#include <cusz/cusz.h>

#include <cstddef>
#include <cstdint>

namespace cusz_operator {

enum class HandOver {
    none,    // the address is no token: the block is to be compressed as usual
    taken,   // the archive was copied
    refused, // the token is for another block
    late,    // the address is a token that does not wait any more
};

// Room that ADIOS2 needs where the extents that it asks with are not yet those of the block: the largest archive that
// waits so. One for which this was not asked is refused.
std::size_t bytes_for_offers() noexcept;

// Gives out the archive that waits under the token `address`, for this block. `variable` may be "": not known.
HandOver take_offer(const void* address, const char* variable, cusz_dtype dtype, const std::size_t* count,
                    std::size_t ndim, char* out, std::size_t* archive_bytes) noexcept;

} // namespace cusz_operator
