// Version 2 of the format, frozen: the headers of archives of the spline pipeline and of logarithms (docs/format_v2.md,
// sections 1 and 12).
#pragma once

#include <cstddef>
#include <cstdint>

#include "frame.hpp"

namespace cusz::v2 {

inline constexpr std::size_t header_bytes = 128; // without the model

// Bytes before the body of a given archive, of whose header the first header_bytes are readable (throws CORRUPT).
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
