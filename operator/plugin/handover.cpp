#include "handover.hpp"

#include "cusz_operator.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

namespace cusz_operator {
namespace {

// Tokens are addresses in pages that nobody can read, so that none can be the address of a field, and one that is not
// known (any more, or to another copy of this library) is noticed as unreadable instead of being used.
constexpr std::size_t n_addresses = 1 << 16;
constexpr std::size_t address_bytes = 16;

struct Offer {
    const char* token = nullptr; // nullptr: the entry is free
    int32_t state = CUSZ_OPERATOR_WAITING;
    const void* archive = nullptr;
    std::size_t archive_bytes = 0;
    int32_t dtype = 0;
    std::size_t ndim = 0;
    std::array<std::uint64_t, CUSZ_OPERATOR_MAX_NDIM> count{};
    std::array<char, 1024> variable{};
};

// Static storage without destructors, as in report.cpp.
std::mutex mutex;
char* pages = nullptr;
std::size_t next_address = 0;
std::array<Offer, CUSZ_OPERATOR_MAX_OFFERS> offers;

Offer* find(const void* token) noexcept {
    if (token == nullptr) return nullptr;
    const auto found = std::find_if(offers.begin(), offers.end(), [&](const Offer& o) { return o.token == token; });
    return found != offers.end() ? &*found : nullptr;
}

// An address that is no token at present.
const char* new_token() noexcept {
    if (pages == nullptr) {
        void* reserved =
            ::mmap(nullptr, n_addresses * address_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED) return nullptr;
        pages = static_cast<char*>(reserved);
    }
    const char* token = nullptr;
    do token = pages + address_bytes * (next_address++ % n_addresses);
    while (find(token) != nullptr); // there are more addresses than entries
    return token;
}

// Whether this is, or was, a token of this copy.
bool is_token(const void* address) noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto first = reinterpret_cast<std::uintptr_t>(pages);
    return pages != nullptr && at >= first && at - first < n_addresses * address_bytes;
}

// Bytes of a block; false if they cannot be counted.
bool block_bytes(int32_t dtype, int32_t ndim, const uint64_t* count, std::uint64_t* bytes) noexcept {
    *bytes = dtype == CUSZ_F32 ? 4 : 8;
    for (int32_t i = 0; i < ndim; ++i) {
        if (__builtin_mul_overflow(*bytes, count[i], bytes)) return false;
    }
    return true;
}

} // namespace

HandOver take_offer(const void* address, const char* variable, cusz_dtype dtype, const std::size_t* count,
                    std::size_t ndim, char* out, std::size_t* archive_bytes) noexcept {
    const std::lock_guard<std::mutex> lock(mutex);
    Offer* const offer = find(address);
    if (offer == nullptr || offer->state != CUSZ_OPERATOR_WAITING) {
        return is_token(address) ? HandOver::late : HandOver::none;
    }
    const bool same_name = variable[0] == '\0' || std::strcmp(variable, offer->variable.data()) == 0;
    if (!same_name || offer->dtype != dtype || offer->ndim != ndim ||
        !std::equal(count, count + ndim, offer->count.begin())) {
        offer->state = CUSZ_OPERATOR_REFUSED;
        return HandOver::refused;
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
    if (archive == nullptr || archive_bytes == 0 || count == nullptr || variable == nullptr) return 0;
    if ((dtype != CUSZ_F32 && dtype != CUSZ_F64) || ndim < 1 || ndim > CUSZ_OPERATOR_MAX_NDIM) return 0;
    std::uint64_t most_bytes = 0;
    if (!block_bytes(dtype, ndim, count, &most_bytes) ||
        __builtin_add_overflow(most_bytes, CUSZ_RAW_OVERHEAD_BYTES, &most_bytes) || archive_bytes > most_bytes) {
        return 0; // ADIOS2 has no room for it
    }
    const std::size_t name_bytes = std::strlen(variable);

    const std::lock_guard<std::mutex> lock(mutex);
    const auto free = std::find_if(offers.begin(), offers.end(), [](const Offer& o) { return o.token == nullptr; });
    if (free == offers.end() || name_bytes == 0 || name_bytes >= free->variable.size()) return 0;
    const char* const token = new_token();
    if (token == nullptr) return 0;
    free->token = token;
    free->state = CUSZ_OPERATOR_WAITING;
    free->archive = archive;
    free->archive_bytes = archive_bytes;
    free->dtype = dtype;
    free->ndim = static_cast<std::size_t>(ndim);
    std::copy_n(count, free->ndim, free->count.begin());
    std::memcpy(free->variable.data(), variable, name_bytes + 1);
    return reinterpret_cast<std::uintptr_t>(token);
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
