// What the payload checksum of an archive of version 2 covers (docs/format_v2.md, sections 1, 2, 9).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "archive/checksum.hpp"
#include "archive/header.hpp"
#include "archive/pyramid.hpp"
#include "archive/v2.hpp"

namespace cusz_test {

inline void seal(std::uint8_t* archive, std::size_t size, unsigned version);

namespace v2 {

inline constexpr std::size_t lossless_at = 50, halved_at = 54, body_bytes_at = 88, stored_bytes_at = 96,
                             model_bytes_at = 112;

// The number of bytes before the body, if the archive is long enough to have them.
inline std::optional<std::size_t> body_offset(const std::uint8_t* archive, std::size_t size) {
    if (size < cusz::v2::header_bytes) return std::nullopt;
    const auto model = cusz::get<std::uint64_t>(archive, model_bytes_at);
    if (model % 4 != 0 || model > size - cusz::v2::header_bytes) return std::nullopt;
    return cusz::v2::header_bytes + static_cast<std::size_t>(model);
}

inline std::uint64_t part_of_units(std::uint64_t number, const std::uint8_t* data, std::size_t units) {
    std::vector<std::uint8_t> padded((units + 1) / 2 * 4);
    std::copy_n(data, 2 * units, padded.begin());
    return cusz::part_of_sum(number, cusz::weigh(padded.data(), padded.size() / 4), units);
}

// Where the tile index begins, if the archive is long enough for the top before it.
inline std::optional<std::size_t> index_offset(const std::uint8_t* archive, std::size_t size, std::size_t front) {
    if (size < front + 8) return std::nullopt;
    const auto top = cusz::get<std::uint64_t>(archive, front);
    if (top > size - front - 8) return std::nullopt;
    return front + 8 + static_cast<std::size_t>(top + 3) / 4 * 4;
}

// Seals the top, then gives the checksum of it and of the tiles, as far as the index leads to them; nothing if that
// cannot be determined.
inline std::optional<std::uint64_t> sum_of_tiles(std::uint8_t* archive, std::size_t size, std::size_t front) {
    const auto ndim = std::clamp<std::int32_t>(archive[cusz::ndim_at], 1, CUSZ_MAX_NDIM);
    const auto shape = cusz::get<std::array<std::uint64_t, CUSZ_MAX_NDIM>>(archive, cusz::shape_at);
    std::uint64_t values = 1;
    for (std::size_t i = 0; i < static_cast<std::size_t>(ndim); ++i) {
        if (shape[i] == 0 || shape[i] > (std::uint64_t{1} << 40) / values) return std::nullopt;
        values *= shape[i];
    }
    const std::uint32_t halved = cusz::halvable_axes(ndim, shape.data(), archive[halved_at]);
    const auto index_at = index_offset(archive, size, front);
    if (halved == 0 || !index_at || *index_at > size) return std::nullopt;
    const std::size_t index = *index_at;
    cusz_test::seal(archive + front + 8, static_cast<std::size_t>(cusz::get<std::uint64_t>(archive, front)), 1);

    const std::uint64_t n_tiles = cusz::Pyramid(ndim, shape.data(), halved).n_tiles;
    std::uint64_t at = index + (n_tiles + 1) / 2 * 4,
                  sum = part_of_units(n_tiles, archive + front, (index - front) / 2);
    for (std::uint64_t t = 0; t < n_tiles && index + 2 * t + 2 <= size; ++t) {
        const auto units = cusz::get<std::uint16_t>(archive, static_cast<std::size_t>(index + 2 * t));
        if (at + 2u * units > size) break;
        sum += part_of_units(t, archive + at, units);
        at += 2u * units;
    }
    return sum;
}

} // namespace v2

} // namespace cusz_test
