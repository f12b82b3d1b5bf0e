// Many blocks in one call of the C interface: threads take a block each.
#include <cusz/cusz.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "archive/layout.hpp"
#include "codec/cpu/parallel.hpp"
#include "codec/device_backend.hpp"
#include "context.hpp"
#include "params.hpp"

namespace {

using namespace cusz;

// Blocks lie struct_bytes of the first one apart: a program may know fewer or more members than this library.
class Blocks {
public:
    Blocks(cusz_block* first, std::uint64_t count) : first_(reinterpret_cast<std::byte*>(first)), count_(count) {
        if (count == 0) return;
        need(first, "blocks");
        apart_ = first->struct_bytes;
        check_struct_bytes("blocks", apart_, sizeof(cusz_block), "set it to sizeof(cusz_block)");
        for (std::uint64_t i = 1; i < count; ++i)
            if ((*this)[i].struct_bytes != apart_)
                fail(CUSZ_ERROR_PARAMETER, "struct_bytes of block ", i, " is ", (*this)[i].struct_bytes,
                     ", that of block 0 is ", apart_);
    }
    std::uint64_t count() const { return count_; }
    cusz_block& operator[](std::uint64_t i) const { return *reinterpret_cast<cusz_block*>(first_ + i * apart_); }

private:
    std::byte* first_;
    std::uint64_t count_;
    std::size_t apart_ = 0;
};

// The first block that failed, by number. Blocks are taken in order, so those before it have been tried.
class FirstFailure {
public:
    void note(std::uint64_t block, cusz_status status, const char* message) {
        const std::lock_guard lock(mutex_);
        if (block > block_) return;
        block_ = block;
        status_ = status;
        message_ = message;
    }
    void raise_of(std::uint64_t count) const {
        if (status_ != CUSZ_OK) fail(status_, "block ", block_, " of ", count, ": ", message_);
    }

private:
    std::mutex mutex_;
    std::uint64_t block_ = std::numeric_limits<std::uint64_t>::max();
    cusz_status status_ = CUSZ_OK;
    std::string message_;
};

// Where archives are made: each in as much memory as the longest possible one takes. Afterwards they move together.
struct Plan {
    std::size_t bytes = 0;       // of the memory
    std::uint64_t raw_bytes = 0; // of all fields
    std::uint64_t most_raw_bytes = 0;
    bool is_on_host = true;
};

Plan plan_for(const Blocks& blocks, cusz_dtype dtype, std::int32_t ndim) {
    Plan plan;
    for (std::uint64_t i = 0; i < blocks.count(); ++i) {
        const cusz_block& block = blocks[i];
        try {
            const Layout layout(dtype, ndim, block.shape);
            if (layout.values > 0) need(block.field, "field");
            plan.raw_bytes += layout.bytes();
            plan.most_raw_bytes = std::max(plan.most_raw_bytes, layout.bytes());
            if (plan.raw_bytes > std::numeric_limits<std::int64_t>::max() - (std::uint64_t{1} << 48))
                fail(CUSZ_ERROR_UNSUPPORTED, "the fields' size in bytes does not fit in 63 bits");
            plan.bytes += static_cast<std::size_t>(layout.bytes()) + CUSZ_RAW_OVERHEAD_BYTES;
            plan.is_on_host = plan.is_on_host && cuda::device_of(block.field) == -1;
        } catch (const Error& error) {
            fail(error.status(), "block ", i, " of ", blocks.count(), ": ", error.what());
        }
    }
    return plan;
}

} // namespace

cusz_status cusz_compress_many(cusz_context* context, const cusz_params* params, cusz_dtype dtype, int32_t ndim,
                               uint64_t count, cusz_block* blocks, int32_t with_ranges, void* archives,
                               size_t archives_capacity) {
    return guarded(context, [&] {
        need(context, "context");
        need(params, "params");
        const cusz_params given = checked(*params);
        const Blocks all(blocks, count);
        if (count == 0) return;
        need(archives, "archives");
        const Plan plan = plan_for(all, dtype, ndim);
        if (archives_capacity < plan.bytes)
            fail(CUSZ_ERROR_PARAMETER, "archives_capacity is ", archives_capacity, " bytes; these blocks need ",
                 plan.bytes, " (cusz_max_archive_bytes of each)");
        if (cuda::device_of(archives) >= 0)
            fail(CUSZ_ERROR_UNSUPPORTED, "archives of many blocks go to host memory, and this is on a device");

        // Threads take a block each, unless there are too few blocks that are worth several threads.
        const int threads = resolve_threads(given.threads, plan.raw_bytes);
        const bool is_shared_out = threads > 1 && plan.is_on_host && given.backend != CUSZ_BACKEND_CUDA &&
                                   (count >= 4 * static_cast<std::uint64_t>(threads) ||
                                    resolve_threads(given.threads, plan.most_raw_bytes) == 1);
        const auto n =
            static_cast<std::size_t>(is_shared_out ? std::min(static_cast<std::uint64_t>(threads), count) : 1);
        cusz_params of_block = given;
        if (is_shared_out) of_block.threads = 1;
        while (context->helpers.size() + 1 < n) {
            std::unique_ptr<cusz_context, cusz_context::Destroy> helper(cusz_create());
            if (!helper) throw std::bad_alloc();
            context->helpers.push_back(std::move(helper));
        }

        auto* to = static_cast<std::byte*>(archives);
        for (std::uint64_t i = 0; i < count; ++i) {
            all[i].archive = to;
            to += static_cast<std::size_t>(Layout(dtype, ndim, all[i].shape).bytes()) + CUSZ_RAW_OVERHEAD_BYTES;
        }
        const auto capacity_of = [&](std::uint64_t i) {
            const auto* const end = i + 1 < count ? static_cast<const std::byte*>(all[i + 1].archive) : to;
            return static_cast<std::size_t>(end - static_cast<const std::byte*>(all[i].archive));
        };
        FirstFailure failure;
        try {
            cpu::parallel(static_cast<int>(n), count, [&](std::uint64_t i, int thread) {
                cusz_context* const own =
                    thread == 0 ? context : context->helpers[static_cast<std::size_t>(thread) - 1].get();
                cusz_block& block = all[i];
                cusz_info unused{};
                unused.struct_bytes = sizeof unused;
                cusz_info* const info = block.info != nullptr ? block.info : &unused;
                const cusz_status status = cusz_compress_and_describe(
                    own, &of_block, dtype, ndim, block.shape, block.field, block.archive, capacity_of(i), info,
                    with_ranges != 0 ? &block.min : nullptr, with_ranges != 0 ? &block.max : nullptr, &block.n_valid);
                if (status != CUSZ_OK) {
                    failure.note(i, status, cusz_last_error(own));
                    fail(status, "a block failed"); // ends the threads
                }
                block.archive_bytes = static_cast<std::size_t>(info->archive_bytes);
            });
        } catch (const Error&) {
            failure.raise_of(count);
            throw;
        }

        to = static_cast<std::byte*>(archives);
        for (std::uint64_t i = 0; i < count; ++i) {
            if (all[i].archive != to) std::memmove(to, all[i].archive, all[i].archive_bytes);
            all[i].archive = to;
            to += all[i].archive_bytes;
        }
    });
}
