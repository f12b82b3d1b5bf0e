// FZ-GPU through its kernels, which share its only source file with a main. Only f32.
#define main fzgpu_main
#include "src/fz.cu"
#undef main

#include "peer.hpp"

namespace {

// Arrays and launches as in its runFzgpu. Sizes: 2 bytes of code per value, in chunks of 4096 bytes.
class FzGpu final : public Peer {
public:
    explicit FzGpu(const Task& task)
        : task_(task), n_chunks_((2 * task.values() + chunk_bytes - 1) / chunk_bytes), codes_(n_chunks_ * chunk_values),
          decoded_codes_(n_chunks_ * chunk_values), archive_(n_chunks_ * chunk_values),
          signs_(n_chunks_ * chunk_values), flags_(n_chunks_ * flags_of_chunk), starts_(n_chunks_), sizes_(n_chunks_),
          used_(1) {
        require(!task.f64, "FZ-GPU has no f64");
        extents_ = dim3(static_cast<unsigned>(task.extents[2]), static_cast<unsigned>(task.extents[1]),
                        static_cast<unsigned>(task.extents[0]));
    }

    void compress(void* field) override {
        float time = 0;
        used_.clear();
        cusz::experimental::launch_construct_LorenzoI_var<float, std::uint16_t, float>(
            static_cast<float*>(field), codes_.data(), signs_.data(), extents_, task_.eb, time, nullptr);
        compressionFusedKernel<<<grid(), block()>>>(words(codes_), words(archive_), used_.data(), flags_.data(),
                                                    starts_.data(), sizes_.data());
        check(cudaGetLastError(), "compressionFusedKernel");
    }

    // Counted as in its program: flags, payload, starts of chunks.
    std::size_t archive_bytes() override {
        std::uint32_t used = 0;
        check(cudaMemcpy(&used, used_.data(), sizeof used, cudaMemcpyDeviceToHost), "cudaMemcpy");
        codes_.clear();
        signs_.clear();
        return flags_.bytes() + sizeof(std::uint32_t) * used + starts_.bytes();
    }

    void decompress(void* field) override {
        float time = 0;
        decompressionFusedKernel<<<grid(), block()>>>(words(archive_), words(decoded_codes_), flags_.data(),
                                                      starts_.data());
        check(cudaGetLastError(), "decompressionFusedKernel");
        cusz::experimental::launch_reconstruct_LorenzoI_var<float, std::uint16_t, float>(
            signs_.data(), decoded_codes_.data(), static_cast<float*>(field), extents_, task_.eb, time, nullptr);
    }

private:
    static constexpr std::size_t chunk_bytes = 4096, chunk_values = 2048, flags_of_chunk = 8;

    static std::uint32_t* words(const DeviceArray<std::uint16_t>& array) {
        return reinterpret_cast<std::uint32_t*>(array.data());
    }
    dim3 grid() const { return dim3(static_cast<unsigned>(n_chunks_)); }
    static dim3 block() { return dim3(32, 32); }

    Task task_;
    std::size_t n_chunks_;
    dim3 extents_;
    DeviceArray<std::uint16_t> codes_, decoded_codes_, archive_;
    DeviceArray<bool> signs_;
    DeviceArray<std::uint32_t> flags_, starts_, sizes_, used_;
};

} // namespace

std::unique_ptr<Peer> make_peer(const Task& task) { return std::make_unique<FzGpu>(task); }
