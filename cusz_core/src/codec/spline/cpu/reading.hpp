// Takes tiles of a lattice from their payloads to values (docs/format_v2.md, section 8): several side by side.
#pragma once

#include "order.hpp"
#include "storing.hpp"

namespace cusz::cpu::CUSZ_ISA {

inline constexpr auto missing_symbol = static_cast<std::uint8_t>(v2::alphabet.missing());

// Lists the groups of a phase. Returns their number.
template <Geometry geometry, class T>
std::uint32_t list_groups(const Lattice& lattice, SplineTile<T>& tile, std::uint32_t phase) {
    std::uint32_t n = 0;
    for_groups<geometry>(lattice, tile, phase, [&](std::uint32_t, const Group& g) {
        tile.group_size[n++] = static_cast<std::uint8_t>(g.values());
    });
    return n;
}

class ExtraBitReader {
public:
    ExtraBitReader() = default;
    // Reads up to RansDecoder::margin units beyond the end.
    ExtraBitReader(const std::uint16_t* units, const std::uint16_t* end)
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
    static constexpr std::uint32_t max_in_turn = RansDecoder::margin * 16 / 32;
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

[[gnu::always_inline]] inline Codes codes_of_direct(Marks direct) {
    return by_parts([](auto symbol) { return symbol - static_cast<std::int32_t>(v2::alphabet.zero()); },
                    widened(direct));
}

// Codes are added to what is predicted at `at` and behind.
template <class T>
[[gnu::always_inline]] inline void add_codes(const Quantiser<T>& q, SplineTile<T>& tile, std::size_t at,
                                             const Codes& codes) {
    using L = Lanes<T>;
    using Values = typename L::Values;
    for (std::uint32_t lane = 0; lane < lane_room; lane += L::n) {
        typename L::Codes of_lanes;
        if constexpr (L::n == Codes::of_part)
            of_lanes = codes.part[lane / L::n];
        else
            std::memcpy(&of_lanes, reinterpret_cast<const char*>(&codes) + 4 * lane, sizeof of_lanes);
        const auto p = L::template load<Values>(tile.value + at + lane);
        L::store(tile.value + at + lane, p + __builtin_convertvector(of_lanes, Values) * q.step);
    }
}

// A row of codes that has a part in each of so many groups. Not by way of memory: a vector cannot be loaded from
// stores of its parts before they are through.
template <std::uint32_t parts, class All = Codes> // a parameter, as what is not for this instruction set is left out
[[gnu::always_inline]] inline All join(const std::int32_t* codes) {
    static_assert(parts == 2 || parts == 4);
    typedef std::int32_t Half __attribute__((vector_size(32)));
    typedef std::int32_t Quarter __attribute__((vector_size(16)));
    Half half[2];
    Quarter quarter[4];
    for (std::size_t h = 0; h < 2; ++h)
        if constexpr (parts == 2) {
            std::memcpy(&half[h], codes + h * v2::max_group_values, sizeof half[h]);
            std::memcpy(&quarter[2 * h], codes + h * v2::max_group_values, sizeof half[h]);
        } else {
            for (std::size_t i = 2 * h; i < 2 * h + 2; ++i)
                std::memcpy(&quarter[i], codes + i * v2::max_group_values, sizeof quarter[i]);
            combine(quarter[2 * h], quarter[2 * h + 1], half[h]);
        }
    All row;
    if constexpr (All::parts == 1)
        combine(half[0], half[1], row.part[0]);
    else if constexpr (All::parts == 2)
        std::copy_n(half, 2, row.part);
    else
        std::copy_n(quarter, 4, row.part);
    return row;
}

// lane_room bytes of each of four groups, which are rows of `edge`, as rows of all four: 4 of 16 or 2 of 32.
template <std::uint32_t edge>
[[gnu::always_inline]] inline void rows_of_groups(const std::uint8_t* from, Marks (&row)[4]) {
    if constexpr (edge == 4) {
        transpose_fours(from, v2::max_group_values, row);
    } else {
        static_assert(edge == 8);
        Marks group[4];
        for (std::size_t g = 0; g < 4; ++g) group[g] = load_marks(from + g * v2::max_group_values);
        for (std::size_t half = 0; half < 2; ++half) {
            const Marks a = group[2 * half], b = group[2 * half + 1];
            row[half] = shuffle<0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23>(a, b);
            row[2 + half] = shuffle<8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31>(a, b);
        }
    }
}

// Values of a phase from codes, which are in coding order, and predictions; and magnitudes. Those that are stored
// verbatim follow. wide: codes are in code_in_order, otherwise in in_order.direct.
template <Geometry geometry, bool wide, class T>
[[gnu::noinline]] void reconstruct(const Lattice& lattice, const Quantiser<T>& q, SplineTile<T>& tile,
                                   std::uint32_t phase) {
    const InOrder& in_order = tile.scratch.in_order;
    const std::int32_t* const codes = tile.scratch.code_in_order;
    if constexpr (geometry == Geometry::any) {
        for_rows_in_order<geometry>(lattice, tile, phase, [&](std::size_t at, std::uint32_t place, auto n) {
            copy_row(tile.magnitude + at, in_order.magnitude + place, n);
            for (std::uint32_t x = 0; x < n; x += lane_room) {
                Codes some =
                    wide ? Codes::load(codes + place + x) : codes_of_direct(load_marks(in_order.direct + place + x));
                if constexpr (wide) some = without(missing_among(some), some);
                keep_first(some, n - x); // so that what follows stays as it is
                add_codes(q, tile, at + x, some);
            }
        });
    } else { // a row of the class has a part in each of four groups
        std::uint32_t place = 0;
        for_classes(tile, phase, [&](std::uint32_t c) {
            const ClassBox box = box_of<geometry>(tile, c);
            constexpr std::uint32_t edge = group_edges(active_axes(geometry))[0], parts = lane_room / edge;
            for (std::uint32_t y = 0; y < box.n[1]; y += edge, place += 4 * v2::max_group_values)
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
                            some = join<parts>(codes + first + group * v2::max_group_values + row * edge);
                            some = without(missing_among(some), some);
                        } else {
                            some = codes_of_direct(direct[r]);
                        }
                        add_codes(q, tile, at, some);
                    }
                }
        });
    }
}

// As with codes that are all 0: a prediction of -0 gives 0.
template <class T>
void reconstruct_without_codes(SplineTile<T>& tile, std::uint32_t c) {
    for_rows(tile.box[c].n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
        T* const row = tile.value + tile.box[c].at(0, y, z, w);
        for (std::uint32_t x = 0; x < tile.box[c].n[0]; ++x) row[x] += T{0};
    });
}

// What a payload's header says.
struct PayloadParts {
    v2::TileKind kind = v2::tile_coded;
    bool has_codes = false; // not all of them are 0
    std::uint32_t lanes = 1;
    const std::uint16_t *extra = nullptr, *extra_end = nullptr; // bits
    const std::uint16_t* rest = nullptr;                        // states and words, or values
};

template <class T>
std::uint32_t class_of(const SplineTile<T>& tile, std::uint32_t at) {
    std::uint32_t c = 0;
    for (std::uint32_t a = 0; a < tile.n_active; ++a, at /= tile.place.edge[a - 1])
        c |= (at % tile.place.edge[a] & 1) << a;
    return c;
}

template <class T, class Take>
void read_verbatim(std::uint64_t tile_number, SplineTile<T>& tile, const Take& take) {
    tile.n_verbatim = *take(1);
    if (tile.n_verbatim > tile.place.points()) corrupt_tile(tile_number, "more verbatim values than points");
    std::memcpy(tile.verbatim_at, take(tile.n_verbatim), tile.n_verbatim * 2);
    std::memcpy(tile.verbatim, take(tile.n_verbatim * v2::units_of_value<T>), tile.n_verbatim * sizeof(T));
    for (std::uint32_t j = 0; j < tile.n_verbatim; ++j) {
        const std::uint32_t at = tile.verbatim_at[j];
        if (at >= tile.place.points() || (j > 0 && at <= tile.verbatim_at[j - 1]) || class_of(tile, at) == 0)
            corrupt_tile(tile_number, "bad position of a verbatim value");
    }
}

template <class T>
PayloadParts read_header(std::uint64_t tile_number, const std::uint16_t* units, std::uint32_t n_units,
                         SplineTile<T>& tile) {
    PayloadParts payload;
    payload.rest = payload.extra = payload.extra_end = units;
    if (n_units == 0) return payload;
    const v2::TileHeader header = v2::TileHeader::of(units[0]);
    std::uint32_t at = 1;
    const auto take = [&](std::uint32_t count) { // the next `count` units, which must exist
        const std::uint32_t from = at;
        if (count > n_units - at) corrupt_tile(tile_number, "payload is too short");
        at += count;
        return units + from;
    };
    payload.kind = header.kind;
    if (header.kind == v2::tile_coded) {
        if (!v2::TileHeader::is_legal(units[0])) corrupt_tile(tile_number, "bad tile header");
        if (header.has_verbatim) read_verbatim(tile_number, tile, take);
        if (header.has_extra) {
            const std::uint32_t count = *take(1);
            payload.extra = take(count);
            payload.extra_end = payload.extra + count;
        }
        payload.has_codes = true;
        payload.lanes = header.lanes;
        payload.rest = take(2 * payload.lanes);
    } else {
        const std::uint32_t n = header.kind == v2::tile_raw ? coded_points(tile) * v2::units_of_value<T> : 0;
        if (!v2::TileHeader::is_legal(units[0]) || n_units != 1 + n)
            corrupt_tile(tile_number, "bad tile header or length");
        payload.rest = units + at;
    }
    return payload;
}

// A tile that is decoded, side by side with others.
template <class T>
struct TileReading {
    SplineTile<T>* tile = nullptr;
    std::uint64_t number = 0; // in the archive
    PayloadParts payload;
    RansDecoder decoder;
    ExtraBitReader extra;
    std::uint32_t n_groups = 0, n_values = 0; // of a phase; the latter in significant groups
};

// Verbatim values that are not finite are not among those to predict from.
template <class T>
void list_patches(const SplineCoder<T>& coder, std::size_t i, const SplineTile<T>& tile, std::vector<Patch>& patches) {
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

// A value that is stored as it is; list: to be found again, if it has to be patched.
template <class T>
void put_value(SplineTile<T>& tile, const Quantiser<T>& q, std::uint32_t c, const std::array<std::uint32_t, 4>& h,
               typename Traits<T>::Bits bits, bool list) {
    const std::size_t at = tile.box[c].at(h[0], h[1], h[2], h[3]);
    keep_value(q, tile, at, bits);
    tile.magnitude[at] = bits == q.special ? v2::special_magnitude : std::uint8_t{0};
    if (list && bits != q.special && !(std::abs(std::bit_cast<T>(bits)) <= std::numeric_limits<T>::max()))
        add_verbatim(tile, position(tile, c, h[0], h[1], h[2], h[3]), bits);
}

// The verbatim values of a phase; false if one has a code.
template <class T>
bool put_verbatim(SplineTile<T>& tile, const Quantiser<T>& q, std::uint32_t phase) {
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

// A tile whose codes are all 0, or that has none.
template <class T>
void read_without_codes(const SplineCoder<T>& coder, const Lattice& lattice, const Quantiser<T>& q,
                        const PayloadParts& payload, SplineTile<T>& tile) {
    const std::uint16_t* values = payload.rest;
    for (std::uint32_t phase = 1; phase <= tile.n_active; ++phase) {
        for_classes(tile, phase, [&](std::uint32_t c) {
            predict<false>(coder, q, tile, c);
            if (payload.kind == v2::tile_coded) {
                reconstruct_without_codes(tile, c);
            } else if (payload.kind == v2::tile_special) {
                tile.has_special = true;
                for_rows(tile.box[c].n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
                    std::fill_n(tile.magnitude + tile.box[c].at(0, y, z, w), tile.box[c].n[0], v2::special_magnitude);
                });
            }
        });
        if (payload.kind == v2::tile_raw)
            for_groups<Geometry::any>(lattice, tile, phase, [&](std::uint32_t c, const Group& g) {
                for_rows(g.n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
                    for (std::uint32_t x = 0; x < g.n[0]; ++x, values += v2::units_of_value<T>) {
                        typename Traits<T>::Bits bits;
                        std::memcpy(&bits, values, sizeof bits);
                        put_value(tile, q, c, {g.first[0] + x, g.first[1] + y, g.first[2] + z, g.first[3] + w}, bits,
                                  true);
                    }
                });
            });
        if (phase < tile.n_active) for_classes(tile, phase, [&](std::uint32_t c) { continue_rows(lattice, tile, c); });
    }
}

// Up to the symbols of a phase: predictions, contexts, and which groups are significant.
template <Geometry geometry, class T>
void begin_phase(const SplineCoder<T>& coder, std::size_t i, std::uint32_t phase, const std::uint8_t* table_of,
                 TileReading<T>& of) {
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
        for (std::uint32_t x = 0; x < v2::max_group_values; x += ByteLanes::n)
            ByteLanes::store(
                tile.table + of.n_values + x,
                ByteLanes::look_up_128(table_of, ByteLanes::load(tile.scratch.in_order.place + first + x)));
        of.n_values += tile.flag[j] != 0 ? tile.group_size[j] : 0u;
    }
}

// Codes that have symbols of their own.
template <class T>
void direct_in_order(SplineTile<T>& tile, std::uint32_t n_groups) {
    InOrder& in_order = tile.scratch.in_order;
    std::uint32_t first = 0, n_values = 0;
    for (std::uint32_t j = 0; j < n_groups; first += tile.group_size[j++]) {
        if (tile.flag[j] != 0) {
            for (std::uint32_t x = 0; x < v2::max_group_values; x += ByteLanes::n) {
                const auto direct = ByteLanes::load(tile.symbol + n_values + x);
                ByteLanes::store(in_order.direct + first + x, direct);
                ByteLanes::store(in_order.magnitude + first + x, magnitudes_of_direct(direct));
            }
            n_values += tile.group_size[j];
        } else {
            std::memset(in_order.direct + first, v2::alphabet.zero(), v2::max_group_values);
            std::memset(in_order.magnitude + first, 0, v2::max_group_values);
        }
    }
}

// Codes from symbols some of which have extra bits or, with_missing, stand for missing values.
template <bool with_missing, class T>
[[gnu::noinline]] void wide_in_order(SplineTile<T>& tile, TileReading<T>& of) {
    std::int32_t* const codes = tile.scratch.code_in_order;
    std::uint8_t* const magnitudes = tile.scratch.in_order.magnitude;
    ExtraBitReader extra = of.extra; // not the one in memory, which stores might change, as far as C++ knows
    std::uint32_t first = 0, n_values = 0;
    for (std::uint32_t j = 0; j < of.n_groups; first += tile.group_size[j++]) {
        const std::uint8_t* const symbol = tile.symbol + n_values;
        if (tile.flag[j] == 0) {
            std::memset(codes + first, 0, v2::max_group_values * sizeof *codes);
            std::memset(magnitudes + first, 0, v2::max_group_values);
            continue;
        }
        const std::uint32_t n = tile.group_size[j];
        n_values += n;
        for (std::uint32_t x = 0; x < v2::max_group_values; x += lane_room) {
            const Marks symbols = load_marks(symbol + x);
            Codes code = codes_of_direct(symbols);
            if constexpr (with_missing)
                code = by_parts(
                    [](auto missing, auto other) { return missing != 0 ? Codes::Part{} + missing_code : other; },
                    widened(reinterpret_cast<Marks>(symbols == missing_symbol)), code);
            code.store(codes + first + x);
        }
        std::uint64_t large = not_direct_bits<with_missing>(symbol) & ~std::uint64_t{0} >> (64 - n);
        if (static_cast<std::uint32_t>(std::popcount(large)) >
            v2::max_group_values / 2) { // then all in order is faster; measured
            for (std::uint32_t x = 0; x < n && extra.good();)
                for (const std::uint32_t end = std::min(x + ExtraBitReader::max_in_turn, n); x < end; ++x)
                    codes[first + x] = extra.code(symbol[x]);
            for (std::uint32_t x = 0; x < v2::max_group_values; x += lane_room) {
                const Codes some = Codes::load(codes + first + x);
                Marks magnitude = magnitudes_of(some);
                if constexpr (with_missing) magnitude |= narrowed(missing_among(some));
                store_marks(magnitudes + first + x, magnitude);
            }
        } else {
            for (std::uint32_t x = 0; x < v2::max_group_values; x += ByteLanes::n) {
                const auto symbols = ByteLanes::load(symbol + x);
                auto magnitude = magnitudes_of_direct(symbols);
                if constexpr (with_missing) magnitude |= reinterpret_cast<ByteLanes::Bytes>(symbols == missing_symbol);
                ByteLanes::store(magnitudes + first + x, magnitude);
            }
            static_assert(v2::max_group_values / 2 <= ExtraBitReader::max_in_turn);
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

// From the symbols of a phase on: codes and values.
template <Geometry geometry, class T>
void end_phase(const Lattice& lattice, const Quantiser<T>& q, std::uint32_t phase, TileReading<T>& of) {
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

template <class T>
void read_tiles(const SplineCoder<T>& coder, std::size_t i, const SplinePayload* payloads, std::uint32_t n_payloads,
                const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, const Destination<T>& destination,
                const SplineTiles<T>& tiles, const RansReading& reading, std::vector<Patch>& patches) {
    const Lattice& lattice = coder.pyramid.lattices[i];
    const Quantiser<T>& q = coder.quantiser[i];
    static_assert(tiles_at_once <= RansDecoder::max_at_once);
    TileReading<T> coded[tiles_at_once];
    std::uint32_t n_coded = 0;
    for (std::uint32_t j = 0; j < n_payloads; ++j) {
        const auto [number, units, n_units] = payloads[j];
        TileReading<T>& of = coded[n_coded];
        of.tile = tiles[j].get();
        of.number = lattice.first_tile + number;
        begin_tile(lattice, number, *of.tile);
        of.payload = read_header(of.number, units, n_units, *of.tile);
        load_coarse(lattice, coarse, *of.tile);
        if (of.payload.has_codes) {
            of.decoder = RansDecoder(reading, of.payload.lanes, of.payload.rest, units + n_units);
            of.extra = ExtraBitReader(of.payload.extra, of.payload.extra_end);
            sum_parents(*of.tile);
            ++n_coded;
        } else {
            read_without_codes(coder, lattice, q, of.payload, *of.tile);
        }
    }
    for (std::uint32_t phase = 1; phase <= lattice.n_active && n_coded > 0; ++phase) {
        const std::uint8_t* const table_of = reading.table_of[v2::row_of(i, phase) / v2::n_places].data();
        RansDecoder::Symbols symbols[tiles_at_once];
        for (std::uint32_t j = 0; j < n_coded; ++j) {
            TileReading<T>& of = coded[j];
            with_geometry_of(*of.tile, [&](auto geometry) { begin_phase<geometry>(coder, i, phase, table_of, of); });
            symbols[j] = {&of.decoder, of.tile->table, of.tile->symbol, of.n_values};
        }
        RansDecoder::symbols(symbols, n_coded);
        for (std::uint32_t j = 0; j < n_coded; ++j)
            with_geometry_of(*coded[j].tile, [&](auto geometry) { end_phase<geometry>(lattice, q, phase, coded[j]); });
    }
    for (std::uint32_t j = 0; j < n_coded; ++j)
        if (!coded[j].decoder.finished() || !coded[j].extra.finished())
            corrupt_tile(coded[j].number, "codewords do not end where the payload does");
    for (std::uint32_t j = 0; j < n_payloads; ++j) {
        store_tile(lattice, *tiles[j], coarse, fine);
        list_patches(coder, i, *tiles[j], patches);
    }
    if (fine.value == nullptr) put_out(lattice, tiles, n_payloads, coarse, q, destination);
}

} // namespace cusz::cpu::CUSZ_ISA
