// Levels of archives, from their first bytes where the codec allows it (cusz.h). A layer above framing.hpp and
// pointwise.hpp, because archives without levels are decoded as a whole and strided.
#pragma once

#include "archive/framing.hpp"
#include "archive/levels.hpp"

namespace cusz {

// The contents of cusz_level, and the archive's type.
struct LevelOfArchive {
    Layout layout;
    std::size_t n_levels;
    Level level;
    bool is_exact;
    std::size_t needed_bytes;
    std::uint32_t checksum; // as stored in the archive
};

// The level, checked. Throws PARAMETER if there is no such level.
std::size_t checked_level(const Layout& layout, std::int32_t level);

// Throws PARAMETER if there is no such level, CORRUPT, TOO_NEW, UNSUPPORTED.
LevelOfArchive inspect_level(const Prefix& prefix, std::int32_t level);

// Decodes a box of a level, in host memory; without a field, only verifies checksums. Throws PARAMETER if the prefix is
// too short, CORRUPT, TOO_NEW, UNSUPPORTED, MEMORY.
void read_level(const Workers& workers, const Prefix& prefix, std::int32_t level, const Selection& box);

} // namespace cusz
