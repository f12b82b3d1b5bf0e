// Spline interpolation of a tile from the next coarser lattice, contexts, quantisation and its reverse
// (docs/format_v2.md, sections 4 to 6). Each function is a stage that all threads of a tile go through; between
// stages there is a barrier. memory: FullMemory or AnyMemory.
#pragma once

#include "tile.cuh"

namespace cusz::cuda {

template <std::uint32_t c>
using ClassConstant = std::integral_constant<std::uint32_t, c>;

// Calls use(a, source) for the axes along which a class is odd: `source` is the class that it is predicted from there.
template <class C, class Use>
__device__ void for_odd_axes(C c, const Use& use) {
    if constexpr (std::is_same_v<C, std::uint32_t>) {
#pragma unroll
        for (std::uint32_t a = 0; a < max_active_axes; ++a)
            if ((c >> a & 1) != 0) use(a, c ^ 1u << a);
    } else {
        if constexpr ((C::value & 1) != 0) use(ClassConstant<0>{}, ClassConstant<(C::value ^ 1)>{});
        if constexpr ((C::value & 2) != 0) use(ClassConstant<1>{}, ClassConstant<(C::value ^ 2)>{});
        if constexpr ((C::value & 4) != 0) use(ClassConstant<2>{}, ClassConstant<(C::value ^ 4)>{});
    }
}

// Of the coarser lattice's magnitudes: strides between them.
template <class T, TileShape shape>
__device__ constexpr std::uint32_t parent_stride(const FullMemory<T, shape>&, std::uint32_t a) {
    return FullMemory<T, shape>::stride_of_parents(a);
}
template <class T>
__device__ std::uint32_t parent_stride(const AnyMemory<T>& memory, std::uint32_t a) {
    const AnyTile& g = memory.geometry();
    std::uint32_t stride = 1;
    for (std::uint32_t b = 0; b < a; ++b) stride *= g.n(0, b) + (g.is_active(b) ? 2 : 0);
    return stride;
}

// Whether the coarser lattice has a position of class 0 along an axis.
template <class T>
__device__ bool is_in_coarse(const TilePlace<T>& place, std::uint32_t a, std::uint32_t at) {
    return at >= place.begin[a] && at < place.end[a];
}

// Loads class 0 and what is around it, and the magnitudes that the coarser lattice has there. Of a full tile, threads
// take positions of the first plane, and each through all planes.
template <class T, TileShape shape>
__device__ void load_coarse(const TilePlace<T>& place, FullMemory<T, shape>& memory) {
    using G = FullTile<T, shape>;
    const DeviceLattice<T>& lattice = *place.lattice;
    constexpr std::uint32_t begin = G::begin(0), row = G::padded(0, 0), rows = G::padded(0, 1),
                            planes = G::padded(0, 2), plane = row * rows;
    const std::uint64_t step = lattice.coarse_stride[0], step_y = G::n_active > 1 ? lattice.coarse_stride[1] : 0,
                        step_z = G::n_active > 2 ? lattice.coarse_stride[2] : 0;
    const std::uint64_t first = place.coarse - step - step_y - step_z;
    const std::uint32_t z_inside = // by bit
        planes == 1 ? 1 : (1u << std::min(place.end[2], +planes)) - (1u << place.begin[2]);
    for (std::uint32_t i = fresh_tile_thread(); i < plane; i += tile_threads) {
        const std::uint32_t x = i % row, y = i / row;
        const bool inside = is_in_coarse(place, 0, x) && (rows == 1 || is_in_coarse(place, 1, y)),
                   has_magnitude = x < G::n(0) + 2 && (rows == 1 || y < G::n(1) + 2);
        const std::uint32_t here = inside ? z_inside : 0,
                            to_magnitude = x * parent_stride(memory, 0) + y * parent_stride(memory, 1);
        const auto load = [&](auto all_inside) {
            const T* value = lattice.coarse_value + (first + x * step + y * step_y);
#pragma unroll
            for (std::uint32_t z = 0; z < planes; ++z, value += step_z)
                memory.value(begin + i + z * plane) = all_inside || (here >> z & 1) != 0 ? *value : T{0};
            if (!has_magnitude) return;
            const std::uint8_t* magnitude = lattice.coarse_magnitude + (first + x * step + y * step_y);
#pragma unroll
            for (std::uint32_t z = 0; z < (planes == 1 ? 1 : G::n(2) + 2); ++z, magnitude += step_z)
                memory.parent_magnitude(to_magnitude + z * parent_stride(memory, 2)) =
                    all_inside || (here >> z & 1) != 0 ? *magnitude : std::uint8_t{0};
        };
        if (here == (1u << planes) - 1)
            load(std::true_type{});
        else
            load(std::false_type{});
    }
}
template <class T>
__device__ void load_coarse(const TilePlace<T>& place, AnyMemory<T>& memory) {
    const AnyTile& g = memory.geometry();
    const DeviceLattice<T>& lattice = *place.lattice;
    for (std::uint32_t i = tile_thread(); i < g.positions(0); i += tile_threads) {
        std::uint32_t rest = i, at_magnitude = 0;
        std::uint64_t offset = place.coarse;
        bool inside = true, has_magnitude = true;
        for (std::uint32_t a = 0; a < 4; ++a) {
            const std::uint32_t here = rest % g.padded(0, a);
            rest /= g.padded(0, a);
            inside = inside && is_in_coarse(place, a, here);
            offset += (std::uint64_t{here} - (g.is_active(a) ? 1 : 0)) * lattice.coarse_stride[a];
            has_magnitude = has_magnitude && here < g.n(0, a) + (g.is_active(a) ? 2 : 0);
            at_magnitude += here * parent_stride(memory, a);
        }
        memory.value(g.begin(0) + i) = inside ? lattice.coarse_value[offset] : T{0};
        if (has_magnitude)
            memory.parent_magnitude(at_magnitude) = inside ? lattice.coarse_magnitude[offset] : std::uint8_t{0};
    }
}

// P of section 6 for one point of class 0; first: of the magnitudes around it.
template <class Memory>
__device__ std::uint32_t parents_around(Memory& memory, std::uint32_t first) {
    const auto& g = memory.geometry();
    std::uint32_t sum = 0;
    for (std::uint32_t z = 0; z < (g.is_active(2) ? 3 : 1); ++z)
        for (std::uint32_t y = 0; y < (g.is_active(1) ? 3 : 1); ++y)
            for (std::uint32_t x = 0; x < 3; ++x)
                sum += memory.parent_magnitude(first + x * parent_stride(memory, 0) + y * parent_stride(memory, 1) +
                                               z * parent_stride(memory, 2));
    return std::min(sum, +special_magnitude);
}

// Whether one of four magnitudes, or sums of some, is special_magnitude.
__device__ inline bool has_special(std::uint32_t magnitudes) { return (magnitudes & 0x80808080) != 0; }

// P for all points, from the magnitudes that load_coarse has left. Four at a time: sums stay below a byte, unless there
// are special values.
template <class T, TileShape shape>
__device__ void sum_parents(FullMemory<T, shape>& memory) {
    using Memory = FullMemory<T, shape>;
    using G = typename Memory::Geometry;
    constexpr std::uint32_t quads = G::n(G::last_axis) / 4, columns_x = G::n_active > 1 ? G::n(0) : 1;
    for (std::uint32_t i = tile_thread(); i < G::class_points / 4; i += tile_threads) {
        std::uint32_t first = i % quads * 4;
        if constexpr (G::n_active > 1) first += i / quads % columns_x * Memory::stride_of_parents(0);
        if constexpr (G::n_active > 2) first += i / (quads * columns_x) * Memory::stride_of_parents(1);
        const auto* const from = reinterpret_cast<const std::uint32_t*>(&memory.parent_magnitude(first));
        std::uint32_t low = 0, high = 0, any_low = 0, any_high = 0; // of six in a row
#pragma unroll
        for (std::uint32_t dy = 0; dy < (G::n_active > 2 ? 3 : 1); ++dy)
#pragma unroll
            for (std::uint32_t dx = 0; dx < (G::n_active > 1 ? 3 : 1); ++dx) {
                const std::uint32_t at = (dx * (G::n_active > 1 ? Memory::stride_of_parents(0) : 0) +
                                          dy * (G::n_active > 2 ? Memory::stride_of_parents(1) : 0)) /
                                         4;
                const std::uint32_t a = from[at], b = from[at + 1];
                low += a;
                high += b;
                any_low |= a;
                any_high |= b;
            }
        std::uint32_t sums = low + (low >> 8 | high << 24) + (low >> 16 | high << 16);
        if (has_special(any_low | (any_high & 0xFFFF))) {
            sums = 0;
            for (std::uint32_t k = 0; k < 4; ++k) sums |= parents_around(memory, first + k) << 8 * k;
        }
        *reinterpret_cast<std::uint32_t*>(&memory.parent_sums[4 * i]) = sums;
    }
}
template <class T>
__device__ void sum_parents(AnyMemory<T>& memory) {
    const AnyTile& g = memory.geometry();
    g.for_points(0, [&](const Point& p, std::uint32_t) {
        std::uint32_t first = 0;
        for (std::uint32_t a = 0; a < 4; ++a) first += p.x[a] * parent_stride(memory, a);
        memory.parents(parent_position(g, p)) = static_cast<std::uint8_t>(parents_around(memory, first));
    });
}

// Calls use(point, value, special) for the points of class 0.
template <class T, class Memory, class Use>
__device__ void for_coarse_points(const TilePlace<T>&, Memory& memory, const Use& use) {
    const auto& g = memory.geometry();
    constexpr ClassConstant<0> c;
    g.for_points(c, [&](const Point& p, std::uint32_t k) {
        std::uint32_t at = 0;
#pragma unroll
        for (std::uint32_t a = 0; a < 4; ++a) at += (p.x[a] + (g.is_active(a) ? 1 : 0)) * parent_stride(memory, a);
        use(p, k, memory.value(position(g, c, p)), memory.parent_magnitude(at) == special_magnitude);
    });
}

// Continues the rows of class c beyond the border of the lattice along axis a, in which it is even. a: a constant.
template <class T, class Memory, class C, class Axis>
__device__ void continue_rows(const TilePlace<T>& place, Memory& memory, C c, Axis a) {
    const auto& g = memory.geometry();
    if ((c >> a & 1) != 0) return;
    const bool low = (place.low >> a & 1) != 0, high = (place.high >> a & 1) != 0;
    if (!low && !high) return;
    const DeviceLattice<T>& lattice = *place.lattice;
    const std::uint64_t extent = lattice.extent[a];
    const bool even = extent % 2 == 0;
    const std::uint32_t s = g.stride(c, a), size = g.padded(c, a), begin = g.begin(c);
    const auto end = static_cast<std::uint32_t>((extent + 1) / 2 - place.origin[a] / 2) + 1; // position of A(N)
    for (std::uint32_t i = tile_thread(); i < g.positions(c) / size; i += tile_threads) {
        const std::uint32_t row = begin + i % s + i / s * (s * size); // s: positions of the axes before a
        const auto at = [&](std::uint32_t j) -> T& { return memory.value(row + j * s); };
        if (low) at(0) = T{3} * (at(1) - at(2)) + at(3);
        if (!high) continue;
        if (even) {
            at(end) = (at(end - 1) - at(end - 2)) + at(end - 1);
            if (end + 1 < size) at(end + 1) = (at(end) - at(end - 1)) + at(end);
        } else {
            at(end) = T{3} * (at(end - 1) - at(end - 2)) + at(end - 3);
        }
    }
}

// The rows of all classes of a phase.
template <class T, class Memory, class Axis>
__device__ void continue_phase_along(const TilePlace<T>& place, Memory& memory, std::uint32_t phase, Axis a) {
    if (phase == 0)
        continue_rows(place, memory, ClassConstant<0>{}, a);
    else
        memory.geometry().for_classes(phase, [&](auto c) { continue_rows(place, memory, c, a); });
}
// Calls use(a) for the axes, each a constant, that have a bit in `axes`.
template <class Use>
__device__ void for_axes(std::uint32_t axes, const Use& use) {
    if ((axes & 1) != 0) use(ClassConstant<0>{});
    if ((axes & 2) != 0) use(ClassConstant<1>{});
    if ((axes & 4) != 0) use(ClassConstant<2>{});
}

// Of two numbers, at most one of them NaN, which does not count.
__device__ inline float least(float a, float b) { return ::fminf(a, b); }
__device__ inline double least(double a, double b) { return ::fmin(a, b); }
__device__ inline float largest(float a, float b) { return ::fmaxf(a, b); }
__device__ inline double largest(double a, double b) { return ::fmax(a, b); }

// Where the values are that a class is predicted from at a position: by the axis that it is odd along, but the class
// that they are of is not.
template <class T>
struct Sources {
    const T* at[max_active_axes];
};
template <class T, class Memory, class C>
__device__ Sources<T> sources_at(Memory& memory, C c, const int (&x)[4]) {
    const auto& g = memory.geometry();
    Sources<T> sources{};
    for_odd_axes(
        c, [&](auto a, auto source) { sources.at[a] = &memory.value(position(g, source, x[0], x[1], x[2], x[3])); });
    return sources;
}

// The prediction at a position so many steps along an axis from that of `sources`, and S if wanted; not limited to what
// T can be.
template <bool with_spread, class T, class G, class C>
__device__ T predict(const G& g, C c, const Sources<T>& sources, std::uint32_t axis, int ahead, bool cubic, T inv,
                     std::uint32_t& spread) {
    T sum{}, low{}, high{}, first{};
    std::uint32_t n_odd = 0;
    for_odd_axes(c, [&](auto a, auto source) {
        const T* const at = sources.at[a] + ahead * static_cast<int>(g.stride(source, axis));
        const auto s = static_cast<int>(g.stride(source, a));
        const T v0 = at[-s], v1 = at[0], v2 = at[s], v3 = at[2 * s];
        const T s12 = v1 + v2;
        const T curve = (s12 * T(9) - (v0 + v3)) * T(0.0625), line = s12 * T(0.5);
        const T chosen = cubic ? curve : line;
        sum = n_odd == 0 ? chosen : sum + chosen;
        if constexpr (with_spread) {
            if (n_odd == 0) {
                first = curve;
                low = high = line;
            } else {
                low = least(least(low, curve), line);
                high = largest(largest(high, curve), line);
            }
        }
        ++n_odd;
    });
    if (n_odd == 2) sum *= T(0.5);
    if (n_odd == 3) sum *= T(1) / T(3);
    if constexpr (with_spread) {
        constexpr int mantissa_bits = sizeof(T) == 4 ? 23 : 52;
        constexpr std::int32_t bias = sizeof(T) == 4 ? 127 : 1023;
        // Of the first curve alone NaN counts; a line is never NaN, as values are finite.
        T width;
        if (n_odd == 1) {
            width = magnitude(first - low) * inv;
        } else {
            low = least(low, first);
            high = first <= high ? high : first;
            width = (high - low) * inv;
        }
        // Only a NaN has a sign, and is the largest with or without it.
        const auto exponent = static_cast<std::int32_t>(bits_of(width) >> mantissa_bits);
        spread = static_cast<std::uint32_t>(std::min(std::max(exponent - (bias - 3), 0), 7));
    }
    return sum;
}
template <class T>
__device__ T limited(T predicted) {
    return magnitude(predicted) <= std::numeric_limits<T>::max() ? predicted : T{0};
}
// Whether all are below the limits: where one is not finite, their sum is not either.
template <class T, std::uint32_t n>
__device__ bool within_limits(const T (&predicted)[n]) {
    T sum = predicted[0];
#pragma unroll
    for (std::uint32_t k = 1; k < n; ++k) sum += predicted[k];
    return magnitude(sum) <= std::numeric_limits<T>::max();
}
// Puts predictions into memory, at these places from `to` on.
template <class T, std::uint32_t n>
__device__ void put_limited(T* to, const int (&at)[n], const T (&predicted)[n]) {
#pragma unroll
    for (std::uint32_t k = 0; k < n; ++k) to[at[k]] = predicted[k];
    if (within_limits(predicted)) return;
#pragma unroll
    for (std::uint32_t k = 0; k < n; ++k) to[at[k]] = limited(predicted[k]);
}
// Of a point of a tile of any shape.
template <bool with_spread, class T, class C, class Memory>
__device__ T predict(Memory& memory, C c, const Point& p, bool cubic, T inv, std::uint32_t& spread) {
    const int x[4] = {static_cast<int>(p.x[0]), static_cast<int>(p.x[1]), static_cast<int>(p.x[2]),
                      static_cast<int>(p.x[3])};
    return limited(predict<with_spread>(memory.geometry(), c, sources_at<T>(memory, c, x), 0, 0, cubic, inv, spread));
}
// Of a full tile's points along the last axis; not limited.
template <class T, TileShape shape, class C, class Cubic, std::uint32_t n>
__device__ void predict_column(FullMemory<T, shape>& memory, C c, const Point& first, Cubic cubic, T inv,
                               T (&predicted)[n], std::uint32_t (&spread)[n]) {
    using G = FullTile<T, shape>;
    const int x[4] = {static_cast<int>(first.x[0]), static_cast<int>(first.x[1]), static_cast<int>(first.x[2]), 0};
    const auto sources = sources_at<T>(memory, c, x);
#pragma unroll
    for (std::uint32_t k = 0; k < n; ++k)
        predicted[k] =
            predict<true>(G{}, c, sources, G::last_axis, static_cast<int>(k * G::apart), cubic, inv, spread[k]);
}

// u of a class around the tile.
template <class T, class Memory, class C, class Cubic>
__device__ void predict_margin(const TilePlace<T>&, Memory& memory, C c, Cubic cubic) {
    const auto& g = memory.geometry();
    using G = std::remove_cvref_t<decltype(g)>;
    std::uint32_t spread;
    if constexpr (G::known) {
        const auto predict_all = [&](auto is_cubic) {
            g.for_margin(c, [&]<std::size_t n>(const int (&x)[4], auto axis, const int (&ahead)[n]) {
                const auto sources = sources_at<T>(memory, c, x);
                T predicted[n];
                int at[n];
#pragma unroll
                for (std::uint32_t k = 0; k < n; ++k) {
                    predicted[k] = predict<false>(g, c, sources, axis, ahead[k], is_cubic, T{0}, spread);
                    at[k] = ahead[k] * static_cast<int>(G::stride(c, axis));
                }
                put_limited(&memory.value(position(g, c, x[0], x[1], x[2], x[3])), at, predicted);
            });
        };
        if (cubic)
            predict_all(std::true_type{});
        else
            predict_all(std::false_type{});
    } else {
        g.for_margin(c, [&](const int (&x)[4]) {
            memory.value(position(g, c, x[0], x[1], x[2], x[3])) =
                limited(predict<false>(g, c, sources_at<T>(memory, c, x), 0, 0, cubic, T{0}, spread));
        });
    }
}

// Q of section 6.
template <class Memory, class C>
__device__ std::uint32_t sum_of_earlier_phases(Memory& memory, C c, const Point& p) {
    const auto& g = memory.geometry();
    std::uint32_t sum = 0;
    for (std::uint32_t source = (c - 1) & c; source > 0; source = (source - 1) & c) {
        const std::uint32_t removed = c ^ source;
        for (std::uint32_t up = removed;; up = (up - 1) & removed) {
            Point other = p;
            bool inside = true;
            for (std::uint32_t a = 0; a < max_active_axes; ++a)
                if ((up >> a & 1) != 0) inside = inside && ++other.x[a] < g.n(source, a);
            if (inside) sum += memory.magnitude(magnitude_position(g, source, other));
            if (up == 0) break;
        }
    }
    return sum;
}

// N of section 6.
__device__ inline std::uint32_t activity_of_sum(std::uint32_t sum) {
    return std::min(32 - static_cast<std::uint32_t>(__clz(static_cast<int>(sum))), 7u);
}
__device__ inline std::uint32_t activity(std::uint32_t parents, std::uint32_t earlier) {
    return std::max(parents, earlier) >= special_magnitude ? 8 : activity_of_sum(parents + earlier);
}
template <class T>
__device__ std::uint32_t activity(AnyMemory<T>& memory, std::uint32_t c, const Point& p) {
    return activity(memory.parents(parent_position(memory.geometry(), p)), sum_of_earlier_phases(memory, c, p));
}

// Of four points of a full tile along its last axis: Q, as bytes.
template <class T, TileShape shape, class C>
__device__ std::uint32_t sums_of_earlier_phases(FullMemory<T, shape>& memory, C, const Point& first) {
    using G = FullTile<T, shape>;
    constexpr std::uint32_t c = C::value, along_last = 1u << G::last_axis;
    std::uint32_t sum = 0, any = 0;
    const auto add = [&]<std::uint32_t source>(ClassConstant<source> constant) { // what touches points of this class
        if constexpr (source != c && (source & ~c) == 0) {
            constexpr std::uint32_t removed = c ^ source;
            const std::uint8_t* const at = &memory.magnitude(magnitude_position(G{}, constant, first));
#pragma unroll
            for (std::uint32_t up = 0; up < along_last; ++up) {
                if ((up & ~removed) != 0) continue;
                std::uint32_t beside = 0; // what is not in the tile is 0
                for (std::uint32_t a = 0; a < G::last_axis; ++a)
                    beside += (up >> a & 1) * G::magnitude_stride(source, a);
                const auto* const from = reinterpret_cast<const std::uint32_t*>(at + beside);
                sum += from[0];
                any |= from[0];
                if constexpr ((removed & along_last) != 0) {
                    const std::uint32_t next = G::column == 4 ? 0 : from[1];
                    sum += from[0] >> 8 | next << 24;
                    any |= next << 24;
                }
            }
        }
    };
    add(ClassConstant<1>{});
    add(ClassConstant<2>{});
    add(ClassConstant<3>{});
    add(ClassConstant<4>{});
    add(ClassConstant<5>{});
    add(ClassConstant<6>{});
    if (!has_special(any)) return sum;
    sum = 0;
#pragma unroll 1
    for (std::uint32_t k = 0; k < 4; ++k) {
        Point p = first;
        p.x[G::last_axis] += k;
        sum |= std::min(sum_of_earlier_phases(memory, c, p), +special_magnitude) << 8 * k;
    }
    return sum;
}
// N of a column.
template <class T, TileShape shape, class C, std::uint32_t n>
__device__ void activities(FullMemory<T, shape>& memory, C c, const Point& first, std::uint32_t (&active)[n]) {
    using G = FullTile<T, shape>;
    const std::uint32_t at = parent_position(G{}, first);
    if constexpr (G::n_active == 1) {
#pragma unroll
        for (std::uint32_t k = 0; k < n; ++k) active[k] = activity(memory.parents(at + k * G::apart), 0);
    } else {
#pragma unroll
        for (std::uint32_t j = 0; j < n; j += 4) {
            const std::uint32_t parents = *reinterpret_cast<const std::uint32_t*>(&memory.parent_sums[at + j]),
                                earlier = sums_of_earlier_phases(memory, c, G::in_column(first, j));
            if (has_special(parents | earlier)) { // or the sums might not be bytes
#pragma unroll
                for (std::uint32_t k = 0; k < 4; ++k)
                    active[j + k] = activity(parents >> 8 * k & 255, earlier >> 8 * k & 255);
                continue;
            }
            const std::uint32_t sums = parents + earlier;
#pragma unroll
            for (std::uint32_t k = 0; k < 4; ++k) active[j + k] = activity_of_sum(sums >> 8 * k & 255);
        }
    }
}
// Keeps the magnitudes of a column. from_zeros: given are numbers of leading zeros.
template <bool from_zeros, class T, TileShape shape, class C, std::uint32_t n>
__device__ void put_magnitudes(FullMemory<T, shape>& memory, C c, const Point& first,
                               const std::uint32_t (&magnitude)[n]) {
    using G = FullTile<T, shape>;
    const std::uint32_t at = magnitude_position(G{}, c, first);
    if constexpr (G::n_active == 1) {
        for (std::uint32_t k = 0; k < n; ++k)
            memory.magnitude(at + k * G::apart) =
                static_cast<std::uint8_t>(from_zeros ? 32 - magnitude[k] : magnitude[k]);
    } else {
        auto* const to = reinterpret_cast<std::uint32_t*>(&memory.magnitudes[at]);
#pragma unroll
        for (std::uint32_t j = 0; j < n; j += 4) {
            const std::uint32_t four = four_bytes(magnitude[j], magnitude[j + 1], magnitude[j + 2], magnitude[j + 3]);
            to[j / 4] = from_zeros ? 0x20202020 - four : four;
        }
    }
}

__device__ inline std::uint32_t size_of_code(std::int32_t code) {
#ifdef __CUDA_ARCH__ // of a byte less a constant, the compiler would make a comparison of it
    asm("abs.s32 %0, %1;" : "=r"(code) : "r"(code));
    return static_cast<std::uint32_t>(code);
#else
    return static_cast<std::uint32_t>(code < 0 ? -code : code);
#endif
}
__device__ inline std::uint32_t magnitude_of(std::int32_t code) {
    return std::min(32 - static_cast<std::uint32_t>(__clz(static_cast<int>(size_of_code(code)))), 9u);
}

// ---- Quantisation (section 5)

template <class T>
inline constexpr T largest_spline_code = T(v2::max_code);

// A value against its prediction: a code, missing_code for a special value; and what is predicted from.
template <class T>
struct Coded {
    T value;
    std::int32_t code;
    bool verbatim;
};

template <class T>
__device__ Coded<T> as_it_is(T d, T p, const Quantiser<T>& q) {
    if (bits_of(d) == q.special) return {p, missing_code, false};
    return {magnitude(d) <= std::numeric_limits<T>::max() ? d : p, 0, true};
}

// Whether a value is coded, and the error of what it is coded as is less than e; if not, `otherwise` tells.
template <class T>
__device__ bool quantise(T d, T p, const Quantiser<T>& q, T& value, std::int32_t& code) {
    constexpr T rounder = Traits<T>::rounder;
    const T t = (d - p) * q.inv, shifted = t + rounder;
    value = p + (shifted - rounder) * q.step;
    code = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits_of(shifted) - bits_of(rounder)));
    return magnitude(t) <= largest_spline_code<T> && magnitude(d - value) < q.e && bits_of(d) != q.special;
}
// value, code: as quantise() has left them.
template <class T>
__device__ Coded<T> otherwise(T d, T p, const Quantiser<T>& q, T value, std::int32_t code) {
    const T t = (d - p) * q.inv, r = d - value;
    if (bits_of(d) != q.special && magnitude(t) <= largest_spline_code<T> && magnitude(r) == q.e) {
        // The error of the subtraction says on which side of e the exact difference is.
        const T b = r - d, error = (d - (r - b)) + (-value - b);
        if (r > T{0} ? error <= T{0} : error >= T{0}) return {value, code, false};
    }
    return as_it_is(d, p, q);
}

template <class T>
__device__ T reconstruct(T p, std::int32_t code, const Quantiser<T>& q) {
    return p + static_cast<T>(code) * q.step;
}

} // namespace cusz::cuda
