// Estimates the length of a field's archive from a sample of the field.
#pragma once

#include <cstdint>
#include <vector>

#include "codec/data.hpp"
#include "tile.hpp"

namespace cusz::cpu {

// size * whole / part, for a part of less than 2^20.
constexpr std::uint64_t scaled(std::uint64_t size, std::uint64_t whole, std::uint64_t part) {
    return size / part * whole + size % part * whole / part;
}

// Estimates the bytes of a field's version 1 archive from n boxes of the field, one after the other in memory. coding:
// with bound and step resolved. If the estimate exceeds `enough`, returns a number above `enough` that does not depend
// on the number of threads. tiles: memory for each thread, made on first use.
template <class T>
std::uint64_t estimated_lorenzo_bytes(const Layout& field, const Coding& coding, const Layout& box, const T* boxes,
                                      std::uint64_t n, std::uint64_t enough, int threads, std::vector<Tile<T>>& tiles);

} // namespace cusz::cpu
