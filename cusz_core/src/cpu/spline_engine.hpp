// The spline pipeline's schedule on the CPU: lattices one after another, the tiles of each distributed over threads.
// The bytes do not depend on the number of threads.
#pragma once

#include <memory>
#include <optional>

#include "../backend.hpp"
#include "../format/pyramid.hpp"

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
    virtual std::size_t scratch_bytes() const = 0;
};

std::unique_ptr<SplineEngine> make_spline_engine();

} // namespace cusz::cpu
