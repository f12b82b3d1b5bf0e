// Output of a code with adaptive mesh refinement (AMR), through ADIOS2: two levels of boxes, where the finer boxes
// move.
//
//     mpirun -n 4 amr OUTPUT [CONFIG [CELLS STEPS [RESTART]]]
//
// An ordinary ADIOS2 and MPI program: how its variables are stored (engine, operators) is decided by the ADIOS2
// configuration file CONFIG (.xml or .yaml) alone; without one ("-"), by ADIOS2's defaults.
//
// A shock front runs outwards from the middle of a cube. Level 0 has CELLS^3 cells in boxes of 32^3. Level 1 has cells
// of half the edge in boxes of 16^3 around the front; it starts at the second step, and gets new boxes every third
// step. Each box is one block of the variables of its level. In memory it has kGhosts ghost cells on every side, which
// are not written (memory selection). Boxes are distributed round-robin over the ranks; a rank may have none.
//
//     level0/rho, level1/rho    density, float, over some 13 decades, in g/cm^3
//     level0/u, level1/u        velocity, float, in cm/s
//     level0/T, level1/T        temperature, double, in K
//     level0/state, level1/state   0 behind, 1 in, 2 ahead of the front, int32
//
// With RESTART, another output of this program by any number of ranks, the run continues after its last step: each rank
// reads its boxes from there, and writes to OUTPUT from the next step on. Rank 0 prints how far the values are from the
// correct ones; the run ends if some are not finite.

#include <adios2.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t kGhosts = 2;
constexpr std::array<std::size_t, 2> kEdges = {32, 16}; // of a box of each level
constexpr std::size_t kFirstOfLevel1 = 1, kRegrid = 3;  // steps

struct Options {
    std::string output;
    std::string config; // empty: none
    std::size_t cells = 64, steps = 6;
    std::string restart; // empty: from the beginning
};

std::size_t parse_count(const std::string& text, std::size_t most) {
    const bool is_number =
        !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
    const std::size_t value = is_number ? std::stoul(text) : 0;
    if (value == 0 || value > most) {
        throw std::invalid_argument("'" + text + "' is not a whole number from 1 to " + std::to_string(most));
    }
    return value;
}

Options parse(const std::vector<std::string>& words) {
    if (words.empty() || words.size() == 3 || words.size() > 5) {
        throw std::invalid_argument("usage: amr OUTPUT [CONFIG [CELLS STEPS [RESTART]]]");
    }
    Options o;
    o.output = words[0];
    if (words.size() > 1 && words[1] != "-") o.config = words[1];
    if (words.size() > 3) {
        o.cells = parse_count(words[2], 1024);
        o.steps = parse_count(words[3], 1000);
    }
    if (words.size() > 4) o.restart = words[4];
    if (o.cells % kEdges[0] != 0) {
        throw std::invalid_argument("CELLS = " + std::to_string(o.cells) +
                                    " is not a multiple of 32, the edge of a box");
    }
    return o;
}

// A sum of plane waves, of about -1 to 1.
double waves(const std::array<double, 3>& at, double time, int which) {
    double sum = 0;
    for (int m = 1; m <= 5; ++m) {
        const int seed = 7 * which + 3 * m;
        const double phase = (seed % 5 - 2) * m * at[0] + (seed % 7 - 3) * m * at[1] + (seed % 4 - 1) * m * at[2];
        sum += std::sin(2 * std::numbers::pi * (phase + 0.1 * m * time) + seed) / m;
    }
    return sum / 2;
}

// The distance of a point ahead of the front; negative behind it.
double ahead(const std::array<double, 3>& at, double time) {
    const double radius = std::hypot(at[0] - 0.5, at[1] - 0.5, at[2] - 0.5);
    return radius - (0.08 + 0.04 * time);
}

// A box of cells, with ghost cells around them.
struct Box {
    std::size_t level;
    std::array<std::size_t, 3> corner;
    std::vector<float> rho, u;
    std::vector<double> temperature;
    std::vector<std::int32_t> state;

    std::size_t edge() const { return kEdges[level]; }
    std::size_t edge_in_memory() const { return edge() + 2 * kGhosts; }

    void compute(std::size_t cells, double time) {
        const std::size_t n = edge_in_memory();
        const double width = 1.0 / static_cast<double>(cells << level);
        for (auto* field : {&rho, &u}) field->resize(n * n * n);
        temperature.resize(n * n * n);
        state.resize(n * n * n);
        std::array<std::size_t, 3> index{};
        for (std::size_t i = 0; i < n * n * n; ++i) {
            index = {i / (n * n), i / n % n, i % n};
            std::array<double, 3> at{};
            for (std::size_t axis = 0; axis < 3; ++axis) {
                const auto cell = static_cast<double>(corner[axis] + index[axis]) - static_cast<double>(kGhosts);
                at[axis] = (cell + 0.5) * width;
            }
            const double distance = ahead(at, time), front = std::tanh(distance / 0.02);
            rho[i] = static_cast<float>(std::exp(-46 - 5 * front + 9 * waves(at, time, 1)));
            u[i] = static_cast<float>(1e6 * (1 - front) * (1 + 0.3 * waves(at, time, 2)) + 1e4 * waves(at, time, 3));
            temperature[i] = 1e4 * (2 - front) * (1 + 0.2 * waves(at, time, 4));
            state[i] = distance < -0.02 ? 0 : distance < 0.02 ? 1 : 2;
        }
    }
};

// The boxes of both levels and all ranks at a step.
std::vector<Box> boxes_at(std::size_t cells, std::size_t step) {
    std::vector<Box> boxes;
    const std::size_t n_levels = step < kFirstOfLevel1 ? 1 : 2;
    const auto of_grid = static_cast<double>(step - step % kRegrid); // the step at which the grid was made
    for (std::size_t level = 0; level < n_levels; ++level) {
        const std::size_t edge = kEdges[level], extent = cells << level;
        for (std::size_t i = 0; i < extent; i += edge) {
            for (std::size_t j = 0; j < extent; j += edge) {
                for (std::size_t k = 0; k < extent; k += edge) {
                    const auto middle = [&](std::size_t first) {
                        return static_cast<double>(2 * first + edge) / static_cast<double>(2 * extent);
                    };
                    const double reach = static_cast<double>(edge) / static_cast<double>(extent);
                    const bool is_near = std::abs(ahead({middle(i), middle(j), middle(k)}, of_grid)) < reach;
                    if (level == 0 || is_near) boxes.push_back(Box{level, {i, j, k}, {}, {}, {}, {}});
                }
            }
        }
    }
    return boxes;
}

std::vector<Box> own_boxes(std::size_t cells, std::size_t step, int rank, int ranks) {
    std::vector<Box> all = boxes_at(cells, step), own;
    for (std::size_t i = static_cast<std::size_t>(rank); i < all.size(); i += static_cast<std::size_t>(ranks)) {
        own.push_back(std::move(all[i]));
    }
    return own;
}

std::string named(std::size_t level, const char* field) { return "level" + std::to_string(level) + "/" + field; }

template <class T>
void put(adios2::IO& io, adios2::Engine& engine, const Box& box, const char* field, std::size_t cells,
         const std::vector<T>& values) {
    const std::size_t extent = cells << box.level, edge = box.edge(), in_memory = box.edge_in_memory();
    const std::string name = named(box.level, field);
    auto variable = io.InquireVariable<T>(name);
    if (!variable) variable = io.DefineVariable<T>(name, {extent, extent, extent});
    variable.SetSelection({{box.corner[0], box.corner[1], box.corner[2]}, {edge, edge, edge}});
    variable.SetMemorySelection({{kGhosts, kGhosts, kGhosts}, {in_memory, in_memory, in_memory}});
    engine.Put(variable, values.data(), adios2::Mode::Sync);
}

// The largest relative difference between a box and the file. Infinity replaces NaN, because neither std::max nor
// MPI_MAX keeps NaN.
template <class T>
double deviation(adios2::IO& io, adios2::Engine& engine, const Box& box, const char* field, std::size_t cells,
                 const std::vector<T>& values) {
    const std::size_t edge = box.edge(), n = box.edge_in_memory();
    auto variable = io.InquireVariable<T>(named(box.level, field));
    if (!variable) throw std::runtime_error("there is no variable " + named(box.level, field) + " to restart from");
    if (variable.Shape() != adios2::Dims(3, cells << box.level)) {
        throw std::runtime_error("what it is to restart from does not have CELLS = " + std::to_string(cells));
    }
    std::vector<T> read(edge * edge * edge);
    variable.SetSelection({{box.corner[0], box.corner[1], box.corner[2]}, {edge, edge, edge}});
    engine.Get(variable, read.data(), adios2::Mode::Sync);
    double largest = 0;
    for (std::size_t i = 0; i < read.size(); ++i) {
        const std::array<std::size_t, 3> index = {i / (edge * edge), i / edge % edge, i % edge};
        const std::size_t at = ((index[0] + kGhosts) * n + index[1] + kGhosts) * n + index[2] + kGhosts;
        const auto mine = static_cast<double>(values[at]), theirs = static_cast<double>(read[i]);
        const double off = std::abs(mine - theirs) / std::max(std::abs(mine), 1e-300);
        largest = std::max(largest, std::isnan(off) ? std::numeric_limits<double>::infinity() : off);
    }
    return largest;
}

// Reads an output step by step, compares each step with the correct values, and returns the number of the last one.
// Only the deviation of the last step is reported.
std::size_t restart(const Options& o, adios2::ADIOS& adios, int rank, int ranks) {
    adios2::IO io = adios.DeclareIO("amr_restart");
    adios2::Engine engine = io.Open(o.restart, adios2::Mode::Read);
    std::size_t last = 0;
    bool has_step = false;
    double largest = 0; // of the last step
    while (engine.BeginStep() == adios2::StepStatus::OK) {
        std::int64_t number = 0;
        engine.Get(io.InquireVariable<std::int64_t>("step"), number, adios2::Mode::Sync);
        last = static_cast<std::size_t>(number);
        has_step = true;
        largest = 0;
        for (Box& box : own_boxes(o.cells, last, rank, ranks)) {
            box.compute(o.cells, static_cast<double>(last));
            for (const double off : {deviation(io, engine, box, "rho", o.cells, box.rho),
                                     deviation(io, engine, box, "state", o.cells, box.state)}) {
                largest = std::max(largest, off);
            }
        }
        engine.EndStep();
    }
    engine.Close();
    if (!has_step) throw std::runtime_error("there is no step to restart from");
    double of_all = 0;
    MPI_Allreduce(&largest, &of_all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (!std::isfinite(of_all)) {
        throw std::runtime_error("some values of the last step in " + o.restart + " are not finite, or have been lost");
    }
    if (rank == 0) {
        std::cout << "restart after step " << last << " of " << o.restart << ": densities and states are within "
                  << of_all << " of their values" << std::endl;
    }
    return last;
}

void run(const Options& o, int rank, int ranks) {
    std::error_code error; // if one of them does not exist, they are not the same
    if (std::filesystem::equivalent(o.output, o.restart, error)) {
        throw std::runtime_error("OUTPUT " + o.output + " is what it is to restart from, and would be overwritten");
    }
    adios2::ADIOS adios = o.config.empty() ? adios2::ADIOS(MPI_COMM_WORLD) : adios2::ADIOS(o.config, MPI_COMM_WORLD);
    const std::size_t first = o.restart.empty() ? 0 : restart(o, adios, rank, ranks) + 1;
    adios2::IO io = adios.DeclareIO("amr");
    auto step_number = io.DefineVariable<std::int64_t>("step");
    adios2::Engine engine = io.Open(o.output, adios2::Mode::Write);
    for (std::size_t step = first; step < first + o.steps; ++step) {
        std::vector<Box> boxes = own_boxes(o.cells, step, rank, ranks);
        engine.BeginStep();
        for (Box& box : boxes) {
            box.compute(o.cells, static_cast<double>(step));
            put(io, engine, box, "rho", o.cells, box.rho);
            put(io, engine, box, "u", o.cells, box.u);
            put(io, engine, box, "T", o.cells, box.temperature);
            put(io, engine, box, "state", o.cells, box.state);
        }
        if (rank == 0) engine.Put(step_number, static_cast<std::int64_t>(step));
        engine.EndStep();
        if (rank == 0) std::cout << "step " << step << ": " << boxes_at(o.cells, step).size() << " boxes" << std::endl;
    }
    engine.Close();
}

} // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    Options options;
    try {
        options = parse(std::vector<std::string>(argv + 1, argv + argc));
    } catch (const std::invalid_argument& error) { // the same on every rank
        if (rank == 0) std::cerr << "amr: " << error.what() << std::endl;
        MPI_Finalize();
        return 1;
    }
    try {
        run(options, rank, ranks);
    } catch (const std::exception& error) { // others may be waiting for this rank: end them all
        std::cerr << "amr: rank " << rank << ": " << error.what() << std::endl;
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
