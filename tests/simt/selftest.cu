// Tests of the emulator itself: simt_selftest --list, simt_selftest CASE.
#include "selftest_kernels.cuh"

#include "emulator.hpp"

#include <xmmintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace selftest;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool with_asan = true;
#else
constexpr bool with_asan = false;
#endif

void demand(bool holds, std::string_view what, int line = __builtin_LINE()) {
    if (holds) return;
    std::fprintf(stderr, "selftest.cu:%d: this should hold: %.*s\n", line, static_cast<int>(what.size()), what.data());
    std::exit(1);
}
#define DEMAND(...) demand((__VA_ARGS__), #__VA_ARGS__)

void succeeds(cudaError_t error, int line = __builtin_LINE()) {
    demand(error == cudaSuccess, cudaGetErrorName(error), line);
}

// Device memory of n values.
template <class T>
class Values {
public:
    explicit Values(std::size_t n) : n_(n) { succeeds(cudaMalloc(&data_, n * sizeof(T))); }
    Values(std::size_t n, T value) : Values(std::vector<T>(n, value)) {}
    explicit Values(const std::vector<T>& values) : Values(values.size()) {
        succeeds(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
    }
    Values(const Values&) = delete;
    Values& operator=(const Values&) = delete;
    ~Values() { cudaFree(data_); }

    T* data() const { return data_; }
    std::vector<T> read() const {
        std::vector<T> values(n_);
        succeeds(cudaMemcpy(values.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost));
        return values;
    }

private:
    std::size_t n_;
    T* data_ = nullptr;
};

template <class Arguments>
cudaError_t try_launch(void (*kernel)(Arguments), unsigned blocks, unsigned threads, std::size_t shared,
                       const std::type_identity_t<Arguments>& arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    return cudaLaunchKernelEx(&config, kernel, arguments);
}

template <class Arguments>
void launch(void (*kernel)(Arguments), unsigned blocks, unsigned threads, std::size_t shared,
            const std::type_identity_t<Arguments>& arguments, int line = __builtin_LINE()) {
    succeeds(try_launch(kernel, blocks, threads, shared, arguments), line);
}

void under_all_schedules(const std::function<void()>& test) {
    for (const int blocks : {1, 4, 16})
        for (const int order : {0, 1, 2, 2, 2, 2}) {
            static unsigned seed = 0;
            simt_set_schedule(order, ++seed, blocks);
            test();
        }
    simt_set_schedule(0, 0, 4);
}

bool reported(std::string_view text) {
    const bool found = std::string_view(simt_report()).find(text) != std::string_view::npos;
    if (!found) std::fprintf(stderr, "not in the report: %.*s\n", static_cast<int>(text.size()), text.data());
    return found;
}

// Launches the mistake in 2 blocks; expects this error, a report with these words, and that later launches work.
void mistake(Mistake which, int offset, cudaError_t error, std::initializer_list<std::string_view> words,
             unsigned threads = 64, int line = __builtin_LINE()) {
    simt_clear();
    Values<int> memory(4);
    const cudaError_t got = try_launch(make_mistake, 2, threads, 256, {which, memory.data(), offset});
    demand(got == error, cudaGetErrorName(got), line);
    demand(cudaGetLastError() == error && cudaGetLastError() == cudaSuccess, "the last error", line);
    for (const auto word : words) demand(reported(word), "the report", line);
    Values<unsigned> sum(1, 0);
    launch(return_early, 1, 100, 0, {sum.data(), 50}, line);
    demand(sum.read()[0] == 49 * 50 / 2, "the next launch", line);
}

// Cases -------------------------------------------------------------------------------------------------------------

template <class T>
void sums(unsigned threads) {
    const unsigned blocks = 9;
    std::vector<T> host(blocks * threads);
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<T>(i % 1013);
    const Values<T> values(host), result(blocks);
    launch(sum_blocks<T>, blocks, threads, 32 * sizeof(T), {values.data(), result.data()});
    const auto got = result.read();
    for (unsigned b = 0; b < blocks; ++b)
        DEMAND(got[b] == std::accumulate(host.begin() + b * threads, host.begin() + (b + 1) * threads, T(0)));
}
void block_sums() {
    under_all_schedules([] {
        sums<unsigned>(256);
        sums<int>(32);
        sums<float>(1024);
        sums<double>(128);
        sums<std::uint64_t>(256);
        sums<long long>(64);
    });
}
void partial_warps() {
    under_all_schedules([] {
        for (const unsigned threads : {1u, 2u, 31u, 33u, 100u, 255u}) sums<int>(threads);
    });
}

void votes() {
    under_all_schedules([] {
        const unsigned n = 96;
        const Values<Votes> result(n);
        launch(vote, 1, n, 0, result.data());
        const auto got = result.read();
        for (unsigned i = 0; i < n; ++i) {
            const Votes& v = got[i];
            const unsigned first = i & ~31u;
            unsigned quarter = 0;
            for (unsigned k = i & ~7u; k < (i & ~7u) + 8; ++k) quarter |= (k % 3 == 0 ? 1u : 0u) << k % 32;
            DEMAND(v.ballot == 0xAAAAAAAAu && v.quarter_ballot == quarter);
            DEMAND(v.any == 1 && v.all == 1 && v.any_seven == (i < 32));
            DEMAND(v.count == 20 && v.block_or == 1 && v.block_and == 0);
            DEMAND(v.reduced_add == first * 32 + 496 && v.reduced_or == ~0u);
            DEMAND(v.reduced_min == first && v.reduced_max == first + 31);
        }
    });
}

template <class T>
void shuffles_of() {
    for (const int width : {1, 2, 4, 8, 16, 32})
        for (const int operand : {0, 1, 2, 3, 7, 13, 16, 31}) {
            const Values<T> result(64 * 3);
            launch(shuffle<T>, 1, 64, 0, {result.data(), width, operand});
            const auto got = result.read();
            for (int i = 0; i < 64; ++i) {
                const int first = i / width * width, end = first + width;
                const auto value = [](int thread) { return static_cast<T>(1000 + thread); };
                DEMAND(got[i * 3] == value(first + operand % width));
                DEMAND(got[i * 3 + 1] == value(i - operand >= first ? i - operand : i));
                const int other = i / 32 * 32 + ((i % 32) ^ operand);
                DEMAND(got[i * 3 + 2] == value(other < end ? other : i));
            }
        }
}
void shuffles() {
    shuffles_of<int>();
    shuffles_of<unsigned>();
    shuffles_of<long>();
    shuffles_of<unsigned long>();
    shuffles_of<long long>();
    shuffles_of<unsigned long long>();
    shuffles_of<float>();
    shuffles_of<double>();
}

void atomics() {
    under_all_schedules([] {
        const unsigned blocks = 7, threads = 200, n = blocks * threads;
        const Values<unsigned> histogram(16, 0), bits(8, 0);
        const Values<unsigned long long> sum(1, 1);
        const Values<int> most(1, -100);
        launch(use_atomics, blocks, threads, 64, {histogram.data(), bits.data(), sum.data(), most.data()});
        for (unsigned i = 0; i < 16; ++i) DEMAND(histogram.read()[i] == n / 16 + (i < n % 16));
        for (const unsigned word : bits.read()) DEMAND(word == ~0u);
        DEMAND(sum.read()[0] == 1 + n * (n - 1) / 2 && most.read()[0] == static_cast<int>(n) - 8);
    });
}

void early_exit() {
    under_all_schedules([] {
        for (const unsigned from : {0u, 1u, 7u, 32u, 50u, 99u}) {
            const Values<unsigned> sum(1, 0);
            launch(return_early, 1, 100, 0, {sum.data(), from});
            DEMAND(sum.read()[0] == (from == 0 ? 0 : from * (from - 1) / 2));
        }
    });
}

void missing_barrier() {
    const auto wrong = [](bool wait) {
        const unsigned n = 128;
        const Values<unsigned> result(n);
        launch(take_neighbours, 1, n, n * sizeof(unsigned), {result.data(), wait});
        const auto got = result.read();
        unsigned count = 0;
        for (unsigned i = 0; i < n; ++i) count += got[i] != (i + 1) % n;
        return count;
    };
    unsigned seen = 0;
    under_all_schedules([&] {
        DEMAND(wrong(true) == 0);
        seen += wrong(false) > 0;
    });
    DEMAND(seen > 0);
}

void divergent_barriers() {
    under_all_schedules([] {
        mistake(Mistake::barriers_in_branches, 0, cudaErrorLaunchFailure,
                {"different barriers", "__syncthreads at", "make_mistake", "selftest_kernels.cuh:"});
        mistake(Mistake::barrier_and_shuffle, 0, cudaErrorLaunchFailure, {"different barriers", "block ("});
    });
}
void missing_lane() {
    under_all_schedules([] {
        mistake(Mistake::missing_lane, 0, cudaErrorLaunchFailure,
                {"threads wait for ever", "threads 0-4, 6-31: wait in __shfl_sync", "without lanes 5",
                 "threads 5, 37: wait in __syncthreads", "mask 0xffffffff"});
    });
}
void masks() {
    under_all_schedules([] {
        mistake(Mistake::foreign_mask, 0, cudaErrorLaunchFailure, {"does not name lane", "__ballot_sync"});
        mistake(Mistake::different_masks, 0, cudaErrorLaunchFailure, {"0xffffffff", "0xffff0001", "masks"});
        mistake(Mistake::different_calls, 0, cudaErrorLaunchFailure, {"different calls", "__any_sync", "__all_sync"});
    });
}
void endless_spin() {
    for (const int order : {0, 1, 2}) {
        simt_set_schedule(order, 1, 2);
        mistake(Mistake::spin, 0, cudaErrorLaunchFailure, {"only spins", "spin with __nanosleep", "in flight"});
        mistake(Mistake::spin_on_atomic, 0, cudaErrorLaunchFailure, {"only spins", "atomic"});
    }
}

void shared_overrun() {
    if (with_asan) return; // ends the process
    under_all_schedules([] {
        mistake(Mistake::shared_behind, 64, cudaErrorLaunchFailure,
                {"byte 256 was written in dynamic shared memory of 256 bytes", "make_mistake", "block ("});
        mistake(Mistake::shared_behind, 65, cudaErrorLaunchFailure, {"byte 260 was written"});
        mistake(Mistake::shared_far_behind, 50000, cudaErrorLaunchFailure, {"byte 200000 was written"});
        mistake(Mistake::shared_before, -1, cudaErrorLaunchFailure, {"byte -4 was written"});
    });
}
void red_zones() {
    if (with_asan) return;
    mistake(Mistake::global_behind, 4, cudaErrorLaunchFailure,
            {"byte 16 of an allocation of 16 bytes", "kernel", "make_mistake"});
    mistake(Mistake::global_before, -1, cudaErrorLaunchFailure, {"byte -4 of an allocation of 16 bytes"});

    // written by the host: detected when the host waits, and when the memory is freed
    char* memory = nullptr;
    succeeds(cudaMalloc(&memory, 100));
    memory[100] = 1;
    DEMAND(cudaDeviceSynchronize() == cudaErrorLaunchFailure && reported("byte 100 of an allocation of 100 bytes"));
    succeeds(cudaDeviceSynchronize());
    memory[-2] = 1;
    DEMAND(cudaFree(memory) == cudaErrorLaunchFailure && reported("byte -2 of"));
    DEMAND(simt_allocated_bytes() == 0);
}
void faults() {
    if (with_asan) return;
    under_all_schedules([] {
        mistake(Mistake::null, 0, cudaErrorIllegalAddress, {"illegal access", "thread (3, 0, 0)"});
        mistake(Mistake::stack, 0, cudaErrorIllegalAddress, {"stack is full"});
        mistake(Mistake::assertion, 0, cudaErrorAssert, {"threadIdx.x != 3", "selftest_kernels.cuh:"});
    });
}

void fresh_memory() {
    const auto first_words = [] {
        const Values<unsigned> words(3);
        launch(copy_shared, 3, 1, 64, words.data());
        return words.read();
    };
    for (const int order : {0, 1, 2}) {
        simt_set_schedule(order, 5, 4);
        for (const unsigned word : first_words()) DEMAND(word != 0);
    }
    const auto raw = Values<unsigned>(1).read();
    DEMAND(raw[0] != 0);
}

void shared_limits() {
    const Values<unsigned> words(1);
    const auto with = [&](std::size_t bytes) { return try_launch(copy_shared, 1, 1, bytes, words.data()); };
    const auto raise = [](int bytes) {
        return cudaFuncSetAttribute(copy_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    };
    succeeds(with(48 * 1024));
    DEMAND(with(48 * 1024 + 1) == cudaErrorInvalidValue);
    succeeds(raise(227 * 1024));
    succeeds(with(227 * 1024));
    DEMAND(with(227 * 1024 + 1) == cudaErrorInvalidValue && raise(227 * 1024 + 1) == cudaErrorInvalidValue);
    DEMAND(try_launch(copy_shared, 0, 1, 0, words.data()) == cudaErrorInvalidConfiguration);
    DEMAND(try_launch(copy_shared, 1, 1025, 0, words.data()) == cudaErrorInvalidConfiguration);
    int blocks = 0, bytes = 0;
    succeeds(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, copy_shared, 256, 1024));
    succeeds(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    DEMAND(blocks == 2 && bytes == 227 * 1024);
}

void failure_injection() {
    simt_clear();
    void* memory = nullptr;
    simt_fail_call("cudaMallocAsync", 2);
    succeeds(cudaMallocAsync(&memory, 8, nullptr));
    void* none = nullptr;
    DEMAND(cudaMallocAsync(&none, 8, nullptr) == cudaErrorMemoryAllocation && none == nullptr);
    DEMAND(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    succeeds(cudaFreeAsync(memory, nullptr));
    DEMAND(simt_calls("cudaMallocAsync") == 2 && simt_calls("*") == 3);

    simt_fail_call("cudaStreamSynchronize", 1);
    DEMAND(cudaStreamSynchronize(nullptr) == cudaErrorLaunchFailure);
    succeeds(cudaStreamSynchronize(nullptr));
    simt_fail_call("cudaStreamSynchronize", 1);
    simt_fail_call("cudaStreamSynchronize", 0);
    succeeds(cudaStreamSynchronize(nullptr));

    const Values<float> values(1, 4);
    simt_fail_call("cudaLaunchKernelEx", 1);
    DEMAND(try_launch(halve, 1, 1, 0, values.data()) == cudaErrorLaunchFailure && values.read()[0] == 4);
    launch(halve, 1, 1, 0, values.data());
    DEMAND(values.read()[0] == 2);
    simt_fail_call("*", 2);
    succeeds(cudaDeviceSynchronize());
    DEMAND(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    succeeds(cudaDeviceSynchronize());
}

void memory_limit() {
    simt_reset_peak();
    simt_set_memory_limit(1000);
    void *first = nullptr, *second = nullptr;
    std::size_t on_host = 0;
    succeeds(cudaMalloc(&first, 600));
    DEMAND(cudaMalloc(&second, 401) == cudaErrorMemoryAllocation && second == nullptr);
    succeeds(cudaMallocAsync(&second, 400, nullptr));
    DEMAND(simt_allocated_bytes() == 1000);
    succeeds(cudaFree(first));
    succeeds(cudaFreeAsync(second, nullptr));
    DEMAND(simt_allocated_bytes() == 0 && simt_peak_bytes() == 1000);
    simt_reset_peak();
    DEMAND(simt_peak_bytes() == 0);
    succeeds(cudaMallocHost(&first, 5000)); // not device memory
    DEMAND(simt_pinned_bytes() == 5000);
    succeeds(cudaFreeHost(first));
    DEMAND(simt_pinned_bytes() == 0);
    succeeds(cudaFree(nullptr));
    DEMAND(cudaFree(&on_host) == cudaErrorInvalidValue);
}

void no_device() {
    simt_set_device_count(0);
    int count = -1;
    void* memory = nullptr;
    DEMAND(cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0);
    DEMAND(cudaMalloc(&memory, 1) == cudaErrorNoDevice);
    simt_set_device_count(1);
    succeeds(cudaGetDeviceCount(&count));
    cudaDeviceProp properties;
    succeeds(cudaGetDeviceProperties(&properties, 0));
    DEMAND(count == 1 && std::string_view(properties.name) == "simt emulator");
    DEMAND(cudaGetDeviceProperties(&properties, 1) == cudaErrorInvalidDevice);
}

void pointer_attributes() {
    char *device = nullptr, *pinned = nullptr, plain = 0;
    succeeds(cudaMallocAsync(&device, 1000, nullptr));
    succeeds(cudaMallocHost(&pinned, 1000));
    const auto type = [](const void* pointer) {
        cudaPointerAttributes attributes;
        succeeds(cudaPointerGetAttributes(&attributes, pointer));
        DEMAND(attributes.type != cudaMemoryTypeDevice ||
               (attributes.device == 0 && attributes.devicePointer == pointer));
        return attributes.type;
    };
    for (const int offset : {0, 1, 500, 999}) {
        DEMAND(type(device + offset) == cudaMemoryTypeDevice);
        DEMAND(type(pinned + offset) == cudaMemoryTypeHost);
    }
    DEMAND(type(device + 1000) == cudaMemoryTypeUnregistered && type(device - 1) == cudaMemoryTypeUnregistered);
    DEMAND(type(&plain) == cudaMemoryTypeUnregistered && type(nullptr) == cudaMemoryTypeUnregistered);
    succeeds(cudaFree(device));
    succeeds(cudaFreeHost(pinned));
    DEMAND(type(device) == cudaMemoryTypeUnregistered);
}

void copies() {
    const Values<char> a(100), b(100);
    char host[100] = "something";
    const auto d2h = cudaMemcpyDeviceToHost, h2d = cudaMemcpyHostToDevice, d2d = cudaMemcpyDeviceToDevice;
    succeeds(cudaMemcpyAsync(a.data(), host, 100, h2d));
    succeeds(cudaMemcpyAsync(b.data() + 10, a.data(), 90, d2d));
    succeeds(cudaMemcpyAsync(host, b.data() + 10, 90, cudaMemcpyDefault));
    DEMAND(std::string_view(host) == "something");
    DEMAND(cudaMemcpyAsync(b.data() + 11, a.data(), 90, d2d) == cudaErrorInvalidValue);
    DEMAND(cudaMemcpyAsync(host, a.data() + 1, 100, d2h) == cudaErrorInvalidValue);
    DEMAND(cudaMemcpyAsync(host, a.data(), 10, h2d) == cudaErrorInvalidValue);
    DEMAND(cudaMemcpyAsync(a.data(), host, 10, d2h) == cudaErrorInvalidValue);
    DEMAND(cudaMemcpyAsync(a.data(), host, 10, d2d) == cudaErrorInvalidValue);
    DEMAND(cudaMemcpyAsync(a.data() - 1, host, 10, h2d) == cudaErrorInvalidValue);
    DEMAND(cudaMemsetAsync(a.data(), 1, 101) == cudaErrorInvalidValue);
    DEMAND(cudaMemsetAsync(host, 1, 1) == cudaErrorInvalidValue);
    succeeds(cudaMemsetAsync(a.data() + 99, 7, 1));
    succeeds(cudaMemsetAsync(a.data() + 100, 7, 0));
    DEMAND(a.read()[99] == 7);
    cudaStream_t stream = nullptr;
    succeeds(cudaStreamCreate(&stream));
    succeeds(cudaMemsetAsync(a.data(), 8, 1, stream));
    succeeds(cudaStreamDestroy(stream));
    DEMAND(cudaMemsetAsync(a.data(), 8, 1, stream) == cudaErrorInvalidResourceHandle);
    DEMAND(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
    DEMAND(cudaGetLastError() == cudaErrorInvalidResourceHandle);
}

void copies_under_way() {
    simt_clear();
    const Values<int> device(1, 41);
    int *pinned = nullptr, host = 0;
    cudaStream_t one = nullptr, other = nullptr;
    cudaEvent_t event = nullptr;
    succeeds(cudaMallocHost(&pinned, sizeof(int)));
    succeeds(cudaStreamCreate(&one));
    succeeds(cudaStreamCreate(&other));
    succeeds(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    DEMAND(simt_live_handles() == 3);
    const auto read = [&] {
        succeeds(cudaMemcpyAsync(pinned, device.data(), sizeof(int), cudaMemcpyDeviceToHost, one));
    };

    read();
    DEMAND(*pinned != 41);
    succeeds(cudaStreamSynchronize(other));
    DEMAND(*pinned != 41);
    succeeds(cudaStreamSynchronize(one));
    DEMAND(*pinned == 41);

    succeeds(cudaEventRecord(event, one));
    read();
    succeeds(cudaEventSynchronize(event)); // was recorded too early
    DEMAND(*pinned != 41);
    succeeds(cudaEventRecord(event, one));
    succeeds(cudaEventSynchronize(event));
    DEMAND(*pinned == 41);

    read();
    succeeds(
        cudaMemcpyAsync(&host, device.data(), sizeof(int), cudaMemcpyDeviceToHost, one)); // does not wait for the other
    DEMAND(host == 41);
    succeeds(cudaDeviceSynchronize());
    DEMAND(*pinned == 41);

    succeeds(cudaMemcpyAsync(device.data(), pinned, sizeof(int), cudaMemcpyHostToDevice, one));
    *pinned = 42; // too early
    DEMAND(cudaStreamSynchronize(one) == cudaErrorLaunchFailure && reported("under way"));
    DEMAND(device.read()[0] == 41);

    DEMAND(simt_synchronizations() == 8);
    DEMAND(simt_bytes_to_host() == 5 * sizeof(int));
    succeeds(cudaEventDestroy(event));
    succeeds(cudaStreamDestroy(one));
    succeeds(cudaStreamDestroy(other));
    succeeds(cudaFreeHost(pinned));
    DEMAND(simt_live_handles() == 0);
}

void launched() {
    simt_clear();
    const Values<float> values(4, 0);
    for (int i = 0; i < 3; ++i) launch(halve, 1, 4, 0, values.data());
    sums<double>(32);
    DEMAND(simt_launch_count() == 4);
    std::string text(simt_launched(nullptr, 0), '\0');
    DEMAND(simt_launched(text.data(), text.size()) == text.size());
    DEMAND(text.c_str() == std::string("selftest::halve: 3\nselftest::sum_blocks<double>: 1\n"));
    char little[5];
    simt_launched(little, sizeof(little));
    DEMAND(std::string_view(little) == "self");
}

void float_modes() {
    const float tiny = std::numeric_limits<float>::min();
    const Values<float> values(1, tiny);
    _mm_setcsr(_mm_getcsr() | 0x8040); // subnormals are flushed to zero
    launch(halve, 1, 1, 0, values.data());
    volatile float on_host = tiny;
    on_host = on_host * 0.5f;
    const bool flushed = on_host == 0;
    _mm_setcsr(_mm_getcsr() & ~0x8040u);
    DEMAND(flushed && values.read()[0] == tiny / 2);
}

void host_threads() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([i] {
            for (int k = 0; k < 50; ++k) sums<int>(32u << i);
        });
    for (auto& thread : threads) thread.join();
}

struct Case {
    const char* name;
    void (*run)();
};
constexpr Case cases[] = {{"block_sums", block_sums},
                          {"partial_warps", partial_warps},
                          {"votes", votes},
                          {"shuffles", shuffles},
                          {"atomics", atomics},
                          {"early_exit", early_exit},
                          {"missing_barrier", missing_barrier},
                          {"divergent_barriers", divergent_barriers},
                          {"missing_lane", missing_lane},
                          {"masks", masks},
                          {"endless_spin", endless_spin},
                          {"shared_overrun", shared_overrun},
                          {"red_zones", red_zones},
                          {"faults", faults},
                          {"fresh_memory", fresh_memory},
                          {"shared_limits", shared_limits},
                          {"failure_injection", failure_injection},
                          {"memory_limit", memory_limit},
                          {"no_device", no_device},
                          {"pointer_attributes", pointer_attributes},
                          {"copies", copies},
                          {"copies_under_way", copies_under_way},
                          {"launched", launched},
                          {"float_modes", float_modes},
                          {"host_threads", host_threads}};

} // namespace

int main(int argc, char** argv) {
    const std::string_view wanted = argc == 2 ? argv[1] : "";
    for (const Case& it : cases) {
        if (wanted == "--list") std::printf("%s\n", it.name);
        if (wanted != it.name) continue;
        it.run();
        demand(simt_allocated_bytes() == 0, "all device memory is given back");
        return 0;
    }
    if (wanted == "--list") return 0;
    std::fprintf(stderr, "usage: simt_selftest --list | CASE\n");
    return 2;
}
