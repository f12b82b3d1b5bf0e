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

// Reads extra bits, which lie at the end of a unit, the last unit of length first.
class ExtraBitsBackwards {
public:
    ExtraBitsBackwards() = default;
    ExtraBitsBackwards(const std::uint16_t* begin, const std::uint16_t* end) : begin_(begin), next_(end) {}
    std::uint64_t take(std::uint32_t bits) { // at most 32
        for (; n_ < bits; n_ += 16) {
            if (next_ == begin_) corrupt_unit("extra bits that end too early");
            here_ |= std::uint64_t{*--next_} << n_;
        }
        const std::uint64_t taken = here_ & ((std::uint64_t{1} << bits) - 1);
        here_ >>= bits;
        n_ -= bits;
        return taken;
    }
    // Whether all words down to `begin` are taken, and the bits that are left of them are 0.
    bool is_finished(const std::uint16_t* begin) const { return next_ == begin && here_ == 0; }

private:
    const std::uint16_t *begin_ = nullptr, *next_ = nullptr; // next_: end of the words that are to come
    std::uint64_t here_ = 0;                                 // the n_ bits that are left of earlier words
    std::uint32_t n_ = 0;
};

struct UnitReading {
    UnitDecoder decoder;
    ExtraBitsBackwards extra;
    const UnitModel* model;

    bool is_finished() const { return decoder.is_finished() && extra.is_finished(decoder.words()); }
};

// Lists the values of a group with a bit in `large`; of these, symbols of codes are replaced by limited codes.
template <class T>
[[gnu::noinline]] void read_others(SplineTile<T>& tile, std::uint32_t phase, const TileForm::Group& group,
                                   std::uint64_t large, typename Traits<T>::Bits special, std::uint8_t* symbol,
                                   ExtraBitsBackwards& extra) {
    using Bits = typename Traits<T>::Bits;
    const PointsOfGroup points(*tile.form, phase, group);
    auto& others = tile.others[phase - 1];
    for (; large != 0; large &= large - 1) {
        const auto j = static_cast<std::uint32_t>(std::countr_zero(large));
        std::uint8_t& of = symbol[j];
        typename SplineTile<T>::Other other{points.value(j), points.byte(j), 0, special};
        if (of == v2::special) {
            tile.has_missing = true;
        } else if (of == v2::verbatim) {
            tile.has_missing = true;
            std::uint64_t bits = extra.take(32);
            if constexpr (sizeof(T) == 8) bits |= extra.take(32) << 32;
            other.bits = static_cast<Bits>(bits);
            if (other.bits == special) corrupt_unit("a special value that is stored verbatim");
        } else {
            const auto [first, bits] = v2::meanings[of];
            const auto taken = static_cast<std::int32_t>(extra.take(bits));
            constexpr std::int32_t sign = 1 << (v2::escape_bits - 1);
            other.code = of == v2::escape ? (taken ^ sign) - sign : first + taken;
            if (std::abs(other.code) > v2::max_code) corrupt_unit("a code beyond the limit");
            of = direct_of(other.code);
        }
        others.push_back(other);
    }
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
    std::uint8_t* symbol = tile.symbol_in_order;
    std::uint32_t next_flag = 0;
    for (const TileForm::Group& group : form.groups[phase - 1]) {
        std::uint8_t* const direct = tile.direct_in_order + group.first;
        if (group.has_flag && tile.flag[next_flag++] == 0) {
            std::memset(direct, v2::zero_symbol, max_group_points);
            continue;
        }
        std::uint64_t large = 0;
        for (std::uint32_t x = 0; x < max_group_points; x += L::n) {
            const auto v = L::load(symbol + x);
            L::store(direct + x, v);
            large |= L::highest_bits(v | (v + v)) << x;
        }
        large &= ~std::uint64_t{0} >> (max_group_points - group.n);
        if (large != 0) read_others(tile, phase, group, large, special, direct, of.unit->extra);
        symbol += group.n;
    }
    copy_phase<false>(form, phase, tile.direct, tile.direct_in_order);
    for_classes_of(form, phase, [&](std::uint32_t c) { find_magnitudes(tile, c); });
}

// Adds the codes of class c to its predictions.
template <class T>
[[gnu::noinline]] void add_codes_of(const SplineTile<T>& tile, const Quantiser<T>& q, std::uint32_t c) {
    using L = Lanes<T>;
    using Values = typename L::Values;
    const ClassRows& rows = tile.form->rows[c];
    HalfBox box;
    std::ranges::copy(rows.n, box.end.begin());
    const auto add = [&](auto whole_vectors) {
        for_rows_in(box, rows_of(tile.of_class(tile.direct, c), *tile.form), rows_of(tile.value, rows),
                    [n = rows.n[0], step = q.step, whole_vectors](const std::uint8_t* symbol, T* value) {
                        for (std::uint32_t x = 0; x < n; x += L::n) {
                            const auto code = widened_bytes<T>(symbol + x) - static_cast<std::int32_t>(v2::zero_symbol);
                            const auto p = L::template load<Values>(value + x);
                            Values sum = p + __builtin_convertvector(code, Values) * step;
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
        auto& others = tile.others[phase - 1];
        std::vector<T>& results = tile.results;
        results.clear();
        for (const auto& other : others) {
            const T p = tile.value[other.value];
            const std::uint8_t symbol = tile.direct[other.byte];
            T result = p; // of special values, and those that are not finite
            if (symbol == v2::verbatim) {
                const T value = std::bit_cast<T>(other.bits);
                if (std::abs(value) <= std::numeric_limits<T>::max())
                    result = value;
                else
                    patches.push_back({point_of(coder.pyramid, i, tile, other.byte), other.bits});
            } else if (symbol != v2::special) {
                result = p + static_cast<T>(other.code) * q.step;
            }
            results.push_back(result);
        }
        for_classes_of(*tile.form, phase, [&](std::uint32_t c) { add_codes_of(tile, q, c); });
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
UnitReading begin_unit(const UnitToRead& given, UnitModel& model, const MapToRead* map, std::uint32_t& live) {
    const auto& [unit, payload, n, log2_lanes, is_first] = given;
    std::uint32_t header = 0;
    live = n > 0 ? ~0u : 0;
    if (n > 0 && !is_first) {
        live = payload[0];
        header = 1;
        if (live == 0 || live >> unit->n_tiles != 0) corrupt_unit("illegal bits of live tiles");
    }
    UnitReading reading{
        n > 0 ? UnitDecoder(payload + header, n - header, 1u << log2_lanes) : UnitDecoder(), {}, &model};
    if (n > 0) {
        if (!reading.decoder.good()) corrupt_unit("a unit without states");
        reading.extra = ExtraBitsBackwards(reading.decoder.words(), payload + n);
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
    UnitReading reading[units_at_once] = {begin_unit<T>(units[0], model, map, live[0]), {{}, {}, &model}};
    if (units.size() > 1) reading[1] = begin_unit<T>(units[1], model, nullptr, live[1]);
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
