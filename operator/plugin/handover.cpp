#include "handover.hpp"

#include "cusz_operator.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

namespace cusz_operator {
namespace {

// Where tokens are: addresses in pages of this library's own, so that none can be the address of a field.
struct Pages {
    int protection;
    std::size_t n_addresses; // more than there are offers
    char* first = nullptr;
    std::size_t next = 0;

    // Whether it is, or was, a token in these pages.
    bool have(const void* address) const noexcept;
    char* new_token() noexcept;
};
constexpr std::size_t address_bytes = 16; // of two values

struct Offer {
    char* token = nullptr; // nullptr: the entry is free
    int32_t state = CUSZ_OPERATOR_WAITING;
    const void* archive = nullptr;
    std::size_t archive_bytes = 0;
    int32_t dtype = 0;
    std::size_t ndim = 0;
    std::array<std::uint64_t, CUSZ_OPERATOR_MAX_NDIM> count{}; // that ADIOS2 is going to ask with
    int32_t (*set_extents)() = nullptr;                        // where these are not the block's
    bool has_room = true;                                      // for the archive, at ADIOS2's
    std::array<char, 1024> variable{};
};

// Static storage without destructors, as in report.cpp.
std::mutex mutex;
// Where ADIOS2 has nothing to read: a token that is not known (any more, or to another copy of this library) is noticed
// as unreadable instead of being used.
Pages unreadable = {PROT_NONE, 1 << 16};
Pages readable = {PROT_READ | PROT_WRITE, 1 << 12};
std::array<Offer, CUSZ_OPERATOR_MAX_OFFERS> offers;

Offer* find(const void* token) noexcept {
    if (token == nullptr) return nullptr;
    const auto found = std::find_if(offers.begin(), offers.end(), [&](const Offer& o) { return o.token == token; });
    return found != offers.end() ? &*found : nullptr;
}

bool Pages::have(const void* address) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto begin = reinterpret_cast<std::uintptr_t>(first);
    return first != nullptr && at >= begin && at - begin < n_addresses * address_bytes;
}

// An address that is no token at present; nullptr without memory.
char* Pages::new_token() noexcept {
    if (first == nullptr) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* reserved = ::mmap(nullptr, n_addresses * address_bytes, protection, flags, -1, 0);
        if (reserved == MAP_FAILED) return nullptr;
        first = static_cast<char*>(reserved);
    }
    char* token = nullptr;
    do token = first + address_bytes * (next++ % n_addresses);
    while (find(token) != nullptr);
    return token;
}

std::uint64_t value_bytes(int32_t dtype) noexcept { return dtype == CUSZ_F32 ? 4 : 8; }

// Bytes of a block; false if they cannot be counted.
bool block_bytes(int32_t dtype, int32_t ndim, const uint64_t* count, std::uint64_t* bytes) noexcept {
    *bytes = value_bytes(dtype);
    for (int32_t i = 0; i < ndim; ++i) {
        if (__builtin_mul_overflow(*bytes, count[i], bytes)) return false;
    }
    return true;
}

// The entry of a new offer under a token of `pages`; nullptr if an argument makes no sense or there is no room. Its
// extents are those of the block.
Offer* new_offer(const void* archive, std::size_t archive_bytes, std::int32_t dtype, std::int32_t ndim,
                 const std::uint64_t* count, const char* variable, Pages& pages) noexcept {
    if (archive == nullptr || archive_bytes == 0 || count == nullptr || variable == nullptr) return nullptr;
    if ((dtype != CUSZ_F32 && dtype != CUSZ_F64) || ndim < 1 || ndim > CUSZ_OPERATOR_MAX_NDIM) return nullptr;
    std::uint64_t most_bytes = 0;
    if (!block_bytes(dtype, ndim, count, &most_bytes) ||
        __builtin_add_overflow(most_bytes, CUSZ_RAW_OVERHEAD_BYTES, &most_bytes) || archive_bytes > most_bytes) {
        return nullptr; // ADIOS2 has no room for it
    }
    const std::size_t name_bytes = std::strlen(variable);
    const auto free = std::find_if(offers.begin(), offers.end(), [](const Offer& o) { return o.token == nullptr; });
    if (free == offers.end() || name_bytes == 0 || name_bytes >= free->variable.size()) return nullptr;
    free->token = pages.new_token();
    if (free->token == nullptr) return nullptr;
    free->state = CUSZ_OPERATOR_WAITING;
    free->archive = archive;
    free->archive_bytes = archive_bytes;
    free->dtype = dtype;
    free->ndim = static_cast<std::size_t>(ndim);
    std::copy_n(count, free->ndim, free->count.begin());
    free->set_extents = nullptr;
    free->has_room = true;
    std::memcpy(free->variable.data(), variable, name_bytes + 1);
    return &*free;
}

} // namespace

std::size_t bytes_for_offers() noexcept {
    const std::lock_guard<std::mutex> lock(mutex);
    std::size_t most = 0;
    for (Offer& offer : offers) {
        if (offer.token == nullptr || offer.set_extents == nullptr) continue;
        offer.has_room = true;
        most = std::max(most, offer.archive_bytes);
    }
    return most;
}

HandOver take_offer(const void* address, const char* variable, cusz_dtype dtype, const std::size_t* count,
                    std::size_t ndim, char* out, std::size_t* archive_bytes) noexcept {
    std::unique_lock<std::mutex> lock(mutex);
    Offer* const offer = find(address);
    if (offer == nullptr || offer->state != CUSZ_OPERATOR_WAITING) {
        return unreadable.have(address) || readable.have(address) ? HandOver::late : HandOver::none;
    }
    offer->state = CUSZ_OPERATOR_REFUSED;
    const bool same_name = variable[0] == '\0' || std::strcmp(variable, offer->variable.data()) == 0;
    if (!same_name || offer->dtype != dtype || offer->ndim != ndim ||
        !std::equal(count, count + ndim, offer->count.begin()) || !offer->has_room) {
        return HandOver::refused;
    }
    if (offer->set_extents != nullptr) {
        // Unlocked, as it may wait for another thread that is about to offer something. The entry stays, as only the
        // caller of this Put withdraws it.
        lock.unlock();
        const bool are_set = offer->set_extents() == CUSZ_OPERATOR_EXTENTS_SET;
        lock.lock();
        if (!are_set) return HandOver::refused;
    }
    std::memcpy(out, offer->archive, offer->archive_bytes);
    *archive_bytes = offer->archive_bytes;
    offer->state = CUSZ_OPERATOR_USED;
    return HandOver::taken;
}

} // namespace cusz_operator

uintptr_t cusz_operator_offer(const void* archive, size_t archive_bytes, int32_t dtype, int32_t ndim,
                              const uint64_t* count, const char* variable) {
    using namespace cusz_operator;
    const std::lock_guard<std::mutex> lock(mutex);
    const Offer* const offer = new_offer(archive, archive_bytes, dtype, ndim, count, variable, unreadable);
    return offer != nullptr ? reinterpret_cast<std::uintptr_t>(offer->token) : 0;
}

uintptr_t cusz_operator_offer_with_range(const void* archive, size_t archive_bytes, int32_t dtype, int32_t ndim,
                                         const uint64_t* count, const char* variable, double min, double max,
                                         const uint64_t* put_count, int32_t (*set_extents)(void)) {
    using namespace cusz_operator;
    if (put_count == nullptr || set_extents == nullptr) return 0;
    const std::lock_guard<std::mutex> lock(mutex);
    Offer* const offer = new_offer(archive, archive_bytes, dtype, ndim, count, variable, readable);
    if (offer == nullptr) return 0;
    std::uint64_t put_bytes = 0;
    if (!block_bytes(dtype, ndim, put_count, &put_bytes) || put_bytes == 0 || put_bytes > 2 * value_bytes(dtype)) {
        offer->token = nullptr; // ADIOS2 would read what is not there
        return 0;
    }
    if (dtype == CUSZ_F32) {
        const std::array<float, 2> values = {static_cast<float>(min), static_cast<float>(max)};
        std::memcpy(offer->token, values.data(), sizeof values);
    } else {
        const std::array<double, 2> values = {min, max};
        std::memcpy(offer->token, values.data(), sizeof values);
    }
    std::copy_n(put_count, offer->ndim, offer->count.begin());
    offer->set_extents = set_extents;
    offer->has_room = false; // until ADIOS2 has asked how much it needs
    return reinterpret_cast<std::uintptr_t>(offer->token);
}

int32_t cusz_operator_withdraw(uintptr_t token) {
    using namespace cusz_operator;
    const std::lock_guard<std::mutex> lock(mutex);
    Offer* const offer = find(reinterpret_cast<const void*>(token));
    if (offer == nullptr) return CUSZ_OPERATOR_UNKNOWN;
    offer->token = nullptr;
    offer->archive = nullptr;
    return offer->state;
}
