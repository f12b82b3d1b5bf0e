// cuSZp by its C functions. Variants: plain or outlier, with 1 (any field as one row), 2 or 3 dimensions: "outlier 3".
#include "cuSZp.h"
#include "peer.hpp"

namespace {

class CuSzp final : public Peer {
public:
    explicit CuSzp(const Task& task) : task_(task), archive_(2 * task.bytes() + (1 << 20)) {
        const auto split = task.variant.find(' ');
        const std::string name = task.variant.substr(0, split);
        const std::string dimensions = split == std::string::npos ? "" : task.variant.substr(split + 1);
        require(name == "plain" || name == "outlier", "the variant is plain or outlier");
        require(dimensions == "1" || dimensions == std::to_string(task.ndim()), "the field has other dimensions");
        mode_ = name == "plain" ? CUSZP_MODE_PLAIN : CUSZP_MODE_OUTLIER;
        dimension_ = dimensions == "1" ? CUSZP_DIM_1D : dimensions == "2" ? CUSZP_DIM_2D : CUSZP_DIM_3D;
        // cuSZp calls the fastest dimension x (see its test).
        extents_ = make_uint3(static_cast<unsigned>(task.extents[2]), static_cast<unsigned>(task.extents[1]),
                              static_cast<unsigned>(task.extents[0]));
        type_ = task.f64 ? CUSZP_TYPE_DOUBLE : CUSZP_TYPE_FLOAT;
    }

    // Its own tests clear the archive beforehand.
    void prepare() override { archive_.clear(); }

    void compress(void* field) override {
        cuSZp_compress(field, archive_.data(), task_.values(), &size_, static_cast<float>(task_.eb), dimension_,
                       extents_, type_, mode_, nullptr);
    }

    std::size_t archive_bytes() override { return size_; }

    void decompress(void* field) override {
        cuSZp_decompress(field, archive_.data(), task_.values(), size_, static_cast<float>(task_.eb), dimension_,
                         extents_, type_, mode_, nullptr);
    }

private:
    Task task_;
    DeviceArray<unsigned char> archive_;
    std::size_t size_ = 0;
    cuszp_mode_t mode_{};
    cuszp_dim_t dimension_{};
    cuszp_type_t type_{};
    uint3 extents_{};
};

} // namespace

std::unique_ptr<Peer> make_peer(const Task& task) { return std::make_unique<CuSzp>(task); }
