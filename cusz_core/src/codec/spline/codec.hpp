// The spline codec: interpolation over a pyramid of lattices, contexts, rANS coding (docs/format_v2.md).
#pragma once

#include "codec/codec.hpp"

namespace cusz::spline {

bool can_code(const Layout& layout);
TileGrid tiles(const Layout& layout, const Coding& coding);
std::unique_ptr<HostEngine> on_cpu(HostBackend& backend);
// Compact archives (format version 2, revision 2).
bool can_code_compact(const Layout& layout);
TileGrid compact_tiles(const Layout& layout, const Coding& coding);
std::unique_ptr<HostEngine> compact_on_cpu(HostBackend& backend);
std::unique_ptr<Engine> on_device(cuda::Queue& queue, HostBackend& cpu);

} // namespace cusz::spline
