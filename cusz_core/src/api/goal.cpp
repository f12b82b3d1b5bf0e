#include "goal.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <locale>
#include <map>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "archive/v2/frame.hpp"
#include "errors.hpp"
#include "search.hpp"

namespace cusz {
namespace {

constexpr std::uint64_t min_sample = 1 << 20; // values; a field of at most twice as many is its own sample
constexpr std::uint64_t sampled = 16;         // of a large field, one value in 16 is sampled
constexpr std::uint64_t few_values = 1 << 16; // examined to find out whether a field is evenly spaced
constexpr std::size_t max_whole_trials = 8;   // fields that jump need more than one or two
constexpr double psnr_margin = 1e-6;          // dB: so that summing the errors in another order reaches the goal, too

// A sum of squares below this may lack errors that are so far below the bound that their squares underflow.
constexpr double least_sum = 1e-270;

// Edges of a sample's boxes, by the number of dimensions, slowest first. Tiles of the Lorenzo codec are independent
// of each other, so many small boxes are most representative. The spline codec compresses worse at borders of boxes.
constexpr std::uint64_t small_boxes[4][4] = {{16384}, {64, 64}, {16, 32, 32}, {1, 16, 32, 32}};
constexpr std::uint64_t large_boxes[4][4] = {{65536}, {256, 256}, {64, 64, 64}, {4, 32, 32, 32}};

// A sample of a field's values, or all of them.
struct FieldSample {
    Layout layout;
    const void* values;
    std::uint64_t n_valid; // of them
    bool is_field;
};

Layout without_ones(const Layout& layout) {
    std::array<std::uint64_t, CUSZ_MAX_NDIM> shape{};
    std::int32_t ndim = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(layout.ndim); ++d)
        if (layout.shape[d] != 1) shape[static_cast<std::size_t>(ndim++)] = layout.shape[d];
    return {layout.dtype, ndim, shape.data()};
}

// Samples boxes of a field, stacked along its slowest axis. They are spread evenly, whatever their number (an additive
// recurrence with powers of the root of r^(n+1) = r + 1), and not on a lattice, because a periodic field could be in
// step with that.
FieldSample sample_of(const Workers& workers, const Layout& whole_field, const Coding& coding, const void* field,
                      std::uint64_t n_valid) {
    if (whole_field.values <= 2 * min_sample) return {whole_field, field, n_valid, true};
    const Layout layout = without_ones(whole_field);
    const auto ndim = static_cast<std::size_t>(layout.ndim);
    const auto* const edges = (coding.predictor == CUSZ_PREDICTOR_LORENZO ? small_boxes : large_boxes)[ndim - 1];
    const auto stride = whole(layout, nullptr).stride;
    std::array<std::uint64_t, CUSZ_MAX_NDIM> shape{};
    for (std::size_t d = 0; d < ndim; ++d) shape[d] = layout.shape[d] < 2 * edges[d] ? layout.shape[d] : edges[d];
    const Layout box(layout.dtype, layout.ndim, shape.data());
    const std::uint64_t wanted = std::max(min_sample, layout.values / sampled);
    const std::uint64_t n_boxes = (wanted + box.values - 1) / box.values;
    shape[0] *= n_boxes;
    const Layout stacked(layout.dtype, layout.ndim, shape.data());

    double root = 2;
    for (int i = 0; i < 64; ++i) root = std::pow(1 + root, 1.0 / static_cast<double>(ndim + 1));
    auto* const values = workers.scratch.sample.reserve<std::byte>(static_cast<std::size_t>(stacked.bytes()));
    std::byte* to = values;
    for (std::uint64_t number = 0; number < n_boxes; ++number) {
        std::uint64_t first = 0;
        for (std::size_t d = 0; d < ndim; ++d) {
            const double turns = 0.5 + static_cast<double>(number + 1) / std::pow(root, static_cast<double>(d + 1));
            const auto places = static_cast<double>(layout.shape[d] - box.shape[d] + 1);
            first += static_cast<std::uint64_t>((turns - std::floor(turns)) * places) * stride[d];
        }
        copy_points(box, static_cast<const std::byte*>(field) + first * box.value_bytes(), stride, whole(box, to));
        to += box.bytes();
    }
    const ValueRange range =
        workers.cpu.value_range(layout.dtype, stacked.values, {values}, coding.special, workers.threads);
    return {stacked, values, range.n_valid, false};
}

// Calls `use` with a field's values.
template <class Use>
auto with_values(cusz_dtype dtype, const void* field, const Use& use) {
    return dtype == CUSZ_F32 ? use(static_cast<const float*>(field)) : use(static_cast<const double*>(field));
}

// Some of the sampled values, all within the range.
std::vector<double> some_values(const FieldSample& sample, const ValueRange& range) {
    std::vector<double> some;
    with_values(sample.layout.dtype, sample.values, [&](const auto* values) {
        const std::uint64_t stride = std::max<std::uint64_t>(1, sample.layout.values / few_values);
        for (std::uint64_t i = 0; i < sample.layout.values; i += stride)
            if (const auto value = static_cast<double>(values[i]); value >= range.min && value <= range.max)
                some.push_back(value);
    });
    return some;
}

// Sum of the squared errors, divided by eb^2. Values that differ are finite.
double sum_of_squares(cusz_dtype dtype, const void* original, const void* decoded, std::uint64_t n, double eb) {
    return with_values(dtype, original, [&](const auto* a) {
        const auto* const b = static_cast<decltype(a)>(decoded);
        double sum = 0;
        constexpr std::uint64_t run = 4096; // added up by itself: fewer roundings
        for (std::uint64_t begin = 0; begin < n; begin += run) {
            double part = 0;
            for (std::uint64_t i = begin; i < std::min(begin + run, n); ++i) {
                const double error = (static_cast<double>(a[i]) - static_cast<double>(b[i])) / eb;
                part += std::abs(error) <= 1 ? error * error : 0; // skips NaN and infinities, which are kept
            }
            sum += part;
        }
        return sum;
    });
}

// The largest error among finite values.
double largest_error(cusz_dtype dtype, const void* original, const void* decoded, std::uint64_t n) {
    return with_values(dtype, original, [&](const auto* a) {
        const auto* const b = static_cast<decltype(a)>(decoded);
        double largest = 0;
        for (std::uint64_t i = 0; i < n; ++i)
            if (std::isfinite(a[i]))
                largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
        return largest;
    });
}

// One field, and the goal for it.
struct Sought {
    const Workers& workers; // on the CPU
    Coding coding;          // with an absolute bound
    ValueRange range;
    Goal goal;

    Coding with(double eb) const {
        Coding own = coding;
        own.eb = own.eb_abs = eb;
        return own;
    }

    struct Result {
        std::size_t bytes;
        double psnr;
        std::size_t once; // the part of these bytes that does not grow with the field
    };
    // Compresses a field and, for a PSNR, decodes and compares it.
    Result compress(const Layout& layout, const void* field, std::uint64_t n_valid, double eb,
                    std::byte* archive) const {
        Result result{write_archive(workers, layout, with(eb), {field}, {archive}), 0, 0};
        const Frame frame = parse(archive, archive, result.bytes);
        result.once = frame.header_bytes + frame.model.size();
        if (!goal.is_psnr) return result;
        result.psnr = std::numeric_limits<double>::infinity();
        if (frame.kind == CUSZ_KIND_RAW) return result;
        void* const decoded = workers.scratch.decoded.reserve(static_cast<std::size_t>(layout.bytes()));
        read_archive(workers, frame, {frame.body}, {decoded});
        const double sum = sum_of_squares(layout.dtype, field, decoded, layout.values, eb);
        if (sum > 0) result.psnr = psnr_of(sum, eb, n_valid);
        if (sum < least_sum && result.psnr >= goal.target) {
            const double largest = largest_error(layout.dtype, field, decoded, layout.values);
            if (largest == 0) return result;
            const double all = sum_of_squares(layout.dtype, field, decoded, layout.values, largest);
            if (const double psnr = psnr_of(all, largest, n_valid); psnr < goal.target) result.psnr = psnr;
        }
        return result;
    }

private:
    // sum: of squared errors, divided by unit^2; more than 0.
    double psnr_of(double sum, double unit, std::uint64_t n_valid) const {
        const double half_range = range.max / 2 - range.min / 2;
        const double log_rmse = std::log10(unit) + 0.5 * std::log10(sum / static_cast<double>(n_valid));
        return half_range > 0 ? 20 * (std::log10(half_range) + std::log10(2.0) - log_rmse) - psnr_margin
                              : -std::numeric_limits<double>::infinity();
    }
};

[[noreturn]] void out_of_reach(const Goal& goal, const std::map<double, Tried>& tried) {
    const auto best = std::max_element(tried.begin(), tried.end(),
                                       [](const auto& a, const auto& b) { return a.second.ratio < b.second.ratio; });
    std::ostringstream text; // because fail() writes more digits
    text.imbue(std::locale::classic());
    text.precision(4);
    text << best->second.ratio << ", with the bound " << best->first;
    fail(CUSZ_ERROR_PARAMETER, "ratio is ", goal.target, "; the best found for this field is ", text.str(),
         " (none larger than its value range is tried)");
}

} // namespace

std::size_t write_for_goal(const Workers& workers, const Layout& layout, const Coding& asked, const Source& given,
                           const Target& archive) {
    const Goal goal{.target = asked.eb, .is_psnr = asked.mode == CUSZ_PSNR, .within_db = 0.05};
    if (!(goal.target > (goal.is_psnr ? 0 : 1)))
        fail(CUSZ_ERROR_PARAMETER, goal.is_psnr ? "psnr" : "ratio", " is ", goal.target, "; legal: above ",
             goal.is_psnr ? "0 (decibels)" : "1");
    Coding coding = asked;
    coding.mode = CUSZ_ABS;
    coding.eb = coding.eb_abs = 0;
    if (layout.values == 0) return write_archive(workers, layout, coding, given, archive);
    Scratch& scratch = workers.scratch;
    const auto bytes = static_cast<std::size_t>(layout.bytes());
    const void* field = given.pointer;
    if (given.on_device()) {
        workers.backend.copy(scratch.field.reserve(bytes), field, bytes);
        field = scratch.field.reserve(bytes);
    }
    const Workers on_cpu{workers.cpu, workers.cpu, scratch, workers.threads};
    const ValueRange range =
        workers.cpu.value_range(layout.dtype, layout.values, {field}, coding.special, workers.threads);
    Sought sought{on_cpu, coding, range, goal};
    const FieldSample sample = sample_of(on_cpu, layout, coding, field, range.n_valid);

    const auto raw_bytes = static_cast<double>(bytes);
    const auto on_sample = [&](const Sought& own, double eb) -> Tried {
        auto* const at =
            scratch.inner.reserve<std::byte>(static_cast<std::size_t>(sample.layout.bytes()) + raw_header_bytes);
        const auto made = own.compress(sample.layout, sample.values, sample.n_valid, eb, at);
        const auto once = static_cast<double>(made.once);
        const double growth = static_cast<double>(layout.values) / static_cast<double>(sample.layout.values);
        const double estimate = once + (static_cast<double>(made.bytes) - once) * growth;
        return {made.psnr, raw_bytes / std::min(estimate, raw_bytes + raw_header_bytes)};
    };
    double largest = absolute_bound(1.0, range.min, range.max);
    if (largest == 0) largest = range.max != 0 ? std::abs(range.max) : 1.0;
    // Smooth fields take fewer bytes for a PSNR if coarser lattices, from which finer ones are interpolated, have
    // smaller bounds than those; at first, all have the same.
    const bool chooses_bounds = goal.is_psnr && !coding.bounds && coding.predictor != CUSZ_PREDICTOR_LORENZO;
    if (chooses_bounds) sought.coding.bounds = 0;
    const auto with_bounds = [&](std::size_t bounds) {
        Sought own = sought;
        own.coding.bounds = static_cast<std::uint32_t>(bounds);
        own.coding.predictor = CUSZ_PREDICTOR_SPLINE; // Lorenzo has no lattices
        return own;
    };
    Search search(goal, largest, 0, [&](double eb) { return on_sample(sought, eb); });
    const std::optional<double> exact =
        goal.is_psnr ? exact_bound(some_values(sample, range), range.min, range.max) : std::nullopt;
    double first = goal.is_psnr ? search.estimate_or(exact, range.min == range.max) : search.estimate();
    if (exact && coding.predictor == CUSZ_PREDICTOR_AUTO) {
        // Lorenzo keeps evenly spaced values exact with larger bounds than interpolation does.
        Sought lorenzo = sought;
        lorenzo.coding.predictor = CUSZ_PREDICTOR_LORENZO;
        Search own(goal, largest, 0, [&on_sample, lorenzo](double eb) { return on_sample(lorenzo, eb); });
        if (own.surplus(*exact) >= 0 && (first == 0 || own.ratio(*exact) > search.ratio(first))) {
            sought.coding = lorenzo.coding;
            search = std::move(own);
            first = *exact;
        }
    }
    if (chooses_bounds && first != exact) {
        const std::size_t bounds =
            search.most_compact([&](std::size_t number, double eb) { return on_sample(with_bounds(number), eb); },
                                std::size(v2::bounds_of_lattices), first);
        if (bounds > 0) sought.coding = with_bounds(bounds).coding;
    }
    if (sample.is_field) {
        if (search.surplus(first) < 0) out_of_reach(goal, search.on_sample());
        return write_archive(workers, layout, sought.with(first), given, archive);
    }

    auto* const at = archive.on_device() ? scratch.inner.reserve<std::byte>(bytes + raw_header_bytes) : archive.bytes();
    double latest = 0;
    std::size_t latest_bytes = 0;
    const auto on_whole = [&](double eb) -> Tried {
        const auto made = sought.compress(layout, field, range.n_valid, eb, at);
        latest = eb;
        latest_bytes = made.bytes;
        return {made.psnr, raw_bytes / static_cast<double>(made.bytes)};
    };
    const auto best = search.find(on_whole, first, true, max_whole_trials);
    if (!best) out_of_reach(goal, search.on_whole());
    if (*best == latest && !archive.on_device()) return latest_bytes;
    return write_archive(workers, layout, sought.with(*best), given, archive);
}

} // namespace cusz
