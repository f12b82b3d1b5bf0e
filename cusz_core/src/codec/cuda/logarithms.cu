#include "logarithms.hpp"

#include <type_traits>

#include "device/block.cuh"
#include "device/launch.cuh"

namespace cusz::cuda {

static constexpr std::uint32_t threads = 256, warps = threads / warp_lanes;

// A thread takes values that are a whole grid apart.
static __device__ std::uint64_t first_value() { return std::uint64_t{blockIdx.x} * threads + threadIdx.x; }
static __device__ std::uint64_t grid_values() { return std::uint64_t{gridDim.x} * threads; }

template <class T>
__global__ void __launch_bounds__(threads) exponents_kernel(const ExponentArguments<T> a) {
    using D = Digits<T>;
    using Bits = typename D::Bits;
    Bits least = D::infinity, most = 0;
    for (std::uint64_t i = first_value(); i < a.n; i += grid_values()) {
        const Bits bits = bits_of(a.field[i]), magnitude = bits & ~D::sign;
        const bool counts = magnitude >= D::min_normal && magnitude < D::infinity && bits != a.special;
        least = counts && magnitude < least ? magnitude : least;
        most = counts && magnitude > most ? magnitude : most;
    }
    for (int d = static_cast<int>(warp_lanes) / 2; d > 0; d /= 2) {
        const Bits low = __shfl_xor_sync(whole_warp, least, d), high = __shfl_xor_sync(whole_warp, most, d);
        least = low < least ? low : least;
        most = high > most ? high : most;
    }
    if (lane() == 0) a.results[std::uint64_t{blockIdx.x} * warps + warp()] = {least, most};
}

// V: the type of the logarithms.
template <class T, class V>
__global__ void __launch_bounds__(threads) to_logs_kernel(const ToLogsArguments<T> a) {
    for (std::uint64_t i = first_value(); i - lane() < a.n; i += grid_values()) { // whole warps, for the ballot
        const bool is_inside = i < a.n;
        const T value = is_inside ? a.field[i] : T(0);
        if (is_inside) static_cast<V*>(a.logs)[i] = log_of_value<T, V>(value, a.scale, a.special);
        const std::uint32_t signs = __ballot_sync(whole_warp, is_inside && has_sign(value, a.special));
        if (lane() != 0) continue;
        a.signs[i / warp_lanes] = signs;
        if (signs != 0) atomicOr(a.any, 1u);
    }
}

template <class T, class V>
__global__ void __launch_bounds__(threads) from_logs_kernel(const FromLogsArguments<T> a) {
    using D = Digits<T>;
    for (std::uint64_t i = first_value(); i < a.n; i += grid_values()) {
        const T value = value_of_log<T, V>(static_cast<const V*>(a.logs)[i], a.scale, a.special);
        const auto sign =
            static_cast<typename D::Bits>(a.signs != nullptr ? a.signs[i / warp_lanes] >> i % warp_lanes & 1 : 0);
        a.field[i] = std::bit_cast<T>(static_cast<typename D::Bits>(bits_of(value) | sign * D::sign));
    }
}

template <auto kernel, class Arguments>
static void launch_over(const Arguments& a, cudaStream_t stream) {
    launch<kernel>(a, threads, 0, (a.n + threads - 1) / threads, false, stream);
}

std::size_t max_warps() {
    return std::size_t{max_blocks_of_processor} * static_cast<std::size_t>(Device::current().processors) * warps;
}

template <class T>
void find_exponents(const ExponentArguments<T>& a, cudaStream_t stream) {
    launch<exponents_kernel<T>>(a, threads, 0, max_warps() / warps, true, stream);
}

template <class T>
void to_logs(const ToLogsArguments<T>& a, cudaStream_t stream) {
    if constexpr (std::is_same_v<T, float>)
        if (a.scale.wide) return launch_over<to_logs_kernel<T, double>>(a, stream);
    launch_over<to_logs_kernel<T, T>>(a, stream);
}

template <class T>
void from_logs(const FromLogsArguments<T>& a, cudaStream_t stream) {
    if constexpr (std::is_same_v<T, float>)
        if (a.scale.wide) return launch_over<from_logs_kernel<T, double>>(a, stream);
    launch_over<from_logs_kernel<T, T>>(a, stream);
}

template void find_exponents(const ExponentArguments<float>&, cudaStream_t);
template void find_exponents(const ExponentArguments<double>&, cudaStream_t);
template void to_logs(const ToLogsArguments<float>&, cudaStream_t);
template void to_logs(const ToLogsArguments<double>&, cudaStream_t);
template void from_logs(const FromLogsArguments<float>&, cudaStream_t);
template void from_logs(const FromLogsArguments<double>&, cudaStream_t);

} // namespace cusz::cuda
