// The search for an error bound that gives a PSNR or a ratio: which bounds are tried, and when it ends. The caller
// finds out what a bound gives: for one field (goal.cpp), or for blocks on many ranks, which all make the same search
// with the same answers (the Python module compiles this file, too).
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <vector>

namespace cusz {

// The outcome of a bound. psnr: in dB; NaN if only the ratio is wanted.
struct Tried {
    double psnr = std::numeric_limits<double>::quiet_NaN();
    double ratio = 0;
};
using Trial = std::function<Tried(double eb)>;

// The goal: a PSNR in dB, or a ratio.
struct Goal {
    double target = 0;
    bool is_psnr = false;
    double within_db = 0.5; // a PSNR may be this far above the goal

    // By how much a bound surpasses the goal, in multiples of the tolerance (4% of a ratio); negative: it misses it.
    double surplus(const Tried& tried) const;
    // Rough change of the surplus per octave of the bound: 6 dB, or a ratio 20% higher.
    double slope() const;
};

// Rounds a bound to `digits` significant decimal digits: down, or with `up`, up. eb > 0.
double rounded_bound(double eb, int digits, bool up);

// A bound that may keep all values of a field exact, where smaller ones do not: if they are few and evenly spaced, such
// as integers, or all the same. values: some of them, all within the field's range.
std::optional<double> exact_bound(std::vector<double> values, double lowest, double highest);

class Search {
public:
    // on_sample: tells what a bound gives for a sample; called once per bound. smallest: 0 for 2^-60 of the largest.
    Search(const Goal& goal, double largest, double smallest, Trial on_sample);

    // By how much a bound surpasses the goal on the sample, and its ratio.
    double surplus(double eb);
    double ratio(double eb);

    // The bound according to the sample; 0 if no other gives the PSNR. near: about where it may be, if that is known.
    double estimate(std::optional<double> near = {});

    // The same for a PSNR; or `exact`, a bound that may keep all values exact, if it does, and is about as large or takes
    // fewer bytes. Without it, no bound gives a constant field a PSNR.
    double estimate_or(std::optional<double> exact, bool is_constant);

    // What else can be varied besides the bound, so that a PSNR takes fewer bytes: goes on with the first of the
    // variants 0, 1, .., variants - 1 after which the ratio at the PSNR no longer grows. Variant 0 is what this search
    // tries so far. eb: its bound according to the sample, and then that of the variant. Returns the variant.
    std::size_t most_compact(const std::function<Tried(std::size_t variant, double eb)>& on_sample,
                             std::size_t variants, double& eb);

    // Tries bounds on the whole data, beginning with `first`, and corrects what the sample says until the goal is
    // reached and not far surpassed; after `max_whole_trials`, a far surpassed goal will do. lossless: 0 may be tried
    // if no other bound gives the PSNR. Returns the best bound; nothing if none reaches the goal. The last one tried
    // may be another.
    std::optional<double> find(const Trial& on_whole, double first, bool lossless, std::size_t max_whole_trials);

    // The outcomes of the bounds that were tried.
    const std::map<double, Tried>& on_sample() const { return on_sample_; }
    const std::map<double, Tried>& on_whole() const { return on_whole_; }

private:
    // The position of a bound is the number of octaves from the largest bound down to it, negated for a PSNR. So the
    // goal is always the largest position at which the surplus is not negative.
    double bound(double position) const;
    double position(double eb) const;
    double goal_on_sample(double start, double correction);
    double ratio_at_psnr(double eb);

    Goal goal_;
    double largest_, smallest_, low_, high_;
    Trial try_sample_;
    std::map<double, Tried> on_sample_, on_whole_;
};

} // namespace cusz
