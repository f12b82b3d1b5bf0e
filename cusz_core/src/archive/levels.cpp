#include "levels.hpp"

#include <algorithm>

#include "pyramid.hpp"

namespace cusz {

namespace {

// Without masks: the axes are halved as far as they can be.
Pyramid pyramid_of(const Layout& layout) { return {layout.ndim, layout.shape.data(), Interpolation{}.axes}; }

// Calls use(d, a) for every dimension d and its axis a. Dimensions of extent 1 have no axis.
template <class Use>
void for_axes(const Layout& layout, const Use& use) {
    std::uint32_t axis = 0;
    for (auto d = static_cast<std::size_t>(layout.ndim); d-- > 0;)
        if (layout.shape[d] != 1) use(d, axis++);
}

} // namespace

std::size_t n_levels(const Layout& layout) { return layout.values == 0 ? 1 : pyramid_of(layout).lattices.size(); }

Level level_of(const Layout& layout, std::size_t level) {
    Level found{.shape = layout.shape, .step = {}};
    std::fill_n(found.step.begin(), layout.ndim, 1);
    if (level == 0) return found;
    const Pyramid pyramid = pyramid_of(layout);
    for_axes(layout, [&](std::size_t d, std::uint32_t axis) {
        found.step[d] = pyramid.scale(level, axis);
        found.shape[d] = (layout.shape[d] - 1) / found.step[d] + 1;
    });
    return found;
}

LatticeOfLevel lattice_of(const v2::Front& front, const v2::Head& head, std::size_t head_bytes, std::size_t level) {
    const Layout& layout = front.layout;
    const Level wanted = level_of(layout, level);
    const Pyramid pyramid(layout.ndim, layout.shape.data(), head.how.axes);
    const std::vector<v2::Unit> units = v2::units_of(pyramid);
    // The coarsest lattice that has all points of the level.
    const auto has_all = [&](std::size_t i) {
        bool has = true;
        for_axes(layout, [&](std::size_t d, std::uint32_t axis) {
            has = has && (wanted.shape[d] == 1 || wanted.step[d] % pyramid.scale(i, axis) == 0);
        });
        return has;
    };
    LatticeOfLevel found;
    while (found.lattice + 1 < pyramid.lattices.size() && has_all(found.lattice + 1)) ++found.lattice;
    std::uint64_t values = 1;
    for (const std::uint64_t extent : std::span(wanted.shape).first(static_cast<std::size_t>(layout.ndim)))
        values *= extent;
    found.is_exact = pyramid.lattices[found.lattice].values() == values;
    found.lattice = std::min(found.lattice, units[0].lattice); // all of unit 0 is decoded at once
    for_axes(layout, [&](std::size_t d, std::uint32_t axis) {
        if (wanted.shape[d] > 1) found.stride[d] = wanted.step[d] / pyramid.scale(found.lattice, axis);
    });
    found.needed_bytes = head_bytes;
    for (std::size_t u = 0; u < units.size() && (u == 0 || units[u].lattice >= found.lattice); ++u)
        found.needed_bytes += static_cast<std::size_t>(head.units[u].bytes);
    return found;
}

} // namespace cusz
