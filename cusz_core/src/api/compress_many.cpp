// Compresses many blocks in one call of the C interface.
#include <cusz/cusz.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "archive/layout.hpp"
#include "codec/device_backend.hpp"
#include "context.hpp"
#include "many.hpp"
#include "params.hpp"

namespace {

using namespace cusz;

using Blocks = Structures<cusz_block>;

// The work of one call.
class Batch {
public:
    Batch(cusz_context& context, const cusz_params& params, cusz_dtype dtype, std::int32_t ndim, const Blocks& blocks,
          bool with_ranges)
        : context_(context), params_(params), dtype_(dtype), ndim_(ndim), blocks_(blocks), with_ranges_(with_ranges) {
        is_staged_ = params.backend == CUSZ_BACKEND_AUTO;
        is_together_ = params.backend != CUSZ_BACKEND_CPU && (params.mode == CUSZ_ABS || params.mode == CUSZ_REL);
        for (std::uint64_t i = 0; i < blocks.count(); ++i) {
            try {
                measure(blocks[i]);
            } catch (const Error& error) {
                fail(error.status(), "block ", i, " of ", blocks.count(), ": ", error.what());
            }
        }
        is_together_ =
            is_together_ && device_ >= 0 && (params.backend == CUSZ_BACKEND_CUDA || values_ >= min_device_values);
    }
    std::size_t max_archives_bytes() const { return archives_bytes_; }

    void compress_to(std::byte* archives) {
        std::byte* to = archives;
        for (std::uint64_t i = 0; i < blocks_.count();
             ++i) { // each gets the memory that the longest possible archive takes
            blocks_[i].archive = to;
            to += max_archive_bytes(i);
        }
        for (std::uint64_t first = 0; first < blocks_.count();) first = compress_group(first);
        to = archives;
        for (std::uint64_t i = 0; i < blocks_.count(); ++i) {
            if (blocks_[i].archive != to) std::memmove(to, blocks_[i].archive, blocks_[i].archive_bytes);
            blocks_[i].archive = to;
            to += blocks_[i].archive_bytes;
        }
    }

private:
    // Fields on a device with fewer values, alone or together, go to the CPU: launching kernels and waiting for them
    // would take longer.
    static constexpr std::uint64_t min_device_values = std::uint64_t{1} << 17;
    // Host memory for fields on a device at a time; more if a single field needs it.
    static constexpr std::uint64_t staging_bytes = std::uint64_t{1} << 26;
    // Fields that are compressed together; scratch memory on the device takes a little more.
    static constexpr std::uint64_t together_bytes = std::uint64_t{1} << 26;
    static constexpr std::size_t max_together = std::size_t{1} << 15; // a launch takes 65535

    Layout layout(std::uint64_t i) const { return {dtype_, ndim_, blocks_[i].shape}; }
    std::size_t max_archive_bytes(std::uint64_t i) const {
        return static_cast<std::size_t>(layout(i).bytes()) + CUSZ_RAW_OVERHEAD_BYTES;
    }
    void measure(const cusz_block& block) {
        const Layout layout(dtype_, ndim_, block.shape);
        if (layout.values > 0) need(block.field, "field");
        values_ += layout.values;
        raw_bytes_ += layout.bytes();
        most_raw_bytes_ = std::max(most_raw_bytes_, layout.bytes());
        if (raw_bytes_ > std::numeric_limits<std::int64_t>::max() - (std::uint64_t{1} << 48))
            fail(CUSZ_ERROR_UNSUPPORTED, "the fields' size in bytes does not fit in 63 bits");
        archives_bytes_ += static_cast<std::size_t>(layout.bytes()) + CUSZ_RAW_OVERHEAD_BYTES;
        if (layout.values == 0) return;
        const int device = cuda::device_of(block.field);
        is_together_ = is_together_ && device >= 0 && (device_ == host || device == device_) &&
                       reinterpret_cast<std::uintptr_t>(block.field) % layout.value_bytes() == 0;
        device_ = device;
        if (device == host) return;
        is_on_host_ = false;
        is_staged_ = is_staged_ && device != cuda::unknown && layout.values < min_device_values;
    }

    // Compresses blocks from `first` on with launches for all of them. Returns the first one that is left: if that is
    // `first`, they cannot be compressed that way.
    std::uint64_t compress_together(std::uint64_t first) {
        if (!is_together_) return first;
        std::vector<FieldToWrite> fields;
        std::uint64_t bytes = 0;
        for (std::uint64_t i = first; i < blocks_.count(); ++i) {
            bytes += layout(i).bytes();
            if (i > first && (bytes > together_bytes || fields.size() == max_together)) break;
            fields.push_back(
                {layout(i), {blocks_[i].field, device_, "field"}, static_cast<std::byte*>(blocks_[i].archive)});
        }
        const Workers workers{backend_on(context_, device_), *context_.cpu, context_.scratch,
                              resolve_threads(params_.threads, bytes)};
        try {
            is_together_ = write_archives(workers, coding_of(params_, dtype_), with_ranges_, fields);
        } catch (const Error& error) {
            if (error.status() != CUSZ_ERROR_MEMORY) throw;
            workers.backend.release_scratch();
            is_together_ = false;
        }
        if (!is_together_) return first;
        for (const FieldToWrite& field : fields) {
            cusz_block& block = blocks_[first++];
            block.archive_bytes = field.bytes;
            if (with_ranges_) {
                block.min = field.range.min;
                block.max = field.range.max;
                block.n_valid = field.range.n_valid;
            }
            if (block.info == nullptr) continue;
            const cusz_status status = cusz_inspect(&context_, block.archive, block.archive_bytes, block.info);
            if (status != CUSZ_OK)
                fail(status, "block ", first - 1, " of ", blocks_.count(), ": ", cusz_last_error(&context_));
        }
        return first;
    }

    // One if a device does the work.
    int threads_of_group() const {
        const bool is_of_cpu = (is_on_host_ || is_staged_) && params_.backend != CUSZ_BACKEND_CUDA;
        return is_of_cpu ? threads_for(params_.threads, blocks_.count(), raw_bytes_, most_raw_bytes_) : 1;
    }

    // Compresses blocks from `first` on. Returns the first one that is left.
    std::uint64_t compress_group(std::uint64_t first) {
        const std::uint64_t left = compress_together(first);
        if (left > first) return left;
        std::vector<const void*> fields;
        if (is_on_host_ || !is_staged_)
            for (std::uint64_t i = first; i < blocks_.count(); ++i) fields.push_back(blocks_[i].field);
        else
            fields = on_host(first);
        const int n = threads_of_group();
        cusz_params params = params_;
        if (n > 1) params.threads = 1;
        share_out(context_, n, {first, first + fields.size(), blocks_.count(), "block"},
                  [&](cusz_context& context, std::uint64_t i) {
                      return compress(context, params, blocks_[i], fields[i - first], max_archive_bytes(i));
                  });
        return first + fields.size();
    }
    cusz_status compress(cusz_context& context, const cusz_params& params, cusz_block& block, const void* field,
                         std::size_t capacity) const {
        cusz_info unused{};
        unused.struct_bytes = sizeof unused;
        cusz_info* const info = block.info != nullptr ? block.info : &unused;
        const cusz_status status = cusz_compress_and_describe(
            &context, &params, dtype_, ndim_, block.shape, field, block.archive, capacity, info,
            with_ranges_ ? &block.min : nullptr, with_ranges_ ? &block.max : nullptr, &block.n_valid);
        if (status == CUSZ_OK) block.archive_bytes = static_cast<std::size_t>(info->archive_bytes);
        return status;
    }

    // The fields from block `first` on, as many as are to be on the host at a time. Copies those on a device.
    std::vector<const void*> on_host(std::uint64_t first) {
        std::uint64_t bytes = 0, end = first;
        for (; end < blocks_.count(); ++end) {
            const std::uint64_t more = rounded(layout(end).bytes());
            if (end > first && bytes + more > staging_bytes) break;
            bytes += more;
        }
        auto* to = context_.staging.reserve<std::byte>(static_cast<std::size_t>(bytes));
        std::vector<const void*> fields;
        std::map<int, std::vector<cuda::Transfer>> transfers; // by device
        for (std::uint64_t i = first; i < end; ++i) {
            const void* const field = blocks_[i].field;
            const int device = cuda::device_of(field);
            fields.push_back(device == host ? field : to);
            if (device == host) continue;
            const auto size = static_cast<std::size_t>(layout(i).bytes());
            transfers[device].push_back({to, field, size});
            to += rounded(size);
        }
        for (const auto& [device, own] : transfers) backend_on(context_, device).fetch(own);
        return fields;
    }
    static std::uint64_t rounded(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

    cusz_context& context_;
    cusz_params params_;
    cusz_dtype dtype_;
    std::int32_t ndim_;
    Blocks blocks_;
    bool with_ranges_, is_on_host_ = true, is_staged_, is_together_;
    int device_ = host; // of the last field
    std::uint64_t values_ = 0, raw_bytes_ = 0, most_raw_bytes_ = 0;
    std::size_t archives_bytes_ = 0;
};

} // namespace

cusz_status cusz_compress_many(cusz_context* context, const cusz_params* params, cusz_dtype dtype, int32_t ndim,
                               uint64_t count, cusz_block* blocks, int32_t with_ranges, void* archives,
                               size_t archives_capacity) {
    return guarded(context, [&] {
        need(context, "context");
        need(params, "params");
        const cusz_params given = checked(*params);
        const Blocks all(blocks, count, sizeof(cusz_block), "blocks");
        if (count == 0) return;
        need(archives, "archives");
        Batch batch(*context, given, dtype, ndim, all, with_ranges != 0);
        if (archives_capacity < batch.max_archives_bytes())
            fail(CUSZ_ERROR_PARAMETER, "archives_capacity is ", archives_capacity, " bytes; these blocks need ",
                 batch.max_archives_bytes(), " (cusz_max_archive_bytes of each)");
        if (cuda::device_of(archives) >= 0)
            fail(CUSZ_ERROR_UNSUPPORTED, "archives of many blocks go to host memory, and this is on a device");
        batch.compress_to(static_cast<std::byte*>(archives));
    });
}
