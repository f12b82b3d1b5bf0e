// Device memory that the spline codec keeps from call to call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/spline/cpu/field_coder.hpp"
#include "codec/spline/unit_tables.hpp"
#include "device/queue.hpp"
#include "errors.hpp"
#include "kernels.hpp"

namespace cusz::cuda {

class KeptMemory {
    static auto buffers(auto& own) {
        return std::array{&own.arrays, &own.payloads, &own.gathered, &own.slots_, &own.intervals_};
    }

public:
    explicit KeptMemory(Queue& its_queue) : queue(its_queue) {}

    Queue& queue;
    DeviceBuffer arrays, payloads, gathered;

    cudaStream_t stream() const { return queue.stream(); }
    void done(const char* stage) const { queue.done(stage); }
    // To the device, from it, or on it.
    template <class To, class From>
    void copy(To* to, const From* from, std::size_t n) {
        static_assert(sizeof(To) == sizeof(From));
        queue.staging.copy(to, from, n * sizeof(From), stream());
    }
    template <class V>
    void clear(V* memory, std::size_t n) {
        CUSZ_CUDA(cudaMemsetAsync(memory, 0, n * sizeof(V), stream()));
    }

    // If there is not enough memory for what make() reserves, frees everything that is kept, and returns false.
    template <class Make>
    bool reserve(const Make& make) {
        try {
            make();
        } catch (const Error& error) {
            if (error.status() != CUSZ_ERROR_MEMORY) throw;
            forget_tables();
            queue.make_room(buffers(*this));
            return false;
        }
        return true;
    }

    // Tables shared by every unit: for decoding and for encoding. Throws MEMORY.
    const std::uint32_t* slots() { return table(slots_, has_slots_, unit_tables().slot); }
    const std::uint32_t* intervals() { return table(intervals_, has_intervals_, unit_tables().interval); }

    std::size_t bytes() const {
        std::size_t bytes = 0;
        for (const DeviceBuffer* buffer : buffers(*this)) bytes += buffer->bytes();
        return bytes;
    }
    void release() {
        forget_tables();
        queue.release(buffers(*this));
    }

private:
    void forget_tables() { has_slots_ = has_intervals_ = false; }
    template <class Table>
    const std::uint32_t* table(DeviceBuffer& buffer, bool& is_there, const Table& values) {
        auto* const memory = buffer.reserve<std::uint32_t>(queue.source, values.size());
        if (!is_there) copy(memory, values.data(), values.size());
        is_there = true;
        return memory;
    }

    DeviceBuffer slots_, intervals_;
    bool has_slots_ = false, has_intervals_ = false;
};

// Whether the shared memory of a block holds tiles of these lattices.
template <class T>
bool has_shared_memory(const Pyramid& pyramid, std::size_t n_lattices, v2::Curve curve) {
    const std::size_t most = max_shared_bytes();
    return std::all_of(pyramid.lattices.begin(), pyramid.lattices.begin() + static_cast<std::ptrdiff_t>(n_lattices),
                       [&](const Lattice& lattice) {
                           return value_memory_bytes<T>(lattice, curve) <= most &&
                                  fixed_memory_bytes<T>(lattice) <= most;
                       });
}

// Values and magnitudes, or marks, of lattices from 1 on. Two arrays of each serve alternate lattices.
template <class T>
struct LatticePairs {
    std::array<T*, 2> value;
    std::array<std::uint8_t*, 2> magnitude;

    // sizes: of the arrays of lattices from 1 on; first: the coarsest lattice that needs one.
    LatticePairs(Parts& parts, const std::vector<std::size_t>& sizes, std::size_t first) {
        for (std::size_t j = 0; j < 2; ++j) {
            const std::size_t n = 1 + j <= first ? sizes[1 + j] : 0;
            value[j] = parts.take<T>(n);
            magnitude[j] = parts.take<std::uint8_t>(n);
        }
    }
    // Lattice i, which is predicted from the next coarser one.
    DeviceLattice<T> lattice(const typename cpu::FieldCoder<T>::Field& coded, std::size_t i) const {
        DeviceLattice<T> of{};
        of.lattice = coded.pyramid.lattices[i];
        of.quantiser = coded.coder.quantiser[i];
        of.curve = coded.coder.curve;
        of.coarse = value[i % 2];
        of.coarse_magnitude = magnitude[i % 2];
        if (i > 0) {
            of.fine = value[(i - 1) % 2];
            of.fine_magnitude = magnitude[(i - 1) % 2];
        }
        return of;
    }
    // Copies lattice `first`, from which the others are predicted, to the device.
    void load(KeptMemory& memory, const cpu::LatticeArrays<T>& from, const std::vector<std::size_t>& sizes,
              std::size_t first) const {
        memory.copy(value[(first - 1) % 2], from.value, sizes[first]);
        memory.copy(magnitude[(first - 1) % 2], from.magnitude, sizes[first]);
    }
};

} // namespace cusz::cuda
