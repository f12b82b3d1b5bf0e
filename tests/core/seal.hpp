// Damages archives and then gives them matching checksums, as an attacker would: otherwise tests would only ever get as
// far as the checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "archive/checksum.hpp"
#include "archive/header.hpp"
#include "seal_v1.hpp"
#include "seal_v2.hpp"

namespace cusz_test {

// The version of an archive that is whole.
inline unsigned version_of(const std::uint8_t* archive, std::size_t size) {
    if (size <= cusz::version_at) return 0;
    return archive[0] == cusz::v2::magic[0] ? 2 : archive[cusz::version_at];
}

// Writes the checksums, of version 1 both of format.md, section 9, as far as the archive is long enough to have them. version: the
// archive's before it was damaged; each further version is a further case.
inline void seal(std::uint8_t* archive, std::size_t size, unsigned version) {
    using namespace cusz;
    if (version == 2) return v2::seal({reinterpret_cast<std::byte*>(archive), size});
    if (size < raw_header_bytes || version != 1) return;
    const bool tiled = archive[kind_at] == CUSZ_KIND_TILED;
    const auto front = tiled ? v1::body_offset(archive, size) : std::optional(raw_header_bytes);
    if (!front) return;

    std::optional<std::uint64_t> sum = 0;
    if (tiled && archive[v1::lossless_at] == CUSZ_LOSSLESS_NONE) {
        sum = v1::sum_of_tiles(archive, size, *front);
    } else {
        for (std::uint64_t p = 0; p < piece_count(size - *front); ++p)
            *sum += piece(p, archive + *front, size - *front);
    }
    if (!sum) return;
    put(archive, payload_checksum_at, fold(*sum));
    put(archive, header_checksum_at, std::uint32_t{0});
    put(archive, header_checksum_at, fold(part(0, archive, *front / 4)));
}

} // namespace cusz_test
