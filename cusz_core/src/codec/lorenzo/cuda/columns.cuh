// Prequantisation of a tile of a known shape in the registers of a block (format.md, section 4). Each thread has 16
// values, 32 positions apart, as if no tile were clipped: in a box a column along y, in a square two values in 8 rows.
#pragma once

#include "coded_runs.cuh"
#include "prequant.cuh"

namespace cusz::cuda {

// One bit for each value of a thread.
class Bits16 {
public:
    Bits16() = default;
    __device__ explicit Bits16(std::uint32_t bits) : bits_(bits) {}
    __device__ bool operator[](std::uint32_t k) const { return (bits_ >> k & 1) != 0; }
    __device__ bool any() const { return bits_ != 0; }
    __device__ std::uint32_t bits() const { return bits_; }
    __device__ Bits16 without(Bits16 others) const { return Bits16(bits_ & ~others.bits_); }

private:
    std::uint32_t bits_ = 0;
};

// Where value k of a thread is.
template <TileShape shape>
struct Column {
    __device__ static std::uint32_t chunk(std::uint32_t k) { return warp() * values_of_thread + k; }
    __device__ static std::uint32_t x(std::uint32_t k) {
        if (shape == TileShape::line) return chunk(k) * warp_lanes + lane();
        return shape == TileShape::square ? k % 2 * warp_lanes + lane() : lane();
    }
    __device__ static std::uint32_t y(std::uint32_t k) {
        if (shape == TileShape::line) return 0;
        return shape == TileShape::square ? warp() * (values_of_thread / 2) + k / 2 : k;
    }
    __device__ static std::uint32_t z(std::uint32_t) { return shape == TileShape::box ? warp() : 0; }
    // Which of this thread's values are in the tile.
    __device__ static Bits16 inside(const Edges& edge) {
        constexpr std::uint32_t all = (1u << values_of_thread) - 1;
        if (shape == TileShape::line) { // those before the end of the line
            const std::uint32_t n = x(0) < edge[0] ? (edge[0] - x(0) + warp_lanes - 1) / warp_lanes : 0;
            return Bits16(all >> (values_of_thread - std::min(n, +values_of_thread)));
        }
        if (shape == TileShape::square) {
            const std::uint32_t rows = y(0) < edge[1] ? std::min(edge[1] - y(0), values_of_thread / 2) : 0;
            const std::uint32_t columns = (x(0) < edge[0] ? 0x5555u : 0) | (x(1) < edge[0] ? 0xAAAAu : 0);
            return Bits16(columns & all >> (values_of_thread - 2 * rows));
        }
        return Bits16(x(0) < edge[0] && z(0) < edge[2] ? all >> (values_of_thread - edge[1]) : 0);
    }
    // The position in the tile, in tile order.
    __device__ static std::uint32_t position(const Edges& edge, std::uint32_t k) {
        return (z(k) * edge[1] + y(k)) * edge[0] + x(k);
    }
    __device__ static std::uint64_t offset(const TileBox& box, std::uint32_t k) {
        return box.offset + x(k) + y(k) * box.stride[1] + z(k) * box.stride[2];
    }
    // Value k in the field, from `value`, the thread's value 0.
    template <class T>
    __device__ static T* later(T* value, std::uint64_t stride_y, std::uint32_t k) {
        if (shape == TileShape::line) return value + k * warp_lanes;
        return shape == TileShape::square ? value + k / 2 * stride_y + k % 2 * warp_lanes : value + k * stride_y;
    }
    // The position in bitmaps of the tile.
    __device__ static std::uint32_t bit(std::uint32_t k) { return chunk(k) * warp_lanes + lane(); }
    static constexpr std::uint32_t row = shape == TileShape::square ? 2 : 1; // values of a thread in a row
};

// Calls use(k) for every value of a thread.
template <class Use>
__device__ void for_column(const Use& use) {
#pragma unroll
    for (std::uint32_t k = 0; k < values_of_thread; ++k) use(k);
}

// What quantising a tile finds, the same for every thread. plain: the tile is not clipped, and no value is missing or
// unpredictable.
struct QuantisedColumns {
    bool plain, has_missing, all_special, has_unpredictable;
};

// Fills in the q of missing values (format.md, section 4): the q of the nearest preceding value in the row, else the q
// that the row's first value would take. Needs a barrier before it, and ends with one.
template <TileShape shape, class T>
__device__ void fill_missing(typename Traits<T>::Bits (&q)[values_of_thread], Bits16 missing, ColumnMemory<T>& tile) {
    using U = typename Traits<T>::Bits;
    using Int = typename Traits<T>::Int;
    constexpr auto last_lane = static_cast<int>(warp_lanes - 1);
    const Bits16 valid_here = Column<shape>::inside(tile.box.edge).without(missing);
    const auto bits_of_chunk = [&](std::uint32_t k) { return __ballot_sync(whole_warp, valid_here[k]); };
    // What this warp tells later ones: its first value, and the last one that begins a row (in a line, its last value).
    const std::uint32_t begins_row = shape == TileShape::line     ? 0xFFFFu
                                     : lane() > 0                 ? 0
                                     : shape == TileShape::square ? 0x5555u
                                                                  : 1u;
    const Bits16 may_be_last(valid_here.bits() & begins_row);
    U first = 0, last = 0; // of this lane
    for_column([&](std::uint32_t k) {
        const std::uint32_t from_last = values_of_thread - 1 - k;
        if (valid_here[from_last]) first = q[from_last];
        if (may_be_last[k]) last = q[k];
    });
    const std::uint32_t chunks = __reduce_or_sync(whole_warp, valid_here.bits());
    const auto last_chunk = static_cast<int>(__reduce_max_sync(whole_warp, bit_width(may_be_last.bits()))) - 1;
    const bool has_last = last_chunk >= 0;
    const auto lanes_with = [&](Bits16 bits, int chunk) {
        return static_cast<int>(__ballot_sync(whole_warp, bits[static_cast<std::uint32_t>(std::max(chunk, 0))]));
    };
    const int first_lane = __ffs(lanes_with(valid_here, __ffs(static_cast<int>(chunks)) - 1)) - 1;
    first = __shfl_sync(whole_warp, first, std::max(first_lane, 0));
    last = __shfl_sync(whole_warp, last, std::max(last_lane - __clz(lanes_with(may_be_last, last_chunk)), 0));
    if (lane() == 0) {
        tile.first_q[warp()] = static_cast<Int>(first);
        tile.last_q[warp()] = static_cast<Int>(last);
        tile.has_first[warp()] = chunks != 0;
        tile.has_last[warp()] = has_last;
    }
    __syncthreads();
    U anchor = 0;
    for (std::uint32_t w = block_warps; w-- > 0;)
        if (tile.has_first[w]) anchor = static_cast<U>(tile.first_q[w]);
    U before = anchor; // taken by a missing value that nothing precedes in its row
    for (std::uint32_t w = 0; w < warp(); ++w)
        if (tile.has_last[w]) before = static_cast<U>(tile.last_q[w]);
    U in_row = 0; // in a square: the last value of the row's first chunk
    for_column([&](std::uint32_t k) {
        const std::uint32_t valid = bits_of_chunk(k), up_to_here = valid & (whole_warp >> (last_lane - lane()));
        const U none = shape == TileShape::square && k % 2 == 1 ? in_row : before;
        const int source = last_lane - __clz(static_cast<int>(up_to_here));
        const U preceding = __shfl_sync(whole_warp, q[k], source < 0 ? 0 : source);
        q[k] = up_to_here != 0 ? preceding : none;
        if (shape == TileShape::line) before = __shfl_sync(whole_warp, q[k], last_lane);
        if (shape == TileShape::square && k % 2 == 0) in_row = __shfl_sync(whole_warp, q[k], last_lane);
        if (shape == TileShape::box || (shape == TileShape::square && k % 2 == 0))
            before = __shfl_sync(whole_warp, q[k], 0);
    });
    if (is_first_thread()) tile.anchor = static_cast<Int>(anchor);
    __syncthreads();
}

// Quantises the values of a thread. Returns two masks in one register: which values are missing, and 16 bits further up
// which are to be stored verbatim.
template <TileShape shape, bool whole, class T>
__device__ std::uint32_t quantise_column(const T* field, const TileBox& box, const Quantiser<T>& quantiser,
                                         typename Traits<T>::Bits (&q)[values_of_thread]) {
    using C = Column<shape>;
    using U = typename Traits<T>::Bits;
    constexpr std::uint32_t at_once = 8; // loads in flight, to hide memory latency
    const T* const first_value = field + C::offset(box, 0);
    const std::uint64_t stride = box.stride[1];
    const Bits16 inside = C::inside(box.edge);
    std::uint32_t irregular = 0;
#pragma unroll
    for (std::uint32_t first = 0; first < values_of_thread; first += at_once) {
        T value[at_once];
#pragma unroll
        for (std::uint32_t i = 0; i < at_once; ++i)
            value[i] = whole || inside[first + i] ? *C::later(first_value, stride, first + i) : T{0};
#pragma unroll
        for (std::uint32_t i = 0; i < at_once; ++i) {
            const T scaled = value[i] * quantiser.inv, shifted = scaled + Traits<T>::rounder;
            const T back = (shifted - Traits<T>::rounder) * quantiser.step;
            q[first + i] = bits_of(shifted) - bits_of(Traits<T>::rounder);
            const bool good = (magnitude(value[i] - back) <= quantiser.e) &
                              (magnitude(scaled) <= Traits<T>::quantum_limit) &
                              (bits_of(value[i]) != quantiser.special); // not &&: one branch
            if (good || !(whole || inside[first + i])) continue;
            const Quantised<T> v = quantise(value[i], quantiser);
            q[first + i] = static_cast<U>(v.q);
            const bool verbatim = v.missed || (v.missing && !v.special);
            irregular |= (v.missing ? 1u : 0) << (first + i) | (verbatim ? 0x10000u : 0) << (first + i);
        }
    }
    return irregular;
}

// Quantises the tile; the bitmap of unpredictable values is written only if there are any. missing: this
// thread's missing values. Ends with a barrier.
template <TileShape shape, class T>
__device__ QuantisedColumns quantise_columns(const T* field, const Quantiser<T>& quantiser,
                                             typename Traits<T>::Bits (&q)[values_of_thread], Bits16& missing,
                                             ColumnMemory<T>& tile) {
    using C = Column<shape>;
    const TileBox& box = tile.box;
    const bool whole = box.values() == max_tile_values;
    const std::uint32_t irregular = whole ? quantise_column<shape, true>(field, box, quantiser, q)
                                          : quantise_column<shape, false>(field, box, quantiser, q);
    missing = Bits16(irregular & 0xFFFF);
    if (is_first_thread()) {
        tile.anchor = static_cast<typename Traits<T>::Int>(q[0]);
        tile.n_special = 0;
    }
    if (__syncthreads_or(irregular != 0) == 0) return {whole, false, false, false};

    const Bits16 outliers(irregular >> 16);
    const Bits16 special = missing.without(outliers);
    const std::uint32_t n_special = warp_sum(static_cast<std::uint32_t>(__popc(special.bits())));
    if (lane() == 0) atomicAdd(&tile.n_special, n_special);
    const bool has_unpredictable = __syncthreads_or(outliers.any()) != 0;
    if (has_unpredictable)
        for (std::uint32_t k = 0; k < values_of_thread; ++k) {
            const std::uint32_t bits = __ballot_sync(whole_warp, outliers[k]);
            if (lane() == 0) tile.unpredictable.word[C::chunk(k)] = bits;
        }
    const bool has_missing = __syncthreads_or(missing.any()) != 0, all_special = tile.n_special == box.values();
    if (has_missing && !all_special) fill_missing<shape>(q, missing, tile);
    return {false, has_missing, all_special, has_unpredictable};
}

} // namespace cusz::cuda
