#include "unit_tables.hpp"

namespace cusz {

UnitTables::UnitTables() {
    using namespace v2;
    const Tables& of = tables();
    std::uint32_t* to = slot.data();
    for (std::uint32_t t = 0; t < n_tables; ++t) {
        const auto& frequencies = of.frequency[t];
        std::uint32_t far = 1;
        while (far < zero_symbol && frequencies[zero_symbol + far] > 0 && frequencies[zero_symbol - far] > 0) ++far;
        reach[t] = static_cast<std::uint8_t>(far - 1);
        for (std::uint32_t s = 0; s < n_symbols; ++s) {
            const std::uint32_t frequency = frequencies[s];
            interval[t * 256 + s] = frequency << 16 | of.start[t][s];
            for (std::uint32_t i = 0; i < frequency; ++i) *to++ = s | (frequency - 1) << 8 | i << 20;
        }
    }
    for (std::uint32_t j = 0; j < n_flag_tables; ++j) {
        const std::uint32_t g = of.group_frequency[j], first = (first_flag_table + j) * 256;
        interval[first] = (rans_total - g) << 16;
        interval[first + 1] = g << 16 | (rans_total - g);
    }
    interval[idle_unit_entry] = rans_total << 16;
}

const UnitTables& unit_tables() {
    static const std::unique_ptr<const UnitTables> made = std::make_unique<UnitTables>();
    return *made;
}

} // namespace cusz
