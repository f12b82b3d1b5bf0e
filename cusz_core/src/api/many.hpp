// Calls with many blocks: each thread does whole blocks, with a context of its own.
#pragma once

#include <cusz/cusz.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "codec/cpu/parallel.hpp"
#include "context.hpp"
#include "params.hpp"

namespace cusz {

// An array of structures of a program that may know fewer or more of their members than this library: they are
// struct_bytes of the first one apart.
template <class T>
class Structures {
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;

public:
    // least_bytes: the size that the first version of the structure had. name: of the array, in messages.
    Structures(T* first, std::uint64_t count, std::size_t least_bytes, const char* name)
        : first_(reinterpret_cast<Byte*>(first)), count_(count) {
        if (count == 0) return;
        need(first, name);
        apart_ = first->struct_bytes;
        check_struct_bytes(name, apart_, least_bytes, "set it to the structure's size");
        for (std::uint64_t i = 1; i < count; ++i)
            if ((*this)[i].struct_bytes != apart_)
                fail(CUSZ_ERROR_PARAMETER, "struct_bytes of ", name, "[", i, "] is ", (*this)[i].struct_bytes,
                     ", that of ", name, "[0] is ", apart_);
    }
    std::uint64_t count() const { return count_; }
    T& operator[](std::uint64_t i) const { return *reinterpret_cast<T*>(first_ + i * apart_); }

private:
    Byte* first_;
    std::uint64_t count_;
    std::size_t apart_ = 0;
};

// How many threads do blocks of their own: one if all do one block after the other, because there are few of them, and
// they are worth several threads. bytes: of all blocks. most_bytes: of the largest one.
inline int threads_for(std::int32_t threads, std::uint64_t count, std::uint64_t bytes, std::uint64_t most_bytes) {
    const int n = resolve_threads(threads, bytes);
    const bool is_shared_out = count >= 4 * static_cast<std::uint64_t>(n) || resolve_threads(threads, most_bytes) == 1;
    return is_shared_out ? static_cast<int>(std::min(static_cast<std::uint64_t>(n), count)) : 1;
}

// The blocks from `first` to before `end`, of `count` in all. name: of one, in messages.
struct BlockRange {
    std::uint64_t first, end, count;
    const char* name;
};

// Runs call(context, number) for every block, which returns a status and leaves its message in that context. Throws
// what the first one that failed says, by number: blocks are taken in order, so those before it have been tried.
template <class Call>
void share_out(cusz_context& context, int threads, const BlockRange& blocks, const Call& call) {
    while (context.helpers.size() + 1 < static_cast<std::size_t>(threads)) {
        std::unique_ptr<cusz_context, cusz_context::Destroy> helper(cusz_create());
        if (!helper) throw std::bad_alloc();
        context.helpers.push_back(std::move(helper));
    }
    std::mutex mutex;
    std::uint64_t failed = std::numeric_limits<std::uint64_t>::max();
    cusz_status reason = CUSZ_OK;
    std::string message;
    try {
        cpu::parallel(threads, blocks.end - blocks.first, [&](std::uint64_t part, int thread) {
            cusz_context& own = thread == 0 ? context : *context.helpers[static_cast<std::size_t>(thread) - 1];
            const std::uint64_t number = blocks.first + part;
            const cusz_status status = call(own, number);
            if (status == CUSZ_OK) return;
            {
                const std::lock_guard lock(mutex);
                if (number < failed) {
                    message = cusz_last_error(&own);
                    failed = number;
                    reason = status;
                }
            }
            fail(status, "a block failed"); // ends the threads
        });
    } catch (const Error&) {
        if (reason == CUSZ_OK) throw;
        fail(reason, blocks.name, " ", failed, " of ", blocks.count, ": ", message);
    }
}

} // namespace cusz
