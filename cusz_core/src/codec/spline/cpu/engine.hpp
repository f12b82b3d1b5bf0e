// The spline pipeline's schedule on the CPU: lattices one after another, the tiles of each distributed over threads.
// The bytes do not depend on the number of threads.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "archive/pyramid.hpp"
#include "codec/backend.hpp"
#include "codec/lorenzo/cpu/tile.hpp"
#include "kernels.hpp"

namespace cusz::cpu {

class SplineEngine {
public:
    virtual ~SplineEngine() = default;

    // As HostBackend::compress_pyramid and decompress_pyramid.
    virtual std::optional<Encoded> compress(const Layout& layout, const Coding& coding, const Pyramid& pyramid,
                                            const Top& top, const void* field, int threads, std::byte* target,
                                            std::uint64_t capacity) = 0;
    virtual void decompress(const Frame& frame, const Pyramid& pyramid, const Top& top, const std::byte* body,
                            int threads, const Selection& box) = 0;
    // As HostBackend::forecast_by_boxes. tiles: memory, of each thread.
    virtual Forecast forecast(const Layout& layout, const Coding& coding, const BoxReader& read,
                              const std::vector<Tile<float>*>& tiles) = 0;
    virtual Forecast forecast(const Layout& layout, const Coding& coding, const BoxReader& read,
                              const std::vector<Tile<double>*>& tiles) = 0;
    virtual std::size_t scratch_bytes() const = 0;
};

// What the tiles of a pyramid share; coding: with bound, step and spline settled. end: behind the values of the field,
// where there are any.
template <class T>
SplineCoder<T> coder_of(const Pyramid& pyramid, const Coding& coding, const T* end = nullptr) {
    SplineCoder<T> coder{pyramid, {}, coding.spline.cubic, end};
    for (std::size_t i = 0; i < pyramid.lattices.size(); ++i) {
        coder.quantiser.push_back(quantiser_of(static_cast<T>(coding.step / 2), coding.spline.divisor(i)));
        coder.quantiser[i].special = static_cast<typename Traits<T>::Bits>(coding.special);
    }
    return coder;
}

std::unique_ptr<SplineEngine> make_spline_engine();

} // namespace cusz::cpu
