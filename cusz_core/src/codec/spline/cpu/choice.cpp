#include "choice.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "archive/v1.hpp"
#include "archive/v2.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/cpu/parallel.hpp"
#include "codec/lorenzo/cpu/estimate.hpp"
#include "codec/lorenzo/sample.hpp"
#include "engine.hpp"

namespace cusz::cpu {

namespace {

// All sizes are whole numbers, of bits or of 2^-8 bits, and follow from counts of codes: they do not depend on the
// processor or the number of threads.

// Boxes of a field in lattice 0 and coarser ones. By the field's axes.
struct Boxes {
    std::vector<Extents> edge; // by lattice; the last one is only predicted from
    Extents count{};           // boxes along each axis
    std::uint64_t number = 1;  // of boxes

    std::size_t n_coded() const { return edge.size() - 1; }
    Extents index(std::uint64_t box) const { // along each axis
        Extents index{};
        for (std::size_t a = 0; a < 4; ++a) {
            index[a] = box % count[a];
            box /= count[a];
        }
        return index;
    }
    std::uint64_t stride(std::size_t i, std::uint32_t a) const { // of the array of a box in lattice i
        std::uint64_t stride = 1;
        for (std::uint32_t b = 0; b < a; ++b) stride *= width(i, b);
        return stride;
    }
    // Positions in that array: the box, perhaps one like it before it, and two behind.
    std::uint64_t width(std::size_t i, std::size_t a) const { return 2 * edge[i][a] + 2; }
};

// Boxes in as many lattices as all their corners are points of.
Boxes boxes_of(const Pyramid& pyramid, const Extents& edge) {
    Boxes boxes{.edge = {edge}};
    const Lattice& field = pyramid.lattices[0];
    for (std::size_t j = 0; j < 4; ++j) {
        const std::uint32_t a = field.axis[j];
        boxes.count[a] = (field.extent[j] - 1) / edge[a] + 1;
        boxes.number *= boxes.count[a];
    }
    for (std::size_t i = 0; i < pyramid.n_coded(); ++i) {
        const Lattice& lattice = pyramid.lattices[i];
        Extents next = boxes.edge.back();
        for (std::uint32_t j = 0; j < lattice.n_active; ++j) {
            const std::uint32_t a = lattice.axis[j];
            if (next[a] % 2 != 0 && boxes.count[a] > 1) return boxes;
            next[a] = (next[a] + 1) / 2;
        }
        boxes.edge.push_back(next);
    }
    return boxes;
}

// What is counted of version 2's archive besides symbols and flags.
struct Counted {
    std::array<std::uint64_t, 3> values{}; // coded ones, by lattice: 0, 1, and the coarser ones
    std::uint64_t in_field = 0;            // points of lattice 0
    std::uint64_t bits = 0;                // of what is neither
    Extents roughness{};                   // magnitudes of what is predicted along each axis of the field alone
    std::uint64_t n_significant = 0;       // groups so far

    void operator+=(const Counted& other) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += other.values[i];
        in_field += other.in_field;
        bits += other.bits;
        for (std::size_t a = 0; a < roughness.size(); ++a) roughness[a] += other.roughness[a];
    }
};

// The points of a box in lattice i that are looked at: its own and, in the coarser lattices, those around it along the
// axes active in the finer one.
struct LookedAt {
    Extents begin, end;

    LookedAt(const Pyramid& pyramid, std::size_t i, const LatticeTile& box) : begin(box.origin), end{} {
        const Lattice& lattice = pyramid.lattices[i];
        for (std::size_t j = 0; j < 4; ++j) {
            const bool around = i > 0 && is_active(pyramid.lattices[i - 1], lattice.axis[j]);
            if (around && begin[j] > 0) --begin[j];
            end[j] = std::min(box.origin[j] + box.edge[j] + (around ? 2 : 0), lattice.extent[j]);
        }
    }

private:
    static bool is_active(const Lattice& lattice, std::uint32_t axis) { // of the field
        const auto* const last_active = lattice.axis.begin() + lattice.n_active;
        return std::find(lattice.axis.begin(), last_active, axis) != last_active;
    }
};

template <class T>
class Sampler {
public:
    // n: tiles that are looked at, where there are so many.
    Sampler(const Layout& layout, const Coding& coding, const BoxReader& read,
            const std::vector<SampleMemory<T>>& memory, std::uint64_t n)
        : layout_(layout), coding_(coding), read_(read), memory_(memory), tiling_(layout.ndim, layout.shape.data()),
          n_(std::min(tiling_.n_tiles(), n)), counted_(memory.size()) {}

    // Bytes of the archive of version 2.
    std::uint64_t spline_bytes(const Spline& spline) {
        const Pyramid pyramid(layout_.ndim, layout_.shape.data(), spline.halved);
        Coding coding = coding_;
        coding.spline = spline;
        const Boxes boxes = boxes_of(pyramid);
        const std::uint64_t n = std::min(n_, boxes.number);
        const auto index = [&](std::uint64_t j) { return boxes.index(sampled(j, n, boxes.number)); };
        if (spline.halved != halved_) {
            parts_.clear();
            for (std::uint64_t j = 0; j < n; ++j) list_parts(pyramid, boxes, index(j));
            read_parts(spline.halved);
        }
        const SplineCoder<T> coder = coder_of<T>(pyramid, coding, end_);
        counted_.assign(memory_.size(), {});
        for (const SampleMemory<T>& memory : memory_) memory.counts.clear();
        const Parts shared(n, threads());
        parallel(threads(), shared.number, [&](std::uint64_t part, int thread) {
            const auto [begin, end] = shared[part];
            for (std::uint64_t j = begin; j < end; ++j)
                count_box(coder, boxes, index(j), parts_.data() + j * boxes.edge.size(), thread);
        });
        Counted& counted = counted_[0];
        RansCounts& counts = memory_[0].counts;
        for (std::size_t i = 1; i < memory_.size(); ++i) {
            counted += counted_[i];
            counts.add(memory_[i].counts, 1, 1);
        }
        const RansModel model = choose_model(counts);
        const auto size = coded_size(model, counts);
        const std::uint64_t bits = (size[0] + size[1] + size[2]) / 256 + counted.bits;
        // Coarser lattices are not counted. From lattice to lattice, values become harder to predict.
        const auto rate = [&](std::size_t i) { return size[i] / std::max<std::uint64_t>(counted.values[i], 1); };
        const std::uint64_t most = 256 * 8 * sizeof(T), next = std::min(2 * std::max(rate(2), rate(1)) - rate(1), most);
        const std::uint64_t coarser = pyramid.lattices[boxes.n_coded()].values() * next / 256;
        return v2::header_bytes + model.bytes().size() + (scaled(bits, layout_.values, counted.in_field) + coarser) / 8;
    }

    // By the last spline_bytes.
    const Extents& roughness() const { return counted_[0].roughness; }

private:
    int threads() const { return static_cast<int>(memory_.size()); }
    const SampleMemory<T>& memory(int thread) const { return memory_[static_cast<std::size_t>(thread)]; }

    static const SplineKernels<T>& stages() {
        if constexpr (sizeof(T) == 4)
            return kernels().spline_f32;
        else
            return kernels().spline_f64;
    }

    // Version 1's tiles, where they can be halved.
    Boxes boxes_of(const Pyramid& pyramid) const {
        Extents edge{};
        const TileBox tile = tiling_.box(0);
        std::copy(tile.edge.begin(), tile.edge.end(), edge.begin());
        Boxes boxes = cpu::boxes_of(pyramid, edge);
        if (boxes.n_coded() > 1) return boxes;
        const Lattice& lattice = pyramid.lattices[0];
        for (std::size_t j = 0; j < 4; ++j) edge[lattice.axis[j]] = lattice.edge[j];
        return cpu::boxes_of(pyramid, edge);
    }

    // Makes parts_ readable. halved: the axes, if they are parts of lattices.
    void read_parts(std::uint32_t halved) {
        const HostValues values = read_(parts_);
        values_ = static_cast<const T*>(values.first);
        end_ = values_ + values.n;
        halved_ = halved;
    }

    // Adds what is looked at of a box, by lattice.
    void list_parts(const Pyramid& pyramid, const Boxes& boxes, const Extents& index) {
        for (std::size_t i = 0; i <= boxes.n_coded(); ++i) {
            const Lattice& lattice = pyramid.lattices[i];
            LatticeTile box{};
            for (std::size_t j = 0; j < 4; ++j) {
                const std::uint64_t edge = boxes.edge[i][lattice.axis[j]];
                box.origin[j] = index[lattice.axis[j]] * edge;
                box.edge[j] = static_cast<std::uint32_t>(std::min(edge, lattice.extent[j] - box.origin[j]));
            }
            const LookedAt points(pyramid, i, box);
            TileBox part{0, {}, lattice.field_stride};
            for (std::size_t j = 0; j < 4; ++j) {
                part.offset += points.begin[j] * part.stride[j];
                part.edge[j] = static_cast<std::uint32_t>(points.end[j] - points.begin[j]);
            }
            parts_.push_back(part);
        }
    }

    // Counts a box in all lattices. Predictions for it look at points around it: there, and in the coarsest of the
    // lattices, values that are quantised by themselves stand for reconstructed ones. parts: where its values are, by
    // lattice.
    void count_box(const SplineCoder<T>& coder, const Boxes& boxes, const Extents& index, const TileBox* parts,
                   int thread) {
        const auto& [spline_tile, counts, lattices] = memory(thread);
        Counted& counted = counted_[static_cast<std::size_t>(thread)];
        std::uint64_t room = 0;
        for (std::size_t i = 1; i <= boxes.n_coded(); ++i) room += boxes.stride(i, 3) * boxes.width(i, 3);
        auto* value = lattices.template reserve<T>(room + lane_room + (room + lane_room) / sizeof(T) + 1);
        auto* magnitude = reinterpret_cast<std::uint8_t*>(value + room + lane_room);
        std::vector<LatticeArrays<T>> arrays(boxes.n_coded() + 1);
        std::vector<const T*> field(boxes.n_coded() + 1); // by lattice

        // As if the field began at the box before: positions in it are those in the arrays.
        Pyramid local = coder.pyramid;
        for (std::size_t i = 0; i <= boxes.n_coded(); ++i) {
            Lattice& lattice = local.lattices[i];
            lattice.n_tiles = 1;
            for (std::size_t j = 0; j < 4; ++j) {
                const std::uint32_t a = lattice.axis[j];
                if (index[a] > 1) lattice.extent[j] -= (index[a] - 1) * boxes.edge[i][a];
                lattice.edge[j] = static_cast<std::uint32_t>(boxes.edge[i][a]);
                lattice.count[j] = 2;
                lattice.n_tiles += std::uint64_t{index[a] > 0} << j;
                lattice.stride[j] = boxes.stride(i, a);
                lattice.field_stride[j] = parts[i].stride[j];
                if (i < boxes.n_coded()) lattice.coarse_stride[j] = boxes.stride(i + 1, a);
            }
            const LookedAt points(local, i, tile_of(lattice, lattice.n_tiles - 1));
            // Values before the first one, from where positions are counted. In a copy, those along each axis are less
            // than a box with what is around it, and this less than twice max_tile_values.
            std::uint64_t before = 0;
            for (std::size_t j = 0; j < 4; ++j) before += points.begin[j] * lattice.field_stride[j];
            field[i] = values_ + (parts[i].offset - before);
            if (i == 0) continue;
            arrays[i] = {value, magnitude, 0};
            value += boxes.stride(i, 3) * boxes.width(i, 3);
            magnitude += boxes.stride(i, 3) * boxes.width(i, 3);
            put_quantised(lattice, points, coder.quantiser[i], field[i], arrays[i]);
        }
        const SplineCoder<T> boxed{local, coder.quantiser, coder.cubic, coder.end};
        for (std::size_t i = boxes.n_coded(); i-- > 0;) {
            const Lattice& lattice = local.lattices[i];
            stages().count(boxed, i, tile_of(lattice, lattice.n_tiles - 1), field[i], arrays[i + 1], arrays[i],
                           spline_tile, counts);
            count_rest(i, spline_tile, counts, counted);
        }
        note_roughness(local.lattices[0], spline_tile, counted);
    }

    // Fills the arrays of a lattice with these points. Not inlined, and on copies, which stores of bytes do not change:
    // so that all its loop needs is in registers.
    [[gnu::noinline]] static void put_quantised(const Lattice& lattice, const LookedAt points, const Quantiser<T> q,
                                                const T* field, const LatticeArrays<T> arrays) {
        const auto& [begin, end] = points;
        const std::uint64_t from_step = lattice.field_stride[0], to_step = lattice.stride[0];
        T last = 0;
        for (std::uint64_t w = begin[3]; w < end[3]; ++w)
            for (std::uint64_t z = begin[2]; z < end[2]; ++z)
                for (std::uint64_t y = begin[1]; y < end[1]; ++y) {
                    const T* from = field + begin[0] * lattice.field_stride[0] + y * lattice.field_stride[1] +
                                    z * lattice.field_stride[2] + w * lattice.field_stride[3];
                    std::uint64_t to = begin[0] * lattice.stride[0] + y * lattice.stride[1] + z * lattice.stride[2] +
                                       w * lattice.stride[3];
                    for (std::uint64_t x = begin[0]; x < end[0]; ++x) {
                        const T t = *from * q.inv, back = ((t + Traits<T>::rounder) - Traits<T>::rounder) * q.step;
                        const bool is_special = bits_of(*from) == q.special;
                        if (std::abs(t) <= Traits<T>::quantum_limit && !is_special) last = back;
                        arrays.value[to] = last;
                        arrays.magnitude[to] = is_special ? v2::special_magnitude : std::uint8_t{0};
                        from += from_step;
                        to += to_step;
                    }
                }
    }

    // What a tile of lattice i takes besides symbols and flags.
    static void count_rest(std::size_t i, const SplineTile<T>& tile, const RansCounts& counts, Counted& counted) {
        const std::uint64_t points = tile.place.points();
        counted.values[std::min<std::size_t>(i, 2)] += points - tile.box[0].points();
        if (i == 0) counted.in_field += points;
        std::uint64_t significant = 0;
        for (const auto& of_lattice : counts.group)
            for (const auto& of_context : of_lattice) significant += of_context[1];
        const std::uint64_t groups = significant - std::exchange(counted.n_significant, significant);
        // Entry of the index, header, and states, of whose 32 bits about 8 say something; of larger tiles than this
        // one in coarser lattices.
        const std::uint64_t lanes = groups <= 16 ? 1 : groups <= 32 ? 2 : 4, verbatim = tile.n_verbatim;
        const std::uint64_t bits = 16 + (groups + verbatim > 0 ? 16 + 24 * lanes : 0);
        counted.bits += bits * points / max_tile_values + verbatim * (16 + 8 * sizeof(T));
    }

    // Magnitudes of the values between two neighbours along one axis.
    static void note_roughness(const Lattice& lattice, const SplineTile<T>& tile, Counted& counted) {
        for (std::uint32_t j = 0; j < tile.n_active; ++j) {
            const ClassBox& box = tile.box[1u << j];
            for (std::uint32_t w = 0; w < box.n[3]; ++w)
                for (std::uint32_t z = 0; z < box.n[2]; ++z)
                    for (std::uint32_t y = 0; y < box.n[1]; ++y) {
                        const std::uint8_t* const row = tile.magnitude + box.at(0, y, z, w);
                        std::uint32_t sum = 0;
                        for (std::uint32_t x = 0; x < box.n[0]; ++x) sum += row[x] & 15u;
                        counted.roughness[lattice.axis[j]] += sum;
                    }
        }
    }

    const Layout& layout_;
    const Coding& coding_;
    const BoxReader& read_;
    const std::vector<SampleMemory<T>>& memory_; // by thread
    Tiling tiling_;
    std::uint64_t n_;
    std::vector<Counted> counted_; // by thread; at last, the first is the sum
    std::vector<TileBox> parts_;   // of the field, and where they are now
    const T *values_ = nullptr, *end_ = nullptr;
    std::uint32_t halved_ = 0; // in the lattices that the parts are of
};

template <class T>
Forecast forecast_of(const Layout& layout, const Coding& coding, const BoxReader& read,
                     const std::vector<SampleMemory<T>>& memory, std::vector<std::unique_ptr<Tile<T>>>& lorenzo) {
    const std::uint64_t n = std::clamp<std::uint64_t>(layout.values / (320 * max_tile_values), 12, 48);
    Sampler<T> sampler(layout, coding, read, memory, n);
    const bool is_open = coding.predictor == CUSZ_PREDICTOR_AUTO; // gives up where the spline codec does not pay
    Forecast best;
    best.lorenzo_bytes = estimated_lorenzo_bytes<T>(layout, coding, read, n, lorenzo);
    const auto halvable = [&](std::uint32_t wanted) { return halvable_axes(layout.ndim, layout.shape.data(), wanted); };
    // Smooth fields gain by a smaller bound for coarser lattices (up to a sixth); data along one axis (particles, time
    // series) lose by it, and most by curves.
    const bool is_line = extents_of(layout.ndim, layout.shape.data())[1] == 1,
               is_smooth = best.lorenzo_bytes < layout.values / 8;
    const auto with_bounds = [](Spline spline, bool smaller) {
        spline.alpha = smaller ? 1 : 0; // 1.25 or 1
        spline.beta = smaller ? 2 : 0;  // 3 or 1
        return spline;
    };
    best.spline.halved = halvable(15);
    best.spline.cubic = !is_line;
    best.spline = with_bounds(best.spline, is_smooth && !is_line);
    best.spline_bytes = sampler.spline_bytes(best.spline);
    // Where the fastest axis is not halved, rows of tiles are strided in memory, which takes two to three times as
    // long: as between the codecs, it has to save a twentieth.
    const auto halves_rows = [](const Spline& spline) { return (spline.halved & 1) != 0; };
    const auto attempt = [&](const Spline& spline) {
        const std::uint64_t bytes = sampler.spline_bytes(spline),
                            twentieth = halves_rows(best.spline) && !halves_rows(spline) ? bytes / 19 : 0;
        if (bytes + twentieth >= best.spline_bytes) return false;
        best.spline = spline;
        best.spline_bytes = bytes;
        return true;
    };
    // Layered fields: without the axis along which they are roughest, with a fourth one in its place or not.
    std::uint32_t left_out = 0;
    for (bool better = true; better;) {
        const Extents& roughness = sampler.roughness();
        const auto is_rougher = [&](std::uint32_t a, std::uint32_t b) { return roughness[a] / 9 > roughness[b] / 8; };
        const std::uint32_t halved = best.spline.halved;
        std::uint32_t roughest = static_cast<std::uint32_t>(std::countr_zero(halved)), smoothest = roughest;
        for (std::uint32_t a = 0; a < 4; ++a) {
            if ((halved >> a & 1) != 0 && roughness[a] > roughness[roughest]) roughest = a;
            if ((halved >> a & 1) != 0 && roughness[a] < roughness[smoothest]) smoothest = a;
        }
        if (!is_rougher(roughest, smoothest)) break;
        left_out |= 1u << roughest;
        Spline spline = best.spline;
        spline.halved = halvable(15 & ~left_out);
        better = attempt(spline);
        if (better || spline.halved == (halved & ~left_out)) continue;
        spline.halved = halved & ~left_out;
        better = attempt(spline);
    }
    if (is_open && best.spline_bytes / 21 > best.lorenzo_bytes / 20) return best;
    Spline other = best.spline;
    other.cubic = !other.cubic;
    attempt(other);
    if (!is_open || best.spline_pays()) attempt(with_bounds(best.spline, best.spline.alpha == 0));
    return best;
}

} // namespace

Forecast forecast(const Layout& layout, const Coding& coding, const BoxReader& read,
                  const std::vector<SampleMemory<float>>& memory, std::vector<std::unique_ptr<Tile<float>>>& lorenzo) {
    return forecast_of(layout, coding, read, memory, lorenzo);
}
Forecast forecast(const Layout& layout, const Coding& coding, const BoxReader& read,
                  const std::vector<SampleMemory<double>>& memory,
                  std::vector<std::unique_ptr<Tile<double>>>& lorenzo) {
    return forecast_of(layout, coding, read, memory, lorenzo);
}

} // namespace cusz::cpu
