// Times the stages of the CUDA engine on a field in device memory, with CUDA events recorded when the engine reports
// the work that it has put on its stream (StageObserver in device.hpp). gpu.py loads this with ctypes, and compares the
// output with the results of cusz_compress and cusz_decompress.
//
// Before every round, memory larger than any cache is overwritten. So the caches are cold, and the host is ahead of the
// device: a stage's time is measured on the device, from the end of the previous stage to its own end, without waiting
// for the host. The time between two events in a row is given as well.
#include <cusz/cusz.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "codec/backend.hpp"
#include "codec/device_backend.hpp"
#include "device/check.hpp"

namespace {

using namespace cusz;
using namespace cusz::cuda;

constexpr int max_stages = 16;

template <class T>
class DeviceArray {
public:
    explicit DeviceArray(std::size_t count) : bytes_(std::max<std::size_t>(count, 1) * sizeof(T)) {
        CUSZ_CUDA(cudaMalloc(&memory_, bytes_));
        CUSZ_CUDA(cudaMemset(memory_, 0, bytes_));
    }
    ~DeviceArray() { static_cast<void>(cudaFree(memory_)); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    T* data() const { return static_cast<T*>(memory_); }
    std::size_t bytes() const { return bytes_; }

private:
    void* memory_ = nullptr;
    std::size_t bytes_;
};

struct Stream {
    cudaStream_t handle = nullptr;
    Stream() { CUSZ_CUDA(cudaStreamCreate(&handle)); }
    ~Stream() { static_cast<void>(cudaStreamDestroy(handle)); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
};

struct Event {
    cudaEvent_t handle = nullptr;
    Event() { CUSZ_CUDA(cudaEventCreate(&handle)); }
    ~Event() { static_cast<void>(cudaEventDestroy(handle)); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
};

double median(std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

} // namespace

extern "C" {

// The result for gpu.py. Times are medians, in microseconds.
struct cusz_stage_times {
    std::int32_t n_stages;
    char name[max_stages][32];
    double time[max_stages];
    double nothing;              // two events in a row
    std::uint64_t archive_bytes; // 0: the field is stored raw, and decompression was not timed
};

// field, archive (of cusz_max_archive_bytes), decoded: device memory. Returns 0, or 1 with a message.
CUSZ_API int cusz_time_stages(cusz_mode mode, double eb, std::int32_t bins, std::int32_t has_fill, double fill,
                              cusz_dtype dtype, std::int32_t ndim, const std::uint64_t* shape, const void* field,
                              void* archive, void* decoded, std::int32_t repeat, std::uint64_t flush_bytes,
                              cusz_stage_times* times, char* message, std::uint64_t message_bytes);
}

namespace {

// Repeats a call of the engine, the first round untimed, and finds the times between its stages.
class Clock {
public:
    Clock(std::int32_t repeat, std::uint64_t flush_bytes, cusz_stage_times& times)
        : repeat_(std::max(repeat, 1)), flush_(static_cast<std::size_t>(flush_bytes)), times_(times),
          events_(max_stages + 2) {
        backend_->set_stream(stream_.handle);
        backend_->observe([this](const char* stage) {
            if (n_ == events_.size()) fail(CUSZ_ERROR_INTERNAL, "more than ", max_stages, " stages");
            names_[n_ - 2] = stage;
            record();
        });
    }

    DeviceBackend& backend() const { return *backend_; }

    template <class Call>
    void time(const Call& call) {
        std::vector<std::vector<double>> found;
        for (std::int32_t round = -1; round < repeat_; ++round) {
            CUSZ_CUDA(cudaMemsetAsync(flush_.data(), round & 255, flush_.bytes(), stream_.handle));
            n_ = 0;
            record();
            record();
            call();
            CUSZ_CUDA(cudaStreamSynchronize(stream_.handle));
            if (round < 0) continue;
            found.resize(n_ - 1);
            for (std::size_t i = 0; i + 1 < n_; ++i) {
                float milliseconds = 0;
                CUSZ_CUDA(cudaEventElapsedTime(&milliseconds, events_[i].handle, events_[i + 1].handle));
                found[i].push_back(1e3 * static_cast<double>(milliseconds));
            }
        }
        times_.nothing = median(found[0]);
        for (std::size_t i = 1; i < found.size(); ++i) {
            if (times_.n_stages == max_stages) fail(CUSZ_ERROR_INTERNAL, "more than ", max_stages, " stages");
            const auto at = static_cast<std::size_t>(times_.n_stages++);
            std::snprintf(times_.name[at], sizeof times_.name[at], "%s", names_[i - 1]);
            times_.time[at] = median(found[i]);
        }
    }

private:
    void record() { CUSZ_CUDA(cudaEventRecord(events_[n_++].handle, stream_.handle)); }

    std::int32_t repeat_;
    DeviceArray<std::byte> flush_;
    cusz_stage_times& times_;
    std::vector<Event> events_;
    std::array<const char*, max_stages> names_{};
    std::size_t n_ = 0; // events recorded in this round
    Stream stream_;
    std::unique_ptr<DeviceBackend> backend_ = make_backend();
};

void time_all(const Layout& layout, const Coding& coding, const Source& field, const Target& archive,
              const Target& decoded, Clock& clock, cusz_stage_times& times) {
    // For fields that are stored raw: a copy with a checksum.
    clock.time([&] { clock.backend().piece_checksum(field, layout.bytes(), 1, archive.at(raw_header_bytes)); });

    const Codec& codec = *codecs_for(CUSZ_PREDICTOR_LORENZO).front();
    if (layout.bytes() < codec.header_bytes) return;
    Engine& engine = clock.backend().engine(codec);
    std::optional<Encoded> encoded;
    clock.time([&] {
        encoded = engine.encode(layout, coding, field, 1, archive.at(codec.header_bytes),
                                layout.bytes() + raw_header_bytes - 1 - codec.header_bytes, nullptr);
    });
    if (!encoded) return;
    const std::size_t in_front = codec.header_bytes + encoded->model.size();
    std::vector<std::byte> header(in_front);
    std::copy(encoded->model.begin(), encoded->model.end(), header.data() + codec.header_bytes);
    codec.write_header(header.data(), layout, *encoded);
    clock.backend().copy(archive.pointer, header.data(), header.size());

    const std::size_t bytes = in_front + static_cast<std::size_t>(encoded->coding.body_bytes);
    const Frame frame = parse(header.data(), archive.pointer, bytes);
    clock.time([&] { engine.decode(frame, archive.at(in_front), 1, decoded); });
    times.archive_bytes = bytes;
}

} // namespace

int cusz_time_stages(cusz_mode mode, double eb, std::int32_t bins, std::int32_t has_fill, double fill, cusz_dtype dtype,
                     std::int32_t ndim, const std::uint64_t* shape, const void* field, void* archive, void* decoded,
                     std::int32_t repeat, std::uint64_t flush_bytes, cusz_stage_times* times, char* message,
                     std::uint64_t message_bytes) {
    try {
        std::memset(times, 0, sizeof *times);
        const Layout layout(dtype, ndim, shape);
        Coding coding;
        coding.mode = mode;
        coding.eb = eb;
        coding.has_fill = has_fill != 0;
        while (2 << coding.r < bins) ++coding.r;
        coding.special = special_pattern(dtype, coding.has_fill, fill);
        int device = 0;
        CUSZ_CUDA(cudaGetDevice(&device));
        Clock clock(repeat, flush_bytes, *times);
        time_all(layout, coding, {field, device, "field"}, {archive, device, "archive"}, {decoded, device, "decoded"},
                 clock, *times);
        return 0;
    } catch (const std::exception& error) {
        std::snprintf(message, static_cast<std::size_t>(message_bytes), "%s", error.what());
        return 1;
    }
}
