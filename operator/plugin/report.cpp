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

// Everything is in static storage without destructors, because messages may be reported while the process exits.
std::mutex mutex;
std::array<std::uint64_t, max_reasons> reported;
std::size_t n_reported = 0;

std::uint64_t fnv1a(const char* text) noexcept {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (; *text != '\0'; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3U;
    return hash;
}

// The rank of this process, as set by its launcher; nullptr without one.
const char* launcher_rank() noexcept {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"}) {
        const char* rank = std::getenv(name);
        if (rank != nullptr && rank[0] != '\0') return rank;
    }
    return nullptr;
}

// What happens to a message.
enum class Turn { said_before, said_now, last };

Turn turn_of(const char* reason) noexcept {
    const std::uint64_t hash = fnv1a(reason);
    const std::lock_guard<std::mutex> lock(mutex);
    const auto end = reported.begin() + static_cast<std::ptrdiff_t>(n_reported);
    if (n_reported == max_reasons || std::find(reported.begin(), end, hash) != end) return Turn::said_before;
    reported[n_reported++] = hash;
    return n_reported == max_reasons ? Turn::last : Turn::said_now;
}

// Prints with one call, so that ranks that share a terminal do not split each other's lines.
void print(const char* message) noexcept {
    const char* rank = launcher_rank();
    if (rank != nullptr) {
        std::fprintf(stderr, "cusz_operator[rank %.20s]: %s\n", rank, message);
    } else {
        std::fprintf(stderr, "cusz_operator: %s\n", message);
    }
}

} // namespace

void report_once(const char* reason, const char* format, ...) noexcept {
    const Turn turn = turn_of(reason);
    if (turn == Turn::said_before) return;
    std::array<char, 1024> message;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(message.data(), message.size(), format, arguments);
    va_end(arguments);
    print(message.data());
    if (turn == Turn::last) {
        print("there are too many different messages: no more are shown, of blocks that are LOST neither (cusz inspect "
              "lists them)");
    }
}

} // namespace cusz_operator
