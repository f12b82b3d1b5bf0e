// The archive's frame: what all versions of the format share, and the dispatch to the versions that can be read
// (format.md, sections 1, 2, 9). Each version's own header is in a separate file (v1.hpp); a codec's row in the
// registry names its functions.
#pragma once

#include <cusz/cusz.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "layout.hpp"
#include "logarithm.hpp"

namespace cusz {

struct Codec;   // codec/codec.hpp
struct Encoded; // codec/codec.hpp

// How the spline codec interpolates: the numbers of the curve and of the bounds (v2/frame.hpp), and masks of the axes
// along which lattice 0, lattice 1 and all others may be halved.
struct Interpolation {
    std::uint32_t curve = 1, bounds = 0;
    std::array<std::uint32_t, 3> axes{15, 15, 15};
    bool operator==(const Interpolation&) const = default;
};

// What the coding header of a tiled archive holds.
struct Coding {
    cusz_predictor predictor = CUSZ_PREDICTOR_LORENZO; // as requested; Frame::codec is the codec that was used
    cusz_lossless lossless = CUSZ_LOSSLESS_NONE;
    cusz_mode mode = CUSZ_ABS;
    int r = 0; // log2 of the number of direct magnitudes
    bool has_fill = false;
    double eb = 0, eb_abs = 0, step = 0;
    std::uint64_t special = 0; // bit pattern, in the low bits
    std::uint64_t body_bytes = 0, stored_bytes = 0;
    std::uint64_t n_special = 0, n_out_of_range = 0, n_unpredictable = 0;
    std::optional<std::uint32_t> bounds{}; // as asked for: what interpolation.bounds is to be
    Interpolation interpolation;           // of the spline codec
};

// The head of an archive of logarithms (docs/reference/format_v2.md, section 12).
struct Logs {
    LogScale scale;
    double eb = 0; // relative to every value
    bool has_fill = false;
    std::uint64_t special = 0; // bit pattern, in the low bits
    std::uint64_t signs_bytes = 0, archive_bytes = 0;
    std::size_t archive_at = 0; // in the body, which begins with the signs
};

// A parsed and validated header, and where the sections are.
struct Frame {
    std::uint32_t version; // of the format
    Layout layout;
    cusz_kind kind;
    std::uint32_t payload_checksum;
    const Codec* codec = nullptr; // this and the next three: of a tiled archive
    Coding coding{};
    std::vector<std::byte> model{};      // as stored
    std::vector<std::uint8_t> lengths{}; // of the codewords, by symbol: the Lorenzo codec's model
    bool is_constant = false;            // a compact archive of a field whose values are all the same
    bool has_logs = false;               // the body is then signs and an archive, and there is no codec
    Logs logs{};
    std::size_t header_bytes = raw_header_bytes; // without the model
    const std::byte* body = nullptr;             // raw bytes, or the stored body
    std::uint64_t body_stored_bytes = 0;
};

// Bytes at the start of an archive that parse() may read.
std::size_t max_front_bytes();

// Reads and validates everything before the body. header: the archive or, if that is on a device, a host copy of its
// first max_front_bytes(). Throws CORRUPT, TOO_NEW.
Frame parse(const void* header, const void* archive, std::size_t archive_bytes);

// Whether an archive is a compact one. Throws CORRUPT, TOO_NEW or UNSUPPORTED if it does not begin like an archive that
// this library reads.
bool begins_compact(const void* archive, std::size_t archive_bytes);
// The layout that the header of an archive that is not compact declares. Reads at most raw_header_bytes, and verifies
// no checksum. Throws CORRUPT.
Layout declared_layout(const void* header);

// Writes the header of a raw archive.
void write_raw_header(void* archive, const Layout& layout, std::uint32_t payload_checksum);

} // namespace cusz
