// Tiles that were prepared to be counted, kept to be coded: the tiles of a small field are all counted, and would be
// predicted twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../memory.hpp"
#include "tile.hpp"

namespace cusz::cpu {

// One thread's tiles, kept and asked for by ascending number.
class KeptTiles {
public:
    // Forgets all, and makes room for at most n_tiles.
    void start(std::uint64_t n_tiles) {
        tiles_.clear();
        next_ = used_ = 0;
        capacity_ = std::min<std::uint64_t>(n_tiles, most_tiles) * max_tile_values;
    }
    // Keeps a copy if there is room.
    void keep(std::uint64_t number, const PreparedTile& tile) {
        const std::size_t words = tile.front_words + tile.n + tile.back_words;
        if (used_ + words > capacity_) return;
        std::uint32_t* const at = words_.reserve<std::uint32_t>(capacity_) + used_;
        used_ += words;
        PreparedTile copy = tile;
        copy.front = at;
        copy.delta = reinterpret_cast<const std::int32_t*>(at + tile.front_words);
        copy.back = at + tile.front_words + tile.n;
        std::memcpy(at, tile.front, tile.front_words * 4);
        std::memcpy(at + tile.front_words, tile.delta, tile.n * 4);
        std::memcpy(at + tile.front_words + tile.n, tile.back, tile.back_words * 4);
        tiles_.push_back({number, copy});
    }
    // The tile, or null if it was not kept.
    const PreparedTile* find(std::uint64_t number) {
        while (next_ < tiles_.size() && tiles_[next_].number < number) ++next_;
        return next_ < tiles_.size() && tiles_[next_].number == number ? &tiles_[next_].tile : nullptr;
    }
    std::size_t bytes() const { return words_.bytes() + tiles_.capacity() * sizeof(Kept); }

private:
    static constexpr std::uint64_t most_tiles = 128; // about twice what a sample aims at
    struct Kept {
        std::uint64_t number;
        PreparedTile tile;
    };
    std::vector<Kept> tiles_;
    std::size_t next_ = 0;
    Buffer words_;
    std::uint64_t used_ = 0, capacity_ = 0;
};

} // namespace cusz::cpu
