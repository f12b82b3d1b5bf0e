// Archives that are damaged and then given checksums that fit, as an attacker would: without that, tests would only
// ever meet the checksums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "format/alphabet.hpp"
#include "format/checksum.hpp"
#include "format/frame.hpp"
#include "format/tiling.hpp"
#include "format/v1.hpp"

namespace cusz_test {

template <class V>
V get(const std::uint8_t* bytes, std::size_t at) {
    V value;
    std::memcpy(&value, bytes + at, sizeof value);
    return value;
}

// Writes both checksums of docs/format.md, section 9, as far as there is an archive to have them.
inline void seal(std::uint8_t* archive, std::size_t size) {
    using namespace cusz;
    if (size < raw_header_bytes) return;
    const bool tiled = archive[5] == CUSZ_KIND_TILED;
    if (tiled && (size < v1::tiled_header_bytes || archive[52] < default_r || archive[52] > max_r)) return;
    const std::size_t front = tiled ? v1::body_offset(archive[52]) : raw_header_bytes;
    if (size < front) return;

    std::uint64_t sum = 0;
    if (!tiled || archive[50] != CUSZ_LOSSLESS_NONE) {
        for (std::uint64_t p = 0; p < piece_count(size - front); ++p) sum += piece(p, archive + front, size - front);
    } else {
        const auto ndim = std::clamp<std::int32_t>(archive[7], 1, CUSZ_MAX_NDIM);
        std::uint64_t shape[CUSZ_MAX_NDIM], values = 1;
        for (std::size_t i = 0; i < CUSZ_MAX_NDIM; ++i) shape[i] = get<std::uint64_t>(archive, 8 + 8 * i);
        for (std::int32_t i = 0; i < ndim; ++i) {
            if (shape[i] == 0 || shape[i] > (std::uint64_t{1} << 40) / values) return;
            values *= shape[i];
        }
        const std::uint64_t n_tiles = Tiling(ndim, shape).n_tiles();
        std::uint64_t at = front + (n_tiles + 1) / 2 * 4;
        for (std::uint64_t t = 0; t < n_tiles && front + 2 * t + 2 <= size; ++t) {
            const auto words = get<std::uint16_t>(archive, front + 2 * t);
            if (at + 4u * words > size) break;
            sum += part(t, archive + at, words);
            at += 4u * words;
        }
    }
    const std::uint32_t payload = fold(sum), zero = 0;
    std::memcpy(archive + 40, &payload, 4);
    std::memcpy(archive + 44, &zero, 4);
    const std::uint32_t header = fold(part(0, archive, front / 4));
    std::memcpy(archive + 44, &header, 4);
}

} // namespace cusz_test
