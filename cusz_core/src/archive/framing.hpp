// Assembles archives around the bodies that backends produce, and takes them apart: headers before bodies, raw
// archives, the lossless stage (docs/reference/format.md, sections 1, 2, 8 and 9).
#pragma once

#include "buffer.hpp"
#include "codec/backend.hpp"

namespace cusz {

// Memory kept between calls.
struct Scratch {
    Buffer unpacked; // a body before its lossless stage
    Buffer field;    // one that lies on a device
    Buffer inner;    // an archive that is part of another one, or only tried
    Buffer signs;    // of bounds relative to every value
    Buffer strided;  // points of which a level has some
    // Of bounds sought for a goal:
    Buffer sample, decoded;

    std::size_t bytes() const {
        std::size_t sum = 0;
        for (const Buffer* buffer : {&unpacked, &field, &inner, &signs, &strided, &sample, &decoded})
            sum += buffer->bytes();
        return sum;
    }
    void release() {
        for (Buffer* buffer : {&unpacked, &field, &inner, &signs, &strided, &sample, &decoded}) buffer->release();
    }
};

// What does the work of a call.
struct Workers {
    Backend& backend; // for wherever field and archive reside
    HostBackend& cpu; // runs the lossless stage, and chooses for codecs
    Scratch& scratch;
    int threads;
    std::optional<ValueRange>* range = nullptr; // gets that of a field which is compressed, if it is found on the way
};

// Field to archive; `coding` provides predictor, mode, r, eb, special and the requested lossless stage. The target must
// have room for a raw archive. Returns the archive's size in bytes. Throws DEVICE, MEMORY.
std::size_t write_archive(const Workers& workers, const Layout& layout, const Coding& coding, const Source& field,
                          const Target& archive);

// Archive to field; without a field, only the checksums are verified. body: the frame's body, and where it resides.
// Throws CORRUPT, DEVICE, MEMORY, and UNSUPPORTED for a lossless stage on a device.
void read_archive(const Workers& workers, const Frame& frame, const Source& body, const Target& field);

// Copies points that lie so many values apart along each dimension to where a box goes. layout: their type and dimensions.
void copy_points(const Layout& layout, const std::byte* from, const std::array<std::uint64_t, CUSZ_MAX_NDIM>& stride,
                 const Selection& box);

// As read_archive, for a box of the field, on the host. All checksums are verified.
void read_box(const Workers& workers, const Frame& frame, const Selection& box);

} // namespace cusz
