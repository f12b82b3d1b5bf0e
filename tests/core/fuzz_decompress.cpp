// cusz_check and cusz_decompress on arbitrary bytes, into memory of exactly the declared size.
#include <cusz/cusz.h>

#include <memory>

#include "mutator.hpp"
#include "promises.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static cusz_context* const context = cusz_create();
    cusz_info info{};
    info.struct_bytes = sizeof info;
    if (cusz_inspect(context, data, size, &info) != CUSZ_OK || info.raw_bytes > (1u << 24)) return 0;

    // An archive may be at any address; this one ends exactly where its memory does.
    const std::size_t offset = size % 5;
    const auto memory = std::make_unique<std::uint8_t[]>(offset + size);
    std::uint8_t* const archive = memory.get() + offset;
    std::memcpy(archive, data, size);
    const auto field = std::make_unique<char[]>(info.raw_bytes);

    const std::int32_t threads = 1 + info.checksum % 3;
    const cusz_status checked = cusz_check(context, archive, size, threads);
    const cusz_status status =
        cusz_decompress(context, archive, size, CUSZ_BACKEND_CPU, threads, field.get(), info.raw_bytes);
    cusz_test::demand(status == CUSZ_OK || status == CUSZ_ERROR_CORRUPT, "kind of error");
    cusz_test::demand(status != CUSZ_OK || checked == CUSZ_OK, "what is decoded also passes the check");
    const bool whole = status == CUSZ_OK;
    cusz_test::demand_boxes(context, archive, size, info, info.checksum + size, whole ? field.get() : nullptr);
    cusz_test::demand_levels(context, archive, size, info, info.checksum + size, whole ? field.get() : nullptr);
    if (!whole) return 0;

    // The number of threads must not matter.
    const auto again = std::make_unique<char[]>(info.raw_bytes);
    cusz_test::demand(
        cusz_decompress(context, archive, size, CUSZ_BACKEND_CPU, 4 - threads, again.get(), info.raw_bytes) == CUSZ_OK,
        "the same with other threads");
    cusz_test::demand(std::memcmp(field.get(), again.get(), info.raw_bytes) == 0, "the same values with other threads");
    return 0;
}
