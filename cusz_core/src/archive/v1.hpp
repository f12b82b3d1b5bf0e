// Version 1 of the format, frozen: the definitions shared by both engines, and its header (format.md, sections 2,
// 5, 7, 8).
#pragma once

#include <cstddef>
#include <cstdint>

#include "alphabet.hpp"
#include "frame.hpp"

namespace cusz::v1 {

// ---- The header of a tiled archive (section 2): the common header, the coding header, the codebook

inline constexpr std::size_t header_bytes = 128; // without the codebook
inline constexpr std::size_t max_model_bytes = codebook_bytes(max_r);

// Offsets of fields that are known only once all tiles are coded.
inline constexpr std::size_t n_special_at = 104, n_out_of_range_at = 112, n_unpredictable_at = 120;

// For the codec's row in the registry (codec/codec.hpp); the model is the codebook.
std::size_t model_bytes(const void* header);
void read_header(const void* header, Frame& frame);
void write_header(void* archive, const Layout& layout, const Encoded& encoded);

// ---- Tiles

// Predictors (section 5). 0 to 3 are the Lorenzo predictors of that many dimensions; these difference the residuals of
// the 3-D one once more, along x and y, or along x, y and z.
inline constexpr std::uint32_t second_order_xy = 4, second_order_xyz = 5, n_predictors = 6;

// Caps on what one residual adds to the costs that choose among them.
inline constexpr std::uint32_t max_cost_of_residual = 512, max_magnitude_of_bits = 1u << 22;

enum TileKind : std::uint32_t { tile_coded = 0, tile_special = 1, tile_raw = 2 };

inline constexpr std::uint32_t widest_length = 13; // bits of a substream's length minus the base

// The first word of a payload (section 8).
struct TileHeader {
    TileKind kind = tile_coded;
    std::uint32_t predictor = 0;
    bool has_mask = false, has_missing = false, has_outliers = false, is_all_zero = false, has_fine_mask = false;
    std::uint32_t width = 0, base = 0; // of the substreams' lengths

    constexpr std::uint32_t word() const {
        return kind | predictor << 2 | std::uint32_t{has_mask} << 6 | std::uint32_t{has_missing} << 7 |
               std::uint32_t{has_outliers} << 8 | std::uint32_t{is_all_zero} << 9 | width << 10 |
               std::uint32_t{has_fine_mask} << 14 | base << 16;
    }

    static constexpr TileHeader of(std::uint32_t word) {
        return {static_cast<TileKind>(word & 3), word >> 2 & 15,        (word & 1u << 6) != 0,
                (word & 1u << 7) != 0,           (word & 1u << 8) != 0, (word & 1u << 9) != 0,
                (word & 1u << 14) != 0,          word >> 10 & 15,       word >> 16};
    }

    // Whether this word is legal for a coded tile.
    static constexpr bool is_legal(std::uint32_t word) {
        const TileHeader h = of(word);
        return !(h.kind != tile_coded || h.predictor >= n_predictors || (word >> 15 & 1) != 0 ||
                 h.width > widest_length ||
                 (h.is_all_zero && (h.has_mask || h.width != 0 || h.base != 0 || h.has_missing)) ||
                 (h.predictor > 3 && h.has_missing) || (h.has_fine_mask && !h.has_mask));
    }
};

} // namespace cusz::v1
