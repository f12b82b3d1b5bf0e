// The search for an error bound that gives a PSNR or a ratio: which bounds are tried, and when it ends. What a bound
// gives, the caller finds out: for one field (goal.cpp), or for blocks on many ranks, which all make the same search
// with the same answers (the Python module compiles this file as well).
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <vector>

namespace cusz {

// What a bound gives. psnr: in dB; NaN if only the ratio is wanted.
struct Tried {
    double psnr = std::numeric_limits<double>::quiet_NaN();
    double ratio = 0;
};
using Trial = std::function<Tried(double eb)>;

// What is wanted: a PSNR in dB, or a ratio.
struct Goal {
    double target = 0;
    bool is_psnr = false;

    // By how much it is surpassed, as a multiple of what is let pass (0.5 dB, 4%); negative: it is missed.
    double surplus(const Tried& tried) const;
    // Of the surplus in octaves of the bound, roughly: 6 dB, a ratio 20% higher.
    double slope() const;
};

// A bound of so many significant decimal digits: not larger than `eb`, or with `up` not smaller. eb > 0.
double rounded_bound(double eb, int digits, bool up);

// A bound that keeps all values of a field whose values are few and evenly spaced, such as integers, where smaller
// bounds do not. values: some of the field's, all of them within its range. Reorders them.
std::optional<double> exact_bound(std::vector<double> values, double lowest, double highest);

class Search {
public:
    // on_sample: says what a bound gives for a sample; called once for a bound. smallest: 0: 2^-60 of the largest one.
    Search(const Goal& goal, double largest, double smallest, Trial on_sample);

    // By how much a bound surpasses the goal on the sample.
    double surplus(double eb);

    // The bound according to the sample. 0: no other gives the PSNR.
    double estimate();

    // Tries a bound on the whole, `first` to begin with, and corrects what the sample says until the goal is reached
    // there and not surpassed by far; after `max_whole_trials`, a goal that is surpassed by far will do. lossless: 0
    // may be tried if no other bound gives the PSNR. Returns the best bound; nothing if none reaches the goal. The last
    // one tried may be another.
    std::optional<double> find(const Trial& on_whole, double first, bool lossless, std::size_t max_whole_trials);

    // What bounds gave.
    const std::map<double, Tried>& on_sample() const { return on_sample_; }
    const std::map<double, Tried>& on_whole() const { return on_whole_; }

private:
    // A position is the number of octaves from the largest bound down to a bound, for a PSNR with its sign changed: the
    // goal is always the largest position at which the surplus is not negative.
    double bound(double position) const;
    double position(double eb) const;
    double goal_on_sample(double start, double correction);

    Goal goal_;
    double largest_, smallest_, low_, high_;
    Trial try_sample_;
    std::map<double, Tried> on_sample_, on_whole_;
};

} // namespace cusz
