// In which order the spline codec's tiles are worked on (codec/spline/cpu/schedule.hpp), and how their payloads come
// into that of the archive (codec/cpu/payload_runs.hpp).
#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "archive/checksum.hpp"
#include "codec/cpu/payload_runs.hpp"
#include "codec/spline/cpu/schedule.hpp"
#include "promises.hpp"

namespace {

using namespace cusz;
using namespace cusz::cpu;
using cusz_test::demand;

constexpr std::uint64_t last_row = 1u << 31; // or any other beyond all rows

// Of a lattice's positions along the axis of the strips, what is in its array.
struct Window {
    std::uint64_t begin = 0, end = 0;
};

// Every tile is worked on once, when what it looks at is in memory, and in the end their payloads can be put in order.
void order(const Schedule& schedule, int threads) {
    const Pyramid& pyramid = schedule.pyramid();
    std::vector<Window> known(pyramid.lattices.size());
    known.back().end = schedule.position(pyramid.n_coded(), last_row);
    std::vector<TileRange> worked_on;
    for (const Stage& stage : schedule.stages(false)) {
        const std::size_t i = stage.lattice;
        const Lattice& lattice = pyramid.lattices[i];
        const bool is_halved = schedule.position(i, last_row) != schedule.position(i + 1, last_row);
        const Window& coarser = known[i + 1];
        std::uint64_t n_tiles = 0;
        for (const TileRange& range : schedule.ranges(stage, threads)) {
            demand(range.begin <= range.end && range.end <= lattice.n_tiles, "ranges are in their lattice");
            worked_on.push_back({lattice.first_tile + range.begin, lattice.first_tile + range.end, range.run});
            n_tiles += range.end - range.begin;
            for (std::uint64_t t = range.begin; t < range.end; ++t) {
                const std::uint64_t row = schedule.row(i, t);
                demand(stage.first <= row && row < stage.end, "a stage has rows of tiles");
                std::uint64_t begin = schedule.position(i, row), end = schedule.position(i, row + 1);
                if (is_halved) { // a tile looks at a point before it, and at two after it
                    begin = begin < 4 ? 0 : begin / 2 - 1;
                    end = std::min((end + 1) / 2 + 2, schedule.position(i + 1, last_row));
                }
                demand(coarser.begin <= begin && end <= coarser.end, "what a tile looks at is known");
            }
        }
        demand(n_tiles > 0, "stages have tiles");
        demand(threads > 1 || n_tiles < lattice.n_tiles || schedule.ranges(stage, 1).size() == 1,
               "one thread has all tiles of a lattice in one go, so that as many as possible are coded side by side");
        if (i == 0) continue;
        demand(stage.first == 0 || known[i].end == schedule.position(i, stage.first), "rows follow one another");
        known[i].end = schedule.position(i, stage.end);
        demand(known[i].end == stage.known, "a stage says what is known after it");
        if (schedule.is_whole(i)) continue;
        demand(known[i].begin <= stage.needed && stage.needed <= schedule.position(i, stage.first),
               "strips move forwards, and what a stage writes is in them");
        known[i].begin = stage.needed;
        demand(stage.known - stage.needed <= schedule.width(i), "strips are wide enough");
    }
    std::stable_sort(worked_on.begin(), worked_on.end(),
                     [](const TileRange& a, const TileRange& b) { return a.run < b.run; });
    std::uint64_t next = 0;
    for (const TileRange& range : worked_on) {
        demand(range.begin == next, "runs of payloads are in the order of the archive");
        next = range.end;
    }
    demand(next == pyramid.n_tiles, "every tile is worked on");
}

// Lattice 2 is known around the tiles of lattice 0 that are counted: where lattice 1 is, in two points more
// (sample_tile).
void order_of_sample(const Schedule& schedule) {
    const Pyramid& pyramid = schedule.pyramid();
    if (pyramid.n_coded() < 2) return;
    Window known{0, schedule.position(pyramid.n_coded(), last_row)};
    std::uint64_t rows = 0;
    for (const Stage& stage : schedule.stages(true)) {
        demand(stage.lattice != 1, "of lattice 1, no more is worked out than what is around tiles of lattice 0");
        if (stage.lattice == 2) {
            known = {schedule.is_whole(2) ? 0 : stage.needed, stage.known};
            demand(schedule.is_whole(2) || known.end - known.begin <= schedule.width(2), "strips are wide enough");
        }
        if (stage.lattice > 0) continue;
        demand(stage.first == rows, "rows follow one another");
        rows = stage.end;
        std::uint64_t begin = schedule.position(0, stage.first), end = schedule.position(0, stage.end);
        for (std::size_t i : {0, 1}) {
            const std::uint64_t coarser = schedule.position(i + 1, last_row);
            if (schedule.position(i, last_row) == coarser) continue;
            begin = begin < 6 ? 0 : begin / 2 - (i == 0 ? 2 : 1);
            end = std::min((end + 1) / 2 + 2, coarser);
        }
        demand(known.begin <= begin && end <= known.end, "what a tile of the sample looks at is known");
    }
    demand(schedule.position(0, rows) == schedule.position(0, last_row), "every row can be counted");
}

void schedules() {
    const std::vector<std::vector<std::uint64_t>> shapes = {{5},
                                                            {4097},
                                                            {300'000},
                                                            {4'000'000},
                                                            {16'777'217},
                                                            {600, 501},
                                                            {3, 300'000},
                                                            {300'000, 3},
                                                            {1800, 3600},
                                                            {40, 7'000},
                                                            {90, 101, 110},
                                                            {256, 256, 256},
                                                            {7, 400, 900},
                                                            {900, 7, 400},
                                                            {400, 900, 7},
                                                            {2, 2, 2, 2'000'000},
                                                            {3, 5, 300, 301},
                                                            {40, 60, 50, 5},
                                                            {30, 31, 33, 34}};
    std::size_t n = 0, n_in_strips = 0;
    for (const auto& shape : shapes)
        for (std::uint32_t halved = 1; halved < 1u << shape.size(); ++halved) {
            const int ndim = static_cast<int>(shape.size());
            if (halvable_axes(ndim, shape.data(), halved) != halved) continue;
            const Pyramid pyramid(ndim, shape.data(), halved);
            for (const std::size_t bytes : {4, 8})
                for (const int threads : {1, 2, 7, 64}) {
                    const Schedule schedule(pyramid, bytes, threads);
                    order(schedule, threads);
                    order_of_sample(schedule);
                    ++n;
                    n_in_strips += schedule.is_whole(1) ? 0 : 1;
                    const std::uint64_t of_arrays = schedule.places().back() * (bytes + 1),
                                        of_top = pyramid.top().values() * (bytes + 1),
                                        of_field = pyramid.lattices[0].values() * bytes;
                    // Of small fields, tiles that are worked on side by side are a large part.
                    if (threads == 1)
                        demand(of_arrays <= of_field / 4 + of_top + 2'500'000, "arrays take a quarter of the field");
                }
        }
    demand(n_in_strips * 3 > n, "many have strips");
    std::printf("%zu schedules, %zu of them with strips\n", n, n_in_strips);
}

void payloads() {
    for (std::uint64_t seed = 0; seed < 3000; ++seed) {
        std::vector<PayloadRun> runs(mix(seed) % 40);
        std::vector<std::uint16_t> units, wanted;
        units.reserve(1);
        const std::uint64_t n_numbers = 1 + mix(seed + 1'000'000) % 9;
        std::vector<std::vector<std::uint16_t>> of_number(n_numbers);
        for (std::size_t j = 0; j < runs.size(); ++j) {
            const std::uint64_t h = mix(seed << 20 | j);
            runs[j] = {h % n_numbers * 5, h >> 32 & (h % 3 == 0 ? 255 : 7)};
            for (std::uint64_t k = 0; k < runs[j].units; ++k) {
                units.push_back(static_cast<std::uint16_t>(units.size()));
                of_number[runs[j].run / 5].push_back(units.back());
            }
        }
        for (const auto& of : of_number) wanted.insert(wanted.end(), of.begin(), of.end());
        const std::size_t room_units = std::array<std::size_t, 4>{0, 5, 200, units.size()}[seed % 4];
        std::vector<std::uint16_t> room(room_units + 1);
        put_in_order(units.data(), runs, room.data(), room_units);
        demand(units == wanted, "payloads are in the order of their runs");
    }
    std::vector<PayloadRun> empty(20'000); // of a field of zeros
    for (std::size_t j = 0; j < empty.size(); ++j) empty[j].run = empty.size() - j;
    std::uint16_t none = 0;
    put_in_order(&none, empty, &none, 0);
}

} // namespace

int main() {
    schedules();
    payloads();
    return 0;
}
