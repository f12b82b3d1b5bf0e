// Chooses how a field is interpolated, by trials on parts of it (section 11).
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "codec/codec.hpp"
#include "codec/data.hpp"
#include "codec/lorenzo/cpu/estimate.hpp"
#include "codec/lorenzo/sample.hpp"
#include "field_coder.hpp"

namespace cusz::cpu {

// The max size of a box, in values. Smaller fields count as small: a trial takes a large part of the time to code them.
inline constexpr std::uint64_t max_box_values = 32768;

// Boxes of a field, all of one shape, on which choices are tried.
class SampleBoxes {
public:
    explicit SampleBoxes(const Layout& layout) {
        extent_ = extents_of(layout.ndim, layout.shape.data());
        // Fields of up to 4096 values are tried whole; of others a sixteenth, but at least 4096 values.
        const std::uint64_t most = std::clamp<std::uint64_t>(layout.values / 16, 4096, max_box_values);
        for (bool grown = true; grown;) {
            grown = false;
            for (std::size_t a = 0; a < 4; ++a) {
                const std::uint64_t larger = std::min(2 * edge_[a], extent_[a]);
                if (larger == edge_[a] || values() / edge_[a] * larger > most) continue;
                edge_[a] = larger;
                grown = true;
            }
        }
        // Odd extents, so that points at the borders are in the next coarser lattice, as they are inside the field.
        for (std::size_t a = 0; a < 4; ++a)
            if (edge_[a] > 8 && edge_[a] < extent_[a]) --edge_[a];
        std::uint64_t places = 1;
        for (std::size_t a = 0; a < 4; ++a) places *= extent_[a] / edge_[a];
        number_ = std::min(std::clamp<std::uint64_t>(layout.values / (32 * max_box_values), 1, 8), places);
        // If one box is to stand for the field, it is picked from several, with at most half of the field's values.
        candidates_ =
            number_ > 1 ? number_ : std::min(std::clamp<std::uint64_t>(layout.values / (2 * values()), 1, 4), places);
        for (std::uint64_t j = 0; j < candidates_; ++j) {
            std::uint64_t place = candidates_ == 1 ? places / 2 : sampled(j, candidates_, places), stride = 1;
            TileBox box{};
            for (std::size_t a = 0; a < 4; ++a) {
                const std::uint64_t n = extent_[a] / edge_[a];
                box.edge[a] = static_cast<std::uint32_t>(edge_[a]);
                box.stride[a] = stride;
                box.offset += place % n * edge_[a] * stride;
                place /= n;
                stride *= extent_[a];
            }
            boxes_.push_back(box);
        }
    }

    bool are_whole(const Layout& field) const { return number_ == 1 && values() == field.values; }
    std::uint64_t values() const { return edge_[0] * edge_[1] * edge_[2] * edge_[3]; } // of one box
    std::uint64_t number() const { return number_; }
    // Whether boxes all over the field are so much alike, and so large, that what holds for them holds for the field.
    bool stand_for_field() const { return are_alike_ && values() >= max_box_values / 4; }
    Layout layout(cusz_dtype dtype) const {
        const std::uint64_t shape[] = {edge_[3], edge_[2], edge_[1], edge_[0]};
        return {dtype, 4, shape};
    }
    // The values of the candidates, one box after another.
    template <class T>
    std::span<T> read(const BoxReader& read, Buffer& memory) {
        const T* const given = static_cast<const T*>(read(boxes_));
        const auto n = static_cast<std::size_t>(candidates_ * values());
        T* const all = memory.reserve<T>(n + lane_room);
        for (std::uint64_t j = 0; j < candidates_; ++j)
            gather_box(given + boxes_[j].offset, edge_, boxes_[j].stride, all + j * values());
        return {all, n};
    }
    // Picks the boxes from them. Returns their values, and their costs by axis. front: the field's.
    template <class T>
    std::pair<std::span<const T>, CostsByAxis> pick(const FieldCoder<T>& engine, v2::Front front, T* all) {
        front.layout = layout(front.layout.dtype);
        std::vector<CostsByAxis> by_axis;
        std::vector<std::uint64_t> costs;
        for (std::uint64_t j = 0; j < candidates_; ++j) {
            by_axis.push_back(engine.curve_costs(front, all + j * values()));
            CurveCosts sum;
            for (const CurveCosts& of : by_axis.back()) sum.add(of);
            costs.push_back(sum.least());
        }
        const std::vector<std::uint64_t> chosen = typical_of(costs);
        number_ = chosen.size();
        T* const boxes = all + chosen[0] * values();
        CostsByAxis sum;
        for (std::uint64_t k = 0; k < number_; ++k) {
            for (std::size_t a = 0; a < 4; ++a) sum[a].add(by_axis[chosen[k]][a]);
            if (chosen[k] != chosen[0] + k) std::copy_n(all + chosen[k] * values(), values(), boxes + k * values());
        }
        return {{boxes, static_cast<std::size_t>(number_ * values())}, sum};
    }

private:
    // All boxes; or, of several that one is to be picked from, the one with costs closest to their mean, or, if some are
    // far from it, the two whose mean is.
    std::vector<std::uint64_t> typical_of(const std::vector<std::uint64_t>& costs) {
        const std::uint64_t n = costs.size(), sum = std::accumulate(costs.begin(), costs.end(), std::uint64_t{0});
        const auto apart = [=](std::uint64_t cost, std::uint64_t of_boxes = 1) { // times n
            return cost * n > sum * of_boxes ? cost * n - sum * of_boxes : sum * of_boxes - cost * n;
        };
        const auto [nearest, farthest] =
            std::ranges::minmax_element(costs, {}, [&](std::uint64_t cost) { return apart(cost); });
        are_alike_ = n > 1 && apart(*farthest) <= sum / 16;
        if (n == number_) {
            std::vector<std::uint64_t> all(n);
            std::iota(all.begin(), all.end(), std::uint64_t{0});
            return all;
        }
        if (apart(*farthest) <= sum / 2) return {static_cast<std::uint64_t>(nearest - costs.begin())};
        // Of four boxes, the other two are equally far from the mean: the two that differ more are taken.
        struct Pair {
            std::uint64_t apart, alike, first, second;
            auto operator<=>(const Pair&) const = default;
        };
        Pair best{~std::uint64_t{0}, 0, 0, 0};
        for (std::uint64_t i = 0; i < n; ++i)
            for (std::uint64_t j = i + 1; j < n; ++j) {
                const auto [less, more] = std::minmax(costs[i], costs[j]);
                best = std::min(best, Pair{apart(less + more, 2), sum - (more - less), i, j});
            }
        return {best.first, best.second};
    }

    Extents extent_{}, edge_{1, 1, 1, 1};
    std::uint64_t number_ = 1, candidates_ = 1;
    bool are_alike_ = false;
    std::vector<TileBox> boxes_;
};

// How to interpolate, and how long the archive would be.
struct Choice {
    Interpolation how;
    std::uint64_t bytes = 0;
};

// Tries interpolations on boxes of a field, one after the other, and keeps the best so far.
template <class T>
class Chooser {
public:
    // sample, costs: of the boxes. bounds: of lattices, by number, if they are not to be chosen. threads: at most one for
    // each box.
    Chooser(FieldCoder<T>& engine, const v2::Front& front, const SampleBoxes& boxes, const T* sample,
            const CostsByAxis& costs, std::optional<std::uint32_t> bounds, int threads)
        : engine_(engine), values_(front.layout.values), boxes_(boxes), sample_(sample), threads_(threads),
          of_box_(front), is_small_(values_ < max_box_values), is_whole_(boxes.are_whole(front.layout)),
          chooses_bounds_(!bounds), by_axis_(costs) {
        of_box_.layout = boxes.layout(front.layout.dtype);
        engine_.forget();
        for (const CurveCosts& of : by_axis_) costs_.add(of);
        const Extents extent = extents_of(front.layout.ndim, front.layout.shape.data());
        for (std::uint32_t a = 0; a < 3; ++a) // a fourth one comes last anyway
            if (extent[a] > 1 && extent[a] <= std::min(max_short_extent, std::ranges::max(extent) / 2))
                short_ |= 1u << a;
        is_linear_ = costs_.linear < costs_.cubic;
        // If linear is not best for a small field, six points and codes nearly always are, and they do not take long
        // there.
        best_.bounds = bounds.value_or(0);
        best_ = with_curve(is_linear_  ? v2::Curve::linear
                           : is_small_ ? v2::Curve::six_points_and_codes
                                       : v2::Curve::cubic);
        take(best_, estimate(best_));
    }

    // The best so far; later trials can only lower its estimate.
    Choice chosen() const {
        constexpr std::uint64_t of_head = 24, of_map = 200; // bytes, about
        const std::uint64_t of_units = scaled(of_best_.bits / 8, values_, boxes_.number() * boxes_.values());
        return {best_, of_head + of_units + (is_small_ ? of_best_.map_bits / 8 : std::min(of_map, of_units / 4))};
    }
    // Whether the archive is worth making, next to another codec's of `others` bytes as estimated from the same boxes.
    // That takes a closer look than finding the best interpolation. Where boxes are alike, it is right to half a
    // hundredth, and Lorenzo's estimate is up to a hundredth too high. One box alone is not that typical.
    bool saves_enough(std::uint64_t others) {
        of_best_ = engine_.estimate(of_box_, best_, sample_, boxes_.number(), 0, threads_, true);
        return chosen().bytes < (boxes_.number() > 1 ? others / 64 * 63 : others);
    }
    // Whether the estimate may be far too high: boxes have more borders than the field, where points lack some of the
    // neighbours from which they are predicted. What smooth fields gain by curves is lost there.
    bool loses_at_borders() const {
        return !is_whole_ && costs_.linear > costs_.cubic + costs_.points * CurveCosts::of_bit;
    }
    // The highest estimate with which the archive is made, next to another codec's of `others` bytes.
    std::uint64_t most(std::uint64_t others) const {
        return others / 32 * (loses_at_borders() ? 64 : 34) + others % 32;
    }
    // most: a longer archive is not used, so nothing is tried if the estimate is far above this.
    Choice choose(std::uint64_t most) {
        // Along short axes may be the components of vectors, which are not alike.
        if (short_ != 0 && attempt(with_axes(15u & ~short_, 15u & ~short_))) allowed_ = 15u & ~short_;
        const bool may_leave_axes_out = roughest_of(15, 16) || axes_of_change() != 0;
        if (chosen().bytes / 4 * 3 > most && !may_leave_axes_out) return chosen();
        if (of_best_.finest.n_active == 1) {
            attempt_linear();
            return chosen();
        }
        // Smooth fields gain by smaller bounds for coarser lattices: those that take less than 1/64 of their values'
        // bits, or cost less than a fourth of a bit per point.
        if (chooses_bounds_ && (of_best_.bits < boxes_.number() * boxes_.values() * 8 * sizeof(T) / 64 ||
                                (!is_small_ && costs_.least() < costs_.points * CurveCosts::of_bit / 4))) {
            Interpolation how = best_;
            how.bounds = 1;
            attempt(how);
        }
        if (!is_small_ && !is_linear_) attempt(with_curve(v2::Curve::six_points_and_codes), 32); // half as long again
        attempt_linear();
        leave_axes_out();
        return chosen();
    }

private:
    using Estimate = typename FieldCoder<T>::Estimate;
    static constexpr std::uint64_t any = std::uint64_t{1} << 40;
    static constexpr std::uint64_t max_short_extent = 6; // points, which do not tell the cost

    Estimate estimate(const Interpolation& how) {
        return engine_.estimate(of_box_, how, sample_, boxes_.number(), is_small_ ? values_ : 0, threads_);
    }
    void take(const Interpolation& how, const Estimate& its) {
        best_ = how;
        of_best_ = its;
        if (is_whole_ && is_small_) engine_.keep(of_box_, best_, of_best_.preset);
    }
    // Takes `how` if it saves more than one in `least` bits.
    bool attempt(const Interpolation& how, std::uint64_t least = any) {
        const Estimate other = estimate(how);
        const std::uint64_t bits = other.bits + other.map_bits;
        if (bits + bits / least >= of_best_.bits + of_best_.map_bits) return false;
        take(how, other);
        return true;
    }
    Interpolation with_curve(v2::Curve curve) const {
        Interpolation how = best_;
        how.curve = static_cast<std::uint32_t>(curve);
        return how;
    }
    void attempt_linear() { // costs next to missing values are only known by coding
        if (!is_linear_ && !costs_.tell_enough()) attempt(with_curve(v2::Curve::linear));
    }

    // axes: a mask. Returns the axis that it costs most to interpolate along, if that is far above the cheapest one.
    std::optional<std::uint32_t> roughest_of(std::uint32_t axes, std::uint64_t quarters) const {
        constexpr std::uint64_t sixteenth = 2048 / 16; // of a bit
        const auto cost = [&](std::uint32_t a) { return by_axis_[a].least() / by_axis_[a].points; };
        std::uint32_t rough = 4, smooth = 4; // none yet
        for (std::uint32_t a = 0; a < 4; ++a) {
            if ((axes >> a & 1) == 0 || by_axis_[a].points == 0) continue;
            if (rough == 4 || cost(a) > cost(rough)) rough = a;
            if (smooth == 4 || cost(a) < cost(smooth)) smooth = a;
        }
        if (rough == 4 || cost(rough) * 4 <= cost(smooth) * quarters + 4 * sixteenth) return std::nullopt;
        return rough;
    }
    // A mask of the axes along which the field changes, if it hardly does along another one, as a two-dimensional
    // problem on a three-dimensional grid does: those along which linear interpolation costs 64 times as much, or more.
    std::uint32_t axes_of_change() const {
        const auto change = [&](std::uint32_t a) {
            return static_cast<double>(by_axis_[a].linear) / static_cast<double>(by_axis_[a].points);
        };
        double least = std::numeric_limits<double>::infinity();
        for (std::uint32_t a = 0; a < 4; ++a)
            if (by_axis_[a].points > 0) least = std::min(least, change(a));
        std::uint32_t changing = 0;
        for (std::uint32_t a = 0; a < 4; ++a)
            if (by_axis_[a].points > 0 && change(a) > 64 * least) changing |= 1u << a;
        return changing;
    }
    // For fields that are smooth along some axes only.
    void leave_axes_out() {
        const std::uint32_t changing = axes_of_change();
        if (leave_rough_axes_out() == changing || changing == 0) return;
        attempt(with_axes(15u & ~changing, 15u & ~changing), 2); // a third less: tiles of few axes take longer
    }
    // For layered fields: tries leaving out the roughest axis, in all lattices or only in the finest, with or without a
    // fourth axis in its place. If that is better, then the next one. Returns a mask of those that it has left out.
    std::uint32_t leave_rough_axes_out() {
        std::uint32_t left_out = 0;
        for (bool better = true; better;) {
            const Lattice finest = of_best_.finest;
            std::uint32_t active = 0;
            for (std::uint32_t a = 0; a < finest.n_active; ++a) active |= 1u << finest.axis[a];
            const std::optional<std::uint32_t> roughest = roughest_of(active, is_small_ ? 8 : 6);
            if (!roughest || finest.n_active == 1 || (finest.n_active == 2 && left_out != 0)) break;
            left_out |= 1u << *roughest;
            const std::uint64_t least = *roughest == 0 ? 20 : any; // without the fastest axis rows are strided: slower
            const std::uint32_t without = 15u & ~left_out, none_instead = active & ~left_out;
            better = attempt(with_axes(without, without), least);
            if (none_instead != without && finest.n_active == 3 && finest.extent[3] > 1)
                better |= attempt(with_axes(none_instead, none_instead), least);
            if (!is_small_) better |= attempt(with_axes(without, 15));
        }
        return left_out;
    }
    Interpolation with_axes(std::uint32_t of_finest, std::uint32_t others) const {
        Interpolation how = best_;
        how.axes = {of_finest & allowed_, others & allowed_, others & allowed_};
        return how;
    }

    FieldCoder<T>& engine_;
    std::uint64_t values_; // of the field
    const SampleBoxes& boxes_;
    const T* sample_;
    int threads_;
    v2::Front of_box_;
    bool is_small_, is_whole_; // the field is small; the sample is all of it
    bool chooses_bounds_;
    CostsByAxis by_axis_;
    CurveCosts costs_;                       // sum over all axes
    std::uint32_t short_ = 0, allowed_ = 15; // masks of axes
    bool is_linear_ = false;
    Interpolation best_;
    Estimate of_best_;
};

} // namespace cusz::cpu
