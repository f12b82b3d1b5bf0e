// The spline codec on the CPU: constant fields are coded here, others by field_coder.hpp.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "choice.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/lorenzo/cpu/estimate.hpp"
#include "codec/spline/codec.hpp"
#include "field_coder.hpp"

namespace cusz::cpu {

namespace {

template <class T>
bool all_same(std::span<const T> values) {
    return std::ranges::all_of(values, [first = bits_of(values[0])](T value) { return bits_of(value) == first; });
}

constexpr std::size_t max_constant_bytes = v2::max_front_bytes + 4 + 8; // of the archive of a constant field

class SplineEngine final : public HostEngine {
public:
    std::optional<Encoded> encode(const Layout& layout, const Coding& coding, const Source& field, int threads,
                                  const Target& target, std::uint64_t capacity, std::optional<ValueRange>*) override {
        const auto bytes = layout.dtype == CUSZ_F32
                               ? encode_as(f32_, layout, coding, field.as<float>(), threads, target.bytes(), capacity)
                               : encode_as(f64_, layout, coding, field.as<double>(), threads, target.bytes(), capacity);
        if (!bytes) return std::nullopt;
        Encoded encoded{coding, {}, 0};
        encoded.coding.body_bytes = encoded.coding.stored_bytes = *bytes;
        return encoded;
    }

    Advice choose(const Layout& layout, Coding& coding, const BoxReader& read, int threads) override {
        if (coding.step == 0 || layout.values < 2) return {}; // perhaps a constant
        return layout.dtype == CUSZ_F32 ? choose_as(f32_, lorenzo_f32_, layout, coding, read, threads)
                                        : choose_as(f64_, lorenzo_f64_, layout, coding, read, threads);
    }

    void decode_box(const Frame& frame, const std::byte* body, int threads, const Selection& box) override {
        const auto bytes = static_cast<std::size_t>(frame.coding.body_bytes);
        decode_lattice({body, bytes, bytes}, threads, 0, box);
    }

    void decode_lattice(const Prefix& prefix, int threads, std::size_t lattice, const Selection& box) override {
        std::size_t front_bytes = 0;
        const v2::Front front = v2::read_front(prefix.span(), front_bytes);
        if (front.layout.dtype == CUSZ_F32)
            decode_as(f32_, prefix, front, front_bytes, threads, lattice, box);
        else
            decode_as(f64_, prefix, front, front_bytes, threads, lattice, box);
    }

    std::size_t scratch_bytes() const override {
        return f32_.scratch_bytes() + f64_.scratch_bytes() + sample_.bytes() +
               lorenzo_f32_.capacity() * sizeof(Tile<float>) + lorenzo_f64_.capacity() * sizeof(Tile<double>);
    }
    void release_scratch() override {
        f32_.release_scratch();
        f64_.release_scratch();
        sample_.release();
        lorenzo_f32_ = std::vector<Tile<float>>();
        lorenzo_f64_ = std::vector<Tile<double>>();
    }

private:
    // If the predictor is not settled, another codec's archive may be shorter.
    template <class T>
    Advice choose_as(FieldCoder<T>& engine, std::vector<Tile<T>>& tiles, const Layout& layout, Coding& coding,
                     const BoxReader& read, int threads) {
        v2::Front front = spline::front_of(layout, coding, v2::Kind::spline);
        front.e = coding.step / 2;
        SampleBoxes boxes(layout);
        const std::span<T> candidates = boxes.read<T>(read, sample_);
        const bool is_settled = coding.predictor != CUSZ_PREDICTOR_AUTO, is_whole = boxes.are_whole(layout);
        const Advice if_constant{.enough = is_settled || is_whole ? any_length : max_constant_bytes};
        if (all_same<T>(candidates)) return if_constant;
        const auto [sample, costs] = boxes.pick(engine, front, candidates.data());
        if (all_same(sample)) return if_constant;
        std::uint64_t others = any_length / 64;
        const int n_threads = static_cast<int>(std::min<std::uint64_t>(static_cast<unsigned>(threads), boxes.number()));
        Chooser<T> chooser(engine, front, boxes, sample.data(), costs, coding.bounds, n_threads);
        if (!is_settled) {
            const std::uint64_t own = chooser.chosen().bytes;
            others = estimated_lorenzo_bytes(layout, coding, boxes.layout(layout.dtype), sample.data(), boxes.number(),
                                             own + own / 4, n_threads, tiles);
        }
        const std::uint64_t enough = worthwhile(others), most = chooser.most(others);
        const Choice choice = chooser.choose(most);
        coding.interpolation = choice.how;
        const Advice other{.make = false, .enough = choice.bytes}, both{.enough = 0};
        if (choice.bytes >= most) return other;
        if (is_settled) return {};
        if (coding.lossless != CUSZ_LOSSLESS_NONE) return both; // estimates are without that stage
        if (choice.bytes >= others) {
            if (!boxes.stand_for_field() || chooser.loses_at_borders()) return both;
            if (!chooser.saves_enough(others)) return other;
        }
        return {.enough = enough};
    }

    template <class T>
    static std::optional<std::size_t> encode_as(FieldCoder<T>& engine, const Layout& layout, const Coding& coding,
                                                const T* field, int threads, std::byte* target,
                                                std::uint64_t capacity) {
        if (all_same(std::span(field, static_cast<std::size_t>(layout.values)))) {
            const auto first = bits_of(field[0]);
            const v2::Front front = spline::front_of(layout, coding, v2::Kind::constant);
            std::byte bytes[max_constant_bytes];
            const std::size_t n = v2::write_front(front, bytes), end = n + 4 + sizeof first;
            std::memcpy(bytes + n + 4, &first, sizeof first);
            v2::seal({bytes, end}, n);
            if (end > capacity) return std::nullopt;
            std::memcpy(target, bytes, end);
            return end;
        }
        if (coding.step == 0) return std::nullopt;
        v2::Front front = spline::front_of(layout, coding, v2::Kind::spline);
        front.e = coding.step / 2;
        return engine.compress(front, coding.interpolation, field, threads, target, capacity);
    }

    template <class T>
    static void decode_as(FieldCoder<T>& engine, const Prefix& prefix, const v2::Front& front, std::size_t front_bytes,
                          int threads, std::size_t lattice, const Selection& box) {
        if (front.kind == v2::Kind::spline)
            return engine.decompress(prefix.span(), prefix.archive_bytes, front, front_bytes, threads, lattice, box);
        const auto value = static_cast<typename Traits<T>::Bits>(read_constant(prefix.span(), front, front_bytes));
        if (box.field == nullptr) return;
        const auto count = Tiling::by_axis(front.layout.ndim, front.layout.shape.data(), box.count.data(), 1),
                   stride = Tiling::by_axis(front.layout.ndim, front.layout.shape.data(), box.stride.data(), 1);
        auto* const to = static_cast<std::byte*>(box.field);
        for_points_of_box(count, stride, [&](std::uint64_t, std::uint64_t at) {
            std::memcpy(to + at * sizeof value, &value, sizeof value);
        });
    }

    Buffer sample_;
    std::vector<Tile<float>> lorenzo_f32_; // to estimate from a sample, by thread
    std::vector<Tile<double>> lorenzo_f64_;
    FieldCoder<float> f32_{kernels()};
    FieldCoder<double> f64_{kernels()};
};

} // namespace

} // namespace cusz::cpu

std::unique_ptr<cusz::HostEngine> cusz::spline::on_cpu(HostBackend&) { return std::make_unique<cpu::SplineEngine>(); }
