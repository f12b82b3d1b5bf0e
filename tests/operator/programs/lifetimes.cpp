// Destroys an adios2::ADIOS at different times of a program: lifetimes WHERE WHAT FOLDER [plain]
//
// WHERE  local: before main ends. global: with the program's global objects. static: a static object of a function.
//        leaked: never. fork: static, first in a child, while the parent waits.
// WHAT   nothing: the operator is defined but not used. write, read: it is used. both: written, then read.
// plain  without the operator
//
// The output stays in the buffer of stdout until the very end of the process.
#include <adios2.h>
#if ADIOS2_USE_MPI
#include <mpi.h>
#endif

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr double bound = 1e-3;
constexpr std::size_t extent = 40;

const adios2::Params plugin = {{"PluginName", "cusz"}, {"PluginLibrary", "cusz_operator"}, {"accuracy", "1e-3"}};

std::string configuration(const std::string& folder, bool is_plain) {
    const std::string path = folder + "/lifetimes.xml";
    std::ofstream file(path);
    file << "<adios-config><io name=\"out\"><variable name=\"T\">";
    if (!is_plain) {
        file << "<operation type=\"plugin\">";
        for (const auto& [key, value] : plugin) file << "<parameter key=\"" << key << "\" value=\"" << value << "\"/>";
        file << "</operation>";
    }
    file << "</variable></io></adios-config>";
    return path;
}

std::vector<double> field() {
    std::vector<double> values(extent * extent);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.01 * static_cast<double>(i));
    return values;
}

void write(adios2::ADIOS& adios, const std::string& file) {
    adios2::IO io = adios.DeclareIO("out");
    auto T = io.DefineVariable<double>("T", {extent, extent}, {0, 0}, {extent, extent});
    const std::vector<double> values = field();
    adios2::Engine engine = io.Open(file, adios2::Mode::Write);
    engine.BeginStep();
    engine.Put(T, values.data());
    engine.EndStep();
    engine.Close();
}

void read(adios2::ADIOS& adios, const std::string& file, bool is_plain) {
    adios2::IO io = adios.DeclareIO("in");
    adios2::Engine engine = io.Open(file, adios2::Mode::Read);
    engine.BeginStep();
    const std::vector<double> values = field();
    std::vector<double> got(values.size());
    engine.Get(io.InquireVariable<double>("T"), got.data(), adios2::Mode::Sync);
    engine.EndStep();
    engine.Close();
    std::size_t beyond = 0, exact = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        beyond += !(std::fabs(values[i] - got[i]) <= bound);
        exact += values[i] == got[i];
    }
    if (beyond > 0) throw std::runtime_error("values beyond the bound: " + std::to_string(beyond));
    if ((exact == got.size()) != is_plain) throw std::runtime_error("the operator was not used as it should");
}

struct Case {
    std::string where, what, folder;
    bool is_plain;
};

adios2::ADIOS make(const Case& its) {
    const std::string path = configuration(its.folder, its.is_plain);
#if ADIOS2_USE_MPI
    return adios2::ADIOS(path, MPI_COMM_SELF);
#else
    return adios2::ADIOS(path);
#endif
}

void use(adios2::ADIOS& adios, const Case& its) {
    const std::string both = its.folder + "/both.bp";
    if (its.what == "nothing" && !its.is_plain) adios.DefineOperator("unused", "plugin", plugin);
    if (its.what == "write" || its.what == "both") write(adios, both);
    if (its.what == "both") read(adios, both, its.is_plain);
    if (its.what == "read") read(adios, its.folder + "/read.bp", its.is_plain);
}

adios2::ADIOS global;

int run(const Case& its) {
    if (its.where == "local") {
        adios2::ADIOS adios = make(its);
        use(adios, its);
    } else if (its.where == "global") {
        global = make(its);
        use(global, its);
    } else if (its.where == "static") {
        static adios2::ADIOS adios = make(its);
        use(adios, its);
    } else if (its.where == "leaked") {
        auto* adios = new adios2::ADIOS(make(its)); // leaked on purpose
        use(*adios, its);
    } else if (its.where == "fork") {
        static adios2::ADIOS adios = make(its);
        use(adios, its);
        const pid_t child = fork();
        if (child == 0) {
            std::exit(0);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 3;
    } else {
        return 2;
    }
    std::cout << its.where << ' ' << its.what << ": well";
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 4 && argc != 5) return 2;
#if ADIOS2_USE_MPI
    MPI_Init(&argc, &argv);
#endif
    int status = 1;
    try {
        status = run({argv[1], argv[2], argv[3], argc == 5});
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
    }
#if ADIOS2_USE_MPI
    MPI_Finalize();
#endif
    return status;
}
