// Runs the spline codec with the functions of one instruction set, for tests/reference/test_spline_engine.py:
// spline_tool WHAT f32|f64 ..., with input from standard input and results to standard output.
//
//   compress TYPE EB E RELATIVE FILL CURVE BOUNDS AXES0 AXES1 AXES2 THREADS EXTENT...   a field to its archive; E: the
//            bound in force; FILL: bits, or "none"
//   decompress TYPE THREADS [START COUNT]...   an archive to the field, or to a box of it
//   passes   like compress, but prints how many values were predicted, and how many more to choose a model
//   estimate   like compress, but prints how many bytes the units would take, estimated closely
//   choose   like compress, but prints the curve, the bounds and the axes that replace a CURVE above 3
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "archive/checksum.hpp"
#include "codec/spline/cpu/choice.hpp"
#include "codec/spline/cpu/field_coder.hpp"
#include "codec/spline/cpu/kernels_of_isa.hpp"

namespace {

using namespace cusz;
using namespace cusz::v2;

std::uint64_t weigh_words(const void* data, std::size_t words) { return weigh(data, words); }

struct Arguments {
    char** at;
    char** end;
    std::string text() { return at == end ? "" : *at++; }
    double number() { return std::stod(text()); }
    std::uint32_t integer() { return static_cast<std::uint32_t>(std::stoul(text())); }
};

template <class T>
int run(const std::string& what, Arguments arguments) {
    const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
    cpu::Kernels kernels{};
    kernels.weigh = weigh_words;
    kernels.spline_f32 = cpu::CUSZ_ISA::spline_kernels_of<float>();
    kernels.spline_f64 = cpu::CUSZ_ISA::spline_kernels_of<double>();
    cpu::FieldCoder<T> engine(kernels);
    constexpr cusz_dtype dtype = sizeof(T) == 4 ? CUSZ_F32 : CUSZ_F64;
    if (what == "decompress") {
        const int threads = static_cast<int>(arguments.integer());
        const std::span archive{reinterpret_cast<const std::byte*>(input.data()), input.size()};
        std::size_t front_bytes = 0;
        const Front front = read_front(archive, front_bytes);
        verify(archive, front, front_bytes);
        Selection box = whole(front.layout, nullptr);
        for (std::size_t d = 0; arguments.at != arguments.end; ++d) {
            box.start[d] = arguments.integer();
            box.count[d] = arguments.integer();
        }
        std::uint64_t n = 1;
        for (auto d = static_cast<std::size_t>(front.layout.ndim); d-- > 0; n *= box.count[d]) box.stride[d] = n;
        std::vector<T> field(static_cast<std::size_t>(n));
        box.field = field.data();
        engine.decompress(archive, archive.size(), front, front_bytes, threads, 0, box);
        std::fwrite(field.data(), sizeof(T), field.size(), stdout);
        return 0;
    }
    const double eb = arguments.number(), e = arguments.number();
    const bool is_relative = arguments.integer() != 0;
    const std::string fill = arguments.text();
    Interpolation how{arguments.integer(), arguments.integer(), {}};
    for (auto& mask : how.axes) mask = arguments.integer();
    const int threads = static_cast<int>(arguments.integer());
    std::uint64_t shape[CUSZ_MAX_NDIM] = {};
    std::int32_t ndim = 0;
    while (arguments.at != arguments.end) shape[ndim++] = arguments.integer();
    Front front{.kind = Kind::spline, .layout = Layout(dtype, ndim, shape), .is_relative = is_relative};
    front.eb = eb;
    front.e = e;
    front.has_fill = fill != "none";
    front.special = front.has_fill ? std::stoull(fill) : Traits<T>::canonical_nan;
    std::vector<T> field(static_cast<std::size_t>(front.layout.values));
    std::memcpy(field.data(), input.data(), std::min(input.size(), field.size() * sizeof(T)));
    std::vector<std::byte> archive(2 * field.size() * sizeof(T) + 10000); // codes may be longer than values
    if (how.curve > 3) {
        const BoxReader read = [&](std::vector<TileBox>&) { return field.data(); };
        Buffer memory;
        cpu::SampleBoxes boxes(front.layout);
        const auto [sample, costs] = boxes.pick(engine, front, boxes.read<T>(read, memory).data());
        how = cpu::Chooser<T>(engine, front, boxes, sample.data(), costs, std::nullopt, 1)
                  .choose(std::uint64_t{1} << 62)
                  .how;
    }
    if (what == "choose") {
        std::printf("%u %u %u %u %u\n", how.curve, how.bounds, how.axes[0], how.axes[1], how.axes[2]);
        return 0;
    }
    if (what == "estimate") {
        const std::uint64_t bits = engine.estimate(front, how, field.data(), 1, 0, threads, true).bits;
        std::printf("%llu\n", static_cast<unsigned long long>(bits / 8));
        return 0;
    }
    const auto n = engine.compress(front, how, field.data(), threads, archive.data(), archive.size());
    if (!n) return 1;
    const auto [values, again] = engine.passes();
    if (what == "passes")
        std::printf("%llu %llu\n", static_cast<unsigned long long>(values), static_cast<unsigned long long>(again));
    else
        std::fwrite(archive.data(), 1, *n, stdout);
    return 0;
}

} // namespace

int main(int argc, char** argv) try {
    Arguments arguments{argv + 1, argv + argc};
    const std::string what = arguments.text(), type = arguments.text();
    return type == "f32" ? run<float>(what, arguments) : run<double>(what, arguments);
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
