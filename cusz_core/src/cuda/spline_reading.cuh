// Takes tiles of a pyramid's lattices from payloads to values (docs/format_v2.md, section 8): several by a block, so
// that one warp decodes the words of all of them side by side.
#pragma once

#include "spline_pipeline.cuh"

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
    std::uint32_t has_large;          // of a phase: not all codes have symbols of their own
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
    constexpr std::uint32_t units_of_value = sizeof(T) / 2;
    reading.kind = kind_empty;
    reading.lanes = reading.n_verbatim = reading.n_extra = reading.extra_at = reading.n_values = 0;
    reading.error = static_cast<std::uint32_t>(SplineError::none);
    const std::uint64_t n_units = reading.end - reading.begin;
    if (n_units == 0) return;
    const auto fails = [&](SplineError error) {
        reading.lanes = reading.n_verbatim = reading.n_extra = 0;
        reading.error = static_cast<std::uint32_t>(error);
    };
    const std::uint32_t header = units[reading.begin], kind = header & 3;
    if (kind != kind_coded) {
        const std::uint32_t n = kind == kind_raw ? 1 + coded_points(reading.place) * units_of_value : 1;
        if (header > kind_raw || n_units != n) return fails(SplineError::header_or_length);
        reading.kind = kind;
        reading.rest = reading.begin + 1;
        return;
    }
    if ((header & 3u << 2) == 3u << 2 || header >> 6 != 0) return fails(SplineError::header);
    std::uint64_t left = n_units - 1, at = reading.begin + 1;
    const auto take = [&](std::uint64_t count) { // whether there are so many
        if (count > left) return false;
        left -= count;
        at += count;
        return true;
    };
    if ((header >> 4 & 1) != 0) {
        if (!take(1)) return fails(SplineError::too_short);
        reading.n_verbatim = units[at - 1];
        std::uint32_t points = 1;
        for (std::uint32_t a = 0; a < 4; ++a) points *= reading.place.edge[a];
        if (reading.n_verbatim > points) return fails(SplineError::too_many_verbatim);
        reading.verbatim = at;
        if (!take(std::uint64_t{reading.n_verbatim} * (1 + units_of_value))) return fails(SplineError::too_short);
    }
    if ((header >> 5 & 1) != 0) {
        if (!take(1)) return fails(SplineError::too_short);
        reading.n_extra = units[at - 1];
        reading.extra = at;
        if (!take(reading.n_extra)) return fails(SplineError::too_short);
    }
    reading.rest = at;
    reading.lanes = 1u << (header >> 2 & 3);
    if (!take(2 * reading.lanes)) return fails(SplineError::too_short);
    reading.kind = kind_coded;
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

template <class T>
__device__ typename Traits<T>::Bits value_at(const std::uint16_t* units, std::uint64_t at) {
    typename Traits<T>::Bits bits = 0;
    for (std::uint32_t i = 0; i < sizeof(T) / 2; ++i)
        bits |= static_cast<typename Traits<T>::Bits>(units[at + i]) << 16 * i;
    return bits;
}

// A value's code and prediction, or what is stored in their place, in the field or the lattice's arrays.
template <class T, class G>
__device__ void put_decoded(const TilePlace<T>& place, const G& g, std::uint32_t c, const Point& p, T value,
                            std::uint32_t magnitude, typename Traits<T>::Bits bits) {
    const DeviceLattice<T>& lattice = *place.lattice;
    if (lattice.value != nullptr)
        store_in_lattice(place, g, c, p, value, magnitude);
    else
        lattice.decoded[place.original + offset_of(g, c, p, lattice.original_stride)] = std::bit_cast<T>(bits);
}

// Puts the points of the coarser lattice into this one, or the field.
template <class T, class Memory>
__device__ void put_coarse(const TilePlace<T>& place, Memory& memory) {
    const auto& g = memory.geometry();
    sum_parents(memory, [&](const Point& p, std::uint32_t magnitude, std::uint32_t at) {
        const bool is_special = magnitude == special_magnitude;
        const T value = memory.value(at);
        put_decoded(place, g, 0, p, value, is_special ? special_magnitude : 0,
                    is_special ? place.lattice->quantiser.special : bits_of(value));
    });
}

// Up to the symbols of a phase: predictions, contexts of groups, and the table of each value's symbol.
template <class T, class Memory>
__device__ void predict_phase(const TileReading<T>& reading, Memory& memory, std::uint32_t phase, bool cubic,
                              const DecodingTables& tables) {
    const TilePlace<T>& place = reading.place;
    const auto& g = memory.geometry();
    using Geometry = std::remove_cvref_t<decltype(g)>;
    const T inv = place.lattice->quantiser.inv;
    const bool codes = reading.kind == kind_coded;
    const auto& table_of = tables.table_of[row_of(place.lattice->number, phase) / n_places];
    g.for_classes(phase, [&](auto c) {
        if (phase < place.lattice->n_active) predict_margin(place, memory, c, cubic);
        [[maybe_unused]] std::uint32_t sum = 0;
        g.for_points(c, [&](const Point& p, std::uint32_t k) {
            std::uint32_t spread;
            memory.value(position(g, c, p)) =
                predict<true>(memory, c, static_cast<int>(p.x[0]), static_cast<int>(p.x[1]), static_cast<int>(p.x[2]),
                              static_cast<int>(p.x[3]), cubic, inv, spread);
            if (!codes) return;
            const std::uint32_t active = activity(memory, c, p);
            memory.order(p.order) = table_of[spread << 4 | active];
            if constexpr (Geometry::known) {
                sum += spread + active;
                if (k % 2 == 0) return;
                const std::uint32_t all = warp_sum(sum);
                if (lane() == 0) memory.context(p.group) = static_cast<std::uint8_t>(group_context(all));
                sum = 0;
            } else {
                atomicAdd(&memory.sum(p.group), spread + active);
                note_group(memory, p);
            }
        });
    });
}

// Tables of symbols that a thread moves.
template <class Memory>
inline constexpr std::uint32_t tables_of_thread = 0;
template <class T, TileShape shape>
inline constexpr std::uint32_t tables_of_thread<FullMemory<T, shape>> =
    FullTile<shape>::points_of_phase(1) / tile_threads;

// Moves the tables of values in significant groups together, in two steps with a barrier between them: those of a full
// tile stay in the same memory.
template <class Memory>
__device__ void take_tables(Memory& memory, std::uint32_t phase, std::uint8_t (&mine)[16]) {
    for_values(memory, phase, false, [&](std::uint32_t o, std::uint32_t at, std::uint32_t k) {
        if constexpr (tables_of_thread<Memory> > 0)
            mine[k] = memory.order(o);
        else
            memory.symbol(at) = memory.order(o);
    });
}
template <class Memory>
__device__ void put_tables(Memory& memory, std::uint32_t phase, const std::uint8_t (&mine)[16]) {
    if constexpr (tables_of_thread<Memory> > 0)
        for_values(memory, phase, false,
                   [&](std::uint32_t, std::uint32_t at, std::uint32_t k) { memory.symbol(at) = mine[k]; });
}

// What a symbol stands for.
__device__ inline std::int32_t code_of(std::uint32_t symbol, std::uint32_t extra) {
    constexpr Alphabet alphabet{default_r};
    if (symbol == alphabet.missing()) return missing_code;
    const auto [leading, bits] = alphabet.meaning(symbol);
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(leading) << bits | extra);
}
__device__ inline std::uint32_t extra_bits_of(std::uint32_t symbol) {
    constexpr Alphabet alphabet{default_r};
    return symbol < 2 * alphabet.direct() ? 0 : alphabet.meaning(symbol).extra_bits;
}

// Codes of values in significant groups, from their symbols and extra bits, to where `code` is. All threads of the
// block call it.
template <class T, class Memory>
__device__ void read_codes(TileReading<T>& reading, Memory& memory, std::uint32_t phase, const std::uint16_t* units,
                           std::uint64_t n_units, std::uint32_t before) {
    const std::uint32_t n = reading.n_values, each = (n + tile_threads - 1) / tile_threads;
    std::uint32_t at = reading.extra_at + before;
    for (std::uint32_t v = tile_thread() * each; v < std::min(n, (tile_thread() + 1) * each); ++v) {
        const std::uint32_t symbol = memory.symbol(v), bits = extra_bits_of(symbol);
        std::uint32_t extra = 0;
        if (bits > 0) { // bits beyond the end are anything: the end of the tile tells
            const std::uint64_t first = reading.extra + at / 16;
            std::uint64_t here = 0;
            for (std::uint32_t i = 0; i < 3; ++i)
                here |= std::uint64_t{units[std::min(first + i, n_units - 1)]} << 16 * i;
            extra = static_cast<std::uint32_t>(here >> at % 16) & ((1u << bits) - 1);
        }
        at += bits;
        memory.code(phase, v) = static_cast<T>(code_of(symbol, extra));
    }
}
template <class T, class Memory>
__device__ std::uint32_t count_extra_bits(const TileReading<T>& reading, Memory& memory) {
    const std::uint32_t n = reading.n_values, each = (n + tile_threads - 1) / tile_threads;
    std::uint32_t bits = 0;
    for (std::uint32_t v = tile_thread() * each; v < std::min(n, (tile_thread() + 1) * each); ++v)
        bits += extra_bits_of(memory.symbol(v));
    return bits;
}

// Whether a value is in a significant group, and its number among those values.
template <class T, TileShape shape>
struct InGroups {
    std::uint32_t all;
    __device__ InGroups(FullMemory<T, shape>& memory, std::uint32_t phase) : all(significant_groups(memory, phase)) {}
    __device__ bool has(const Point& p) const { return (all >> p.group & 1) != 0; }
    __device__ std::uint32_t at(const Point& p) const {
        return static_cast<std::uint32_t>(__popc(all & ((1u << p.group) - 1))) * 64 + p.in_group;
    }
};
template <class T>
struct InAnyGroups {
    AnyMemory<T>& memory;
    __device__ InAnyGroups(AnyMemory<T>& of, std::uint32_t) : memory(of) {}
    __device__ bool has(const Point& p) const { return memory.significant(p.group) != 0; }
    __device__ std::uint32_t at(const Point& p) const { return memory.firsts[p.group] + p.in_group; }
};
template <class T, TileShape shape>
__device__ InGroups<T, shape> groups_of(FullMemory<T, shape>& memory, std::uint32_t phase) {
    return {memory, phase};
}
template <class T>
__device__ InAnyGroups<T> groups_of(AnyMemory<T>& memory, std::uint32_t phase) {
    return {memory, phase};
}

// Whether a value that is predicted from is not what is decoded (and stays so until all else is done).
template <class T>
__device__ bool has_to_be_patched(typename Traits<T>::Bits bits, const Quantiser<T>& q) {
    return bits != q.special && !(magnitude(std::bit_cast<T>(bits)) <= std::numeric_limits<T>::max());
}

// Values of a phase from codes and predictions. Returns whether some have to be patched. large: codes are where `code`
// is, not in the symbols.
template <class T, class Memory>
__device__ bool reconstruct_phase(const TileReading<T>& reading, Memory& memory, std::uint32_t phase, bool large,
                                  const std::uint16_t* units, std::uint32_t first_value) {
    constexpr std::uint32_t units_of_value = sizeof(T) / 2;
    const TilePlace<T>& place = reading.place;
    const auto& g = memory.geometry();
    const Quantiser<T> q = place.lattice->quantiser;
    constexpr std::int32_t zero = Alphabet(default_r).zero();
    bool patches = false;
    const auto in_groups = groups_of(memory, phase);
    g.for_classes(phase, [&](auto c) {
        const std::uint32_t base = place_of_class(g, c);
        g.for_points(c, [&](const Point& p, std::uint32_t) {
            const std::uint32_t at = position(g, c, p);
            const T predicted = memory.value(at);
            std::int32_t code = 0;
            T value;
            typename Traits<T>::Bits bits;
            if (reading.kind == kind_raw) {
                bits = value_at<T>(units, reading.rest + std::uint64_t{first_value + p.order} * units_of_value);
                const Coded<T> result = as_it_is(std::bit_cast<T>(bits), predicted, q);
                value = result.value;
                code = result.code;
                patches = patches || has_to_be_patched<T>(bits, q);
            } else {
                if (reading.kind == kind_special) {
                    code = missing_code;
                } else if (reading.kind == kind_coded && in_groups.has(p)) {
                    const std::uint32_t v = in_groups.at(p);
                    code = large ? static_cast<std::int32_t>(memory.code(phase, v))
                                 : static_cast<std::int32_t>(memory.symbol(v)) - zero;
                }
                value = reading.kind == kind_special ? predicted
                                                     : reconstruct(predicted, code == missing_code ? 0 : code, q);
                bits = code == missing_code ? q.special : bits_of(value);
            }
            const std::uint32_t own = code == missing_code           ? special_magnitude
                                      : reading.kind == kind_coded ? magnitude_of(code)
                                                                   : 0;
            memory.value(at) = value;
            memory.magnitude(base + place_in_class(g, c, p.x[0], p.x[1], p.x[2], p.x[3])) =
                static_cast<std::uint8_t>(own);
            put_decoded(place, g, c, p, value, own, bits);
        });
    });
    return patches;
}

// The verbatim values of a phase. Returns whether some have to be patched.
template <class T, class Memory>
__device__ bool put_verbatim(TileReading<T>& reading, Memory& memory, std::uint32_t phase,
                             const std::uint16_t* units) {
    constexpr std::uint32_t units_of_value = sizeof(T) / 2;
    const TilePlace<T>& place = reading.place;
    const auto& g = memory.geometry();
    const Quantiser<T> q = place.lattice->quantiser;
    bool patches = false;
    for (std::uint32_t j = tile_thread(); j < reading.n_verbatim; j += tile_threads) {
        Point p{};
        const std::uint32_t class_of_value = class_at(place, units[reading.verbatim + j], p);
        if (static_cast<std::uint32_t>(__popc(class_of_value)) != phase) continue;
        const auto bits = value_at<T>(units, reading.verbatim + reading.n_verbatim + std::uint64_t{j} * units_of_value);
        g.for_classes(phase, [&](auto c) {
            if (c != class_of_value) return;
            const std::uint32_t at = position(g, c, p),
                                of_class = place_of_class(g, c) + place_in_class(g, c, p.x[0], p.x[1], p.x[2], p.x[3]);
            if (memory.magnitude(of_class) != 0) {
                reading.error = static_cast<std::uint32_t>(SplineError::verbatim_code);
                return;
            }
            const Coded<T> result = as_it_is(std::bit_cast<T>(bits), memory.value(at), q);
            const std::uint32_t own = result.code == missing_code ? special_magnitude : 0;
            memory.value(at) = result.value;
            memory.magnitude(of_class) = static_cast<std::uint8_t>(own);
            put_decoded(place, g, c, p, result.value, own, bits);
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
