// Headers of archives of logarithms (docs/format_v2.md, section 12).
#pragma once

#include <cstddef>
#include <cstdint>

#include "frame.hpp"

namespace cusz {

inline constexpr unsigned kind_of_logs = 2;
inline constexpr std::size_t logs_header_bytes = 112;

// Throws UNSUPPORTED: archives of that draft can no longer be read.
[[noreturn]] void fail_of_revision_1();

// Reads and validates what follows the common header, into frame. Returns the size of the body. Throws CORRUPT.
std::uint64_t read_logs_header(const void* header, Frame& frame);

// Writes the whole header.
void write_logs_header(void* archive, const Layout& layout, const Logs& logs, std::uint32_t payload_checksum);

} // namespace cusz
