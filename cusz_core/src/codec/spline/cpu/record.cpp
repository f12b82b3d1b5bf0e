#include "record.hpp"

#include "errors.hpp"
#include "kernels.hpp"

namespace cusz::cpu {

void corrupt_unit(const char* what) { fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", what); }

UnitRecord::Phase UnitRecord::begin_phase(std::uint32_t row, std::uint32_t n_flags, std::uint32_t n_points) {
    const Phase phase{used, next_run(used + n_flags)};
    const std::size_t room = std::size_t{phase.values} + n_points + byte_room + v2::max_lanes;
    if (context.size() < room) {
        const std::size_t larger = std::max(room, context.size() * 3 / 2);
        context.resize(larger);
        symbol.resize(larger);
    }
    runs.push_back({phase.flags, n_flags, row, true});
    runs.push_back({phase.values, 0, row, false});
    return phase;
}

void UnitRecord::count(std::uint64_t weight, v2::Counts& counts) const {
    const auto& size = v2::tables().size;
    for (const Run& run : runs) {
        const std::uint8_t *const of = context.data() + run.first, *const what = symbol.data() + run.first;
        if (run.is_flags) {
            for (std::uint32_t x = 0; x < run.n; ++x) counts.groups[of[x]][what[x]] += weight;
            continue;
        }
        // Numbers and sizes by place, in one word each: those of a run are less than 2^40.
        std::array<std::uint64_t, v2::n_places> sums{};
        const std::uint32_t first = run.row * v2::n_places;
        for (std::uint32_t x = 0; x < run.n; ++x) {
            if (of[x] >= v2::n_ordinary_places && what[x] >= v2::special)
                counts.missing[first + of[x]][what[x] - v2::special] += weight;
            else
                sums[of[x]] += (std::uint64_t{1} << 40) + size[what[x]];
        }
        for (std::uint32_t place = 0; place < v2::n_places; ++place) {
            counts.n[first + place] += weight * (sums[place] >> 40);
            counts.size[first + place] += weight * (sums[place] & ((std::uint64_t{1} << 40) - 1));
        }
    }
}

void UnitModel::set(const v2::Model& model) {
    using v2::n_places;
    using v2::zero_symbol;
    const auto& frequency = v2::tables().frequency;
    std::array<std::uint8_t, v2::n_tables> reach_of_table{};
    for (std::uint32_t t = 0; t < v2::n_tables; ++t) {
        std::uint32_t r = 0;
        while (r + 1 < zero_symbol && frequency[t][zero_symbol + r + 1] > 0 && frequency[t][zero_symbol - r - 1] > 0)
            ++r;
        reach_of_table[t] = static_cast<std::uint8_t>(r);
    }
    for (std::uint32_t row = 0; row < v2::n_rows; ++row)
        for (std::uint32_t place = 0; place < n_places; ++place) {
            table_of[row][place] = model.table[row * n_places + place];
            reach[row][place] = reach_of_table[table_of[row][place]];
        }
    flag_table = model.group;
}

} // namespace cusz::cpu
