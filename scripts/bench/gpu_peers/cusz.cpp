// cuSZ through its C functions: Lorenzo predictor, 1024 bins, Huffman codes, the defaults of its command line.
#include "cusz.h"
#include "cusz_rev1.h"
#include "peer.hpp"
#include "utils/verinfo.h"

// Its functions that print versions need libraries that are not available everywhere, and are not used here.
extern "C" {
void print_CXX_ver() {}
void print_NVCC_ver() {}
int print_CUDA_driver() { return 0; }
int print_NVIDIA_driver() { return 0; }
void CUDA_devices() {}
}

namespace {

class CuSz final : public Peer {
public:
    explicit CuSz(const Task& task) : task_(task), extents_{task.extents[2], task.extents[1], task.extents[0]} {
        check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    }
    ~CuSz() override {
        release(writer_);
        release(reader_);
        static_cast<void>(cudaStreamDestroy(stream_));
    }

    // The resource manager keeps the histogram and outliers of an earlier call, so every call needs a new one.
    void prepare() override {
        release(writer_);
        writer_ = psz_create_resource_manager(
            task_.f64 ? F8 : F4, extents_, {DEFAULT_PREDICTOR, DEFAULT_HISTOGRAM, DEFAULT_CODEC, NULL_CODEC}, stream_);
        require(writer_ != nullptr, "cuSZ has no resources");
    }

    void compress(void* field) override {
        const psz_rc2 config{Abs, task_.eb, DEFAULT_RADIUS};
        std::uint8_t* archive = nullptr;
        const int status =
            task_.f64 ? psz_compress_double(writer_, config, static_cast<double*>(field), &header_, &archive, &size_)
                      : psz_compress_float(writer_, config, static_cast<float*>(field), &header_, &archive, &size_);
        require(status == PSZ_SUCCESS, "cuSZ returns " + std::to_string(status));
        require(archive != nullptr, "cuSZ wrote no archive: too many outliers");
        archive_ = archive;
    }

    // A resource manager that has only the header reads a copy of the archive, which is followed by spare room.
    std::size_t archive_bytes() override {
        copy_ = std::make_unique<DeviceArray<std::uint8_t>>(size_ + (1 << 16));
        check(cudaMemcpy(copy_->data(), archive_, size_, cudaMemcpyDeviceToDevice), "cudaMemcpy");
        release(writer_);
        reader_ = psz_create_resource_manager_from_header(&header_, stream_);
        return size_;
    }

    void decompress(void* field) override {
        const int status = task_.f64 ? psz_decompress_double(reader_, copy_->data(), size_, static_cast<double*>(field))
                                     : psz_decompress_float(reader_, copy_->data(), size_, static_cast<float*>(field));
        require(status == PSZ_SUCCESS, "cuSZ returns " + std::to_string(status));
    }

private:
    static void release(psz_resource*& manager) {
        if (manager != nullptr) psz_release_resource(manager);
        manager = nullptr;
    }

    Task task_;
    psz_len3 extents_;
    cudaStream_t stream_ = nullptr;
    psz_resource *writer_ = nullptr, *reader_ = nullptr;
    psz_header header_{};
    const std::uint8_t* archive_ = nullptr;
    std::size_t size_ = 0;
    std::unique_ptr<DeviceArray<std::uint8_t>> copy_;
};

} // namespace

std::unique_ptr<Peer> make_peer(const Task& task) { return std::make_unique<CuSz>(task); }
