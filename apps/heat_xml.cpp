// Heat conduction in 3-D, written through ADIOS2.
//
//     mpirun -n 4 heat_xml OUTPUT [CONFIG [NX NY NZ STEPS INTERVAL]]
//
// An ordinary ADIOS2 and MPI program: how its variable "temperature" is stored (engine, operators) is decided by the
// ADIOS2 configuration file CONFIG (.xml or .yaml) alone; without one ("-"), by ADIOS2's defaults.
//
// The grid is periodic, cut into slabs along x, one slab per rank with a plane of halo on either side:
//     T += rate (sum of the six neighbours - 6 T)
// All values are double. Output is at step 0 and after every INTERVAL steps.

#include <adios2.h>
#include <mpi.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr double kRate = 0.15; // the explicit step is stable up to 1/6

struct Options {
    std::string output;
    std::string config; // empty: none
    std::size_t nx = 64, ny = 64, nz = 64;
    std::size_t steps = 100, interval = 50;
};

std::size_t parse_count(const std::string& text) {
    const bool is_number =
        !text.empty() && text.size() < 8 && text.find_first_not_of("0123456789") == std::string::npos;
    const std::size_t value = is_number ? std::stoul(text) : 0;
    if (value == 0 || value > 1000000) {
        throw std::invalid_argument("'" + text + "' is not a whole number from 1 to 1000000");
    }
    return value;
}

Options parse(int argc, char** argv, int ranks) {
    if (argc != 2 && argc != 3 && argc != 8) {
        throw std::invalid_argument("usage: heat_xml OUTPUT [CONFIG [NX NY NZ STEPS INTERVAL]]");
    }
    Options o;
    o.output = argv[1];
    if (argc > 2 && std::string(argv[2]) != "-") o.config = argv[2];
    if (argc == 8) {
        std::size_t* counts[] = {&o.nx, &o.ny, &o.nz, &o.steps, &o.interval};
        for (int i = 0; i < 5; ++i) *counts[i] = parse_count(argv[3 + i]);
    }
    if (o.nx < static_cast<std::size_t>(ranks)) {
        throw std::invalid_argument("NX = " + std::to_string(o.nx) + " planes are fewer than the " +
                                    std::to_string(ranks) + " ranks; use fewer ranks or a larger NX");
    }
    if (o.ny * o.nz > 2147483647u) throw std::invalid_argument("a plane of NY x NZ cells is too large");
    return o;
}

// One rank's slab: planes 1 to n of T; planes 0 and n + 1 are the halo.
class Heat {
public:
    Heat(const Options& o, int rank, int ranks)
        : first_(o.nx * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks)),
          n_(o.nx * static_cast<std::size_t>(rank + 1) / static_cast<std::size_t>(ranks) - first_), ny_(o.ny),
          nz_(o.nz), below_((rank + ranks - 1) % ranks), above_((rank + 1) % ranks), now_((n_ + 2) * o.ny * o.nz),
          next_(now_.size()) {
        for (std::size_t i = 0; i < n_; ++i) {
            const double x = 2 * std::numbers::pi * static_cast<double>(first_ + i) / static_cast<double>(o.nx);
            for (std::size_t j = 0; j < ny_; ++j) {
                const double y = 2 * std::numbers::pi * static_cast<double>(j) / static_cast<double>(ny_);
                for (std::size_t k = 0; k < nz_; ++k) {
                    const double z = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(nz_);
                    now_[((i + 1) * ny_ + j) * nz_ + k] =
                        300.0 + 20.0 * std::sin(x) * std::cos(2 * y) + 5.0 * std::sin(3 * z + std::cos(x + y));
                }
            }
        }
    }

    std::size_t first() const { return first_; }
    std::size_t count() const { return n_; }
    const double* interior() const { return now_.data() + ny_ * nz_; }

    void step() {
        exchange();
        const std::size_t plane = ny_ * nz_;
        for (std::size_t i = 1; i <= n_; ++i) {
            for (std::size_t j = 0; j < ny_; ++j) {
                const std::size_t row = i * plane + j * nz_;
                const std::size_t north = i * plane + (j + 1 == ny_ ? 0 : j + 1) * nz_;
                const std::size_t south = i * plane + (j == 0 ? ny_ - 1 : j - 1) * nz_;
                for (std::size_t k = 0; k < nz_; ++k) {
                    const std::size_t east = row + (k + 1 == nz_ ? 0 : k + 1);
                    const std::size_t west = row + (k == 0 ? nz_ - 1 : k - 1);
                    const double t = now_[row + k];
                    const double around = now_[row + k - plane] + now_[row + k + plane] + now_[south + k] +
                                          now_[north + k] + now_[west] + now_[east];
                    next_[row + k] = t + kRate * (around - 6.0 * t);
                }
            }
        }
        std::swap(now_, next_);
    }

private:
    void exchange() {
        const int plane = static_cast<int>(ny_ * nz_);
        double* low = now_.data();
        double* high = now_.data() + (n_ + 1) * ny_ * nz_;
        MPI_Sendrecv(low + plane, plane, MPI_DOUBLE, below_, 0, high, plane, MPI_DOUBLE, above_, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(high - plane, plane, MPI_DOUBLE, above_, 1, low, plane, MPI_DOUBLE, below_, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }

    std::size_t first_, n_, ny_, nz_;
    int below_, above_;
    std::vector<double> now_, next_;
};

void run(const Options& o, int rank, int ranks) {
    Heat heat(o, rank, ranks);

    adios2::ADIOS adios = o.config.empty() ? adios2::ADIOS(MPI_COMM_WORLD) : adios2::ADIOS(o.config, MPI_COMM_WORLD);
    adios2::IO io = adios.DeclareIO("heat");
    auto temperature = io.DefineVariable<double>("temperature", {o.nx, o.ny, o.nz}, {heat.first(), 0, 0},
                                                 {heat.count(), o.ny, o.nz}, adios2::ConstantDims);
    auto step_number = io.DefineVariable<std::int64_t>("step");

    adios2::Engine engine = io.Open(o.output, adios2::Mode::Write);
    for (std::size_t step = 0; step <= o.steps; ++step) {
        if (step > 0) heat.step();
        if (step % o.interval != 0) continue;
        engine.BeginStep();
        engine.Put(temperature, heat.interior());
        if (rank == 0) engine.Put(step_number, static_cast<std::int64_t>(step));
        engine.EndStep();
        if (rank == 0) std::cout << "step " << step << " of " << o.steps << " written to " << o.output << std::endl;
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
        options = parse(argc, argv, ranks);
    } catch (const std::invalid_argument& error) { // the same on every rank
        if (rank == 0) std::cerr << "heat_xml: " << error.what() << std::endl;
        MPI_Finalize();
        return 1;
    }
    try {
        run(options, rank, ranks);
    } catch (const std::exception& error) { // others may be waiting for this rank: end them all
        std::cerr << "heat_xml: rank " << rank << ": " << error.what() << std::endl;
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
