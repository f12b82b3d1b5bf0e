// Distributes work over threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "errors.hpp"
#include "simd/float_mode.hpp"

namespace cusz::cpu {

// Runs work(part, thread) for every part from 0 to parts - 1, with IEEE arithmetic, and rethrows the first failure.
// Each thread takes the next part when it is free; the caller is thread 0. The other threads end with the call, so none
// is left to wait for after a fork, or when a host unloads its plugins. If the system refuses to start a thread, or has
// no memory for it, the running ones do its work.
template <class Work>
void parallel(int threads, std::uint64_t parts, const Work& work) {
    if (threads == 1) {
        for (std::uint64_t part = 0; part < parts; ++part) work(part, 0);
        return;
    }
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(threads));
    std::atomic<std::uint64_t> next = 0;
    const auto take_parts = [&](int thread) {
        if (thread > 0 && !prepare_to_throw()) return;
        const FloatMode mode;
        try {
            for (std::uint64_t part = next++; part < parts; part = next++) work(part, thread);
        } catch (...) {
            failures[static_cast<std::size_t>(thread)] = std::current_exception();
            next = parts; // the rest is not needed
        }
    };
    {
        std::vector<std::jthread> helpers;
        helpers.reserve(static_cast<std::size_t>(threads));
        try {
            for (int thread = 1; thread < threads; ++thread) helpers.emplace_back(take_parts, thread);
        } catch (const std::system_error&) {
        } catch (const std::bad_alloc&) {
        }
        take_parts(0);
    }
    for (const auto& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

// Splits items into parts of about the same size: several per thread, because a thread may be slower than others, or
// start later.
struct Parts {
    std::uint64_t count, number;
    Parts(std::uint64_t items, int threads)
        : count(items),
          number(threads == 1 ? 1 : std::min<std::uint64_t>(items, 16u * static_cast<unsigned>(threads))) {}
    struct Range {
        std::uint64_t begin, end;
    };
    Range operator[](std::uint64_t part) const {
        const std::uint64_t rest = count % number, begin = count / number * part + std::min(rest, part);
        return {begin, begin + count / number + (part < rest ? 1 : 0)};
    }
};

} // namespace cusz::cpu
