// How long a field's archive would be in either codec, from a sample of its tiles, and how it is best interpolated
// (docs/format_v2.md, section 10).
#pragma once

#include <memory>
#include <vector>

#include "codec/data.hpp"
#include "codec/lorenzo/cpu/tile.hpp"
#include "codec/spline/rans_model.hpp"
#include "engine.hpp"
#include "kernels.hpp"

namespace cusz::cpu {

// What a thread works on its share of the sample in.
template <class T>
struct SampleMemory {
    SplineTile<T>& spline_tile;
    RansCounts& counts;
    Buffer& lattices;
};

// As SplineEngine::forecast. memory, lorenzo: by thread.
Forecast forecast(const Layout& layout, const Coding& coding, const BoxReader& read,
                  const std::vector<SampleMemory<float>>& memory, std::vector<std::unique_ptr<Tile<float>>>& lorenzo);
Forecast forecast(const Layout& layout, const Coding& coding, const BoxReader& read,
                  const std::vector<SampleMemory<double>>& memory, std::vector<std::unique_ptr<Tile<double>>>& lorenzo);

} // namespace cusz::cpu
