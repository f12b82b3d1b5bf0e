#include "search.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace cusz {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double max_octaves = 60;          // bounds are sought from the largest one down to 2^-60 of it
constexpr double first_octaves = 10;        // for a ratio, the search begins with 2^-10 of the largest bound
constexpr int digits_of_bound = 3;          // of the bounds that are tried
constexpr int max_trials = 24;              // on a sample, for one search
const double ratio_within = std::log(1.04); // above the goal
constexpr double aim = 0.3;                 // the surplus that a search aims at
const double narrow = std::log2(1.01);      // octaves: the largest distance between adjacent bounds of three digits

// Limits for an evenly spaced field: the number of different values, and of steps over its range.
constexpr std::size_t few_different = 1 << 12;
constexpr double max_steps = 1e6;
constexpr double about_as_large = 0.97; // a bound that keeps values exact may be that much smaller than another one

double number(std::string_view text) {
    double value = text.find("e-") == std::string_view::npos ? infinity : 0; // beyond all numbers
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

// The nearest number with `digits` significant digits, as text.
std::string rounded(double value, int digits) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.begin(), text.end(), value, std::chars_format::scientific, digits - 1).ptr};
}

// Finds the largest position at which `surplus`, a mostly falling function, is not negative; `low` if it finds none. A
// position with a surplus from 0 to 1 is good enough. slope: for the first steps, how fast the function falls.
double largest_position(const std::function<double(double)>& surplus, double start, double slope, double low,
                        double high) {
    double position = std::clamp(start, low, high);
    std::optional<std::pair<double, double>> reached, missed; // positions, and surpluses there
    for (int trial = 0; trial < max_trials; ++trial) {
        const double value = surplus(position);
        if (value >= 0) {
            reached = {position, value};
            if (value <= 1 || position == high) break;
        } else {
            missed = {position, value};
            if (position == low) break;
        }
        if (reached && missed) {
            const auto [here, above] = *reached;
            const auto [there, below] = *missed;
            if (there - here < narrow) break;
            const double share = std::isfinite(above - below) ? (above - aim) / (above - below) : 0.5;
            position = here + (there - here) * std::clamp(share, 0.1, 0.9);
        } else {
            position = std::clamp(position + std::clamp((value - aim) / slope, -8.0, 8.0), low, high);
            slope /= 2; // steps become longer until there is one on either side
        }
    }
    return reached ? reached->first : low;
}

} // namespace

double Goal::surplus(const Tried& tried) const {
    if (is_psnr) return (tried.psnr - target) / within_db;
    return tried.ratio > 0 ? std::log(tried.ratio / target) / ratio_within : -infinity;
}

double Goal::slope() const { return is_psnr ? 6.02 / within_db : 0.18 / ratio_within; }

double rounded_bound(double eb, int digits, bool up) {
    const std::string text = rounded(eb, digits);
    const double nearest = number(text);
    if (up ? nearest >= eb : nearest <= eb) return nearest;
    // The next number, one unit of the last digit away; below 1.00, a tenth of that.
    const std::size_t e = text.find('e');
    std::string figures = text.substr(0, e);
    std::erase(figures, '.');
    long mantissa = std::stol(figures);
    long unit = std::stol(text.substr(e + 1)) - (digits - 1);
    if (!up && figures.find_first_not_of('0', 1) == std::string::npos && figures[0] == '1') {
        mantissa *= 10;
        --unit;
    }
    std::array<char, 48> next{}; // (std::to_string would make the library export a table of digits)
    std::snprintf(next.data(), next.size(), "%lde%ld", mantissa + (up ? 1 : -1), unit);
    return number(next.data());
}

std::optional<double> exact_bound(std::vector<double> values, double lowest, double highest) {
    if (lowest == highest) return highest != 0 ? std::abs(highest) / 2 : 1.0;
    for (double& value : values) value /= 2; // differences of halves do not overflow
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    if (values.size() < 2 || values.size() > few_different) return {};
    const double half_range = values.back() - values.front();
    double spacing = half_range;
    for (std::size_t i = 1; i < values.size(); ++i) spacing = std::min(spacing, values[i] - values[i - 1]);
    if (spacing * max_steps < half_range) return {};
    const double exact = half_range / std::round(half_range / spacing);
    return number(rounded(exact, 6));
}

Search::Search(const Goal& goal, double largest, double smallest, Trial on_sample)
    : goal_(goal), largest_(largest), smallest_(smallest), try_sample_(std::move(on_sample)) {
    const double octaves = smallest > 0 ? std::log2(largest / smallest) : max_octaves;
    low_ = goal.is_psnr ? -octaves : 0;
    high_ = goal.is_psnr ? 0 : octaves;
}

// Rounds to the side where the goal is reached.
double Search::bound(double position) const {
    if (smallest_ > 0 && std::abs(position) >= std::max(-low_, high_)) return smallest_;
    const double eb = largest_ * std::exp2(-std::abs(position));
    if (eb == 0) return std::numeric_limits<double>::denorm_min();
    return std::min(std::max(rounded_bound(eb, digits_of_bound, !goal_.is_psnr), smallest_), largest_);
}

double Search::position(double eb) const {
    const double octaves = eb > 0 ? std::log2(largest_ / eb) : max_octaves;
    return goal_.is_psnr ? -octaves : octaves;
}

double Search::surplus(double eb) {
    auto found = on_sample_.find(eb);
    if (found == on_sample_.end()) found = on_sample_.emplace(eb, try_sample_(eb)).first;
    return goal_.surplus(found->second);
}

double Search::ratio(double eb) {
    surplus(eb);
    return on_sample_.at(eb).ratio;
}

double Search::goal_on_sample(double start, double correction) {
    return largest_position([&](double position) { return surplus(bound(position)) + correction; }, start,
                            goal_.slope(), low_, high_);
}

double Search::estimate(std::optional<double> near) {
    if (!goal_.is_psnr) return bound(goal_on_sample(first_octaves, 0));
    const double octaves = goal_.target / (20 * std::log10(2.0)) - std::log2(3.0) / 2; // if errors are uniform
    const double eb = bound(goal_on_sample(near ? position(*near) : -octaves, 0));
    return surplus(eb) >= 0 ? eb : 0;
}

double Search::estimate_or(std::optional<double> exact, bool is_constant) {
    const double eb = exact.value_or(0);
    const bool is_exact = eb > 0 && surplus(eb) >= 0;
    if (is_constant) return is_exact ? eb : 0; // only exactness gives a PSNR
    const double any = estimate();
    return is_exact && (eb > about_as_large * any || ratio(eb) > ratio(any)) ? eb : any;
}

std::size_t Search::most_compact(const std::function<Tried(std::size_t, double)>& on_sample, std::size_t variants,
                                 double& eb) {
    if (eb == 0 || !std::isfinite(surplus(eb))) return 0;
    double ratio = ratio_at_psnr(eb);
    for (std::size_t variant = 1; variant < variants; ++variant) {
        Search own(goal_, largest_, smallest_,
                   [on_sample, variant](double bound) { return on_sample(variant, bound); });
        const double own_eb = own.estimate(eb), own_ratio = own_eb > 0 ? own.ratio_at_psnr(own_eb) : 0;
        if (own_ratio <= ratio) return variant - 1;
        *this = std::move(own);
        eb = own_eb;
        ratio = own_ratio;
    }
    return variants - 1;
}

double Search::ratio_at_psnr(double eb) {
    const double above = surplus(eb), other = bound(position(eb) + std::max(above, 2 * aim) / goal_.slope());
    const double rise = surplus(other) - above, here = ratio(eb);
    if (rise == 0 || !std::isfinite(rise)) return here;
    return here * std::pow(ratio(other) / here, std::clamp(-above / rise, -2.0, 2.0));
}

std::optional<double> Search::find(const Trial& on_whole, double first, bool lossless, std::size_t max_whole_trials) {
    std::optional<double> best;
    double reached = -infinity, missed = infinity, stride = narrow; // positions, and a distance of positions
    double eb = first;
    while (!on_whole_.contains(eb)) {
        const Tried tried = on_whole(eb);
        on_whole_.emplace(eb, tried);
        const double surplus_there = goal_.surplus(tried);
        double at = position(eb);
        if (surplus_there >= 0) {
            if (!best || at > reached) {
                best = eb;
                reached = at;
            }
            if (surplus_there <= 1 || surplus_there == infinity || at >= high_) break;
        } else if (at > low_) {
            missed = at > reached ? std::min(missed, at) : missed; // below it: the field jumps
        } else if (goal_.is_psnr && lossless) {
            eb = 0;
            continue;
        } else {
            break;
        }
        if (best && (on_whole_.size() >= max_whole_trials || missed - reached < narrow)) break;
        const double correction = surplus_there - surplus(eb);
        const double step = (surplus_there - aim) / goal_.slope();
        at = std::isfinite(correction) ? goal_on_sample(at, correction) : at + step;
        if (!best) {
            at = std::max(std::min(at, missed - stride), low_);
            stride *= 2;
        } else if (missed < infinity && (at <= reached || at >= missed || on_whole_.contains(bound(at)))) {
            at = (reached + missed) / 2;
        } else if (at <= reached) {
            at = reached + std::max(step, narrow);
        }
        eb = bound(at);
    }
    return best;
}

} // namespace cusz
