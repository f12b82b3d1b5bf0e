// Blocks that only a C++ program can put: blocks CASE FOLDER ENGINE [PREDICTOR]
//
//     ghosts    memory selections (a field with ghost cells), 1-D to 3-D, float and double, several steps and bounds
//               (not in BP4, which ignores memory selections of variables with any operator)
//     random    blocks of random values and many sizes, half of which cannot be compressed, Sync and Deferred
//     column    a column-major application (as in Fortran), with and without the parameter `order`
//     fortran   memory selections of a column-major application, with and without the operator: prints for each
//               whether the right cells were written
//     null      a memory selection in SST, where ADIOS2 passes a null pointer to the operator; written, not read
//
// All cases but `null` are read back and compared; the exit status is 1 if a value breaks its bound (not in `fortran`).
#include <adios2.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Dims = adios2::Dims;

std::string predictor = "lorenzo";

adios2::Params plugin(const std::string& accuracy, const adios2::Params& more = {}) {
    adios2::Params parameters = {
        {"PluginName", "cusz"}, {"PluginLibrary", "cusz_operator"}, {"accuracy", accuracy}, {"predictor", predictor}};
    parameters.insert(more.begin(), more.end());
    return parameters;
}

std::size_t product(const Dims& dims) {
    std::size_t n = 1;
    for (const std::size_t extent : dims) n *= extent;
    return n;
}

// Index of value i of a box that begins at `start`, in an array of extents `memory`.
std::size_t place_of(std::size_t i, const Dims& box, const Dims& start, const Dims& memory) {
    std::size_t place = 0, stride = 1;
    for (std::size_t d = box.size(); d-- > 0;) {
        place += (i % box[d] + start[d]) * stride;
        i /= box[d];
        stride *= memory[d];
    }
    return place;
}

template <class T>
std::string type_name() {
    return sizeof(T) == 4 ? "f32" : "f64";
}

// The differences of values below 2^10 that are near a bound above 2^-20 are exact in long double.
template <class T>
void compare(const std::vector<T>& expected, const std::vector<T>& got, double bound, const std::string& what) {
    if (expected.size() != got.size()) throw std::runtime_error(what + ": size");
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const bool same = std::memcmp(&expected[i], &got[i], sizeof(T)) == 0;
        const long double difference = std::fabs(static_cast<long double>(expected[i]) - got[i]);
        if (!same && !(difference <= bound)) {
            throw std::runtime_error(what + ": value " + std::to_string(i) + " was " + std::to_string(expected[i]) +
                                     " and is " + std::to_string(got[i]) + ", bound " + std::to_string(bound));
        }
    }
}

// ------------------------------------------------------------------------------------------------------- ghosts

template <class T>
T ghost_value(std::size_t step, std::size_t i) {
    return static_cast<T>(step) + static_cast<T>(std::sin(0.01 * static_cast<double>(i)) * 100);
}

// Writes the interior of a field whose ghost cells hold garbage; then reads all of it, and a part.
template <class T>
void ghosts(const std::string& path, const std::string& engine_type, const Dims& interior, double bound) {
    constexpr std::size_t n_steps = 3;
    const Dims zeros(interior.size(), 0);
    Dims ghost, memory;
    for (std::size_t d = 0; d < interior.size(); ++d) {
        ghost.push_back(d + 1);
        memory.push_back(interior[d] + 2 * (d + 1));
    }
    // Index of every interior cell in memory, in the interior's order.
    std::vector<std::size_t> cells;
    for (std::size_t i = 0; i < product(interior); ++i) cells.push_back(place_of(i, interior, ghost, memory));

    adios2::ADIOS adios;
    adios2::IO out = adios.DeclareIO("out");
    out.SetEngine(engine_type);
    auto u = out.DefineVariable<T>("u", interior, zeros, interior);
    u.AddOperation("plugin", plugin(std::to_string(bound)));
    u.SetMemorySelection({ghost, memory});
    adios2::Engine writer = out.Open(path, adios2::Mode::Write);
    for (std::size_t step = 0; step < n_steps; ++step) {
        std::vector<T> field(product(memory), T(-1e30));
        for (std::size_t i = 0; i < cells.size(); ++i) field[cells[i]] = ghost_value<T>(step, i);
        writer.BeginStep();
        writer.Put(u, field.data(), step == 1 ? adios2::Mode::Sync : adios2::Mode::Deferred);
        writer.EndStep();
    }
    writer.Close();

    adios2::IO in = adios.DeclareIO("in");
    adios2::Engine reader = in.Open(path, adios2::Mode::Read);
    for (std::size_t step = 0; reader.BeginStep() == adios2::StepStatus::OK; ++step) {
        auto v = in.InquireVariable<T>("u");
        std::vector<T> expected, got(cells.size());
        for (std::size_t i = 0; i < cells.size(); ++i) expected.push_back(ghost_value<T>(step, i));
        reader.Get(v, got, adios2::Mode::Sync);
        compare(expected, got, bound, path);

        Dims start, count;
        for (const std::size_t extent : interior) {
            start.push_back(extent / 3);
            count.push_back(extent / 2);
        }
        v.SetSelection({start, count});
        std::vector<T> part(product(count)), expected_part;
        for (std::size_t i = 0; i < part.size(); ++i)
            expected_part.push_back(expected[place_of(i, count, start, interior)]);
        reader.Get(v, part.data(), adios2::Mode::Sync);
        compare(expected_part, part, bound, path + " (part)");
        reader.EndStep();
        if (step >= n_steps) throw std::runtime_error(path + ": too many steps");
    }
    reader.Close();
}

template <class T>
void all_ghosts(const std::string& folder, const std::string& engine_type) {
    const std::vector<Dims> shapes = {{1000}, {50, 100}, {10, 20, 15}};
    for (const Dims& shape : shapes) {
        for (const double bound : {0.1, 0.001}) {
            const std::string name = std::to_string(shape.size()) + type_name<T>() + std::to_string(bound) + ".bp";
            ghosts<T>(folder + "/ghosts_" + engine_type + name, engine_type, shape, bound);
        }
    }
}

// ------------------------------------------------------------------------------------------------------- random

// Even n: any bit pattern; about half of the values are within the bound of 0. Odd n: values from 1 to 2 under a bound
// so small that all their random low bits count, so that they can only be stored raw.
template <class T>
double random_bound(std::size_t n) {
    return n % 2 == 0 ? 1e-3 : sizeof(T) == 4 ? 1e-7 : 1e-16;
}

template <class T>
std::vector<T> random_values(std::size_t n, std::uint64_t seed) {
    std::vector<T> values(n);
    std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (T& value : values) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::uint64_t bits = state;
        if (n % 2 != 0 && sizeof(T) == 4) bits = (bits & 0x007FFFFFu) | 0x3F800000u;
        if (n % 2 != 0 && sizeof(T) == 8) bits = (bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u;
        std::memcpy(&value, &bits, sizeof(T));
    }
    return values;
}

// Every step starts with an empty buffer, so that many different blocks are the one that makes it grow.
template <class T>
void random_blocks(const std::string& path, const std::string& engine_type) {
    std::vector<std::size_t> sizes;
    for (std::size_t n = 0; n < 40; ++n) sizes.push_back(n);
    for (std::size_t n = 40; n < 20000; n += n / 9 + n % 3 + 1) sizes.push_back(n);
    constexpr std::size_t n_steps = 3;

    adios2::ADIOS adios;
    adios2::IO out = adios.DeclareIO("out");
    out.SetEngine(engine_type);
    out.SetParameter("InitialBufferSize", "16Kb");
    std::vector<adios2::Variable<T>> variables;
    for (const std::size_t n : sizes) {
        variables.push_back(out.DefineVariable<T>("r" + std::to_string(n), {n}, {0}, {n}));
        std::ostringstream bound;
        bound << random_bound<T>(n);
        variables.back().AddOperation("plugin", plugin(bound.str()));
    }
    adios2::Engine writer = out.Open(path, adios2::Mode::Write);
    for (std::size_t step = 0; step < n_steps; ++step) {
        writer.BeginStep();
        std::vector<std::vector<T>> alive;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            const std::size_t k = step == 2 ? sizes.size() - 1 - i : i;
            alive.push_back(random_values<T>(sizes[k], sizes[k] + step));
            writer.Put(variables[k], alive.back().data(), step == 1 ? adios2::Mode::Deferred : adios2::Mode::Sync);
        }
        writer.EndStep();
    }
    writer.Close();

    adios2::IO in = adios.DeclareIO("in");
    adios2::Engine reader = in.Open(path, adios2::Mode::Read);
    for (std::size_t step = 0; reader.BeginStep() == adios2::StepStatus::OK; ++step) {
        for (const std::size_t n : sizes) {
            if (n == 0) continue;
            std::vector<T> got(n);
            reader.Get(in.InquireVariable<T>("r" + std::to_string(n)), got.data(), adios2::Mode::Sync);
            compare(random_values<T>(n, n + step), got, random_bound<T>(n), path + " r" + std::to_string(n));
        }
        reader.EndStep();
    }
    reader.Close();
}

// ------------------------------------------------------------------------------------------------------- column

// Dimensions are given fastest first. Variables: "column" tells the operator, "row" does not.
void column(const std::string& path, const std::string& engine_type) {
    const Dims shape = {97, 23, 11};
    std::vector<float> field(product(shape));
    for (std::size_t z = 0; z < shape[2]; ++z) {
        for (std::size_t y = 0; y < shape[1]; ++y) {
            for (std::size_t x = 0; x < shape[0]; ++x) {
                // A sum of functions of one coordinate: prediction across rows and planes removes it all.
                const std::size_t waves = (x * x * 37) % 101 + (y * y * 53) % 97 + (z * z * 29) % 89;
                field[(z * shape[1] + y) * shape[0] + x] = static_cast<float>(waves) / 50;
            }
        }
    }
    adios2::ADIOS adios;
    adios2::IO out = adios.DeclareIO("out", adios2::ArrayOrdering::ColumnMajor);
    out.SetEngine(engine_type);
    adios2::Engine writer = out.Open(path, adios2::Mode::Write);
    writer.BeginStep();
    for (const char* order : {"column", "row"}) {
        auto u = out.DefineVariable<float>(order, shape, {0, 0, 0}, shape);
        u.AddOperation("plugin", plugin("1e-3", {{"order", order}}));
        writer.Put(u, field.data(), adios2::Mode::Sync);
    }
    writer.EndStep();
    writer.Close();

    adios2::IO in = adios.DeclareIO("in", adios2::ArrayOrdering::ColumnMajor);
    adios2::Engine reader = in.Open(path, adios2::Mode::Read);
    reader.BeginStep();
    for (const char* order : {"column", "row"}) {
        std::vector<float> got(field.size());
        auto u = in.InquireVariable<float>(order);
        if (u.Shape() != shape) throw std::runtime_error("shape");
        reader.Get(u, got.data(), adios2::Mode::Sync);
        compare(field, got, 1e-3, path);
    }
    reader.EndStep();
    reader.Close();
}

// ------------------------------------------------------------------------------------------------------ fortran

void fortran(const std::string& path, const std::string& engine_type) {
    const Dims interior = {40, 30}, ghost = {1, 1}, memory = {42, 32}; // the first is the fastest
    std::vector<double> cells, field(product(memory), -1.0);
    for (std::size_t y = 0; y < interior[1]; ++y) {
        for (std::size_t x = 0; x < interior[0]; ++x) {
            cells.push_back(static_cast<double>(100 * y + x));
            field[(y + ghost[1]) * memory[0] + x + ghost[0]] = cells.back();
        }
    }
    adios2::ADIOS adios;
    adios2::IO out = adios.DeclareIO("out", adios2::ArrayOrdering::ColumnMajor);
    out.SetEngine(engine_type);
    adios2::Engine writer = out.Open(path, adios2::Mode::Write);
    writer.BeginStep();
    for (const char* name : {"without", "with"}) {
        auto u = out.DefineVariable<double>(name, interior, {0, 0}, interior);
        if (name == std::string("with")) u.AddOperation("plugin", plugin("0"));
        u.SetMemorySelection({ghost, memory});
        writer.Put(u, field.data(), adios2::Mode::Sync);
    }
    writer.EndStep();
    writer.Close();

    adios2::IO in = adios.DeclareIO("in", adios2::ArrayOrdering::ColumnMajor);
    adios2::Engine reader = in.Open(path, adios2::Mode::Read);
    reader.BeginStep();
    for (const char* name : {"without", "with"}) {
        std::vector<double> got(cells.size());
        reader.Get(in.InquireVariable<double>(name), got.data(), adios2::Mode::Sync);
        std::cout << name << (got == cells ? ": right\n" : ": wrong\n");
    }
    reader.EndStep();
    reader.Close();
}

// --------------------------------------------------------------------------------------------------------- null

void null(const std::string& path, const std::string& engine_type) {
    const std::vector<double> field(100 * 120, 1.5);
    adios2::ADIOS adios;
    adios2::IO out = adios.DeclareIO("out");
    out.SetEngine(engine_type);
    out.SetParameters({{"RendezvousReaderCount", "0"}, {"StatsLevel", "0"}});
    auto u = out.DefineVariable<double>("u", {90, 110}, {0, 0}, {90, 110});
    u.AddOperation("plugin", plugin("1e-3"));
    u.SetMemorySelection({{5, 5}, {100, 120}});
    adios2::Engine writer = out.Open(path, adios2::Mode::Write);
    writer.BeginStep();
    writer.Put(u, field.data(), adios2::Mode::Sync);
    writer.EndStep();
    writer.Close();
}

void run(const std::string& what, const std::string& folder, const std::string& engine_type) {
    const std::string path = folder + "/" + what + "_" + engine_type;
    if (what == "ghosts") {
        all_ghosts<float>(folder, engine_type);
        all_ghosts<double>(folder, engine_type);
    } else if (what == "random") {
        random_blocks<float>(path + "f32.bp", engine_type);
        random_blocks<double>(path + "f64.bp", engine_type);
    } else if (what == "column") {
        column(path + ".bp", engine_type);
    } else if (what == "fortran") {
        fortran(path + ".bp", engine_type);
    } else if (what == "null") {
        null(path, engine_type);
    } else {
        throw std::invalid_argument("no case " + what);
    }
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 4 && argc != 5) {
        std::cerr << "usage: blocks CASE FOLDER ENGINE [PREDICTOR]\n";
        return 2;
    }
    if (argc == 5) predictor = argv[4];
    try {
        run(argv[1], argv[2], argv[3]);
    } catch (const std::exception& error) {
        std::cerr << "blocks: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
