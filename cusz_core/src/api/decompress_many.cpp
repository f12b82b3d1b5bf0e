// Reconstructs boxes of many archives in one call of the C interface.
#include <cusz/cusz.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "archive/layout.hpp"
#include "context.hpp"
#include "many.hpp"

namespace {

using namespace cusz;

using Boxes = Structures<const cusz_box>;

// Fails with PARAMETER if the archive is of another type or number of dimensions.
cusz_status decompress(cusz_context& context, const cusz_box& box, cusz_dtype dtype, std::int32_t ndim,
                       std::int32_t threads) {
    cusz_info info{};
    info.struct_bytes = sizeof info;
    const cusz_status status = cusz_inspect(&context, box.archive, box.archive_bytes, &info);
    if (status != CUSZ_OK) return status;
    if (info.dtype != dtype || info.ndim != ndim)
        return guarded(&context, [&] {
            const auto name = [](std::int32_t type) { return type == CUSZ_F32 ? "float32" : "float64"; };
            fail(CUSZ_ERROR_PARAMETER, "its field is of ", name(info.dtype), " and has ", info.ndim,
                 " dimensions; the box is of ", name(dtype), " and has ", ndim);
        });
    return cusz_decompress_box(&context, box.archive, box.archive_bytes, threads, box.start, box.count, box.stride,
                               box.field);
}

} // namespace

cusz_status cusz_decompress_many(cusz_context* context, cusz_dtype dtype, int32_t ndim, int32_t threads, uint64_t count,
                                 const cusz_box* boxes) {
    return guarded(context, [&] {
        need(context, "context");
        const Boxes all(boxes, count, sizeof(cusz_box), "boxes");
        std::uint64_t bytes = 0, most = 0;
        for (std::uint64_t i = 0; i < count; ++i) {
            need(all[i].count, "count");
            const std::uint64_t own = Layout(dtype, ndim, all[i].count).bytes();
            most = std::max(most, own);
            bytes = own > ~bytes ? ~std::uint64_t{0} : bytes + own;
        }
        const int n = threads_for(threads, count, bytes, most);
        share_out(*context, n, {0, count, count, "archive"}, [&](cusz_context& own, std::uint64_t i) {
            return decompress(own, all[i], dtype, ndim, n > 1 ? 1 : threads);
        });
    });
}
