// Version 2 of the format, frozen: the headers of archives of the spline pipeline and of logarithms (docs/format_v2.md,
// sections 1 and 12).
#pragma once

#include <cstddef>
#include <cstdint>

#include "frame.hpp"

namespace cusz::v2 {

inline constexpr std::size_t header_bytes = 128; // without the model

inline constexpr std::size_t max_model_bytes = 16384;

// As a row of the registry has them (codec/codec.hpp).
std::size_t model_bytes(const void* header);
void read_header(const void* header, Frame& frame);
void write_header(void* archive, const Layout& layout, const Encoded& encoded);

// Archives of logarithms (section 12).
inline constexpr unsigned kind_of_logs = 2;
inline constexpr std::size_t logs_header_bytes = 112;

// Reads and validates what follows the common header, into frame. Returns the size of the body. Throws CORRUPT.
std::uint64_t read_logs_header(const void* header, Frame& frame);

// Writes the whole header.
void write_logs_header(void* archive, const Layout& layout, const Logs& logs, std::uint32_t payload_checksum);

} // namespace cusz::v2
