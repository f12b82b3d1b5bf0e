// Bounds relative to every value (CUSZ_PW_REL): a field's logarithms are compressed with an absolute bound, and its
// signs are kept beside them (format_v2.md, section 12). This is a layer above framing.hpp, whose archives it
// holds. Logarithms are taken where the field lies; signs, and the archive as a whole, are put together on the host.
#pragma once

#include <functional>

#include "archive/framing.hpp"
#include "archive/levels.hpp"
#include "archive/v2/frame.hpp"

namespace cusz {

// Field to archive. coding: as for write_archive, with eb relative to every value. The target must have room for a raw
// archive. Returns the archive's size in bytes. Throws DEVICE, MEMORY.
std::size_t write_pointwise(const Workers& workers, const Layout& layout, const Coding& coding, const Source& field,
                            const Target& archive);

// The archive of a frame's logarithms, parsed. Throws CORRUPT.
Frame parse_logs(const Frame& frame);

// Of a compact archive as well, which begins with this front, is the one of a frame's logarithms. Throws CORRUPT.
void require_logs(const Frame& frame, const v2::Front& inner);

// As read_archive and read_box, of archives of logarithms, too, which lie in host memory.
void read_any_archive(const Workers& workers, const Frame& frame, const Source& body, const Target& field);
void read_any_box(const Workers& workers, const Frame& frame, const Selection& box);

// A box of a level, whose values are `step` apart in the field. Of the frame's body, which may lack its end, the signs
// are looked at. read: decodes the logarithms of a box of the level, from its archive.
void read_pointwise_level(const Workers& workers, const Frame& frame, const Level& level, const Selection& box,
                          const std::function<void(const Selection&)>& read);

} // namespace cusz
