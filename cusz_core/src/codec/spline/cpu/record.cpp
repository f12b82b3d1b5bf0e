#include "record.hpp"

#include <bit>

#include "codec/spline/unit_tables.hpp"
#include "errors.hpp"
#include "kernels.hpp"

namespace cusz::cpu {

void corrupt_unit(const char* what) { fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", what); }

UnitRecord::Phase UnitRecord::begin_phase(std::uint32_t row, std::uint32_t n_flags, std::uint32_t n_points) {
    const Phase phase{used, next_run(used + n_flags)};
    const std::size_t room = std::size_t{phase.values} + n_points + byte_room + v2::max_lanes;
    if (std::min(context.size(), symbol.size()) < room) { // they differ if memory ran out between the two
        const std::size_t larger = std::max(room, context.size() * 3 / 2);
        context.resize(larger);
        symbol.resize(larger);
    }
    runs.push_back({phase.flags, n_flags, row, true});
    runs.push_back({phase.values, 0, row, false});
    return phase;
}

void UnitRecord::count(std::uint64_t weight, v2::Counts& counts) const {
    constexpr std::uint32_t few = 64; // values: such short runs are added faster one by one
    static_assert(std::has_single_bit(v2::n_ordinary_places));
    const auto& size = v2::tables().size;
    for (const Run& run : runs) {
        const std::uint8_t *const of = context.data() + run.first, *const what = symbol.data() + run.first;
        if (run.is_flags) {
            for (std::uint32_t x = 0; x < run.n; ++x) counts.groups[of[x]][what[x]] += weight;
            continue;
        }
        const std::uint32_t first = run.row * v2::n_places;
        std::uint8_t places = 0;
        for (std::uint32_t x = 0; x < run.n; ++x) places |= of[x];
        if (run.n <= few) {
            for (std::uint32_t x = 0; x < run.n; ++x) {
                const std::uint32_t c = first + of[x];
                if (of[x] >= v2::n_ordinary_places && what[x] >= v2::special) {
                    counts.missing[c][what[x] - v2::special] += weight;
                } else {
                    counts.n[c] += weight;
                    counts.size[c] += weight * size[what[x]];
                }
            }
            continue;
        }
        // Numbers and sizes by place, in one word each: the sizes of a run add up to less than 2^40. Missing values at
        // places that are not ordinary come behind. Neighbours often have the same place, so they are added to
        // different words.
        constexpr std::uint32_t n_sums = 4, n_others = v2::n_places - v2::n_ordinary_places;
        std::array<std::uint64_t, v2::n_places + 2 * n_others> sums[n_sums]{};
        const auto add_all = [&](auto all_ordinary) {
            const auto add = [&](std::uint32_t x, std::uint32_t to) {
                std::uint32_t at = of[x];
                if (!all_ordinary && at >= v2::n_ordinary_places && what[x] >= v2::special)
                    at = v2::n_places + 2 * (at - v2::n_ordinary_places) + what[x] - v2::special;
                sums[to][at] += (std::uint64_t{1} << 40) + size[what[x]];
            };
            std::uint32_t x = 0;
            for (; x + n_sums <= run.n; x += n_sums)
                for (std::uint32_t to = 0; to < n_sums; ++to) add(x + to, to);
            for (; x < run.n; ++x) add(x, 0);
        };
        places < v2::n_ordinary_places ? add_all(std::true_type{}) : add_all(std::false_type{});
        const auto sum_at = [&](std::uint32_t at) { return sums[0][at] + sums[1][at] + sums[2][at] + sums[3][at]; };
        for (std::uint32_t place = 0; place < v2::n_places; ++place) {
            const std::uint64_t sum = sum_at(place);
            counts.n[first + place] += weight * (sum >> 40);
            counts.size[first + place] += weight * (sum & ((std::uint64_t{1} << 40) - 1));
        }
        for (std::uint32_t j = 0; j < 2 * n_others; ++j)
            counts.missing[first + v2::n_ordinary_places + j / 2][j % 2] += weight * (sum_at(v2::n_places + j) >> 40);
    }
}

std::uint64_t UnitRecord::cost(const v2::Model& model) const {
    std::uint64_t sum = 0;
    for (const Run& run : runs) {
        if (run.is_flags) continue;
        const std::uint8_t *const of = context.data() + run.first, *const what = symbol.data() + run.first;
        const std::uint8_t* const table = model.table.data() + run.row * v2::n_places;
        for (std::uint32_t x = 0; x < run.n; ++x) sum += v2::tables().cost[table[of[x]]][what[x]];
    }
    return sum;
}

void UnitModel::set(const v2::Model& model) {
    using v2::n_places;
    const auto& reach_of = unit_tables().reach;
    for (std::uint32_t row = 0; row < v2::n_rows; ++row)
        for (std::uint32_t place = 0; place < n_places; ++place) {
            const std::uint8_t table = model.table[row * n_places + place];
            table_of[row][place] = table;
            reach[row][place] = reach_of[table];
        }
    flag_table = model.group;
}

} // namespace cusz::cpu
