// Takes one tile of a lattice to its payload and back: interpolation and quantisation (spline.hpp), contexts, rANS
// (rans.hpp), in the order of docs/format_v2.md, sections 4 to 8.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.hpp"
#include "rans.hpp"
#include "spline.hpp"
#include "spline_kernels.hpp"

namespace cusz::cpu::CUSZ_ISA {

template <class T>
struct SplinePipeline {
    static constexpr std::uint32_t units_of_value = sizeof(T) / 2;
    static constexpr Alphabet alphabet{default_r};
    static constexpr auto missing_symbol = static_cast<std::uint8_t>(alphabet.missing());
    static constexpr std::uint32_t most_of_group = 64; // values
    enum TileKind : std::uint32_t { coded = 0, special = 1, raw = 2 };

    // Calls use(geometry), a constant.
    template <class Use>
    static void with_geometry_of(const SplineTile<T>& tile, const Use& use) {
        switch (tile.geometry) {
        case Geometry::any: return use(std::integral_constant<Geometry, Geometry::any>{});
        case Geometry::full_2d: return use(std::integral_constant<Geometry, Geometry::full_2d>{});
        case Geometry::full_3d: return use(std::integral_constant<Geometry, Geometry::full_3d>{});
        }
    }

    // A group: its first half coordinates, and its extents.
    struct Group {
        std::array<std::uint32_t, 4> first, n;
        std::uint32_t values() const { return n[0] * n[1] * n[2] * n[3]; }
    };
    // Calls use(c, group) for the groups of a phase, in coding order.
    template <Geometry geometry, class Use>
    [[gnu::always_inline]] static void for_groups(const Lattice& lattice, const SplineTile<T>& tile,
                                                  std::uint32_t phase, const Use& use) {
        const std::array<std::uint32_t, 4> edge =
            geometry == Geometry::any ? lattice.group : group_edges(active_axes(geometry));
        for_classes(tile, phase, [&](std::uint32_t c) {
            const ClassBox box = box_of<geometry>(tile, c);
            Group g{};
            for (g.first[3] = 0; g.first[3] < box.n[3]; g.first[3] += edge[3])
                for (g.first[2] = 0; g.first[2] < box.n[2]; g.first[2] += edge[2])
                    for (g.first[1] = 0; g.first[1] < box.n[1]; g.first[1] += edge[1])
                        for (g.first[0] = 0; g.first[0] < box.n[0]; g.first[0] += edge[0]) {
                            for (std::size_t a = 0; a < 4; ++a)
                                g.n[a] = geometry == Geometry::any ? std::min(edge[a], box.n[a] - g.first[a]) : edge[a];
                            use(c, g);
                        }
        });
    }
    // Calls use(position, n) for the rows of a group; n is a constant where rows are 4 or 8 long.
    template <class Use>
    [[gnu::always_inline]] static void for_rows_of(const ClassBox& box, const Group& g, const Use& use) {
        const std::size_t first = box.at(g.first[0], g.first[1], g.first[2], g.first[3]);
        const auto rows = [&](auto n) {
            for (std::uint32_t w = 0; w < g.n[3]; ++w)
                for (std::uint32_t z = 0; z < g.n[2]; ++z) {
                    std::size_t at = first + z * box.stride[2] + w * box.stride[3];
                    for (std::uint32_t y = 0; y < g.n[1]; ++y, at += box.stride[1]) use(at, n);
                }
        };
        if (g.n[0] == 4)
            rows(std::integral_constant<std::uint32_t, 4>{});
        else if (g.n[0] == 8)
            rows(std::integral_constant<std::uint32_t, 8>{});
        else
            rows(g.n[0]);
    }
    // Calls use(position, place in coding order, n) for the rows of the groups of a phase.
    template <Geometry geometry, class Use>
    [[gnu::always_inline]] static void for_rows_in_order(const Lattice& lattice, const SplineTile<T>& tile,
                                                         std::uint32_t phase, const Use& use) {
        std::uint32_t place = 0;
        for_groups<geometry>(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
            for_rows_of(box_of<geometry>(tile, c), g, [&](std::size_t at, auto n) {
                use(at, place, n);
                place += n;
            });
        });
    }
    // Copies n elements.
    template <class Element, class N>
    [[gnu::always_inline]] static void copy_row(Element* to, const Element* from, N n) {
        if constexpr (!std::is_same_v<N, std::uint32_t>)
            std::memcpy(to, from, N::value * sizeof(Element));
        else if (n < 8)
            for (std::uint32_t x = 0; x < n; ++x) to[x] = from[x];
        else
            std::memcpy(to, from, n * sizeof(Element));
    }
    // Puts bytes of a phase in coding order.
    template <Geometry geometry>
    static void put_in_order(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t phase,
                             const std::uint8_t* from, std::uint8_t* to) {
        if constexpr (geometry == Geometry::full_3d) { // rows are one of each of four groups' rows of four
            for_classes(tile, phase, [&](std::uint32_t c) {
                const ClassBox box = box_of<geometry>(tile, c);
                for (std::uint32_t y = 0; y < box.n[1]; y += 4, to += 4 * most_of_group)
                    for (std::uint32_t z = 0; z < 4; ++z) {
                        Marks of_group[4];
                        transpose_fours(from + box.at(0, y, z, 0), box.stride[1], of_group);
                        for (std::size_t g = 0; g < 4; ++g) store_marks(to + 16 * z + g * most_of_group, of_group[g]);
                    }
            });
        } else if constexpr (geometry == Geometry::full_2d) { // the same with rows of eight
            for_classes(tile, phase, [&](std::uint32_t c) {
                const ClassBox box = box_of<geometry>(tile, c);
                for (std::uint32_t y = 0; y < box.n[1]; y += 8, to += 4 * most_of_group)
                    for (std::uint32_t in_group = 0; in_group < 8; ++in_group)
                        for (std::size_t group = 0; group < 4; ++group)
                            std::memcpy(to + group * most_of_group + 8 * in_group,
                                        from + box.at(8 * static_cast<std::uint32_t>(group), y + in_group, 0, 0), 8);
            });
        } else {
            for_rows_in_order<geometry>(lattice, tile, phase, [&](std::size_t at, std::uint32_t place, auto n) {
                copy_row(to + place, from + at, n);
            });
        }
    }

    // Lists the groups of a phase. Returns their number.
    template <Geometry geometry>
    static std::uint32_t list_groups(const Lattice& lattice, SplineTile<T>& tile, std::uint32_t phase) {
        std::uint32_t n = 0;
        for_groups<geometry>(lattice, tile, phase, [&](std::uint32_t, const Group& g) {
            tile.group_size[n++] = static_cast<std::uint8_t>(g.values());
        });
        return n;
    }

    // The context of a group of n values with these places.
    [[gnu::always_inline]] static std::uint32_t context_of_group(const std::uint8_t* place, std::uint32_t n) {
        return group_contexts.of_sum[sum_of_places(place, n)];
    }
    // Whether any of n codes is not 0, and whether all have symbols of their own.
    struct CodesOfGroup {
        bool significant, all_direct;
    };
    [[gnu::always_inline]] static CodesOfGroup look_at_group(const std::uint8_t* direct, std::uint32_t n) {
        std::uint8_t different = 0;
        for (std::uint32_t x = 0; x < most_of_group; ++x)
            different |= static_cast<std::uint8_t>(x < n ? direct[x] ^ alphabet.zero() : 0);
        return {different != 0, (different & not_direct) == 0};
    }

    // The offset in the field of the first value of a class's row.
    [[gnu::always_inline]] static std::size_t field_offset(const Lattice& lattice, const SplineTile<T>& tile,
                                                           std::uint32_t c, std::uint32_t y, std::uint32_t z,
                                                           std::uint32_t w) {
        const std::array<std::uint32_t, 4> h{0, y, z, w};
        std::size_t offset = 0;
        for (std::uint32_t a = 0; a < 4; ++a) {
            const std::uint64_t x = lattice.is_active(a) ? 2 * h[a] + (c >> a & 1) : h[a];
            offset += static_cast<std::size_t>((tile.place.origin[a] + x) * lattice.field_stride[a]);
        }
        return offset;
    }
    // Between rows of a class in the field.
    [[gnu::always_inline]] static Extents offsets_of_rows(const Lattice& lattice) {
        Extents next = lattice.field_stride;
        for (std::size_t a = 0; a < 4; ++a) next[a] *= lattice.is_active(a) ? 2 : 1;
        return next;
    }
    // Position in the tile, in raster order, of a class's first value of a row; the next ones are 2 further each.
    static std::uint32_t position(const SplineTile<T>& tile, std::uint32_t c, std::uint32_t x, std::uint32_t y,
                                  std::uint32_t z, std::uint32_t w) {
        const std::array<std::uint32_t, 4> h{x, y, z, w};
        std::uint32_t at = 0;
        for (std::uint32_t a = 4; a-- > 0;)
            at = at * tile.place.edge[a] + (a < tile.n_active ? 2 * h[a] + (c >> a & 1) : h[a]);
        return at;
    }

    static void add_verbatim(SplineTile<T>& tile, std::uint32_t at, typename Traits<T>::Bits bits) {
        tile.verbatim_at[tile.n_verbatim] = static_cast<std::uint16_t>(at);
        tile.verbatim[tile.n_verbatim++] = bits;
    }

    // Originals of a class's row from its value x on: as many as a vector holds, or what there is, and anything behind
    // it. line: of the tile's points, `step` apart in the field; odd: the class has every second one from 1 on.
    [[gnu::always_inline]] static typename Lanes<T>::Values originals(const T* line, std::size_t step, bool odd,
                                                                      std::uint32_t x, std::uint32_t n, const T* end) {
        using L = Lanes<T>;
        using Values = typename L::Values;
        const T* const from = line + 2 * step * x;
        const auto left = static_cast<std::size_t>(end - from);
        if (step == 1 && 2 * L::n <= left) return L::template every_second<1>(from, odd);
        if (step == 2 && 4 * L::n <= left) return L::template every_second<2>(from, odd);
        // Built lane by lane, not in memory, from which a vector could only be loaded some time after its parts.
        Values v{};
        const bool whole = x + L::n <= n;
        for (std::uint32_t i = 0; i < L::n; ++i) v[i] = from[(2 * (whole ? i : std::min(i, n - x - 1)) + odd) * step];
        return v;
    }

    // The rows of a class in the field.
    struct FieldRows {
        const T* first = nullptr; // value of the class
        std::size_t step = 0;     // between points of the lattice; the class has every second one
        Extents next{};           // between rows
        const T* row(std::uint32_t y, std::uint32_t z, std::uint32_t w) const {
            return first + y * next[1] + z * next[2] + w * next[3];
        }
    };
    static FieldRows rows_in_field(const Lattice& lattice, const SplineTile<T>& tile, const T* field, std::uint32_t c) {
        return {field + field_offset(lattice, tile, c, 0, 0, 0), static_cast<std::size_t>(lattice.field_stride[0]),
                offsets_of_rows(lattice)};
    }

    // Quantises class c, whose predictions are in tile.value.
    template <Geometry geometry>
    static void quantise_class(const Lattice& lattice, const Quantiser<T>& q, const T* field, const T* end,
                               SplineTile<T>& tile, std::uint32_t c) {
        const ClassBox box = box_of<geometry>(tile, c);
        const FieldRows rows = rows_in_field(lattice, tile, field, c);
        const T* const last = rows.row(box.n[1] - 1, box.n[2] - 1, box.n[3] - 1) - (c & 1) * rows.step;
        const bool whole =
            box.n[0] % Lanes<T>::n == 0 && 2 * rows.step * box.n[0] <= static_cast<std::size_t>(end - last);
        if (whole && rows.step == 1) return quantise_rows<geometry, 1>(q, end, tile, c, rows);
        if constexpr (geometry != Geometry::any) // the others are too few to gain by it
            if (whole && rows.step == 2) return quantise_rows<geometry, 2>(q, end, tile, c, rows);
        quantise_rows<geometry, 0>(q, end, tile, c, rows);
    }

    // known_step: rows.step, where whole vectors can be loaded, or 0.
    template <Geometry geometry, std::size_t known_step>
    [[gnu::noinline]] static void quantise_rows(const Quantiser<T>& quantiser, const T* end, SplineTile<T>& tile,
                                                std::uint32_t c, const FieldRows& rows) {
        using L = Lanes<T>;
        const ClassBox box = box_of<geometry>(tile, c);
        const bool odd = (c & 1) != 0;
        const std::uint32_t n = box.n[0];
        const std::size_t step = known_step > 0 ? known_step : rows.step;
        // Not the members, which stores of bytes might change, as far as C++ knows.
        T* const values = tile.value;
        std::int32_t* const codes = tile.scratch.code;
        std::uint8_t *const direct = tile.scratch.direct, *const magnitude = tile.magnitude;
        const std::ptrdiff_t later = tile.later;
        const RowQuantiser<T> q(quantiser);
        std::uint32_t has_special = 0;
        for (std::uint32_t w = 0; w < box.n[3]; ++w)
            for (std::uint32_t z = 0; z < box.n[2]; ++z)
                for (std::uint32_t y = 0; y < box.n[1]; ++y) {
                    const std::size_t at = box.at(0, y, z, w);
                    const T* const d = rows.row(y, z, w);
                    const T* const line = odd ? d - step : d;
                    if (odd) // the rows of the classes with bit 0 are all there are
                        for (std::size_t p = 0; p < 2 * step * n; p += std::max(step, 64 / sizeof(T)))
                            __builtin_prefetch(line + p + later, 0, 2);
                    for (std::uint32_t x = 0; x < n; x += L::n) {
                        const auto v = known_step > 0 ? L::template every_second<known_step>(line + 2 * step * x, odd)
                                                      : originals(line, step, odd, x, n, end);
                        const std::uint32_t others = q.quantise(v, values + at + x, codes + at + x, n - x);
                        if (others != 0) [[unlikely]] {
                            const std::uint32_t special = q.mark_special(v, codes + at + x, others);
                            has_special |= special;
                            if (others != special)
                                quantise_others(quantiser, tile, c, {x, y, z, w}, others & ~special, d, step);
                        }
                    }
                    for (std::uint32_t x = 0; x < n; x += lane_room) {
                        Codes v;
                        std::memcpy(&v, codes + at + x, sizeof v);
                        if (n % lane_room != 0) keep_first(v, n - x);
                        store_marks(direct + at + x, direct_of(v));
                        store_marks(magnitude + at + x,
                                    magnitudes_of(v) | __builtin_convertvector(v == missing_code, Marks));
                    }
                }
        tile.has_special |= has_special != 0;
    }

    // Values of a row from half coordinates h on that are neither simply coded nor special: those with a bit in
    // `others`. row: in the field.
    [[gnu::noinline]] static void quantise_others(const Quantiser<T>& q, SplineTile<T>& tile, std::uint32_t c,
                                                  const std::array<std::uint32_t, 4>& h, std::uint32_t others,
                                                  const T* row, std::size_t step) {
        for (; others != 0; others &= others - 1) {
            const std::uint32_t x = h[0] + static_cast<std::uint32_t>(std::countr_zero(others));
            const std::size_t at = tile.box[c].at(x, h[1], h[2], h[3]);
            const T of = row[x * 2 * step];
            const CodedValue<T> result = quantise_value(of, tile.value[at], q);
            tile.scratch.code[at] = result.code;
            tile.value[at] = result.value;
            if (result.verbatim) add_verbatim(tile, position(tile, c, x, h[1], h[2], h[3]), bits_of(of));
        }
    }

    // Takes the values of class c as they are.
    static void keep_class(const Lattice& lattice, const Quantiser<T>& q, const T* field, SplineTile<T>& tile,
                           std::uint32_t c) {
        const FieldRows rows = rows_in_field(lattice, tile, field, c);
        for_rows(tile.box[c].n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
            for (std::uint32_t x = 0; x < tile.box[c].n[0]; ++x) {
                const std::size_t at = tile.box[c].at(x, y, z, w);
                keep_value(q, tile, at, bits_of(rows.row(y, z, w)[x * 2 * rows.step]));
                tile.magnitude[at] = tile.scratch.code[at] == missing_code ? special_magnitude : std::uint8_t{0};
            }
        });
    }

    // A value that is stored as it is.
    static void keep_value(const Quantiser<T>& q, SplineTile<T>& tile, std::size_t at, typename Traits<T>::Bits bits) {
        const T value = std::bit_cast<T>(bits);
        tile.scratch.code[at] = bits == q.special ? missing_code : 0;
        tile.has_special = tile.has_special || bits == q.special;
        if (bits != q.special && std::abs(value) <= std::numeric_limits<T>::max()) tile.value[at] = value;
    }

    template <bool with_spread>
    static void predict(const SplineCoder<T>& coder, const Quantiser<T>& q, SplineTile<T>& tile, std::uint32_t c) {
        if (coder.cubic)
            predict_class<true, with_spread>(tile, c, q.inv);
        else
            predict_class<false, with_spread>(tile, c, q.inv);
    }

    // Puts the tile's values to predict from and magnitudes into the arrays of its lattice.
    static void store(const Lattice& lattice, const SplineTile<T>& tile, const LatticeArrays<T>& coarse,
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
                    of_parents[p] = coarse.magnitude[from + p * in_coarse] == special_magnitude ? special_magnitude
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

    // Calls use(x, c, inside) for all lines of the tile along the first axis: the line's first point, its class, and
    // the position of the line in a class's box.
    template <class Use>
    static void for_lines(const SplineTile<T>& tile, const Use& use) {
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

    // Extra bits of codes, from the lowest up.
    class BitWriter {
    public:
        explicit BitWriter(std::uint16_t* units) : first_(units), at_(units) {}
        // At most 48 bits. Writes up to 4 units beyond them.
        void put(std::uint64_t value, std::uint32_t bits) {
            held_ |= value << n_;
            n_ += bits;
            std::memcpy(at_, &held_, sizeof held_);
            at_ += n_ / 16;
            held_ >>= n_ / 16 * 16;
            n_ %= 16;
        }
        std::uint32_t finish() const { return static_cast<std::uint32_t>(at_ - first_) + (n_ > 0); }

    private:
        std::uint16_t *first_, *at_;
        std::uint64_t held_ = 0;
        std::uint32_t n_ = 0;
    };

    // Where a run of entries may begin.
    static std::uint32_t next_run(std::uint32_t at) { return (at + most_lanes - 1) / most_lanes * most_lanes; }

    template <Geometry geometry>
    static std::uint32_t count_groups(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t phase) {
        std::uint32_t n = 0;
        for_groups<geometry>(lattice, tile, phase, [&](std::uint32_t, const Group&) { ++n; });
        return n;
    }

    // Predicts and codes all phases: counts what is coded, or lists it for writing; the other one is null. Returns the
    // units of extra bits.
    static std::uint32_t code_phases(const SplineCoder<T>& coder, std::size_t i, const T* field, SplineTile<T>& tile,
                                     RansCounts* counts, const RansWriting* writing, SplineOutput<T>* output) {
        std::uint32_t n_extra = 0;
        with_geometry_of(tile, [&](auto geometry) {
            n_extra = code_phases_of<geometry>(coder, i, field, tile, counts, writing, output);
        });
        return n_extra;
    }

    template <Geometry geometry>
    static std::uint32_t code_phases_of(const SplineCoder<T>& coder, std::size_t i, const T* field, SplineTile<T>& tile,
                                        RansCounts* counts, const RansWriting* writing, SplineOutput<T>* output) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        const Quantiser<T>& q = coder.quantiser[i];
        RansSequence::Run flags{}, values{};
        std::uint16_t* const entry = output != nullptr ? output->sequence.entry : nullptr;
        if (output != nullptr) output->sequence.n_runs = output->n_significant = output->n_special = 0;
        BitWriter extra(tile.scratch.extra);
        sum_parents(tile);
        for (std::uint32_t phase = 1; phase <= tile.n_active; ++phase) {
            for_classes(tile, phase, [&](std::uint32_t c) {
                predict<true>(coder, q, tile, c);
                quantise_class<geometry>(lattice, q, field, coder.end, tile, c);
                if (phase < tile.n_active) continue_rows(lattice, tile, c);
            });
            for_classes(tile, phase, [&](std::uint32_t c) { find_contexts<geometry>(tile, c); });
            put_in_order<geometry>(lattice, tile, phase, tile.scratch.context, tile.scratch.in_order.place);
            put_in_order<geometry>(lattice, tile, phase, tile.scratch.direct, tile.scratch.in_order.direct);
            if (counts == nullptr) {
                flags = {next_run(values.first + values.n), 0};
                values = {next_run(flags.first + count_groups<geometry>(lattice, tile, phase)), 0};
            }
            std::uint32_t first = 0;
            const std::uint32_t row = row_of(i, phase) / n_places;
            for_groups<geometry>(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
                const std::uint32_t n = g.values();
                const std::uint8_t* const place = tile.scratch.in_order.place + first;
                const std::uint8_t* const direct = tile.scratch.in_order.direct + first;
                first += n;
                const std::uint32_t context = context_of_group(place, n);
                const auto [significant, all_direct] = look_at_group(direct, n);
                if (counts != nullptr)
                    ++counts->group[i > 0][context][significant];
                else
                    entry[flags.first + flags.n++] =
                        static_cast<std::uint16_t>((most_tables + context) << 8 | significant);
                if (!significant) return;
                if (counts != nullptr) {
                    if (all_direct)
                        for (std::uint32_t x = 0; x < n; ++x) counts->count(context_of(row, place[x]), direct[x]);
                    else
                        count_large(tile, box_of<geometry>(tile, c), g, place, row, *counts);
                } else {
                    std::uint16_t* const to = entry + values.first + values.n;
                    if (!all_direct || !list_direct(place, direct, n, *writing, row, to))
                        output->n_special +=
                            list_large(tile, box_of<geometry>(tile, c), g, place, row, *writing, to, extra);
                    values.n += n;
                }
            });
            if (output != nullptr) {
                RansSequence& sequence = output->sequence;
                sequence.run[sequence.n_runs++] = flags;
                sequence.run[sequence.n_runs++] = values;
                output->n_significant += values.n;
            }
        }
        return extra.finish();
    }

    // The codes of a group, of which some have no symbol of their own, and lane_room zeros. Returns their number.
    static std::uint32_t get_codes(const SplineTile<T>& tile, const ClassBox& box, const Group& g,
                                   std::int32_t* codes) {
        std::uint32_t at = 0;
        for_rows_of(box, g, [&](std::size_t row, auto n) {
            copy_row(codes + at, tile.scratch.code + row, n);
            at += n;
        });
        std::fill_n(codes + at, lane_room, 0);
        return at;
    }

    [[gnu::noinline]] static void count_large(const SplineTile<T>& tile, const ClassBox& box, const Group& g,
                                              const std::uint8_t* place, std::uint32_t row, RansCounts& counts) {
        std::int32_t codes[most_of_group + lane_room];
        const std::uint32_t n = get_codes(tile, box, g, codes);
        std::uint8_t symbol[most_of_group + lane_room];
        for (std::uint32_t x = 0; x < n; x += lane_room) {
            Codes code;
            std::memcpy(&code, codes + x, sizeof code);
            store_marks(symbol + x, SymbolsOfCodes(code).symbol);
        }
        for (std::uint32_t x = 0; x < n; ++x) {
            const std::uint32_t s = codes[x] == missing_code ? alphabet.missing() : symbol[x];
            counts.count(context_of(row, place[x]), s);
        }
    }

    // Lists the symbols of a group whose codes all have one; false if some of them have to be escaped. Whole vectors
    // are written.
    [[gnu::noinline]] static bool list_direct(const std::uint8_t* place, const std::uint8_t* direct, std::uint32_t n,
                                              const RansWriting& writing, std::uint32_t row, std::uint16_t* entry) {
        using L = ByteLanes;
        const std::uint8_t* const table_of = writing.table_of[row].data();
        for (std::uint32_t x = 0; x < n; x += L::n) {
            const auto symbol = L::load(direct + x), table = L::look_up_128(table_of, L::load(place + x));
            if (L::any(is_escaped(writing, table, symbol, typename L::Bytes{}), n - x)) return false;
            store_entries(table, symbol, entry + x);
        }
        return true;
    }

    // The same of any group, with its extra bits. Returns how many values are special.
    [[gnu::noinline]] static std::uint32_t list_large(const SplineTile<T>& tile, const ClassBox& box, const Group& g,
                                                      const std::uint8_t* place, std::uint32_t row,
                                                      const RansWriting& writing, std::uint16_t* entry,
                                                      BitWriter& given) {
        std::int32_t codes[most_of_group + lane_room];
        const std::uint32_t n = get_codes(tile, box, g, codes);
        std::int32_t present[most_of_group + lane_room]; // 0 in place of missing ones
        const std::uint32_t n_special = tile.has_special ? take_out_missing(codes, n, present) : 0;
        BitWriter extra = given; // not the caller's, which stores might change, as far as C++ knows
        if (list_own(n_special > 0 ? present : codes, place, n, writing, row, entry, extra)) {
            if (n_special > 0) put_missing(codes, n, entry);
        } else {
            for (std::uint32_t x = 0; x < n; ++x) {
                const std::uint32_t table = writing.table_of[row][place[x]],
                                    s = put_large(writing, table, codes[x], extra);
                entry[x] = static_cast<std::uint16_t>(table << 8 | s);
            }
        }
        given = extra;
        return n_special;
    }

    // Copies codes, those that are missing as 0, and the zeros that fill up the last vector. Returns how many are
    // missing.
    static std::uint32_t take_out_missing(const std::int32_t* codes, std::uint32_t n, std::int32_t* present) {
        Codes n_missing{};
        for (std::uint32_t x = 0; x < n; x += lane_room) {
            Codes some;
            std::memcpy(&some, codes + x, sizeof some);
            const Codes missing = some == missing_code;
            n_missing -= missing;
            some &= ~missing;
            std::memcpy(present + x, &some, sizeof some);
        }
        std::uint32_t sum = 0;
        for (std::uint32_t lane = 0; lane < lane_room; ++lane) sum += static_cast<std::uint32_t>(n_missing[lane]);
        return sum;
    }

    // Gives missing codes their symbol.
    static void put_missing(const std::int32_t* codes, std::uint32_t n, std::uint16_t* entry) {
        for (std::uint32_t x = 0; x < n; ++x)
            entry[x] = static_cast<std::uint16_t>(codes[x] == missing_code ? (entry[x] & 0xFF00) | alphabet.missing()
                                                                           : entry[x]);
    }

    // Lists symbols and puts extra bits of a group; false if it has codes that are escaped. codes: none missing, and
    // zeros behind them that fill up the last vector.
    [[gnu::always_inline]] static bool list_own(const std::int32_t* codes, const std::uint8_t* place, std::uint32_t n,
                                                const RansWriting& writing, std::uint32_t row, std::uint16_t* entry,
                                                BitWriter& extra) {
        using L = ByteLanes;
        alignas(64) std::uint8_t symbol[most_of_group + vector_room], bucket[most_of_group + vector_room];
        std::uint32_t value[most_of_group + lane_room], bits[most_of_group + lane_room];
        for (std::uint32_t x = 0; x < n; x += lane_room) {
            Codes code;
            std::memcpy(&code, codes + x, sizeof code);
            const SymbolsOfCodes of(code);
            store_marks(symbol + x, of.symbol);
            store_marks(bucket + x, of.bucket);
            std::memcpy(value + x, &of.extra, sizeof of.extra);
            std::memcpy(bits + x, &of.extra_bits, sizeof of.extra_bits);
        }
        for (std::uint32_t x = 0; x < n; x += L::n) {
            const auto s = L::load(symbol + x),
                       table = L::look_up_128(writing.table_of[row].data(), L::load(place + x));
            if (L::any(is_escaped(writing, table, s, L::load(bucket + x)), n - x)) return false;
            store_entries(table, s, entry + x);
        }
        for (std::uint32_t x = 0; x < n; x += 4) { // at most 17 bits each, and rarely so many
            const std::uint64_t low = value[x] | std::uint64_t{value[x + 1]} << bits[x],
                                high = value[x + 2] | std::uint64_t{value[x + 3]} << bits[x + 2];
            const std::uint32_t n_low = bits[x] + bits[x + 1], n_high = bits[x + 2] + bits[x + 3];
            if (n_low + n_high <= 48) [[likely]] {
                extra.put(low | high << n_low, n_low + n_high);
            } else {
                extra.put(low, n_low);
                extra.put(high, n_high);
            }
        }
        return true;
    }

    // All ones where a symbol has frequency 0 in its table, or may have. bucket: of codes that have none: 0.
    [[gnu::always_inline]] static ByteLanes::Bytes is_escaped(const RansWriting& writing, ByteLanes::Bytes table,
                                                              ByteLanes::Bytes symbol, ByteLanes::Bytes bucket) {
        using Bytes = ByteLanes::Bytes;
        constexpr auto zero = static_cast<std::uint8_t>(alphabet.zero());
        const Bytes magnitude = symbol < zero ? zero - symbol : symbol - zero;
        const auto is_direct = reinterpret_cast<Bytes>(bucket == 0);
        return (is_direct & reinterpret_cast<Bytes>(magnitude > ByteLanes::look_up_16(writing.direct_reach, table))) |
               reinterpret_cast<Bytes>(bucket > ByteLanes::look_up_16(writing.bucket_reach, table));
    }
    [[gnu::always_inline]] static void store_entries(ByteLanes::Bytes table, ByteLanes::Bytes symbol,
                                                     std::uint16_t* entry) {
        typedef std::uint16_t Entries __attribute__((vector_size(2 * ByteLanes::n)));
        const auto entries = __builtin_convertvector(table, Entries) << 8 | __builtin_convertvector(symbol, Entries);
        std::memcpy(entry, &entries, sizeof entries);
    }

    // The symbol of a code that has extra bits, or of a special value; puts the bits.
    static std::uint32_t put_large(const RansWriting& writing, std::uint32_t table, std::int32_t code,
                                   BitWriter& extra) {
        std::uint32_t s = alphabet.symbol(code);
        if (s == alphabet.missing()) return s;
        s = writing.coded_as[table][s];
        const std::uint32_t bits = alphabet.meaning(s).extra_bits;
        extra.put(static_cast<std::uint32_t>(code) & ((1u << bits) - 1), bits);
        return s;
    }

    static std::uint32_t n_coded(const SplineTile<T>& tile) { return tile.place.points() - tile.box[0].points(); }

    static void begin(const Lattice& lattice, std::uint64_t number, SplineTile<T>& tile) {
        tile.begin(lattice, tile_of(lattice, number));
        const LatticeTile later = tile_of(lattice, std::min(number + prefetch_distance, lattice.n_tiles - 1));
        for (std::size_t a = 0; a < 4; ++a) {
            const auto apart =
                static_cast<std::ptrdiff_t>(later.origin[a]) - static_cast<std::ptrdiff_t>(tile.place.origin[a]);
            tile.later += apart * static_cast<std::ptrdiff_t>(lattice.field_stride[a]);
            tile.later_coarse +=
                apart / (lattice.is_active(a) ? 2 : 1) * static_cast<std::ptrdiff_t>(lattice.coarse_stride[a]);
        }
    }

    static void count(const SplineCoder<T>& coder, std::size_t i, const LatticeTile& place, const T* field,
                      const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, SplineTile<T>& tile,
                      RansCounts& counts) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        tile.begin(lattice, place);
        load_coarse(lattice, coarse, tile);
        code_phases(coder, i, field, tile, &counts, nullptr, nullptr);
        store(lattice, tile, coarse, fine);
    }

    static std::uint32_t put_values(std::uint16_t* to, const typename Traits<T>::Bits* bits, std::uint32_t n) {
        std::memcpy(to, bits, n * sizeof(T));
        return n * units_of_value;
    }

    static std::uint32_t write(const SplineCoder<T>& coder, std::size_t i, std::uint64_t first, std::uint32_t n,
                               const T* field, const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine,
                               SplineTile<T>& tile, const RansWriting& writing, SplineOutput<T>* outputs,
                               SplinePayload* payloads, Counts& counts) {
        constexpr std::uint32_t at_once = RansEncoder::most_at_once;
        static_assert(at_once <= tiles_at_once);
        static constexpr std::uint16_t all_special_payload = special;
        RansSequence* sequences[at_once];
        std::uint32_t n_tiles = 0, n_outputs = 0;
        for (; n_tiles < n && n_outputs < at_once; ++n_tiles) {
            SplineOutput<T>& output = outputs[n_outputs];
            output.tile = first + n_tiles;
            payloads[n_tiles] = {output.tile, &all_special_payload, 0};
            const std::uint32_t n_extra = begin_output(coder, i, field, coarse, fine, tile, writing, output);
            if (output.n_values > 0 && all_special(tile)) {
                counts.special += output.n_values;
                payloads[n_tiles].n = 1;
            } else if (output.n_significant > 0 || tile.n_verbatim > 0) {
                write_front(tile, n_extra, output);
                sequences[n_outputs++] = &output.sequence;
            }
        }
        RansEncoder::encode(writing, sequences, n_outputs);
        for (std::uint32_t j = 0; j < n_outputs; ++j) {
            SplineOutput<T>& output = outputs[j];
            SplinePayload& payload = payloads[output.tile - first];
            payload.n = output.n_front + static_cast<std::uint32_t>(std::end(output.room) - output.sequence.words);
            if (payload.n < 1 + output.n_values * units_of_value) {
                std::uint16_t* const begin = output.sequence.words - output.n_front;
                std::memmove(begin, output.room, output.n_front * 2);
                payload.units = begin;
                counts.special += output.n_special;
                counts.unpredictable += output.n_verbatim;
            } else {
                payload.n = write_raw(coder, i, output.tile, field, coarse, fine, tile, output.room);
                payload.units = output.room;
                counts.unpredictable += output.n_values;
            }
        }
        return n_tiles;
    }

    // Lists a tile's entries. Returns the units of extra bits.
    static std::uint32_t begin_output(const SplineCoder<T>& coder, std::size_t i, const T* field,
                                      const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, SplineTile<T>& tile,
                                      const RansWriting& writing, SplineOutput<T>& output) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        begin(lattice, output.tile, tile);
        load_coarse(lattice, coarse, tile);
        const std::uint32_t n_extra = code_phases(coder, i, field, tile, nullptr, &writing, &output);
        store(lattice, tile, coarse, fine);
        output.n_values = n_coded(tile);
        output.n_verbatim = tile.n_verbatim;
        return n_extra;
    }

    // What is before states and words.
    static void write_front(SplineTile<T>& tile, std::uint32_t n_extra, SplineOutput<T>& output) {
        RansSequence& sequence = output.sequence;
        const std::uint32_t n = output.n_significant;
        sequence.lanes = n <= most_for_one_lane ? 1 : n <= 2 * most_for_one_lane ? 2 : most_lanes;
        sequence.words = std::end(output.room);
        std::uint16_t* const payload = output.room;
        std::uint32_t header = coded | static_cast<std::uint32_t>(std::bit_width(sequence.lanes) - 1) << 2, at = 1;
        if (tile.n_verbatim > 0) {
            header |= 1u << 4;
            sort_verbatim(tile);
            payload[at++] = static_cast<std::uint16_t>(tile.n_verbatim);
            std::memcpy(payload + at, tile.verbatim_at, tile.n_verbatim * 2);
            at += tile.n_verbatim;
            at += put_values(payload + at, tile.verbatim, tile.n_verbatim);
        }
        if (n_extra > 0) {
            header |= 1u << 5;
            payload[at++] = static_cast<std::uint16_t>(n_extra);
            std::memcpy(payload + at, tile.scratch.extra, n_extra * 2);
            at += n_extra;
        }
        payload[0] = static_cast<std::uint16_t>(header);
        output.n_front = at;
    }

    // Values as they are, which are then what is predicted from. Returns the payload's units.
    static std::uint32_t write_raw(const SplineCoder<T>& coder, std::size_t i, std::uint64_t number, const T* field,
                                   const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, SplineTile<T>& tile,
                                   std::uint16_t* payload) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        const Quantiser<T>& q = coder.quantiser[i];
        begin(lattice, number, tile);
        load_coarse(lattice, coarse, tile);
        payload[0] = raw;
        std::uint32_t at = 1;
        for (std::uint32_t phase = 1; phase <= tile.n_active; ++phase) {
            for_classes(tile, phase, [&](std::uint32_t c) {
                predict<false>(coder, q, tile, c);
                keep_class(lattice, q, field, tile, c);
                if (phase < tile.n_active) continue_rows(lattice, tile, c);
            });
            for_groups<Geometry::any>(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
                for_values_of(lattice, tile, c, g, [&](std::size_t, std::size_t in_field) {
                    std::memcpy(payload + at, field + in_field, sizeof(T));
                    at += units_of_value;
                });
            });
        }
        store(lattice, tile, coarse, fine);
        return at;
    }

    // Calls use(position in memory, offset in the field) for a group's values.
    template <class Use>
    static void for_values_of(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t c, const Group& g,
                              const Use& use) {
        const auto step = static_cast<std::size_t>(2 * lattice.field_stride[0]);
        for_rows(g.n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
            y += g.first[1];
            z += g.first[2];
            w += g.first[3];
            const std::size_t at = tile.box[c].at(g.first[0], y, z, w),
                              from = field_offset(lattice, tile, c, y, z, w) + g.first[0] * step;
            for (std::uint32_t x = 0; x < g.n[0]; ++x) use(at + x, from + x * step);
        });
    }

    static bool all_special(const SplineTile<T>& tile) {
        if (!tile.has_special) return false;
        bool all = true;
        for (std::uint32_t c = 1; c < tile.classes(); ++c)
            for_rows(tile.box[c].n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
                const std::size_t at = tile.box[c].at(0, y, z, w);
                for (std::uint32_t x = 0; x < tile.box[c].n[0]; ++x)
                    all = all && tile.scratch.code[at + x] == missing_code;
            });
        return all;
    }

    static void sort_verbatim(SplineTile<T>& tile) {
        std::vector<std::pair<std::uint16_t, typename Traits<T>::Bits>> all;
        all.reserve(tile.n_verbatim);
        for (std::uint32_t j = 0; j < tile.n_verbatim; ++j) all.emplace_back(tile.verbatim_at[j], tile.verbatim[j]);
        std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        for (std::uint32_t j = 0; j < tile.n_verbatim; ++j) {
            tile.verbatim_at[j] = all[j].first;
            tile.verbatim[j] = all[j].second;
        }
    }

    // ---- Decoding

    class BitReader {
    public:
        BitReader() = default;
        // Reads up to RansDecoder::margin units beyond the end.
        BitReader(const std::uint16_t* units, const std::uint16_t* end)
            : units_(units), end_(static_cast<std::size_t>(end - units) * 16) {}
        // The code of a symbol. At most 32 in turn, of at most 20 bits each; then good() tells whether there were so
        // many.
        [[gnu::always_inline]] std::int32_t code(std::uint8_t symbol) {
            const auto [first, bits] = symbol_tables.meaning[symbol];
            std::uint64_t here;
            std::memcpy(&here, units_ + at_ / 16, sizeof here);
            const auto code = first | static_cast<std::int32_t>(here >> at_ % 16 & ((1u << bits) - 1));
            at_ += bits;
            return code;
        }
        static constexpr std::uint32_t most_in_turn = RansDecoder::margin * 16 / 32;
        // To be asked before any more are read.
        bool good() {
            if (at_ > end_) {
                good_ = false;
                at_ = end_;
            }
            return good_;
        }
        bool finished() const {
            return good_ && (at_ + 15) / 16 * 16 == end_ && (at_ == end_ || units_[at_ / 16] >> at_ % 16 == 0);
        }

    private:
        const std::uint16_t* units_ = nullptr;
        std::size_t at_ = 0, end_ = 0; // bits
        bool good_ = true;
    };

    // Codes are added to what is predicted at `at` and behind.
    [[gnu::always_inline]] static void add_codes(const Quantiser<T>& q, SplineTile<T>& tile, std::size_t at,
                                                 const Codes& codes) {
        using L = Lanes<T>;
        using Values = typename L::Values;
        std::int32_t k[lane_room];
        std::memcpy(k, &codes, sizeof k);
        for (std::uint32_t lane = 0; lane < lane_room; lane += L::n) {
            const auto of_lanes = L::template load<typename L::Codes>(k + lane);
            const auto p = L::template load<Values>(tile.value + at + lane);
            L::store(tile.value + at + lane, p + __builtin_convertvector(of_lanes, Values) * q.step);
        }
    }
    [[gnu::always_inline]] static void widen(Marks direct, Codes& codes) {
        codes = __builtin_convertvector(direct, Codes) - static_cast<std::int32_t>(alphabet.zero());
    }

    // Values of a phase from codes, which are in coding order, and predictions; and magnitudes. Those that are stored
    // verbatim follow. wide: codes are in code_in_order, otherwise in in_order.direct.
    template <Geometry geometry, bool wide>
    [[gnu::noinline]] static void reconstruct(const Lattice& lattice, const Quantiser<T>& q, SplineTile<T>& tile,
                                              std::uint32_t phase) {
        const InOrder& in_order = tile.scratch.in_order;
        const std::int32_t* const codes = tile.scratch.code_in_order;
        if constexpr (geometry == Geometry::any) {
            for_rows_in_order<geometry>(lattice, tile, phase, [&](std::size_t at, std::uint32_t place, auto n) {
                copy_row(tile.magnitude + at, in_order.magnitude + place, n);
                for (std::uint32_t x = 0; x < n; x += lane_room) {
                    Codes some;
                    if constexpr (wide) {
                        std::memcpy(&some, codes + place + x, sizeof some);
                        some &= ~(some == missing_code);
                    } else {
                        widen(load_marks(in_order.direct + place + x), some);
                    }
                    keep_first(some, n - x); // so that what follows stays as it is
                    add_codes(q, tile, at + x, some);
                }
            });
        } else { // a row of the class has a part in each of four groups
            std::uint32_t place = 0;
            for_classes(tile, phase, [&](std::uint32_t c) {
                const ClassBox box = box_of<geometry>(tile, c);
                constexpr std::uint32_t edge = group_edges(active_axes(geometry))[0], parts = lane_room / edge;
                for (std::uint32_t y = 0; y < box.n[1]; y += edge, place += 4 * most_of_group)
                    for (std::uint32_t piece = 0; piece < 4; ++piece) { // lane_room values of each group
                        const std::uint32_t first = place + piece * lane_room;
                        Marks direct[4], magnitude[4];
                        if constexpr (!wide) rows_of_groups<edge>(in_order.direct + first, direct);
                        rows_of_groups<edge>(in_order.magnitude + first, magnitude);
                        for (std::uint32_t r = 0; r < 4; ++r) {
                            const std::size_t at = geometry == Geometry::full_3d
                                                       ? box.at(0, y + r, piece, 0)
                                                       : box.at(r % 2 * lane_room, y + 2 * piece + r / 2, 0, 0);
                            store_marks(tile.magnitude + at, magnitude[r]);
                            Codes some;
                            if constexpr (wide) {
                                const std::uint32_t group = geometry == Geometry::full_3d ? 0 : r % 2 * parts,
                                                    row = geometry == Geometry::full_3d ? r : r / 2;
                                join<parts>(codes + first + group * most_of_group + row * edge, some);
                                some &= ~(some == missing_code);
                            } else {
                                widen(direct[r], some);
                            }
                            add_codes(q, tile, at, some);
                        }
                    }
            });
        }
    }

    // A row of codes that has a part in each of so many groups. Not by way of memory: a vector cannot be loaded from
    // stores of its parts before they are through.
    template <std::uint32_t parts>
    [[gnu::always_inline]] static void join(const std::int32_t* codes, Codes& row) {
        static_assert(parts == 2 || parts == 4);
        typedef std::int32_t Half __attribute__((vector_size(32)));
        typedef std::int32_t Quarter __attribute__((vector_size(16)));
        Half half[2];
        for (std::size_t h = 0; h < 2; ++h)
            if constexpr (parts == 2) {
                std::memcpy(&half[h], codes + h * most_of_group, sizeof half[h]);
            } else {
                Quarter a, b;
                std::memcpy(&a, codes + 2 * h * most_of_group, sizeof a);
                std::memcpy(&b, codes + (2 * h + 1) * most_of_group, sizeof b);
                half[h] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
            }
        row = __builtin_shufflevector(half[0], half[1], 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }

    // lane_room bytes of each of four groups, which are rows of `edge`, as rows of all four: 4 of 16 or 2 of 32.
    template <std::uint32_t edge>
    [[gnu::always_inline]] static void rows_of_groups(const std::uint8_t* from, Marks (&row)[4]) {
        if constexpr (edge == 4) {
            transpose_fours(from, most_of_group, row);
        } else {
            static_assert(edge == 8);
            Marks group[4];
            for (std::size_t g = 0; g < 4; ++g) group[g] = load_marks(from + g * most_of_group);
            for (std::size_t half = 0; half < 2; ++half) {
                const Marks a = group[2 * half], b = group[2 * half + 1];
                row[half] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
                row[2 + half] =
                    __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
            }
        }
    }

    // As with codes that are all 0: a prediction of -0 gives 0.
    static void reconstruct_without_codes(SplineTile<T>& tile, std::uint32_t c) {
        for_rows(tile.box[c].n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
            T* const row = tile.value + tile.box[c].at(0, y, z, w);
            for (std::uint32_t x = 0; x < tile.box[c].n[0]; ++x) row[x] += T{0};
        });
    }

    // What a payload's header says.
    struct Payload {
        TileKind kind = coded;
        bool has_codes = false; // not all of them are 0
        std::uint32_t lanes = 1;
        const std::uint16_t *extra = nullptr, *extra_end = nullptr; // bits
        const std::uint16_t* rest = nullptr;                        // states and words, or values
    };
    static Payload read_header(std::uint64_t tile_number, const std::uint16_t* units, std::uint32_t n_units,
                               SplineTile<T>& tile) {
        Payload payload;
        payload.rest = payload.extra = payload.extra_end = units;
        if (n_units == 0) return payload;
        const std::uint32_t header = units[0], n = n_coded(tile);
        std::uint32_t at = 1;
        const auto take = [&](std::uint32_t count) { // the next `count` units, which must exist
            const std::uint32_t from = at;
            if (count > n_units - at) corrupt_tile(tile_number, "payload is too short");
            at += count;
            return units + from;
        };
        payload.kind = static_cast<TileKind>(header & 3);
        if (payload.kind == coded) {
            if ((header & 3u << 2) == 3u << 2 || header >> 6 != 0) corrupt_tile(tile_number, "bad tile header");
            if ((header >> 4 & 1) != 0) read_verbatim(tile_number, tile, take);
            if ((header >> 5 & 1) != 0) {
                const std::uint32_t count = *take(1);
                payload.extra = take(count);
                payload.extra_end = payload.extra + count;
            }
            payload.has_codes = true;
            payload.lanes = 1u << (header >> 2 & 3);
            payload.rest = take(2 * payload.lanes);
        } else {
            if (header > raw || n_units != (payload.kind == raw ? 1 + n * units_of_value : 1))
                corrupt_tile(tile_number, "bad tile header or length");
            payload.rest = units + at;
        }
        return payload;
    }

    // A tile that is decoded, side by side with others.
    struct Reading {
        SplineTile<T>* tile = nullptr;
        std::uint64_t number = 0; // in the archive
        Payload payload;
        RansDecoder decoder;
        BitReader extra;
        std::uint32_t n_groups = 0, n_values = 0; // of a phase; the latter in significant groups
    };

    static void read(const SplineCoder<T>& coder, std::size_t i, const SplinePayload* payloads,
                     std::uint32_t n_payloads, const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine,
                     const Destination<T>& destination, const SplineTiles<T>& tiles, const RansReading& reading,
                     std::vector<Patch>& patches) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        const Quantiser<T>& q = coder.quantiser[i];
        static_assert(tiles_at_once <= RansDecoder::most_at_once);
        Reading coded[tiles_at_once];
        std::uint32_t n_coded = 0;
        for (std::uint32_t j = 0; j < n_payloads; ++j) {
            const auto [number, units, n_units] = payloads[j];
            Reading& of = coded[n_coded];
            of.tile = tiles[j].get();
            of.number = lattice.first_tile + number;
            begin(lattice, number, *of.tile);
            of.payload = read_header(of.number, units, n_units, *of.tile);
            load_coarse(lattice, coarse, *of.tile);
            if (of.payload.has_codes) {
                of.decoder = RansDecoder(reading, of.payload.lanes, of.payload.rest, units + n_units);
                of.extra = BitReader(of.payload.extra, of.payload.extra_end);
                sum_parents(*of.tile);
                ++n_coded;
            } else {
                read_without_codes(coder, lattice, q, of.payload, *of.tile);
            }
        }
        for (std::uint32_t phase = 1; phase <= lattice.n_active && n_coded > 0; ++phase) {
            const std::uint8_t* const table_of = reading.table_of[row_of(i, phase) / n_places].data();
            RansDecoder::Symbols symbols[tiles_at_once];
            for (std::uint32_t j = 0; j < n_coded; ++j) {
                Reading& of = coded[j];
                with_geometry_of(*of.tile,
                                 [&](auto geometry) { begin_phase<geometry>(coder, i, phase, table_of, of); });
                symbols[j] = {&of.decoder, of.tile->table, of.tile->symbol, of.n_values};
            }
            RansDecoder::symbols(symbols, n_coded);
            for (std::uint32_t j = 0; j < n_coded; ++j)
                with_geometry_of(*coded[j].tile,
                                 [&](auto geometry) { end_phase<geometry>(lattice, q, phase, coded[j]); });
        }
        for (std::uint32_t j = 0; j < n_coded; ++j)
            if (!coded[j].decoder.finished() || !coded[j].extra.finished())
                corrupt_tile(coded[j].number, "codewords do not end where the payload does");
        for (std::uint32_t j = 0; j < n_payloads; ++j) {
            store(lattice, *tiles[j], coarse, fine);
            list_patches(coder, i, *tiles[j], patches);
        }
        if (fine.value == nullptr) put_out(lattice, tiles, n_payloads, coarse, q, destination);
    }

    // Verbatim values that are not finite are not among those to predict from.
    static void list_patches(const SplineCoder<T>& coder, std::size_t i, const SplineTile<T>& tile,
                             std::vector<Patch>& patches) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        for (std::uint32_t j = 0; j < tile.n_verbatim; ++j) {
            const T value = std::bit_cast<T>(tile.verbatim[j]);
            if (std::abs(value) <= std::numeric_limits<T>::max() || tile.verbatim[j] == coder.quantiser[i].special)
                continue;
            Patch patch{{}, tile.verbatim[j]};
            std::uint32_t rest = tile.verbatim_at[j];
            for (std::size_t a = 0; a < 4; ++a, rest /= tile.place.edge[a - 1])
                patch.at[lattice.axis[a]] =
                    (tile.place.origin[a] + rest % tile.place.edge[a]) * coder.pyramid.scale(i, lattice.axis[a]);
            patches.push_back(patch);
        }
    }

    // A tile whose codes are all 0, or that has none.
    static void read_without_codes(const SplineCoder<T>& coder, const Lattice& lattice, const Quantiser<T>& q,
                                   const Payload& payload, SplineTile<T>& tile) {
        const std::uint16_t* values = payload.rest;
        for (std::uint32_t phase = 1; phase <= tile.n_active; ++phase) {
            for_classes(tile, phase, [&](std::uint32_t c) {
                predict<false>(coder, q, tile, c);
                if (payload.kind == coded) {
                    reconstruct_without_codes(tile, c);
                } else if (payload.kind == special) {
                    tile.has_special = true;
                    for_rows(tile.box[c].n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
                        std::fill_n(tile.magnitude + tile.box[c].at(0, y, z, w), tile.box[c].n[0], special_magnitude);
                    });
                }
            });
            if (payload.kind == raw)
                for_groups<Geometry::any>(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
                    for_rows(g.n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
                        for (std::uint32_t x = 0; x < g.n[0]; ++x, values += units_of_value) {
                            typename Traits<T>::Bits bits;
                            std::memcpy(&bits, values, sizeof bits);
                            put_value(tile, q, c, {g.first[0] + x, g.first[1] + y, g.first[2] + z, g.first[3] + w},
                                      bits, true);
                        }
                    });
                });
            if (phase < tile.n_active)
                for_classes(tile, phase, [&](std::uint32_t c) { continue_rows(lattice, tile, c); });
        }
    }

    template <class Take>
    static void read_verbatim(std::uint64_t tile_number, SplineTile<T>& tile, const Take& take) {
        tile.n_verbatim = *take(1);
        if (tile.n_verbatim > tile.place.points()) corrupt_tile(tile_number, "more verbatim values than points");
        std::memcpy(tile.verbatim_at, take(tile.n_verbatim), tile.n_verbatim * 2);
        std::memcpy(tile.verbatim, take(tile.n_verbatim * units_of_value), tile.n_verbatim * sizeof(T));
        for (std::uint32_t j = 0; j < tile.n_verbatim; ++j) {
            const std::uint32_t at = tile.verbatim_at[j];
            if (at >= tile.place.points() || (j > 0 && at <= tile.verbatim_at[j - 1]) || class_of(tile, at) == 0)
                corrupt_tile(tile_number, "bad position of a verbatim value");
        }
    }

    static std::uint32_t class_of(const SplineTile<T>& tile, std::uint32_t at) {
        std::uint32_t c = 0;
        for (std::uint32_t a = 0; a < tile.n_active; ++a, at /= tile.place.edge[a - 1])
            c |= (at % tile.place.edge[a] & 1) << a;
        return c;
    }

    // A value that is stored as it is; list: to be found again, if it has to be patched.
    static void put_value(SplineTile<T>& tile, const Quantiser<T>& q, std::uint32_t c,
                          const std::array<std::uint32_t, 4>& h, typename Traits<T>::Bits bits, bool list) {
        const std::size_t at = tile.box[c].at(h[0], h[1], h[2], h[3]);
        keep_value(q, tile, at, bits);
        tile.magnitude[at] = bits == q.special ? special_magnitude : std::uint8_t{0};
        if (list && bits != q.special && !(std::abs(std::bit_cast<T>(bits)) <= std::numeric_limits<T>::max()))
            add_verbatim(tile, position(tile, c, h[0], h[1], h[2], h[3]), bits);
    }

    // The verbatim values of a phase; false if one has a code.
    static bool put_verbatim(SplineTile<T>& tile, const Quantiser<T>& q, std::uint32_t phase) {
        for (std::uint32_t j = 0; j < tile.n_verbatim; ++j) {
            const std::uint32_t c = class_of(tile, tile.verbatim_at[j]);
            if (static_cast<std::uint32_t>(std::popcount(c)) != phase) continue;
            std::array<std::uint32_t, 4> h{};
            std::uint32_t rest = tile.verbatim_at[j];
            for (std::uint32_t a = 0; a < 4; ++a, rest /= tile.place.edge[a - 1])
                h[a] = rest % tile.place.edge[a] / (a < tile.n_active ? 2 : 1);
            if (tile.magnitude[tile.box[c].at(h[0], h[1], h[2], h[3])] != 0) return false;
            put_value(tile, q, c, h, tile.verbatim[j], false);
        }
        return true;
    }

    // Up to the symbols of a phase: predictions, contexts, and which groups are significant.
    template <Geometry geometry>
    static void begin_phase(const SplineCoder<T>& coder, std::size_t i, std::uint32_t phase,
                            const std::uint8_t* table_of, Reading& of) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        SplineTile<T>& tile = *of.tile;
        for_classes(tile, phase, [&](std::uint32_t c) {
            predict<true>(coder, coder.quantiser[i], tile, c);
            find_contexts<geometry>(tile, c);
        });
        put_in_order<geometry>(lattice, tile, phase, tile.scratch.context, tile.scratch.in_order.place);
        of.n_groups = list_groups<geometry>(lattice, tile, phase);
        std::uint32_t first = 0;
        for (std::uint32_t j = 0; j < of.n_groups; first += tile.group_size[j++])
            tile.scratch.group_context[j] =
                static_cast<std::uint8_t>(context_of_group(tile.scratch.in_order.place + first, tile.group_size[j]));
        of.decoder.flags(tile.scratch.group_context, of.n_groups, tile.flag);
        if (!of.decoder.good()) corrupt_tile(of.number, "codewords end early");
        first = of.n_values = 0;
        for (std::uint32_t j = 0; j < of.n_groups; first += tile.group_size[j++]) {
            for (std::uint32_t x = 0; x < most_of_group; x += ByteLanes::n)
                ByteLanes::store(
                    tile.table + of.n_values + x,
                    ByteLanes::look_up_128(table_of, ByteLanes::load(tile.scratch.in_order.place + first + x)));
            of.n_values += tile.flag[j] != 0 ? tile.group_size[j] : 0u;
        }
    }

    // From the symbols of a phase on: codes and values.
    template <Geometry geometry>
    static void end_phase(const Lattice& lattice, const Quantiser<T>& q, std::uint32_t phase, Reading& of) {
        SplineTile<T>& tile = *of.tile;
        if (!of.decoder.good()) corrupt_tile(of.number, "codewords end early");
        std::uint8_t bits_set = 0;
        for (std::uint32_t v = 0; v < of.n_values; ++v) bits_set |= tile.symbol[v];
        const bool wide = (bits_set & (256 - n_direct)) != 0;
        if (wide) {
            const bool missing = std::memchr(tile.symbol, missing_symbol, of.n_values) != nullptr;
            tile.has_special |= missing;
            if (missing)
                wide_in_order<true>(tile, of);
            else
                wide_in_order<false>(tile, of);
            reconstruct<geometry, true>(lattice, q, tile, phase);
        } else {
            direct_in_order(tile, of.n_groups);
            reconstruct<geometry, false>(lattice, q, tile, phase);
        }
        if (!put_verbatim(tile, q, phase)) corrupt_tile(of.number, "a verbatim value has a code");
        if (phase < tile.n_active) for_classes(tile, phase, [&](std::uint32_t c) { continue_rows(lattice, tile, c); });
    }

    // Codes that have symbols of their own.
    static void direct_in_order(SplineTile<T>& tile, std::uint32_t n_groups) {
        InOrder& in_order = tile.scratch.in_order;
        std::uint32_t first = 0, n_values = 0;
        for (std::uint32_t j = 0; j < n_groups; first += tile.group_size[j++]) {
            if (tile.flag[j] != 0) {
                for (std::uint32_t x = 0; x < most_of_group; x += ByteLanes::n) {
                    const auto direct = ByteLanes::load(tile.symbol + n_values + x);
                    ByteLanes::store(in_order.direct + first + x, direct);
                    ByteLanes::store(in_order.magnitude + first + x, magnitudes_of_direct(direct));
                }
                n_values += tile.group_size[j];
            } else {
                std::memset(in_order.direct + first, alphabet.zero(), most_of_group);
                std::memset(in_order.magnitude + first, 0, most_of_group);
            }
        }
    }

    // Codes from symbols some of which have extra bits or, with_missing, stand for missing values.
    template <bool with_missing>
    [[gnu::noinline]] static void wide_in_order(SplineTile<T>& tile, Reading& of) {
        std::int32_t* const codes = tile.scratch.code_in_order;
        std::uint8_t* const magnitudes = tile.scratch.in_order.magnitude;
        BitReader extra = of.extra; // not the one in memory, which stores might change, as far as C++ knows
        std::uint32_t first = 0, n_values = 0;
        for (std::uint32_t j = 0; j < of.n_groups; first += tile.group_size[j++]) {
            const std::uint8_t* const symbol = tile.symbol + n_values;
            if (tile.flag[j] == 0) {
                std::memset(codes + first, 0, most_of_group * sizeof *codes);
                std::memset(magnitudes + first, 0, most_of_group);
                continue;
            }
            const std::uint32_t n = tile.group_size[j];
            n_values += n;
            for (std::uint32_t x = 0; x < most_of_group; x += lane_room) {
                const Marks symbols = load_marks(symbol + x);
                Codes code;
                widen(symbols, code);
                if constexpr (with_missing)
                    code =
                        __builtin_convertvector(symbols == missing_symbol, Codes) != 0 ? Codes{} + missing_code : code;
                std::memcpy(codes + first + x, &code, sizeof code);
            }
            std::uint64_t large = not_direct_bits<with_missing>(symbol) & ~std::uint64_t{0} >> (64 - n);
            if (static_cast<std::uint32_t>(std::popcount(large)) >
                most_of_group / 2) { // then all in order is faster; measured
                for (std::uint32_t x = 0; x < n && extra.good();)
                    for (const std::uint32_t end = std::min(x + BitReader::most_in_turn, n); x < end; ++x)
                        codes[first + x] = extra.code(symbol[x]);
                for (std::uint32_t x = 0; x < most_of_group; x += lane_room) {
                    Codes some;
                    std::memcpy(&some, codes + first + x, sizeof some);
                    const Codes missing = with_missing ? Codes(some == missing_code) : Codes{};
                    store_marks(magnitudes + first + x,
                                magnitudes_of(some & ~missing) | __builtin_convertvector(missing, Marks));
                }
            } else {
                for (std::uint32_t x = 0; x < most_of_group; x += ByteLanes::n) {
                    const auto symbols = ByteLanes::load(symbol + x);
                    auto magnitude = magnitudes_of_direct(symbols);
                    if constexpr (with_missing)
                        magnitude |= reinterpret_cast<ByteLanes::Bytes>(symbols == missing_symbol);
                    ByteLanes::store(magnitudes + first + x, magnitude);
                }
                static_assert(most_of_group / 2 <= BitReader::most_in_turn);
                for (; large != 0; large &= large - 1) {
                    const auto x = static_cast<std::uint32_t>(std::countr_zero(large));
                    codes[first + x] = extra.code(symbol[x]);
                    magnitudes[first + x] = magnitude_of(codes[first + x]);
                }
            }
            extra.good();
        }
        of.extra = extra;
    }

    // n of each, and up to a vector more.
    static void interleave(const T* even, const T* odd, std::uint32_t n, T* line) {
        using L = Lanes<T>;
        using Values = typename L::Values;
        for (std::uint32_t x = 0; x < n; x += L::n) {
            const auto a = L::template load<Values>(even + x), b = L::template load<Values>(odd + x);
            L::store(line + 2 * x, L::interleaved_low(a, b));
            L::store(line + 2 * x + L::n, L::interleaved_high(a, b));
        }
    }

    static void interleave_marks(const std::uint8_t* even, const std::uint8_t* odd, std::uint32_t n,
                                 std::uint8_t* line) {
        for (std::uint32_t x = 0; x < n; x += lane_room) {
            const Marks a = load_marks(even + x), b = load_marks(odd + x);
            store_marks(line + 2 * x,
                        __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
            store_marks(line + 2 * x + lane_room,
                        __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
        }
    }

    // Puts a tile of lattice 0 to where it is wanted, row by row.
    class PutOut {
    public:
        PutOut() = default;
        PutOut(const Lattice& lattice, const SplineTile<T>& tile, const LatticeArrays<T>& coarse, const Quantiser<T>& q,
               const Destination<T>& to)
            : lattice_(&lattice), tile_(&tile), parents_(&coarse),
              special_(static_cast<typename Lanes<T>::Int>(q.special)), to_(&to) {
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
                    active ? static_cast<std::uint32_t>(from_origin & 1) << a : 0,
                    (x - to_->start[a]) * to_->stride[a]};
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
                const auto is_special = __builtin_convertvector(of_lanes == special_magnitude, typename L::Ints);
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
    static void put_out(const Lattice& lattice, const SplineTiles<T>& tiles, std::uint32_t n_tiles,
                        const LatticeArrays<T>& coarse, const Quantiser<T>& q, const Destination<T>& to) {
        PutOut out[tiles_at_once];
        std::uint32_t n = 0;
        for (std::uint32_t j = 0; j < n_tiles; ++j) {
            out[n] = PutOut(lattice, *tiles[j], coarse, q, to);
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
};

} // namespace cusz::cpu::CUSZ_ISA
