// Stands in for a codec's engine on a device: copies the data, and uses the engine on the CPU.
#pragma once

#include <functional>
#include <utility>

#include "buffer.hpp"
#include "codec.hpp"

namespace cusz {

class ThroughHost final : public Engine {
public:
    // Copies bytes between host and devices, in any direction.
    using Copy = std::function<void(void* target, const void* source, std::size_t bytes)>;

    ThroughHost(HostEngine& engine, Copy copy) : engine_(engine), copy_(std::move(copy)) {}

    std::optional<Encoded> encode(const Layout& layout, const Coding& coding, const Source& field, int threads,
                                  const Target& target, std::uint64_t capacity,
                                  std::optional<ValueRange>* range) override {
        const Source values = on_host(field, static_cast<std::size_t>(layout.bytes()), field_);
        if (!target.on_device()) return engine_.encode(layout, coding, values, threads, target, capacity, range);
        auto* const copy = archive_.reserve<std::byte>(static_cast<std::size_t>(capacity));
        auto encoded = engine_.encode(layout, coding, values, threads, {copy}, capacity, range);
        if (!encoded) return encoded;
        const std::size_t model_bytes = encoded->model.size();
        copy_(target.at(model_bytes).pointer, copy + model_bytes, static_cast<std::size_t>(encoded->coding.body_bytes));
        return encoded;
    }

    void decode(const Frame& frame, const Source& body, int threads, const Target& field) override {
        const Source bytes = on_host(body, static_cast<std::size_t>(frame.body_stored_bytes), archive_);
        if (!field.on_device()) return engine_.decode(frame, bytes, threads, field);
        const auto field_bytes = static_cast<std::size_t>(frame.layout.bytes());
        void* const values = field_.reserve(field_bytes);
        engine_.decode(frame, bytes, threads, {values});
        copy_(field.pointer, values, field_bytes);
    }

    std::size_t scratch_bytes() const override { return field_.bytes() + archive_.bytes(); }
    void release_scratch() override {
        field_.release();
        archive_.release();
    }

private:
    Source on_host(const Source& memory, std::size_t bytes, Buffer& copy) {
        if (!memory.on_device()) return memory;
        void* const own = copy.reserve(bytes);
        copy_(own, memory.pointer, bytes);
        return {own};
    }

    HostEngine& engine_;
    Copy copy_;
    Buffer field_, archive_;
};

} // namespace cusz
