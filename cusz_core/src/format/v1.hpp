// Version 1 of the format, as both engines write and read it: what is frozen there and small enough to be said once
// (docs/format.md, sections 5 and 8).
#pragma once

#include <cstdint>

namespace cusz::v1 {

// Predictors (section 5). 0 to 3 are the Lorenzo predictors of that many dimensions; these take differences of the 3-D
// one's residuals once more, along x and y, or along x, y and z.
inline constexpr std::uint32_t second_order_xy = 4, second_order_xyz = 5, n_predictors = 6;

// The costs that choose among them: a residual counts as no more than that.
inline constexpr std::uint32_t most_cost_of_residual = 512, most_magnitude_of_bits = 1u << 22;

enum TileKind : std::uint32_t { tile_coded = 0, tile_special = 1, tile_raw = 2 };

inline constexpr std::uint32_t widest_length = 13; // bits of a substream's length, less the base

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

    // Whether a coded tile may have this word.
    static constexpr bool is_legal(std::uint32_t word) {
        const TileHeader header = of(word);
        return header.kind == tile_coded && header.predictor < n_predictors && (word >> 15 & 1) == 0 &&
               header.width <= widest_length && !(header.has_fine_mask && !header.has_mask) &&
               !(header.predictor > 3 && header.has_missing) &&
               !(header.is_all_zero &&
                 (header.has_mask || header.has_missing || header.width != 0 || header.base != 0));
    }
};

} // namespace cusz::v1
