// Tiles prepared for counting, cached until they are coded: in a small field every tile is counted, and would otherwise
// be predicted twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "buffer.hpp"
#include "tile.hpp"

namespace cusz::cpu {

// One thread's cache.
class CachedTiles {
public:
    // Discards all tiles, and makes room for at most n_tiles.
    void start(std::uint64_t n_tiles) {
        used_ = 0;
        capacity_ = std::min<std::uint64_t>(n_tiles, max_tiles) * max_tile_values;
        tiles_.clear();
        tiles_.reserve(max_tiles); // so that pointers to tiles stay valid
    }
    // Stores a copy and returns it, or null if there is no room.
    const PreparedTile* add(const PreparedTile& tile) {
        const std::size_t words = tile.front_words + tile.n + tile.back_words;
        if (tiles_.size() == max_tiles || used_ + words > capacity_) return nullptr;
        std::uint32_t* const at = words_.reserve<std::uint32_t>(capacity_) + used_;
        used_ += words;
        std::memcpy(at, tile.front, tile.front_words * 4);
        std::memcpy(at + tile.front_words, tile.code, tile.n * 4);
        std::memcpy(at + tile.front_words + tile.n, tile.back, tile.back_words * 4);
        PreparedTile& copy = tiles_.emplace_back(tile);
        copy.front = at;
        copy.code = reinterpret_cast<const std::int32_t*>(at + tile.front_words);
        copy.back = at + tile.front_words + tile.n;
        return &copy;
    }
    std::size_t bytes() const { return words_.bytes() + tiles_.capacity() * sizeof(PreparedTile); }

private:
    static constexpr std::size_t max_tiles = 128; // about twice the target size of a sample
    std::vector<PreparedTile> tiles_;
    Buffer words_;
    std::uint64_t used_ = 0, capacity_ = 0;
};

} // namespace cusz::cpu
