// How long a field's archive would be, from a sample of its tiles.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "codec/data.hpp"
#include "tile.hpp"

namespace cusz::cpu {

// size * whole / part, for a part of less than 2^20.
constexpr std::uint64_t scaled(std::uint64_t size, std::uint64_t whole, std::uint64_t part) {
    return size / part * whole + size % part * whole / part;
}

// Bytes of the archive of version 1, from up to n tiles. coding: with bound and step settled. tiles: by thread, made if
// they are not there.
template <class T>
std::uint64_t estimated_lorenzo_bytes(const Layout& layout, const Coding& coding, const BoxReader& read,
                                      std::uint64_t n, std::vector<std::unique_ptr<Tile<T>>>& tiles);

extern template std::uint64_t estimated_lorenzo_bytes<float>(const Layout&, const Coding&, const BoxReader&,
                                                             std::uint64_t, std::vector<std::unique_ptr<Tile<float>>>&);
extern template std::uint64_t estimated_lorenzo_bytes<double>(const Layout&, const Coding&, const BoxReader&,
                                                              std::uint64_t,
                                                              std::vector<std::unique_ptr<Tile<double>>>&);

} // namespace cusz::cpu
