// Floating-point arithmetic and conversions: IEEE, with subnormal numbers.
#include "table.hpp"

#include <cmath>
#include <limits>

namespace ptx {

namespace {

// NaN as a result: in 32 bits always the same, in 64 bits that of the operands.
inline float canonical(float v) { return v != v ? std::bit_cast<float>(0x7FFFFFFFu) : v; }
inline double canonical(double v) { return v; }

// The sum, rounded towards 0.
inline float sum_towards_zero(float a, float b) {
    const float sum = a + b;
    if (std::isnan(sum) || std::isinf(a) || std::isinf(b)) return canonical(sum);
    if (std::isinf(sum)) return std::copysign(std::numeric_limits<float>::max(), sum);
    const double x = a, y = b, both = x + y, of_y = both - x;
    const double cut = (x - (both - of_y)) + (y - of_y);  // the exact sum is both + cut
    const double beyond = both != sum ? both - sum : cut; // its sign: on which side of `sum` the exact one is
    return (sum > 0 && beyond < 0) || (sum < 0 && beyond > 0) ? std::nextafter(sum, 0.0f) : sum;
}

template <class T>
constexpr Cost simple = sizeof(T) == 8 ? cost::real64 : cost::real;
template <class T>
constexpr Cost quotient = sizeof(T) == 8 ? cost::real64_quotient : cost::real_quotient;

// Rounded to nearest, ties to even. suffix: .rn and the type, or the type alone.
template <class T>
void add_arithmetic(Table& t, const std::string& suffix) {
    t.map<T, T, T>("add" + suffix, simple<T>, [](T a, T b) { return canonical(a + b); });
    t.map<T, T, T>("sub" + suffix, simple<T>, [](T a, T b) { return canonical(a - b); });
    t.map<T, T, T>("mul" + suffix, simple<T>, [](T a, T b) { return canonical(a * b); });
    if (!suffix.starts_with(".rn")) return; // the instructions below must say how they round
    t.map<T, T, T, T>("fma" + suffix, simple<T>, [](T a, T b, T c) { return canonical(std::fma(a, b, c)); });
    t.map<T, T, T>("div" + suffix, quotient<T>, [](T a, T b) { return canonical(a / b); });
    t.map<T, T>("rcp" + suffix, quotient<T>, [](T a) { return canonical(T{1} / a); });
}

// The min or max; if one is NaN, the other; -0 is less than 0.
template <class T, bool least>
T extreme(T a, T b) {
    if (a != a) return canonical(b);
    if (b != b) return a;
    if (a == b) return std::signbit(a) == least ? a : b;
    return (a < b) == least ? a : b;
}

template <class T>
void add_type(Table& t, const std::string& type) {
    add_arithmetic<T>(t, type);
    add_arithmetic<T>(t, ".rn" + type);
    t.map<T, T>("abs" + type, simple<T>, [](T a) { return std::fabs(a); });
    t.map<T, T>("neg" + type, simple<T>, [](T a) { return -a; });
    t.map<T, T, T>("copysign" + type, simple<T>, [](T sign, T b) { return std::copysign(b, sign); });
    t.map<T, T, T>("min" + type, simple<T>, [](T a, T b) { return extreme<T, true>(a, b); });
    t.map<T, T, T>("max" + type, simple<T>, [](T a, T b) { return extreme<T, false>(a, b); });
}

// ---- Conversions

template <class From, class To>
void add_between_integers(Table& t, const std::string& to, const std::string& from) {
    t.map<To, From>("cvt." + to + "." + from, cost::conversion, [](From a) { return static_cast<To>(a); });
}
template <class From>
void add_from_integer(Table& t, const std::string& from) {
    add_between_integers<From, std::uint8_t>(t, "u8", from);
    add_between_integers<From, std::int8_t>(t, "s8", from);
    add_between_integers<From, std::uint16_t>(t, "u16", from);
    add_between_integers<From, std::int16_t>(t, "s16", from);
    add_between_integers<From, std::uint32_t>(t, "u32", from);
    add_between_integers<From, std::int32_t>(t, "s32", from);
    add_between_integers<From, std::uint64_t>(t, "u64", from);
    add_between_integers<From, std::int64_t>(t, "s64", from);
    t.map<float, From>("cvt.rn.f32." + from, cost::slow_conversion, [](From a) { return static_cast<float>(a); });
    t.map<double, From>("cvt.rn.f64." + from, cost::slow_conversion, [](From a) { return static_cast<double>(a); });
}

template <class To, class From>
To saturated(From whole) {
    // NaN becomes 0, or the sign bit if either type has 64 bits
    if (whole != whole)
        return sizeof(From) == 8 || sizeof(To) == 8
                   ? static_cast<To>(std::make_unsigned_t<To>{1} << (8 * sizeof(To) - 1))
                   : To{0};
    constexpr auto low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
    if (whole >= std::ldexp(From{1}, std::numeric_limits<To>::digits)) return high;
    if (whole <= static_cast<From>(low)) return low;
    return static_cast<To>(whole);
}

template <class From>
void add_from_real(Table& t, const std::string& from) {
    const auto in_all_ways = [&](const auto& add) {
        add("rni", [](From a) { return std::nearbyint(a); });
        add("rzi", [](From a) { return std::trunc(a); });
        add("rmi", [](From a) { return std::floor(a); });
        add("rpi", [](From a) { return std::ceil(a); });
    };
    const auto to_integer = [&]<class To>(const std::string& to) {
        in_all_ways([&]<class F>(const std::string& way, F) {
            t.map<To, From>("cvt." + way + "." + to + "." + from, cost::slow_conversion,
                            [](From a) { return saturated<To>(F{}(a)); });
        });
    };
    to_integer.template operator()<std::uint16_t>("u16");
    to_integer.template operator()<std::int16_t>("s16");
    to_integer.template operator()<std::uint32_t>("u32");
    to_integer.template operator()<std::int32_t>("s32");
    to_integer.template operator()<std::uint64_t>("u64");
    to_integer.template operator()<std::int64_t>("s64");
    in_all_ways([&]<class F>(const std::string& way, F) {
        t.map<From, From>("cvt." + way + "." + from + "." + from, cost::slow_conversion,
                          [](From a) { return canonical(F{}(a)); });
    });
}

void add_between_reals(Table& t) {
    t.map<double, float>("cvt.f64.f32", cost::slow_conversion, [](float a) { return static_cast<double>(a); });
    t.map<float, double>("cvt.rn.f32.f64", cost::slow_conversion,
                         [](double a) { return canonical(static_cast<float>(a)); });
}

} // namespace

void add_reals(Table& t) {
    add_type<float>(t, ".f32");
    add_type<double>(t, ".f64");
    t.map<float, float, float>("add.rz.f32", cost::real, [](float a, float b) { return sum_towards_zero(a, b); });
}

void add_conversions(Table& t) {
    add_from_integer<std::uint8_t>(t, "u8");
    add_from_integer<std::int8_t>(t, "s8");
    add_from_integer<std::uint16_t>(t, "u16");
    add_from_integer<std::int16_t>(t, "s16");
    add_from_integer<std::uint32_t>(t, "u32");
    add_from_integer<std::int32_t>(t, "s32");
    add_from_integer<std::uint64_t>(t, "u64");
    add_from_integer<std::int64_t>(t, "s64");
    add_from_real<float>(t, "f32");
    add_from_real<double>(t, "f64");
    add_between_reals(t);
}

} // namespace ptx
