// Prints how the engine launches its kernels: one line each, "mangled name, purpose, threads, dynamic shared bytes".
// It is linked with the objects of the .cu files and, instead of the CUDA runtime, with the functions below, which only
// record their arguments; so the numbers are those of the compiled code, and no device is needed. gpu_resources.py runs
// it. Its argument: bytes of shared memory that a block may have.
#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "codec/cuda/logarithms.hpp"
#include "codec/cuda/pieces.hpp"
#include "codec/cuda/sample_boxes.hpp"
#include "codec/cuda/value_range.hpp"
#include "codec/lorenzo/cuda/kernels.hpp"
#include "codec/spline/cuda/kernels.hpp"

namespace {

std::map<const void*, std::string>& names() {
    static std::map<const void*, std::string> of_function;
    return of_function;
}
const char* purpose = "";
int shared_bytes_of_block = 0;

} // namespace

extern "C" {
void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    names()[host] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) { return cudaErrorNotSupported; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
    return cudaErrorNotSupported;
}
}

cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
    return cudaErrorNotSupported;
}
const char* cudaGetErrorName(cudaError_t) { return "error"; }
const char* cudaGetErrorString(cudaError_t) { return "error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? shared_bytes_of_block : 1;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, std::size_t,
                                                                   unsigned) {
    *blocks = 1;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
    *blocks = 1;
    return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void**) {
    std::printf("%s,%s,%u,%zu\n", names().at(function).c_str(), purpose, config->blockDim.x, config->dynamicSmemBytes);
    return cudaSuccess;
}

namespace {

using namespace cusz::cuda;

// A batch of one tile of each shape, so that there is work to be launched for: of others, and of one, two and three
// dimensions.
template <class Use>
void for_shapes(const Use& use) {
    constexpr std::uint64_t extents[] = {1, 4096, 64, 64, 8, 16, 32};
    constexpr std::tuple<const char*, int, int> fields[] = {
        {"other tiles", 1, 0}, {"1-D tiles", 1, 1}, {"2-D tiles", 2, 2}, {"3-D tiles", 3, 4}};
    for (const auto& [tiles, ndim, first] : fields) {
        purpose = tiles;
        use(TileBatch{cusz::Tiling(ndim, extents + first), 0, 1, 0});
    }
    purpose = "";
}

constexpr std::pair<int, const char*> alphabets[] = {{5, "64 bins"}, {9, "1024 bins"}, {12, "8192 bins"}};

template <class T>
void compression() {
    compute_range(RangeArguments<T>{}, nullptr);
    resolve_bound(BoundArguments<T>{}, nullptr);
    for_shapes([](const TileBatch& batch) {
        constexpr int r = 5; // larger alphabets take more shared memory
        count_symbols(CountArguments<T>{batch, nullptr, r, cusz::Sample(1, r), nullptr, nullptr}, nullptr);
    });
    for_shapes([](const TileBatch& batch) { compress_tiles(CompressArguments<T>{.batch = batch}, nullptr); });
}

template <class T>
void compression_of_many() {
    compute_range(Each<RangeArguments<T>>{nullptr, 1}, 1, nullptr);
    resolve_bound(Each<BoundArguments<T>>{nullptr, 1}, nullptr);
    for_shapes([](const TileBatch& batch) {
        const ManyTiles tiles{batch.tiling.shape(), 5, 1};
        count_symbols(Each<CountArguments<T>>{nullptr, 1}, tiles, nullptr);
        compress_tiles(Each<CompressArguments<T>>{nullptr, 1}, tiles, nullptr);
    });
}

void codebooks() {
    for (const auto& [r, bins] : alphabets) {
        purpose = bins;
        char memory = 0; // a non-null address, for kernels that use global memory
        BookArguments book{nullptr, r, cusz::Sample(1, r), nullptr, nullptr, nullptr, nullptr, nullptr};
        if (book_memory_bytes(r) != 0) book.memory = &memory;
        make_book(book, nullptr);
        if (book.memory == nullptr) make_books(Each<BookArguments>{nullptr, 1}, r, nullptr);
    }
    purpose = "";
}

template <class T>
void decompression() {
    for_shapes([](const TileBatch& batch) { decompress_tiles(DecompressArguments<T>{.batch = batch}, nullptr); });
}

// Calls use(axes, edges of a tile, whether it is a long one) for lattices of one to three active axes.
template <class Use>
void for_lattices(const Use& use) {
    constexpr std::array<std::uint32_t, 4> thin[] = {{2048, 2, 1, 1}, {2, 2048, 1, 1}, {2, 2, 512, 2}};
    for (std::uint32_t axes = 1; axes <= 3; ++axes) {
        use(axes, cusz::tile_edges(axes), false);
        use(axes, thin[axes - 1], true);
    }
}

constexpr const char* lattices[][2] = {
    {"1 axis", "1 axis (thin)"}, {"2 axes", "2 axes (thin)"}, {"3 axes", "3 axes (thin)"}};

void units() {
    for_lattices([](std::uint32_t axes, const std::array<std::uint32_t, 4>& edge, bool is_thin) {
        purpose = lattices[axes - 1][is_thin ? 1 : 0];
        UnitLattice of{};
        of.lattice.n_active = axes;
        of.lattice.edge = edge;
        of.lattice.n_tiles = 1;
        ReadArguments read{};
        read.of = of;
        read.n_units = 1;
        read_units(read, nullptr);
        record_tiles(RecordArguments{.of = of,
                                     .lattice = 0,
                                     .value_bits = 32,
                                     .sample = cusz::Sample(1, 5),
                                     .sizes = nullptr,
                                     .tiles = nullptr,
                                     .counts = nullptr},
                     nullptr);
        WriteArguments write{};
        write.of = of;
        write.n_units = 1;
        write_units(write, nullptr);
    });
    purpose = "";
}

template <class T>
void spline() {
    constexpr const char* coding[] = {"1 axis (coding)", "2 axes (coding)", "3 axes (coding)"};
    for_lattices([&](std::uint32_t axes, const std::array<std::uint32_t, 4>& edge, bool is_thin) {
        purpose = lattices[axes - 1][is_thin ? 1 : 0];
        DeviceLattice<T> of{};
        of.lattice.n_active = axes;
        of.lattice.edge = edge;
        of.lattice.n_tiles = 1;
        find_fixed_contexts(of, nullptr);
        if (is_thin) return;
        DeviceLattice<T> coded = of;
        std::uint32_t point = 0; // which makes it one that is coded
        coded.points = &point;
        purpose = coding[axes - 1];
        find_fixed_contexts(coded, nullptr);
        for (const auto curve : {cusz::v2::Curve::cubic, cusz::v2::Curve::six_points_and_codes}) {
            of.curve = curve;
            purpose = lattices[axes - 1][0];
            find_values(of, nullptr);
            purpose = coding[axes - 1];
            find_codes(of, nullptr, nullptr, nullptr);
        }
    });
    purpose = "";
    PutArguments<T> put{};
    put.n = 1;
    put_values(put, nullptr);
}

template <class T>
void boxes() {
    CopyBoxesArguments<T> a{};
    a.n_boxes = 1;
    copy_boxes(a, nullptr);
}

template <class T>
void logarithms() {
    find_exponents(ExponentArguments<T>{}, nullptr);
    ToLogsArguments<T> to{};
    FromLogsArguments<T> from{};
    to.n = from.n = 1;
    to_logs(to, nullptr);
    from_logs(from, nullptr);
    if constexpr (sizeof(T) == 8) return;
    purpose = "f64 logarithms";
    to.scale.wide = from.scale.wide = true;
    to_logs(to, nullptr);
    from_logs(from, nullptr);
    purpose = "";
}

} // namespace

int main(int, char** arguments) {
    shared_bytes_of_block = std::atoi(arguments[1]);
    compression<float>();
    compression<double>();
    compression_of_many<float>();
    compression_of_many<double>();
    codebooks();
    IndexArguments index{};
    index.n_tiles = 1;
    find_starts(index, nullptr);
    decompression<float>();
    decompression<double>();
    PieceArguments piece{};
    piece.n = 1;
    sum_pieces(piece, nullptr);
    units();
    spline<float>();
    spline<double>();
    GatherArguments gather{};
    gather.n_units = 1;
    gather_units(gather, nullptr);
    boxes<float>();
    boxes<double>();
    logarithms<float>();
    logarithms<double>();
}
