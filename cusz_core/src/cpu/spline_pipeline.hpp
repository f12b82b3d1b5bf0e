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
    enum TileKind : std::uint32_t { coded = 0, special = 1, raw = 2 };

    // A group: its first half coordinates, and its extents.
    struct Group {
        std::array<std::uint32_t, 4> first, n;
    };
    // Calls use(c, group) for the groups of a phase, in coding order.
    template <class Use>
    static void for_groups(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t phase, const Use& use) {
        for_classes(tile, phase, [&](std::uint32_t c) {
            const ClassBox& box = tile.box[c];
            Group g{};
            for (g.first[3] = 0; g.first[3] < box.n[3]; g.first[3] += lattice.group[3])
                for (g.first[2] = 0; g.first[2] < box.n[2]; g.first[2] += lattice.group[2])
                    for (g.first[1] = 0; g.first[1] < box.n[1]; g.first[1] += lattice.group[1])
                        for (g.first[0] = 0; g.first[0] < box.n[0]; g.first[0] += lattice.group[0]) {
                            for (std::size_t a = 0; a < 4; ++a)
                                g.n[a] = std::min(lattice.group[a], box.n[a] - g.first[a]);
                            use(c, g);
                        }
        });
    }
    // Calls use(offset, n) for the rows of a group; n is a constant where rows are 4 or 8 long.
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

    // The context of a group, and whether any of its magnitudes is not 0.
    struct GroupState {
        std::uint32_t context;
        bool significant;
    };
    template <bool magnitudes>
    [[gnu::always_inline]] static GroupState state_of(const SplineTile<T>& tile, std::uint32_t c, const Group& g) {
        std::uint32_t sum = 0;
        std::uint64_t any = 0;
        for_rows_of(tile.box[c], g, [&](std::size_t at, auto n) {
            if constexpr (std::is_same_v<decltype(n), std::uint32_t>) {
                for (std::uint32_t x = 0; x < n; ++x) {
                    sum += tile.spread[at + x];
                    if (magnitudes) any |= tile.magnitude[at + x];
                }
            } else { // all bytes at once: S + N is at most 15
                std::conditional_t<n == 4, std::uint32_t, std::uint64_t> bytes, m = 0;
                constexpr auto pairs = static_cast<decltype(m)>(0x00FF00FF00FF00FFu);
                std::memcpy(&bytes, tile.spread + at, n);
                if (magnitudes) std::memcpy(&m, tile.magnitude + at, n);
                const auto two = static_cast<decltype(m)>((bytes & pairs) + (bytes >> 8 & pairs));
                sum += static_cast<std::uint32_t>(two * static_cast<decltype(m)>(0x0001000100010001u) >> (8 * n - 16));
                any |= m;
            }
        });
        return {group_context(sum), any != 0};
    }

    // The offset of a class's row in the field, and the distance between its values there.
    static std::size_t field_offset(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t c, std::uint32_t y,
                                    std::uint32_t z, std::uint32_t w) {
        const std::array<std::uint32_t, 4> h{0, y, z, w};
        std::size_t offset = 0;
        for (std::uint32_t a = 0; a < 4; ++a) {
            const std::uint64_t x = lattice.is_active(a) ? 2 * h[a] + (c >> a & 1) : h[a];
            offset += static_cast<std::size_t>((tile.place.origin[a] + x) * lattice.field_stride[a]);
        }
        return offset;
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

    // Takes the tile's values apart by class. later: how much further on in the field the tile lies that is prefetched.
    static void load_values(const Lattice& lattice, const T* field, SplineTile<T>& tile, std::ptrdiff_t later) {
        using L = Lanes<T>;
        using Values = typename L::Values;
        const std::uint32_t n = tile.place.edge[0];
        const auto step = static_cast<std::size_t>(lattice.field_stride[0]);
        std::size_t origin = 0;
        for (std::size_t a = 0; a < 4; ++a)
            origin += static_cast<std::size_t>(tile.place.origin[a] * lattice.field_stride[a]);
        const std::array<std::uint32_t, 4> rows = tile.place.edge;
        for_rows(rows, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
            const T* const from = field + origin + y * lattice.field_stride[1] + z * lattice.field_stride[2] +
                                  w * lattice.field_stride[3];
            std::array<std::uint32_t, 4> h{0, y, z, w};
            std::uint32_t c = 0;
            for (std::uint32_t a = 1; a < tile.n_active; ++a) {
                c |= (h[a] & 1) << a;
                h[a] /= 2;
            }
            T* const even = tile.original + tile.box[c].at(0, h[1], h[2], h[3]);
            T* const odd = tile.original + tile.box[c | 1].at(0, h[1], h[2], h[3]);
            std::uint32_t x = 0;
            for (std::size_t p = 0; p < n * step; p += std::max<std::size_t>(step, 64 / sizeof(T)))
                __builtin_prefetch(from + later + p);
            if (step == 1) {
                for (; x + 2 * L::n <= n; x += 2 * L::n) {
                    const auto a = L::template load<Values>(from + x), b = L::template load<Values>(from + x + L::n);
                    L::store(even + x / 2, L::evens(a, b));
                    L::store(odd + x / 2, L::odds(a, b));
                }
            }
            for (; x + 1 < n; x += 2) {
                even[x / 2] = from[x * step];
                odd[x / 2] = from[(x + 1) * step];
            }
            if (x < n) even[x / 2] = from[x * step];
        });
    }

    // Quantises class c, whose predictions are in tile.value. is_raw: every value is kept verbatim (and not listed).
    static void quantise_class(const Quantiser<T>& q, SplineTile<T>& tile, std::uint32_t c, bool is_raw) {
        const ClassBox& box = tile.box[c];
        const std::uint32_t n = box.n[0];
        Codes beyond{}; // bits of code + 32 that a direct symbol does not have
        for_rows(box.n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
            const std::size_t at = box.at(0, y, z, w);
            const T* const d = tile.original + at;
            T* const value = tile.value + at;
            std::int32_t* const code = tile.code + at;
            if (is_raw)
                for (std::uint32_t x = 0; x < n; ++x) keep_value(q, tile, at + x, bits_of(d[x]));
            else
                quantise_row(d, value, code, n, q, [&](std::uint32_t x) {
                    if (bits_of(d[x]) == q.special) {
                        code[x] = missing_code;
                        tile.has_special = true;
                        return;
                    }
                    const CodedValue<T> result = quantise_value(d[x], value[x], q);
                    code[x] = result.code;
                    value[x] = result.value;
                    if (result.verbatim) add_verbatim(tile, position(tile, c, x, y, z, w), bits_of(d[x]));
                });
            for (std::uint32_t x = 0; x < n; x += lane_room) {
                Codes v;
                std::memcpy(&v, code + x, sizeof v);
                keep_first(v, n - x);
                beyond |= (v + 32) & ~63;
                store_bytes(tile.direct + at + x, __builtin_convertvector(v + 32, Bytes));
                const Bytes special = __builtin_convertvector(v == missing_code, Bytes);
                store_bytes(tile.magnitude + at + x, magnitudes_of(v) | special);
            }
        });
        for (std::uint32_t lane = 0; lane < lane_room; ++lane) tile.has_large = tile.has_large || beyond[lane] != 0;
    }

    // A value that is stored as it is.
    static void keep_value(const Quantiser<T>& q, SplineTile<T>& tile, std::size_t at, typename Traits<T>::Bits bits) {
        const T value = std::bit_cast<T>(bits);
        tile.code[at] = bits == q.special ? missing_code : 0;
        tile.has_special = tile.has_special || bits == q.special;
        if (bits != q.special && std::abs(value) <= std::numeric_limits<T>::max()) tile.value[at] = value;
    }

    static void predict(const SplineCoder<T>& coder, const Quantiser<T>& q, SplineTile<T>& tile, std::uint32_t c) {
        if (coder.cubic)
            predict_class<true>(tile, c, q.inv);
        else
            predict_class<false>(tile, c, q.inv);
    }

    // Puts the tile's values to predict from and magnitudes into the arrays of its lattice.
    static void store(const Lattice& lattice, const SplineTile<T>& tile, const LatticeArrays<T>& coarse,
                      const LatticeArrays<T>& fine) {
        if (fine.value == nullptr) return;
        for (std::uint32_t c = 0; c < tile.classes(); ++c) {
            const ClassBox& box = tile.box[c];
            for_rows(box.n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
                const std::array<std::uint32_t, 4> h{0, y, z, w};
                std::size_t to = 0, from = 0;
                for (std::uint32_t a = 0; a < 4; ++a) {
                    const bool active = lattice.is_active(a);
                    const std::uint64_t x = tile.place.origin[a] + (active ? 2 * h[a] + (c >> a & 1) : h[a]);
                    to += static_cast<std::size_t>(x * lattice.stride[a]);
                    from += static_cast<std::size_t>((active ? x / 2 : x) * lattice.coarse_stride[a]);
                }
                const std::size_t step = 2 * lattice.stride[0], at = box.at(0, y, z, w);
                for (std::uint32_t x = 0; x < box.n[0]; ++x) fine.value[to + x * step] = tile.value[at + x];
                for (std::uint32_t x = 0; x < box.n[0]; ++x) {
                    const std::uint8_t m = c > 0 ? tile.magnitude[at + x]
                                           : coarse.magnitude[from + x * lattice.coarse_stride[0]] == special_magnitude
                                               ? special_magnitude
                                               : std::uint8_t{0};
                    fine.magnitude[to + x * step] = m;
                }
            });
        }
    }

    // Extra bits of codes, from the lowest up.
    class BitWriter {
    public:
        explicit BitWriter(std::uint16_t* units) : first_(units), at_(units) {}
        void put(std::uint32_t value, std::uint32_t bits) {
            held_ |= std::uint64_t{value} << n_;
            n_ += bits;
            for (; n_ >= 16; n_ -= 16, held_ >>= 16) *at_++ = static_cast<std::uint16_t>(held_);
        }
        std::uint32_t finish() {
            if (n_ > 0) *at_++ = static_cast<std::uint16_t>(held_);
            return static_cast<std::uint32_t>(at_ - first_);
        }

    private:
        std::uint16_t *first_, *at_;
        std::uint64_t held_ = 0;
        std::uint32_t n_ = 0;
    };

    // Entries to be coded, in their order: for each phase its groups' flags, then the symbols of significant ones.
    struct Entries {
        std::uint32_t run[2 * most_active_axes + 1] = {}; // where each begins, and the end
        std::uint32_t n_runs = 0, n_values = 0, n_extra = 0;
        std::uint32_t n_special = 0;
        bool any_significant = false;
    };

    // Predicts and codes all phases: counts what is coded, or lists it for writing; the other one is null.
    static void code_phases(const SplineCoder<T>& coder, std::size_t i, SplineTile<T>& tile, RansCounts* counts,
                            const RansWriting* writing, Entries& entries) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        const Quantiser<T>& q = coder.quantiser[i];
        std::uint32_t at = 0;
        BitWriter extra(tile.extra);
        for (std::uint32_t phase = 1; phase <= tile.n_active; ++phase) {
            for_classes(tile, phase, [&](std::uint32_t c) {
                predict(coder, q, tile, c);
                quantise_class(q, tile, c, false);
                if (phase < tile.n_active) continue_rows(lattice, tile, c);
            });
            for_classes(tile, phase, [&](std::uint32_t c) { find_contexts(tile, c); });
            entries.run[entries.n_runs++] = at;
            std::uint32_t values = 0;
            const std::uint32_t row = row_of(i, phase);
            // The values of the phase, after the flags, whose number is known once all groups were seen.
            std::uint16_t* const value_entry = tile.entry + max_tile_values;
            for_groups(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
                const ClassBox& box = tile.box[c];
                const auto [context, significant] = state_of<true>(tile, c, g);
                if (counts != nullptr) ++counts->group[i > 0][context][significant];
                tile.entry[at++] = static_cast<std::uint16_t>((most_tables + context) << 8 | significant);
                if (!significant) return;
                entries.any_significant = true;
                if (counts != nullptr)
                    count_group(tile, box, g, counts->symbol.data() + row);
                else
                    values = list_group(tile, box, g, *writing, row, value_entry, values, extra, entries);
            });
            entries.run[entries.n_runs++] = at;
            if (writing != nullptr) std::memmove(tile.entry + at, value_entry, values * 2);
            at += values;
            entries.n_values += values;
        }
        entries.run[entries.n_runs] = at;
        entries.n_extra = extra.finish();
    }

    static void count_group(const SplineTile<T>& tile, const ClassBox& box, const Group& g,
                            std::array<std::uint32_t, n_symbols>* counts) {
        for_rows_of(box, g, [&](std::size_t at, auto n) {
            for (std::uint32_t x = 0; x < n; ++x) {
                const std::int32_t code = tile.code[at + x];
                std::uint32_t s = static_cast<std::uint32_t>(code) + alphabet.zero();
                if (s >= 2 * alphabet.direct()) s = alphabet.symbol(code);
                ++counts[tile.context[at + x]][s];
            }
        });
    }

    // Lists a group's symbols from entry[values] on, and puts their extra bits. Returns the number of entries.
    static std::uint32_t list_group(const SplineTile<T>& tile, const ClassBox& box, const Group& g,
                                    const RansWriting& writing, std::uint32_t row, std::uint16_t* entry,
                                    std::uint32_t values, BitWriter& extra, Entries& entries) {
        const std::uint16_t* const entry_of = writing.entry_of + row * n_direct;
        std::uint32_t large = tile.has_large ? n_direct : 0, at_first = values;
        if (large == 0)
            for_rows_of(box, g, [&](std::size_t at, auto n) {
                for (std::uint32_t x = 0; x < n; ++x) {
                    const std::uint16_t e = entry_of[tile.context[at + x] * n_direct + tile.direct[at + x]];
                    large |= e;
                    entry[values + x] = e;
                }
                values += n;
            });
        if ((large & (256 - n_direct)) == 0) return values;
        values = at_first;
        for_rows_of(box, g, [&](std::size_t at, auto n) {
            for (std::uint32_t x = 0; x < n; ++x) {
                const std::int32_t code = tile.code[at + x];
                const std::uint32_t context = row + tile.context[at + x], table = writing.model.table[context];
                std::uint32_t s = static_cast<std::uint32_t>(code) + alphabet.zero();
                if (s < n_direct) s = entry_of[tile.context[at + x] * n_direct + s] & 0xFF;
                if (s >= n_direct) s = put_large(writing, table, code, extra, entries);
                entry[values + x] = static_cast<std::uint16_t>(table << 8 | s);
            }
            values += n;
        });
        return values;
    }

    // The symbol of a code that has extra bits, or of a special value; puts the bits.
    static std::uint32_t put_large(const RansWriting& writing, std::uint32_t table, std::int32_t code, BitWriter& extra,
                                   Entries& entries) {
        std::uint32_t s = alphabet.symbol(code);
        if (s == alphabet.missing()) {
            ++entries.n_special;
            return s;
        }
        s = writing.coded_as[table][s];
        const std::uint32_t bits = alphabet.meaning(s).extra_bits;
        extra.put(static_cast<std::uint32_t>(code) & ((1u << bits) - 1), bits);
        return s;
    }

    static std::uint32_t n_coded(const SplineTile<T>& tile) { return tile.place.points() - tile.box[0].points(); }

    static void begin(const Lattice& lattice, std::uint64_t number, const T* field, const LatticeArrays<T>& coarse,
                      SplineTile<T>& tile) {
        tile.begin(lattice, number);
        load_coarse<T>(lattice, {coarse.value, coarse.magnitude}, tile);
        const LatticeTile later = tile_of(lattice, std::min(number + prefetch_distance, lattice.n_tiles - 1));
        std::ptrdiff_t distance = 0;
        for (std::size_t a = 0; a < 4; ++a)
            distance +=
                (static_cast<std::ptrdiff_t>(later.origin[a]) - static_cast<std::ptrdiff_t>(tile.place.origin[a])) *
                static_cast<std::ptrdiff_t>(lattice.field_stride[a]);
        load_values(lattice, field, tile, distance);
    }

    static void count(const SplineCoder<T>& coder, std::size_t i, std::uint64_t number, const T* field,
                      const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, SplineTile<T>& tile,
                      RansCounts* counts) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        begin(lattice, number, field, coarse, tile);
        Entries entries;
        code_phases(coder, i, tile, counts, nullptr, entries);
        store(lattice, tile, coarse, fine);
    }

    static std::uint32_t put_values(std::uint16_t* to, const typename Traits<T>::Bits* bits, std::uint32_t n) {
        std::memcpy(to, bits, n * sizeof(T));
        return n * units_of_value;
    }

    static std::uint32_t write(const SplineCoder<T>& coder, std::size_t i, std::uint64_t number, const T* field,
                               const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, SplineTile<T>& tile,
                               const RansWriting& writing, std::uint16_t* payload, Counts& counts) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        const Quantiser<T>& q = coder.quantiser[i];
        begin(lattice, number, field, coarse, tile);
        Entries entries;
        code_phases(coder, i, tile, nullptr, &writing, entries);
        const std::uint32_t n = n_coded(tile);
        std::uint32_t at = 1;
        if (n > 0 && all_special(tile)) {
            store(lattice, tile, coarse, fine);
            counts.special += n;
            payload[0] = special;
            return 1;
        }
        if (!entries.any_significant && tile.n_verbatim == 0) {
            store(lattice, tile, coarse, fine);
            return 0;
        }
        const std::uint32_t lanes = entries.n_values <= 1024 ? 1 : entries.n_values <= 2048 ? 2 : 4;
        std::uint32_t header = coded | static_cast<std::uint32_t>(std::bit_width(lanes) - 1) << 2;
        if (tile.n_verbatim > 0) {
            header |= 1u << 4;
            sort_verbatim(tile);
            payload[at++] = static_cast<std::uint16_t>(tile.n_verbatim);
            std::memcpy(payload + at, tile.verbatim_at, tile.n_verbatim * 2);
            at += tile.n_verbatim;
            at += put_values(payload + at, tile.verbatim, tile.n_verbatim);
        }
        if (entries.n_extra > 0) {
            header |= 1u << 5;
            payload[at++] = static_cast<std::uint16_t>(entries.n_extra);
            std::memcpy(payload + at, tile.extra, entries.n_extra * 2);
            at += entries.n_extra;
        }
        payload[0] = static_cast<std::uint16_t>(header);
        std::uint16_t* const end = tile.words + std::size(tile.words);
        RansEncoder encoder(writing, lanes, end);
        for (std::uint32_t r = entries.n_runs; r-- > 0;)
            encoder.run(tile.entry + entries.run[r], entries.run[r + 1] - entries.run[r]);
        const std::uint16_t* const words = encoder.finish();
        const auto n_words = static_cast<std::uint32_t>(end - words);
        if (at + n_words < 1 + n * units_of_value) {
            std::memcpy(payload + at, words, n_words * 2);
            store(lattice, tile, coarse, fine);
            counts.special += entries.n_special;
            counts.unpredictable += tile.n_verbatim;
            return at + n_words;
        }
        // Raw. What it predicts from are then the values themselves.
        begin(lattice, number, field, coarse, tile);
        payload[0] = raw;
        at = 1;
        for (std::uint32_t phase = 1; phase <= tile.n_active; ++phase) {
            for_classes(tile, phase, [&](std::uint32_t c) {
                predict(coder, q, tile, c);
                quantise_class(q, tile, c, true);
                if (phase < tile.n_active) continue_rows(lattice, tile, c);
            });
            for_groups(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
                for_values_of(lattice, tile, c, g, [&](std::size_t, std::size_t in_field) {
                    std::memcpy(payload + at, field + in_field, sizeof(T));
                    at += units_of_value;
                });
            });
        }
        store(lattice, tile, coarse, fine);
        counts.unpredictable += n;
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
                for (std::uint32_t x = 0; x < tile.box[c].n[0]; ++x) all = all && tile.code[at + x] == missing_code;
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
        BitReader(const std::uint16_t* at, const std::uint16_t* end) : at_(at), end_(end) {}
        // Zeros beyond the end, where good() becomes false.
        std::uint32_t take(std::uint32_t bits) {
            for (; n_ < bits; n_ += 16) {
                if (at_ < end_)
                    held_ |= std::uint64_t{*at_++} << n_;
                else
                    good_ = false;
            }
            const auto value = static_cast<std::uint32_t>(held_ & ((std::uint64_t{1} << bits) - 1));
            held_ >>= bits;
            n_ -= bits;
            return value;
        }
        bool finished() const { return good_ && at_ == end_ && held_ == 0; }

    private:
        const std::uint16_t *at_, *end_;
        std::uint64_t held_ = 0;
        std::uint32_t n_ = 0;
        bool good_ = true;
    };

    // Values of class c from its codes and predictions, and magnitudes; those that are stored verbatim follow.
    static void reconstruct_class(const Quantiser<T>& q, SplineTile<T>& tile, std::uint32_t c) {
        using L = Lanes<T>;
        using Values = typename L::Values;
        const ClassBox& box = tile.box[c];
        for_rows(box.n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
            const std::size_t row = box.at(0, y, z, w);
            for (std::uint32_t x = 0; x < box.n[0]; x += lane_room) {
                const std::size_t at = row + x;
                const std::uint32_t here = std::min(box.n[0] - x, lane_room);
                Codes codes;
                if (tile.has_large)
                    std::memcpy(&codes, tile.code + at, sizeof codes);
                else
                    codes = __builtin_convertvector(load_bytes(tile.direct + at), Codes) - 32;
                Codes special{};
                if (tile.has_special) {
                    special = codes == missing_code;
                    codes = codes & ~special;
                }
                keep_first(codes, here); // so that what follows the row stays as it is
                keep_first(special, here);
                store_bytes(tile.magnitude + at, magnitudes_of(codes) | __builtin_convertvector(special, Bytes));
                std::int32_t k[lane_room];
                std::memcpy(k, &codes, sizeof k);
                for (std::uint32_t lane = 0; lane < here; lane += L::n) {
                    const auto of_lanes = L::template load<typename L::Codes>(k + lane);
                    const auto p = L::template load<Values>(tile.value + at + lane);
                    L::store(tile.value + at + lane, p + __builtin_convertvector(of_lanes, Values) * q.step);
                }
            }
        });
    }

    // As with codes that are all 0: a prediction of -0 gives 0.
    static void reconstruct_without_codes(SplineTile<T>& tile, std::uint32_t c) {
        for_rows(tile.box[c].n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
            T* const row = tile.value + tile.box[c].at(0, y, z, w);
            for (std::uint32_t x = 0; x < tile.box[c].n[0]; ++x) row[x] += T{0};
        });
    }

    static void read(const SplineCoder<T>& coder, std::size_t i, std::uint64_t number, const std::uint16_t* payload,
                     std::uint32_t n_units, const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine,
                     const Destination<T>& destination, SplineTile<T>& tile, const RansReading& reading,
                     std::vector<Patch>& patches) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        const Quantiser<T>& q = coder.quantiser[i];
        const std::uint64_t tile_number = lattice.first_tile + number;
        tile.begin(lattice, number);
        load_coarse<T>(lattice, {coarse.value, coarse.magnitude}, tile);
        const std::uint32_t header = n_units > 0 ? payload[0] : 0, n = n_coded(tile);
        const auto kind = static_cast<TileKind>(header & 3);
        std::uint32_t at = n_units > 0 ? 1 : 0;
        const std::uint16_t* extra_at = payload;
        const std::uint16_t* extra_end = payload;
        const auto take = [&](std::uint32_t count) { // the next `count` units, which must exist
            const std::uint32_t from = at;
            if (count > n_units - at) corrupt_tile(tile_number, "payload is too short");
            at += count;
            return payload + from;
        };
        if (kind == coded) {
            if ((header & 3u << 2) == 3u << 2 || header >> 6 != 0) corrupt_tile(tile_number, "bad tile header");
            if ((header >> 4 & 1) != 0) read_verbatim(tile_number, tile, take);
            if ((header >> 5 & 1) != 0) {
                const std::uint32_t count = *take(1);
                extra_at = take(count);
                extra_end = extra_at + count;
            }
        } else if (header > raw || n_units != (kind == raw ? 1 + n * units_of_value : 1)) {
            corrupt_tile(tile_number, "bad tile header or length");
        }
        const std::uint32_t lanes = 1u << (header >> 2 & 3);
        const bool has_codes = kind == coded && n_units > 0;
        if (has_codes) take(2 * lanes);
        RansDecoder decoder(reading, has_codes ? lanes : 0, payload + at - (has_codes ? 2 * lanes : 0),
                            payload + n_units);
        BitReader extra(extra_at, extra_end);
        for (std::uint32_t phase = 1; phase <= tile.n_active; ++phase) {
            for_classes(tile, phase, [&](std::uint32_t c) { predict(coder, q, tile, c); });
            if (has_codes) {
                for_classes(tile, phase, [&](std::uint32_t c) { find_contexts(tile, c); });
                read_codes(lattice, tile, phase, row_of(i, phase), reading, decoder, extra);
                if (!decoder.good()) corrupt_tile(tile_number, "codewords end early");
                for_classes(tile, phase, [&](std::uint32_t c) { reconstruct_class(q, tile, c); });
                if (!put_verbatim(tile, q, phase)) corrupt_tile(tile_number, "a verbatim value has a code");
            } else if (n_units == 0) {
                for_classes(tile, phase, [&](std::uint32_t c) { reconstruct_without_codes(tile, c); });
            } else if (kind == special) {
                for_classes(tile, phase, [&](std::uint32_t c) {
                    for_rows(tile.box[c].n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
                        std::fill_n(tile.code + tile.box[c].at(0, y, z, w), tile.box[c].n[0], missing_code);
                        std::fill_n(tile.magnitude + tile.box[c].at(0, y, z, w), tile.box[c].n[0], special_magnitude);
                    });
                });
                tile.has_special = true;
            } else if (kind == raw) {
                for_groups(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
                    for_rows(g.n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
                        for (std::uint32_t x = 0; x < g.n[0]; ++x) {
                            typename Traits<T>::Bits bits;
                            std::memcpy(&bits, take(units_of_value), sizeof bits);
                            put_value(tile, q, c, {g.first[0] + x, g.first[1] + y, g.first[2] + z, g.first[3] + w},
                                      bits, true);
                        }
                    });
                });
            }
            if (phase < tile.n_active)
                for_classes(tile, phase, [&](std::uint32_t c) { continue_rows(lattice, tile, c); });
        }
        if (has_codes && !(decoder.finished() && extra.finished()))
            corrupt_tile(tile_number, "codewords do not end where the payload does");
        store(lattice, tile, coarse, fine);
        if (fine.value == nullptr) put_out(lattice, tile, coarse, q, destination);
        for (std::uint32_t j = 0; j < tile.n_verbatim; ++j) {
            const T value = std::bit_cast<T>(tile.verbatim[j]);
            if (std::abs(value) <= std::numeric_limits<T>::max() || tile.verbatim[j] == q.special) continue;
            Patch patch{{}, tile.verbatim[j]};
            std::uint32_t rest = tile.verbatim_at[j];
            for (std::size_t a = 0; a < 4; ++a, rest /= tile.place.edge[a - 1])
                patch.at[lattice.axis[a]] =
                    (tile.place.origin[a] + rest % tile.place.edge[a]) * coder.pyramid.scale(i, lattice.axis[a]);
            patches.push_back(patch);
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

    static void read_codes(const Lattice& lattice, SplineTile<T>& tile, std::uint32_t phase, std::uint32_t row,
                           const RansReading& reading, RansDecoder& decoder, BitReader& extra) {
        std::uint32_t n_groups = 0, n_values = 0;
        for_groups(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
            tile.table[n_groups++] = static_cast<std::uint8_t>(state_of<false>(tile, c, g).context);
        });
        decoder.flags(tile.table, n_groups, tile.flag);
        if (!decoder.good()) return;
        std::uint32_t j = 0;
        const std::uint8_t* const table_of = reading.model.table.data() + row;
        for_groups(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
            if (tile.flag[j++] == 0) return;
            for_rows_of(tile.box[c], g, [&](std::size_t first, auto n) {
                for (std::uint32_t x = 0; x < n; ++x) tile.table[n_values + x] = table_of[tile.context[first + x]];
                n_values += n;
            });
        });
        decoder.symbols(tile.table, n_values, tile.symbol);
        if (!decoder.good()) return;
        std::uint8_t bits_set = 0;
        for (std::uint32_t v = 0; v < n_values; ++v) bits_set |= tile.symbol[v];
        tile.has_large = tile.has_special || (bits_set & (256 - n_direct)) != 0;
        if (tile.has_large) return spread_large(lattice, tile, phase, n_values, extra);
        j = n_values = 0;
        for_groups(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
            const bool significant = tile.flag[j++] != 0;
            for_rows_of(tile.box[c], g, [&](std::size_t first, auto n) {
                if (significant) {
                    std::memcpy(tile.direct + first, tile.symbol + n_values, n);
                    n_values += n;
                } else {
                    std::memset(tile.direct + first, alphabet.zero(), n);
                }
            });
        });
    }

    // Codes from symbols some of which have extra bits, or stand for special values.
    [[gnu::noinline]] static void spread_large(const Lattice& lattice, SplineTile<T>& tile, std::uint32_t phase,
                                               std::uint32_t n_values, BitReader& extra) {
        for (std::uint32_t v = 0; v < n_values; ++v) {
            const std::uint32_t s = tile.symbol[v];
            if (s < n_direct) {
                tile.decoded[v] = static_cast<std::int32_t>(s - alphabet.zero());
            } else if (s == alphabet.missing()) {
                tile.decoded[v] = missing_code;
                tile.has_special = true;
            } else {
                const auto [leading, bits] = alphabet.meaning(s);
                tile.decoded[v] =
                    static_cast<std::int32_t>(static_cast<std::uint32_t>(leading) << bits | extra.take(bits));
            }
        }
        std::uint32_t j = 0;
        n_values = 0;
        for_groups(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
            const bool significant = tile.flag[j++] != 0;
            for_rows_of(tile.box[c], g, [&](std::size_t first, auto n) {
                if (significant) {
                    std::memcpy(tile.code + first, tile.decoded + n_values, n * 4);
                    n_values += n;
                } else {
                    std::memset(tile.code + first, 0, n * 4);
                }
            });
        });
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

    // Puts a tile of lattice 0 to where it is wanted.
    static void put_out(const Lattice& lattice, const SplineTile<T>& tile, const LatticeArrays<T>& coarse,
                        const Quantiser<T>& q, const Destination<T>& to) {
        std::array<std::uint64_t, 4> first{}, end{}; // of the tile's points that are wanted
        for (std::size_t a = 0; a < 4; ++a) {
            first[a] = std::max(tile.place.origin[a], to.start[a]);
            end[a] = std::min(tile.place.origin[a] + tile.place.edge[a], to.start[a] + to.count[a]);
            if (first[a] >= end[a]) return;
        }
        const T special_value = std::bit_cast<T>(q.special);
        const auto put_special = [&](const std::uint8_t* magnitude, std::size_t step, std::uint32_t n, T* to_first) {
            for (std::uint32_t p = 0; p < n; ++p)
                if (magnitude[p * step] == special_magnitude) to_first[2 * p] = special_value;
        };
        const bool coarse_special = tile.box[0].points() > 0 && has_special_parents(tile);
        const std::uint32_t n = tile.box[0].n[0];
        const bool in_place = to.stride[0] == 1 && end[0] - first[0] == 2 * n && n % Lanes<T>::n == 0;
        T line_of_its_own[max_tile_values + 2 * lane_room];
        for (std::uint64_t w = first[3]; w < end[3]; ++w)
            for (std::uint64_t z = first[2]; z < end[2]; ++z)
                for (std::uint64_t y = first[1]; y < end[1]; ++y) {
                    const std::array<std::uint64_t, 4> x{0, y, z, w};
                    std::size_t inside = 0; // of the row, from the first point of a class
                    std::uint32_t c = 0;
                    auto in_coarse = static_cast<std::size_t>(tile.place.origin[0] / 2 * lattice.coarse_stride[0]);
                    T* target = to.field;
                    for (std::size_t a = 1; a < 4; ++a) {
                        const bool active = lattice.is_active(a);
                        const auto from_origin = static_cast<std::size_t>(x[a] - tile.place.origin[a]);
                        inside += (active ? from_origin / 2 : from_origin) * tile.box[0].stride[a];
                        c |= active ? static_cast<std::uint32_t>(from_origin & 1) << a : 0;
                        in_coarse += static_cast<std::size_t>((active ? x[a] / 2 : x[a]) * lattice.coarse_stride[a]);
                        target += (x[a] - to.start[a]) * to.stride[a];
                    }
                    target += (first[0] - to.start[0]) * to.stride[0];
                    T* const line = in_place ? target : line_of_its_own;
                    const std::size_t even = tile.box[c].first + inside, odd = tile.box[c | 1].first + inside;
                    interleave(tile.value + even, tile.value + odd, n, line);
                    if (c == 0 && coarse_special)
                        put_special(coarse.magnitude + in_coarse, static_cast<std::size_t>(lattice.coarse_stride[0]), n,
                                    line);
                    if (tile.has_special) {
                        if (c > 0) put_special(tile.magnitude + even, 1, n, line);
                        put_special(tile.magnitude + odd, 1, tile.box[c | 1].n[0], line + 1);
                    }
                    if (in_place) continue;
                    const T* const from = line + (first[0] - tile.place.origin[0]);
                    if (to.stride[0] == 1)
                        std::memcpy(target, from, (end[0] - first[0]) * sizeof(T));
                    else
                        for (std::uint64_t v = 0; v < end[0] - first[0]; ++v) target[v * to.stride[0]] = from[v];
                }
    }

    static bool has_special_parents(const SplineTile<T>& tile) {
        bool any = false;
        const auto& n = tile.box[0].n;
        for_rows(n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
            const std::uint8_t* const p =
                tile.parents + y * tile.parents_stride[1] + z * tile.parents_stride[2] + w * tile.parents_stride[3];
            for (std::uint32_t x = 0; x < n[0]; ++x) any = any || p[x] == 255;
        });
        return any;
    }
};

} // namespace cusz::cpu::CUSZ_ISA
