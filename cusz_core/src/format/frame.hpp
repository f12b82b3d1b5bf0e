// The archive's frame: headers, sections, checksums of the header (docs/format.md, sections 1, 2, 7, 9).
#pragma once

#include <cusz/cusz.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "alphabet.hpp"

static_assert(std::endian::native == std::endian::little, "the frame is written as it lies in memory: little-endian");

namespace cusz {

inline constexpr std::size_t raw_header_bytes = CUSZ_RAW_OVERHEAD_BYTES;
inline constexpr std::size_t tiled_header_bytes = 128; // without the codebook

// Places in the header of what is known only when all tiles are coded.
inline constexpr std::size_t payload_checksum_at = 40, header_checksum_at = 44, eb_abs_at = 64, step_at = 72,
                             body_bytes_at = 88, stored_bytes_at = 96, n_special_at = 104, n_delta_outliers_at = 112,
                             n_value_outliers_at = 120;

// A field's type and extents, checked.
struct Layout {
    // Throws UNSUPPORTED (dtype, size) or PARAMETER (ndim, null shape).
    Layout(cusz_dtype dtype, std::int32_t ndim, const std::uint64_t* shape);

    cusz_dtype dtype;
    std::int32_t ndim;
    std::array<std::uint64_t, CUSZ_MAX_NDIM> shape{};
    std::uint64_t values = 1; // 0 for an empty field
    std::size_t value_bytes() const { return dtype == CUSZ_F32 ? 4 : 8; }
    std::uint64_t bytes() const { return values * value_bytes(); }
};

// What the coding header of a tiled archive holds besides ids.
struct Coding {
    cusz_lossless lossless = CUSZ_LOSSLESS_NONE;
    cusz_mode mode = CUSZ_ABS;
    int r = default_r; // log2 of the number of direct magnitudes
    bool has_fill = false;
    double eb = 0, eb_abs = 0, step = 0;
    std::uint64_t special = 0; // bit pattern, in the low bits
    std::uint64_t body_bytes = 0, stored_bytes = 0;
    std::uint64_t n_special = 0, n_delta_outliers = 0, n_value_outliers = 0;
};

// A parsed and validated header with the places of the sections.
struct Frame {
    Layout layout;
    cusz_kind kind;
    std::uint32_t payload_checksum;
    Coding coding;                     // tiled archives
    std::vector<std::uint8_t> lengths; // of the codes, by symbol; tiled archives
    const std::byte* body;             // raw bytes, or the stored body
    std::uint64_t body_stored_bytes;
};

// Bytes in front of the body of a tiled archive.
inline std::size_t body_offset(int r) { return tiled_header_bytes + codebook_bytes(r); }

// Bytes at the start of an archive that parse() may look at.
inline std::size_t most_header_bytes() { return body_offset(max_r); }

// Reads and validates everything in front of the body. header: the archive, or a copy of its first most_header_bytes()
// where it lies on a device. Throws CORRUPT, TOO_NEW.
Frame parse(const void* header, const void* archive, std::size_t archive_bytes);

// Writes the header of a raw archive.
void write_raw_header(void* archive, const Layout& layout, std::uint32_t payload_checksum);

// Writes header, coding header and codebook of a tiled archive.
void write_tiled_header(void* archive, const Layout& layout, const Coding& coding,
                        const std::vector<std::uint8_t>& lengths, std::uint32_t payload_checksum);

} // namespace cusz
