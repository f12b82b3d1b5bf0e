// The top of a pyramid: an archive of its own, by the Lorenzo codec, at the start of the body (docs/format_v2.md,
// section 4).
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "archive/framing.hpp"
#include "archive/pyramid.hpp"

namespace cusz::spline {

// Its section of the body, and its values, in the field's order of axes.
struct Top {
    std::vector<std::byte> section;
    const void* values = nullptr;
};

// What tops are coded with.
class TopCoder {
public:
    explicit TopCoder(HostBackend& cpu) : cpu_(cpu) {}

    // gather: copies the top's points out of the field, to the host. The result is valid until the next call, as is
    // that of read.
    Top write(const Layout& layout, const Coding& coding, const Pyramid& pyramid,
              const std::function<void(void* values)>& gather);

    // Reads the section at the start of a body. copy: copies from the body's beginning on to the host. Throws CORRUPT.
    Top read(const Frame& frame, const Pyramid& pyramid,
             const std::function<void(void* to, std::size_t from, std::size_t bytes)>& copy);

    std::size_t bytes() const { return values_.bytes() + scratch_.bytes(); }
    void release() {
        values_.release();
        scratch_.release();
    }

private:
    HostBackend& cpu_;
    Buffer values_;
    Scratch scratch_;
};

} // namespace cusz::spline
