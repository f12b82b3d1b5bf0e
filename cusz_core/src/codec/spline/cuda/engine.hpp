// The spline pipeline on a device: its memory, and the order of the kernels (kernels.hpp).
// codec/spline/cpu/engine.hpp is the CPU's.
#pragma once

#include <optional>
#include <vector>

#include "archive/pyramid.hpp"
#include "batches.hpp"
#include "codec/backend.hpp"
#include "device/device.hpp"
#include "device/memory.hpp"

namespace cusz::cuda {

class SplineEngine {
public:
    // The memory that calls get and stage through is the backend's. All calls put their work on source.stream.
    SplineEngine(const MemorySource& source, Staging& staging, const StageObserver& observer)
        : source_(source), staging_(staging), observer_(observer) {}

    // As Backend's functions.
    std::optional<Encoded> compress(const Layout& layout, const Coding& coding, const Pyramid& pyramid, const Top& top,
                                    const Source& field, const Target& target, std::uint64_t capacity);
    void decompress(const Frame& frame, const Pyramid& pyramid, const Top& top, const Source& body,
                    const Target& field);
    void gather_points(cusz_dtype dtype, const Lattice& lattice, const Source& field, void* values);
    // As a BoxReader, which puts the values of these boxes into `copy`.
    HostValues read_boxes(cusz_dtype dtype, const Source& field, std::vector<TileBox>& boxes,
                          std::vector<std::byte>& copy);

    std::vector<DeviceBuffer*> buffers();
    std::vector<const DeviceBuffer*> buffers() const;

private:
    template <class T>
    std::optional<Encoded> compress_as(const Coding& coding, const Pyramid& pyramid, const Top& top,
                                       const Source& field, const Target& target, std::uint64_t capacity);
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
    void decompress_as(const Frame& frame, const Pyramid& pyramid, const Top& top, const Source& body,
                       const Target& field);
    template <class T>
    void decompress_in(const std::vector<SplineBatch>& batches, const Frame& frame, const Pyramid& pyramid,
                       const Top& top, const Source& body, const Target& field);
    // Memory for an archive of up to `room` bytes, or a part of that: then `room` is less afterwards.
    std::byte* room_for_archive(std::uint64_t& room);
    template <class T>
    void gather_as(const Lattice& lattice, const Source& field, T* values);
    template <class T>
    HostValues read_boxes_as(const Source& field, std::vector<TileBox>& boxes, std::vector<std::byte>& copy);

    cudaStream_t stream() const { return source_.stream; }
    void done(const char* stage) const {
        if (observer_) observer_(stage);
    }
    template <class V>
    void upload(V* to, const V* from, std::size_t n) {
        CUSZ_CUDA(cudaMemcpyAsync(to, from, n * sizeof(V), cudaMemcpyDefault, stream()));
    }
    template <class V>
    void fetch(V* to, const V* from, std::size_t n) {
        CUSZ_CUDA(cudaMemcpyAsync(to, from, n * sizeof(V), cudaMemcpyDefault, stream()));
        CUSZ_CUDA(cudaStreamSynchronize(stream()));
    }

    const MemorySource& source_;
    Staging& staging_;
    const StageObserver& observer_;
    DeviceBuffer field_, archive_, arrays_, workspace_, scratch_, states_;
};

} // namespace cusz::cuda
