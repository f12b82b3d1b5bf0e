// What the headers of all versions have in common (docs/reference/format.md, sections 1, 9).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "checksum.hpp"
#include "errors.hpp"
#include "frame.hpp"

static_assert(std::endian::native == std::endian::little, "headers are copied byte for byte and must be little-endian");

namespace cusz {

inline constexpr std::size_t version_at = 4, kind_at = 5, dtype_at = 6, ndim_at = 7, shape_at = 8,
                             payload_checksum_at = 40, header_checksum_at = 44;

// Throws TOO_NEW.
[[noreturn]] inline void fail_of_newer_version(unsigned version) {
    fail(CUSZ_ERROR_TOO_NEW, "archive of format version ", version, "; this library reads up to version ",
         CUSZ_FORMAT_VERSION, ": use a newer release");
}

template <class V>
void put(void* archive, std::size_t offset, V value) {
    std::memcpy(static_cast<char*>(archive) + offset, &value, sizeof value);
}

template <class V>
V get(const void* archive, std::size_t offset) {
    V value;
    std::memcpy(&value, static_cast<const char*>(archive) + offset, sizeof value);
    return value;
}

// Checksum of everything before the body, with the checksum itself taken as 0; a whole number of words.
inline std::uint32_t header_checksum(const void* archive, std::size_t bytes) {
    const auto stored = get<std::uint32_t>(archive, header_checksum_at);
    const std::uint64_t own_term = std::uint64_t{stored} * checksum_weight(header_checksum_at / 4);
    return fold(mix((weigh(archive, bytes / 4) - own_term) ^ mix(bytes / 4)));
}

// Writes the header checksum to its place.
inline void seal_header(void* archive, std::size_t bytes) {
    put(archive, header_checksum_at, std::uint32_t{0}); // the sum reads these bytes
    put(archive, header_checksum_at, header_checksum(archive, bytes));
}

// The first 48 bytes except for the header checksum.
void write_common_header(void* archive, std::uint32_t version, const Layout& layout, cusz_kind kind,
                         std::uint32_t payload_checksum);

// With the version, these identify the codec of a tiled archive.
inline constexpr std::size_t predictor_at = 48, coder_at = 49;

// The common part of the coding headers of tiled archives: all but how values are predicted and coded. Throws CORRUPT.
void read_common_coding(const void* header, const Layout& layout, Coding& coding);
void write_common_coding(void* archive, cusz_predictor predictor, cusz_coder coder, const Coding& coding);

// Checks the sizes of the body and of its stored form. least: the smallest size of the body before the lossless stage.
// It bounds the field that a body can declare, and so the memory that a reader allocates for it. Throws CORRUPT.
void check_body_bytes(const Frame& frame, std::uint64_t least, std::uint64_t n_tiles);

} // namespace cusz
