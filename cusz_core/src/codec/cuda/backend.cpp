// The CUDA backend: what every codec needs of it, for data on the host, on the device, or both.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "archive/checksum.hpp"
#include "codec/device_backend.hpp"
#include "codec/through_host.hpp"
#include "device/queue.hpp"
#include "errors.hpp"
#include "logarithms.hpp"
#include "pieces.hpp"
#include "sample_boxes.hpp"
#include "value_range.hpp"

namespace cusz::cuda {

namespace {

int number_of_current_device() {
    int device = 0;
    CUSZ_CUDA(cudaGetDevice(&device));
    return device;
}

int first_device() {
    const char* reason = nullptr;
    if (device_count(&reason) == 0) fail(CUSZ_ERROR_DEVICE, reason, ": use the cpu backend (or auto)");
    return number_of_current_device();
}

class CudaBackend final : public DeviceBackend {
    static auto buffers(auto& own) { return std::array{&own.result_, &own.boxes_, &own.logs_, &own.signs_}; }
    cudaStream_t stream() const { return queue_.stream(); }
    void done(const char* stage) const { queue_.done(stage); }

    template <class T>
    const void* read_boxes_as(const Source& field, std::vector<TileBox>& boxes) {
        std::vector<BoxToCopy> to_copy;
        std::uint64_t n = 0;
        for (TileBox& box : boxes) {
            to_copy.push_back({box, n});
            box.offset = n;
            for (std::size_t a = 0, stride = 1; a < 4; stride *= box.edge[a++]) box.stride[a] = stride;
            n += box.values();
        }
        Parts parts(nullptr);
        parts.take<T>(static_cast<std::size_t>(n));
        parts.take<BoxToCopy>(to_copy.size());
        parts = Parts(boxes_.reserve<std::byte>(queue_.source, parts.used()));
        T* const values = parts.take<T>(static_cast<std::size_t>(n));
        auto* const device_boxes = parts.take<BoxToCopy>(to_copy.size());
        queue_.staging.copy(device_boxes, to_copy.data(), to_copy.size() * sizeof(BoxToCopy), stream());
        const CopyBoxesArguments<T> a{field.as<T>(), values, device_boxes, static_cast<std::uint32_t>(to_copy.size())};
        copy_boxes(a, stream());
        done("copy_boxes");
        T* const copy = box_copy_.reserve<T>(static_cast<std::size_t>(n));
        queue_.staging.copy(copy, a.copy, static_cast<std::size_t>(n) * sizeof(T), stream());
        return copy;
    }

public:
    ~CudaBackend() override { release_scratch(); }

    Engine& engine(const Codec& codec) override {
        auto& engine = engines_[codec.number()];
        if (!engine)
            engine = codec.on_device != nullptr
                         ? codec.on_device(queue_, *cpu_)
                         : std::make_unique<ThroughHost>(cpu_->engine(codec),
                                                         [this](void* target, const void* source, std::size_t bytes) {
                                                             copy(target, source, bytes);
                                                         });
        return *engine;
    }

    int current_device() override { return number_of_current_device(); }
    void use(int device) override {
        if (device == queue_.device) return;
        release_scratch();
        queue_.device = device;
    }
    // Scratch memory is kept: all work on it has finished.
    void set_stream(void* stream) override { queue_.source.stream = static_cast<cudaStream_t>(stream); }
    void set_allocator(const cusz_allocator* allocator) override {
        const cusz_allocator next = allocator != nullptr ? *allocator : cusz_allocator{};
        const cusz_allocator& last = queue_.source.allocator;
        if (next.allocate == last.allocate && next.release == last.release && next.user == last.user) return;
        release_scratch();
        queue_.source.allocator = next;
    }
    void observe(StageObserver observer) override { queue_.observer = std::move(observer); }
    void copy(void* target, const void* source, std::size_t bytes) override {
        queue_.run([&] {
            queue_.staging.copy(target, source, bytes, stream());
            queue_.wait(); // a call may end with this copy
        });
    }

    void fetch(std::span<const Transfer> transfers) override {
        queue_.run([&] { queue_.staging.fetch(transfers, stream()); });
    }

    ValueRange value_range(cusz_dtype dtype, std::uint64_t values, const Source& field, std::uint64_t special,
                           int threads) override {
        if (!field.on_device()) return cpu_->value_range(dtype, values, field, special, threads);
        return queue_.run([&] {
            return dtype == CUSZ_F32 ? value_range_of<float>(field, values, static_cast<std::uint32_t>(special))
                                     : value_range_of<double>(field, values, special);
        });
    }

    const void* read_boxes(const Layout& layout, const Source& field, std::vector<TileBox>& boxes) override {
        if (!field.on_device()) return cpu_->read_boxes(layout, field, boxes);
        require_aligned(field, layout.value_bytes());
        return queue_.run([&] {
            return layout.dtype == CUSZ_F32 ? read_boxes_as<float>(field, boxes) : read_boxes_as<double>(field, boxes);
        });
    }

    ExponentRange exponent_range(const Layout& layout, const Source& field, std::uint64_t special,
                                 int threads) override {
        if (!field.on_device()) return cpu_->exponent_range(layout, field, special, threads);
        require_aligned(field, layout.value_bytes());
        return queue_.run([&] {
            return layout.dtype == CUSZ_F32
                       ? exponents_of<float>(field, layout.values, static_cast<std::uint32_t>(special))
                       : exponents_of<double>(field, layout.values, special);
        });
    }

    Target log_memory(const Source& near, std::size_t bytes) override {
        if (!near.on_device()) return cpu_->log_memory(near, bytes);
        return queue_.run(
            [&] { return Target{logs_.reserve<std::byte>(queue_.source, bytes), near.device, near.name}; });
    }

    bool to_logs(const Layout& layout, const Source& field, const LogScale& scale, std::uint64_t special, int threads,
                 const Target& logs, std::uint64_t* signs) override {
        if (!field.on_device()) return cpu_->to_logs(layout, field, scale, special, threads, logs, signs);
        return queue_.run([&] {
            const std::uint64_t words = (layout.values + 63) / 64 * 2;
            auto* const found = queue_.cleared<std::uint32_t>(signs_, words);
            auto* const any = queue_.cleared<std::uint32_t>(result_, 1);
            if (layout.dtype == CUSZ_F32)
                cuda::to_logs(ToLogsArguments<float>{field.as<float>(), layout.values, scale,
                                                     static_cast<std::uint32_t>(special), logs.pointer, found, any},
                              stream());
            else
                cuda::to_logs(ToLogsArguments<double>{field.as<double>(), layout.values, scale, special, logs.pointer,
                                                      found, any},
                              stream());
            done("to_logs");
            if (queue_.fetched(any) == 0) return false;
            queue_.staging.copy(signs, found, static_cast<std::size_t>(words) * 4, stream());
            return true;
        });
    }

    void from_logs(const Layout& layout, const Source& logs, const LogScale& scale, std::uint64_t special,
                   const std::uint64_t* signs, int threads, const Target& field) override {
        if (!field.on_device()) return cpu_->from_logs(layout, logs, scale, special, signs, threads, field);
        require_aligned(field, layout.value_bytes());
        queue_.run([&] {
            std::uint32_t* given = nullptr;
            if (signs != nullptr) {
                const std::uint64_t words = (layout.values + 63) / 64 * 2;
                given = signs_.reserve<std::uint32_t>(queue_.source, words);
                queue_.staging.copy(given, signs, static_cast<std::size_t>(words) * 4, stream());
            }
            if (layout.dtype == CUSZ_F32)
                cuda::from_logs(FromLogsArguments<float>{logs.pointer, layout.values, scale,
                                                         static_cast<std::uint32_t>(special), given, field.as<float>()},
                                stream());
            else
                cuda::from_logs(
                    FromLogsArguments<double>{logs.pointer, layout.values, scale, special, given, field.as<double>()},
                    stream());
            done("from_logs");
            queue_.wait();
        });
    }

    std::uint32_t piece_checksum(const Source& data, std::uint64_t bytes, int threads, const Target& target) override {
        if (!data.on_device() && !target.on_device()) return cpu_->piece_checksum(data, bytes, threads, target);
        if (data.on_device() && !target.on_device() && target.pointer != nullptr) {
            // Without a kernel or memory on the device: this also works where there is neither.
            require_aligned(data, 4);
            copy(target.pointer, data.pointer, static_cast<std::size_t>(bytes));
            return cpu_->piece_checksum(target, bytes, threads, {});
        }
        return queue_.run([&] {
            if (!data.on_device())
                queue_.staging.copy(target.pointer, data.pointer, static_cast<std::size_t>(bytes), stream());
            const Source words = data.on_device() ? data : Source(target);
            require_aligned(words, 4);
            PieceArguments arguments{};
            arguments.words = words.as<std::uint32_t>();
            arguments.n = bytes / 4;
            if (data.on_device() && target.on_device()) {
                require_aligned(target, 4);
                arguments.target = target.as<std::uint32_t>();
            }
            arguments.checksum = queue_.cleared<std::uint64_t>(result_, 1);
            if (arguments.n > 0) sum_pieces(arguments, stream());
            done("sum_pieces");
            return fold(queue_.fetched(arguments.checksum));
        });
    }

    std::size_t scratch_bytes() const override {
        std::size_t bytes = queue_.staging.bytes() + cpu_->scratch_bytes() + box_copy_.bytes();
        for (const auto& engine : engines_) bytes += engine ? engine->scratch_bytes() : 0;
        for (const DeviceBuffer* buffer : buffers(*this)) bytes += buffer->bytes();
        return bytes;
    }

    void release_scratch() override {
        for (const auto& engine : engines_)
            if (engine) engine->release_scratch();
        queue_.release(buffers(*this));
        queue_.release_staging();
        box_copy_.release();
        cpu_->release_scratch();
    }

private:
    template <class T>
    ValueRange value_range_of(const Source& field, std::uint64_t n, typename Traits<T>::Bits special) {
        require_aligned(field, sizeof(T));
        using Result = typename RangeArguments<T>::Result;
        std::vector<Result> results(max_blocks());
        const RangeArguments<T> arguments{field.as<T>(), n, special,
                                          result_.reserve<Result>(queue_.source, results.size())};
        compute_range(arguments, stream());
        queue_.fetch(results.data(), arguments.results, results.size());
        return range_of_blocks(std::span<const Result>(results));
    }

    template <class T>
    ExponentRange exponents_of(const Source& field, std::uint64_t n, typename Traits<T>::Bits special) {
        using D = Digits<T>;
        using Result = typename ExponentArguments<T>::Result;
        std::vector<Result> results(max_warps());
        const ExponentArguments<T> arguments{field.as<T>(), n, special,
                                             result_.reserve<Result>(queue_.source, results.size())};
        find_exponents(arguments, stream());
        done("find_exponents");
        queue_.fetch(results.data(), arguments.results, results.size());
        Result all{D::infinity, 0};
        for (const Result& own : results) all = {std::min(all.least, own.least), std::max(all.most, own.most)};
        return {static_cast<int>(all.least >> D::mantissa) - D::bias,
                static_cast<int>(all.most >> D::mantissa) - D::bias};
    }

    Queue queue_{first_device()};
    DeviceBuffer result_;
    DeviceBuffer boxes_;                                            // of a sample
    Buffer box_copy_;                                               // the same on the host
    DeviceBuffer logs_, signs_;                                     // for bounds relative to every value
    std::unique_ptr<HostBackend> cpu_ = make_cpu_backend();         // for data that is only on the host
    std::vector<std::unique_ptr<Engine>> engines_{codecs().size()}; // by the codec's number
};

} // namespace

std::unique_ptr<DeviceBackend> make_backend() { return std::make_unique<CudaBackend>(); }

} // namespace cusz::cuda
