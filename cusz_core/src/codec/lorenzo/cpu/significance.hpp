// Significance masks: small boxes of a tile whose codes are all 0 cost one bit each (format.md, sections 3 and 6).
// That is less than one bit per value, the minimum for Huffman codes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "rows.hpp"
#include "simd/isa.hpp"
#include "simd/vector.hpp"
#include "substreams.hpp"
#include "tile.hpp"

namespace cusz::cpu::CUSZ_ISA {

using Edges = std::array<std::uint32_t, 4>;

// Which values of a tile are coded: those of significant groups or, if `fine`, those of significant subgroups in them.
struct Significance {
    std::uint64_t mask = 0; // bit g: group g has a nonzero code
    std::uint32_t total = 0;
    bool fine = false;
    std::uint8_t
        significant[max_tile_values + 8]; // 1: significant; for subgroups if `fine`, else for groups; read in eights

    std::uint32_t zero() const { return total - static_cast<std::uint32_t>(std::popcount(mask)); }
    std::uint32_t words() const { return total > 32 ? 2 : 1; }
    const Edges& edges(const Tiling& tiling) const { return fine ? tiling.subgroup() : tiling.group(); }
    void spread_mask() {
        for (std::uint32_t g = 0; g < total; ++g) significant[g] = static_cast<std::uint8_t>(mask >> g & 1);
    }
};

// Calls use(edge) with the edge of groups along x, as a constant if it is a common one.
template <class Use>
void with_group_edge(std::uint32_t edge, const Use& use) {
    switch (edge) {
    case 2: return use(std::integral_constant<std::uint32_t, 2>{});
    case 4: return use(std::integral_constant<std::uint32_t, 4>{});
    case 8: return use(std::integral_constant<std::uint32_t, 8>{});
    default: return use(edge);
    }
}

// Visits the rows of a tile: use(position of the first value, number of the first group (or subgroup) that the row
// crosses).
template <class Use>
void for_each_row_of_groups(const TileBox& box, const Edges& group, const Use& use) {
    const Groups groups(box.edge, group);
    std::uint32_t at = 0;
    for (std::uint32_t w = 0; w < box.edge[3]; ++w)
        for (std::uint32_t z = 0; z < box.edge[2]; ++z) {
            std::uint32_t number = (w / group[3] * groups.count[2] + z / group[2]) * groups.count[1] * groups.count[0];
            for (std::uint32_t y = 0; y < box.edge[1]; y += group[1], number += groups.count[0])
                for (std::uint32_t rows = std::min(group[1], box.edge[1] - y); rows > 0; --rows, at += box.edge[0])
                    use(at, number);
        }
}

// Visits every row of subgroups within a group, by ascending number: use(group, number of the first subgroup, count).
template <class Use>
void for_each_row_of_subgroups(const TileBox& box, const Tiling& tiling, const Use& use) {
    const Edges &group = tiling.group(), &sub = tiling.subgroup();
    const Groups groups(box.edge, group);
    std::uint32_t number = 0;
    for (std::uint32_t w = 0; w < box.edge[3]; w += sub[3])
        for (std::uint32_t z = 0; z < box.edge[2]; z += sub[2])
            for (std::uint32_t y = 0; y < box.edge[1]; y += sub[1]) {
                std::uint32_t g = ((w / group[3] * groups.count[2] + z / group[2]) * groups.count[1] + y / group[1]) *
                                  groups.count[0];
                for (std::uint32_t begin = 0; begin < box.edge[0]; begin += group[0], ++g) {
                    const std::uint32_t length = std::min(group[0], box.edge[0] - begin);
                    const std::uint32_t count = (length + sub[0] - 1) / sub[0];
                    use(g, number, count);
                    number += count;
                }
            }
}

// Whether no group (or subgroup) is clipped.
inline bool is_whole(const TileBox& box, const Edges& group) {
    bool whole = true;
    for (std::size_t a = 0; a < 4; ++a) whole = whole && box.edge[a] % group[a] == 0;
    return whole;
}

// One bit per code, in tile order: whether it is nonzero.
class NonZeros {
public:
    NonZeros(const std::int32_t* code, std::uint32_t n) : n_(n) { // code: readable for 63 more elements
        const std::uint32_t n_words = (n + 63) / 64;
        for (std::uint32_t i = 0; i < n_words; ++i) words_[i] = nonzero_bits(code + 64 * i);
        if (n % 64 != 0) words_[n_words - 1] &= below(n % 64);
        words_[n_words] = 0;
    }
    // The bits of `length` codes, at most 64, from `first` on.
    template <bool at_a_byte> // whether `first` is known to be a multiple of 8
    std::uint64_t at(std::uint32_t first, std::uint32_t length) const {
        if constexpr (at_a_byte) {
            std::uint64_t bits;
            std::memcpy(&bits, reinterpret_cast<const char*>(words_) + first / 8, 8);
            return bits & below(length);
        }
        const std::uint32_t shift = first % 64;
        const std::uint64_t* const word = words_ + first / 64;
        return (word[0] >> shift | word[1] << 1 << (63 - shift)) & below(length);
    }
    // Number of adjacent pairs of zeros, the first at an even position.
    std::uint32_t zero_pairs() const {
        std::uint32_t pairs = 0;
        for (std::uint32_t first = 0; first + 1 < n_; first += 64) {
            const std::uint64_t word = words_[first / 64];
            pairs += static_cast<std::uint32_t>(
                std::popcount(~(word | word >> 1) & 0x5555555555555555u & below(std::min(n_ - 1 - first, 64u))));
        }
        return pairs;
    }
    static std::uint64_t below(std::uint32_t length) {
        return length >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << length) - 1;
    }

private:
    std::uint32_t n_;
    std::uint64_t words_[max_tile_values / 64 + 1];
};

// Visits every group (or subgroup) by ascending number: use(whether it has a nonzero code, number of its values).
template <class Length, class Edge, class Use>
void for_each_group(const NonZeros& nonzeros, const TileBox& box, const Edges& group, Length n, Edge edge,
                    const Use& use) {
    const auto [y_stride, z_stride, w_stride] =
        std::array{std::uint32_t{n}, n * box.edge[1], n * box.edge[1] * box.edge[2]};
    for (std::uint32_t w = 0; w < box.edge[3]; w += group[3])
        for (std::uint32_t z = 0; z < box.edge[2]; z += group[2])
            for (std::uint32_t y = 0; y < box.edge[1]; y += group[1]) {
                const std::uint32_t w_end = std::min(w + group[3], box.edge[3]),
                                    z_end = std::min(z + group[2], box.edge[2]),
                                    y_end = std::min(y + group[1], box.edge[1]);
                const std::uint32_t rows = (w_end - w) * (z_end - z) * (y_end - y);
                // Combines all rows, up to 64 values along x at a time; then goes group by group.
                for (std::uint32_t begin = 0; begin < n; begin += 64) {
                    const std::uint32_t length = std::min<std::uint32_t>(64, n - begin);
                    std::uint64_t any = 0;
                    for (std::uint32_t ww = w; ww < w_end; ++ww)
                        for (std::uint32_t zz = z; zz < z_end; ++zz)
                            for (std::uint32_t yy = y; yy < y_end; ++yy)
                                any |= nonzeros.at<!std::is_same_v<Length, std::uint32_t>>(
                                    ww * w_stride + zz * z_stride + yy * y_stride + begin, length);
                    for (std::uint32_t x = 0; x < length; x += edge) {
                        const std::uint32_t values = std::min<std::uint32_t>(edge, length - x);
                        use((any >> x & NonZeros::below(values)) != 0, rows * values);
                    }
                }
            }
}

template <class Use>
void for_each_group(const NonZeros& nonzeros, const TileBox& box, const Edges& group, const Use& use) {
    with_row_length(box.edge[0], [&](auto n) {
        with_group_edge(group[0], [&](auto edge) { for_each_group(nonzeros, box, group, n, edge, use); });
    });
}

// Length of the fine mask in bits: the number of subgroups in significant groups.
inline std::uint32_t fine_mask_bits(std::uint64_t mask, const TileBox& box, const Tiling& tiling) {
    if (is_whole(box, tiling.group()))
        return static_cast<std::uint32_t>(std::popcount(mask)) * Groups(tiling.group(), tiling.subgroup()).total;
    std::uint32_t bits = 0;
    for_each_row_of_subgroups(box, tiling, [&](std::uint32_t group, std::uint32_t, std::uint32_t count) {
        bits += (mask >> group & 1) != 0 ? count : 0;
    });
    return bits;
}

inline std::uint32_t fine_mask_words(std::uint64_t mask, const TileBox& box, const Tiling& tiling) {
    return (fine_mask_bits(mask, box, tiling) + 31) / 32;
}

// Finds the significant subgroups. Returns whether coding only those takes less than coarse_bits, masks included and at
// one bit per value, the least that a zero's codeword takes.
inline bool fine_mask_pays(const NonZeros& nonzeros, const TileBox& box, const Tiling& tiling,
                           std::uint32_t coarse_bits, Significance& significance) {
    std::uint32_t at = 0, fine_bits = significance.total;
    for_each_group(nonzeros, box, tiling.subgroup(), [&](bool found, std::uint32_t values) {
        significance.significant[at++] = found;
        fine_bits += found ? values : 0;
    });
    return fine_bits < coarse_bits && fine_bits + fine_mask_bits(significance.mask, box, tiling) < coarse_bits;
}

// Decides what to code, from a tile's codes in tile order (docs/reference/format.md, section 6).
inline void find_significance(const std::int32_t* code, const TileBox& box, const Tiling& tiling,
                              Significance& significance) {
    significance.fine = false;
    significance.mask = 0;
    significance.total = 0;
    const std::uint32_t n = box.values(), n_subgroups = Groups(box.edge, tiling.subgroup()).total;
    const NonZeros nonzeros(code, n);
    std::uint32_t in_groups = 0; // values
    for_each_group(nonzeros, box, tiling.group(), [&](bool found, std::uint32_t values) {
        significance.mask |= std::uint64_t{found} << significance.total++;
        in_groups += found ? values : 0;
    });
    if (significance.mask == 0) return;
    const std::uint32_t coarse_bits = significance.zero() >= 2 ? in_groups + significance.total : n;
    // Part of the format: a quick test of whether a fine mask could pay, because then zeros are adjacent.
    if (2 * nonzeros.zero_pairs() > n_subgroups)
        significance.fine = fine_mask_pays(nonzeros, box, tiling, coarse_bits, significance);
    if (!significance.fine) significance.spread_mask();
}

// The fine mask as the payload stores it: one bit for every subgroup of a significant group. Returns its size in words.
// It does not branch on the mask, which would be hard to predict; a row has at most 8 subgroups in a group.
inline std::uint32_t write_fine_mask(const Significance& significance, const TileBox& box, const Tiling& tiling,
                                     std::uint32_t* words) {
    BitWriter writer(words);
    for_each_row_of_subgroups(box, tiling, [&](std::uint32_t group, std::uint32_t number, std::uint32_t count) {
        std::uint64_t significant;
        std::memcpy(&significant, significance.significant + number, 8);
        const std::uint64_t bits =
            (significant & 0x0101010101010101u) * 0x0102040810204080u >> 56; // one bit from each byte
        const auto kept = static_cast<std::uint32_t>(significance.mask >> group & 1) * count;
        writer.append(bits & NonZeros::below(kept), kept);
        writer.flush();
    });
    writer.flush();
    return (writer.bits() + 31) / 32;
}

// Reads the fine mask. words: readable for two more. Branch-free, like write_fine_mask().
inline void read_fine_mask(const std::uint32_t* words, const TileBox& box, const Tiling& tiling,
                           Significance& significance) {
    const char* const bytes = reinterpret_cast<const char*>(words);
    std::uint32_t at = 0;
    for_each_row_of_subgroups(box, tiling, [&](std::uint32_t group, std::uint32_t number, std::uint32_t count) {
        std::uint64_t bits;
        std::memcpy(&bits, bytes + at / 8, 8);
        bits = bits >> at % 8 & (0 - (significance.mask >> group & 1));
        for (std::uint32_t i = 0; i < count; ++i)
            significance.significant[number + i] = static_cast<std::uint8_t>(bits >> i & 1);
        at += static_cast<std::uint32_t>(significance.mask >> group & 1) * count;
    });
}

// Visits every run of a row within one group (or subgroup): use(position of its first value, its length, the group's
// number).
template <class Length, class Edge, class Use>
void for_each_run(const TileBox& box, const Edges& group, Length n, Edge edge, const Use& use) {
    for_each_row_of_groups(box, group, [&](std::uint32_t at, std::uint32_t number) {
        for (std::uint32_t x = 0; x < n; x += edge, ++number) use(at + x, std::min<std::uint32_t>(edge, n - x), number);
    });
}

// Number of values that are coded.
inline std::uint32_t count_significant(const Significance& significance, const TileBox& box, const Tiling& tiling) {
    const Edges& group = significance.edges(tiling);
    std::uint32_t n = 0;
    if (is_whole(box, group)) {
        const std::uint32_t total = Groups(box.edge, group).total;
        for (std::uint32_t g = 0; g < total; ++g) n += significance.significant[g];
        return n * (box.values() / total);
    }
    for_each_run(box, group, box.edge[0], group[0], [&](std::uint32_t, std::uint32_t length, std::uint32_t number) {
        n += significance.significant[number] * length;
    });
    return n;
}

#ifdef __AVX512F__
// One bit for each of `length` values of a row, at most 64, starting at a group: whether its group is significant.
inline std::uint64_t significant_values(const std::uint8_t* significant, std::uint32_t edge, std::uint32_t length) {
    const std::uint64_t all = NonZeros::below(length);
    if (edge >= length) return significant[0] != 0 ? all : 0;
    const __m512i bytes = _mm512_maskz_loadu_epi8(NonZeros::below((length + edge - 1) / edge), significant);
    const std::uint64_t ones = NonZeros::below(edge); // edge: a power of two, because it is shorter than the row
    return _pdep_u64(_mm512_test_epi8_mask(bytes, bytes), ~std::uint64_t{0} / ones) * ones & all;
}

// Visits a tile by vectors of 16 values: use(position of the first, mask of those in significant groups). Lanes past
// the end of a row are not in the mask.
template <class Use>
void for_each_significant_vector(const Significance& significance, const TileBox& box, const Tiling& tiling,
                                 const Use& use) {
    const Edges& group = significance.edges(tiling);
    for_each_row_of_groups(box, group, [&](std::uint32_t at, std::uint32_t number) {
        for (std::uint32_t begin = 0; begin < box.edge[0]; begin += 64) {
            const std::uint32_t length = std::min(64u, box.edge[0] - begin);
            const std::uint64_t values =
                significant_values(significance.significant + number + begin / group[0], group[0], length);
            for (std::uint32_t x = 0; x < length; x += 16) use(at + begin + x, static_cast<__mmask16>(values >> x));
        }
    });
}
#endif

// Copies the values to be coded, in tile order, and returns their number.
inline std::uint32_t gather_significant(const std::int32_t* code, const Significance& significance, const TileBox& box,
                                        const Tiling& tiling, std::int32_t* coded) {
    std::int32_t* to = coded;
#ifdef __AVX512F__
    for_each_significant_vector(significance, box, tiling, [&](std::uint32_t at, __mmask16 values) {
        _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(values, _mm512_loadu_si512(code + at)));
        to += std::popcount(values);
    });
#else
    const Edges& group = significance.edges(tiling);
    with_row_length(box.edge[0], [&](auto n) {
        with_group_edge(group[0], [&](auto edge) {
            for_each_run(box, group, n, edge, [&](std::uint32_t at, std::uint32_t length, std::uint32_t number) {
                // Unconditional, because a branch would be hard to predict. Copies a whole edge even if the run is
                // shorter: both sides have room for it, and the next run overwrites the excess.
                for (std::uint32_t i = 0; i < edge; ++i) to[i] = code[at + i];
                to += significance.significant[number] * length;
            });
        });
    });
#endif
    return static_cast<std::uint32_t>(to - coded);
}

// The inverse of gather_significant, with 0 for what is not coded.
inline void scatter_significant(const std::int32_t* coded, const Significance& significance, const TileBox& box,
                                const Tiling& tiling, std::int32_t* code) {
#ifdef __AVX512F__
    for_each_significant_vector(significance, box, tiling, [&](std::uint32_t at, __mmask16 values) {
        _mm512_storeu_si512(code + at, _mm512_maskz_expand_epi32(values, _mm512_loadu_si512(coded)));
        coded += std::popcount(values);
    });
#else
    const Edges& group = significance.edges(tiling);
    with_row_length(box.edge[0], [&](auto n) {
        with_group_edge(group[0], [&](auto edge) {
            for_each_run(box, group, n, edge, [&](std::uint32_t at, std::uint32_t length, std::uint32_t number) {
                const std::int32_t significant = significance.significant[number];
                for (std::uint32_t i = 0; i < edge; ++i)
                    code[at + i] = coded[i] & -significant; // as in gather_significant
                coded += static_cast<std::uint32_t>(significant) * length;
            });
        });
    });
#endif
}

} // namespace cusz::cpu::CUSZ_ISA
