// The spline codec on a device: its memory, and the order of the kernels (kernels.hpp).
// codec/spline/cpu/engine.hpp is the CPU's.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "archive/pyramid.hpp"
#include "batches.hpp"
#include "codec/backend.hpp"
#include "codec/spline/top.hpp"
#include "codec/through_host.hpp"
#include "device/queue.hpp"

namespace cusz::cuda {

using spline::Top;

class SplineEngine final : public Engine {
public:
    SplineEngine(Queue& queue, HostBackend& cpu)
        : queue_(queue), source_(queue.source), staging_(queue.staging), cpu_(cpu), tops_(cpu) {}

    // With too little memory on the device for a field on the host, the CPU does the work.
    std::optional<Encoded> encode(const Layout& layout, const Coding& coding, const Source& field, int threads,
                                  const Target& target, std::uint64_t capacity,
                                  std::optional<ValueRange>* range) override;
    void decode(const Frame& frame, const Source& body, int threads, const Target& field) override;
    std::size_t scratch_bytes() const override;
    void release_scratch() override;

private:
    template <class T>
    std::optional<Encoded> compress_as(const Layout& layout, const Coding& coding, const Source& field,
                                       const Target& target, std::uint64_t capacity);
    // Calls use(batches) with the whole field as one, and while that runs out of memory and something is on the host
    // (on_host) with batches, and with smaller ones. Throws MEMORY.
    template <class Use>
    auto with_batches(const Pyramid& pyramid, std::uint64_t value_bytes, std::uint64_t points_beside, bool on_host,
                      const Use& use);
    template <class T>
    std::optional<Encoded> compress_in(const std::vector<SplineBatch>& batches, const Coding& coding,
                                       const Pyramid& pyramid, const Top& top, const Source& field,
                                       const Target& target, std::uint64_t capacity);
    // Copies a batch's originals from the host. Returns where the lattice's first point would be, and sets strides.
    template <class T>
    const T* load(const SplineBatch& batch, const Lattice& lattice, const Source& field, Extents& stride);
    // Copies a batch's values to a field on the host.
    template <class T>
    void store(const BatchBox& box, const T* values, const Target& field);
    // The memory that holds a batch.
    void release_batch();
    template <class T>
    void decompress_as(const Frame& frame, const Source& body, const Target& field);
    template <class T>
    void decompress_in(const std::vector<SplineBatch>& batches, const Frame& frame, const Pyramid& pyramid,
                       const Top& top, const Source& body, const Target& field);
    // Memory for an archive of up to `room` bytes, or a part of that: then `room` is less afterwards.
    std::byte* room_for_archive(std::uint64_t& room);
    // Copies the points of a lattice out of a field, to the host.
    template <class T>
    void gather(const Lattice& lattice, const Source& field, T* values);

    static auto buffers(auto& own) {
        return std::array{&own.field_, &own.archive_, &own.arrays_, &own.workspace_, &own.states_};
    }
    ThroughHost on_cpu();
    cudaStream_t stream() const { return queue_.stream(); }
    void done(const char* stage) const { queue_.done(stage); }

    Queue& queue_;
    const MemorySource& source_;
    Staging& staging_;
    HostBackend& cpu_;
    spline::TopCoder tops_;
    DeviceBuffer field_, archive_, arrays_, workspace_, states_;
};

} // namespace cusz::cuda
