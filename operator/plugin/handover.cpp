#include "handover.hpp"

#include "cusz_operator.h"
#include "output.hpp"

#include <cusz/cusz.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

namespace cusz_operator {
namespace {

struct PostedArchive {
    char* key = nullptr; // nullptr: the entry is free
    int32_t state = CUSZ_OPERATOR_WAITING;
    const void* archive = nullptr;
    std::size_t archive_bytes = 0;
    int32_t type = 0;
    std::size_t ndim = 0;
    std::array<std::uint64_t, CUSZ_OPERATOR_MAX_NDIM> count{}; // the extents with which ADIOS2 will ask
    int32_t (*set_extents)() = nullptr;                        // not null if these are not the block's
    bool has_room = true;                                      // whether ADIOS2 has reserved room for the archive
    std::array<char, 1024> variable{};
};

// Static storage without destructors, as in report.cpp.
std::mutex mutex;
std::array<PostedArchive, CUSZ_OPERATOR_MAX_OFFERS> posted_archives;

PostedArchive* find(const void* key) noexcept {
    if (key == nullptr) return nullptr;
    const auto found = std::find_if(posted_archives.begin(), posted_archives.end(),
                                    [&](const PostedArchive& o) { return o.key == key; });
    return found != posted_archives.end() ? &*found : nullptr;
}

// Keys are addresses in this library's own pages, so that none can be the address of a field.
struct Pages {
    int protection;
    std::size_t n_addresses; // more than there can be posted archives
    char* first = nullptr;
    std::size_t next = 0;
    static constexpr std::size_t address_bytes = 16; // two values

    // Whether the address is, or was, a key in these pages.
    bool contains(const void* address) const noexcept {
        const auto at = reinterpret_cast<std::uintptr_t>(address);
        const auto begin = reinterpret_cast<std::uintptr_t>(first);
        return first != nullptr && at >= begin && at - begin < n_addresses * address_bytes;
    }
    // An address that is not currently a key; nullptr when out of memory.
    char* new_key() noexcept {
        if (first == nullptr) {
            const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
            void* reserved = ::mmap(nullptr, n_addresses * address_bytes, protection, flags, -1, 0);
            if (reserved == MAP_FAILED) return nullptr;
            first = static_cast<char*>(reserved);
        }
        char* key = nullptr;
        do key = first + address_bytes * (next++ % n_addresses);
        while (find(key) != nullptr);
        return key;
    }
};
// For keys from which ADIOS2 must not read: an unknown key (already used, or known to another copy of this library)
// shows up as an unreadable field.
Pages unreadable = {PROT_NONE, 1 << 16};
Pages readable = {PROT_READ | PROT_WRITE, 1 << 12};

// Size of a value; 0 if there is no such type.
std::uint64_t value_bytes(int32_t type) noexcept {
    switch (type) {
    case CUSZ_F32: return 4;
    case CUSZ_F64: return 8;
    case CUSZ_OPERATOR_INTEGERS + 1:
    case CUSZ_OPERATOR_INTEGERS + 2:
    case CUSZ_OPERATOR_INTEGERS + 4:
    case CUSZ_OPERATOR_INTEGERS + 8: return static_cast<std::uint64_t>(type - CUSZ_OPERATOR_INTEGERS);
    default: return 0;
    }
}

// Size of a block in bytes; false on overflow.
bool block_bytes(int32_t type, int32_t ndim, const uint64_t* count, std::uint64_t* bytes) noexcept {
    *bytes = value_bytes(type);
    for (int32_t i = 0; i < ndim; ++i) {
        if (__builtin_mul_overflow(*bytes, count[i], bytes)) return false;
    }
    return true;
}

// Posts an archive under a new key in `pages`, with the block's extents; nullptr if an argument makes no sense or there
// is no room.
PostedArchive* post(const void* archive, std::size_t archive_bytes, std::int32_t type, std::int32_t ndim,
                    const std::uint64_t* count, const char* variable, Pages& pages) noexcept {
    if (archive == nullptr || archive_bytes == 0 || count == nullptr || variable == nullptr) return nullptr;
    if (value_bytes(type) == 0 || ndim < 1 || ndim > CUSZ_OPERATOR_MAX_NDIM) return nullptr;
    std::uint64_t max_bytes = 0;
    if (!block_bytes(type, ndim, count, &max_bytes) ||
        __builtin_add_overflow(max_bytes, CUSZ_RAW_OVERHEAD_BYTES, &max_bytes) || archive_bytes > max_bytes) {
        return nullptr; // ADIOS2 has no room for it
    }
    const std::size_t name_bytes = std::strlen(variable);
    const auto free = std::find_if(posted_archives.begin(), posted_archives.end(),
                                   [](const PostedArchive& o) { return o.key == nullptr; });
    if (free == posted_archives.end() || name_bytes == 0 || name_bytes >= free->variable.size()) return nullptr;
    free->key = pages.new_key();
    if (free->key == nullptr) return nullptr;
    free->state = CUSZ_OPERATOR_WAITING;
    free->archive = archive;
    free->archive_bytes = archive_bytes;
    free->type = type;
    free->ndim = static_cast<std::size_t>(ndim);
    std::copy_n(count, free->ndim, free->count.begin());
    free->set_extents = nullptr;
    free->has_room = true;
    std::memcpy(free->variable.data(), variable, name_bytes + 1);
    return &*free;
}

} // namespace

std::size_t bytes_for_posted() noexcept {
    const std::lock_guard<std::mutex> lock(mutex);
    std::size_t most = 0;
    for (PostedArchive& posted : posted_archives) {
        if (posted.key == nullptr || posted.set_extents == nullptr) continue;
        posted.has_room = true;
        most = std::max(most, posted.archive_bytes);
    }
    return most;
}

HandOver take_posted(const void* address, const char* variable, std::int32_t type, const std::size_t* count,
                     std::size_t ndim, char* out, std::size_t* archive_bytes) noexcept {
    std::unique_lock<std::mutex> lock(mutex);
    PostedArchive* const posted = find(address);
    if (posted == nullptr || posted->state != CUSZ_OPERATOR_WAITING) {
        return unreadable.contains(address) || readable.contains(address) ? HandOver::late : HandOver::none;
    }
    posted->state = CUSZ_OPERATOR_REFUSED;
    const bool same_name = variable[0] == '\0' || std::strcmp(variable, posted->variable.data()) == 0;
    if (!same_name || posted->type != type || posted->ndim != ndim ||
        !std::equal(count, count + ndim, posted->count.begin()) || !posted->has_room) {
        return HandOver::refused;
    }
    if (posted->set_extents != nullptr) {
        // Unlocked, because the call may wait for another thread that is about to post an archive. The entry stays:
        // only the caller of this Put withdraws it.
        lock.unlock();
        const bool are_set = posted->set_extents() == CUSZ_OPERATOR_EXTENTS_SET;
        lock.lock();
        if (!are_set) return HandOver::refused;
    }
    prepare_output(out, posted->archive_bytes);
    std::memcpy(out, posted->archive, posted->archive_bytes);
    *archive_bytes = posted->archive_bytes;
    posted->state = CUSZ_OPERATOR_USED;
    return HandOver::taken;
}

} // namespace cusz_operator

uintptr_t cusz_operator_offer(const void* archive, size_t archive_bytes, int32_t type, int32_t ndim,
                              const uint64_t* count, const char* variable) {
    using namespace cusz_operator;
    const std::lock_guard<std::mutex> lock(mutex);
    const PostedArchive* const posted = post(archive, archive_bytes, type, ndim, count, variable, unreadable);
    return posted != nullptr ? reinterpret_cast<std::uintptr_t>(posted->key) : 0;
}

uintptr_t cusz_operator_offer_with_range(const void* archive, size_t archive_bytes, int32_t type, int32_t ndim,
                                         const uint64_t* count, const char* variable, const void* range,
                                         const uint64_t* put_count, int32_t (*set_extents)(void)) {
    using namespace cusz_operator;
    if (range == nullptr || put_count == nullptr || set_extents == nullptr) return 0;
    const std::lock_guard<std::mutex> lock(mutex);
    PostedArchive* const posted = post(archive, archive_bytes, type, ndim, count, variable, readable);
    if (posted == nullptr) return 0;
    std::uint64_t put_bytes = 0;
    if (!block_bytes(type, ndim, put_count, &put_bytes) || put_bytes == 0 || put_bytes > 2 * value_bytes(type)) {
        posted->key = nullptr; // ADIOS2 would read past the two values
        return 0;
    }
    std::memcpy(posted->key, range, 2 * value_bytes(type));
    std::copy_n(put_count, posted->ndim, posted->count.begin());
    posted->set_extents = set_extents;
    posted->has_room = false; // until ADIOS2 has asked how much it needs
    return reinterpret_cast<std::uintptr_t>(posted->key);
}

int32_t cusz_operator_withdraw(uintptr_t key) {
    using namespace cusz_operator;
    const std::lock_guard<std::mutex> lock(mutex);
    PostedArchive* const posted = find(reinterpret_cast<const void*>(key));
    if (posted == nullptr) return CUSZ_OPERATOR_UNKNOWN;
    posted->key = nullptr;
    posted->archive = nullptr;
    return posted->state;
}
