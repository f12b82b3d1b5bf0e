#include "v1.hpp"

#include <cstring>

#include "codec/codec.hpp"
#include "codec/lorenzo/codebook.hpp"
#include "errors.hpp"
#include "header.hpp"
#include "tiling.hpp"

namespace cusz::v1 {

namespace {

constexpr std::size_t r_at = 52, reserved_at = 54;

} // namespace

std::size_t model_bytes(const void* header) {
    const int r = get<std::uint8_t>(header, r_at);
    if (r < default_r || r > max_r) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: log2 of direct magnitudes is ", r);
    return codebook_bytes(r);
}

void read_header(const void* header, Frame& frame) {
    Coding& coding = frame.coding;
    read_common_coding(header, frame.layout, coding);
    coding.r = get<std::uint8_t>(header, r_at);
    coding.n_special = get<std::uint64_t>(header, n_special_at);
    coding.n_out_of_range = get<std::uint64_t>(header, n_out_of_range_at);
    coding.n_unpredictable = get<std::uint64_t>(header, n_unpredictable_at);
    if (get<std::uint16_t>(header, reserved_at) != 0)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: reserved bytes are not 0");
    frame.lengths = read_lengths(frame.model.data(), Alphabet(coding.r));
    // Every tile has an index entry and a payload of at least one word. This bounds the field that a body can declare,
    // and so the memory that a reader allocates for it.
    const std::uint64_t n_tiles = Tiling(frame.layout.ndim, frame.layout.shape.data()).n_tiles();
    check_body_bytes(frame, (n_tiles + 1) / 2 * 4 + n_tiles * 4, n_tiles);
}

void write_header(void* archive, const Layout& layout, const Encoded& encoded) {
    const Coding& c = encoded.coding;
    write_common_header(archive, 1, layout, CUSZ_KIND_TILED, encoded.payload_checksum);
    write_common_coding(archive, CUSZ_PREDICTOR_LORENZO, CUSZ_CODER_HUFFMAN, c);
    put(archive, r_at, static_cast<std::uint8_t>(c.r));
    put(archive, reserved_at, std::uint16_t{0});
    put(archive, n_special_at, c.n_special);
    put(archive, n_out_of_range_at, c.n_out_of_range);
    put(archive, n_unpredictable_at, c.n_unpredictable);
    seal_header(archive, header_bytes + encoded.model.size());
}

} // namespace cusz::v1
