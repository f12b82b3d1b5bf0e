// Archives, put together and taken apart around what the backends do: headers in front of bodies, raw archives, the
// lossless stage (docs/format.md, sections 1, 2, 8 and 9).
#pragma once

#include "backend.hpp"

namespace cusz {

// Who does the work of a call.
struct Workers {
    Backend& backend; // for where field and archive lie
    HostBackend& cpu; // the lossless stage is the CPU's
    Buffer& unpacked; // a body without its lossless stage
    int threads;
};

// Field to archive, of which `coding` brings mode, r, eb, special and the lossless stage that is wanted. There is room
// for a raw archive. Returns the archive's bytes. Throws DEVICE, MEMORY.
std::size_t write_archive(const Workers& workers, const Layout& layout, const Coding& coding, const Source& field,
                          const Target& archive);

// Archive to field; without a field the checksums are verified only. body: of the frame, with the place it lies in.
// Throws CORRUPT, DEVICE, MEMORY, and UNSUPPORTED for a lossless stage on a device.
void read_archive(const Workers& workers, const Frame& frame, const Source& body, const Target& field);

// The same for a box of the field, on the host. All checksums are verified.
void read_box(const Workers& workers, const Frame& frame, const Selection& box);

} // namespace cusz
