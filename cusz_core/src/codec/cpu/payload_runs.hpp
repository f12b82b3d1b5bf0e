// Payloads that were not written in the order in which they belong into an archive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace cusz::cpu {

// So many units, one payload after the other. Those of runs with the same number follow each other, in the order in
// which they were written; the numbers ascend.
struct PayloadRun {
    std::uint64_t run = 0, units = 0;
};

inline std::uint64_t units_of(std::span<const PayloadRun> runs) {
    std::uint64_t n = 0;
    for (const PayloadRun& run : runs) n += run.units;
    return n;
}

// Moves the runs numbered below `pivot` before the others; neither's order changes. They lie one after the other.
// Returns how many these are. room: memory for so many units; more time is needed, by its logarithm, if it does not
// hold all of theirs.
inline std::size_t partition(std::uint16_t* units, std::span<PayloadRun> runs, std::uint64_t pivot, std::uint16_t* room,
                             std::size_t room_units) {
    const auto is_low = [&](const PayloadRun& run) { return run.run < pivot; };
    std::size_t first = 0, end = runs.size(); // low ones at the beginning stay, and others at the end
    for (; first < end && is_low(runs[first]); ++first) units += runs[first].units;
    while (first < end && !is_low(runs[end - 1])) --end;
    const auto rest = runs.subspan(first, end - first);
    if (rest.empty()) return first;
    std::uint64_t low_units = 0;
    for (const PayloadRun& run : rest) low_units += is_low(run) ? run.units : 0;
    if (low_units <= room_units) {
        std::uint64_t from = units_of(rest), to = from, in_room = low_units;
        for (std::size_t j = rest.size(); j-- > 0;) {
            const std::uint64_t n = rest[j].units;
            from -= n;
            std::uint16_t* const target = is_low(rest[j]) ? room + (in_room -= n) : units + (to -= n);
            std::memmove(target, units + from, n * sizeof *units);
        }
        std::memcpy(units, room, low_units * sizeof *units);
        return first + static_cast<std::size_t>(std::stable_partition(rest.begin(), rest.end(), is_low) - rest.begin());
    }
    const auto front = rest.first(rest.size() / 2), back = rest.subspan(front.size());
    std::uint16_t* const middle = units + units_of(front);
    const std::size_t low_front = partition(units, front, pivot, room, room_units),
                      low_back = partition(middle, back, pivot, room, room_units);
    std::rotate(units + units_of(front.first(low_front)), middle, middle + units_of(back.first(low_back)));
    std::rotate(front.begin() + static_cast<std::ptrdiff_t>(low_front), back.begin(),
                back.begin() + static_cast<std::ptrdiff_t>(low_back));
    return first + low_front + low_back;
}

// Puts payloads in order where they lie, with memory for so many units.
inline void put_in_order(std::uint16_t* units, std::span<PayloadRun> runs, std::uint16_t* room,
                         std::size_t room_units) {
    const auto by_run = [](const PayloadRun& a, const PayloadRun& b) { return a.run < b.run; };
    const std::uint64_t all = units_of(runs);
    if (all == 0 || std::is_sorted(runs.begin(), runs.end(), by_run)) return;
    // What is longest remains in one piece: it moves once.
    std::vector<PayloadRun> sorted(runs.begin(), runs.end());
    std::stable_sort(sorted.begin(), sorted.end(), by_run);
    std::uint64_t pivot = sorted.back().run, before = 0;
    for (const PayloadRun& run : sorted) {
        if (before > 0 && run.run > sorted.front().run && before + run.units > all / 2) {
            pivot = run.run;
            break;
        }
        before += run.units;
    }
    const std::size_t n_low = partition(units, runs, pivot, room, room_units);
    put_in_order(units, runs.first(n_low), room, room_units);
    put_in_order(units + units_of(runs.first(n_low)), runs.subspan(n_low), room, room_units);
}

} // namespace cusz::cpu
