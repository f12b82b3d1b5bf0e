// The interface between main.cpp and a compressor: each adapter in this folder implements it with the compressor's own
// functions.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

struct Task {
    bool f64;
    std::array<std::size_t, 3> extents; // the fastest last; leading ones for fewer dimensions
    double eb;                          // absolute
    std::string variant;

    std::size_t values() const { return extents[0] * extents[1] * extents[2]; }
    std::size_t bytes() const { return values() * (f64 ? 8 : 4); }
    int ndim() const { return extents[0] > 1 ? 3 : extents[1] > 1 ? 2 : 1; }
};

// Fields are in device memory. Work goes to the default stream or to one that waits for it, so that events there time
// it.
class Peer {
public:
    virtual ~Peer() = default;
    // Does what a caller must do before the next call. It is not timed.
    virtual void prepare() {}
    virtual void compress(void* field) = 0;
    // After the last compression: number of bytes that decompression needs.
    virtual std::size_t archive_bytes() = 0;
    virtual void decompress(void* field) = 0;
};

std::unique_ptr<Peer> make_peer(const Task& task);

inline void require(bool ok, const std::string& what) {
    if (!ok) throw std::runtime_error(what);
}

inline void check(cudaError_t error, const char* what) {
    require(error == cudaSuccess, std::string(what) + ": " + cudaGetErrorString(error));
}

template <class T = std::byte>
class DeviceArray {
public:
    explicit DeviceArray(std::size_t count) : count_(count) {
        check(cudaMalloc(&memory_, count * sizeof(T)), "cudaMalloc");
        clear();
    }
    ~DeviceArray() { static_cast<void>(cudaFree(memory_)); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    T* data() const { return static_cast<T*>(memory_); }
    std::size_t bytes() const { return count_ * sizeof(T); }
    void clear() const { check(cudaMemsetAsync(memory_, 0, bytes()), "cudaMemset"); }

private:
    void* memory_ = nullptr;
    std::size_t count_;
};
