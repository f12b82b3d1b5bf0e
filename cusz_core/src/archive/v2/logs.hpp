// The head of archives of logarithms (docs/reference/format_v2.md, section 12).
#pragma once

#include <cstddef>
#include <span>

#include "frame.hpp"

namespace cusz::v2 {

inline constexpr std::size_t max_logs_head_bytes = max_front_bytes + 4 + 1 + 3 + 8 + 10;

// Writes everything before the signs. Returns the number of bytes.
std::size_t write_logs_head(const Layout& layout, const Logs& logs, std::byte* to);

// Bytes between the signs and the archive of the logarithms, which begins at a multiple of 4 bytes.
constexpr std::size_t logs_padding(std::size_t head_and_signs) { return (4 - head_and_signs % 4) % 4; }

// archive: at least its first bytes. Throws CORRUPT.
Frame read_logs(std::span<const std::byte> archive, std::size_t archive_bytes, const Front& front,
                std::size_t front_bytes);

} // namespace cusz::v2
