// The spline codec on the CPU: lattices one after another, the tiles of each distributed over threads. The bytes do not
// depend on the number of threads.
#pragma once

#include <cstdint>

#include "archive/pyramid.hpp"
#include "codec/codec.hpp"
#include "kernels.hpp"

namespace cusz::cpu {

// Estimated lengths of archives, and the best way found to interpolate.
struct Forecast {
    Spline spline;
    std::uint64_t spline_bytes = 0, lorenzo_bytes = 0;

    // The spline codec takes longer: it has to save a twentieth of the bytes.
    bool spline_pays() const { return spline_bytes <= lorenzo_bytes / 20 * 19; }
};

class SplineEngine : public HostEngine {
public:
    // What a sample of the field says of both codecs' archives, and of how to interpolate. coding: with bound and step
    // settled; with predictor auto, it ends early where the spline codec is far from paying.
    virtual Forecast forecast(const Layout& layout, const Coding& coding, const BoxReader& read, int threads) = 0;
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

} // namespace cusz::cpu
