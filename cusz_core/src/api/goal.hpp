// Seeks the bound for a goal (CUSZ_PSNR, CUSZ_RATIO): a layer above framing.hpp, which compresses a field with several
// absolute bounds and keeps one of the archives. The search runs on the CPU, in host memory.
#pragma once

#include "archive/framing.hpp"

namespace cusz {

// Compresses a field. coding: as for write_archive, with the PSNR or ratio as eb. The target must have room for a raw
// archive. Returns the archive's size in bytes. Throws DEVICE, MEMORY, and PARAMETER if no bound gives the ratio.
std::size_t write_for_goal(const Workers& workers, const Layout& layout, const Coding& coding, const Source& field,
                           const Target& archive);

} // namespace cusz
