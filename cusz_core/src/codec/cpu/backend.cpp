// The CPU backend.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "archive/checksum.hpp"
#include "codec/backend.hpp"
#include "errors.hpp"
#include "kernels.hpp"
#include "parallel.hpp"

namespace cusz::cpu {

namespace {

constexpr std::uint64_t log_run = 1 << 12; // values whose logarithms stay in the cache

// The rows of a box, cut into runs.
struct Rows {
    struct Row {
        std::uint64_t n;
        std::uint64_t place;    // of the first value in the field
        std::uint64_t from, to; // in a dense box, and in the caller's array
    };

    Rows(const Layout& whole, const Selection& selection, std::uint64_t longest) : layout(whole), box(selection) {
        last = static_cast<std::size_t>(layout.ndim) - 1;
        std::uint64_t rows = 1;
        for (std::size_t d = 0; d < last; ++d) rows *= box.count[d];
        run = longest;
        runs = (box.count[last] + run - 1) / run;
        number = rows * runs;
        stride = box.stride[last];
    }
    Row operator[](std::uint64_t index) const {
        const std::uint64_t row = index / runs, begin = index % runs * run;
        std::uint64_t rest = row, place = box.start[last] + begin, to = begin * stride, extent = layout.shape[last];
        for (std::size_t d = last; d-- > 0; extent *= layout.shape[d]) {
            const std::uint64_t i = rest % box.count[d];
            rest /= box.count[d];
            place += (box.start[d] + i) * extent;
            to += i * box.stride[d];
        }
        return {std::min(run, box.count[last] - begin), place, row * box.count[last] + begin, to};
    }

    const Layout& layout;
    const Selection& box;
    std::size_t last;
    std::uint64_t run, runs, number, stride;
};

class CpuBackend final : public HostBackend {
public:
    HostEngine& engine(const Codec& codec) override {
        auto& engine = engines_[codec.number()];
        if (!engine) engine = codec.on_cpu(*this);
        return *engine;
    }

    ValueRange value_range(cusz_dtype dtype, std::uint64_t values, const Source& field, std::uint64_t special,
                           int threads) override {
        constexpr std::uint64_t batch = 1 << 16;
        const Parts parts(values, threads);
        std::vector<ValueRange> ranges(parts.number);
        parallel(threads, parts.number, [&](std::uint64_t part, int) {
            const auto [begin, end] = parts[part];
            for (std::uint64_t at = begin; at < end; at += batch) {
                const std::uint64_t n = std::min(batch, end - at);
                ranges[part].add(dtype == CUSZ_F32 ? kernels().value_range_f32(field.as<float>() + at, n,
                                                                               static_cast<std::uint32_t>(special))
                                                   : kernels().value_range_f64(field.as<double>() + at, n, special));
            }
        });
        ValueRange range;
        for (const ValueRange& partial : ranges) range.add(partial);
        return range;
    }

    const void* read_boxes(const Layout&, const Source& field, std::vector<TileBox>&) override { return field.pointer; }

    ExponentRange exponent_range(const Layout& layout, const Source& field, std::uint64_t special,
                                 int threads) override {
        const auto of = [&]<class T>(const LogKernels<T>& log_kernels) {
            const Parts parts(layout.values, threads);
            std::vector<ExponentRange> ranges(parts.number);
            parallel(threads, parts.number, [&](std::uint64_t part, int) {
                const auto [begin, end] = parts[part];
                ranges[part] = log_kernels.exponent_range(field.as<T>() + begin, end - begin,
                                                          static_cast<typename Traits<T>::Bits>(special));
            });
            ExponentRange range = ranges[0];
            for (const ExponentRange& other : ranges)
                range = {std::min(range.min, other.min), std::max(range.max, other.max)};
            return range;
        };
        return layout.dtype == CUSZ_F32 ? of(kernels().logs_f32) : of(kernels().logs_f64);
    }

    Target log_memory(const Source&, std::size_t bytes) override { return {logs_.reserve(bytes)}; }

    bool to_logs(const Layout& layout, const Source& field, const LogScale& scale, std::uint64_t special, int threads,
                 const Target& logs, std::uint64_t* signs) override {
        const auto to = [&]<class T>(const LogKernels<T>& log_kernels) {
            std::atomic<std::uint64_t> any = 0;
            const Parts parts((layout.values + log_run - 1) / log_run, threads);
            parallel(threads, parts.number, [&](std::uint64_t part, int) {
                const auto [first, last] = parts[part];
                for (std::uint64_t run = first; run < last; ++run) {
                    const std::uint64_t begin = run * log_run, n = std::min(log_run, layout.values - begin);
                    log_kernels.to_logs(field.as<T>() + begin, n, scale, static_cast<typename Traits<T>::Bits>(special),
                                        logs.bytes() + begin * scale.value_bytes(layout.dtype), signs + begin / 64);
                    std::uint64_t found = 0;
                    for (std::uint64_t word = begin / 64; word * 64 < begin + n; ++word) found |= signs[word];
                    if (found != 0) any = 1;
                }
            });
            return any != 0;
        };
        return layout.dtype == CUSZ_F32 ? to(kernels().logs_f32) : to(kernels().logs_f64);
    }

    void from_logs(const Layout& layout, const Source& logs, const LogScale& scale, std::uint64_t special,
                   const std::uint64_t* signs, int threads, const Target& field) override {
        const Layout row(layout.dtype, 1, &layout.values); // long runs
        from_logs_box(row, logs.pointer, scale, special, signs, threads, whole(row, field.pointer));
    }

    void from_logs_box(const Layout& layout, const void* logs, const LogScale& scale, std::uint64_t special,
                       const std::uint64_t* signs, int threads, const Selection& box) override {
        const auto from = [&]<class T>(const LogKernels<T>& log_kernels) {
            const Rows rows(layout, box, log_run);
            const Parts parts(rows.number, threads);
            parallel(threads, parts.number, [&](std::uint64_t part, int) {
                std::vector<T> apart; // values that are not neighbours in the caller's array
                const auto [first, last] = parts[part];
                for (std::uint64_t number = first; number < last; ++number) {
                    const auto [n, place, begin, to] = rows[number];
                    T* const target = static_cast<T*>(box.field) + to;
                    if (rows.stride != 1) apart.resize(n);
                    log_kernels.from_logs(static_cast<const std::byte*>(logs) + begin * scale.value_bytes(layout.dtype),
                                          n, scale, static_cast<typename Traits<T>::Bits>(special), signs, place,
                                          rows.stride == 1 ? target : apart.data());
                    if (rows.stride == 1) continue;
                    for (std::uint64_t i = 0; i < n; ++i) target[i * rows.stride] = apart[i];
                }
            });
        };
        layout.dtype == CUSZ_F32 ? from(kernels().logs_f32) : from(kernels().logs_f64);
    }

    std::uint32_t piece_checksum(const Source& data, std::uint64_t bytes, int threads, const Target& target) override {
        std::atomic<std::uint64_t> sum = 0;
        const Parts parts(piece_count(bytes), threads);
        parallel(threads, parts.number, [&](std::uint64_t part, int) {
            const auto [first, last] = parts[part];
            std::uint64_t partial = 0;
            for (std::uint64_t p = first; p < last; ++p) {
                partial += piece(p, data.pointer, bytes);
                if (target.pointer == nullptr) continue;
                const std::uint64_t begin = p * piece_words * 4;
                std::memcpy(target.bytes() + begin, data.bytes() + begin,
                            std::min<std::uint64_t>(piece_words * 4, bytes - begin));
            }
            sum += partial;
        });
        return fold(sum);
    }

    void copy(void* target, const void* source, std::size_t bytes) override { std::memcpy(target, source, bytes); }

    std::size_t scratch_bytes() const override {
        std::size_t bytes = logs_.bytes();
        for (const auto& engine : engines_) bytes += engine ? engine->scratch_bytes() : 0;
        return bytes;
    }

    void release_scratch() override {
        for (const auto& engine : engines_)
            if (engine) engine->release_scratch();
        logs_.release();
    }

private:
    std::vector<std::unique_ptr<HostEngine>> engines_{codecs().size()}; // by the codec's number
    Buffer logs_;
};

} // namespace

} // namespace cusz::cpu

std::unique_ptr<cusz::HostBackend> cusz::make_cpu_backend() { return std::make_unique<cusz::cpu::CpuBackend>(); }
