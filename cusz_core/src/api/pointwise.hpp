// Bounds relative to every value (CUSZ_PW_REL): a field's logarithms are compressed with an absolute bound, and its
// signs are stored beside them (format_v2.md, section 12). This is a layer above framing.hpp, whose archives it
// contains. Logarithms are computed where the field resides; signs and the whole archive are assembled on the host.
#pragma once

#include <functional>

#include "archive/framing.hpp"
#include "archive/levels.hpp"
#include "archive/v2/frame.hpp"

namespace cusz {

// Compresses a field. coding: as for write_archive, with eb relative to every value. The target must have room for a
// raw archive. Returns the archive's size in bytes. Throws DEVICE, MEMORY.
std::size_t write_pointwise(const Workers& workers, const Layout& layout, const Coding& coding, const Source& field,
                            const Target& archive);

// The archive of a frame's logarithms, parsed. Throws CORRUPT.
Frame parse_logs(const Frame& frame);

// Requires that a compact archive that begins with `inner` is the one of the frame's logarithms. Throws CORRUPT.
void require_logs(const Frame& frame, const v2::Front& inner);

// As read_archive and read_box, also for archives of logarithms, which must be in host memory.
void read_any_archive(const Workers& workers, const Frame& frame, const Source& body, const Target& field);
void read_any_box(const Workers& workers, const Frame& frame, const Selection& box);

// Decodes a box of a level, whose values are level.step apart in the field. Reads only the signs of the frame's body,
// which may lack its end. read: decodes the logarithms of a box of the level from their archive.
void read_pointwise_level(const Workers& workers, const Frame& frame, const Level& level, const Selection& box,
                          const std::function<void(const Selection&)>& read);

} // namespace cusz
