// Gives damaged archives matching checksums, as an attacker would: otherwise tests would get no further than the
// checksums.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "archive/alphabet.hpp"
#include "archive/checksum.hpp"
#include "archive/header.hpp"
#include "archive/tiling.hpp"
#include "archive/v1.hpp"
#include "seal_v2.hpp"

namespace cusz_test {

// The version of an undamaged archive.
inline unsigned version_of(const std::uint8_t* archive, std::size_t size) {
    if (size <= cusz::version_at) return 0;
    return archive[0] == cusz::v2::magic[0] ? 2 : archive[cusz::version_at];
}

// Version 1: sum of the tiles' checksums, as far as the index leads to tiles; nothing if the shape makes no sense.
inline std::optional<std::uint64_t> sum_of_tiles(const std::uint8_t* archive, std::size_t size, std::size_t front) {
    const auto ndim = std::clamp<std::int32_t>(archive[cusz::ndim_at], 1, CUSZ_MAX_NDIM);
    const auto shape = cusz::get<std::array<std::uint64_t, CUSZ_MAX_NDIM>>(archive, cusz::shape_at);
    std::uint64_t values = 1;
    for (std::size_t i = 0; i < static_cast<std::size_t>(ndim); ++i) {
        if (shape[i] == 0 || shape[i] > (std::uint64_t{1} << 40) / values) return std::nullopt;
        values *= shape[i];
    }
    const std::uint64_t n_tiles = cusz::Tiling(ndim, shape.data()).n_tiles();
    std::uint64_t at = front + (n_tiles + 1) / 2 * 4, sum = 0;
    for (std::uint64_t t = 0; t < n_tiles && front + 2 * t + 2 <= size; ++t) {
        const auto words = cusz::get<std::uint16_t>(archive, front + 2 * t);
        if (at + 4u * words > size) break;
        sum += cusz::part(t, archive + at, words);
        at += 4u * words;
    }
    return sum;
}

// Writes the checksums of format.md, section 9, or format_v2.md, if the archive is long enough to have them. `version`:
// that of the archive before it was damaged.
inline void seal(std::uint8_t* archive, std::size_t size, unsigned version) {
    using namespace cusz;
    if (version == 2) return v2::seal({reinterpret_cast<std::byte*>(archive), size});
    if (size < raw_header_bytes || version != 1) return;
    const bool tiled = archive[kind_at] == CUSZ_KIND_TILED;
    constexpr std::size_t lossless_at = 50, r_at = 52;
    std::size_t front = raw_header_bytes;
    if (tiled) {
        const int r = size < v1::header_bytes ? 0 : archive[r_at];
        if (r < default_r || r > max_r || size < v1::header_bytes + codebook_bytes(r)) return;
        front = v1::header_bytes + codebook_bytes(r);
    }
    std::optional<std::uint64_t> sum = 0;
    if (tiled && archive[lossless_at] == CUSZ_LOSSLESS_NONE) {
        sum = sum_of_tiles(archive, size, front);
    } else {
        for (std::uint64_t p = 0; p < piece_count(size - front); ++p) *sum += piece(p, archive + front, size - front);
    }
    if (!sum) return;
    put(archive, payload_checksum_at, fold(*sum));
    seal_header(archive, front);
}

} // namespace cusz_test
