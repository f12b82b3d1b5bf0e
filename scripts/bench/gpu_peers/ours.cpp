// This project's engine through its C functions.
#include <cusz/cusz.h>

#include <algorithm>

#include "peer.hpp"

namespace {

class Ours final : public Peer {
public:
    explicit Ours(const Task& task) : task_(task), context_(cusz_create()) {
        require(context_ != nullptr, "out of memory");
        std::copy(task.extents.end() - task.ndim(), task.extents.end(), shape_.begin());
        dtype_ = task.f64 ? CUSZ_F64 : CUSZ_F32;
        std::size_t most = 0;
        check(cusz_max_archive_bytes(dtype_, task.ndim(), shape_.data(), &most));
        archive_ = std::make_unique<DeviceArray<>>(most);
        cusz_params_init(&params_);
        params_.eb = task.eb;
        params_.backend = CUSZ_BACKEND_CUDA;
        params_.predictor = CUSZ_PREDICTOR_LORENZO;
    }
    ~Ours() override { cusz_destroy(context_); }

    void compress(void* field) override {
        check(cusz_compress(context_, &params_, dtype_, task_.ndim(), shape_.data(), field, archive_->data(),
                            archive_->bytes(), &size_));
    }

    std::size_t archive_bytes() override { return size_; }

    void decompress(void* field) override {
        check(cusz_decompress(context_, archive_->data(), size_, CUSZ_BACKEND_CUDA, 1, field, task_.bytes()));
    }

private:
    void check(cusz_status status) const { require(status == CUSZ_OK, cusz_last_error(context_)); }

    Task task_;
    cusz_context* context_;
    cusz_params params_{};
    cusz_dtype dtype_{};
    std::array<std::uint64_t, 3> shape_{};
    std::unique_ptr<DeviceArray<>> archive_;
    std::size_t size_ = 0;
};

} // namespace

std::unique_ptr<Peer> make_peer(const Task& task) { return std::make_unique<Ours>(task); }
