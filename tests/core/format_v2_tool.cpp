// Runs the library's parts of version 2, for tests/reference/test_format_v2_library.py: format_v2_tool WHAT, with input
// from standard input and results to standard output.
//
//   head     input: an archive. Reads its frame and head, and writes them again, with the checksum and unit 0
//   tables   prints the constants and what follows from them, as numbers
//   model    input: axes, rows, then n, size and both counts of missing values of every context, and both counts of
//            every context of groups. Prints the model chosen: preset, tables, j of groups, and the symbols of its map
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "archive/v2/frame.hpp"
#include "archive/v2/model.hpp"

namespace {

using namespace cusz;
using namespace cusz::v2;

void write_head_again() {
    const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
    const std::span archive{reinterpret_cast<const std::byte*>(input.data()), input.size()};
    std::size_t front_bytes = 0;
    const Front front = read_front(archive, front_bytes);
    std::vector<std::byte> out(v2::max_front_bytes + 4);
    out.resize(write_front(front, out.data()) + 4);
    if (front.kind == Kind::spline) {
        Head head;
        const std::size_t end = read_head(archive, archive.size(), front, front_bytes, head);
        const std::vector<std::byte> rest = write_head(front, front_bytes, head);
        out.insert(out.end(), rest.begin(), rest.end());
        verify_head(archive.first(end + head.units[0].bytes), front_bytes);
        const auto unit_0 = archive.subspan(end, head.units[0].bytes);
        out.insert(out.end(), unit_0.begin(), unit_0.end());
    } else {
        const std::uint64_t bits = read_constant(archive, front, front_bytes);
        verify_head(archive, front_bytes);
        for (std::size_t i = 0; i < front.layout.value_bytes(); ++i)
            out.push_back(static_cast<std::byte>(bits >> 8 * i));
    }
    seal(out, front_bytes);
    std::fwrite(out.data(), 1, out.size(), stdout);
}

template <class Numbers>
void print(const Numbers& numbers) {
    for (const auto number : numbers) std::cout << static_cast<std::uint64_t>(number) << ' ';
    std::cout << '\n';
}

void show_tables() {
    const Tables& t = tables();
    for (const auto& table : t.frequency) print(table);
    for (const auto& table : t.crossed) print(table);
    for (const auto& of_axes : t.table_of)
        for (const auto& preset : of_axes) print(preset);
    print(t.size);
    print(t.group_frequency);
}

void choose() {
    std::uint32_t axes = 0, rows = 0;
    std::cin >> axes >> rows;
    Counts counts;
    for (std::uint32_t c = 0; c < n_contexts; ++c)
        std::cin >> counts.n[c] >> counts.size[c] >> counts.missing[c][0] >> counts.missing[c][1];
    for (auto& flags : counts.groups) std::cin >> flags[0] >> flags[1];
    const Model model = choose_model(counts, axes, rows);
    std::cout << model.preset << '\n';
    print(model.table);
    print(model.group);
    if (!model.has_map) return;
    const std::vector<MapSymbol> map = map_of(model, axes, rows);
    for (const auto [table, symbol] : map) std::cout << int{table} << ' ' << int{symbol} << ' ';
    std::cout << '\n';
    std::size_t next = 0;
    const Model again = read_map(axes, model.preset, rows, [&](std::uint8_t) { return map[next++].symbol; });
    if (again.table != model.table || again.group != model.group) std::cout << "it is not read as written\n";
}

} // namespace

int main(int argc, char** argv) try {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "head") write_head_again();
    if (what == "tables") show_tables();
    if (what == "model") choose();
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
