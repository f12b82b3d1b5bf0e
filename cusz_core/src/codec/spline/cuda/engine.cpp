// The spline codec on a device, for fields that lie there. The CPU does the small lattices of unit 0, and fields that
// have no others.
#include "codec/backend.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/spline/codec.hpp"
#include "codec/through_host.hpp"
#include "decoder.hpp"
#include "encoder.hpp"

namespace cusz::cuda {

namespace {

class SplineEngine final : public Engine {
public:
    SplineEngine(Queue& queue, HostBackend& cpu)
        : queue_(queue),
          host_(cpu.engine(compact_codec()), [this](void* target, const void* source, std::size_t bytes) {
              queue_.run([&] {
                  queue_.staging.copy(target, source, bytes, queue_.stream());
                  queue_.wait();
              });
          }) {}

    std::optional<Encoded> encode(const Layout& layout, const Coding& coding, const Source& field, int threads,
                                  const Target& target, std::uint64_t capacity,
                                  std::optional<ValueRange>* range) override {
        std::optional<std::size_t> bytes;
        if (!field.on_device() || !encode_there(layout, coding, field, target, capacity, bytes))
            return host_.encode(layout, coding, field, threads, target, capacity, range);
        if (!bytes) return std::nullopt;
        Encoded encoded{coding, {}, 0};
        encoded.coding.body_bytes = encoded.coding.stored_bytes = *bytes;
        return encoded;
    }

    void decode(const Frame& frame, const Source& body, int threads, const Target& field) override {
        if (body.on_device() || !field.on_device() || !decode_there(frame, body, field))
            host_.decode(frame, body, threads, field);
    }

    std::size_t scratch_bytes() const override {
        return host_.scratch_bytes() + f32_.scratch_bytes() + f64_.scratch_bytes() + memory_.bytes();
    }
    void release_scratch() override {
        host_.release_scratch();
        f32_.release_scratch();
        f64_.release_scratch();
        memory_.release();
    }

private:
    // Returns false if the device cannot do it. Sets `bytes` to the archive's length, if that is within the capacity.
    bool encode_there(const Layout& layout, const Coding& coding, const Source& field, const Target& target,
                      std::uint64_t capacity, std::optional<std::size_t>& bytes) {
        require_aligned(field, layout.value_bytes());
        require_aligned(target, 4);
        if (coding.step == 0) return false;
        return queue_.run([&] {
            if (layout.dtype == CUSZ_F32)
                return Encoder<float>(memory_, f32_, layout, coding, field.as<float>()).encode(target, capacity, bytes);
            return Encoder<double>(memory_, f64_, layout, coding, field.as<double>()).encode(target, capacity, bytes);
        });
    }

    // Returns false if the device cannot do it.
    bool decode_there(const Frame& frame, const Source& body, const Target& field) {
        require_aligned(field, frame.layout.value_bytes());
        const std::span archive(body.bytes(), static_cast<std::size_t>(frame.coding.body_bytes));
        std::size_t front_bytes = 0;
        const v2::Front front = v2::read_front(archive, front_bytes);
        if (front.kind != v2::Kind::spline) return false;
        return queue_.run([&] {
            if (frame.layout.dtype == CUSZ_F32)
                return Decoder<float>(memory_, f32_, archive, front, front_bytes).decode(field.as<float>());
            return Decoder<double>(memory_, f64_, archive, front, front_bytes).decode(field.as<double>());
        });
    }

    Queue& queue_;
    ThroughHost host_;
    cpu::FieldCoder<float> f32_{cpu::kernels()}; // for unit 0
    cpu::FieldCoder<double> f64_{cpu::kernels()};
    KeptMemory memory_{queue_};
};

} // namespace

} // namespace cusz::cuda

std::unique_ptr<cusz::Engine> cusz::spline::on_device(cuda::Queue& queue, HostBackend& cpu) {
    return std::make_unique<cuda::SplineEngine>(queue, cpu);
}
