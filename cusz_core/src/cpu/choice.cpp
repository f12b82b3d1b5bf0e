#include "choice.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "../codebook.hpp"
#include "../format/sample.hpp"
#include "../format/v1.hpp"
#include "../format/v2.hpp"
#include "kernels.hpp"
#include "spline_engine.hpp"

namespace cusz::cpu {

namespace {

// All sizes are whole numbers of bits, or of 2^-8 bits, made from counts: no processor, number of threads or compiler
// gives others.

// What is worked on whole, rather than by a sample.
constexpr std::uint64_t most_whole_values = 16384;

// Number j of n tiles that are spread over a field: one of each of n runs of the same length.
std::uint64_t sampled(std::uint64_t j, std::uint64_t n, std::uint64_t n_tiles) {
    const std::uint64_t begin = n_tiles * j / n, end = n_tiles * (j + 1) / n;
    return begin + ((j + 1) * 0x9E3779B97F4A7C15u >> 32) % (end - begin);
}

// size * whole / part, where the product may have more than 64 bits.
std::uint64_t scaled(std::uint64_t size, std::uint64_t whole, std::uint64_t part) {
    return size / part * whole + size % part * whole / part;
}

// The extents of a lattice by axis of the field.
Extents field_extents(const Lattice& lattice) {
    Extents extent{};
    for (std::size_t j = 0; j < 4; ++j) extent[lattice.axis[j]] = lattice.extent[j];
    return extent;
}

Tiling tiling_of(const Lattice& lattice) {
    const Extents extent = field_extents(lattice);
    const Extents shape{extent[3], extent[2], extent[1], extent[0]};
    return {CUSZ_MAX_NDIM, shape.data()};
}

// Boxes of a field in several of its lattices, from number `base` on: edges by the field's axes.
struct Levels {
    std::size_t base = 0, depth = 0;  // depth: how many are coded; one more is predicted from
    std::vector<Extents> edge;        // of lattices base, base + 1, ...
    Extents count{};                  // boxes along each axis
    std::uint64_t n_boxes = 1;
};

// Boxes of these edges in lattice `base`, in as many coarser lattices as their corners are points of.
Levels levels_of(const Pyramid& pyramid, std::size_t base, const Extents& edge) {
    Levels levels{.base = base, .edge = {edge}};
    const Extents extent = field_extents(pyramid.lattices[base]);
    for (std::size_t a = 0; a < 4; ++a) {
        levels.count[a] = (extent[a] - 1) / edge[a] + 1;
        levels.n_boxes *= levels.count[a];
    }
    for (std::size_t i = base; i < pyramid.n_coded(); ++i) {
        const Lattice& lattice = pyramid.lattices[i];
        Extents next = levels.edge.back();
        for (std::uint32_t j = 0; j < lattice.n_active; ++j) {
            std::uint64_t& e = next[lattice.axis[j]];
            if (e % 2 != 0 && levels.count[lattice.axis[j]] > 1) return levels;
            e = (e + 1) / 2;
        }
        levels.edge.push_back(next);
        ++levels.depth;
    }
    return levels;
}

template <class T>
class Sampler {
public:
    Sampler(const Layout& layout, const Coding& coding, const T* field, const SampleMemory<T>& memory)
        : layout_(layout), coding_(coding), field_(field), memory_(memory), tiling_(layout.ndim, layout.shape.data()) {}

    std::uint64_t n_tiles() const { return tiling_.n_tiles(); }

    // Bytes of the archive of version 1, by n of its tiles.
    std::uint64_t lorenzo_bytes(std::uint64_t n) {
        Quantiser<T> q = Quantiser<T>::from_bound(coding_.eb_abs);
        q.special = static_cast<typename Traits<T>::Bits>(coding_.special);
        return v1::body_offset(coding_.r) + lorenzo_bits(tiling_, q, coding_.r, field_, n) / 8;
    }

    // Bytes of the archive of version 2, by n boxes of the field.
    std::uint64_t spline_bytes(const Spline& spline, std::uint64_t n) {
        const Pyramid pyramid(layout_.ndim, layout_.shape.data(), spline.halved);
        Coding coding = coding_;
        coding.spline = spline;
        const SplineCoder<T> coder = coder_of<T>(pyramid, coding);
        std::uint64_t bits = 0;
        std::size_t base = 0, model_bytes = 0;
        const auto add_counted = [&](std::uint64_t values, std::uint64_t counted) {
            const RansModel model = choose_model(memory_.counts, 1);
            const std::uint64_t size = coded_size(model, memory_.counts) + overhead_;
            bits += scaled(size, values, counted) / 256;
            model_bytes = std::max(model_bytes, model.bytes().size());
        };
        for (; base < pyramid.n_coded(); n = std::max<std::uint64_t>(n / 4, 2)) {
            start_counting();
            if (pyramid.lattices[base].values() <= most_whole_values) {
                count_whole(coder, base);
                add_counted(1, 1);
                base = pyramid.n_coded();
                continue;
            }
            const Levels levels = boxes_of(pyramid, base);
            const std::uint64_t n_boxes = std::min(n, levels.n_boxes);
            std::uint64_t counted = 0;
            for (std::uint64_t j = 0; j < n_boxes; ++j)
                counted += count_box(coder, levels, sampled(j, n_boxes, levels.n_boxes));
            add_counted(pyramid.lattices[base].values(), counted);
            base += levels.depth;
        }
        return v2::header_bytes + model_bytes + bits / 8 + top_bits(coder) / 8;
    }

private:
    static const SplineKernels<T>& stages() {
        if constexpr (sizeof(T) == 4)
            return kernels().spline_f32;
        else
            return kernels().spline_f64;
    }

    // Bits of version 1's tiles, n of which are worked on.
    std::uint64_t lorenzo_bits(const Tiling& tiling, const Quantiser<T>& q, int r, const T* field, std::uint64_t n) {
        const TileCoder<T> coder{tiling, q};
        const Alphabet alphabet(r);
        Histogram histogram(r);
        std::uint64_t bits = 0, counted = 0;
        n = std::min(n, tiling.n_tiles());
        for (std::uint64_t j = 0; j < n; ++j) {
            const PreparedTile prepared = kernels().lorenzo.of<T>().prepare(
                coder, alphabet.reach(), sampled(j, n, tiling.n_tiles()), field, memory_.tile);
            histogram.add(prepared.code, prepared.n);
            // Entry of the index, header, lengths of substreams (about 6 bits for each 64 values).
            bits += 16 + 32 + 32 * std::uint64_t{prepared.front_words + prepared.back_words} + prepared.n / 64 * 6;
            counted += memory_.tile.n_values();
        }
        const std::vector<std::uint64_t> weights = histogram.weights(Sample(1, r));
        const std::vector<std::uint8_t> lengths = code_lengths(weights, alphabet);
        for (std::uint32_t s = 0; s < alphabet.size(); ++s)
            bits += weights[s] * (lengths[s] + alphabet.meaning(s).extra_bits);
        std::uint64_t values = 1;
        for (const std::uint64_t extent : tiling.extents()) values *= extent;
        return std::min(scaled(bits, values, counted), values * 8 * sizeof(T));
    }

    static Levels boxes_of(const Pyramid& pyramid, std::size_t base) {
        const Lattice& lattice = pyramid.lattices[base];
        Extents edge{};
        const TileBox tile = tiling_of(lattice).box(0);
        std::copy(tile.edge.begin(), tile.edge.end(), edge.begin());
        const Levels levels = levels_of(pyramid, base, edge);
        if (levels.depth > 1 || base + 1 == pyramid.n_coded()) return levels;
        for (std::size_t j = 0; j < 4; ++j) edge[lattice.axis[j]] = lattice.edge[j]; // they can always be halved
        return levels_of(pyramid, base, edge);
    }

    void start_counting() {
        memory_.counts = {};
        overhead_ = 0;
        significant_before_ = 0;
    }

    // A value to predict from in place of an original one, and its magnitude.
    static void put_original(T original, const Quantiser<T>& q, T& last, T& value, std::uint8_t& magnitude) {
        const bool is_special = bits_of(original) == q.special;
        if (!is_special && std::abs(original) <= std::numeric_limits<T>::max()) last = original;
        value = last;
        magnitude = is_special ? special_magnitude : std::uint8_t{0};
    }

    // Counts tile `number` of lattice i.
    std::uint64_t count_tile(const SplineCoder<T>& coder, std::size_t i, std::uint64_t number, const T* field,
                             const LatticeArrays<T>& coarse, const LatticeArrays<T>& fine) {
        SplineTile<T>& tile = memory_.spline_tile;
        stages().count(coder, i, number, field, coarse, fine, tile, &memory_.counts);
        std::uint64_t significant = 0;
        for (const auto& of_lattice : memory_.counts.group)
            for (const auto& of_context : of_lattice) significant += of_context[1];
        const std::uint64_t groups = significant - std::exchange(significant_before_, significant);
        // Entry of the index, header, states (of 32 bits, of which a quarter says something), verbatim values.
        const std::uint64_t lanes = groups <= 16 ? 1 : groups <= 32 ? 2 : 4, verbatim = tile.n_verbatim;
        std::uint64_t bits = 16;
        if (groups + verbatim > 0) bits += 16 + 24 * lanes;
        const std::uint64_t points = tile.place.points();
        overhead_ += bits * 256 * points / max_tile_values + verbatim * (16 + 8 * sizeof(T)) * 256;
        return points;
    }

    // Counts a box of the field in all levels. Predictions for it look at coarser points around it: there, and in the
    // coarsest of the levels, the field's own values are used. Returns the number of its points.
    std::uint64_t count_box(const SplineCoder<T>& coder, const Levels& levels, std::uint64_t box) {
        Extents index{}; // of the box; boxes before the one before it are left away
        const T* field = field_;
        Pyramid local = coder.pyramid;
        std::vector<LatticeArrays<T>> arrays(levels.depth + 1);
        std::vector<Extents> width(levels.depth + 1); // of arrays
        std::uint64_t room = 0;
        for (std::size_t i = 0; i <= levels.depth; ++i) {
            std::uint64_t values = 1;
            for (std::size_t a = 0; a < 4; ++a) values *= width[i][a] = 2 * levels.edge[i][a] + 2;
            if (i > 0) room += values;
        }
        auto* value = memory_.lattices.template reserve<T>(room + lane_room + (room + lane_room) / sizeof(T) + 1);
        auto* magnitude = reinterpret_cast<std::uint8_t*>(value + room + lane_room);
        const auto stride_of = [&](std::size_t level, std::uint32_t a) {
            std::uint64_t stride = 1;
            for (std::uint32_t b = 0; b < a; ++b) stride *= width[level][b];
            return stride;
        };
        for (std::size_t a = 0; a < 4; ++a) {
            index[a] = box % levels.count[a];
            box /= levels.count[a];
        }
        std::vector<std::uint64_t> number(levels.depth + 1);
        for (std::size_t level = 0; level <= levels.depth; ++level) {
            Lattice& lattice = local.lattices[levels.base + level];
            const T* from = field_;
            lattice.n_tiles = 1;
            for (std::size_t j = 0; j < 4; ++j) {
                const std::uint32_t a = lattice.axis[j];
                const std::uint64_t edge = levels.edge[level][a], left_away = index[a] > 0 ? (index[a] - 1) * edge : 0;
                from += left_away * lattice.field_stride[j];
                lattice.extent[j] -= left_away;
                lattice.edge[j] = static_cast<std::uint32_t>(edge);
                lattice.stride[j] = stride_of(level, a);
                if (level < levels.depth) lattice.coarse_stride[j] = stride_of(level + 1, a);
                lattice.count[j] = 2;
                number[level] += (index[a] > 0 ? 1u : 0u) << j;
            }
            lattice.n_tiles = number[level] + 1;
            field = from;
            if (level == 0) continue;
            arrays[level] = {value, magnitude};
            value += width[level][0] * width[level][1] * width[level][2] * width[level][3];
            magnitude += width[level][0] * width[level][1] * width[level][2] * width[level][3];
            put_originals(lattice, local.lattices[levels.base + level - 1], coder.quantiser[0], index, field,
                          arrays[level]);
        }
        const SplineCoder<T> boxed{local, coder.quantiser, coder.cubic};
        std::uint64_t points = 0;
        for (std::size_t level = levels.depth; level-- > 0;)
            points = count_tile(boxed, levels.base + level, number[level], field, arrays[level + 1], arrays[level]);
        return points;
    }

    // Fills the array of a lattice of a box, with what lies around it along the axes active in the finer one.
    static void put_originals(const Lattice& lattice, const Lattice& finer, const Quantiser<T>& q, const Extents& index,
                              const T* field, const LatticeArrays<T>& arrays) {
        Extents begin{}, end{};
        for (std::size_t j = 0; j < 4; ++j) {
            const std::uint32_t a = lattice.axis[j];
            bool around = false;
            for (std::uint32_t k = 0; k < finer.n_active; ++k) around = around || finer.axis[k] == a;
            const std::uint64_t origin = index[a] > 0 ? lattice.edge[j] : 0;
            begin[j] = around && origin > 0 ? origin - 1 : origin;
            end[j] = std::min(origin + lattice.edge[j] + (around ? 2 : 0), lattice.extent[j]);
        }
        T last = 0;
        for (std::uint64_t w = begin[3]; w < end[3]; ++w)
            for (std::uint64_t z = begin[2]; z < end[2]; ++z)
                for (std::uint64_t y = begin[1]; y < end[1]; ++y) {
                    const T* const from = field + y * lattice.field_stride[1] + z * lattice.field_stride[2] +
                                          w * lattice.field_stride[3];
                    const std::uint64_t to = y * lattice.stride[1] + z * lattice.stride[2] + w * lattice.stride[3];
                    for (std::uint64_t x = begin[0]; x < end[0]; ++x) {
                        const std::uint64_t at = to + x * lattice.stride[0];
                        put_original(from[x * lattice.field_stride[0]], q, last, arrays.value[at],
                                     arrays.magnitude[at]);
                    }
                }
    }

    // Counts all tiles of lattice `base` and of the coarser ones.
    void count_whole(const SplineCoder<T>& coder, std::size_t base) {
        const Pyramid& pyramid = coder.pyramid;
        std::uint64_t room = 0;
        for (std::size_t i = base + 1; i < pyramid.lattices.size(); ++i) room += pyramid.lattices[i].values();
        auto* value = memory_.lattices.template reserve<T>(room + lane_room + (room + lane_room) / sizeof(T) + 1);
        auto* magnitude = reinterpret_cast<std::uint8_t*>(value + room + lane_room);
        std::vector<LatticeArrays<T>> arrays(pyramid.lattices.size());
        for (std::size_t i = base + 1; i < pyramid.lattices.size(); ++i) {
            arrays[i] = {value, magnitude};
            value += pyramid.lattices[i].values();
            magnitude += pyramid.lattices[i].values();
        }
        T last = 0;
        for_top(pyramid, [&](std::uint64_t j, T original) {
            put_original(original, coder.quantiser[0], last, arrays.back().value[j], arrays.back().magnitude[j]);
        });
        for (std::size_t i = pyramid.n_coded(); i-- > base;)
            for (std::uint64_t t = 0; t < pyramid.lattices[i].n_tiles; ++t)
                count_tile(coder, i, t, field_, arrays[i + 1], i > base ? arrays[i] : LatticeArrays<T>{});
    }

    // Calls use(j, value) for the points of the top.
    template <class Use>
    void for_top(const Pyramid& pyramid, const Use& use) const {
        const Lattice& top = pyramid.top();
        for (std::uint64_t j = 0; j < top.values(); ++j) {
            std::uint64_t rest = j, at = 0;
            for (std::size_t a = 0; a < 4; ++a, rest /= top.extent[a - 1])
                at += rest % top.extent[a] * top.field_stride[a];
            use(j, field_[at]);
        }
    }

    // Bits of the top. A large one is not looked at: half of what it is raw.
    std::uint64_t top_bits(const SplineCoder<T>& coder) {
        const std::uint64_t values = coder.pyramid.top().values(), raw = values * 8 * sizeof(T);
        if (values > most_whole_values) return raw / 2;
        T* const copy = memory_.lattices.template reserve<T>(values);
        for_top(coder.pyramid, [&](std::uint64_t j, T original) { copy[j] = original; });
        const Extents shape = coder.pyramid.top_shape();
        const Tiling tiling(CUSZ_MAX_NDIM, shape.data());
        return std::min(raw + 8 * raw_header_bytes,
                        8 * v1::body_offset(default_r) +
                            lorenzo_bits(tiling, coder.quantiser.back(), default_r, copy, tiling.n_tiles()));
    }

    const Layout& layout_;
    const Coding& coding_;
    const T* field_;
    const SampleMemory<T>& memory_;
    Tiling tiling_;
    std::uint64_t overhead_ = 0, significant_before_ = 0; // of what is being counted
};

// Measured on the fields of scripts/bench: the best of these is within 0.6% of the best of all alphas and betas.
constexpr std::uint32_t same_bound_everywhere[] = {0, 0}, smaller_bounds_for_coarser[] = {1, 2};

// How a field is interpolated unless its sample says otherwise: smooth ones gain by a smaller bound for coarser
// lattices (up to a sixth), data along one axis (particles, time series) lose by it, and by curves.
Spline usual_spline(const Layout& layout) {
    const bool is_line = extents_of(layout.ndim, layout.shape.data())[1] == 1;
    Spline spline;
    spline.halved = halvable_axes(layout.ndim, layout.shape.data(), 15);
    spline.cubic = !is_line;
    const auto& bounds = is_line ? same_bound_everywhere : smaller_bounds_for_coarser;
    spline.alpha = bounds[0];
    spline.beta = bounds[1];
    return spline;
}

template <class T>
Forecast forecast_of(const Layout& layout, const Coding& coding, const T* field, const SampleMemory<T>& memory) {
    Sampler<T> sampler(layout, coding, field, memory);
    const bool is_settled = coding.predictor == CUSZ_PREDICTOR_SPLINE; // not to be compared with version 1
    const std::uint64_t n = std::clamp<std::uint64_t>(sampler.n_tiles() / 128, 32, 128), few = n / 4;
    Forecast best{.spline = usual_spline(layout)};
    if (!is_settled) best.lorenzo_bytes = sampler.lorenzo_bytes(few);
    best.spline_bytes = sampler.spline_bytes(best.spline, few);
    if (!is_settled && best.spline_bytes / 2 > best.lorenzo_bytes) return best;

    const auto attempt = [&](const Spline& spline) {
        const std::uint64_t bytes = sampler.spline_bytes(spline, few);
        if (bytes >= best.spline_bytes) return;
        best.spline = spline;
        best.spline_bytes = bytes;
    };
    // The axes that are halved: each of them left out, and while that helps, another one.
    const std::uint32_t all = halvable_axes(layout.ndim, layout.shape.data(), 15);
    for (std::uint32_t before = 0; before != best.spline.halved;) {
        before = best.spline.halved;
        for (std::uint32_t a = 0; a < 4; ++a) {
            Spline spline = best.spline;
            spline.halved = before & ~(1u << a);
            if (spline.halved != before && spline.halved != 0) attempt(spline);
        }
    }
    (void)all;
    Spline spline = best.spline;
    spline.cubic = !spline.cubic;
    attempt(spline);
    spline = best.spline;
    const auto& other = spline.alpha == 0 ? smaller_bounds_for_coarser : same_bound_everywhere;
    spline.alpha = other[0];
    spline.beta = other[1];
    attempt(spline);

    if (is_settled || best.spline_bytes / 21 > best.lorenzo_bytes / 20) return best;
    best.lorenzo_bytes = sampler.lorenzo_bytes(n);
    best.spline_bytes = sampler.spline_bytes(best.spline, n);
    return best;
}

} // namespace

Forecast forecast(const Layout& layout, const Coding& coding, const float* field, const SampleMemory<float>& memory) {
    return forecast_of(layout, coding, field, memory);
}
Forecast forecast(const Layout& layout, const Coding& coding, const double* field, const SampleMemory<double>& memory) {
    return forecast_of(layout, coding, field, memory);
}

} // namespace cusz::cpu
