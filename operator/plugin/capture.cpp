#include "capture.hpp"

#include "cusz_operator.h"

#include <cusz/cusz.h>

#include <array>
#include <cstring>
#include <mutex>

namespace cusz_operator {
namespace {

// Static storage without destructors, as in report.cpp.
std::mutex mutex;
bool is_on = false;
bool is_taken = false;
std::array<char, 1024> wanted; // name of the variable, "" for any
void* buffer = nullptr;
std::size_t buffer_bytes = 0;
std::size_t captured_bytes = 0;

} // namespace

bool capture(const char* variable, const char* archive, std::size_t archive_bytes) noexcept {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!is_on || is_taken) return false;
    if (wanted[0] != '\0' && variable[0] != '\0' && std::strcmp(wanted.data(), variable) != 0) return false;
    if (archive_bytes <= buffer_bytes) std::memcpy(buffer, archive, archive_bytes);
    captured_bytes = archive_bytes;
    is_taken = true;
    return true;
}

} // namespace cusz_operator

int32_t cusz_operator_interface(void) { return CUSZ_OPERATOR_INTERFACE; }

const char* cusz_operator_version(void) { return cusz_version(); }

int32_t cusz_operator_capture_begin(const char* variable, void* archive, size_t capacity) {
    using namespace cusz_operator;
    const std::lock_guard<std::mutex> lock(mutex);
    const std::size_t name_bytes = variable != nullptr ? std::strlen(variable) : 0;
    if (is_on || archive == nullptr || name_bytes >= wanted.size()) return CUSZ_ERROR_PARAMETER;
    if (name_bytes > 0) std::memcpy(wanted.data(), variable, name_bytes);
    wanted[name_bytes] = '\0';
    buffer = archive;
    buffer_bytes = capacity;
    captured_bytes = 0;
    is_taken = false;
    is_on = true;
    return CUSZ_OK;
}

int32_t cusz_operator_capture_end(size_t* archive_bytes) {
    using namespace cusz_operator;
    const std::lock_guard<std::mutex> lock(mutex);
    if (!is_on || archive_bytes == nullptr) return CUSZ_ERROR_PARAMETER;
    is_on = false;
    *archive_bytes = captured_bytes;
    return captured_bytes <= buffer_bytes ? CUSZ_OK : CUSZ_ERROR_PARAMETER;
}
