// Finds the contexts of a tile's points from the coarser lattice and from codes (section 6). All arrays are bytes, and
// each class is processed in one sweep, gaps between its rows included.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "archive/v2/tables.hpp"
#include "prediction.hpp"

namespace cusz::cpu {

// The context of a group, by the sum of its values' weights.
struct UnitGroupContexts {
    static constexpr std::uint32_t largest_sum = max_group_points * 14;
    std::array<std::uint8_t, largest_sum + 1> of_sum{};
    constexpr UnitGroupContexts() {
        for (std::uint32_t s = 1; s <= largest_sum; ++s) {
            const auto b = static_cast<std::uint32_t>(std::bit_width(s));
            const std::uint32_t h = 2 * (b - 1) + (b > 1 ? s >> (b - 2) & 1 : 0);
            of_sum[s] = static_cast<std::uint8_t>(std::clamp<std::int32_t>(static_cast<std::int32_t>(h) - 3, 1, 15));
        }
    }
};
inline constexpr UnitGroupContexts group_contexts_of_unit{};

namespace CUSZ_ISA {

// The number of bits of each byte, or, for D, one more if the byte is not 0; at most 7.
template <bool one_more>
[[gnu::always_inline]] inline ByteLanes::Bytes bits_of_bytes(ByteLanes::Bytes v) {
    static constexpr std::array<std::uint8_t, 32> bits = [] {
        std::array<std::uint8_t, 32> of{};
        for (std::uint32_t i = 1; i < 16; ++i) {
            const auto low = static_cast<std::uint32_t>(std::bit_width(i)) + (one_more ? 1u : 0u);
            of[i] = static_cast<std::uint8_t>(low);
            of[16 + i] = static_cast<std::uint8_t>(std::min(low + 4, 7u));
        }
        return of;
    }();
    const auto low = ByteLanes::look_up_16(bits.data(), v & 15), high = ByteLanes::look_up_16(bits.data() + 16, v >> 4);
    return low > high ? low : high;
}

typedef std::int8_t SignedBytes __attribute__((vector_size(ByteLanes::n)));

// Which of a group's symbols, or codes in their place, are of special values; a bit for each.
[[gnu::always_inline]] inline std::uint64_t special_symbols(const std::uint8_t* symbol, std::uint32_t n) {
    using L = ByteLanes;
    std::uint64_t special = 0;
    for (std::uint32_t x = 0; x < max_group_points; x += L::n)
        special |=
            L::highest_bits(reinterpret_cast<L::Bytes>(L::load(symbol + x) == static_cast<std::uint8_t>(v2::special)))
            << x;
    return special & (~std::uint64_t{0} >> (max_group_points - n));
}

// A code as tile.direct has it.
inline std::uint8_t direct_of(std::int32_t code) {
    return static_cast<std::uint8_t>(std::clamp(code, -64, 64) + static_cast<std::int32_t>(v2::zero_symbol));
}

// Finds the magnitudes of a class from its codes; missing values get marks.
template <class T>
void find_magnitudes(const SplineTile<T>& tile, std::uint32_t c) {
    using L = ByteLanes;
    constexpr auto zero = static_cast<std::uint8_t>(v2::zero_symbol);
    const std::uint8_t* const direct = tile.of_class(tile.direct, c);
    std::uint8_t* const magnitude = tile.of_class(tile.magnitude, c);
    for (std::size_t at = tile.form->first_byte; at < tile.form->end_byte; at += L::n) {
        const auto symbol = L::load(direct + at);
        const L::Bytes code = symbol - zero, size = code > 127 ? 0 - code : code;
        auto bits = bits_of_bytes<false>(size);
        if (tile.has_missing) {
            const auto special = reinterpret_cast<L::Bytes>(symbol == static_cast<std::uint8_t>(v2::special)),
                       verbatim = reinterpret_cast<L::Bytes>(symbol == static_cast<std::uint8_t>(v2::verbatim));
            bits = (bits & ~(special | verbatim)) | (special & special_mark) | (verbatim & verbatim_mark);
        }
        L::store(magnitude + at, bits);
    }
}

[[gnu::always_inline]] inline ByteLanes::Bytes without_marks(ByteLanes::Bytes v) {
    return v & ~reinterpret_cast<ByteLanes::Bytes>(v > 127);
}
[[gnu::always_inline]] inline ByteLanes::Bytes marks_among(ByteLanes::Bytes v) {
    return reinterpret_cast<ByteLanes::Bytes>(v > 127);
}

// Sums over three points along each active axis, in place; with or_bits, whether any of them is missing.
template <bool or_bits, class T>
void sum_around(const SplineTile<T>& tile, std::uint8_t* bytes) {
    using L = ByteLanes;
    const TileForm& form = *tile.form;
    std::size_t begin = 0, end = form.n_bytes - byte_room;
    for (std::uint32_t a = 0; a < form.n_active; ++a) {
        // A position and the two behind it; sums stay at the first of their points, where find_contexts_of reads them.
        const std::size_t step = form.byte_step[a];
        end -= std::min(end, 2 * step);
        for (std::size_t at = begin; at < end; at += L::n) {
            const auto x = L::load(bytes + at), y = L::load(bytes + at + step), z = L::load(bytes + at + 2 * step);
            L::store(bytes + at, or_bits ? x | y | z : L::add_saturated(L::add_saturated(x, y), z));
        }
    }
}

// Prepares what contexts need from the coarser lattice, besides roughness.
template <class T>
void prepare_contexts(const Lattice& lattice, SplineTile<T>& tile) {
    using L = ByteLanes;
    const TileForm& form = *tile.form;
    if (!tile.has_coarse_magnitudes) return;
    const std::size_t n = form.n_bytes;
    if (!tile.has_missing_around) {
        std::memcpy(tile.around, tile.coarse, n);
        return sum_around<false>(tile, tile.around);
    }
    for (std::size_t at = 0; at + L::n <= n; at += L::n) {
        const auto v = L::load(tile.coarse + at);
        L::store(tile.around + at, without_marks(v));
        L::store(tile.coarse_missing + at, marks_among(v));
    }
    std::memcpy(tile.around_missing, tile.coarse_missing, n);
    sum_around<false>(tile, tile.around);
    sum_around<true>(tile, tile.around_missing);
    // `gone`: missing or beyond the lattice. Corners lie at most one position beyond the tile.
    std::memset(tile.gone, 0xFF, n);
    const HalfBox known = known_box(lattice, tile, 0, 0, 1);
    for_rows_in(known, rows_of(tile.coarse_missing, form), rows_of(tile.gone, form),
                [n = static_cast<std::size_t>(known.end[0])](const std::uint8_t* from, std::uint8_t* to) {
                    std::memcpy(to, from, n);
                });
}

// Finds the contexts of class c. First lists the arrays to read, shifted so that each neighbour has the point's index.
template <std::uint32_t n_odd, bool with_missing, class T>
[[gnu::noinline]] void find_contexts_of(const SplineTile<T>& tile, std::uint32_t c) {
    using L = ByteLanes;
    using Bytes = typename L::Bytes;
    const TileForm& form = *tile.form;
    std::uint32_t odd[n_odd] = {};
    for (std::uint32_t a = 0, o = 0; a < form.n_active; ++a)
        if ((c >> a & 1) != 0) odd[o++] = a;

    constexpr std::uint32_t all_corners = 1u << n_odd, all_touching = n_odd == 1 ? 0 : n_odd == 2 ? 4 : 18;
    const std::uint8_t *corner[all_corners], *gone[all_corners], *rough[n_odd * all_corners / 2];
    const std::uint8_t* touching[all_touching + 1];
    const std::uint8_t *before[n_odd], *behind[n_odd], *before_size[n_odd], *behind_size[n_odd];
    std::uint32_t n_corners = 0, n_touching = 0, n_rough = 0;
    for (std::uint32_t steps = 0; steps < 1u << n_odd; ++steps) {
        std::size_t away = 0;
        for (std::uint32_t o = 0; o < n_odd; ++o) away += (steps >> o & 1) * form.byte_step[odd[o]];
        corner[n_corners] = tile.coarse + away;
        gone[n_corners++] = tile.gone + away;
        for (std::uint32_t o = 0; o < n_odd; ++o)
            if ((steps >> o & 1) == 0) rough[n_rough++] = tile.roughness[odd[o]] + away;
    }
    // Points that differ by at most 1 along c's odd axes: those of the classes that are odd along only some of them.
    for (std::uint32_t parts = 1; parts + 1 < 1u << n_odd; ++parts) {
        std::uint32_t of = 0;
        for (std::uint32_t o = 0; o < n_odd; ++o) of |= (parts >> o & 1) << odd[o];
        for (std::uint32_t steps = 0; steps < 1u << n_odd; ++steps) {
            if ((steps & parts) != 0) continue; // no step along axes that are odd in both
            std::size_t away = 0;
            for (std::uint32_t o = 0; o < n_odd; ++o) away += (steps >> o & 1) * form.byte_step[odd[o]];
            touching[n_touching++] = tile.of_class(tile.magnitude, of) + away;
        }
    }
    for (std::uint32_t o = 0; o < n_odd; ++o) {
        const std::uint32_t of = c ^ 1u << odd[o];
        const std::size_t step = form.byte_step[odd[o]];
        before[o] = tile.of_class(tile.direct, of);
        behind[o] = before[o] + step;
        before_size[o] = tile.of_class(tile.magnitude, of);
        behind_size[o] = before_size[o] + step;
    }
    std::size_t to_center = 0; // sums are at the first of their points
    for (std::uint32_t a = 0; a < form.n_active; ++a) to_center += form.byte_step[a];
    const std::uint8_t *const around = tile.around - to_center, *const around_missing = tile.around_missing - to_center;
    std::uint8_t* const context = tile.of_class(tile.context, c);

    const bool has_coarse_magnitudes = tile.has_coarse_magnitudes, has_missing_around = tile.has_missing_around;
    for (std::size_t at = form.first_byte; at < form.end_byte; at += L::n) {
        Bytes sum{}, some{}, corners{}, all{}; // missing: some around, some corners, all corners
        const auto add = [&](const std::uint8_t* from) {
            auto v = L::load(from + at);
            if constexpr (with_missing) {
                some |= v;
                v = without_marks(v);
            }
            sum = L::add_saturated(sum, v);
        };
        if (has_coarse_magnitudes) {
            sum = L::load(around + at);
            for (std::uint32_t i = 0; i < all_corners; ++i) add(corner[i]);
        }
        for (std::uint32_t i = 0; i < all_touching; ++i) add(touching[i]);
        if constexpr (with_missing) {
            some = marks_among(some);
            if (has_missing_around) {
                some |= L::load(around_missing + at);
                all = ~Bytes{};
                for (std::uint32_t i = 0; i < all_corners; ++i) {
                    corners |= L::load(corner[i] + at);
                    all &= L::load(gone[i] + at);
                }
            }
        }
        Bytes rougher = L::load(rough[0] + at);
        for (std::uint32_t i = 1; i < n_odd * all_corners / 2; ++i) {
            const auto v = L::load(rough[i] + at);
            rougher = v > rougher ? v : rougher;
        }
        if constexpr (n_odd > 1) {
            constexpr auto two_zeros = static_cast<std::uint8_t>(2 * v2::zero_symbol);
            SignedBytes least{}, most{};
            Bytes largest{};
            for (std::uint32_t o = 0; o < n_odd; ++o) {
                const auto both =
                    reinterpret_cast<SignedBytes>(L::load(before[o] + at) + L::load(behind[o] + at) - two_zeros);
                least = o == 0 ? both : (both < least ? both : least);
                most = o == 0 ? both : (both > most ? both : most);
                const auto a = L::load(before_size[o] + at), b = L::load(behind_size[o] + at);
                largest = a > largest ? a : largest;
                largest = b > largest ? b : largest;
            }
            const Bytes apart = (reinterpret_cast<Bytes>(most) - reinterpret_cast<Bytes>(least)) |
                                reinterpret_cast<Bytes>(largest == 7);
            const Bytes of_codes = bits_of_bytes<true>(apart);
            rougher = of_codes > rougher ? of_codes : rougher;
        }
        Bytes place = (rougher << 3) + bits_of_bytes<false>(sum);
        if constexpr (with_missing) {
            constexpr auto some_place = static_cast<std::uint8_t>(v2::some_missing);
            place = (place & ~(some | all)) | ((some | all) & some_place);
            place += (marks_among(corners) & 1) + (all & 1);
        }
        L::store(context + at, place);
    }
}

template <class T>
void find_contexts(const SplineTile<T>& tile, std::uint32_t c) {
    const auto with = [&]<bool with_missing>(std::bool_constant<with_missing>) {
        switch (std::popcount(c)) {
        case 1: return find_contexts_of<1, with_missing>(tile, c);
        case 2: return find_contexts_of<2, with_missing>(tile, c);
        default: return find_contexts_of<3, with_missing>(tile, c);
        }
    };
    if (tile.has_missing || tile.has_missing_around)
        with(std::true_type{});
    else
        with(std::false_type{});
}

static_assert(v2::n_places <= ByteTable::length); // tables are looked up by place

// The sum of the weights of n values with these places. Reads 64 places, whatever n is.
[[gnu::always_inline]] inline std::uint32_t sum_of_weights(const std::uint8_t* place, std::uint32_t n) {
    using L = ByteLanes;
    typename L::Bytes sums{};
    for (std::uint32_t x = 0; x < max_group_points; x += L::n) {
        auto v = L::load(place + x);
        v = (v >> 3) + (v & 7);
        if (n < max_group_points) v &= L::first(n > x ? n - x : 0);
        sums += v; // at most 14 each
    }
    return L::sum(sums);
}

// The points of a group, by their number.
class PointsOfGroup {
public:
    PointsOfGroup(const TileForm& form, std::uint32_t phase, const TileForm::Group& group)
        : runs_(form.runs[phase - 1].data() + group.first_run), n_(runs_->n), part_(4096 / n_ + 1) {}
    std::uint32_t byte(std::uint32_t j) const { return runs_[run(j)].byte + j - run(j) * n_; }
    std::uint32_t value(std::uint32_t j) const { return runs_[run(j)].value + j - run(j) * n_; }

private:
    std::uint32_t run(std::uint32_t j) const { return j * part_ / 4096; } // j / n_, without a division, for j < 64
    const TileForm::Run* runs_;
    std::uint32_t n_; // of each run
    std::uint32_t part_;
    static_assert(max_group_points == 64);
};

// Copies what a phase has, for each byte, from arrays by class to coding order (`to_order`), or back.
template <std::uint32_t length, bool to_order, class V>
[[gnu::always_inline]] inline void copy_runs(const std::vector<TileForm::Run>& runs, V* by_class, V* in_order) {
    for (const TileForm::Run& run : runs) {
        if constexpr (to_order)
            std::memcpy(in_order, by_class + run.byte, length * sizeof(V)); // the next run overwrites any excess
        else if (run.n == length)
            std::memcpy(by_class + run.byte, in_order, length * sizeof(V));
        else
            std::memcpy(by_class + run.byte, in_order, run.n * sizeof(V));
        in_order += run.n;
    }
}
// For full tiles of three axes: a row has one row of four bytes from each of four groups.
template <bool to_order>
void copy_full_3d(const TileForm& form, std::uint32_t phase, std::uint8_t* by_class, std::uint8_t* in_order) {
    for_classes_of(form, phase, [&](std::uint32_t c) {
        for (std::uint32_t y = 0; y < 8; y += 4, in_order += 4 * max_group_points)
            for (std::uint32_t z = 0; z < 4; ++z) {
                std::uint8_t *const rows = by_class + c * form.n_bytes + form.byte_at(y, z, 0), *const groups =
                                                                                                    in_order + 16 * z;
                Marks column[4];
                if constexpr (to_order) {
                    transpose_fours(rows, form.byte_step[1], column);
                    for (std::size_t g = 0; g < 4; ++g) store_marks(groups + g * max_group_points, column[g]);
                } else { // the byte behind a row stays as it is
                    transpose_fours(groups, max_group_points, column);
                    for (std::size_t r = 0; r < 4; ++r) store_marks(rows + r * form.byte_step[1], column[r]);
                }
            }
    });
}
template <bool to_order, class V>
void copy_phase(const TileForm& form, std::uint32_t phase, V* by_class, V* in_order) {
    const auto& runs = form.runs[phase - 1];
    if constexpr (sizeof(V) == 1)
        if (form.is_full_3d) return copy_full_3d<to_order>(form, phase, by_class, in_order);
    if (form.n_active == 3) return copy_runs<4, to_order>(runs, by_class, in_order);
    if (form.n_active == 2) return copy_runs<8, to_order>(runs, by_class, in_order);
    copy_runs<64, to_order>(runs, by_class, in_order);
}

} // namespace CUSZ_ISA
} // namespace cusz::cpu
