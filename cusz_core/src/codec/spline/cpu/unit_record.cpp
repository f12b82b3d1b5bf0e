#include "unit_record.hpp"

namespace cusz::cpu {

void UnitRecord::count(std::uint64_t weight, revision_2::Counts& counts) const {
    const auto& size = revision_2::tables().size;
    for (const Run& run : runs) {
        const std::uint8_t *const of = context.data() + run.first, *const what = symbol.data() + run.first;
        if (run.is_flags) {
            for (std::uint32_t x = 0; x < run.n; ++x) counts.groups[of[x]][what[x]] += weight;
            continue;
        }
        const std::uint32_t first = run.row * revision_2::n_places;
        for (std::uint32_t x = 0; x < run.n; ++x) {
            counts.n[first + of[x]] += weight;
            counts.size[first + of[x]] += weight * size[what[x]];
        }
    }
}

void UnitModel::set(const revision_2::Model& model) {
    using namespace revision_2;
    const auto& frequency = tables().frequency;
    std::array<std::uint8_t, n_tables> reach_of_table{};
    for (std::uint32_t t = 0; t < n_tables; ++t) {
        std::uint32_t r = 0;
        while (r + 1 < zero_symbol && frequency[t][zero_symbol + r + 1] > 0 && frequency[t][zero_symbol - r - 1] > 0)
            ++r;
        reach_of_table[t] = static_cast<std::uint8_t>(r);
    }
    for (std::uint32_t row = 0; row < n_rows; ++row)
        for (std::uint32_t place = 0; place < n_places; ++place) {
            table_of[row][place] = model.table[row * n_places + place];
            reach[row][place] = reach_of_table[table_of[row][place]];
        }
    flag_table = model.group;
}

} // namespace cusz::cpu
