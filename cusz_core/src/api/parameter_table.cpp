#include "parameter_table.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "archive/alphabet.hpp"
#include "errors.hpp"
#include "params.hpp"

namespace cusz {

namespace {

bool is_any(double) { return true; }

// A parameter: its description, and the member (one of two) that holds its value.
struct Row {
    cusz_parameter told;
    double cusz_params::* real = nullptr;
    std::int32_t cusz_params::* whole = nullptr;
    bool (*is_legal)(double) = is_any;              // of a number
    std::int32_t cusz_params::* is_given = nullptr; // for a parameter without a default: set to 1 with the value
};

// A parameter with named values. names: by number; default_value: one of them.
constexpr Row choice(std::int32_t cusz_params::* member, const char* key, const char* const* names,
                     const char* default_value, const char* legal, cusz_decides decides, const char* description) {
    return {.told = {key, description, legal, default_value, names, CUSZ_TYPE_CHOICE, decides}, .whole = member};
}

constexpr Row whole(std::int32_t cusz_params::* member, const char* key, const char* default_value, const char* legal,
                    bool (*is_legal)(double), cusz_decides decides, const char* description) {
    return {.told = {key, description, legal, default_value, nullptr, CUSZ_TYPE_INTEGER, decides},
            .whole = member,
            .is_legal = is_legal};
}

bool is_bound(double eb) { return std::isfinite(eb) && eb >= 0; }
bool is_bins(double n) {
    const auto bins = static_cast<std::int32_t>(n);
    return bins >= 2 << default_r && bins <= 2 << max_r && (bins & (bins - 1)) == 0;
}
bool is_threads(double n) { return n >= 0 && n <= max_threads; }

constexpr const char* modes[] = {"abs", "rel", "pw_rel", "psnr", "ratio", nullptr};
constexpr const char* backends[] = {"auto", "cpu", "cuda", nullptr};
constexpr const char* lossless_stages[] = {"none", "zstd", nullptr};
constexpr const char* predictors[] = {"lorenzo", "spline", "auto", nullptr};
constexpr const char* coarse[] = {"auto", "same", "fine", "finer", "finest", nullptr};

// In an added parameter, 0 must mean the behaviour without it: programs that do not know it have 0 in its place, or
// nothing. cusz_params_init may set another value.
constexpr Row table[] = {
    {.told = {"eb", "error bound; 0 is lossless", "an error bound (a finite number >= 0, such as 1e-3)", "0", nullptr,
              CUSZ_TYPE_REAL, CUSZ_DECIDES_VALUES},
     .real = &cusz_params::eb,
     .is_legal = is_bound},
    choice(&cusz_params::mode, "mode", modes, modes[CUSZ_ABS], "'abs', 'rel', 'pw_rel', 'psnr' or 'ratio'",
           CUSZ_DECIDES_VALUES,
           "abs: the bound is in the field's unit; rel: a fraction of its value range; pw_rel: of every value; psnr, "
           "ratio: dB or a ratio, for which an absolute one is sought"),
    whole(&cusz_params::bins, "bins", "64", "a power of two from 64 to 8192", is_bins, CUSZ_DECIDES_ARCHIVE,
          "quantisation bins coded directly: a power of two from 64 to 8192"),
    choice(&cusz_params::backend, "backend", backends, backends[CUSZ_BACKEND_AUTO], "'auto', 'cpu' or 'cuda'",
           CUSZ_DECIDES_WORK, "where the work is done; auto: where the field is, which means the CPU for files"),
    whole(&cusz_params::threads, "threads", "0", "a whole number from 0 (the library chooses) to 1024", is_threads,
          CUSZ_DECIDES_WORK, "CPU threads"),
    choice(&cusz_params::lossless, "lossless", lossless_stages, lossless_stages[CUSZ_LOSSLESS_NONE], "'none' or 'zstd'",
           CUSZ_DECIDES_ARCHIVE, "an additional lossless stage over the coded data"),
    {.told = {"fill", "a value that stands for \"no data\", such as 1e20", "a number (or nan, inf, -inf)", nullptr,
              nullptr, CUSZ_TYPE_REAL, CUSZ_DECIDES_VALUES},
     .real = &cusz_params::fill,
     .is_given = &cusz_params::has_fill},
    choice(&cusz_params::predictor, "predictor", predictors, predictors[CUSZ_PREDICTOR_AUTO],
           "'lorenzo', 'spline' or 'auto'", CUSZ_DECIDES_ARCHIVE,
           "what predicts a value from its neighbours; auto: the spline where that is shorter"),
    choice(
        &cusz_params::coarse, "coarse", coarse, coarse[CUSZ_COARSE_AUTO], "'auto', 'same', 'fine', 'finer' or 'finest'",
        CUSZ_DECIDES_ARCHIVE,
        "how exact the coarser lattices of the spline are: same: as the bound says; fine, finer, finest: more, for a "
        "higher PSNR; auto: what is shortest"),
};

std::int32_t n_choices(const Row& row) {
    std::int32_t n = 0;
    while (row.told.choices[n] != nullptr) ++n;
    return n;
}

double value_of(const Row& row, const cusz_params& params) {
    return row.real != nullptr ? params.*row.real : params.*row.whole;
}

// Offset of the end of its member in cusz_params.
std::size_t end_of(const Row& row) {
    const cusz_params params{};
    const void* const member =
        row.real != nullptr ? static_cast<const void*>(&(params.*row.real)) : &(params.*row.whole);
    const auto* const start = reinterpret_cast<const std::byte*>(&params);
    return static_cast<std::size_t>(static_cast<const std::byte*>(member) - start) +
           (row.real != nullptr ? sizeof(double) : sizeof(std::int32_t));
}

bool is_legal(const Row& row, double value) {
    return row.told.choices != nullptr ? value >= 0 && value < n_choices(row) : row.is_legal(value);
}

void store(const Row& row, double value, cusz_params& params) {
    if (row.real != nullptr) params.*row.real = value;
    if (row.whole != nullptr) params.*row.whole = static_cast<std::int32_t>(value);
    if (row.is_given != nullptr) params.*row.is_given = 1;
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

// Parses an integer or a real number, whatever locale the application has set.
template <class T>
std::optional<double> parse_number(std::string number) {
    if (number.size() > 1 && number[0] == '+' && number[1] != '-') number.erase(0, 1);
    T value{};
    const char* const end = number.data() + number.size();
    const auto result = std::from_chars(number.data(), end, value);
    if (number.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
    return static_cast<double>(value);
}

std::optional<double> parse(const Row& row, std::string_view text) {
    const std::string value = lower_trimmed(text);
    if (row.real != nullptr) return parse_number<double>(value);
    if (row.told.choices == nullptr) return parse_number<std::int32_t>(value);
    for (std::int32_t i = 0; i < n_choices(row); ++i)
        if (value == row.told.choices[i]) return i;
    return std::nullopt;
}

// The shortest text that reads back as this number.
std::string shown(double value) {
    char text[32];
    return {text, std::to_chars(text, std::end(text), value).ptr};
}

// The given text, truncated; quoted unless it is a number.
std::string shown(std::string_view text) {
    if (parse_number<double>(lower_trimmed(text))) return std::string(text);
    std::string quoted = "'";
    return quoted.append(text.substr(0, 80)).append("'");
}

[[noreturn]] void fail_unknown(std::string_view key) {
    std::string keys;
    for (const Row& row : table) keys += (keys.empty() ? "" : ", ") + std::string(row.told.key);
    fail(CUSZ_ERROR_PARAMETER, "there is no parameter ", shown(key), "; legal: ", keys);
}

} // namespace

const cusz_parameter* parameter_at(std::int32_t index) {
    return index >= 0 && index < static_cast<std::int32_t>(std::size(table)) ? &table[index].told : nullptr;
}

const char* predictor_name(std::int32_t predictor) {
    constexpr std::int32_t n = std::size(predictors) - 1;
    return predictor >= 0 && predictor < n ? predictors[predictor] : nullptr;
}

cusz_params default_params() {
    static const cusz_params defaults = [] {
        cusz_params params{};
        params.struct_bytes = sizeof params;
        for (const Row& row : table)
            if (row.told.default_value != nullptr) store(row, parse(row, row.told.default_value).value_or(0), params);
        return params;
    }();
    return defaults;
}

std::size_t known_params_bytes() {
    std::size_t bytes = 0;
    for (const Row& row : table) bytes = std::max(bytes, end_of(row));
    return bytes;
}

void check_values(const cusz_params& params) {
    for (const Row& row : table) {
        const double value = value_of(row, params);
        if (is_legal(row, value)) continue;
        const auto& [key, description, legal, default_value, choices, type, decides] = row.told;
        if (choices != nullptr)
            fail(CUSZ_ERROR_PARAMETER, key, " is ", shown(value), "; legal: 0 to ", n_choices(row) - 1, " (", legal,
                 ")");
        fail(CUSZ_ERROR_PARAMETER, key, " is ", shown(value), "; it must be ", legal);
    }
}

void set_parameter(cusz_params& params, std::string_view key, std::string_view value, std::size_t struct_bytes) {
    const auto* const row =
        std::find_if(std::begin(table), std::end(table), [&](const Row& r) { return key == r.told.key; });
    if (row == std::end(table)) fail_unknown(key);
    if (end_of(*row) > struct_bytes)
        fail(CUSZ_ERROR_PARAMETER, "there is no ", key,
             " in the cusz_params of this program: compile it with the cusz.h of version ", cusz_version());
    const std::optional<double> parsed = parse(*row, value);
    if (!parsed || !is_legal(*row, *parsed))
        fail(CUSZ_ERROR_PARAMETER, key, " is ", shown(value), "; it must be ", row->told.legal);
    store(*row, *parsed, params);
}

} // namespace cusz
