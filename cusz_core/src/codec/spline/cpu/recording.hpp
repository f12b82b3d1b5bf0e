// Predicts and quantises a tile, once, and records what it is coded as (writing.hpp makes payloads from that when the
// tables are known).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "archive/v2/model.hpp"
#include "contexts.hpp"
#include "originals.hpp"
#include "rans.hpp"
#include "record.hpp"
#include "storing.hpp"

namespace cusz::cpu::CUSZ_ISA {

using v2::zero_symbol;

// Where a class of a tile lies in the field.
template <class T>
struct FieldClass {
    const T* first = nullptr; // value of the class
    std::size_t step = 0;     // between points of the lattice; the class has every second one
    Extents next{};           // between rows

    FieldClass(const Lattice& lattice, const LatticeTile& place, const T* field, std::uint32_t c) {
        std::size_t offset = 0;
        for (std::uint32_t a = 0; a < 4; ++a) {
            const bool active = lattice.is_active(a);
            const std::uint64_t odd = active ? c >> a & 1 : 0;
            offset += static_cast<std::size_t>((place.origin[a] + odd) * lattice.field_stride[a]);
            next[a] = lattice.field_stride[a] * (active ? 2 : 1);
        }
        first = field + offset;
        step = static_cast<std::size_t>(lattice.field_stride[0]);
    }
    const T* row(std::uint32_t y, std::uint32_t z, std::uint32_t w) const {
        return first + y * next[1] + z * next[2] + w * next[3];
    }
};

// Quantises, one by one, the values of a row that have a bit in `others`, none of which is special. from, value, byte:
// for bit 0.
template <class T>
[[gnu::noinline]] void quantise_others(const Quantiser<T>& q, SplineTile<T>& tile, const T* from, std::size_t apart,
                                       std::uint32_t others, T* value, std::size_t byte) {
    for (; others != 0; others &= others - 1) {
        const auto lane = static_cast<std::size_t>(std::countr_zero(others));
        const T d = from[lane * apart];
        std::uint8_t& direct = tile.direct[byte + lane];
        const CodedValue<T> result = quantise_value(d, value[lane], q);
        value[lane] = result.value;
        direct = direct_of(result.code);
        tile.code[byte + lane] = result.code;
        if (!result.verbatim) continue;
        direct = v2::verbatim;
        tile.code[byte + lane] = static_cast<std::int32_t>(tile.verbatim.size());
        tile.verbatim.push_back(bits_of(d));
        tile.has_missing = true;
    }
}

// Quantises the rows of class c, whose values are predictions so far. known_step: from.step if whole vectors can be
// loaded, else 0.
template <std::size_t known_step, class T>
[[gnu::noinline]] void quantise_rows_of(const FieldClass<T>& from, const Quantiser<T>& q, const T* end,
                                        SplineTile<T>& tile, std::uint32_t c) {
    using L = Lanes<T>;
    using Values = typename L::Values;
    using Ints = typename L::Ints;
    using Int = typename L::Int;
    const TileForm& form = *tile.form;
    const ClassRows& rows = form.rows[c];
    const std::uint32_t n = rows.n[0];
    const std::size_t step = known_step > 0 ? known_step : from.step;
    const bool odd = (c & 1) != 0;
    const auto special = static_cast<Int>(q.special);
    const T inv = q.inv, of_step = q.step, e = q.e;
    // Copies, because compilers must assume that stores of bytes may change the members.
    T* const values = tile.value;
    std::uint8_t* const directs = tile.direct + c * form.n_bytes;
    std::int32_t* const codes = tile.code + c * form.n_bytes;
    const std::ptrdiff_t later = tile.later;
    const std::size_t next = static_cast<std::size_t>(from.next[1]), next_value = rows.stride[1],
                      next_byte = form.byte_step[1];
    for (std::uint32_t w = 0; w < rows.n[3]; ++w)
        for (std::uint32_t z = 0; z < rows.n[2]; ++z) {
            const T* d = from.row(0, z, w);
            T* value = values + rows.at(0, z, w);
            std::size_t byte = form.byte_at(0, z, w);
            for (std::uint32_t y = rows.n[1]; y > 0; --y, d += next, value += next_value, byte += next_byte) {
                const T* const line = odd ? d - step : d;
                if (odd) // every line of the tile is a row of one class with bit 0
                    for (std::size_t p = 0; p < 2 * step * n; p += std::max(step, 64 / sizeof(T)))
                        __builtin_prefetch(line + p + later, 0, 2);
                for (std::uint32_t x = 0; x < n; x += L::n) {
                    const Values v = known_step > 0 ? L::template every_second<known_step>(line + 2 * step * x, odd)
                                                    : originals(line, step, odd, x, n, end);
                    const Values p = L::template load<Values>(value + x);
                    const Values t = (v - p) * inv, k = (t + Traits<T>::rounder) - Traits<T>::rounder,
                                 back = p + k * of_step;
                    Ints fine = (L::absolute(t) <= T(v2::max_code)) & (L::absolute(v - back) < e) &
                                (reinterpret_cast<Ints>(v) != special);
                    const std::uint32_t left = known_step > 0 ? L::n : n - x;
                    if (left < L::n) fine &= L::counted() < static_cast<Int>(left); // what follows the row stays
                    L::store(value + x, fine ? back : p);
                    const Values code = fine ? k : Values{};
                    Values limited = code > T(64) ? Values{} + T(64) : code;
                    limited = limited < T(-64) ? Values{} - T(64) : limited;
                    constexpr T bias = Traits<T>::rounder;
                    const Ints direct =
                        reinterpret_cast<Ints>(limited + bias) - static_cast<Int>(bits_of(bias) - zero_symbol);
                    const auto symbols = L::narrowed(direct);
                    L::store(directs + byte + x, symbols);
                    if (L::bits(L::absolute(code + T(0.5)) > T(32)) != 0) [[unlikely]]
                        L::store(codes + byte + x, __builtin_convertvector(code, typename L::Codes));
                    const std::uint32_t all = left < L::n ? (1u << left) - 1 : (1u << L::n) - 1;
                    std::uint32_t others = ~L::bits(fine) & all;
                    if (others == 0) [[likely]]
                        continue;
                    Ints is_special = reinterpret_cast<Ints>(v) == special;
                    if (left < L::n) is_special &= L::counted() < static_cast<Int>(left);
                    if (const std::uint32_t specials = L::bits(is_special); specials != 0) {
                        const auto here = __builtin_convertvector(is_special, typename L::Narrow);
                        L::store(directs + byte + x,
                                 (symbols & ~here) | (here & static_cast<std::uint8_t>(v2::special)));
                        tile.has_missing = true;
                        others &= ~specials;
                    }
                    if (others != 0)
                        quantise_others(q, tile, d + 2 * step * x, 2 * step, others, value + x,
                                        c * form.n_bytes + byte + x);
                }
            }
        }
}

template <class T>
void quantise_class_of(const Lattice& lattice, const Quantiser<T>& q, const T* field, const T* end, SplineTile<T>& tile,
                       std::uint32_t c) {
    const ClassRows& rows = tile.form->rows[c];
    const FieldClass<T> from(lattice, tile.place, field, c);
    const T* const last = from.row(rows.n[1] - 1, rows.n[2] - 1, rows.n[3] - 1) - (c & 1) * from.step;
    const bool whole =
        rows.n[0] % Lanes<T>::n == 0 && 2 * from.step * rows.n[0] <= static_cast<std::size_t>(end - last);
    if (whole && from.step == 1) return quantise_rows_of<1>(from, q, end, tile, c);
    if (whole && from.step == 2) return quantise_rows_of<2>(from, q, end, tile, c);
    quantise_rows_of<0>(from, q, end, tile, c);
}

// Copies the codes of a group to coding order.
template <std::uint32_t length>
[[gnu::always_inline]] inline void copy_codes(const TileForm::Run* run, const std::int32_t* code, std::uint32_t n,
                                              std::int32_t* in_order) {
    for (std::uint32_t done = 0; done < n; done += run->n, ++run) // the next run overwrites any excess
        std::memcpy(in_order + done, code + run->byte, length * sizeof *code);
}

// Finds the symbols of a group's values that have a bit in `large`, in coding order, and lists what their extra bits
// are made of. None of them is special.
template <class T>
[[gnu::noinline]] void list_large(const SplineTile<T>& tile, const TileForm::Group& group, std::uint32_t phase,
                                  std::uint64_t large, std::uint8_t* symbol, UnitRecord& record) {
    const TileForm& form = *tile.form;
    const TileForm::Run* const run = form.runs[phase - 1].data() + group.first_run;
    std::int32_t codes[2 * max_group_points];
    if (form.n_active == 3)
        copy_codes<4>(run, tile.code, group.n, codes);
    else if (form.n_active == 2)
        copy_codes<8>(run, tile.code, group.n, codes);
    else
        copy_codes<64>(run, tile.code, group.n, codes);
    std::uint32_t extra[2 * max_group_points], n = 0;
    std::uint64_t bits = 0;
    for (; large != 0; large &= large - 1) {
        const auto j = static_cast<std::uint32_t>(std::countr_zero(large));
        const std::int32_t code = codes[j];
        if (symbol[j] != v2::verbatim) [[likely]] {
            symbol[j] = static_cast<std::uint8_t>(v2::symbol_of(code));
            bits += v2::meanings[symbol[j]].extra_bits;
            extra[n++] = static_cast<std::uint32_t>(code);
        } else {
            ++record.n_verbatim;
            const std::uint64_t value = tile.verbatim[static_cast<std::size_t>(code)];
            extra[n++] = static_cast<std::uint32_t>(value);
            if (sizeof(T) == 8) extra[n++] = static_cast<std::uint32_t>(value >> 32);
        }
    }
    record.extra_bits += bits;
    record.extra.insert(record.extra.end(), extra, extra + n);
}

// Records a phase whose contexts and codes are known. Returns whether any code is not 0 or any value is missing.
template <class T>
bool record_phase(SplineTile<T>& tile, std::uint32_t phase, std::uint32_t row, UnitRecord& record) {
    using L = ByteLanes;
    const TileForm& form = *tile.form;
    copy_phase<true>(form, phase, tile.context, tile.context_in_order);
    copy_phase<true>(form, phase, tile.direct, tile.direct_in_order);
    const auto [flags, values] = record.begin_phase(row, form.n_flags[phase - 1], form.n_points[phase - 1]);
    std::uint8_t *flag_context = record.context.data() + flags, *flag = record.symbol.data() + flags,
                 *context = record.context.data() + values, *symbol = record.symbol.data() + values;
    bool live = false;
    for (const TileForm::Group& group : form.groups[phase - 1]) {
        const std::uint8_t *const places = tile.context_in_order + group.first, *const direct =
                                                                                    tile.direct_in_order + group.first;
        std::uint64_t different = 0, large = 0;
        for (std::uint32_t x = 0; x < max_group_points; x += L::n) {
            const auto v = L::load(direct + x);
            different |= L::highest_bits(reinterpret_cast<L::Bytes>(v != static_cast<std::uint8_t>(zero_symbol))) << x;
            large |= L::highest_bits(v | (v + v)) << x;
        }
        const std::uint64_t all = ~std::uint64_t{0} >> (max_group_points - group.n);
        const bool significant = (different & all) != 0;
        live |= significant;
        if (group.has_flag) {
            *flag_context++ = group_contexts_of_unit.of_sum[sum_of_weights(places, group.n)];
            *flag++ = significant;
            if (!significant) continue;
        }
        for (std::uint32_t x = 0; x < max_group_points; x += L::n) {
            L::store(context + x, L::load(places + x));
            L::store(symbol + x, L::load(direct + x));
        }
        if ((large & all) != 0) {
            const std::uint64_t special = special_symbols(direct, group.n);
            record.n_special += static_cast<std::uint64_t>(std::popcount(special));
            large &= all & ~special;
            if (large != 0) list_large(tile, group, phase, large, symbol, record);
        }
        context += group.n;
        symbol += group.n;
    }
    record.end_run(static_cast<std::uint32_t>(symbol - record.symbol.data()));
    return live;
}

// Predicts, quantises and records a tile of lattice i. Returns whether it is live.
template <class T>
bool code_tile(const PyramidCoder<T>& coder, std::size_t i, std::uint64_t number, const T* field,
               const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, const UnitMemory<T>& memory,
               UnitRecord& record) {
    SplineTile<T>& tile = memory.tiles[0];
    const Lattice& lattice = coder.pyramid.lattices[i];
    const Quantiser<T>& q = coder.quantiser[i];
    tile.begin(memory.forms, lattice, number, coder.is_wide(), false, coder.adds_codes());
    load_class_0(lattice, coarse, tile);
    find_roughness(lattice, tile, q.inv);
    prepare_contexts(lattice, tile);
    bool live = false;
    for (std::uint32_t phase = 1; phase <= lattice.n_active; ++phase) {
        const bool is_last = phase == lattice.n_active;
        for_classes_of(*tile.form, phase, [&](std::uint32_t c) {
            find_contexts(tile, c);
            predict(coder, lattice, tile, c);
            quantise_class_of(lattice, q, field, coder.end, tile, c);
            if (!is_last) continue_class(lattice, tile, tile.value, c);
        });
        if (!is_last || fine.value != nullptr)
            for_classes_of(*tile.form, phase, [&](std::uint32_t c) { find_magnitudes(tile, c); });
        live |= record_phase(tile, phase, v2::row_of(i, phase), record);
    }
    if (fine.value != nullptr) store_tile(lattice, tile, fine);
    return live;
}

} // namespace cusz::cpu::CUSZ_ISA
