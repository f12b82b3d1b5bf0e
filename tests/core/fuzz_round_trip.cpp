// Arbitrary bytes as parameters and field: strict bound, bounded size, the same archive with another number of threads.
#include <cusz/cusz.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "promises.hpp"

namespace {

// Takes values from the front of the input; zeros once it is used up.
struct Input {
    const std::uint8_t* at;
    std::size_t left;

    template <class V>
    V take() {
        V value{};
        const std::size_t n = std::min(left, sizeof value);
        std::memcpy(&value, at, n);
        at += n;
        left -= n;
        return value;
    }
};

template <class T>
void round_trip(cusz_context* context, Input input, cusz_params params, const std::uint64_t* shape, std::int32_t ndim) {
    const cusz_dtype dtype = sizeof(T) == 4 ? CUSZ_F32 : CUSZ_F64;
    std::uint64_t n = 1;
    for (std::int32_t i = 0; i < ndim; ++i) n *= shape[i];
    std::vector<T> x(n), y(n);
    const bool repeats = (input.take<std::uint8_t>() & 1) != 0; // a small input may fill a large field
    const Input start = input;
    for (T& value : x) {
        if (repeats && input.left == 0) input = start;
        value = input.take<T>();
    }

    std::size_t capacity = 0, bytes = 0, bytes_again = 0;
    cusz_test::demand(cusz_max_archive_bytes(dtype, ndim, shape, &capacity) == CUSZ_OK, "capacity");
    cusz_test::demand(capacity == n * sizeof(T) + CUSZ_RAW_OVERHEAD_BYTES, "the bound of the size");
    const auto archive = std::make_unique<char[]>(capacity), again = std::make_unique<char[]>(capacity);
    const cusz_status status =
        cusz_compress(context, &params, dtype, ndim, shape, x.data(), archive.get(), capacity, &bytes);
    if (status != CUSZ_OK) {
        cusz_test::demand(status == CUSZ_ERROR_PARAMETER, "the only reason to refuse is a parameter");
        return;
    }
    cusz_test::demand(bytes <= capacity, "the size");
    params.threads = 4 - params.threads;
    cusz_test::demand(
        cusz_compress(context, &params, dtype, ndim, shape, x.data(), again.get(), capacity, &bytes_again) == CUSZ_OK,
        "the same again");
    cusz_test::demand(bytes == bytes_again && std::memcmp(archive.get(), again.get(), bytes) == 0,
                      "the same bytes again");

    cusz_info info{};
    info.struct_bytes = sizeof info;
    cusz_test::demand(cusz_inspect(context, archive.get(), bytes, &info) == CUSZ_OK, "inspect");
    cusz_test::demand(cusz_decompress(context, archive.get(), bytes, CUSZ_BACKEND_CPU, 1, y.data(), n * sizeof(T)) ==
                          CUSZ_OK,
                      "decompress");
    double bound = params.eb;
    if (params.mode == CUSZ_REL) {
        double low = 0, high = 0;
        cusz_test::demand(cusz_value_range(context, dtype, n, x.data(), params.has_fill, params.fill, 1, &low, &high,
                                           nullptr) == CUSZ_OK,
                          "value range");
        bound = cusz_absolute_bound(params.eb, low, high);
    }
    if (info.kind == CUSZ_KIND_RAW) bound = 0; // raw archives are lossless
    cusz_test::demand_bound(x.data(), y.data(), n, bound, params.has_fill != 0, params.fill);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static cusz_context* const context = cusz_create();
    Input input{data, size};
    cusz_params params;
    cusz_params_init(&params);
    const auto options = input.take<std::uint8_t>();
    const bool f64 = (options & 1) != 0;
    params.mode = (options & 2) != 0 ? CUSZ_REL : CUSZ_ABS;
    params.has_fill = (options & 4) != 0;
    params.lossless = (options & 8) != 0 && cusz_has_lossless(CUSZ_LOSSLESS_ZSTD) ? CUSZ_LOSSLESS_ZSTD : 0;
    params.threads = 1 + (options >> 4) % 3;
    const auto coding = input.take<std::uint8_t>();
    params.bins = 64 << coding % 8;
    params.predictor = coding / 8 % 3;
    params.eb = input.take<double>();
    params.fill = input.take<double>();
    const std::int32_t ndim = 1 + input.take<std::uint8_t>() % 4;
    std::uint64_t shape[CUSZ_MAX_NDIM] = {}, values = 1;
    for (std::int32_t i = 0; i < ndim; ++i) {
        shape[i] = input.take<std::uint16_t>() % 4200;
        if (values * shape[i] > 40000) shape[i] = shape[i] % 9;
        values = std::max<std::uint64_t>(values * shape[i], 1);
        if (values > 200000) return 0;
    }
    if (f64)
        round_trip<double>(context, input, params, shape, ndim);
    else
        round_trip<float>(context, input, params, shape, ndim);
    return 0;
}
