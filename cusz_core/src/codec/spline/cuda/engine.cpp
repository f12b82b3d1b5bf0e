// The spline codec on a device: decodes what lies there, but for the small lattices of unit 0. All else is the CPU's.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "archive/checksum.hpp"
#include "codec/backend.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/spline/codec.hpp"
#include "codec/spline/cpu/field_coder.hpp"
#include "codec/spline/unit_tables.hpp"
#include "codec/through_host.hpp"
#include "device/queue.hpp"
#include "errors.hpp"
#include "kernels.hpp"

namespace cusz::cuda {

namespace {

const char* text_of(UnitError error) {
    switch (error) {
    case UnitError::live_tiles: return "illegal bits of live tiles";
    case UnitError::states: return "a unit without states";
    case UnitError::early_end: return "codewords that end early";
    case UnitError::extra_bits: return "extra bits that end too early";
    case UnitError::special_value: return "a special value that is stored verbatim";
    case UnitError::beyond_limit: return "a code beyond the limit";
    case UnitError::late_end: return "codewords that do not end where the unit does";
    case UnitError::none: break;
    }
    return "bad";
}

class SplineEngine final : public Engine {
    static auto buffers(auto& own) { return std::array{&own.slots_, &own.memory_}; }

public:
    SplineEngine(Queue& queue, HostBackend& cpu)
        : queue_(queue),
          host_(cpu.engine(compact_codec()), [this](void* target, const void* source, std::size_t bytes) {
              queue_.run([&] {
                  queue_.staging.copy(target, source, bytes, stream());
                  queue_.wait();
              });
          }) {}

    std::optional<Encoded> encode(const Layout& layout, const Coding& coding, const Source& field, int threads,
                                  const Target& target, std::uint64_t capacity,
                                  std::optional<ValueRange>* range) override {
        return host_.encode(layout, coding, field, threads, target, capacity, range);
    }

    void decode(const Frame& frame, const Source& body, int threads, const Target& field) override {
        if (body.on_device() || !field.on_device() || !decode_there(frame, body, field))
            host_.decode(frame, body, threads, field);
    }

    std::size_t scratch_bytes() const override {
        std::size_t bytes = host_.scratch_bytes() + f32_.scratch_bytes() + f64_.scratch_bytes();
        for (const DeviceBuffer* buffer : buffers(*this)) bytes += buffer->bytes();
        return bytes;
    }
    void release_scratch() override {
        host_.release_scratch();
        f32_.release_scratch();
        f64_.release_scratch();
        release_memory();
    }

private:
    cudaStream_t stream() const { return queue_.stream(); }
    void done(const char* stage) const { queue_.done(stage); }

    // Returns whether the device could do it.
    bool decode_there(const Frame& frame, const Source& body, const Target& field) {
        require_aligned(field, frame.layout.value_bytes());
        const std::span archive(body.bytes(), static_cast<std::size_t>(frame.coding.body_bytes));
        std::size_t front_bytes = 0;
        const v2::Front front = v2::read_front(archive, front_bytes);
        if (front.kind != v2::Kind::spline) return false;
        return queue_.run([&] {
            return frame.layout.dtype == CUSZ_F32 ? decode_as(f32_, archive, front, front_bytes, field.as<float>())
                                                  : decode_as(f64_, archive, front, front_bytes, field.as<double>());
        });
    }

    // Lattices, their payloads and what belongs to them, on the device.
    template <class T>
    struct Workspace {
        std::byte* payloads;
        UnitPlace* units;
        std::uint8_t* table_of;
        std::uint16_t* flag_frequency;
        typename PutArguments<T>::Value* values;
        ReadResult* result;
        std::array<T*, 2> value;
        std::array<std::uint8_t*, 2> magnitude;
        std::uint16_t* codes;
        std::size_t bytes;

        // memory: of the size so computed; or null, to compute it.
        Workspace(void* memory, const typename cpu::FieldCoder<T>::Opened& opened, std::size_t n_values) {
            const auto& sizes = opened.coded.sizes;
            const std::size_t first = opened.first_lattice();
            Parts parts(memory);
            payloads = parts.take<std::byte>(opened.first.back() - opened.first[1]);
            units = parts.take<UnitPlace>(opened.coded.units.size() - 1);
            table_of = parts.take<std::uint8_t>(v2::n_rows * 128);
            flag_frequency = parts.take<std::uint16_t>(v2::n_group_contexts);
            values = parts.take<typename PutArguments<T>::Value>(n_values);
            result = parts.take<ReadResult>(1);
            for (std::size_t j = 0; j < 2; ++j) { // of every second lattice
                const std::size_t n = 1 + j <= first ? sizes[1 + j] : 0;
                value[j] = parts.take<T>(n);
                magnitude[j] = parts.take<std::uint8_t>(n);
            }
            codes = parts.take<std::uint16_t>(static_cast<std::size_t>(opened.coded.pyramid.lattices[0].values()));
            bytes = parts.used();
        }
    };

    template <class T>
    bool decode_as(cpu::FieldCoder<T>& coder, std::span<const std::byte> archive, const v2::Front& front,
                   std::size_t front_bytes, T* field) {
        using Put = PutArguments<T>;
        const typename cpu::FieldCoder<T>::Opened opened(archive, front, front_bytes);
        const Pyramid& pyramid = opened.coded.pyramid;
        const auto& units = opened.coded.units;
        const std::size_t first = opened.first_lattice();
        if (first == 0) return false;
        const v2::Curve curve = opened.coded.coder.curve;
        const std::size_t shared_bytes = max_shared_bytes();
        for (std::size_t i = 0; i < first; ++i)
            if (value_memory_bytes<T>(pyramid.lattices[i], curve) > shared_bytes) return false;
        const auto of_first = coder.decompress_first(opened);

        std::vector<typename Put::Value> values;
        const T top = std::bit_cast<T>(static_cast<typename Traits<T>::Bits>(opened.head.top));
        if (!(std::abs(top) <= std::numeric_limits<T>::max())) values.push_back({0, bits_of(top)});
        const Selection all = whole(front.layout, nullptr);
        const Extents stride = cpu::by_axis(front.layout, all.stride, 0);
        for (const cpu::Patch& patch : of_first.patches) {
            std::uint64_t at = 0;
            for (std::size_t a = 0; a < 4; ++a) at += patch.at[a] * stride[a];
            values.push_back({at, static_cast<typename Traits<T>::Bits>(patch.bits)});
        }
        std::byte* memory = nullptr;
        try {
            memory = memory_.reserve<std::byte>(queue_.source, Workspace<T>(nullptr, opened, values.size()).bytes);
            load_slots();
        } catch (const Error& error) {
            if (error.status() != CUSZ_ERROR_MEMORY) throw;
            release_memory();
            return false;
        }
        const Workspace<T> work(memory, opened, values.size());

        const auto copy = [&](void* to, const void* from, std::size_t bytes) {
            queue_.staging.copy(to, from, bytes, stream());
        };
        std::vector<UnitPlace> places;
        for (std::size_t u = 1; u < units.size(); ++u)
            places.push_back({(opened.first[u] - opened.first[1]) / 2,
                              static_cast<std::uint32_t>(opened.head.units[u].bytes / 2),
                              opened.head.units[u].log2_lanes});
        std::array<std::uint16_t, v2::n_group_contexts> flag_frequency;
        for (std::size_t c = 0; c < flag_frequency.size(); ++c)
            flag_frequency[c] = v2::tables().group_frequency[of_first.model.flag_table[c]];
        copy(work.payloads, archive.data() + opened.first[1], opened.first.back() - opened.first[1]);
        copy(work.units, places.data(), places.size() * sizeof places[0]);
        copy(work.table_of, of_first.model.table_of.data(), sizeof of_first.model.table_of);
        copy(work.flag_frequency, flag_frequency.data(), sizeof flag_frequency);
        copy(work.values, values.data(), values.size() * sizeof(typename Put::Value));
        copy(work.value[(first - 1) % 2], of_first.lattice.value, opened.coded.sizes[first] * sizeof(T));
        copy(work.magnitude[(first - 1) % 2], of_first.lattice.magnitude, opened.coded.sizes[first]);
        CUSZ_CUDA(cudaMemsetAsync(work.result, 0, sizeof *work.result, stream()));
        done("copy_archive");

        std::size_t u = 1;
        for (std::size_t i = first; i-- > 0;) {
            ReadArguments<T> a{};
            a.of = {.lattice = pyramid.lattices[i],
                    .quantiser = opened.coded.coder.quantiser[i],
                    .curve = curve,
                    .coarse = work.value[i % 2],
                    .coarse_magnitude = work.magnitude[i % 2],
                    .fine = i > 0 ? work.value[(i - 1) % 2] : nullptr,
                    .fine_magnitude = i > 0 ? work.magnitude[(i - 1) % 2] : nullptr,
                    .field = field,
                    .codes = work.codes,
                    .units = work.units + (u - 1),
                    .payloads = reinterpret_cast<const std::uint16_t*>(work.payloads)};
            a.lattice = static_cast<std::uint32_t>(i);
            a.first_unit = u;
            while (u < units.size() && units[u].lattice == i) {
                ++u;
                ++a.n_units;
            }
            a.slots = static_cast<const std::uint32_t*>(slots_.template reserve<std::uint32_t>(queue_.source, 1));
            a.table_of = work.table_of + v2::row_of(i, 1) * 128;
            a.flag_frequency = work.flag_frequency;
            a.decode = true;
            a.result = work.result;
            find_fixed_contexts(a.of, stream());
            done("find_fixed_contexts");
            read_units(a, stream());
            done("read_units");
            find_values(a.of, stream());
            done("find_values");
        }
        if (!values.empty()) put_values(Put{work.values, static_cast<std::uint32_t>(values.size()), field}, stream());
        done("put_values");
        const ReadResult outcome = queue_.fetched(work.result);
        for (std::size_t i = first; i-- > 0;)
            if (fold(outcome.checksum[i]) != opened.head.checksums[first - 1 - i])
                fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
        if (outcome.error != 0)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", text_of(static_cast<UnitError>(~outcome.error & 255)));
        return true;
    }

    // What all archives are decoded with.
    void load_slots() {
        if (has_slots_) return;
        const auto& slots = unit_tables().slot;
        auto* const to = slots_.reserve<std::uint32_t>(queue_.source, slots.size());
        queue_.staging.copy(to, slots.data(), sizeof slots, stream());
        has_slots_ = true;
    }
    void release_memory() {
        has_slots_ = false;
        queue_.release(buffers(*this));
    }

    Queue& queue_;
    ThroughHost host_;
    cpu::FieldCoder<float> f32_{cpu::kernels().spline_f32, cpu::kernels().weigh}; // for unit 0
    cpu::FieldCoder<double> f64_{cpu::kernels().spline_f64, cpu::kernels().weigh};
    DeviceBuffer slots_, memory_;
    bool has_slots_ = false;
};

} // namespace

} // namespace cusz::cuda

std::unique_ptr<cusz::Engine> cusz::spline::on_device(cuda::Queue& queue, HostBackend& cpu) {
    return std::make_unique<cuda::SplineEngine>(queue, cpu);
}
