#include "schedule.hpp"

#include <algorithm>

#include "codec/cpu/parallel.hpp"
#include "kernels.hpp"

namespace cusz::cpu {

namespace {

// Along axis j of a lattice: the end of the next coarser lattice's positions that are looked at by its positions before
// `end`, and the first one that those from `begin` on look at. That is one before them, but two for a sample
// (sample_tile.hpp).
std::uint64_t end_around(const Lattice& lattice, std::size_t j, std::uint64_t end) {
    return lattice.is_active(j) ? std::min((end + 1) / 2 + 2, lattice.coarse_extent(j)) : end;
}
std::uint64_t begin_around(const Lattice& lattice, std::size_t j, std::uint64_t begin) {
    if (!lattice.is_active(j)) return begin;
    return begin / 2 > 1 ? begin / 2 - 2 : 0;
}

// Tiles of a lattice for each step along axis j.
std::uint64_t tiles_before(const Lattice& lattice, std::size_t j) {
    std::uint64_t n = 1;
    for (std::size_t a = 0; a < j; ++a) n *= lattice.count[a];
    return n;
}

} // namespace

Schedule::Schedule(const Pyramid& of, std::size_t bytes_of_value, int threads)
    : pyramid_(of), bytes_of_point_(bytes_of_value + 1) {
    const std::uint64_t field_bytes = of.lattices[0].values() * bytes_of_value;
    choose_strips(std::max(field_bytes / largest_part_of_field, min_bytes_of_arrays), threads);
    width_.resize(of.lattices.size());
    for (std::size_t i = 0; i < width_.size(); ++i) width_[i] = of.lattices[i].extent[axis_in(i)];
    if (first_whole_ == 1) return;
    for (std::size_t i = 1; i < first_whole_; ++i) width_[i] = 0;
    for (const bool sampled : {false, true})
        for (const Stage& stage : stages(sampled))
            if (stage.lattice > 0 && !is_whole(stage.lattice))
                width_[stage.lattice] = std::max(width_[stage.lattice], stage.known - stage.needed);
    make_strides();
}

// Of the lattices from this one on, as places() has them.
std::uint64_t Schedule::bytes_of_whole(std::size_t first_whole) const {
    std::uint64_t values = pyramid_.top().values();
    for (std::size_t i = first_whole; i < std::min(first_whole + 2, pyramid_.n_coded()); ++i)
        values += pyramid_.lattices[i].values();
    return values * bytes_of_point_;
}

// Of lattices that are kept whole each needs only the next coarser one: every second one has the same memory. But the
// top's, which is filled once, is needed from the beginning for every pass.
std::vector<std::uint64_t> Schedule::places() const {
    std::vector<std::uint64_t> at(pyramid_.lattices.size() + 1);
    for (std::size_t i = 1; i < pyramid_.lattices.size(); ++i) {
        const bool shares = i >= first_whole_ + 2 && i < pyramid_.n_coded();
        at[i + 1] = at[i] + (shares ? 0 : values(i));
        if (shares) at[i] = at[i - 2];
    }
    return at;
}

// As few lattices are kept in strips, and these across the slowest axis, in the order of tiles, as is possible without
// taking more memory than given; or else what takes least. Strips are wide enough for every thread to have
// tiles_at_once tiles with consecutive numbers; if there are several threads and there is memory left, for up to four
// times as many, so that threads seldom wait for each other.
void Schedule::choose_strips(std::uint64_t max_bytes, int threads) {
    constexpr std::uint64_t rows_kept = 2; // about, of those before the ones that are worked on
    const std::uint64_t n_tiles = tiles_at_once * static_cast<unsigned>(threads),
                        n_better = threads == 1 ? n_tiles : 4 * n_tiles;
    std::uint64_t least = bytes_of_whole(1), bytes_in_strips = 0;
    for (std::size_t first_whole = 2; first_whole <= pyramid_.n_coded() && least > max_bytes; ++first_whole) {
        const Lattice& coarsest = pyramid_.lattices[first_whole - 1]; // of those in strips
        bytes_in_strips += coarsest.values() * bytes_of_point_;
        for (std::size_t j = 4; j-- > 0 && least > max_bytes;) {
            const std::uint64_t tiles_of_row = coarsest.n_tiles / coarsest.count[j],
                                bytes_of_row = bytes_in_strips / coarsest.count[j] + 1;
            const auto rows_of = [&](std::uint64_t tiles) {
                return std::max((tiles_at_once - 1) / tiles_before(coarsest, j), (tiles - 1) / tiles_of_row) + 1;
            };
            const std::uint64_t rows = rows_of(n_tiles),
                                bytes = bytes_of_whole(first_whole) +
                                        std::min(rows + rows_kept, coarsest.count[j]) * bytes_of_row;
            if (bytes >= least) continue;
            least = bytes;
            first_whole_ = first_whole;
            axis_ = coarsest.axis[j];
            const std::uint64_t left = max_bytes - std::min(max_bytes, bytes);
            rows_at_once_ = rows + std::min(left / bytes_of_row, rows_of(n_better) - rows);
        }
    }
}

void Schedule::make_strides() {
    for (std::size_t i = 1; i < first_whole_; ++i) {
        const Lattice& lattice = pyramid_.lattices[i];
        Extents extent{}; // by the field's axes
        for (std::size_t j = 0; j < 4; ++j) extent[lattice.axis[j]] = lattice.extent[j];
        extent[axis_] = width_[i];
        Extents stride{1};
        for (std::size_t a = 1; a < 4; ++a) stride[a] = stride[a - 1] * extent[a - 1];
        for (std::size_t j = 0; j < 4; ++j) {
            pyramid_.lattices[i].stride[j] = stride[lattice.axis[j]];
            pyramid_.lattices[i - 1].coarse_stride[j] = stride[pyramid_.lattices[i - 1].axis[j]];
        }
    }
}

std::size_t Schedule::axis_in(std::size_t i) const {
    const auto& axis = pyramid_.lattices[i].axis;
    return static_cast<std::size_t>(std::find(axis.begin(), axis.end(), axis_) - axis.begin());
}

std::uint64_t Schedule::position(std::size_t i, std::uint64_t row) const {
    const std::size_t j = axis_in(i);
    return std::min(row * pyramid_.lattices[i].edge[j], pyramid_.lattices[i].extent[j]);
}

std::uint64_t Schedule::values(std::size_t i) const {
    const std::size_t j = axis_in(i);
    return pyramid_.lattices[i].values() / pyramid_.lattices[i].extent[j] * width_[i];
}

Schedule::Strip Schedule::strip(std::size_t i) const {
    const std::uint64_t step = pyramid_.lattices[i].stride[axis_in(i)], apart = step * width_[i];
    return {step, values(i) / apart, apart};
}

std::uint64_t Schedule::row(std::size_t i, std::uint64_t tile) const {
    const std::size_t j = axis_in(i);
    return tile / tiles_before(pyramid_.lattices[i], j) % pyramid_.lattices[i].count[j];
}

std::vector<Stage> Schedule::stages(bool sampled) const {
    const std::size_t finest = sampled ? 2 : 1; // but lattice 0
    std::vector<Stage> all;
    for (std::size_t i = pyramid_.n_coded(); i-- > std::max(first_whole_, finest);)
        all.push_back({i, 0, rows(i), 0, position(i, rows(i))});
    std::vector<std::size_t> lattices; // those with strips, coarsest first, and lattice 0
    for (std::size_t i = first_whole_; i-- > finest;) lattices.push_back(i);
    lattices.push_back(0);
    const std::uint64_t all_rows = rows(lattices[0]);
    std::vector<std::uint64_t> done(lattices.size()), next(lattices.size());
    while (done[0] < all_rows) {
        next[0] = lattices.size() == 1 ? all_rows : std::min(done[0] + rows_at_once_, all_rows);
        for (std::size_t l = 0; l < lattices.size(); ++l) {
            const std::size_t i = lattices[l];
            Stage stage{i, done[l], next[l], 0, position(i, next[l])};
            if (l + 1 < lattices.size()) {
                const std::size_t finer = lattices[l + 1];
                stage.needed = position(finer, done[l + 1]);
                for (std::size_t f = finer; f < i; ++f)
                    stage.needed = begin_around(pyramid_.lattices[f], axis_in(f), stage.needed);
                const auto is_known = [&](std::uint64_t row) { // what a row of the finer lattice looks at
                    std::uint64_t end = position(finer, row + 1);
                    for (std::size_t f = finer; f < i; ++f) end = end_around(pyramid_.lattices[f], axis_in(f), end);
                    return end <= stage.known;
                };
                next[l + 1] = done[l + 1];
                while (next[l + 1] < rows(finer) && is_known(next[l + 1])) ++next[l + 1];
            }
            if (stage.first < stage.end) all.push_back(stage);
        }
        done = next;
    }
    return all;
}

std::vector<TileRange> Schedule::ranges(const Stage& stage, int threads) const {
    const Lattice& lattice = pyramid_.lattices[stage.lattice];
    const std::uint64_t of_row = tiles_before(lattice, axis_in(stage.lattice));
    const bool is_all = stage.first == 0 && stage.end == rows(stage.lattice); // whose numbers are consecutive
    const std::uint64_t of_run = is_all ? lattice.n_tiles : of_row * rows(stage.lattice),
                        n = is_all ? of_run : of_row * (stage.end - stage.first), n_runs = lattice.n_tiles / of_run;
    // Tiles that can be coded side by side stay together, unless there is then nothing for some thread.
    const std::uint64_t together =
        std::clamp<std::uint64_t>(n * n_runs / static_cast<unsigned>(threads), 1, tiles_at_once);
    const Parts parts((n + together - 1) / together, threads, n_runs);
    std::vector<TileRange> ranges;
    for (std::uint64_t run = 0; run < lattice.n_tiles; run += of_run)
        for (std::uint64_t part = 0; part < parts.number; ++part) {
            const auto [begin, end] = parts[part];
            const std::uint64_t first = run + of_row * stage.first;
            ranges.push_back({first + begin * together, first + std::min(end * together, n), lattice.first_tile + run});
        }
    return ranges;
}

} // namespace cusz::cpu
