#include "field_coder.hpp"

#include <algorithm>

namespace cusz::cpu {

// Counts what is recorded, and tiles of lattice 0 that are coded for it.
template <class T>
void FieldCoder<T>::count(const PyramidCoder<T>& coder, const std::vector<v2::Unit>& units, std::size_t n_recorded,
                          const Sample& sample, const T* field, int threads) {
    if (!counts_) counts_ = std::make_unique<v2::Counts>();
    v2::Counts& all = *counts_ = {};
    std::vector<v2::Counts> of_others(static_cast<std::size_t>(threads - 1));
    const auto of = [&](int thread) -> v2::Counts& {
        return thread == 0 ? all : of_others[static_cast<std::size_t>(thread - 1)];
    };
    parallel(threads, n_recorded, [&](std::uint64_t u, int thread) { records_[u].count(1, of(thread)); });
    if (n_recorded < units.size()) {
        const Lattice& lattice = coder.pyramid.lattices[0];
        std::vector<std::uint64_t> tiles;
        for (std::uint64_t t = 0; t < lattice.n_tiles; ++t)
            if (sample.counts(t)) tiles.push_back(t);
        std::atomic<std::uint64_t> again = 0;
        parallel(threads, tiles.size(), [&](std::uint64_t part, int thread) {
            UnitWorker<T>& own = worker(thread);
            own.record.clear();
            if (kernels_.code(coder, 0, tiles[part], field, arrays_[1], arrays_[0], own.memory(), own.record))
                own.record.count(sample.rate(), of(thread));
            again += own.tiles[0].place.points();
        });
        passes_.again = again;
    }
    for (const v2::Counts& other : of_others) all.add(other);
}

template <class T>
typename FieldCoder<T>::Estimate FieldCoder<T>::estimate(const v2::Front& front, const Interpolation& how,
                                                         const T* fields, std::uint64_t n, bool has_map) {
    make_workers(1);
    UnitWorker<T>& own = worker(0);
    UnitRecord& record = own.record;
    Pyramid pyramid(front.layout.ndim, front.layout.shape.data(), how.axes);
    const std::vector<std::size_t> sizes = lay_out(pyramid);
    const PyramidCoder<T> coder = coder_of(pyramid, front, how, fields + n * front.layout.values);
    const bool is_one_unit = front.layout.values <= v2::max_values_of_small_lattices;
    if (!counts_) counts_ = std::make_unique<v2::Counts>();
    *counts_ = {};
    Estimate estimate;
    const auto code = [&](std::size_t i, std::uint64_t t, const T* field) {
        const UnitRecord::Mark mark = record.mark();
        if (kernels_.code(coder, i, t, field, arrays_[i + 1], arrays_[i], own.memory(), record))
            record.live = 1;
        else if (i == 0 && !is_one_unit)
            record.go_back(mark);
    };
    for (std::uint64_t j = 0; j < n; ++j, fields += front.layout.values) {
        arrays_ = make_arrays(sizes, bits_of(fields[0]), coder.quantiser[0].special);
        record.clear();
        for (std::size_t i = pyramid.n_coded(); i-- > 0;)
            for (std::uint64_t t = 0; t < pyramid.lattices[i].n_tiles; ++t) code(i, t, fields);
        record.count(1, *counts_);
        estimate.bits += record.extra_bits + record.n_verbatim * 8 * sizeof(T);
    }
    if (has_map) {
        estimate.bits += v2::bits_with_map(*counts_);
    } else {
        const v2::Preset preset = v2::choose_preset(*counts_, pyramid.lattices[0].n_active);
        estimate.bits += preset.cost / 256;
        estimate.preset = preset.number;
    }
    return estimate;
}

template <class T>
CostsByAxis FieldCoder<T>::curve_costs(const v2::Front& front, const T* fields, std::uint64_t n) const {
    const Extents extent = extents_of(front.layout.ndim, front.layout.shape.data());
    const T inv = quantiser_of(static_cast<T>(front.e), 1).inv;
    CostsByAxis sum;
    for (std::uint64_t j = 0; j < n; ++j) {
        const CostsByAxis costs = kernels_.curve_costs(fields + j * front.layout.values, extent, inv);
        for (std::size_t a = 0; a < 4; ++a) sum[a].add(costs[a]);
    }
    return sum;
}

template <class T>
void FieldCoder<T>::verify(std::span<const std::byte> archive, const std::vector<v2::Unit>& units,
                           const std::vector<std::size_t>& first, const v2::Head& head, int threads) {
    std::vector<std::atomic<std::uint64_t>> sums(head.checksums.size());
    std::vector<std::size_t> lattice(units.size()), place(units.size());
    for (std::size_t u = 2; u < units.size(); ++u) {
        const bool same = units[u].lattice == units[u - 1].lattice;
        lattice[u] = lattice[u - 1] + (same ? 0 : 1);
        place[u] = same ? place[u - 1] + 1 : 0;
    }
    const Parts parts(units.size() - 1, threads);
    parallel(threads, units.size() > 1 ? parts.number : 0, [&](std::uint64_t part, int) {
        const auto [begin, end] = parts[part];
        for (std::size_t u = begin + 1; u < end + 1; ++u) {
            const std::size_t bytes = first[u + 1] - first[u];
            const std::byte* const units_of_length = archive.data() + first[u];
            std::uint64_t sum = weigh_(units_of_length, bytes / 4);
            if (bytes % 4 != 0) {
                std::uint16_t last;
                std::memcpy(&last, units_of_length + bytes - 2, 2);
                sum += std::uint64_t{last} * checksum_weight(static_cast<std::uint32_t>(bytes / 4));
            }
            sums[lattice[u]] += part_of_sum(place[u], sum, (bytes + 3) / 4);
        }
    });
    for (std::size_t i = 0; i < sums.size(); ++i)
        if (fold(sums[i]) != head.checksums[i])
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
}

// Units with tiles that meet a box of the field, or that those are predicted from. A unit's tiles are decoded one after
// the other, so all of them are.
template <class T>
std::vector<bool> FieldCoder<T>::wanted_units(const Pyramid& pyramid, const std::vector<v2::Unit>& units,
                                              const Layout& layout, const Selection& box, bool is_wide) const {
    std::vector<bool> wanted(units.size(), true);
    bool is_whole = true;
    for (std::size_t d = 0; d < static_cast<std::size_t>(layout.ndim); ++d)
        is_whole = is_whole && box.count[d] == layout.shape[d];
    if (is_whole) return wanted;
    const std::uint64_t before = is_wide ? 2 : 1, behind = before + 1;
    const Extents start = by_axis(layout, box.start, 0), count = by_axis(layout, box.count, 1);
    std::vector<bool> tiles; // of the lattice that are wanted
    std::vector<bool> next;
    const auto mark = [](const Lattice& lattice, const Extents& begin, const Extents& end, std::vector<bool>& of) {
        Extents first{}, last{}; // tiles, by the lattice's axes
        for (std::size_t j = 0; j < 4; ++j) {
            first[j] = begin[j] / lattice.edge[j];
            last[j] = (end[j] - 1) / lattice.edge[j];
        }
        for (std::uint64_t w = first[3]; w <= last[3]; ++w)
            for (std::uint64_t z = first[2]; z <= last[2]; ++z)
                for (std::uint64_t y = first[1]; y <= last[1]; ++y)
                    for (std::uint64_t x = first[0]; x <= last[0]; ++x)
                        of[((w * lattice.count[2] + z) * lattice.count[1] + y) * lattice.count[0] + x] = true;
    };
    Extents begin{}, end{};
    for (std::size_t j = 0; j < 4; ++j) {
        const std::uint32_t a = pyramid.lattices[0].axis[j];
        begin[j] = start[a];
        end[j] = start[a] + count[a];
    }
    tiles.assign(pyramid.lattices[0].n_tiles, false);
    mark(pyramid.lattices[0], begin, end, tiles);
    for (std::size_t u = units.size(); u-- > 1;) { // the finest come first
        const std::size_t i = units[u].lattice;
        const Lattice &lattice = pyramid.lattices[i], &coarser = pyramid.lattices[i + 1];
        if (u + 1 < units.size() && units[u + 1].lattice != i) tiles.swap(next);
        if (u + 1 == units.size() || units[u + 1].lattice != i)
            next.assign(std::max<std::size_t>(coarser.n_tiles, 1), false);
        const std::uint64_t first = units[u].first_tile - lattice.first_tile;
        bool some = false;
        for (std::uint32_t j = 0; j < units[u].n_tiles; ++j) some = some || tiles[first + j];
        wanted[u] = some;
        if (!some || coarser.n_active == 0) continue;
        for (std::uint32_t j = 0; j < units[u].n_tiles; ++j) {
            const LatticeTile tile = tile_of(lattice, first + j);
            Extents from{}, to{}; // by the field's axes
            for (std::size_t a = 0; a < 4; ++a) {
                const std::uint64_t origin = tile.origin[a], behind_tile = origin + tile.edge[a];
                const bool active = lattice.is_active(a);
                from[lattice.axis[a]] = active ? origin / 2 - std::min(origin / 2, before) : origin;
                to[lattice.axis[a]] =
                    active ? std::min((behind_tile + 1) / 2 + behind, lattice.coarse_extent(a)) : behind_tile;
            }
            Extents begin_there{}, end_there{};
            for (std::size_t a = 0; a < 4; ++a) {
                begin_there[a] = from[coarser.axis[a]];
                end_there[a] = to[coarser.axis[a]];
            }
            mark(coarser, begin_there, end_there, next);
        }
    }
    return wanted;
}

template class FieldCoder<float>;
template class FieldCoder<double>;

} // namespace cusz::cpu
