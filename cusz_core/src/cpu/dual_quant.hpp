// Dual-quantisation (paper, section 3.1.2): prequantisation to integers, Lorenzo prediction on them (postquantisation),
// and its reverse (section 3.3). docs/format.md, sections 4 and 5.
#pragma once

#include "tile.hpp"

namespace cusz::cpu {

// Field to tile.padded, anchor, holes and value outliers. Returns false if every value is special.
template <class T>
bool prequant(const T* field, const Quantiser<T>& quantiser, Tile<T>& tile);

// The Lorenzo order of least cost among 0 to `highest`.
template <class T>
std::uint32_t choose_order(Tile<T>& tile, std::uint32_t highest);

// tile.padded to tile.delta and delta outliers, whose delta becomes `outlier_mark` until groups are found.
inline constexpr std::int32_t outlier_mark = hole_delta + 1;
template <class T>
void postquant(Tile<T>& tile, std::uint32_t order, std::uint32_t reach);

// The reverse: tile.delta, delta outliers, anchor, and holes (where delta is hole_delta) to the field's values, special
// ones at holes. Value outliers are patched by the caller.
template <class T>
void reverse(Tile<T>& tile, std::uint32_t order, T step, typename Traits<T>::Bits special, T* field);

} // namespace cusz::cpu
