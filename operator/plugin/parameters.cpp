#include "parameters.hpp"

#include "report.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cusz_operator {
namespace {

// Names for the compressor's parameter eb, as used by ADIOS2's own operators.
constexpr std::array bound_names = {"accuracy", "tolerance", "eb"};

bool is_bound(const std::string& key) {
    return std::find(bound_names.begin(), bound_names.end(), key) != bound_names.end();
}

const cusz_parameter* find(const std::string& key) {
    std::int32_t number = 0;
    const cusz_parameter* parameter = cusz_parameter_at(0);
    while (parameter != nullptr && key != parameter->key) parameter = cusz_parameter_at(++number);
    return parameter;
}

std::string known_names() {
    std::string names;
    for (std::int32_t number = 0; const cusz_parameter* parameter = cusz_parameter_at(number); ++number)
        names +=
            is_bound(parameter->key) ? std::string("accuracy (tolerance, eb), ") : parameter->key + std::string(", ");
    return names + "order";
}

bool set(cusz_params& params, const char* key, const std::string& value) {
    return cusz_params_set(&params, key, value.c_str(), nullptr, 0) == CUSZ_OK;
}

// Treats only ASCII, whatever the locale.
std::string lower_trimmed(std::string_view text) {
    constexpr std::string_view spaces = " \t\n\v\f\r";
    const std::size_t first = text.find_first_not_of(spaces);
    if (first == std::string_view::npos) return {};
    std::string result(text.substr(first, text.find_last_not_of(spaces) - first + 1));
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
}

// The shortest text that reads back as this number, whatever the locale.
std::string shown(double value) {
    std::array<char, 32> text;
    return {text.data(), std::to_chars(text.begin(), text.end(), value).ptr};
}

// Reports an illegal value, and the consequence.
void report_value(const std::string& key, const std::string& value, const char* legal, const char* consequence) {
    report_once(("value " + key + "=" + value).c_str(), "parameter '%s' = '%.200s' is not %s; %s", key.c_str(),
                value.c_str(), legal, consequence);
}

constexpr const char* store_raw = "blocks are stored raw (nothing is lost, nothing is compressed)";

// Says what is used instead of an illegal value.
std::string default_of(const cusz_parameter& parameter) {
    const std::string quote = parameter.choices != nullptr ? "'" : "";
    return quote + parameter.default_value + quote + " is used";
}

} // namespace

Parameters parse_parameters(std::span<const Parameter> given) {
    Parameters parameters;
    cusz_params_init(&parameters.compression);
    bool malformed = false;
    std::optional<double> smallest, largest;

    for (const Parameter& parameter : given) {
        const std::string key = parameter.key;
        const std::string value = parameter.value;
        if (key == "pluginname" || key == "pluginlibrary" || key == "verbose") continue; // ADIOS2's own
        const cusz_parameter* const known = find(key);
        if (is_bound(key)) {
            parameters.missing_bound = false;
            cusz_params trial = parameters.compression;
            if (!set(trial, "eb", value)) {
                report_value(key, value, find("eb")->legal, store_raw);
                malformed = true;
                continue;
            }
            const double low = smallest.value_or(trial.eb), high = largest.value_or(trial.eb);
            if (low != trial.eb || high != trial.eb) {
                report_once("several bounds",
                            "the error bound is given more than once, as %s and %s; the stricter one is used",
                            shown(low).c_str(), shown(trial.eb).c_str());
            }
            smallest = std::min(low, trial.eb);
            largest = std::max(high, trial.eb);
        } else if (known != nullptr) {
            if (set(parameters.compression, known->key, value)) continue;
            const bool costs_values = known->decides == CUSZ_DECIDES_VALUES;
            report_value(key, value, known->legal, costs_values ? store_raw : default_of(*known).c_str());
            malformed = malformed || costs_values;
        } else if (key == "order") {
            const std::string order = lower_trimmed(value);
            if (order == "column") {
                parameters.column_major = true;
            } else if (order != "row") {
                report_value(key, value, "'row' or 'column'", "'row' is used");
            }
        } else {
            report_once(("unknown " + key).c_str(), "parameter '%.200s' is not known and is ignored (known: %s)",
                        key.c_str(), known_names().c_str());
        }
    }
    if (parameters.compression.backend == CUSZ_BACKEND_CUDA && cusz_has_backend(CUSZ_BACKEND_CUDA) == 0) {
        report_once("no cuda", "parameter 'backend' = 'cuda', but this build of the plugin has no CUDA; 'auto' is used "
                               "(the archives are the same)");
        parameters.compression.backend = CUSZ_BACKEND_AUTO;
    }

    const bool is_usable = smallest.has_value() && !malformed;
    const bool is_psnr = parameters.compression.mode == CUSZ_PSNR; // larger is stricter
    parameters.compression.eb = is_usable ? (is_psnr ? largest : smallest).value_or(0.0) : 0.0;
    if (!is_usable) parameters.compression.mode = CUSZ_ABS; // 0 is no PSNR and no ratio
    return parameters;
}

} // namespace cusz_operator
