// FSZ through its C functions. It treats every field as one row of values.
#include "fsz/fsz.h"
#include "peer.hpp"

namespace {

class Fsz final : public Peer {
public:
    explicit Fsz(const Task& task)
        : task_(task), archive_(fsz_max_compressed_bytes(task.values()) * (task.f64 ? 2 : 1)) {
        check(fsz_workspace_create(&workspace_, task.values()));
    }
    ~Fsz() override { fsz_workspace_destroy(workspace_); }

    void compress(void* field) override {
        check(task_.f64 ? fsz_compress_f64(static_cast<const double*>(field), archive_.data(), task_.values(), task_.eb,
                                           workspace_, nullptr, &result_)
                        : fsz_compress(static_cast<const float*>(field), archive_.data(), task_.values(),
                                       static_cast<float>(task_.eb), workspace_, nullptr, &result_));
    }

    std::size_t archive_bytes() override { return result_.cmp_size; }

    void decompress(void* field) override {
        check(task_.f64 ? fsz_decompress_f64(static_cast<double*>(field), archive_.data(), task_.values(), task_.eb,
                                             &result_, workspace_, nullptr)
                        : fsz_decompress(static_cast<float*>(field), archive_.data(), task_.values(),
                                         static_cast<float>(task_.eb), &result_, workspace_, nullptr));
    }

private:
    static void check(fsz_status_t status) { require(status == FSZ_STATUS_OK, fsz_status_string(status)); }

    Task task_;
    DeviceArray<unsigned char> archive_;
    fsz_workspace_t* workspace_ = nullptr;
    fsz_compress_result_t result_{};
};

} // namespace

std::unique_ptr<Peer> make_peer(const Task& task) { return std::make_unique<Fsz>(task); }
