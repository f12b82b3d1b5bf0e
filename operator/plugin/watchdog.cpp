// Watches over calls of ADIOS2 that may never return.
#include "cusz_operator.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace cusz_operator {
namespace {

constexpr int looks_within_patience = 16;
constexpr double longest_pause = 10.0; // seconds between two looks

// Each watch has its own thread, so that nothing can be lost in a fork or at the end of the process. These are POSIX
// threads, because the library would export symbols of the standard library's threads.
struct Watch {
    char* folder = nullptr;
    char* message = nullptr;
    double pause = 0.0; // seconds
    int max_looks = 0;  // at a folder that does not change
    bool has_ended = false;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    pthread_t thread;
};

std::uint64_t mixed(std::uint64_t hash, const void* data, std::size_t bytes) noexcept {
    const auto* byte = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ byte[i]) * 0x100000001b3U; // FNV-1a
    return hash;
}

// A number that changes with the names, sizes and times of the files in a folder; 0 if it cannot be read.
std::uint64_t state_of_folder(const char* folder) noexcept {
    DIR* const listing = ::opendir(folder);
    if (listing == nullptr) return 0;
    const int descriptor = ::dirfd(listing);
    std::uint64_t sum = 1; // of all files, in whatever order they are listed
    while (const dirent* const entry = ::readdir(listing)) {
        if (std::strcmp(entry->d_name, "..") == 0 || descriptor < 0)
            continue; // ".." changes with what is beside the folder
        struct stat found{};
        if (::fstatat(descriptor, entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0) continue;
        std::uint64_t hash = mixed(0xcbf29ce484222325U, entry->d_name, std::strlen(entry->d_name));
        hash = mixed(hash, &found.st_size, sizeof found.st_size);
        hash = mixed(hash, &found.st_mtim.tv_sec, sizeof found.st_mtim.tv_sec);
        sum += mixed(hash, &found.st_mtim.tv_nsec, sizeof found.st_mtim.tv_nsec);
    }
    ::closedir(listing);
    return sum;
}

// Waits between two looks; true if the watch has ended.
bool wait_for_end(Watch& watch) noexcept {
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    double whole = 0.0;
    const double nanoseconds = std::modf(watch.pause, &whole) * 1e9 + static_cast<double>(until.tv_nsec);
    until.tv_sec += static_cast<time_t>(whole) + (nanoseconds >= 1e9 ? 1 : 0);
    until.tv_nsec = static_cast<long>(nanoseconds >= 1e9 ? nanoseconds - 1e9 : nanoseconds);
    ::pthread_mutex_lock(&watch.mutex);
    while (!watch.has_ended && ::pthread_cond_timedwait(&watch.ended, &watch.mutex, &until) == 0) {
    }
    const bool has_ended = watch.has_ended;
    ::pthread_mutex_unlock(&watch.mutex);
    return has_ended;
}

// Ends the process without running destructors: ADIOS2's would wait for the other ranks again. This thread must not
// call MPI_Abort: MPI may have been initialised for one thread only (MPI_THREAD_FUNNELED), which is in an MPI call that
// does not return. A launcher ends the other ranks when one has exited without MPI_Finalize.
[[noreturn]] void end_process(const Watch& watch) noexcept {
    for (const char* rest = watch.message; *rest != '\0';) {
        const ssize_t written = ::write(STDERR_FILENO, rest, std::strlen(rest));
        if (written <= 0) break;
        rest += written;
    }
    ::_exit(1);
}

void* watch_folder(void* argument) noexcept {
    Watch& watch = *static_cast<Watch*>(argument);
    std::uint64_t state = 0;
    // Looks are counted, not seconds, so that time for which the process was stopped does not count.
    int looks = -1; // the first look only tells what to compare with
    while (!wait_for_end(watch)) {
        const std::uint64_t now = state_of_folder(watch.folder);
        looks = looks >= 0 && now == state ? looks + 1 : 0;
        state = now;
        if (looks < watch.max_looks) continue;
        ::pthread_mutex_lock(&watch.mutex);
        if (!watch.has_ended) end_process(watch);
        ::pthread_mutex_unlock(&watch.mutex);
        break;
    }
    return nullptr;
}

void destroy(Watch* watch) noexcept {
    ::pthread_cond_destroy(&watch->ended);
    ::pthread_mutex_destroy(&watch->mutex);
    ::free(watch->folder);
    ::free(watch->message);
    delete watch;
}

bool start_thread(Watch& watch) noexcept {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all); // signals are for the program's own threads
    if (::pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
    const int failed = ::pthread_create(&watch.thread, nullptr, watch_folder, &watch);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return failed == 0;
}

} // namespace
} // namespace cusz_operator

uintptr_t cusz_operator_watch_begin(const char* folder, double patience, const char* message) {
    using namespace cusz_operator;
    if (folder == nullptr || message == nullptr || !(patience > 0.0) || !std::isfinite(patience)) return 0;
    auto* const watch = new (std::nothrow) Watch;
    if (watch == nullptr) return 0;
    watch->pause = std::min(patience / looks_within_patience, longest_pause);
    watch->max_looks = static_cast<int>(std::ceil(std::min(patience / watch->pause, 1e9)));
    watch->folder = ::strdup(folder);
    watch->message = ::strdup(message);
    ::pthread_mutex_init(&watch->mutex, nullptr);
    pthread_condattr_t monotonic;
    ::pthread_condattr_init(&monotonic);
    ::pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    ::pthread_cond_init(&watch->ended, &monotonic);
    ::pthread_condattr_destroy(&monotonic);
    if (watch->folder == nullptr || watch->message == nullptr || !start_thread(*watch)) {
        destroy(watch);
        return 0;
    }
    return reinterpret_cast<uintptr_t>(watch);
}

void cusz_operator_watch_end(uintptr_t key) {
    using namespace cusz_operator;
    if (key == 0) return;
    auto* const watch = reinterpret_cast<Watch*>(key); // NOLINT(performance-no-int-to-ptr): as it was given out
    ::pthread_mutex_lock(&watch->mutex);
    watch->has_ended = true;
    ::pthread_cond_signal(&watch->ended);
    ::pthread_mutex_unlock(&watch->mutex);
    ::pthread_join(watch->thread, nullptr);
    destroy(watch);
}
