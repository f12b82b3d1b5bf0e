// The HDF5 filter: each chunk of a dataset is an archive (hdf5.md). HDF5 finds this library through HDF5_PLUGIN_PATH.
#include <cusz/cusz.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "chunk.hpp"
#include "decoded.hpp"
#include "hdf5.hpp"
#include "host.hpp"

namespace cusz_hdf5 {
namespace {

// From the range that the HDF Group leaves for tests, 256 to 511, until it registers a number.
constexpr H5Z_filter_t filter_id = 453;

// A context with its scratch memory. One is kept for the next chunk; in most builds, HDF5 calls filters one at a time.
// Nothing is freed when the process ends, because HDF5 may still write chunks then.
class Context {
public:
    Context() : m_context(kept.exchange(nullptr)) {
        if (m_context == nullptr) m_context = cusz_create();
        if (m_context == nullptr) throw std::bad_alloc();
    }
    ~Context() { cusz_destroy(kept.exchange(m_context)); }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    cusz_context* get() const noexcept { return m_context; }

    void require(cusz_status status) const {
        if (status != CUSZ_OK) throw std::runtime_error(cusz_last_error(m_context));
    }

private:
    static inline std::atomic<cusz_context*> kept = nullptr;
    cusz_context* m_context;
};

void require(bool holds, const char* message) {
    if (!holds) throw std::runtime_error(message);
}

// ---- When a dataset is created

// The values that the user gave, and the filter's flags. It has to be the first filter: one before it, such as shuffle,
// would hand it bytes that are no longer values, and the bound would apply to those.
std::vector<unsigned> given_values(const Host& host, hid_t dcpl, unsigned& flags) {
    auto* const get_filter = host.function<H5Pget_filter2_t>("H5Pget_filter2");
    std::vector<unsigned> values(n_values);
    std::size_t n = values.size();
    unsigned config = 0;
    const H5Z_filter_t first = get_filter(dcpl, 0, &flags, &n, values.data(), 0, nullptr, &config);
    if (first != filter_id) {
        throw std::runtime_error("filter " + std::to_string(first) +
                                 " comes first; cusz compresses values, so no other " +
                                 "filter (such as shuffle) may come before it");
    }
    require(n <= n_values, "the filter has too many parameters; legal: 3 to 5, or 13 with a fill value");
    values.resize(n);
    return values;
}

// Looks at the properties of the type. It cannot be compared with H5T_IEEE_F32LE: such identifiers are variables, and a
// program that uses them has a copy of them, which HDF5 uses instead of its own.
cusz_dtype dtype_of(const Host& host, hid_t type) {
    const int type_class = host.function<H5Tget_class_t>("H5Tget_class")(type);
    const int order = host.function<H5Tget_order_t>("H5Tget_order")(type);
    if (type_class == class_float && order == order_little_endian) {
        std::array<std::size_t, 5> fields{}; // sign, exponent and its bits, mantissa and its bits
        auto& [sign, exponent, exponent_bits, mantissa, mantissa_bits] = fields;
        host.function<H5Tget_fields_t>("H5Tget_fields")(type, &sign, &exponent, &exponent_bits, &mantissa,
                                                        &mantissa_bits);
        const std::size_t size = host.function<H5Tget_size_t>("H5Tget_size")(type);
        const std::size_t bias = host.function<H5Tget_ebias_t>("H5Tget_ebias")(type);
        if (size == 4 && bias == 127 && fields == std::array<std::size_t, 5>{31, 23, 8, 0, 23}) return CUSZ_F32;
        if (size == 8 && bias == 1023 && fields == std::array<std::size_t, 5>{63, 52, 11, 0, 52}) return CUSZ_F64;
    }
    throw std::runtime_error("the dataset has another type than those that are compressed: 32-bit and 64-bit "
                             "little-endian IEEE floats (H5T_IEEE_F32LE, H5T_IEEE_F64LE)");
}

Shape chunk_shape(const Host& host, hid_t dcpl) {
    std::array<hsize_t, max_rank> extents{};
    const int rank = host.function<H5Pget_chunk_t>("H5Pget_chunk")(dcpl, max_rank, extents.data());
    require(rank > 0 && rank <= max_rank, "the dataset has no chunks");
    std::array<std::uint64_t, max_rank> same{};
    std::copy(extents.begin(), extents.end(), same.begin());
    return folded(std::span(same).first(static_cast<std::size_t>(rank)));
}

void warn_once(std::atomic<bool>& has_warned, const char* message) {
    if (!has_warned.exchange(true)) std::fputs(message, stderr);
}

// HDF5 shows its errors only where a call fails.
void warn_of_fill_values_that_are_unknown() {
    static std::atomic<bool> has_warned = false;
    warn_once(has_warned,
              "cusz (HDF5 filter): a dataset is created without fill value and filling, as nccopy does whatever "
              "_FillValue says: values that stand for missing ones come back within the bound, and are no longer "
              "masked. Give the fill value with the filter's parameters (docs/guides/hdf5.md, Fill values)\n");
}

// A fill value that the user chose stands for "no data"; so does one among the parameters, for a dataset that has none:
// the netCDF library tells HDF5 of _FillValue only if the dataset is to be filled. NaN is kept in any case.
void set_fill(const Host& host, hid_t dcpl, hid_t type, cusz_dtype dtype, bool is_told, cusz_params& params) {
    int status = 0, time = 0;
    require(host.function<H5Pfill_value_defined_t>("H5Pfill_value_defined")(dcpl, &status) >= 0,
            "the fill value cannot be read");
    if (status != fill_value_user_defined) {
        require(host.function<H5Pget_fill_time_t>("H5Pget_fill_time")(dcpl, &time) >= 0,
                "the fill time cannot be read");
        if (time == fill_time_never && !is_told) warn_of_fill_values_that_are_unknown();
        return;
    }
    auto* const get_fill_value = host.function<H5Pget_fill_value_t>("H5Pget_fill_value");
    float single = 0;
    double fill = 0;
    void* const value = dtype == CUSZ_F32 ? static_cast<void*>(&single) : &fill;
    require(get_fill_value(dcpl, type, value) >= 0, "the fill value cannot be read");
    if (dtype == CUSZ_F32) fill = single;
    if (std::isnan(fill)) return;
    params.has_fill = 1;
    params.fill = fill;
}

void set_values(const Host& host, hid_t dcpl, hid_t type) {
    unsigned flags = 0;
    const std::vector<unsigned> given = given_values(host, dcpl, flags);
    cusz_params params = params_of(given);
    const cusz_dtype dtype = dtype_of(host, type);
    set_fill(host, dcpl, type, dtype, given.size() == n_values, params);
    if (dtype == CUSZ_F32) params.fill = static_cast<float>(params.fill); // the value that is meant
    const Values values = packed(params, dtype, chunk_shape(host, dcpl));
    const Chunk chunk = unpacked(values); // a chunk whose size overflows is refused

    // The library checks the parameters before anything else, even for an empty field.
    const Context context;
    const std::uint64_t none = 0;
    std::array<std::byte, CUSZ_RAW_OVERHEAD_BYTES> archive;
    std::size_t archive_bytes = 0;
    context.require(cusz_compress(context.get(), &chunk.params, dtype, 1, &none, nullptr, archive.data(),
                                  archive.size(), &archive_bytes));
    require(host.function<H5Pmodify_filter_t>("H5Pmodify_filter")(dcpl, filter_id, flags, values.size(),
                                                                  values.data()) >= 0,
            "HDF5 does not take the filter's parameters");
}

herr_t set_local(hid_t dcpl, hid_t type, hid_t) noexcept {
    const Host host(__builtin_return_address(0));
    try {
        set_values(host, dcpl, type);
        return 0;
    } catch (const std::exception& error) {
        host.report(error.what());
        return -1;
    }
}

// ---- For every chunk

// What HDF5 hands over and gets back: *memory is freed and replaced.
struct Buffer {
    void** memory;
    std::size_t* capacity;
    std::size_t bytes; // in use
};

void replace(const Host& host, const Buffer& buffer, Host::Memory memory, std::size_t capacity) {
    host.deleter()(*buffer.memory);
    *buffer.memory = memory.release();
    *buffer.capacity = capacity;
}

std::span<const std::byte> values_of(const void* memory, const Chunk& chunk) {
    return {static_cast<const std::byte*>(memory), chunk.bytes};
}

void warn_of_losses_that_add_up(const Chunk& chunk, const void* memory) {
    static std::atomic<bool> has_warned = false;
    const cusz_params& params = chunk.params;
    const bool is_stable = params.eb == 0 || (params.mode == CUSZ_ABS && params.predictor == CUSZ_PREDICTOR_LORENZO);
    if (is_stable || has_warned || !was_decoded(values_of(memory, chunk))) return;
    warn_once(has_warned,
              "cusz (HDF5 filter): values that were decompressed are compressed again, as where a chunk is written in "
              "parts: errors add up beyond the bound. Write whole chunks, or use mode abs with predictor lorenzo "
              "(docs/guides/hdf5.md, Data that grow within chunks)\n");
}

std::size_t compress(const Host& host, const Chunk& chunk, const Buffer& buffer) {
    require(buffer.bytes == chunk.bytes, "what HDF5 hands over is not a chunk of values");
    warn_of_losses_that_add_up(chunk, *buffer.memory);
    const Context context;
    const std::size_t capacity = chunk.bytes + CUSZ_RAW_OVERHEAD_BYTES;
    Host::Memory archive = host.allocate(capacity);
    std::size_t archive_bytes = 0;
    context.require(cusz_compress(context.get(), &chunk.params, chunk.dtype, chunk.shape.ndim,
                                  chunk.shape.extents.data(), *buffer.memory, archive.get(), capacity, &archive_bytes));
    replace(host, buffer, std::move(archive), capacity);
    return archive_bytes;
}

std::size_t decompress(const Host& host, const Chunk& chunk, const Buffer& buffer) {
    const Context context;
    cusz_info info{};
    info.struct_bytes = sizeof info;
    context.require(cusz_inspect(context.get(), *buffer.memory, buffer.bytes, &info));
    const Shape shape = folded(std::span(info.shape).first(static_cast<std::size_t>(info.ndim)));
    require(info.dtype == chunk.dtype && shape == chunk.shape && info.raw_bytes == chunk.bytes,
            "the chunk holds an archive of another type or shape than the dataset's chunks");
    Host::Memory field = host.allocate(chunk.bytes);
    context.require(cusz_decompress(context.get(), *buffer.memory, buffer.bytes, CUSZ_BACKEND_CPU, chunk.params.threads,
                                    field.get(), chunk.bytes));
    if (info.eb_abs != 0) remember_decoded(values_of(field.get(), chunk)); // else the values are exact
    replace(host, buffer, std::move(field), chunk.bytes);
    return chunk.bytes;
}

// Returns the number of bytes that *memory then holds; 0, a failure, leaves everything as it was.
std::size_t filter(unsigned flags, std::size_t cd_nelmts, const unsigned* cd_values, std::size_t nbytes,
                   std::size_t* capacity, void** memory) noexcept {
    const Host host(__builtin_return_address(0));
    try {
        const Chunk chunk = unpacked({cd_values, cd_nelmts});
        const Buffer buffer{memory, capacity, nbytes};
        return (flags & flag_reverse) != 0 ? decompress(host, chunk, buffer) : compress(host, chunk, buffer);
    } catch (const std::exception& error) {
        host.report(error.what());
        return 0;
    }
}

const H5Z_class2_t filter_class = {
    class_version, filter_id, 1, 1, "cusz (error-bounded lossy)", nullptr, set_local, filter,
};

} // namespace
} // namespace cusz_hdf5

// What HDF5 looks for in a plugin.
extern "C" CUSZ_API int H5PLget_plugin_type(void) { return cusz_hdf5::plugin_type_filter; }
extern "C" CUSZ_API const void* H5PLget_plugin_info(void) { return &cusz_hdf5::filter_class; }
