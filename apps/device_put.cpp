// A field that lies in the memory of a GPU, written through ADIOS2 and compressed on the way, on the GPU.
//
//     device_put OUTPUT [NX NY NZ]
//
// The pointer from cudaMalloc is passed to Put. ADIOS2 need not be built with CUDA: without statistics (StatsLevel 0),
// it passes the pointer to the operator without dereferencing it. The operator asks CUDA where the field lies,
// compresses it there, and copies only the archive to the host. The field is then read back on the host, and every
// value is compared with the original.
//
// Exit status: 0 if every value keeps the bound, 1 for failures, 2 for mistakes in the arguments, 77 if there is no
// device.

#include <adios2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr const char* kBound = "1e-3";
constexpr float kLost = std::numeric_limits<float>::quiet_NaN();

struct NoDevice : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// The device is the process's current one. A job with several ranks on a node binds each to its own, by cudaSetDevice
// or CUDA_VISIBLE_DEVICES.
void need_device() {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) throw NoDevice(cudaGetErrorString(error));
    if (count == 0) throw NoDevice("CUDA finds none");
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    std::cout << "device " << device << ": " << properties.name << std::endl;
}

struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
};
using DeviceMemory = std::unique_ptr<void, Free>;

// Copies the values to the memory of the current device.
DeviceMemory to_device(const std::vector<float>& values) {
    const std::size_t bytes = values.size() * sizeof(float);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    DeviceMemory array(memory);
    check(cudaMemcpy(memory, values.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    return array;
}

std::vector<float> waves(const adios2::Dims& shape) {
    std::vector<float> field;
    field.reserve(shape[0] * shape[1] * shape[2]);
    for (std::size_t i = 0; i < shape[0]; ++i) {
        const double x = 0.05 * static_cast<double>(i);
        for (std::size_t j = 0; j < shape[1]; ++j) {
            const double y = 0.03 * static_cast<double>(j);
            for (std::size_t k = 0; k < shape[2]; ++k) {
                const double z = 0.04 * static_cast<double>(k);
                field.push_back(static_cast<float>(20 * std::sin(x + std::cos(y)) + 5 * std::cos(3 * z - y)));
            }
        }
    }
    return field;
}

void write(const std::string& path, const adios2::Dims& shape, const float* field) {
    adios2::ADIOS adios;
    const adios2::Operator cusz = adios.DefineOperator(
        "cusz", "plugin", {{"PluginName", "cusz"}, {"PluginLibrary", "cusz_operator"}, {"accuracy", kBound}});
    adios2::IO io = adios.DeclareIO("output");
    io.SetEngine("BP5");
    io.SetParameter("StatsLevel", "0"); // otherwise an ADIOS2 without CUDA would read the field itself and crash
    auto u = io.DefineVariable<float>("u", shape, {0, 0, 0}, shape, adios2::ConstantDims);
#ifdef ADIOS2_HAVE_GPU_SUPPORT
    // An ADIOS2 with CUDA would take an array on a device for a column-major one.
    u.SetArrayLayout(adios2::ArrayOrdering::RowMajor);
#endif
    u.AddOperation(cusz);
    adios2::Engine engine = io.Open(path, adios2::Mode::Write);
    engine.BeginStep();
    engine.Put(u, field, adios2::Mode::Sync); // work on the field must have finished on the device
    engine.EndStep();
    engine.Close();
}

std::vector<float> read(const std::string& path, const adios2::Dims& shape) {
    adios2::ADIOS adios;
    adios2::IO io = adios.DeclareIO("input");
    io.SetEngine("BP5");
    adios2::Engine engine = io.Open(path, adios2::Mode::Read);
    engine.BeginStep();
    auto u = io.InquireVariable<float>("u");
    if (!u || u.Shape() != shape) throw std::runtime_error(path + " has no variable 'u' of this shape");
    std::vector<float> field(shape[0] * shape[1] * shape[2], kLost);
    engine.Get(u, field.data(), adios2::Mode::Sync);
    engine.EndStep();
    engine.Close();
    return field;
}

void run(const std::string& path, const adios2::Dims& shape) {
    need_device();
    const std::vector<float> field = waves(shape);
    {
        const DeviceMemory on_device = to_device(field);
        write(path, shape, static_cast<const float*>(on_device.get()));
    }
    const std::vector<float> got = read(path, shape);
    const long double bound = std::stold(kBound);
    long double largest = 0;
    std::size_t violations = 0;
    for (std::size_t i = 0; i < field.size(); ++i) {
        const long double error = std::fabs(static_cast<long double>(field[i]) - got[i]);
        if (!(error <= bound)) ++violations; // also counts NaN
        largest = std::max(largest, error);
    }
    std::cout << field.size() << " values of a device written to " << path << " and read back; largest error "
              << static_cast<double>(largest) << ", bound " << kBound << std::endl;
    if (violations > 0) throw std::runtime_error(std::to_string(violations) + " values break the bound");
}

std::size_t parse_extent(const std::string& text) {
    if (text.empty() || text.size() > 5 || text.find_first_not_of("0123456789") != std::string::npos ||
        std::stoul(text) == 0) {
        throw std::invalid_argument("'" + text + "' is not a whole number from 1 to 99999");
    }
    return std::stoul(text);
}

} // namespace

int main(int argc, char** argv) {
    adios2::Dims shape = {64, 96, 128};
    try {
        if (argc != 2 && argc != 5) throw std::invalid_argument("usage: device_put OUTPUT [NX NY NZ]");
        for (int i = 2; i < argc; ++i) shape[static_cast<std::size_t>(i) - 2] = parse_extent(argv[i]);
    } catch (const std::invalid_argument& error) {
        std::cerr << "device_put: " << error.what() << std::endl;
        return 2;
    }
    try {
        run(argv[1], shape);
    } catch (const NoDevice& error) {
        std::cerr << "device_put: this program needs a CUDA device, and there is none: " << error.what() << std::endl;
        return 77;
    } catch (const std::exception& error) {
        std::cerr << "device_put: " << error.what() << std::endl;
        return 1;
    }
    return 0;
}
