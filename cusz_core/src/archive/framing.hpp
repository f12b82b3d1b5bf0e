// Assembles archives around the bodies that backends produce, and takes them apart: headers before bodies, raw
// archives, the lossless stage (docs/reference/format.md, sections 1, 2, 8 and 9).
#pragma once

#include <span>

#include "buffer.hpp"
#include "codec/backend.hpp"

namespace cusz {

// Memory kept between calls.
struct Scratch {
    Buffer unpacked; // a body before its lossless stage
    Buffer field;    // copy of a field on a device
    Buffer inner;    // an archive that is part of another one, or only tried
    Buffer kept;     // an archive that another codec's may beat
    Buffer signs;    // for bounds relative to every value
    Buffer strided;  // decoded points, of which a level keeps some
    // For the search for a bound:
    Buffer sample, decoded;

    std::size_t bytes() const {
        std::size_t sum = 0;
        for (const Buffer* buffer : {&unpacked, &field, &inner, &kept, &signs, &strided, &sample, &decoded})
            sum += buffer->bytes();
        return sum;
    }
    void release() {
        for (Buffer* buffer : {&unpacked, &field, &inner, &kept, &signs, &strided, &sample, &decoded})
            buffer->release();
    }
};

// The backends and resources of a call.
struct Workers {
    Backend& backend; // for wherever field and archive reside
    HostBackend& cpu; // runs the lossless stage, and choose() of the codecs
    Scratch& scratch;
    int threads;
    std::optional<ValueRange>* range = nullptr; // gets the range of a compressed field, if it is found on the way
};

// Compresses a field. `coding` provides predictor, mode, r, eb, special and the requested lossless stage. The target
// must have room for a raw archive. Returns the archive's size in bytes. Throws DEVICE, MEMORY.
std::size_t write_archive(const Workers& workers, const Layout& layout, const Coding& coding, const Source& field,
                          const Target& archive);

// A field of many that are compressed together.
struct FieldToWrite {
    Layout layout;
    Source field;
    std::byte* archive;    // on the host, with room for a raw archive
    std::size_t bytes = 0; // the archive's size: the result
    ValueRange range{};    // of the field, if ranges are wanted
};

// Compresses fields on one device, aligned to their type, to the archives of write_archive, with a few launches for all
// of them. Returns false if that cannot be done. Throws DEVICE, MEMORY.
bool write_archives(const Workers& workers, const Coding& coding, bool with_ranges, std::span<FieldToWrite> fields);

// Decompresses an archive; without a field, only verifies the checksums. body: the frame's body, and where it resides.
// Throws CORRUPT, DEVICE, MEMORY, and UNSUPPORTED for a lossless stage on a device.
void read_archive(const Workers& workers, const Frame& frame, const Source& body, const Target& field);

// Copies points that are `stride` values apart along each dimension to the memory of a box. layout: type and ndim.
void copy_points(const Layout& layout, const std::byte* from, const std::array<std::uint64_t, CUSZ_MAX_NDIM>& stride,
                 const Selection& box);

// As read_archive, for a box of the field, on the host. All checksums are verified.
void read_box(const Workers& workers, const Frame& frame, const Selection& box);

} // namespace cusz
