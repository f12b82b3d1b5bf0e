// Takes tiles of a pyramid's lattices from payloads to values (docs/format_v2.md, section 8): several by a block, so
// that one warp decodes the words of all of them side by side.
#pragma once

#include "pipeline.cuh"

namespace cusz::cuda {

// A tile that is decoded: what its header says, in units from the beginning of all payloads.
template <class T>
struct TileReading {
    TilePlace<T> place;
    std::uint64_t begin, end, rest; // rest: states and words, or values
    std::uint32_t kind, lanes, n_verbatim, n_extra;
    std::uint64_t verbatim, extra;
    std::uint32_t extra_at;           // bits so far
    std::uint32_t n_values, n_groups; // of a phase; the former in significant groups
    std::uint32_t error;              // SplineError
    Array<std::uint32_t, tile_warps> partial;
};

template <class T>
__device__ std::uint32_t coded_points(const TilePlace<T>& place) {
    std::uint32_t points = 1, of_coarser = 1;
    for (std::uint32_t a = 0; a < 4; ++a) {
        points *= place.edge[a];
        of_coarser *= a < place.lattice->n_active ? (place.edge[a] + 1) / 2 : place.edge[a];
    }
    return points - of_coarser;
}

// The class and the half coordinates of a position in raster order.
template <class T>
__device__ std::uint32_t class_at(const TilePlace<T>& place, std::uint32_t position, Point& p) {
    std::uint32_t c = 0;
    for (std::uint32_t a = 0; a < 4; ++a) {
        const std::uint32_t x = position % place.edge[a];
        position /= place.edge[a];
        const bool active = a < place.lattice->n_active;
        p.x[a] = active ? x / 2 : x;
        c |= active ? (x & 1) << a : 0;
    }
    return c;
}

// Reads a payload's header; by one thread. A tile in error is read as if it were empty.
template <class T>
__device__ void read_header(const std::uint16_t* units, TileReading<T>& reading) {
    reading.kind = kind_empty;
    reading.lanes = reading.n_verbatim = reading.n_extra = reading.extra_at = reading.n_values = 0;
    reading.error = static_cast<std::uint32_t>(SplineError::none);
    const std::uint64_t n_units = reading.end - reading.begin;
    if (n_units == 0) return;
    const auto fails = [&](SplineError error) {
        reading.lanes = reading.n_verbatim = reading.n_extra = 0;
        reading.error = static_cast<std::uint32_t>(error);
    };
    const std::uint32_t word = units[reading.begin];
    const v2::TileHeader header = v2::TileHeader::of(word);
    if (header.kind != v2::tile_coded) {
        const std::uint32_t n =
            header.kind == v2::tile_raw ? 1 + coded_points(reading.place) * v2::units_of_value<T> : 1;
        if (!v2::TileHeader::is_legal(word) || n_units != n) return fails(SplineError::header_or_length);
        reading.kind = header.kind;
        reading.rest = reading.begin + 1;
        return;
    }
    if (!v2::TileHeader::is_legal(word)) return fails(SplineError::header);
    std::uint64_t left = n_units - 1, at = reading.begin + 1;
    const auto take = [&](std::uint64_t count) { // whether there are so many
        if (count > left) return false;
        left -= count;
        at += count;
        return true;
    };
    if (header.has_verbatim) {
        if (!take(1)) return fails(SplineError::too_short);
        reading.n_verbatim = units[at - 1];
        std::uint32_t points = 1;
        for (std::uint32_t a = 0; a < 4; ++a) points *= reading.place.edge[a];
        if (reading.n_verbatim > points) return fails(SplineError::too_many_verbatim);
        reading.verbatim = at;
        if (!take(std::uint64_t{reading.n_verbatim} * (1 + v2::units_of_value<T>)))
            return fails(SplineError::too_short);
    }
    if (header.has_extra) {
        if (!take(1)) return fails(SplineError::too_short);
        reading.n_extra = units[at - 1];
        reading.extra = at;
        if (!take(reading.n_extra)) return fails(SplineError::too_short);
    }
    reading.rest = at;
    reading.lanes = header.lanes;
    if (!take(2 * reading.lanes)) return fails(SplineError::too_short);
    reading.kind = v2::tile_coded;
}

// Whether this thread's verbatim values have legal positions.
template <class T>
__device__ bool legal_positions(const std::uint16_t* units, const TileReading<T>& reading) {
    std::uint32_t points = 1;
    for (std::uint32_t a = 0; a < 4; ++a) points *= reading.place.edge[a];
    bool legal = true;
    for (std::uint32_t j = tile_thread(); j < reading.n_verbatim; j += tile_threads) {
        const std::uint32_t at = units[reading.verbatim + j];
        Point p;
        legal = legal && at < points && (j == 0 || at > units[reading.verbatim + j - 1]) &&
                class_at(reading.place, at, p) != 0;
    }
    return legal;
}

// The bits of a value that begins at this unit.
template <class T>
__device__ typename Traits<T>::Bits value_at(const std::uint16_t* units, std::uint64_t at) {
    typename Traits<T>::Bits bits = 0;
    for (std::uint32_t i = 0; i < sizeof(T) / 2; ++i)
        bits |= static_cast<typename Traits<T>::Bits>(units[at + i]) << 16 * i;
    return bits;
}

// A value as it is decoded, and as it is predicted from; with its magnitude.
template <class T>
struct Decoded {
    typename Traits<T>::Bits bits;
    T value;
    std::uint32_t magnitude;
};

// Puts a value into the arrays of its lattice, or if that is lattice 0 into the field.
template <class T>
__device__ void put_decoded(const DeviceLattice<T>& lattice, std::uint64_t at, const Decoded<T>& of) {
    if (lattice.value != nullptr) {
        lattice.value[at] = of.value;
        lattice.magnitude[at] = static_cast<std::uint8_t>(of.magnitude);
    } else {
        lattice.decoded[at] = std::bit_cast<T>(of.bits);
    }
}
// Where a tile's points go.
template <class T, class G>
__device__ PointOffsets<G> offsets_of_decoded(const TilePlace<T>& place, const G& g) {
    const DeviceLattice<T>& lattice = *place.lattice;
    if (lattice.value != nullptr) return PointOffsets(g, place.fine, lattice.stride);
    return PointOffsets(g, place.original, lattice.original_stride);
}

// Puts the points of the coarser lattice into this one, or the field.
template <class T, class Memory>
__device__ void put_coarse(const TilePlace<T>& place, Memory& memory) {
    const auto& g = memory.geometry();
    const auto offset = offsets_of_decoded(place, g);
    const auto special = place.lattice->quantiser.special;
    for_coarse_points(place, memory, [&](const Point& p, std::uint32_t k, T value, bool is_special) {
        put_decoded<T>(*place.lattice, offset(ClassConstant<0>{}, p, k),
                       {is_special ? special : bits_of(value), value, is_special ? special_magnitude : 0});
    });
}

// What is looked up for the values of full tiles, of a lattice: a value's table, and 256 times S + N. By phase and S,
// and by the sum that N follows from, or for where that is special.
template <class T, TileShape shape>
struct ContextTables {
    // Of tiles that take up most memory, the tables of a phase are made anew in each.
    static constexpr std::uint32_t phases = sizeof(T) == 8 ? 1 : axes_of(shape);
    static constexpr std::uint32_t sums = 128; // N is the same for all greater ones
    Array<std::uint16_t, phases * v2::n_spreads * sums> of_sum;
    Array<std::uint16_t, phases * v2::n_spreads> of_special;

    // By all threads of the block.
    __device__ void set(const DecodingTables& tables, std::uint32_t lattice, std::uint32_t first_phase) {
        const auto entry = [&](std::uint32_t i, std::uint32_t active) { // i: phase and S
            const std::uint32_t spread = i % v2::n_spreads,
                                row = v2::row_of(lattice, first_phase + i / v2::n_spreads) / v2::n_places;
            return static_cast<std::uint16_t>((spread + active) << 8 | tables.table_of[row][spread << 4 | active]);
        };
        for (std::uint32_t i = threadIdx.x; i < phases * v2::n_spreads * sums; i += blockDim.x)
            of_sum[i] = entry(i / sums, activity_of_sum(i % sums));
        for (std::uint32_t i = threadIdx.x; i < phases * v2::n_spreads; i += blockDim.x)
            of_special[i] = entry(i, v2::n_activities - 1);
    }
    // Of four points of a phase along the last axis: spread, P and Q (as bytes).
    __device__ void find(std::uint32_t phase, const std::uint32_t (&spread)[4], std::uint32_t parents,
                         std::uint32_t earlier, std::uint32_t (&entry)[4]) const {
        const auto* const rows = &of_sum[(phases == 1 ? 0 : phase - 1) * (v2::n_spreads * sums)];
        const std::uint32_t high = (parents + earlier) & 0x80808080;
        const std::uint32_t offsets = ((parents + earlier) | (high - (high >> 7))) << 1 & 0xFEFEFEFE;
        for_constants<4>([&](auto k) { // an offset as the low byte, S above it
            const std::uint32_t at = bytes_of<0x5540 | k>(offsets, spread[k]);
            entry[k] = *reinterpret_cast<const std::uint16_t*>(reinterpret_cast<const std::uint8_t*>(rows) + at);
        });
        if (!has_special(parents | earlier)) return; // or the sums might not be bytes
        const auto* const special = &of_special[(phases == 1 ? 0 : phase - 1) * v2::n_spreads];
#pragma unroll
        for (std::uint32_t k = 0; k < 4; ++k) {
            const std::uint32_t p = parents >> 8 * k & 255, q = earlier >> 8 * k & 255;
            entry[k] = std::max(p, q) >= special_magnitude ? special[spread[k]]
                                                           : rows[spread[k] * sums + std::min(p + q, sums - 1)];
        }
    }
};

// Up to the symbols of a phase: predictions, contexts of groups, and the table of each value's symbol. In two parts,
// with a barrier between them, where classes replace others: these are the second.
template <class T, TileShape shape>
__device__ void predict_phase(const TileReading<T>& reading, FullReading<T, shape>& memory, std::uint32_t phase,
                              bool cubic, const ContextTables<T, shape>& tables, const DecodingTables&,
                              bool second_part) {
    using G = FullTile<T, shape>;
    constexpr std::uint32_t n = G::column, m = G::at_once;
    const TilePlace<T>& place = reading.place;
    const G g = memory.geometry();
    const T inv = place.lattice->quantiser.inv;
    const bool codes = reading.kind == v2::tile_coded;
    const auto predict_class = [&](auto c, auto is_cubic) {
        if (G::in_place && G::replaces(c) != second_part) return;
        if (phase < G::n_active) predict_margin(place, memory, c, is_cubic);
        g.for_columns(c, tile_thread(), [&](const Point& first, std::uint32_t) {
            std::uint32_t sum = 0;
#pragma unroll
            for (std::uint32_t i = 0; i < n; i += m) {
                const Point part = G::in_column(first, i);
                T predicted[m];
                std::uint32_t spread[m];
                predict_column(memory, c, part, is_cubic, inv, predicted, spread);
                T* const to = &memory.value(position(g, c, part));
                constexpr std::uint32_t step = G::apart * G::stride(c, G::last_axis);
#pragma unroll
                for (std::uint32_t k = 0; k < m; ++k) to[k * step] = predicted[k];
                if (!within_limits(predicted)) {
#pragma unroll
                    for (std::uint32_t k = 0; k < m; ++k) to[k * step] = limited(predicted[k]);
                }
                if (!codes) continue;
                std::uint8_t* const order = &memory.order(part.order);
                const std::uint32_t parents = parent_position(g, part);
#pragma unroll
                for (std::uint32_t j = 0; j < m; j += 4) {
                    std::uint32_t entry[4], own[4];
#pragma unroll
                    for (std::uint32_t k = 0; k < 4; ++k) own[k] = j + k < m ? spread[j + k] : 0;
                    if constexpr (G::n_active == 1) {
                        const std::uint32_t p = memory.parents(parents) | memory.parents(parents + G::apart) << 8;
                        tables.find(phase, own, p, 0, entry);
                    } else {
                        tables.find(phase, own,
                                    *reinterpret_cast<const std::uint32_t*>(&memory.parent_sums[parents + j]),
                                    sums_of_earlier_phases(memory, c, G::in_column(part, j)), entry);
                    }
#pragma unroll
                    for (std::uint32_t k = 0; k < 4 && j + k < m; ++k) {
                        order[(j + k) * G::row_lanes] = static_cast<std::uint8_t>(entry[k]);
                        sum += entry[k];
                    }
                }
            }
            if (codes) { // the tables' sum is below 256
                const std::uint32_t all = sum_over_lanes<G::row_lanes>(sum >> 8);
                if (first.in_group == 0) memory.sum(first.group) = static_cast<std::uint16_t>(all);
            }
        });
    };
    if (cubic)
        g.for_classes(phase, [&](auto c) { predict_class(c, std::true_type{}); });
    else
        g.for_classes(phase, [&](auto c) { predict_class(c, std::false_type{}); });
}
template <class T, TileShape shape>
__device__ void predict_phase(const TileReading<T>& reading, AnyMemory<T>& memory, std::uint32_t phase, bool cubic,
                              const ContextTables<T, shape>&, const DecodingTables& tables, bool second_part) {
    if (second_part) return;
    const auto& table_of = tables.table_of[v2::row_of(reading.place.lattice->number, phase) / v2::n_places];
    const TilePlace<T>& place = reading.place;
    const AnyTile& g = memory.geometry();
    g.for_classes(phase, [&](std::uint32_t c) {
        if (phase < place.lattice->n_active) predict_margin(place, memory, c, cubic);
        g.for_points(c, [&](const Point& p, std::uint32_t) {
            std::uint32_t spread;
            memory.value(position(g, c, p)) = predict<true>(memory, c, p, cubic, place.lattice->quantiser.inv, spread);
            if (reading.kind != v2::tile_coded) return;
            const std::uint32_t active = activity(memory, c, p);
            memory.order(p.order) = table_of[spread << 4 | active];
            atomicAdd(&memory.sum(p.group), spread + active);
            note_group(memory, p);
        });
    });
}

// Where symbols are to be decoded, from the flags of groups; by one thread. Returns their number.
template <class T, TileShape shape>
__device__ std::uint32_t find_symbols(FullReading<T, shape>& memory, std::uint32_t phase) {
    std::uint32_t n = 0;
    for (std::uint32_t g = 0; g < FullTile<T, shape>::groups_of_phase(phase); ++g)
        if (memory.significant(g) != 0) memory.places[n++] = static_cast<std::uint16_t>(g * 64);
    return n * 64;
}
template <class T>
__device__ std::uint32_t find_symbols(AnyMemory<T>& memory, std::uint32_t phase) {
    const std::uint32_t n = find_firsts(memory, phase);
    for (std::uint32_t j = 0; j < n; j += 64) memory.places[j / 64] = static_cast<std::uint16_t>(j);
    return n;
}

// Moves the tables of values in significant groups together, where they are not so already. What is in other groups of
// a full tile, or in an empty one, gets the symbol of code 0.
template <class T, TileShape shape>
__device__ void gather_tables(const TileReading<T>& reading, FullReading<T, shape>& memory, std::uint32_t phase) {
    constexpr std::uint32_t zeros = Alphabet(default_r).zero() * 0x01010101;
    if (reading.n_values == FullTile<T, shape>::points_of_phase(phase)) return;
    const std::uint32_t all = reading.n_values == 0 ? 0 : significant_groups(memory, phase);
    auto* const fours = reinterpret_cast<std::uint32_t*>(memory.orders.item);
    for (std::uint32_t i = tile_thread(); i < FullTile<T, shape>::points_of_phase(phase) / 4; i += tile_threads)
        if ((all >> i / 16 & 1) == 0) fours[i] = zeros;
}
template <class T>
__device__ void gather_tables(const TileReading<T>& reading, AnyMemory<T>& memory, std::uint32_t phase) {
    if (reading.n_values == 0) return;
    for_values(memory, phase, false, [&](std::uint32_t o, std::uint32_t at) { memory.symbols[at] = memory.order(o); });
}
// Moves symbols back to where their values are.
template <class T, TileShape shape>
__device__ void spread_symbols(FullReading<T, shape>&, std::uint32_t) {}
template <class T>
__device__ void spread_symbols(AnyMemory<T>& memory, std::uint32_t phase) {
    constexpr auto zero = static_cast<std::uint8_t>(Alphabet(default_r).zero());
    for (std::uint32_t o = tile_thread(); o < memory.geometry().points_of_phase(phase); o += tile_threads) {
        const std::uint32_t g = memory.group_of[o];
        memory.order(o) = memory.significant(g) != 0 ? memory.symbols[memory.firsts[g] + (o - memory.starts[g])] : zero;
    }
}

// Whether a symbol stands for a code by itself, which is this one.
__device__ inline bool is_direct(std::uint32_t symbol) { return symbol < 2 * Alphabet(default_r).direct(); }
__device__ inline std::int32_t direct_code(std::uint32_t symbol) {
    return static_cast<std::int32_t>(symbol) - static_cast<std::int32_t>(Alphabet(default_r).zero());
}

// The symbols of a phase that a thread reads extra bits for: they follow each other.
struct OwnSymbols {
    std::uint32_t begin, end;
    template <class G>
    __device__ OwnSymbols(const G& g, std::uint32_t phase) {
        const std::uint32_t n = g.points_of_phase(phase), each = (n + 4 * tile_threads - 1) / (4 * tile_threads) * 4;
        begin = std::min(tile_thread() * each, n);
        end = std::min(begin + each, n);
    }
};
// Calls use(o, symbol) for those of them that do not stand for a code by themselves.
template <class Memory, class Use>
__device__ void for_large_symbols(Memory& memory, std::uint32_t phase, const Use& use) {
    static_assert(2 * Alphabet(default_r).direct() == 64);
    const OwnSymbols own(memory.geometry(), phase);
    for (std::uint32_t o = own.begin; o < own.end; o += 4) {
        const std::uint32_t four = *reinterpret_cast<const std::uint32_t*>(&memory.orders[o]);
        std::uint32_t large = (four | four << 1) & 0x80808080;
        if constexpr (!std::remove_cvref_t<decltype(memory.geometry())>::known)
            if (own.end - o < 4) large &= (1u << 8 * (own.end - o)) - 1;
        for (; large != 0; large &= large - 1) {
            const std::uint32_t shift = (static_cast<std::uint32_t>(__ffs(static_cast<int>(large))) - 1) & ~7u;
            use(o + shift / 8, four >> shift & 255);
        }
    }
}
struct ExtraBits {
    bool symbols = false; // whether there are such
    std::uint32_t bits = 0;
};
template <class Memory>
__device__ ExtraBits count_extra_bits(Memory& memory, std::uint32_t phase) {
    ExtraBits own;
    for_large_symbols(memory, phase, [&](std::uint32_t, std::uint32_t symbol) {
        own.symbols = true;
        own.bits += Alphabet(default_r).meaning(symbol).extra_bits;
    });
    return own;
}
// Their codes, to where `code` is. limit: unit up to which may be read; before: extra bits of the phase before this
// thread's.
template <class T, class Memory>
__device__ void read_codes(const TileReading<T>& reading, Memory& memory, std::uint32_t phase,
                           const std::uint16_t* units, std::uint64_t limit, std::uint32_t before) {
    std::uint32_t at = reading.extra_at + before;
    for_large_symbols(memory, phase, [&](std::uint32_t o, std::uint32_t symbol) {
        const auto [leading, bits] = Alphabet(default_r).meaning(symbol);
        std::int32_t code = missing_code;
        if (symbol != Alphabet(default_r).missing()) { // bits beyond the end are anything: the end of the tile tells
            const std::uint64_t first = reading.extra + at / 16;
            std::uint64_t here = 0;
            for (std::uint32_t i = 0; i < 3; ++i)
                here |= std::uint64_t{units[std::min(first + i, limit - 1)]} << 16 * i;
            const std::uint32_t extra = static_cast<std::uint32_t>(here >> at % 16) & ((1u << bits) - 1);
            code = static_cast<std::int32_t>(static_cast<std::uint32_t>(leading) << bits | extra);
            at += bits;
        }
        memory.code(phase, o) = code;
    });
}

// Whether a value that is predicted from is not what is decoded (and stays so until all else is done).
template <class T>
__device__ bool has_to_be_patched(typename Traits<T>::Bits bits, const Quantiser<T>& q) {
    return bits != q.special && !(magnitude(std::bit_cast<T>(bits)) <= std::numeric_limits<T>::max());
}

template <class T>
__device__ Decoded<T> from_code(std::int32_t code, T predicted, const Quantiser<T>& q) {
    if (code == missing_code) return {q.special, reconstruct(predicted, 0, q), special_magnitude};
    const T value = reconstruct(predicted, code, q);
    return {bits_of(value), value, magnitude_of(code)};
}
template <class T>
__device__ Decoded<T> from_bits(typename Traits<T>::Bits bits, T predicted, const Quantiser<T>& q) {
    const Coded<T> result = as_it_is(std::bit_cast<T>(bits), predicted, q);
    return {bits, result.value, result.code == missing_code ? special_magnitude : 0};
}

// Value o, in coding order, of a phase. first_value: of the phase, in a raw tile.
template <class T, class Memory>
__device__ Decoded<T> decoded_value(const TileReading<T>& reading, Memory& memory, std::uint32_t phase, std::uint32_t o,
                                    T predicted, const Quantiser<T>& q, const std::uint16_t* units,
                                    std::uint32_t first_value) {
    if (reading.kind == v2::tile_coded) {
        const std::uint32_t symbol = memory.order(o);
        return from_code(is_direct(symbol) ? direct_code(symbol) : memory.code(phase, o), predicted, q);
    }
    if (reading.kind == kind_empty) return from_code(0, predicted, q);
    if (reading.kind == v2::tile_special) return from_bits(q.special, predicted, q);
    return from_bits(value_at<T>(units, reading.rest + std::uint64_t{first_value + o} * v2::units_of_value<T>),
                     predicted, q);
}

// Values of a phase from codes and predictions.
template <class T, TileShape shape>
__device__ void reconstruct_phase(const TileReading<T>& reading, FullReading<T, shape>& memory, std::uint32_t phase,
                                  const std::uint16_t* units, std::uint32_t first_value) {
    using G = FullTile<T, shape>;
    constexpr std::uint32_t n = G::column, m = G::at_once;
    const TilePlace<T>& place = reading.place;
    const G g = memory.geometry();
    const DeviceLattice<T>& lattice = *place.lattice;
    const Quantiser<T> q = lattice.quantiser;
    const std::uint32_t codes = opaque(reading.kind == v2::tile_coded || reading.kind == kind_empty ? 1 : 0);
    const bool coarse = lattice.value != nullptr;
    const auto offset = offsets_of_decoded(place, g);
    const std::uint64_t step = offset.step();
    T* const to = coarse ? lattice.value : lattice.decoded;
    std::uint8_t* const magnitudes = lattice.magnitude; // of lattice 0 null
    g.for_classes(phase, [&](auto c) {
        g.for_columns(c, tile_thread(), [&](const Point& first, std::uint32_t column) {
            T* decoded = to + offset.first(c, column);
            std::uint8_t* of_magnitude = magnitudes + offset.first(c, column);
            const std::uint8_t* const order = &memory.order(first.order);
#pragma unroll
            for (std::uint32_t i = 0; i < n; i += m) {
                const Point part = G::in_column(first, i);
                std::int32_t code[m];
                std::uint32_t size[m];          // at most 256, which has the largest magnitude
                std::uint32_t together = codes; // or one by one
                if (codes != 0) {
                    std::uint32_t all = 0;
#pragma unroll
                    for (std::uint32_t k = 0; k < m; ++k) {
                        const std::uint32_t symbol = order[(i + k) * G::row_lanes];
                        all |= symbol;
                        code[k] = direct_code(symbol);
                        size[k] = size_of_code(code[k]);
                    }
                    if (!is_direct(opaque(all))) {
#pragma unroll
                        for (std::uint32_t k = 0; k < m; ++k) {
                            if (is_direct(order[(i + k) * G::row_lanes])) continue;
                            code[k] = memory.code(phase, part.order + k * G::row_lanes);
                            size[k] = std::min(size_of_code(code[k]), 256u);
                            if (code[k] == missing_code) together = 0;
                        }
                    }
                }
                if (together == 0) {
#pragma unroll 1
                    for (std::uint32_t k = 0; k < m; ++k, decoded += step, of_magnitude += step) {
                        const Point p = G::in_column(part, k);
                        T& value = memory.value(position(g, c, p));
                        const Decoded<T> of =
                            decoded_value(reading, memory, phase, p.order, value, q, units, first_value);
                        value = of.value;
                        memory.magnitude(magnitude_position(g, c, p)) = static_cast<std::uint8_t>(of.magnitude);
                        if (coarse) {
                            *decoded = of.value;
                            *of_magnitude = static_cast<std::uint8_t>(of.magnitude);
                        } else {
                            *decoded = std::bit_cast<T>(of.bits);
                        }
                    }
                    continue;
                }
                T* const in_tile = &memory.value(position(g, c, part));
#pragma unroll
                for (std::uint32_t k = 0; k < m; ++k) {
                    T& value = in_tile[k * (G::apart * G::stride(c, G::last_axis))];
                    value = reconstruct(value, code[k], q);
                    *decoded = value;
                    decoded += step;
                    size[k] = static_cast<std::uint32_t>(__clz(static_cast<int>(size[k])));
                }
                put_magnitudes<true>(memory, c, part, size);
                if (!coarse) continue;
#pragma unroll
                for (std::uint32_t k = 0; k < m; ++k, of_magnitude += step)
                    *of_magnitude = static_cast<std::uint8_t>(32 - size[k]);
            }
        });
    });
}
template <class T>
__device__ void reconstruct_phase(const TileReading<T>& reading, AnyMemory<T>& memory, std::uint32_t phase,
                                  const std::uint16_t* units, std::uint32_t first_value) {
    const TilePlace<T>& place = reading.place;
    const AnyTile& g = memory.geometry();
    const Quantiser<T> q = place.lattice->quantiser;
    const auto offset = offsets_of_decoded(place, g);
    g.for_classes(phase, [&](std::uint32_t c) {
        g.for_points(c, [&](const Point& p, std::uint32_t k) {
            T& value = memory.value(position(g, c, p));
            const Decoded<T> of = decoded_value(reading, memory, phase, p.order, value, q, units, first_value);
            value = of.value;
            memory.magnitude(magnitude_position(g, c, p)) = static_cast<std::uint8_t>(of.magnitude);
            put_decoded(*place.lattice, offset(c, p, k), of);
        });
    });
}

// Whether this thread's values of a raw tile have to be patched.
template <class T>
__device__ bool raw_has_to_be_patched(const TileReading<T>& reading, const std::uint16_t* units) {
    if (reading.kind != v2::tile_raw) return false;
    const Quantiser<T>& q = reading.place.lattice->quantiser;
    bool patches = false;
    for (std::uint32_t o = tile_thread(); o < coded_points(reading.place); o += tile_threads)
        patches |= has_to_be_patched<T>(value_at<T>(units, reading.rest + std::uint64_t{o} * v2::units_of_value<T>), q);
    return patches;
}

// The verbatim values of a phase. Returns whether some have to be patched.
template <class T, class Memory>
__device__ bool put_verbatim(TileReading<T>& reading, Memory& memory, std::uint32_t phase, const std::uint16_t* units) {
    const TilePlace<T>& place = reading.place;
    const auto& g = memory.geometry();
    const Quantiser<T> q = place.lattice->quantiser;
    bool patches = false;
    for (std::uint32_t j = tile_thread(); j < reading.n_verbatim; j += tile_threads) {
        Point p{};
        const std::uint32_t class_of_value = class_at(place, units[reading.verbatim + j], p);
        if (static_cast<std::uint32_t>(__popc(class_of_value)) != phase) continue;
        const auto bits =
            value_at<T>(units, reading.verbatim + reading.n_verbatim + std::uint64_t{j} * v2::units_of_value<T>);
        g.for_classes(phase, [&](auto c) {
            if (c != class_of_value) return;
            const std::uint32_t at = position(g, c, p), of_class = magnitude_position(g, c, p);
            if (memory.magnitude(of_class) != 0) {
                reading.error = static_cast<std::uint32_t>(SplineError::verbatim_code);
                return;
            }
            const Coded<T> result = as_it_is(std::bit_cast<T>(bits), memory.value(at), q);
            const std::uint32_t own = result.code == missing_code ? special_magnitude : 0;
            memory.value(at) = result.value;
            memory.magnitude(of_class) = static_cast<std::uint8_t>(own);
            const DeviceLattice<T>& lattice = *place.lattice;
            const std::uint64_t to = lattice.value != nullptr
                                         ? offset_of(place, place.fine, c, p, lattice.stride)
                                         : offset_of(place, place.original, c, p, lattice.original_stride);
            put_decoded<T>(lattice, to, {bits, result.value, own});
            patches = patches || has_to_be_patched<T>(bits, q);
        });
    }
    return patches;
}

// Whether the extra bits end where they should.
template <class T>
__device__ bool extra_bits_end(const TileReading<T>& reading, const std::uint16_t* units) {
    const std::uint32_t at = reading.extra_at;
    if ((at + 15) / 16 != reading.n_extra) return false;
    return at % 16 == 0 || units[reading.extra + at / 16] >> at % 16 == 0;
}

} // namespace cusz::cuda
