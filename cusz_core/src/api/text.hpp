// Text from users and for them, whatever locale the application has set (the operator includes this file, too).
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <string_view>

namespace cusz {

// In lower case, without the spaces around it. Treats only ASCII.
inline std::string lower_trimmed(std::string_view text) {
    constexpr std::string_view spaces = " \t\n\v\f\r";
    const std::size_t first = text.find_first_not_of(spaces);
    if (first == std::string_view::npos) return {};
    std::string result(text.substr(first, text.find_last_not_of(spaces) - first + 1));
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
}

// The shortest text that reads back as this number.
inline std::string shown(double value) {
    std::array<char, 32> text;
    return {text.data(), std::to_chars(text.begin(), text.end(), value).ptr};
}

} // namespace cusz
