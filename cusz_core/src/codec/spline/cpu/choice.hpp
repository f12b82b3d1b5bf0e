// How long a field's archive would be in either codec, from a sample of its tiles, and how it is best interpolated
// (docs/format_v2.md, section 10).
#pragma once

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
    Tile<T>& tile;
    SplineTile<T>& spline_tile;
    RansCounts& counts;
    Buffer& lattices;
};

// As SplineEngine::forecast. memory: by thread.
Forecast forecast(const Layout& layout, const Coding& coding, const BoxReader& read,
                  const std::vector<SampleMemory<float>>& memory);
Forecast forecast(const Layout& layout, const Coding& coding, const BoxReader& read,
                  const std::vector<SampleMemory<double>>& memory);

} // namespace cusz::cpu
