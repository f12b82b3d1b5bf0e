// The Lorenzo codec: dual quantisation, Lorenzo prediction, significance masks, Huffman coding (format.md).
#pragma once

#include "codec/codec.hpp"

namespace cusz::lorenzo {

TileGrid tiles(const Layout& layout, const Coding& coding);
std::unique_ptr<HostEngine> on_cpu(HostBackend& backend);
std::unique_ptr<Engine> on_device(cuda::Queue& queue, HostBackend& cpu);

} // namespace cusz::lorenzo
