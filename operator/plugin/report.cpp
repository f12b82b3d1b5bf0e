#include "report.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace cusz_operator {
namespace {

constexpr std::size_t max_reasons = 1024;

// Everything is in static storage without destructors, as messages may be reported while the process exits.
std::mutex mutex;
std::array<std::uint64_t, max_reasons> reported;
std::size_t n_reported = 0;

std::uint64_t fnv1a(const char* text) noexcept {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (; *text != '\0'; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3U;
    return hash;
}

// This process's rank as set by its launcher; nullptr without one.
const char* launcher_rank() noexcept {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"}) {
        const char* rank = std::getenv(name);
        if (rank != nullptr && rank[0] != '\0') return rank;
    }
    return nullptr;
}

} // namespace

void report_once(const char* reason, const char* format, ...) noexcept {
    const std::uint64_t hash = fnv1a(reason);
    {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto end = reported.begin() + static_cast<std::ptrdiff_t>(n_reported);
        if (n_reported == max_reasons || std::find(reported.begin(), end, hash) != end) return;
        reported[n_reported++] = hash;
    }
    std::array<char, 1024> message;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(message.data(), message.size(), format, arguments);
    va_end(arguments);
    // One call, so that ranks that share a terminal do not split each other's lines.
    const char* rank = launcher_rank();
    if (rank != nullptr) {
        std::fprintf(stderr, "cusz_operator[rank %.20s]: %s\n", rank, message.data());
    } else {
        std::fprintf(stderr, "cusz_operator: %s\n", message.data());
    }
}

} // namespace cusz_operator
