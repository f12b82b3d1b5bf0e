// Measures one compressor on one field: the program of gpu_peers.py that is linked with an adapter.
//
//     peer FIELD f32|f64 N0 N1 N2 BOUND REPEAT DECODED [VARIANT]
//
// FIELD holds only the values; the decompressed ones are written to DECODED. The last line printed is JSON: bytes of
// the archive, and microseconds between two CUDA events around every whole call, after two uncounted calls. The field
// is restored before every compression, and the decompressed field is cleared, because some peers overwrite the former
// and rely on the latter; neither is timed.
//
// Memory that a compressor allocates in its calls comes from a pool (the linker redirects allocations to the functions
// below), so that peers that allocate in every call compare fairly with those that get memory from the caller.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <vector>

#include "peer.hpp"

namespace {

// Freed memory, by size.
struct Pool {
    std::multimap<std::size_t, void*> idle;
    std::map<void*, std::size_t> sizes;

    template <class Allocate>
    cudaError_t allocate(void** memory, std::size_t bytes, Allocate allocate_new) {
        const auto found = idle.find(bytes);
        if (found != idle.end()) {
            *memory = found->second;
            idle.erase(found);
            return cudaSuccess;
        }
        const cudaError_t error = allocate_new(memory, bytes);
        if (error == cudaSuccess) sizes[*memory] = bytes;
        return error;
    }

    bool give_back(void* memory) {
        const auto found = sizes.find(memory);
        if (found == sizes.end()) return false;
        idle.emplace(found->second, memory);
        return true;
    }
};

// They are never destroyed: adapters may free memory while the program ends.
Pool& device_pool() {
    static Pool& pool = *new Pool;
    return pool;
}
Pool& host_pool() {
    static Pool& pool = *new Pool;
    return pool;
}

} // namespace

extern "C" {
cudaError_t __real_cudaMalloc(void** memory, std::size_t bytes);
cudaError_t __real_cudaFree(void* memory);
cudaError_t __real_cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags);
cudaError_t __real_cudaFreeHost(void* memory);
cudaError_t __wrap_cudaMalloc(void** memory, std::size_t bytes) {
    return device_pool().allocate(memory, bytes, __real_cudaMalloc);
}
cudaError_t __wrap_cudaFree(void* memory) {
    return device_pool().give_back(memory) ? cudaSuccess : __real_cudaFree(memory);
}
// cudaMallocHost of C++ calls it as well.
cudaError_t __wrap_cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
    if (flags != cudaHostAllocDefault) return __real_cudaHostAlloc(memory, bytes, flags);
    return host_pool().allocate(
        memory, bytes, [](void** m, std::size_t b) { return __real_cudaHostAlloc(m, b, cudaHostAllocDefault); });
}
cudaError_t __wrap_cudaFreeHost(void* memory) {
    return host_pool().give_back(memory) ? cudaSuccess : __real_cudaFreeHost(memory);
}
}

namespace {

constexpr int uncounted = 2;

class Clock {
public:
    Clock() {
        check(cudaEventCreate(&begin_), "cudaEventCreate");
        check(cudaEventCreate(&end_), "cudaEventCreate");
    }
    ~Clock() {
        static_cast<void>(cudaEventDestroy(begin_));
        static_cast<void>(cudaEventDestroy(end_));
    }
    Clock(const Clock&) = delete;
    Clock& operator=(const Clock&) = delete;

    template <class Call>
    double microseconds(Call call) const {
        check(cudaDeviceSynchronize(), "before the call");
        check(cudaEventRecord(begin_), "cudaEventRecord");
        call();
        check(cudaEventRecord(end_), "cudaEventRecord");
        check(cudaDeviceSynchronize(), "the call");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
        return 1e3 * static_cast<double>(milliseconds);
    }

private:
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

void print(const char* name, const std::vector<double>& times) {
    std::printf("\"%s\": [", name);
    for (std::size_t i = 0; i < times.size(); ++i) std::printf("%s%.3f", i == 0 ? "" : ", ", times[i]);
    std::printf("]");
}

void run(int n_words, char** words) {
    require(n_words == 9 || n_words == 10, "usage: peer FIELD f32|f64 N0 N1 N2 BOUND REPEAT DECODED [VARIANT]");
    const std::string path = words[1], type = words[2], decoded_path = words[8];
    require(type == "f32" || type == "f64", "the type is f32 or f64");
    Task task{type == "f64", {}, std::strtod(words[6], nullptr), n_words == 10 ? words[9] : ""};
    for (std::size_t i = 0; i < 3; ++i) task.extents[i] = std::strtoull(words[3 + i], nullptr, 10);
    const int repeat = std::atoi(words[7]);
    require(task.values() > 0 && task.eb > 0 && repeat > 0, "extents, bound and repeat are positive");

    std::vector<char> host(task.bytes());
    std::ifstream file(path, std::ios::binary);
    require(static_cast<bool>(file.read(host.data(), static_cast<std::streamsize>(host.size()))),
            path + " does not hold so many values");
    const DeviceArray<> field(task.bytes()), original(task.bytes()), decoded(task.bytes());
    check(cudaMemcpy(original.data(), host.data(), task.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");

    const std::unique_ptr<Peer> peer = make_peer(task);
    const Clock clock;
    std::vector<double> compression, decompression;
    for (int round = -uncounted; round < repeat; ++round) {
        check(cudaMemcpy(field.data(), original.data(), task.bytes(), cudaMemcpyDeviceToDevice), "cudaMemcpy");
        peer->prepare();
        const double time = clock.microseconds([&] { peer->compress(field.data()); });
        if (round >= 0) compression.push_back(time);
    }
    const std::size_t archive_bytes = peer->archive_bytes();
    field.clear(); // so that nothing is read from it
    for (int round = -uncounted; round < repeat; ++round) {
        decoded.clear();
        const double time = clock.microseconds([&] { peer->decompress(decoded.data()); });
        if (round >= 0) decompression.push_back(time);
    }
    check(cudaMemcpy(host.data(), decoded.data(), task.bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(cudaGetLastError(), "CUDA");
    std::ofstream out(decoded_path, std::ios::binary);
    require(static_cast<bool>(out.write(host.data(), static_cast<std::streamsize>(host.size()))),
            decoded_path + " cannot be written");

    std::printf("\n{\"archive_bytes\": %zu, ", archive_bytes);
    print("compress_us", compression);
    std::printf(", ");
    print("decompress_us", decompression);
    std::printf("}\n");
}

} // namespace

int main(int n_words, char** words) {
    try {
        run(n_words, words);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}
