// Encodes runs of symbols as a unit (codec/spline/cpu/rans.hpp), for tests/reference/test_format_v2_library.py, which
// compiles it for each instruction set. Input: numbers as text: lanes; then for each run 0 (symbols) or 1 (flags), n,
// and n pairs of a table and a symbol, or of a group's j and its flag. Output: states and words, as numbers, provided
// that they decode to the same runs, and that damaged or cut copies do not.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <vector>

#include "codec/spline/cpu/rans.hpp"

namespace {

using namespace cusz;
using namespace cusz::cpu;
using namespace cusz::cpu::CUSZ_ISA;

struct Run {
    bool is_flags = false;
    std::vector<std::uint8_t> table, symbol;
    std::uint32_t n = 0;
};

bool decodes_to(const std::vector<Run>& runs, const std::vector<std::uint16_t>& words, std::uint32_t lanes) {
    std::vector<std::uint16_t> padded = words;
    padded.resize(words.size() + max_lanes);
    UnitDecoder decoder(padded.data(), words.size(), lanes);
    for (const Run& run : runs) {
        std::vector<std::uint8_t> symbol(run.n + max_lanes);
        if (run.is_flags)
            decoder.flags(run.table.data(), run.n, symbol.data());
        else
            decoder.symbols({run.table.data(), run.n, symbol.data()});
        if (!decoder.good() || !std::equal(symbol.begin(), symbol.begin() + run.n, run.symbol.begin())) return false;
    }
    return decoder.is_finished() && decoder.words() == padded.data() + words.size();
}

} // namespace

int main() {
    std::uint32_t lanes = 1, is_flags = 0, n = 0;
    std::cin >> lanes;
    std::vector<Run> runs;
    std::vector<std::uint16_t> entry;
    std::vector<UnitRun> in_unit;
    while (std::cin >> is_flags >> n) {
        Run run{is_flags != 0, {}, {}, n};
        in_unit.push_back({static_cast<std::uint32_t>(entry.size()), n});
        for (std::uint32_t i = 0; i < n; ++i) {
            std::uint32_t table = 0, symbol = 0;
            std::cin >> table >> symbol;
            run.table.push_back(static_cast<std::uint8_t>(table));
            run.symbol.push_back(static_cast<std::uint8_t>(symbol));
            entry.push_back(static_cast<std::uint16_t>((table + is_flags * first_flag_table) * 256 + symbol));
        }
        run.table.resize(n + max_lanes);
        entry.resize((entry.size() + max_lanes - 1) / max_lanes * max_lanes);
        runs.push_back(run);
    }
    std::vector<std::uint16_t> room(entry.size() + 4 * max_lanes);
    const std::uint16_t* const begin =
        encode_unit(entry.data(), in_unit.data(), in_unit.size(), lanes, room.data() + room.size());
    const std::vector<std::uint16_t> words(begin, static_cast<const std::uint16_t*>(room.data() + room.size()));
    if (!decodes_to(runs, words, lanes)) return 1;
    for (std::size_t cut = 1; cut <= words.size() && cut < 100; ++cut)
        if (decodes_to(runs, {words.begin(), words.end() - static_cast<std::ptrdiff_t>(cut)}, lanes)) return 2;
    for (std::size_t i = 0; i < words.size(); i += 1 + words.size() / 50) {
        std::vector<std::uint16_t> damaged = words;
        damaged[i] ^= static_cast<std::uint16_t>(1u << i % 16);
        if (decodes_to(runs, damaged, lanes)) return 3;
    }
    for (const std::uint16_t word : words) std::cout << word << ' ';
    std::cout << '\n';
    return 0;
}
