#include "tile.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "archive/v2/tables.hpp"

namespace cusz::cpu {

namespace {

constexpr std::size_t rounded_up(std::size_t n, std::size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

} // namespace

TileForm::TileForm(std::uint32_t active_axes, const std::array<std::uint32_t, 4>& tile_edge, bool is_wide)
    : n_active(active_axes), edge(tile_edge), wide(is_wide),
      is_full_3d(active_axes == 3 && tile_edge == tile_edges(3)) {
    const std::array<std::uint32_t, 4> group = group_edges(n_active);
    std::size_t bytes = 1;
    for (std::size_t a = 0; a < 4; ++a) {
        const bool active = a < n_active;
        byte_step[a] = bytes;
        first_byte += active ? bytes : 0;
        bytes *= (active ? (edge[a] + 1) / 2 + 2 : edge[a]);
    }
    first_byte += byte_room;
    n_bytes = rounded_up(bytes + 3 * byte_room, byte_room);
    end_byte = first_byte + 1;
    for (std::size_t a = 0; a < 4; ++a) end_byte += byte_step[a] * ((a < n_active ? (edge[a] + 1) / 2 : edge[a]) - 1);

    for (std::uint32_t c = 0; c < 1u << n_active; ++c) {
        ClassRows& of = rows[c];
        std::size_t size = 1;
        for (std::size_t a = 0; a < 4; ++a) {
            const bool active = a < n_active, odd = (c >> a & 1) != 0;
            of.n[a] = active ? (edge[a] + (odd ? 0u : 1u)) / 2 : edge[a];
            of.before[a] = active && !odd ? (wide ? 2u : 1u) : 0;
            of.behind[a] = active && !odd ? (wide ? 3u : 2u) : 0;
            of.stride[a] = size;
            const std::size_t length = of.before[a] + of.n[a] + of.behind[a];
            size *= a == 0 ? rounded_up(length, lane_room) : length;
        }
        of.begin = n_values;
        of.first = n_values + lane_room; // positions before a row lie at the end of the previous row
        for (std::size_t a = 1; a < 4; ++a) of.first += of.before[a] * of.stride[a];
        of.end = n_values += size + 3 * lane_room;
    }

    for (std::uint32_t c = 1; c < 1u << n_active; ++c) {
        const ClassRows& of = rows[c];
        const auto phase = static_cast<std::size_t>(std::popcount(c) - 1);
        const bool flags = of.points() >= least_with_flags;
        if (of.points() == 0) continue;
        std::array<std::uint32_t, 4> first{};
        for (first[3] = 0; first[3] < of.n[3]; first[3] += group[3])
            for (first[2] = 0; first[2] < of.n[2]; first[2] += group[2])
                for (first[1] = 0; first[1] < of.n[1]; first[1] += group[1])
                    for (first[0] = 0; first[0] < of.n[0]; first[0] += group[0]) {
                        std::array<std::uint32_t, 4> end{};
                        for (std::size_t a = 0; a < 4; ++a) end[a] = std::min(first[a] + group[a], of.n[a]);
                        const auto first_run = static_cast<std::uint32_t>(runs[phase].size());
                        for (std::uint32_t w = first[3]; w < end[3]; ++w)
                            for (std::uint32_t z = first[2]; z < end[2]; ++z)
                                for (std::uint32_t y = first[1]; y < end[1]; ++y)
                                    runs[phase].push_back(
                                        {static_cast<std::uint32_t>(c * n_bytes + byte_at(y, z, w) + first[0]),
                                         static_cast<std::uint32_t>(of.at(y, z, w) + first[0]), end[0] - first[0]});
                        const auto n =
                            (static_cast<std::uint32_t>(runs[phase].size()) - first_run) * (end[0] - first[0]);
                        groups[phase].push_back({n_points[phase], n, first_run, flags});
                        n_points[phase] += n;
                        n_flags[phase] += flags;
                    }
    }
}

const std::shared_ptr<const TileForm>& TileForms::of(std::uint32_t n_active, const std::array<std::uint32_t, 4>& edge,
                                                     bool wide) {
    constexpr std::size_t most = 16; // a lattice has up to eight: with and without a last, shorter tile along each axis
    for (const auto& form : forms_)
        if (form->n_active == n_active && form->edge == edge && form->wide == wide) return form;
    auto made = std::make_shared<const TileForm>(n_active, edge, wide);
    if (forms_.size() < most) return forms_.emplace_back(std::move(made));
    next_ = (next_ + 1) % most;
    forms_[next_] = std::move(made);
    return forms_[next_];
}

std::size_t TileForms::bytes() const {
    std::size_t bytes = forms_.capacity() * sizeof(forms_[0]);
    for (const auto& form : forms_) {
        bytes += sizeof(TileForm);
        for (const auto& runs : form->runs) bytes += runs.capacity() * sizeof(TileForm::Run);
        for (const auto& groups : form->groups) bytes += groups.capacity() * sizeof(TileForm::Group);
    }
    return bytes;
}

template <class T>
void SplineTile<T>::begin(TileForms& forms, const Lattice& lattice, std::uint64_t number, bool wide, bool clear,
                          bool two_predictions) {
    constexpr std::size_t n_arrays = 8; // besides those of classes
    place = tile_of(lattice, number);
    const std::shared_ptr<const TileForm>& its_form = forms.of(lattice.n_active, place.edge, wide);
    form = its_form.get();
    const TileForm& of = *form;
    const LatticeTile next = tile_of(lattice, std::min(number + prefetched_ahead, lattice.n_tiles - 1));
    later = later_coarse = 0;
    for (std::size_t a = 0; a < 4; ++a) {
        const auto apart = static_cast<std::ptrdiff_t>(next.origin[a]) - static_cast<std::ptrdiff_t>(place.origin[a]);
        later += apart * static_cast<std::ptrdiff_t>(lattice.field_stride[a]);
        later_coarse += apart / (lattice.is_active(a) ? 2 : 1) * static_cast<std::ptrdiff_t>(lattice.coarse_stride[a]);
    }
    has_coarse_magnitudes = has_missing_around = has_missing = false;
    verbatim.clear();
    has_codes = {};
    for (auto& of_phase : others) of_phase.clear();
    const std::size_t n = of.n_bytes, of_classes = classes() * n;
    Memory& memory = memory_[std::min<std::size_t>(std::bit_width(place.points()), memory_.size() - 1)];
    const bool is_laid_out = memory.form == its_form && memory.two_predictions == two_predictions;
    if (!is_laid_out) memory.form.reset(); // until all is done, because reserving memory may throw
    const std::size_t n_values = (two_predictions ? 2 : 1) * of.n_values;
    const bool has_new_values = memory.values.bytes() < n_values * sizeof(T);
    value = memory.values.template reserve<T>(n_values);
    if (has_new_values) std::fill_n(value, n_values, T{0}); // whole vectors read beyond rows
    without = two_predictions ? value + of.n_values : nullptr;
    direct = memory.bytes.template reserve<std::uint8_t>(3 * of_classes + n_arrays * n);
    magnitude = direct + of_classes;
    context = magnitude + of_classes;
    coarse = context + of_classes;
    roughness = {coarse + n, coarse + 2 * n, coarse + 3 * n};
    around = coarse + 4 * n;
    coarse_missing = around + n;
    around_missing = coarse_missing + n;
    gone = around_missing + n;
    code = memory.codes.template reserve<std::int32_t>(of_classes);
    if (is_laid_out) {
        std::memset(coarse, 0, 4 * n); // coarse and roughness
    } else {
        std::memset(direct, 0, 3 * of_classes + n_arrays * n);
        memory.form = its_form;
        memory.two_predictions = two_predictions;
        clear = true;
    }
    if (!clear) return;
    std::memset(direct, v2::zero_symbol, of_classes);
    std::memset(magnitude, 0, of_classes);
}

template struct SplineTile<float>;
template struct SplineTile<double>;

} // namespace cusz::cpu
