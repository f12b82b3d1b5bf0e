// The spline codec: interpolation over a pyramid of lattices, contexts, rANS coding (docs/reference/format_v2.md).
#pragma once

#include "archive/v2/frame.hpp"
#include "codec/codec.hpp"

namespace cusz::spline {

TileGrid tiles(const Layout& layout, const Coding& coding);
// The frame of a field's archive, except the bound in force, the flag for axes and the counters.
v2::Front front_of(const Layout& layout, const Coding& coding, v2::Kind kind);

std::unique_ptr<HostEngine> on_cpu(HostBackend& backend);
std::unique_ptr<Engine> on_device(cuda::Queue& queue, HostBackend& cpu);

} // namespace cusz::spline
