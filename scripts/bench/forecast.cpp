// What predictor auto expects of a field (docs/format_v2.md, section 11), for choice.py, which loads this with ctypes.
#include <cusz/cusz.h>

#include "api/float_mode.hpp"
#include "archive/alphabet.hpp"
#include "codec/backend.hpp"
#include "codec/spline/codec.hpp"
#include "codec/spline/cpu/engine.hpp"

// bytes: of the archives of "lorenzo" and "spline", by the sample. 0 where there is no choice. Of a field and an
// absolute bound that cusz_compress has taken: it checks nothing.
extern "C" CUSZ_API void cusz_forecast(cusz_dtype dtype, std::int32_t ndim, const std::uint64_t* shape,
                                       const void* field, double eb, int has_fill, double fill, std::uint64_t* bytes) {
    using namespace cusz;
    const FloatMode mode;
    const Layout layout(dtype, ndim, shape);
    Coding coding;
    coding.predictor = CUSZ_PREDICTOR_AUTO;
    coding.r = default_r;
    coding.eb = eb;
    coding.has_fill = has_fill != 0;
    coding.special = dtype == CUSZ_F32 ? special_pattern<float>(coding.has_fill, fill)
                                       : special_pattern<double>(coding.has_fill, fill);
    const auto backend = make_cpu_backend();
    resolve_bound(*backend, layout, coding, {field}, 1);
    const bool has_choice = eb > 0 && coding.step != 0 && layout.values > 0 && spline::can_code(layout);
    auto& engine = dynamic_cast<cpu::SplineEngine&>(backend->engine(*codecs_for(CUSZ_PREDICTOR_SPLINE).front()));
    const auto read = [&](std::vector<TileBox>&) { return HostValues{field, layout.values}; };
    const cpu::Forecast forecast = has_choice ? engine.forecast(layout, coding, read, 1) : cpu::Forecast();
    bytes[0] = forecast.lorenzo_bytes;
    bytes[1] = forecast.spline_bytes;
}
