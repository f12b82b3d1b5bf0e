// Version 2 of the format, not frozen yet: the header of an archive of the spline pipeline (docs/format_v2.md, section
// 1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "frame.hpp"

namespace cusz::v2 {

// Readers know one draft and refuse the others.
inline constexpr std::uint32_t draft = 1;

inline constexpr std::size_t header_bytes = 128; // without the model

// Throws UNSUPPORTED or TOO_NEW if the header is of another draft.
void check_draft(const void* header);

// Bytes before the body of a given archive, of whose header the first header_bytes are readable (throws CORRUPT, and
// UNSUPPORTED or TOO_NEW for other drafts).
std::size_t body_offset(const void* header);

// Reads and validates what follows the common header, into frame. Throws CORRUPT.
void read_header(const void* header, Frame& frame);

// Writes common header and coding header; the model follows it already.
void write_header(void* archive, const Layout& layout, const Coding& coding, std::size_t model_bytes,
                  std::uint32_t payload_checksum);

// Archives of logarithms (section 12).
inline constexpr unsigned kind_of_logs = 2;
inline constexpr std::size_t logs_header_bytes = 112;

// Reads and validates what follows the common header, into frame. Returns the size of the body. Throws CORRUPT.
std::uint64_t read_logs_header(const void* header, Frame& frame);

// Writes the whole header.
void write_logs_header(void* archive, const Layout& layout, const Logs& logs, std::uint32_t payload_checksum);

} // namespace cusz::v2
