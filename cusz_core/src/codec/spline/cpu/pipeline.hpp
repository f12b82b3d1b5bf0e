// Takes one tile of a lattice to its payload: interpolation and quantisation (prediction.hpp), contexts, rANS
// (rans.hpp), in the order of docs/format_v2.md, sections 4 to 8.
#pragma once

#include "order.hpp"
#include "originals.hpp"
#include "storing.hpp"

namespace cusz::cpu::CUSZ_ISA {

// Extra bits of codes, from the lowest up.
class ExtraBitWriter {
public:
    explicit ExtraBitWriter(std::uint16_t* units) : first_(units), at_(units) {}
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

// Whether any of n codes is not 0, and whether all have symbols of their own.
struct CodesOfGroup {
    bool significant, all_direct;
};

[[gnu::always_inline]] inline CodesOfGroup look_at_group(const std::uint8_t* direct, std::uint32_t n) {
    std::uint8_t different = 0;
    for (std::uint32_t x = 0; x < v2::max_group_values; ++x)
        different |= static_cast<std::uint8_t>(x < n ? direct[x] ^ v2::alphabet.zero() : 0);
    return {different != 0, (different & not_direct) == 0};
}

// The offset in the field of the first value of a class's row.
template <class T>
[[gnu::always_inline]] inline std::size_t field_offset(const Lattice& lattice, const SplineTile<T>& tile,
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
[[gnu::always_inline]] inline Extents offsets_of_rows(const Lattice& lattice) {
    Extents next = lattice.field_stride;
    for (std::size_t a = 0; a < 4; ++a) next[a] *= lattice.is_active(a) ? 2 : 1;
    return next;
}

// The rows of a class in the field.
template <class T>
struct FieldRows {
    const T* first = nullptr; // value of the class
    std::size_t step = 0;     // between points of the lattice; the class has every second one
    Extents next{};           // between rows
    const T* row(std::uint32_t y, std::uint32_t z, std::uint32_t w) const {
        return first + y * next[1] + z * next[2] + w * next[3];
    }
};

template <class T>
FieldRows<T> rows_in_field(const Lattice& lattice, const SplineTile<T>& tile, const T* field, std::uint32_t c) {
    return {field + field_offset(lattice, tile, c, 0, 0, 0), static_cast<std::size_t>(lattice.field_stride[0]),
            offsets_of_rows(lattice)};
}

// Values of a row from half coordinates h on that are neither simply coded nor special: those with a bit in
// `others`. row: in the field.
template <class T>
[[gnu::noinline]] void quantise_others(const Quantiser<T>& q, SplineTile<T>& tile, std::uint32_t c,
                                       const std::array<std::uint32_t, 4>& h, std::uint32_t others, const T* row,
                                       std::size_t step) {
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

// known_step: rows.step, where whole vectors can be loaded, or 0.
template <Geometry geometry, std::size_t known_step, class T>
[[gnu::noinline]] void quantise_rows(const Quantiser<T>& quantiser, const T* end, SplineTile<T>& tile, std::uint32_t c,
                                     const FieldRows<T>& rows) {
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
                    Codes v = Codes::load(codes + at + x);
                    if (n % lane_room != 0) keep_first(v, n - x);
                    store_marks(direct + at + x, direct_of(v));
                    store_marks(magnitude + at + x, magnitudes_of(v) | narrowed(missing_among(v)));
                }
            }
    tile.has_special |= has_special != 0;
}

// Quantises class c, whose predictions are in tile.value.
template <Geometry geometry, class T>
void quantise_class(const Lattice& lattice, const Quantiser<T>& q, const T* field, const T* end, SplineTile<T>& tile,
                    std::uint32_t c) {
    const ClassBox box = box_of<geometry>(tile, c);
    const FieldRows<T> rows = rows_in_field(lattice, tile, field, c);
    const T* const last = rows.row(box.n[1] - 1, box.n[2] - 1, box.n[3] - 1) - (c & 1) * rows.step;
    const bool whole = box.n[0] % Lanes<T>::n == 0 && 2 * rows.step * box.n[0] <= static_cast<std::size_t>(end - last);
    if (whole && rows.step == 1) return quantise_rows<geometry, 1>(q, end, tile, c, rows);
    if constexpr (geometry != Geometry::any) // the others are too few to gain by it
        if (whole && rows.step == 2) return quantise_rows<geometry, 2>(q, end, tile, c, rows);
    quantise_rows<geometry, 0>(q, end, tile, c, rows);
}

// A value that is stored as it is.
template <class T>
void keep_value(const Quantiser<T>& q, SplineTile<T>& tile, std::size_t at, typename Traits<T>::Bits bits) {
    const T value = std::bit_cast<T>(bits);
    tile.scratch.code[at] = bits == q.special ? missing_code : 0;
    tile.has_special = tile.has_special || bits == q.special;
    if (bits != q.special && std::abs(value) <= std::numeric_limits<T>::max()) tile.value[at] = value;
}

// Takes the values of class c as they are.
template <class T>
void keep_class(const Lattice& lattice, const Quantiser<T>& q, const T* field, SplineTile<T>& tile, std::uint32_t c) {
    const FieldRows<T> rows = rows_in_field(lattice, tile, field, c);
    for_rows(tile.box[c].n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
        for (std::uint32_t x = 0; x < tile.box[c].n[0]; ++x) {
            const std::size_t at = tile.box[c].at(x, y, z, w);
            keep_value(q, tile, at, bits_of(rows.row(y, z, w)[x * 2 * rows.step]));
            tile.magnitude[at] = tile.scratch.code[at] == missing_code ? v2::special_magnitude : std::uint8_t{0};
        }
    });
}

// Where a run of entries may begin.
inline std::uint32_t next_run(std::uint32_t at) { return (at + v2::max_lanes - 1) / v2::max_lanes * v2::max_lanes; }

template <Geometry geometry, class T>
std::uint32_t count_groups(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t phase) {
    std::uint32_t n = 0;
    for_groups<geometry>(lattice, tile, phase, [&](std::uint32_t, const Group&) { ++n; });
    return n;
}

// The codes of a group, of which some have no symbol of their own, and lane_room zeros. Returns their number.
template <class T>
std::uint32_t get_codes(const SplineTile<T>& tile, const ClassBox& box, const Group& g, std::int32_t* codes) {
    std::uint32_t at = 0;
    for_rows_of(box, g, [&](std::size_t row, auto n) {
        copy_row(codes + at, tile.scratch.code + row, n);
        at += n;
    });
    std::fill_n(codes + at, lane_room, 0);
    return at;
}

template <class T>
[[gnu::noinline]] void count_large(const SplineTile<T>& tile, const ClassBox& box, const Group& g,
                                   const std::uint8_t* place, std::uint32_t row, RansCounts& counts) {
    std::int32_t codes[v2::max_group_values + lane_room];
    const std::uint32_t n = get_codes(tile, box, g, codes);
    std::uint8_t symbol[v2::max_group_values + lane_room];
    for (std::uint32_t x = 0; x < n; x += lane_room)
        store_marks(symbol + x, SymbolsOfCodes(Codes::load(codes + x)).symbol);
    for (std::uint32_t x = 0; x < n; ++x) {
        const std::uint32_t s = codes[x] == missing_code ? v2::alphabet.missing() : symbol[x];
        counts.count(context_of(row, place[x]), s);
    }
}

// All ones where a symbol has frequency 0 in its table, or may have. bucket: of codes that have none: 0.
[[gnu::always_inline]] inline ByteLanes::Bytes is_escaped(const RansWriting& writing, ByteLanes::Bytes table,
                                                          ByteLanes::Bytes symbol, ByteLanes::Bytes bucket) {
    using Bytes = ByteLanes::Bytes;
    constexpr auto zero = static_cast<std::uint8_t>(v2::alphabet.zero());
    const Bytes magnitude = symbol < zero ? zero - symbol : symbol - zero;
    const auto is_direct = reinterpret_cast<Bytes>(bucket == 0);
    return (is_direct & reinterpret_cast<Bytes>(magnitude > ByteLanes::look_up_16(writing.direct_reach, table))) |
           reinterpret_cast<Bytes>(bucket > ByteLanes::look_up_16(writing.bucket_reach, table));
}

[[gnu::always_inline]] inline void store_entries(ByteLanes::Bytes table, ByteLanes::Bytes symbol,
                                                 std::uint16_t* entry) {
    typedef std::uint16_t Entries __attribute__((vector_size(2 * ByteLanes::n)));
    const auto entries = __builtin_convertvector(table, Entries) << 8 | __builtin_convertvector(symbol, Entries);
    std::memcpy(entry, &entries, sizeof entries);
}

// Lists the symbols of a group whose codes all have one; false if some of them have to be escaped. Whole vectors
// are written.
[[gnu::noinline]] inline bool list_direct(const std::uint8_t* place, const std::uint8_t* direct, std::uint32_t n,
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

// Lists symbols and puts extra bits of a group; false if it has codes that are escaped. codes: none missing, and
// zeros behind them that fill up the last vector.
[[gnu::always_inline]] inline bool list_own(const std::int32_t* codes, const std::uint8_t* place, std::uint32_t n,
                                            const RansWriting& writing, std::uint32_t row, std::uint16_t* entry,
                                            ExtraBitWriter& extra) {
    using L = ByteLanes;
    alignas(64) std::uint8_t symbol[v2::max_group_values + vector_room], bucket[v2::max_group_values + vector_room];
    std::uint32_t value[v2::max_group_values + lane_room], bits[v2::max_group_values + lane_room];
    for (std::uint32_t x = 0; x < n; x += lane_room) {
        const SymbolsOfCodes of(Codes::load(codes + x));
        store_marks(symbol + x, of.symbol);
        store_marks(bucket + x, of.bucket);
        of.extra.store(value + x);
        of.extra_bits.store(bits + x);
    }
    for (std::uint32_t x = 0; x < n; x += L::n) {
        const auto s = L::load(symbol + x), table = L::look_up_128(writing.table_of[row].data(), L::load(place + x));
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

// Copies codes, those that are missing as 0, and the zeros that fill up the last vector. Returns how many are
// missing.
inline std::uint32_t take_out_missing(const std::int32_t* codes, std::uint32_t n, std::int32_t* present) {
    Codes n_missing{};
    for (std::uint32_t x = 0; x < n; x += lane_room) {
        const Codes some = Codes::load(codes + x), missing = missing_among(some);
        n_missing = by_parts([](auto a, auto b) { return a - b; }, n_missing, missing);
        without(missing, some).store(present + x);
    }
    std::int32_t by_lane[lane_room];
    n_missing.store(by_lane);
    std::uint32_t sum = 0;
    for (const std::int32_t of_lane : by_lane) sum += static_cast<std::uint32_t>(of_lane);
    return sum;
}

// Gives missing codes their symbol.
inline void put_missing(const std::int32_t* codes, std::uint32_t n, std::uint16_t* entry) {
    for (std::uint32_t x = 0; x < n; ++x)
        entry[x] = static_cast<std::uint16_t>(codes[x] == missing_code ? (entry[x] & 0xFF00) | v2::alphabet.missing()
                                                                       : entry[x]);
}

// The symbol of a code that has extra bits, or of a special value; puts the bits.
inline std::uint32_t put_large(const RansWriting& writing, std::uint32_t table, std::int32_t code,
                               ExtraBitWriter& extra) {
    std::uint32_t s = v2::alphabet.symbol(code);
    if (s == v2::alphabet.missing()) return s;
    s = writing.coded_as[table][s];
    const std::uint32_t bits = v2::alphabet.meaning(s).extra_bits;
    extra.put(static_cast<std::uint32_t>(code) & ((1u << bits) - 1), bits);
    return s;
}

// The same of any group, with its extra bits. Returns how many values are special.
template <class T>
[[gnu::noinline]] std::uint32_t list_large(const SplineTile<T>& tile, const ClassBox& box, const Group& g,
                                           const std::uint8_t* place, std::uint32_t row, const RansWriting& writing,
                                           std::uint16_t* entry, ExtraBitWriter& given) {
    std::int32_t codes[v2::max_group_values + lane_room];
    const std::uint32_t n = get_codes(tile, box, g, codes);
    std::int32_t present[v2::max_group_values + lane_room]; // 0 in place of missing ones
    const std::uint32_t n_special = tile.has_special ? take_out_missing(codes, n, present) : 0;
    ExtraBitWriter extra = given; // not the caller's, which stores might change, as far as C++ knows
    if (list_own(n_special > 0 ? present : codes, place, n, writing, row, entry, extra)) {
        if (n_special > 0) put_missing(codes, n, entry);
    } else {
        for (std::uint32_t x = 0; x < n; ++x) {
            const std::uint32_t table = writing.table_of[row][place[x]], s = put_large(writing, table, codes[x], extra);
            entry[x] = static_cast<std::uint16_t>(table << 8 | s);
        }
    }
    given = extra;
    return n_special;
}

template <Geometry geometry, class T>
std::uint32_t code_phases_of(const SplineCoder<T>& coder, std::size_t i, const T* field, SplineTile<T>& tile,
                             RansCounts* counts, const RansWriting* writing, SplineOutput<T>* output) {
    const Lattice& lattice = coder.pyramid.lattices[i];
    const Quantiser<T>& q = coder.quantiser[i];
    RansSequence::Run flags{}, values{};
    std::uint16_t* const entry = output != nullptr ? output->sequence.entry : nullptr;
    if (output != nullptr) output->sequence.n_runs = output->n_significant = output->n_special = 0;
    ExtraBitWriter extra(tile.scratch.extra);
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
        const std::uint32_t row = v2::row_of(i, phase) / v2::n_places;
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
                    static_cast<std::uint16_t>((v2::max_tables + context) << 8 | significant);
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

// Predicts and codes all phases: counts what is coded, or lists it for writing; the other one is null. Returns the
// units of extra bits.
template <class T>
std::uint32_t code_phases(const SplineCoder<T>& coder, std::size_t i, const T* field, SplineTile<T>& tile,
                          RansCounts* counts, const RansWriting* writing, SplineOutput<T>* output) {
    std::uint32_t n_extra = 0;
    with_geometry_of(tile, [&](auto geometry) {
        n_extra = code_phases_of<geometry>(coder, i, field, tile, counts, writing, output);
    });
    return n_extra;
}

template <class T>
void count_tile(const SplineCoder<T>& coder, std::size_t i, const LatticeTile& place, const T* field,
                const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, SplineTile<T>& tile, RansCounts& counts) {
    const Lattice& lattice = coder.pyramid.lattices[i];
    tile.begin(lattice, place);
    load_coarse(lattice, coarse, tile);
    code_phases<T>(coder, i, field, tile, &counts, nullptr, nullptr);
    store_tile(lattice, tile, coarse, fine);
}

template <class T>
std::uint32_t put_values(std::uint16_t* to, const typename Traits<T>::Bits* bits, std::uint32_t n) {
    std::memcpy(to, bits, n * sizeof(T));
    return n * v2::units_of_value<T>;
}

// Lists a tile's entries. Returns the units of extra bits.
template <class T>
std::uint32_t begin_output(const SplineCoder<T>& coder, std::size_t i, const T* field, const LatticeArrays<T>& coarse,
                           const LatticeArrays<T>& fine, SplineTile<T>& tile, const RansWriting& writing,
                           SplineOutput<T>& output) {
    const Lattice& lattice = coder.pyramid.lattices[i];
    begin_tile(lattice, output.tile, tile);
    load_coarse(lattice, coarse, tile);
    const std::uint32_t n_extra = code_phases(coder, i, field, tile, nullptr, &writing, &output);
    store_tile(lattice, tile, coarse, fine);
    output.n_values = coded_points(tile);
    output.n_verbatim = tile.n_verbatim;
    return n_extra;
}

template <class T>
void sort_verbatim(SplineTile<T>& tile) {
    std::vector<std::pair<std::uint16_t, typename Traits<T>::Bits>> all;
    all.reserve(tile.n_verbatim);
    for (std::uint32_t j = 0; j < tile.n_verbatim; ++j) all.emplace_back(tile.verbatim_at[j], tile.verbatim[j]);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::uint32_t j = 0; j < tile.n_verbatim; ++j) {
        tile.verbatim_at[j] = all[j].first;
        tile.verbatim[j] = all[j].second;
    }
}

// What is before states and words.
template <class T>
void write_front(SplineTile<T>& tile, std::uint32_t n_extra, SplineOutput<T>& output) {
    RansSequence& sequence = output.sequence;
    const std::uint32_t n = output.n_significant;
    sequence.lanes = n <= max_for_one_lane ? 1 : n <= 2 * max_for_one_lane ? 2 : v2::max_lanes;
    sequence.words = std::end(output.room);
    std::uint16_t* const payload = output.room;
    const v2::TileHeader header{.lanes = sequence.lanes, .has_verbatim = tile.n_verbatim > 0, .has_extra = n_extra > 0};
    std::uint32_t at = 1;
    if (header.has_verbatim) {
        sort_verbatim(tile);
        payload[at++] = static_cast<std::uint16_t>(tile.n_verbatim);
        std::memcpy(payload + at, tile.verbatim_at, tile.n_verbatim * 2);
        at += tile.n_verbatim;
        at += put_values<T>(payload + at, tile.verbatim, tile.n_verbatim);
    }
    if (header.has_extra) {
        payload[at++] = static_cast<std::uint16_t>(n_extra);
        std::memcpy(payload + at, tile.scratch.extra, n_extra * 2);
        at += n_extra;
    }
    payload[0] = static_cast<std::uint16_t>(header.word());
    output.n_front = at;
}

// Calls use(position in memory, offset in the field) for a group's values.
template <class T, class Use>
void for_values_of(const Lattice& lattice, const SplineTile<T>& tile, std::uint32_t c, const Group& g, const Use& use) {
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

// Values as they are, which are then what is predicted from. Returns the payload's units.
template <class T>
std::uint32_t write_raw(const SplineCoder<T>& coder, std::size_t i, std::uint64_t number, const T* field,
                        const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine, SplineTile<T>& tile,
                        std::uint16_t* payload) {
    const Lattice& lattice = coder.pyramid.lattices[i];
    const Quantiser<T>& q = coder.quantiser[i];
    begin_tile(lattice, number, tile);
    load_coarse(lattice, coarse, tile);
    payload[0] = v2::tile_raw;
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
                at += v2::units_of_value<T>;
            });
        });
    }
    store_tile(lattice, tile, coarse, fine);
    return at;
}

template <class T>
bool all_special(const SplineTile<T>& tile) {
    if (!tile.has_special) return false;
    bool all = true;
    for (std::uint32_t c = 1; c < tile.classes(); ++c)
        for_rows(tile.box[c].n, [&](std::uint32_t y, std::uint32_t z, std::uint32_t w) {
            const std::size_t at = tile.box[c].at(0, y, z, w);
            for (std::uint32_t x = 0; x < tile.box[c].n[0]; ++x) all = all && tile.scratch.code[at + x] == missing_code;
        });
    return all;
}

template <class T>
std::uint32_t write_tiles(const SplineCoder<T>& coder, std::size_t i, std::uint64_t first, std::uint32_t n,
                          const T* field, const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine,
                          SplineTile<T>& tile, const RansWriting& writing, SplineOutput<T>* outputs,
                          SplinePayload* payloads, Counts& counts) {
    constexpr std::uint32_t at_once = RansEncoder::max_at_once;
    static_assert(at_once <= tiles_at_once);
    static constexpr std::uint16_t all_special_payload = v2::tile_special;
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
        if (payload.n < 1 + output.n_values * v2::units_of_value<T>) {
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

} // namespace cusz::cpu::CUSZ_ISA
