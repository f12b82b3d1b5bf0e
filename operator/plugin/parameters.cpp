#include "parameters.hpp"

#include "report.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>

namespace cusz_operator {
namespace {

constexpr const char* known_names = "accuracy (tolerance, eb), mode, bins, backend, threads, fill, order";

std::string lower_trimmed(const std::string& text) {
    const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
    const auto first = std::find_if_not(text.begin(), text.end(), is_space);
    const auto last = std::find_if_not(text.rbegin(), std::make_reverse_iterator(first), is_space).base();
    std::string result(first, last);
    for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

// A whole number or decimal fraction, independent of the locale that the application has set.
template <typename T>
std::optional<T> parse_number(const std::string& text) {
    std::string number = lower_trimmed(text);
    if (number.size() > 1 && number[0] == '+' && number[1] != '-') number.erase(0, 1);
    T value{};
    const char* end = number.data() + number.size();
    const auto result = std::from_chars(number.data(), end, value);
    if (number.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
    return value;
}

// Reports a value that is not legal, and what is done about it.
void report_value(const std::string& key, const std::string& value, const char* legal, const char* consequence) {
    report_once(("value " + key + "=" + value).c_str(), "parameter '%s' = '%.200s' is not %s; %s", key.c_str(),
                value.c_str(), legal, consequence);
}

constexpr const char* store_raw = "blocks are stored raw (nothing is lost, nothing is compressed)";

} // namespace

Parameters parse_parameters(std::span<const Parameter> given) {
    Parameters parameters;
    cusz_params_init(&parameters.compression);
    bool malformed = false;
    std::optional<double> bound;

    for (const Parameter& parameter : given) {
        const std::string key = parameter.key;
        const std::string value = parameter.value;
        if (key == "pluginname" || key == "pluginlibrary" || key == "verbose") continue; // ADIOS2's own
        if (key == "accuracy" || key == "tolerance" || key == "eb") {
            parameters.missing_bound = false;
            const auto number = parse_number<double>(value);
            if (!number || !std::isfinite(*number) || *number < 0) {
                report_value(key, value, "an error bound (a finite number >= 0, such as 1e-3)", store_raw);
                malformed = true;
                continue;
            }
            if (bound && *bound != *number) {
                report_once("several bounds",
                            "the error bound is given more than once, as %g and %g; the smaller one is used", *bound,
                            *number);
            }
            bound = bound ? std::min(*bound, *number) : *number;
        } else if (key == "mode") {
            const std::string mode = lower_trimmed(value);
            if (mode == "abs") {
                parameters.compression.mode = CUSZ_ABS;
            } else if (mode == "rel") {
                parameters.compression.mode = CUSZ_REL;
            } else {
                report_value(key, value, "'abs' or 'rel'", store_raw);
                malformed = true;
            }
        } else if (key == "fill") {
            const auto number = parse_number<double>(value);
            if (!number) {
                report_value(key, value, "a number (or nan, inf, -inf)", store_raw);
                malformed = true;
                continue;
            }
            parameters.compression.has_fill = 1;
            parameters.compression.fill = *number;
        } else if (key == "bins") {
            const auto number = parse_number<std::int32_t>(value);
            if (!number || *number < 64 || *number > 8192 || (*number & (*number - 1)) != 0) {
                report_value(key, value, "a power of two from 64 to 8192", "64 is used");
                continue;
            }
            parameters.compression.bins = *number;
        } else if (key == "threads") {
            const auto number = parse_number<std::int32_t>(value);
            if (!number || *number < 0 || *number > 1024) {
                report_value(key, value, "a whole number from 0 to 1024", "0 is used (the library chooses)");
                continue;
            }
            parameters.compression.threads = *number;
        } else if (key == "backend") {
            const std::string backend = lower_trimmed(value);
            if (backend == "auto") {
                parameters.compression.backend = CUSZ_BACKEND_AUTO;
            } else if (backend == "cpu") {
                parameters.compression.backend = CUSZ_BACKEND_CPU;
            } else if (backend == "cuda" && cusz_has_backend(CUSZ_BACKEND_CUDA) != 0) {
                parameters.compression.backend = CUSZ_BACKEND_CUDA;
            } else if (backend == "cuda") {
                report_once("no cuda",
                            "parameter 'backend' = 'cuda', but this build of the plugin has no CUDA; 'auto' is used "
                            "(the archives are the same)");
            } else {
                report_value(key, value, "'auto', 'cpu' or 'cuda'", "'auto' is used");
            }
        } else if (key == "order") {
            const std::string order = lower_trimmed(value);
            if (order == "column") {
                parameters.column_major = true;
            } else if (order != "row") {
                report_value(key, value, "'row' or 'column'", "'row' is used");
            }
        } else {
            report_once(("unknown " + key).c_str(), "parameter '%.200s' is not known and is ignored (known: %s)",
                        key.c_str(), known_names);
        }
    }

    parameters.usable = bound.has_value() && !malformed;
    parameters.compression.eb = parameters.usable ? *bound : 0.0;
    return parameters;
}

} // namespace cusz_operator
