// Puts a tile's values to predict from into its lattice's arrays, and decoded values into the field: classes that are
// odd and even along the first axis become lines again.
#pragma once

#include "order.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Calls use(x, c, inside) for all lines of the tile along the first axis: the line's first point, its class, and
// the position of the line in a class's box.
template <class T, class Use>
void for_lines(const SplineTile<T>& tile, const Use& use) {
    for_rows(tile.place.edge, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
        const std::array<std::uint32_t, 4> x{0, y, z, w};
        std::size_t inside = 0;
        std::uint32_t c = 0;
        for (std::uint32_t a = 1; a < 4; ++a) {
            const bool active = a < tile.n_active;
            inside += (active ? x[a] / 2 : x[a]) * tile.box[0].stride[a];
            c |= active ? (x[a] & 1) << a : 0;
        }
        use(x, c, inside);
    });
}

// Puts the tile's values to predict from and magnitudes into the arrays of its lattice.
template <class T>
void store_tile(const Lattice& lattice, const SplineTile<T>& tile, const LatticeArrays<T>& coarse,
                const LatticeArrays<T>& fine) {
    if (fine.value == nullptr) return;
    const std::uint32_t n = tile.place.edge[0], n_even = tile.box[0].n[0];
    const auto step = static_cast<std::size_t>(lattice.stride[0]),
               in_coarse = static_cast<std::size_t>(lattice.coarse_stride[0]);
    T values[max_tile_values + 2 * lane_room];
    std::uint8_t magnitudes[max_tile_values + 2 * lane_room], of_parents[max_tile_values / 2 + lane_room];
    for_lines(tile, [&](const std::array<std::uint32_t, 4>& x, std::uint32_t c, std::size_t inside) {
        std::size_t to = 0 - fine.before, from = 0 - coarse.before;
        for (std::size_t a = 0; a < 4; ++a) {
            const std::uint64_t at = tile.place.origin[a] + x[a];
            to += static_cast<std::size_t>(at * lattice.stride[a]);
            from += static_cast<std::size_t>((lattice.is_active(a) ? at / 2 : at) * lattice.coarse_stride[a]);
        }
        const std::size_t even = tile.box[c].first + inside, odd = tile.box[c | 1].first + inside;
        const std::uint8_t* even_magnitudes = tile.magnitude + even;
        if (c == 0) {
            for (std::uint32_t p = 0; p < n_even; ++p)
                of_parents[p] = coarse.magnitude[from + p * in_coarse] == v2::special_magnitude ? v2::special_magnitude
                                                                                                : std::uint8_t{0};
            even_magnitudes = of_parents;
        }
        interleave(tile.value + even, tile.value + odd, n_even, values);
        interleave_marks(even_magnitudes, tile.magnitude + odd, n_even, magnitudes);
        if (step == 1) {
            std::memcpy(fine.value + to, values, n * sizeof(T));
            std::memcpy(fine.magnitude + to, magnitudes, n);
        } else {
            for (std::uint32_t p = 0; p < n; ++p) fine.value[to + p * step] = values[p];
            for (std::uint32_t p = 0; p < n; ++p) fine.magnitude[to + p * step] = magnitudes[p];
        }
    });
}

// Puts a tile of lattice 0 to where it is wanted, row by row.
template <class T>
class PutOut {
public:
    PutOut() = default;
    PutOut(const Lattice& lattice, const SplineTile<T>& tile, const LatticeArrays<T>& coarse, const Quantiser<T>& q,
           const Destination<T>& to)
        : lattice_(&lattice), tile_(&tile), parents_(&coarse), special_(static_cast<typename Lanes<T>::Int>(q.special)),
          to_(&to) {
        for (std::size_t a = 0; a < 4; ++a) {
            first[a] = std::max(tile.place.origin[a], to.start[a]);
            end[a] = std::min(tile.place.origin[a] + tile.place.edge[a], to.start[a] + to.count[a]);
        }
        const std::uint32_t n = tile.box[0].n[0];
        in_place_ = to.stride[0] == 1 && end[0] - first[0] == 2 * n && n % Lanes<T>::n == 0;
    }
    std::array<std::uint64_t, 4> first{}, end{}; // of the tile's points that are wanted
    bool wanted() const { return first[0] < end[0] && first[1] < end[1] && first[2] < end[2] && first[3] < end[3]; }
    bool has_rows_of(const PutOut& other) const {
        return std::equal(first.begin() + 1, first.end(), other.first.begin() + 1);
    }

    // The rows to be put are in this plane.
    void begin_plane(std::uint64_t z, std::uint64_t w) {
        plane_ = Row{0, static_cast<std::size_t>(tile_->place.origin[0] / 2 * lattice_->coarse_stride[0]), 0,
                     (first[0] - to_->start[0]) * to_->stride[0]} +
                 part(3, w) + part(2, z);
    }
    void put_row(std::uint64_t y) const {
        const SplineTile<T>& tile = *tile_;
        const auto [inside, in_coarse, c, target_offset] = plane_ + part(1, y);
        const std::uint32_t n = tile.box[0].n[0];
        T line_of_its_own[max_tile_values + 2 * lane_room];
        T* const target = to_->field + target_offset;
        T* const line = in_place_ ? target : line_of_its_own;
        const std::size_t even = tile.box[c].first + inside, odd = tile.box[c | 1].first + inside;
        interleave(tile.value + even, tile.value + odd, n, line);
        if (tile.has_special || (c == 0 && tile.has_special_parents)) put_special(even, odd, in_coarse, c, n, line);
        if (in_place_) return;
        const T* const from = line + (first[0] - tile.place.origin[0]);
        if (to_->stride[0] == 1)
            std::memcpy(target, from, (end[0] - first[0]) * sizeof(T));
        else
            for (std::uint64_t v = 0; v < end[0] - first[0]; ++v) target[v * to_->stride[0]] = from[v];
    }

private:
    // What a coordinate adds to where a row lies.
    struct Row {
        std::size_t inside = 0, in_coarse = 0; // from the first point of a class; in the coarser lattice
        std::uint32_t c = 0;
        std::uint64_t target = 0;
        Row operator+(const Row& other) const {
            return {inside + other.inside, in_coarse + other.in_coarse, c | other.c, target + other.target};
        }
    };
    Row part(std::uint32_t a, std::uint64_t x) const {
        const bool active = lattice_->is_active(a);
        const auto from_origin = static_cast<std::size_t>(x - tile_->place.origin[a]);
        return {(active ? from_origin / 2 : from_origin) * tile_->box[0].stride[a],
                static_cast<std::size_t>((active ? x / 2 : x) * lattice_->coarse_stride[a]),
                active ? static_cast<std::uint32_t>(from_origin & 1) << a : 0, (x - to_->start[a]) * to_->stride[a]};
    }
    // Of a line that is interleaved, from where its magnitudes are.
    void put_special(std::size_t even, std::size_t odd, std::size_t in_coarse, std::uint32_t c, std::uint32_t n,
                     T* line) const {
        using L = Lanes<T>;
        std::uint8_t of_parents[max_tile_values / 2 + lane_room], marks[max_tile_values + 2 * lane_room];
        const std::uint8_t* even_marks = tile_->magnitude + even;
        if (c == 0) {
            const auto step = static_cast<std::size_t>(lattice_->coarse_stride[0]);
            even_marks =
                parents_->magnitude + (in_coarse - parents_->before); // arrays have room for a vector behind them
            if (step > 1) {
                for (std::uint32_t p = 0; p < n; ++p) of_parents[p] = even_marks[p * step];
                even_marks = of_parents;
            }
        }
        interleave_marks(even_marks, tile_->magnitude + odd, n, marks);
        for (std::uint32_t x = 0; x < 2 * n; x += L::n) {
            const auto of_lanes = L::template load<typename L::Narrow>(marks + x);
            const auto is_special = __builtin_convertvector(of_lanes == v2::special_magnitude, typename L::Ints);
            const auto v = L::template load<typename L::Ints>(line + x); // bits, as 0 + -0 would be 0
            L::store(line + x, is_special ? typename L::Ints{} + special_ : v);
        }
    }

    const Lattice* lattice_ = nullptr;
    const SplineTile<T>* tile_ = nullptr;
    const LatticeArrays<T>* parents_ = nullptr;
    typename Lanes<T>::Int special_ = 0; // its bits
    const Destination<T>* to_ = nullptr;
    bool in_place_ = false; // a line can be made in the destination
    Row plane_;
};

// Puts tiles to where they are wanted. Of tiles beside each other a row of all of them at a time: memory takes in
// long rows faster than those of a single tile.
template <class T>
void put_out(const Lattice& lattice, const SplineTiles<T>& tiles, std::uint32_t n_tiles, const LatticeArrays<T>& coarse,
             const Quantiser<T>& q, const Destination<T>& to) {
    PutOut<T> out[tiles_at_once];
    std::uint32_t n = 0;
    for (std::uint32_t j = 0; j < n_tiles; ++j) {
        out[n] = PutOut<T>(lattice, *tiles[j], coarse, q, to);
        n += out[n].wanted();
    }
    for (std::uint32_t j = 0, next = 0; j < n; j = next) {
        next = j + 1;
        while (next < n && out[next].has_rows_of(out[j])) ++next;
        const auto [first, end] = std::pair(out[j].first, out[j].end);
        for (std::uint64_t w = first[3]; w < end[3]; ++w)
            for (std::uint64_t z = first[2]; z < end[2]; ++z) {
                for (std::uint32_t t = j; t < next; ++t) out[t].begin_plane(z, w);
                for (std::uint64_t y = first[1]; y < end[1]; ++y)
                    for (std::uint32_t t = j; t < next; ++t) out[t].put_row(y);
            }
    }
}

} // namespace cusz::cpu::CUSZ_ISA
