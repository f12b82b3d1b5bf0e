// Levels of archives, from their first bytes where the codec allows it (cusz.h). A layer above framing.hpp and
// pointwise.hpp, as archives without levels are decoded and strided.
#pragma once

#include "archive/framing.hpp"
#include "archive/levels.hpp"

namespace cusz {

// What cusz_level says, and the archive's type.
struct LevelOfArchive {
    Layout layout;
    std::size_t n_levels;
    Level level;
    bool is_exact;
    std::size_t needed_bytes;
    std::uint32_t checksum; // as the archive says
};

// The number of a level of a field. Throws PARAMETER if there is no such level.
std::size_t checked_level(const Layout& layout, std::int32_t level);

// Throws PARAMETER if there is no such level, CORRUPT, TOO_NEW, UNSUPPORTED.
LevelOfArchive inspect_level(const Prefix& prefix, std::int32_t level);

// A box of a level, in host memory; without a field, only checksums are verified. Throws PARAMETER if the prefix is too
// short, CORRUPT, TOO_NEW, UNSUPPORTED, MEMORY.
void read_level(const Workers& workers, const Prefix& prefix, std::int32_t level, const Selection& box);

} // namespace cusz
