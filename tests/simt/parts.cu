// Parts of the engine's kernels, by themselves, for what no field can bring about in emulation.
#if __has_include(<device/block.cuh>)
#include <device/block.cuh>
#else // scripts/bench/gpu_counts.py compiles this over earlier commits
#include <cuda/block.cuh>
#endif
#if __has_include(<codec/spline/cuda/rans_model.hpp>)
#define HAS_MODEL
#include <archive/alphabet.hpp>
#include <codec/backend.hpp>
#include <codec/device_backend.hpp>
#include <codec/spline/cpu/engine.hpp>
#include <codec/spline/cpu/rans_tables.hpp>
#include <codec/spline/cuda/rans_model.hpp>
#include <simd/float_mode.hpp>
#endif

#include <algorithm>
#include <memory>

#include "emulator.hpp"

namespace {

struct LookBack {
    const std::uint64_t* states;
    std::uint64_t part;
    std::uint64_t* sum;
};

__global__ void look_back_kernel(const LookBack a) {
    const std::uint64_t sum = cusz::cuda::look_back::sum_before(a.states, a.part);
    if (cusz::cuda::lane() == 0) *a.sum = sum;
}

} // namespace

extern "C" {
SIMT_API int simt_sum_before(const std::uint64_t* states, std::uint64_t part, std::uint64_t* sum);
#ifdef HAS_MODEL
// Sizes of SplineCounts, ModelScratch, ChosenModel and EncodingTables.
SIMT_API void simt_model_sizes(std::size_t* sizes);
SIMT_API int simt_choose_model(cusz::cuda::SplineCounts* counts, const std::uint64_t* weights,
                               cusz::cuda::ModelScratch* scratch, cusz::cuda::ChosenModel* model,
                               cusz::cuda::EncodingTables* encoding);
SIMT_API void simt_choose_model_on_cpu(const cusz::cuda::SplineCounts* counts, const std::uint64_t* weights,
                                       cusz::cuda::ChosenModel* model, cusz::cuda::EncodingTables* encoding);
SIMT_API void simt_forecast(cusz_dtype dtype, int ndim, const std::uint64_t* shape, const void* field, int device,
                            cusz_predictor predictor, double eb, double fill, std::uint64_t* result);
#endif
}

// sum: of the parts before this one, by one warp. All memory is the device's. Returns the launch's error.
int simt_sum_before(const std::uint64_t* states, std::uint64_t part, std::uint64_t* sum) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1);
    config.blockDim = dim3(cusz::cuda::warp_lanes);
    const LookBack arguments{states, part, sum};
    const cudaError_t error = cudaLaunchKernelEx(&config, look_back_kernel, arguments);
    return error != cudaSuccess ? error : cudaDeviceSynchronize();
}

#ifdef HAS_MODEL
void simt_model_sizes(std::size_t* sizes) {
    using namespace cusz::cuda;
    const std::size_t all[] = {sizeof(SplineCounts), sizeof(ModelScratch), sizeof(ChosenModel), sizeof(EncodingTables)};
    std::copy(std::begin(all), std::end(all), sizes);
}

// All memory but the weights is the device's. Returns the launches' error.
int simt_choose_model(cusz::cuda::SplineCounts* counts, const std::uint64_t* weights, cusz::cuda::ModelScratch* scratch,
                      cusz::cuda::ChosenModel* model, cusz::cuda::EncodingTables* encoding) {
    cusz::cuda::choose_model({counts, {weights[0], weights[1], weights[2]}, scratch, model, encoding}, nullptr);
    return cudaDeviceSynchronize();
}

// The same by choose_model and RansWriting; of the tables only what the device sets.
void simt_choose_model_on_cpu(const cusz::cuda::SplineCounts* counts, const std::uint64_t* weights,
                              cusz::cuda::ChosenModel* model, cusz::cuda::EncodingTables* encoding) {
    using namespace cusz;
    const auto sum = std::make_unique<RansCounts>(), part = std::make_unique<RansCounts>();
    for (std::uint32_t lattice = 0; lattice < 3; ++lattice) {
        part->clear();
        for (std::uint32_t c = v2::row_of(lattice, 1); c < v2::row_of(lattice, 1) + v2::row_of(1, 1); ++c) {
            std::copy_n(counts->symbol[c], v2::n_symbols, part->symbol[c].begin());
            part->used[c] = std::any_of(part->symbol[c].begin(), part->symbol[c].end(), [](auto n) { return n > 0; });
        }
        for (std::uint32_t c = 0; c < v2::n_group_contexts; ++c)
            std::copy_n(counts->group[lattice][c], 2, part->group[lattice > 0 ? 1 : 0][c].begin());
        sum->add(*part, weights[lattice], weights[lattice]);
    }
    const RansModel chosen = choose_model(*sum);
    model->n_tables = chosen.n_tables;
    model->bytes = static_cast<std::uint32_t>(chosen.bytes().size());
    std::copy(chosen.significant.begin(), chosen.significant.end(), model->significant);
    for (std::uint32_t t = 0; t < v2::max_tables; ++t)
        std::copy(chosen.frequency[t].begin(), chosen.frequency[t].end(), model->frequency[t]);
    std::copy(chosen.table.begin(), chosen.table.end(), model->table);

    const auto writing = std::make_unique<cpu::RansWriting>();
    writing->set(chosen);
    for (std::uint32_t entry = 0; entry <= idle_entry; ++entry) {
        const std::uint64_t of_entry = writing->frequency_and_start[entry], frequency = of_entry >> 16;
        if (frequency == 0) continue;
        const std::uint64_t reciprocal = frequency == 1 ? UINT32_MAX : (std::uint64_t{1} << 32) / frequency;
        encoding->interval[entry] = (of_entry & 0xFFFF) | frequency << 16 | reciprocal << 32;
    }
    for (std::uint32_t t = 0; t < chosen.n_tables; ++t)
        std::copy_n(writing->coded_as[t], v2::n_symbols, encoding->coded_as[t]);
    encoding->table_of = writing->table_of;
}

// What the writer expects of a field before it chooses (codec/spline/cpu/engine.hpp, Forecast): halved axes, curves,
// alpha, beta, bytes of the spline codec and of the other. device: the field's, or -1. An absolute bound; fill: of
// missing values.
void simt_forecast(cusz_dtype dtype, int ndim, const std::uint64_t* shape, const void* field, int device,
                   cusz_predictor predictor, double eb, double fill, std::uint64_t* result) {
    using namespace cusz;
    const FloatMode mode;
    const Layout layout(dtype, ndim, shape);
    Coding coding;
    coding.predictor = predictor;
    coding.r = default_r;
    coding.eb = eb;
    coding.has_fill = true;
    coding.special = dtype == CUSZ_F32 ? special_pattern<float>(true, fill) : special_pattern<double>(true, fill);
    const auto backend = cuda::make_backend();
    resolve_bound(*backend, layout, coding, {field, device}, 1);
    const auto host_backend = make_cpu_backend();
    auto& engine = dynamic_cast<cpu::SplineEngine&>(host_backend->engine(*codecs_for(CUSZ_PREDICTOR_SPLINE).front()));
    const auto read = [&](std::vector<TileBox>& boxes) { return backend->read_boxes(layout, {field, device}, boxes); };
    const cpu::Forecast found = engine.forecast(layout, coding, read, 1);
    const std::uint64_t all[] = {found.spline.halved, found.spline.cubic, found.spline.alpha,
                                 found.spline.beta,   found.spline_bytes, found.lorenzo_bytes};
    std::copy(std::begin(all), std::end(all), result);
}
#endif
