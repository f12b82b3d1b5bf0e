// cusz_inspect on arbitrary bytes: what it accepts is consistent, and no larger than the archive's size supports.
#include <cusz/cusz.h>

#include "mutator.hpp"
#include "promises.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static cusz_context* const context = cusz_create();
    cusz_info info{};
    info.struct_bytes = sizeof info;
    const cusz_status status = cusz_inspect(context, data, size, &info);
    const bool known = status == CUSZ_OK || status == CUSZ_ERROR_CORRUPT || status == CUSZ_ERROR_TOO_NEW ||
                       status == CUSZ_ERROR_UNSUPPORTED; // format version 0
    cusz_test::demand(known, "kind of error");
    cusz_test::demand((status == CUSZ_OK) == (cusz_last_error(context)[0] == '\0'), "a failure has a message");
    if (status != CUSZ_OK) return 0;
    std::uint64_t values = 1;
    for (std::int32_t i = 0; i < info.ndim; ++i) values *= info.shape[i];
    cusz_test::demand(info.ndim >= 1 && info.ndim <= CUSZ_MAX_NDIM, "ndim");
    cusz_test::demand(info.raw_bytes == values * (info.dtype == CUSZ_F32 ? 4 : 8), "raw_bytes");
    cusz_test::demand(info.archive_bytes == size, "archive_bytes");
    if (info.kind == CUSZ_KIND_RAW) {
        cusz_test::demand(size == info.raw_bytes + CUSZ_RAW_OVERHEAD_BYTES, "a raw archive holds its field");
    } else {
        const bool is_constant = info.version == 2 && info.n_tiles == 0;
        cusz_test::demand(is_constant || info.n_tiles * cusz::max_tile_values >= values, "tiles cover the field");
        // Version 1 has an index entry and a header for each tile. Version 2 has three bytes for a unit of 16 tiles.
        const std::uint64_t least = info.version == 1 ? 6 * info.n_tiles : info.n_tiles / 16 * 3;
        if (info.lossless == CUSZ_LOSSLESS_NONE) cusz_test::demand(size >= least, "every tile is there");
    }
    return 0;
}
