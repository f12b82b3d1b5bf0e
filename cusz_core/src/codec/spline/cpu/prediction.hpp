// Spline interpolation between the points of a coarser lattice (docs/format_v2.md, sections 4 to 6): what both
// directions share, and quantisation. All loops run over rows of half coordinates along the first active axis.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels.hpp"
#include "simd/lanes.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Calls use(c) for the classes of a phase that have points.
template <class T, class Use>
[[gnu::always_inline]] inline void for_classes(const SplineTile<T>& tile, std::uint32_t phase, const Use& use) {
    for (std::uint32_t c = 1; c < tile.classes(); ++c)
        if (static_cast<std::uint32_t>(std::popcount(c)) == phase && tile.box[c].points() > 0) use(c);
}

// Continues the rows of a class beyond the border of the lattice, along the axes in which it is even.
template <class T>
void continue_rows(const Lattice& lattice, SplineTile<T>& tile, std::uint32_t c) {
    const ClassBox& box = tile.box[c];
    for (std::uint32_t a = 0; a < tile.n_active; ++a) {
        if ((c >> a & 1) != 0 || tile.place.edge[a] == 1) continue; // a single position has no odd neighbour
        const std::uint64_t origin = tile.place.origin[a] / 2, extent = lattice.coarse_extent(a);
        const bool first = origin == 0, last = origin + box.n[a] + 2 > extent;
        if (!first && !last) continue;
        const std::size_t s = box.stride[a];
        const std::size_t end = static_cast<std::size_t>(extent - origin) + 1; // position of A(N)
        const bool even = lattice.extent[a] % 2 == 0;
        std::array<std::uint32_t, 4> others = box.padded;
        others[a] = 1;
        for_rows(others, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
            T* const row = tile.value + box.offset + y * box.stride[1] + z * box.stride[2] + w * box.stride[3];
            const auto continue_at = [&]<class Values>(T* at, Values) { // of one position, or of a vector
                const auto of = [=](std::size_t position) {
                    Values v;
                    std::memcpy(&v, at + position * s, sizeof v);
                    return v;
                };
                const auto put = [=](std::size_t position, Values v) { std::memcpy(at + position * s, &v, sizeof v); };
                if (first) put(0, 3 * (of(1) - of(2)) + of(3));
                if (!last) return;
                if (even) {
                    put(end, (of(end - 1) - of(end - 2)) + of(end - 1));
                    if (end + 1 < box.padded[a]) put(end + 1, (of(end) - of(end - 1)) + of(end));
                } else {
                    put(end, 3 * (of(end - 1) - of(end - 2)) + of(end - 3));
                }
            };
            if (a == 0) return continue_at(row, T{});
            using L = Lanes<T>; // what lies between rows is worked through, too
            for (std::uint32_t x = 0; x < box.padded[0]; x += L::n) continue_at(row + x, typename L::Values{});
        });
    }
}

// Class 0 of a tile and what lies around it.
template <class T>
void load_coarse(const Lattice& lattice, const LatticeArrays<T>& coarse, SplineTile<T>& tile) {
    const ClassBox& box = tile.box[0];
    // The positions of the box that the coarser lattice has, and where they are there.
    std::array<std::uint32_t, 4> first{}, n{};
    std::size_t offset = 0 - coarse.before;
    for (std::size_t a = 0; a < 4; ++a) {
        const std::uint64_t origin = tile.place.origin[a] / (lattice.is_active(a) ? 2 : 1);
        first[a] = origin == 0 ? box.margin[a] : 0;
        n[a] = static_cast<std::uint32_t>(
                   std::min<std::uint64_t>(box.padded[a], lattice.coarse_extent(a) - origin + box.margin[a])) -
               first[a];
        offset += static_cast<std::size_t>(origin + first[a] - box.margin[a]) * lattice.coarse_stride[a];
    }
    const auto& s = lattice.coarse_stride;
    Marks special{}, any{};
    for_rows(n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
        const std::size_t from = offset + y * s[1] + z * s[2] + w * s[3];
        T* to = tile.value + box.offset + first[0] + (y + first[1]) * box.stride[1] + (z + first[2]) * box.stride[2] +
                (w + first[3]) * box.stride[3];
        std::uint8_t* const m = tile.magnitude + (to - tile.value);
        if (s[0] == 1) { // arrays have room for a vector behind them
            __builtin_prefetch(coarse.magnitude + from + tile.later_coarse, 0, 2);
            for (std::size_t x = 0; x < n[0]; x += 64 / sizeof(T))
                __builtin_prefetch(coarse.value + from + x + tile.later_coarse, 0, 2);
            for (std::uint32_t x = 0; x < n[0]; x += lane_room) {
                std::memcpy(to + x, coarse.value + from + x, lane_room * sizeof(T));
                const Marks marks = load_marks(coarse.magnitude + from + x) & first_lanes(n[0] - x);
                store_marks(m + x, marks);
                any |= marks;
                special |= reinterpret_cast<Marks>(marks == v2::special_magnitude);
            }
        } else {
            for (std::uint32_t x = 0; x < n[0]; ++x) to[x] = coarse.value[from + x * s[0]];
            for (std::uint32_t x = 0; x < n[0]; ++x) {
                m[x] = coarse.magnitude[from + x * s[0]];
                any[0] |= m[x];
                special[0] |= m[x] == v2::special_magnitude;
            }
        }
    });
    const auto is_set = [](Marks marks) {
        std::uint64_t words[2];
        std::memcpy(words, &marks, sizeof marks);
        return (words[0] | words[1]) != 0;
    };
    tile.has_parents = is_set(any);
    tile.has_special_parents = is_set(special);
    continue_rows(lattice, tile, 0);
}

// P of section 6, in place of the magnitudes of class 0: saturating sums over three positions along each active axis,
// one after the other. The sum around half coordinate h is at position h. What lies between rows is worked through too.
template <class T>
void sum_parents(SplineTile<T>& tile) {
    using L = ByteLanes;
    if (!tile.has_parents) return;
    const ClassBox& box = tile.box[0];
    const std::size_t end = box.stride[3] * box.padded[3];
    std::uint8_t* const m = tile.magnitude + box.offset;
    for (std::uint32_t a = 0; a < tile.n_active; ++a) {
        const std::size_t step = box.stride[a];
        for (std::size_t at = 0; at + 2 * step < end; at += L::n)
            L::store(m + at, L::add_saturated(L::add_saturated(L::load(m + at), L::load(m + at + step)),
                                              L::load(m + at + 2 * step)));
    }
}

// Predictions, and their spreads S if wanted, of n times lane_room positions, each `step` after the one before. v0: for
// each odd axis the first of the four values that they are predicted from, which are `apart` from each other.
template <std::uint32_t n_odd, bool cubic, bool with_spread, class T>
void predict_run(const T* const (&v0)[3], const std::size_t (&apart)[3], std::size_t n, std::size_t step, T inv, T* out,
                 std::uint8_t* spread) {
    using L = Lanes<T>;
    using Values = typename L::Values;
    using Ints = typename L::Ints;
    using Int = typename L::Int;
    constexpr int mantissa_bits = sizeof(T) == 4 ? 23 : 52;
    constexpr Int exponent_mask = sizeof(T) == 4 ? 0xFF : 0x7FF, exponent_bias = sizeof(T) == 4 ? 127 : 1023;
    for (std::size_t i = 0, first = 0; i < n; ++i, first += step)
        for (std::size_t x = first; x < first + lane_room; x += L::n) {
            Values sum{}, low{}, high{};
            for (std::uint32_t o = 0; o < n_odd; ++o) {
                const T* const at = v0[o] + x;
                const auto a = L::template load<Values>(at), b = L::template load<Values>(at + apart[o]),
                           c = L::template load<Values>(at + 2 * apart[o]),
                           d = L::template load<Values>(at + 3 * apart[o]);
                const Values s = b + c;
                const Values curve = (s * T(9) - (a + d)) * T(0.0625), line = s * T(0.5);
                const Values chosen = cubic ? curve : line;
                sum = o == 0 ? chosen : sum + chosen;
                if constexpr (with_spread) {
                    if (o == 0) {
                        low = high = curve;
                    } else {
                        low = curve < low ? curve : low;
                        high = curve > high ? curve : high;
                    }
                    low = line < low ? line : low;
                    high = line > high ? line : high;
                }
            }
            if (n_odd == 2) sum *= T(0.5);
            if (n_odd == 3) sum *= T(1) / T(3);
            L::store(out + x, L::absolute(sum) <= std::numeric_limits<T>::max() ? sum : Values{});
            if constexpr (with_spread) {
                const Values width = (high - low) * inv;
                Ints bucket = (reinterpret_cast<Ints>(width) >> mantissa_bits & exponent_mask) - (exponent_bias - 3);
                bucket = bucket < 0 ? Ints{} : bucket;
                bucket = bucket > 7 ? Ints{} + 7 : bucket;
                L::store(spread + x, L::narrowed(bucket));
            }
        }
}

// Predicts class c, in the tile and beyond it where later phases look.
template <std::uint32_t n_odd, bool cubic, bool spread_wanted, class T>
void predict_rows(SplineTile<T>& tile, std::uint32_t c, T inv) {
    const ClassBox& box = tile.box[c];
    const bool odd_rows = (c & 1) != 0;
    std::array<std::uint32_t, 4> begin = box.margin, end{};
    for (std::size_t a = 0; a < 4; ++a) end[a] = begin[a] + box.n[a];
    // Rows that are even along themselves have positions before and behind the tile: all memory from the first row's
    // last neighbour on is worked through.
    const std::size_t chunks_of_row = (box.n[0] + lane_room - 1) / lane_room;
    const bool all_memory = !odd_rows || chunks_of_row > 1;
    const auto run = [&]<bool with_spread>(std::size_t row, std::uint32_t rows, std::bool_constant<with_spread>) {
        if (rows == 0) return;
        const std::size_t at = row + box.margin[0] - (odd_rows ? 0 : lane_room); // may be below 0, with an offset not
        const T* v0[3] = {};
        std::size_t apart[3] = {};
        for (std::uint32_t a = 0, o = 0; a < tile.n_active; ++a) {
            if ((c >> a & 1) == 0) continue;
            v0[o] = tile.value + (tile.box[c ^ 1u << a].offset + at);
            apart[o++] = box.stride[a];
        }
        const std::size_t n = all_memory ? rows * box.stride[1] / lane_room + (odd_rows ? 0 : 1) : rows;
        predict_run<n_odd, cubic, with_spread>(v0, apart, n, all_memory ? lane_room : box.stride[1], inv,
                                               tile.value + (box.offset + at), tile.scratch.spread + (box.offset + at));
    };
    for (std::uint32_t w = 0; w < box.padded[3]; ++w)
        for (std::uint32_t z = 0; z < box.padded[2]; ++z) {
            const std::size_t plane = z * box.stride[2] + w * box.stride[3];
            if (n_odd < 3 && !(w >= begin[3] && w < end[3] && z >= begin[2] && z < end[2])) {
                run(plane, box.padded[1], std::false_type{});
                continue;
            }
            if (n_odd < 3) run(plane, begin[1], std::false_type{});
            run(plane + begin[1] * box.stride[1], box.n[1], std::bool_constant<spread_wanted>{});
            if (n_odd < 3) run(plane + end[1] * box.stride[1], box.padded[1] - end[1], std::false_type{});
        }
}

template <bool cubic, bool with_spread, class T>
void predict_class(SplineTile<T>& tile, std::uint32_t c, T inv) {
    switch (std::popcount(c)) {
    case 1: return predict_rows<1, cubic, with_spread>(tile, c, inv);
    case 2: return predict_rows<2, cubic, with_spread>(tile, c, inv);
    default: return predict_rows<3, cubic, with_spread>(tile, c, inv);
    }
}

// Contexts of class c: S and N of section 6, as S * 16 + N. What lies between rows is worked through too.
template <Geometry geometry, class T>
[[gnu::always_inline]] inline void find_contexts(SplineTile<T>& tile, std::uint32_t c) {
    using L = ByteLanes;
    const ClassBox box = box_of<geometry>(tile, c);
    const std::uint8_t* touching[18]; // rows of earlier phases that touch the first row of this class
    std::uint32_t n_touching = 0;
    for (std::uint32_t removed = (c - 1) & c; removed > 0; removed = (removed - 1) & c)
        for (std::uint32_t up = removed;; up = (up - 1) & removed) {
            std::size_t at = tile.box[c ^ removed].first;
            for (std::uint32_t a = 0; a < 3; ++a) at += (up >> a & 1) * box.stride[a];
            touching[n_touching++] = tile.magnitude + at;
            if (up == 0) break;
        }
    const std::uint8_t* const parents = tile.magnitude + tile.box[0].offset;
    const std::size_t end_of_plane = (box.n[1] - 1) * box.stride[1] + box.n[0];
    for (std::uint32_t w = 0; w < box.n[3]; ++w)
        for (std::uint32_t z = 0; z < box.n[2]; ++z) {
            const std::size_t plane = z * box.stride[2] + w * box.stride[3];
            for (std::size_t at = plane; at < plane + end_of_plane; at += L::n) {
                typename L::Bytes q{};
                for (std::uint32_t i = 0; i < n_touching; ++i) q = L::add_saturated(q, L::load(touching[i] + at));
                const auto p = L::load(parents + at), both = L::add_saturated(p, q);
                typename L::Bytes activity{};
                for (int j = 0; j < 7; ++j) {
                    const auto least = static_cast<std::uint8_t>(1 << j); // named, as sanitizers see an int otherwise
                    activity -= reinterpret_cast<typename L::Bytes>(both >= least);
                }
                const auto special = reinterpret_cast<typename L::Bytes>((p == 255) | (q == 255));
                activity = (activity & ~special) | (special & 8);
                L::store(tile.scratch.context + box.first + at,
                         L::load(tile.scratch.spread + box.first + at) << 4 | activity);
            }
        }
}

// The sum of S + N of a group of n values with these places; 64 of them can be read.
[[gnu::always_inline]] inline std::uint32_t sum_of_places(const std::uint8_t* place, std::uint32_t n) {
    using L = ByteLanes;
    typename L::Bytes sums{};
    for (std::uint32_t x = 0; x < 64; x += L::n) {
        auto v = L::load(place + x);
        v = (v >> 4) + (v & 15);
        if (n < 64) v &= L::first(n > x ? n - x : 0);
        sums += v; // no more than 15 each
    }
    return L::sum(sums);
}

// lane_room codes, in as many vectors of the instruction set as they take: compilers take wider ones apart lane by
// lane.
struct Codes {
    typedef std::int32_t Part __attribute__((vector_size(Vector<float>::bytes)));
    static constexpr std::uint32_t of_part = Vector<float>::lanes, parts = lane_room / of_part;
    Part part[parts];

    static Codes load(const std::int32_t* at) {
        Codes v;
        std::memcpy(v.part, at, sizeof v.part);
        return v;
    }
    template <class Int> // of 32 bits
    void store(Int* at) const {
        static_assert(sizeof(Int) == 4);
        std::memcpy(at, part, sizeof part);
    }
};
// of(parts...) for all parts.
template <class Of, class... All>
[[gnu::always_inline]] inline Codes by_parts(const Of& of, const All&... all) {
    Codes v;
    for (std::uint32_t i = 0; i < Codes::parts; ++i) v.part[i] = of(all.part[i]...);
    return v;
}
// The lowest byte of each.
[[gnu::always_inline]] inline Marks narrowed(const Codes& v) {
#if defined(__AVX512F__)
    return __builtin_convertvector(v.part[0], Marks);
#elif defined(__AVX2__)
    const auto a = reinterpret_cast<__m256i>(v.part[0] & 255), b = reinterpret_cast<__m256i>(v.part[1] & 255);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
    return reinterpret_cast<Marks>(_mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
#elif defined(__SSE2__)
    const auto words = [&](std::size_t i) {
        return _mm_packs_epi32(reinterpret_cast<__m128i>(v.part[i] & 255),
                               reinterpret_cast<__m128i>(v.part[i + 1] & 255));
    };
    return reinterpret_cast<Marks>(_mm_packus_epi16(words(0), words(2)));
#else
    Marks to;
    for (std::uint32_t i = 0; i < lane_room; ++i)
        to[i] = static_cast<std::uint8_t>(v.part[i / Codes::of_part][i % Codes::of_part]);
    return to;
#endif
}
// Bytes as numbers.
[[gnu::always_inline]] inline Codes widened(Marks v) {
    Codes to;
#if defined(__AVX512F__)
    to.part[0] = __builtin_convertvector(v, Codes::Part);
#elif defined(__AVX2__)
    const auto bytes = reinterpret_cast<__m128i>(v);
    to.part[0] = reinterpret_cast<Codes::Part>(_mm256_cvtepu8_epi32(bytes));
    to.part[1] = reinterpret_cast<Codes::Part>(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)));
#else
    for (std::uint32_t i = 0; i < lane_room; ++i) to.part[i / Codes::of_part][i % Codes::of_part] = v[i];
#endif
    return to;
}
typedef float FloatsOfPart __attribute__((vector_size(sizeof(Codes::Part))));
[[gnu::always_inline]] inline Codes::Part bits_as_floats(Codes::Part v) {
    return reinterpret_cast<Codes::Part>(__builtin_convertvector(v, FloatsOfPart));
}

[[gnu::always_inline]] inline void keep_first(Codes& v, std::uint32_t n) { // the others become 0
    const auto counted = Lanes<float>::counted();
    for (std::uint32_t i = 0; i < Codes::parts; ++i)
        v.part[i] &= counted + static_cast<std::int32_t>(i * Codes::of_part) < static_cast<std::int32_t>(n);
}
[[gnu::always_inline]] inline Codes missing_among(const Codes& codes) { // all ones for them
    return by_parts([](auto v) { return Codes::Part(v == missing_code); }, codes);
}
[[gnu::always_inline]] inline Codes without(const Codes& some, const Codes& codes) { // 0 in their place
    return by_parts([](auto a, auto b) { return ~a & b; }, some, codes);
}
// Magnitudes of codes of a row without special values: their bits, at most 9, from the exponents of the codes as f32.
[[gnu::always_inline]] inline Marks magnitudes_of(const Codes& codes) {
    return narrowed(by_parts(
        [](auto code) {
            Codes::Part bits = (bits_as_floats(code) >> 23 & 0xFF) - 126;
            bits = bits < 0 ? Codes::Part{} : bits;
            return bits > 9 ? Codes::Part{} + 9 : bits;
        },
        codes));
}
inline std::uint8_t magnitude_of(std::int32_t code) {
    const auto bits = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(std::abs(code))));
    return static_cast<std::uint8_t>(std::min(bits, 9u));
}
// A code of -32 to 31 is kept as code + 32, and any other as not_direct.
inline constexpr std::uint8_t not_direct = 64;
[[gnu::always_inline]] inline Marks direct_of(const Codes& codes) {
    return narrowed(by_parts(
        [](auto code) {
            const Codes::Part shifted = code + 32;
            return (shifted & ~63) == 0 ? shifted : Codes::Part{} + not_direct;
        },
        codes));
}
// Magnitudes of codes that are kept so.
inline ByteLanes::Bytes magnitudes_of_direct(ByteLanes::Bytes direct) {
    using Bytes = ByteLanes::Bytes;
    const Bytes size = direct < 32 ? 32 - direct : direct - 32;
    Bytes bits{};
    for (int j = 0; j < 6; ++j) {
        const auto least = static_cast<std::uint8_t>(1 << j); // named, as sanitizers see an int otherwise
        bits -= reinterpret_cast<Bytes>(size >= least);
    }
    return bits;
}
// A bit for each of 64 symbols that is not a code kept so, nor, if there are missing values, their symbol.
template <bool with_missing>
std::uint64_t not_direct_bits(const std::uint8_t* symbol) {
    constexpr auto missing = static_cast<std::uint8_t>(v2::alphabet.missing());
    std::uint64_t bits = 0;
    for (std::uint32_t x = 0; x < 64; x += ByteLanes::n) {
        const auto v = ByteLanes::load(symbol + x);
        auto at_top = v | (v + v);
        if constexpr (with_missing) at_top &= reinterpret_cast<ByteLanes::Bytes>(v != missing);
        bits |= ByteLanes::highest_bits(at_top) << x;
    }
    return bits;
}

// Symbols and extra bits of codes (version 1's format, section 6): the exponent and the first two bits of the mantissa,
// as f32, say which of the four buckets of an octave a code is in.
struct SymbolsOfCodes {
    Marks symbol, bucket; // bucket: from 1 on, 0 for other codes; above that of the largest code for a special value
    Codes extra, extra_bits;

    explicit SymbolsOfCodes(const Codes& codes) {
        constexpr std::int32_t direct = static_cast<std::int32_t>(v2::alphabet.direct()), exponent = 127;
        Codes symbols, buckets;
        for (std::uint32_t i = 0; i < Codes::parts; ++i) {
            const Codes::Part code = codes.part[i], negative = code >> 31, m = code ^ negative,
                              bits = bits_as_floats(m);
            const Codes::Part in_bucket = m >= direct, number = (bits >> 21) - 4 * (exponent + default_r);
            symbols.part[i] = in_bucket ? 2 * direct + 2 * number - negative : code + direct;
            buckets.part[i] = (number + 1) & in_bucket;
            extra_bits.part[i] = ((bits >> 23) - (exponent + 2)) & in_bucket;
            extra.part[i] = code & ~((Codes::Part{} - 1) << extra_bits.part[i]);
        }
        symbol = narrowed(symbols);
        bucket = narrowed(buckets);
    }
};

// Quantises values by the vector.
template <class T>
class RowQuantiser {
    using L = Lanes<T>;

public:
    explicit RowQuantiser(const Quantiser<T>& q)
        : inv_(q.inv), step_(q.step), e_(q.e), special_(static_cast<typename L::Int>(q.special)) {}

    // Originals v, predicted in `value`, of which the first n count: codes, and what is reconstructed. Returns a bit
    // for each that is not simply coded: it has code 0, and its prediction stays.
    [[gnu::always_inline]] std::uint32_t quantise(typename L::Values v, T* value, std::int32_t* code,
                                                  std::uint32_t n) const {
        using Values = typename L::Values;
        using Ints = typename L::Ints;
        const Values p = L::template load<Values>(value);
        const Values t = (v - p) * inv_, k = (t + Traits<T>::rounder) - Traits<T>::rounder, back = p + k * step_;
        Ints fine = (L::absolute(t) <= T(v2::max_code)) & (L::absolute(v - back) < e_) &
                    (reinterpret_cast<Ints>(v) != special_);
        if (n < L::n) fine &= L::counted() < static_cast<typename L::Int>(n); // what follows the row stays as it is
        L::store(value, fine ? back : p);
        L::store(code, __builtin_convertvector(fine ? k : Values{}, typename L::Codes));
        const std::uint32_t all = n < L::n ? (1u << n) - 1 : (1u << L::n) - 1;
        return ~L::bits(fine) & all;
    }

    // Gives those of the originals v with a bit in `of` that are special their code (and any behind the row, where
    // nothing reads it). Returns a bit for each.
    std::uint32_t mark_special(typename L::Values v, std::int32_t* code, std::uint32_t of) const {
        const typename L::Ints is_special = reinterpret_cast<typename L::Ints>(v) == special_;
        const std::uint32_t bits = L::bits(is_special) & of;
        if (bits == 0) return 0;
        const auto codes = L::template load<typename L::Codes>(code);
        const auto is_missing = __builtin_convertvector(is_special, typename L::Codes);
        L::store(code, is_missing != 0 ? typename L::Codes{} + missing_code : codes);
        return bits;
    }

private:
    T inv_, step_, e_;
    typename L::Int special_;
};

} // namespace cusz::cpu::CUSZ_ISA
