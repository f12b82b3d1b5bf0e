// What the payload checksum of a tiled archive of version 1 covers (docs/reference/format.md, sections 2, 8, 9).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "archive/alphabet.hpp"
#include "archive/header.hpp"
#include "archive/tiling.hpp"
#include "archive/v1.hpp"

namespace cusz_test::v1 {

inline constexpr std::size_t lossless_at = 50, r_at = 52;

// The number of bytes before the body, if the archive is long enough to have them.
inline std::optional<std::size_t> body_offset(const std::uint8_t* archive, std::size_t size) {
    if (size < cusz::v1::header_bytes) return std::nullopt;
    const int r = archive[r_at];
    if (r < cusz::default_r || r > cusz::max_r || size < cusz::v1::header_bytes + cusz::codebook_bytes(r))
        return std::nullopt;
    return cusz::v1::header_bytes + cusz::codebook_bytes(r);
}

// Checksum of the tiles, as far as the index leads to them; nothing if that cannot be determined.
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

} // namespace cusz_test::v1
