// Decodes the tiles of a unit from its payload to values. Contexts do not depend on values, so all symbols of a tile
// are decoded first.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "contexts.hpp"
#include "rans.hpp"
#include "record.hpp"
#include "storing.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Reads extra bits. They lie at the end of a unit, the last unit of length first, and are read from a copy in the order
// in which they come.
class ExtraBitsReader {
public:
    // Units of length that may be read behind the last one, before is_beyond() has to be called.
    static constexpr std::size_t room = 4 * max_group_points + 4;

    ExtraBitsReader() = default;
    // units: those that may have extra bits; copied to `memory`.
    ExtraBitsReader(std::span<const std::uint16_t> units, Buffer& memory) : n_(units.size()) {
        auto* const copy = memory.reserve<std::uint16_t>(n_ + room);
        std::fill_n(std::reverse_copy(units.begin(), units.end(), copy), room, std::uint16_t{0});
        bytes_ = reinterpret_cast<const std::byte*>(copy);
    }
    std::uint64_t take(std::uint32_t bits) { // at most 32
        std::uint64_t here;
        std::memcpy(&here, bytes_ + at_ / 8, sizeof here);
        here = here >> at_ % 8 & ((std::uint64_t{1} << bits) - 1);
        at_ += bits;
        return here;
    }
    bool is_beyond() const { return at_ > 16 * n_; }
    // Whether the last n units are all that have extra bits, and the bits that are left of them are 0.
    bool is_finished(std::size_t n) {
        const std::uint64_t left = 16 * n - at_;
        return at_ <= 16 * n && left < 16 && take(static_cast<std::uint32_t>(left)) == 0;
    }

private:
    const std::byte* bytes_ = nullptr;
    std::size_t n_ = 0;
    std::uint64_t at_ = 0; // bits
};

struct UnitReading {
    UnitDecoder decoder;
    ExtraBitsReader extra;
    const UnitModel* model;
    const std::uint16_t* end = nullptr; // of the payload

    bool is_finished() {
        return decoder.is_finished() && extra.is_finished(static_cast<std::size_t>(end - decoder.words()));
    }
};

// Which of a group's symbols are not codes by themselves; a bit for each.
inline std::uint64_t large_symbols(const std::uint8_t* symbol, std::uint32_t n) {
    using L = ByteLanes;
    std::uint64_t large = 0;
    for (std::uint32_t x = 0; x < max_group_points; x += L::n) {
        const auto v = L::load(symbol + x);
        large |= L::highest_bits(v | (v + v)) << x;
    }
    return large & (~std::uint64_t{0} >> (max_group_points - n));
}

// Reads what an escape stands for, or a verbatim value, which is listed, and has the code 0. Returns the code.
template <class T>
[[gnu::noinline]] std::int32_t read_escape(SplineTile<T>& tile, std::uint32_t phase, const TileForm::Group& group,
                                           std::uint32_t j, std::uint8_t symbol, typename Traits<T>::Bits special,
                                           ExtraBitsReader& extra) {
    using Bits = typename Traits<T>::Bits;
    if (symbol == v2::escape) { // two's complement
        constexpr std::int32_t sign = 1 << (v2::escape_bits - 1);
        return (static_cast<std::int32_t>(extra.take(v2::escape_bits)) ^ sign) - sign;
    }
    std::uint64_t words = extra.take(32);
    if constexpr (sizeof(T) == 8) words |= extra.take(32) << 32;
    const auto bits = static_cast<Bits>(words);
    if (bits == special) corrupt_unit("a special value that is stored verbatim");
    const PointsOfGroup points(*tile.form, phase, group);
    tile.others[phase - 1].push_back({points.value(j), points.byte(j), 0, bits});
    tile.has_missing = true;
    return 0;
}

// Replaces the symbols of a group's codes by limited codes. Throws if a code is beyond the limit.
inline void limit_codes(const std::int32_t* code, std::uint32_t n, std::uint8_t* direct) {
    using L = Lanes<float>;
    using Codes = typename L::Codes;
    static_assert((v2::max_code & (v2::max_code + 1)) == 0); // so that bits tell which codes are beyond it
    std::uint8_t limited[max_group_points];
    Codes bits{};
    for (std::uint32_t x = 0; x < n; x += L::n) {
        const auto v = L::template load<Codes>(code + x);
        const Codes size = v < 0 ? -v : v;
        bits |= n - x < L::n ? (L::counted() < static_cast<std::int32_t>(n - x) ? size : Codes{}) : size;
        Codes within = v > 64 ? Codes{} + 64 : v;
        within = within < -64 ? Codes{} - 64 : within;
        L::store(limited + x, L::narrowed(within + static_cast<std::int32_t>(v2::zero_symbol)));
    }
    std::memcpy(direct, limited, n);
    std::int32_t all = 0;
    for (std::uint32_t i = 0; i < L::n; ++i) all |= bits[i];
    if (all > v2::max_code) corrupt_unit("a code beyond the limit");
}

// Finds the codes of a phase with large symbols, whose extra bits it reads. In `direct_in_order`, symbols of codes become
// limited codes. is_dense: many are large, so all codes of the phase go to `code`; otherwise those that are not limited
// codes are listed, as verbatim values always are. Special values have the code 0.
template <class T>
[[gnu::noinline]] void read_large(SplineTile<T>& tile, std::uint32_t phase, bool is_dense,
                                  typename Traits<T>::Bits special, ExtraBitsReader& extra_of_unit) {
    using L = Lanes<float>;
    const TileForm& form = *tile.form;
    auto& others = tile.others[phase - 1];
    ExtraBitsReader extra = extra_of_unit; // a copy, because compilers must assume that stores of bytes change it
    for (const TileForm::Group& group : form.groups[phase - 1]) {
        std::uint8_t* const direct = tile.direct_in_order + group.first;
        std::int32_t* const codes = tile.code_in_order + group.first;
        if (is_dense)
            for (std::uint32_t x = 0; x < max_group_points; x += L::n)
                L::store(codes + x, widened_bytes<float>(direct + x) - static_cast<std::int32_t>(v2::zero_symbol));
        std::uint64_t missing = special_symbols(direct, group.n);
        const std::uint64_t large = large_symbols(direct, group.n) & ~missing;
        if (missing != 0) {
            tile.has_missing = true;
            for (std::uint64_t left = missing; is_dense && left != 0; left &= left - 1)
                codes[std::countr_zero(left)] = 0;
        } else if (large == 0) {
            continue;
        }
        for (std::uint64_t left = large; left != 0; left &= left - 1) {
            const auto j = static_cast<std::uint32_t>(std::countr_zero(left));
            const std::uint8_t symbol = direct[j];
            if (symbol < v2::escape) [[likely]] {
                const auto [first, bits] = v2::meanings[symbol];
                codes[j] = first + static_cast<std::int32_t>(extra.take(bits));
            } else {
                ExtraBitsReader copy = extra; // so that `extra` can stay in registers
                codes[j] = read_escape(tile, phase, group, j, symbol, special, copy);
                extra = copy;
                if (symbol != v2::escape) missing |= left & -left;
            }
        }
        if (extra.is_beyond()) corrupt_unit("extra bits that end too early");
        if (is_dense) {
            std::uint8_t symbols[max_group_points];
            if (missing != 0) std::memcpy(symbols, direct, sizeof symbols);
            limit_codes(codes, group.n, direct);
            for (; missing != 0; missing &= missing - 1)
                direct[std::countr_zero(missing)] = symbols[std::countr_zero(missing)];
            continue;
        }
        const PointsOfGroup points(form, phase, group);
        for (std::uint64_t left = large & ~missing; left != 0; left &= left - 1) {
            const auto j = static_cast<std::uint32_t>(std::countr_zero(left));
            if (std::abs(codes[j]) > v2::max_code) corrupt_unit("a code beyond the limit");
            direct[j] = direct_of(codes[j]);
            if (std::abs(codes[j]) > 64) others.push_back({points.value(j), points.byte(j), codes[j], 0});
        }
    }
    if (is_dense) copy_phase<false>(form, phase, tile.code, tile.code_in_order);
    tile.has_codes[phase - 1] = is_dense;
    extra_of_unit = extra;
}

// A tile that is being decoded.
template <class T>
struct UnitTileReading {
    SplineTile<T>* tile = nullptr;
    UnitReading* unit = nullptr;
    std::uint32_t n = 0; // symbols of the phase
};

// What comes before the symbols of a phase: finds contexts, significant groups and tables.
template <class T>
void begin_phase(UnitTileReading<T>& of, std::uint32_t phase, std::uint32_t row) {
    using L = ByteLanes;
    SplineTile<T>& tile = *of.tile;
    UnitReading& reading = *of.unit;
    const TileForm& form = *tile.form;
    for_classes_of(form, phase, [&](std::uint32_t c) { find_contexts(tile, c); });
    copy_phase<true>(form, phase, tile.context, tile.context_in_order);
    std::uint32_t n_flags = 0;
    for (const TileForm::Group& group : form.groups[phase - 1])
        if (group.has_flag)
            tile.flag_context[n_flags++] =
                reading.model->flag_table[group_contexts_of_unit
                                              .of_sum[sum_of_weights(tile.context_in_order + group.first, group.n)]];
    reading.decoder.flags(tile.flag_context, n_flags, tile.flag);
    if (!reading.decoder.good()) corrupt_unit("codewords that end early");
    const ByteTable tables(reading.model->table_of[row].data());
    std::uint32_t n = 0, next_flag = 0;
    for (const TileForm::Group& group : form.groups[phase - 1]) {
        if (group.has_flag && tile.flag[next_flag++] == 0) continue;
        for (std::uint32_t x = 0; x < max_group_points; x += L::n)
            L::store(tile.table_in_order + n + x, tables[L::load(tile.context_in_order + group.first + x)]);
        n += group.n;
    }
    of.n = n;
}

// What comes after the symbols of a phase: finds codes and magnitudes.
template <class T>
void end_phase(UnitTileReading<T>& of, std::uint32_t phase, typename Traits<T>::Bits special) {
    using L = ByteLanes;
    SplineTile<T>& tile = *of.tile;
    const TileForm& form = *tile.form;
    if (!of.unit->decoder.good()) corrupt_unit("codewords that end early");
    if (of.n == 0) {
        for_classes_of(form, phase, [&](std::uint32_t c) {
            std::memset(tile.of_class(tile.direct, c), v2::zero_symbol, form.n_bytes);
            std::memset(tile.of_class(tile.magnitude, c), 0, form.n_bytes);
        });
        return;
    }
    const std::uint8_t* symbol = tile.symbol_in_order;
    std::uint32_t next_flag = 0;
    std::uint32_t n_large = 0, n_special = 0;
    for (const TileForm::Group& group : form.groups[phase - 1]) {
        std::uint8_t* const direct = tile.direct_in_order + group.first;
        if (group.has_flag && tile.flag[next_flag++] == 0) {
            std::memset(direct, v2::zero_symbol, max_group_points);
            continue;
        }
        for (std::uint32_t x = 0; x < max_group_points; x += L::n) L::store(direct + x, L::load(symbol + x));
        if (const std::uint64_t large = large_symbols(symbol, group.n); large != 0) {
            n_large += static_cast<std::uint32_t>(std::popcount(large));
            n_special += static_cast<std::uint32_t>(std::popcount(special_symbols(symbol, group.n)));
        }
        symbol += group.n;
    }
    if (n_large > 0)
        read_large(tile, phase, n_large - n_special > form.n_points[phase - 1] / 16, special, of.unit->extra);
    copy_phase<false>(form, phase, tile.direct, tile.direct_in_order);
    for_classes_of(form, phase, [&](std::uint32_t c) { find_magnitudes(tile, c); });
}

// Codes of as many points as there are lanes, from bytes and from `code`.
template <class T>
[[gnu::always_inline]] inline auto codes_at(const std::uint8_t* direct, bool has_missing) {
    typename Lanes<T>::Codes symbols = widened_bytes<T>(direct);
    constexpr auto zero = static_cast<std::int32_t>(v2::zero_symbol);
    if (has_missing) symbols = symbols == static_cast<std::int8_t>(v2::special) ? zero : symbols;
    return symbols - zero;
}
template <class T>
[[gnu::always_inline]] inline auto codes_at(const std::int32_t* code, bool) {
    return Lanes<T>::template load<typename Lanes<T>::Codes>(code);
}

// Adds the codes of class c to its predictions. codes: of the class.
template <class T, class Code>
[[gnu::noinline]] void add_codes_of(const SplineTile<T>& tile, const Code* codes, const Quantiser<T>& q,
                                    std::uint32_t c) {
    using L = Lanes<T>;
    using Values = typename L::Values;
    const ClassRows& rows = tile.form->rows[c];
    HalfBox box;
    std::ranges::copy(rows.n, box.end.begin());
    const auto add = [&](auto whole_vectors) {
        for_rows_in(
            box, rows_of(codes, *tile.form), rows_of(tile.value, rows),
            [n = rows.n[0], step = q.step, has_missing = tile.has_missing, whole_vectors](const Code* code, T* value) {
                for (std::uint32_t x = 0; x < n; x += L::n) {
                    const auto p = L::template load<Values>(value + x);
                    Values sum = p + __builtin_convertvector(codes_at<T>(code + x, has_missing), Values) * step;
                    const std::uint32_t left = n - x;
                    if (!whole_vectors && left < L::n)
                        sum = L::counted() < static_cast<typename L::Int>(left) ? sum : p;
                    L::store(value + x, sum);
                }
            });
    };
    rows.n[0] % L::n == 0 ? add(std::true_type{}) : add(std::false_type{});
}

// Where in the field, by its axes, a point of a tile of lattice i is. byte: of the point.
template <class T>
Extents point_of(const Pyramid& pyramid, std::size_t i, const SplineTile<T>& tile, std::uint32_t byte) {
    const TileForm& form = *tile.form;
    const Lattice& lattice = pyramid.lattices[i];
    const auto c = static_cast<std::uint32_t>(byte / form.n_bytes);
    std::size_t rest = byte % form.n_bytes - form.first_byte;
    Extents at{};
    for (std::size_t a = 4; a-- > 0; rest %= form.byte_step[a]) {
        const std::uint64_t h = rest / form.byte_step[a];
        const std::uint64_t x = a < form.n_active ? 2 * h + (c >> a & 1) : h;
        at[lattice.axis[a]] = (tile.place.origin[a] + x) * pyramid.scale(i, lattice.axis[a]);
    }
    return at;
}

// Finds the values of a tile of lattice i from its codes.
template <class T>
void find_values(const PyramidCoder<T>& coder, std::size_t i, SplineTile<T>& tile, std::vector<Patch>& patches) {
    const Lattice& lattice = coder.pyramid.lattices[i];
    const Quantiser<T>& q = coder.quantiser[i];
    for (std::uint32_t phase = 1; phase <= lattice.n_active; ++phase) {
        for_classes_of(*tile.form, phase, [&](std::uint32_t c) { predict(coder, lattice, tile, c); });
        const auto& others = tile.others[phase - 1];
        std::vector<T>& results = tile.results;
        results.clear();
        for (const auto& other : others) {
            const T p = tile.value[other.value], stored = std::bit_cast<T>(other.bits);
            T result = p; // of values that are not finite
            if (other.code != 0)
                result = p + static_cast<T>(other.code) * q.step;
            else if (std::abs(stored) <= std::numeric_limits<T>::max())
                result = stored;
            else
                patches.push_back({point_of(coder.pyramid, i, tile, other.byte), other.bits});
            results.push_back(result);
        }
        for_classes_of(*tile.form, phase, [&](std::uint32_t c) {
            if (tile.has_codes[phase - 1])
                add_codes_of(tile, tile.code + c * tile.form->n_bytes, q, c);
            else
                add_codes_of(tile, tile.of_class(tile.direct, c), q, c);
        });
        for (std::size_t j = 0; j < others.size(); ++j) tile.value[others[j].value] = results[j];
        if (phase < lattice.n_active)
            for_classes_of(*tile.form, phase, [&](std::uint32_t c) { continue_class(lattice, tile, tile.value, c); });
    }
}

// Decodes tiles of lattice i, one of each unit, to `fine` or, if that is null, to `destination`. In tiles without a
// unit all codes are 0.
template <class T>
void read_tiles_of(const PyramidCoder<T>& coder, std::size_t i, std::span<UnitTileReading<T>> tiles,
                   const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, const Destination<T>& destination,
                   std::vector<Patch>& patches) {
    const Lattice& lattice = coder.pyramid.lattices[i];
    const Quantiser<T>& q = coder.quantiser[i];
    UnitTileReading<T>* coded[units_at_once];
    std::size_t n_coded = 0;
    for (UnitTileReading<T>& of : tiles) {
        load_class_0(lattice, coarse, *of.tile);
        if (of.unit == nullptr) continue;
        find_roughness(lattice, *of.tile, q.inv);
        prepare_contexts(lattice, *of.tile);
        coded[n_coded++] = &of;
    }
    for (std::uint32_t phase = 1; phase <= lattice.n_active && n_coded > 0; ++phase) {
        UnitDecoder::Symbols symbols[units_at_once];
        for (std::size_t j = 0; j < n_coded; ++j) {
            begin_phase(*coded[j], phase, v2::row_of(i, phase));
            symbols[j] = {coded[j]->tile->table_in_order, coded[j]->n, coded[j]->tile->symbol_in_order};
        }
        if (n_coded == 2)
            UnitDecoder::symbols_of_two(coded[0]->unit->decoder, symbols[0], coded[1]->unit->decoder, symbols[1]);
        else
            coded[0]->unit->decoder.symbols(symbols[0]);
        for (std::size_t j = 0; j < n_coded; ++j) end_phase(*coded[j], phase, q.special);
    }
    for (UnitTileReading<T>& of : tiles) {
        find_values(coder, i, *of.tile, patches);
        if (fine.value != nullptr)
            store_tile(lattice, *of.tile, fine);
        else
            put_out_tile(*of.tile, q.special, destination);
    }
}

// Reads how a payload begins: with live tiles, states and the map.
template <class T>
UnitReading begin_unit(const UnitToRead& given, UnitModel& model, const MapToRead* map, Buffer& memory,
                       std::uint32_t& live) {
    const auto& [unit, payload, n, log2_lanes, is_first] = given;
    std::uint32_t header = 0;
    live = n > 0 ? ~0u : 0;
    if (n > 0 && !is_first) {
        live = payload[0];
        header = 1;
        if (live == 0 || live >> unit->n_tiles != 0) corrupt_unit("illegal bits of live tiles");
    }
    UnitReading reading{
        n > 0 ? UnitDecoder(payload + header, n - header, 1u << log2_lanes) : UnitDecoder(), {}, &model, payload + n};
    if (n > 0) {
        if (!reading.decoder.good()) corrupt_unit("a unit without states");
        reading.extra = ExtraBitsReader({reading.decoder.words(), payload + n}, memory);
    }
    if (map != nullptr) {
        if (n == 0) corrupt_unit("a map that is not there");
        std::uint32_t number = 0;
        model.set(v2::read_map(map->axes, map->preset, map->rows, [&](std::uint8_t table) {
            return std::uint32_t{reading.decoder.symbol(number++, table)};
        }));
        if (!reading.decoder.good()) corrupt_unit("codewords that end early");
    }
    return reading;
}

template <class T>
void read_units(const PyramidCoder<T>& coder, std::span<const UnitToRead> units, const LatticeArrays<T>* arrays,
                const Destination<T>& destination, const UnitMemory<T>& memory, UnitModel& model, const MapToRead* map,
                std::vector<Patch>& patches) {
    std::uint32_t live[units_at_once] = {};
    UnitReading reading[units_at_once] = {begin_unit<T>(units[0], model, map, memory.extra[0], live[0]),
                                          {{}, {}, &model}};
    if (units.size() > 1) reading[1] = begin_unit<T>(units[1], model, nullptr, memory.extra[1], live[1]);
    for_tiles_of(coder.pyramid, *units[0].unit, [&](std::size_t i, std::uint64_t number, std::uint32_t j) {
        const Lattice& lattice = coder.pyramid.lattices[i];
        UnitTileReading<T> tiles[units_at_once];
        std::size_t n = 0;
        for (std::size_t u = 0; u < units.size() && j < units[u].unit->n_tiles; ++u, ++n) {
            const bool is_live = units[u].is_first ? live[u] != 0 : (live[u] >> j & 1) != 0;
            tiles[u] = {&memory.tiles[u], is_live ? &reading[u] : nullptr, 0};
            tiles[u].tile->begin(memory.forms, lattice, number + units[u].unit->first_tile - units[0].unit->first_tile,
                                 coder.is_wide(), !is_live, coder.adds_codes());
        }
        read_tiles_of<T>(coder, i, {tiles, n}, arrays[i + 1], arrays[i], destination, patches);
    });
    for (std::size_t u = 0; u < units.size(); ++u)
        if (units[u].n > 0 && !reading[u].is_finished()) corrupt_unit("codewords that do not end where the unit does");
}

} // namespace cusz::cpu::CUSZ_ISA
