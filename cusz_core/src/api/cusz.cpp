// The C interface: checks its arguments, holds the context, maps exceptions to statuses.
#include <cusz/cusz.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "archive/frame.hpp"
#include "archive/framing.hpp"
#include "archive/lossless.hpp"
#include "archive/packing.hpp"
#include "codec/backend.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/device_backend.hpp"
#include "context.hpp"
#include "errors.hpp"
#include "goal.hpp"
#include "levels.hpp"
#include "parameter_table.hpp"
#include "params.hpp"
#include "pointwise.hpp"

#ifndef CUSZ_VERSION
#error "CUSZ_VERSION comes from the build"
#endif

namespace {

using namespace cusz;

// Copies text for a caller, truncated to fit.
void put(char* to, std::size_t bytes, const std::string& text) {
    if (to == nullptr || bytes == 0) return;
    const std::size_t length = std::min(text.size(), bytes - 1);
    std::memcpy(to, text.data(), length);
    to[length] = 0;
}

// Copies a structure to a caller whose own has struct_bytes bytes: as much as fits, then 0 for members that this
// library does not know.
template <class Struct>
void put(Struct* to, std::size_t struct_bytes, const Struct& from) {
    const std::size_t fitting = std::min(struct_bytes, sizeof from);
    auto* const bytes = reinterpret_cast<std::byte*>(to);
    std::memcpy(bytes, &from, fitting);
    std::fill(bytes + fitting, bytes + struct_bytes, std::byte{0});
}

// Where memory resides, for a call with this backend. Queried once per call, because CUDA may answer differently after
// a device failure. Throws DEVICE if CUDA cannot tell, unless the call uses only the CPU.
int place_of(const void* pointer, const char* name, std::int32_t wanted) {
    const int device = cuda::device_of(pointer);
    if (device == cuda::unknown && wanted != CUSZ_BACKEND_CPU)
        fail(CUSZ_ERROR_DEVICE, "CUDA does not say where ", name,
             " lies, as after a device has failed; host memory can be used with backend cpu");
    return device == cuda::unknown ? host : device;
}
Source source(const void* pointer, const char* name, std::int32_t wanted = CUSZ_BACKEND_AUTO) {
    return {pointer, place_of(pointer, name, wanted), name};
}
Target target(void* pointer, const char* name, std::int32_t wanted = CUSZ_BACKEND_AUTO) {
    return {pointer, place_of(pointer, name, wanted), name};
}

// The backend for a call with this memory (cusz.h, cusz_backend).
Backend& backend_for(cusz_context& context, std::int32_t wanted, std::initializer_list<Source> all) {
    Source on;
    for (const Source& memory : all) {
        if (!memory.on_device()) continue;
        if (on.on_device() && memory.device != on.device)
            fail(CUSZ_ERROR_PARAMETER, on.name, " lies on CUDA device ", on.device, ", ", memory.name, " on device ",
                 memory.device, ": copy one of them");
        on = memory;
    }
    if (on.on_device() && wanted == CUSZ_BACKEND_CPU)
        fail(CUSZ_ERROR_PARAMETER, on.name, " lies on CUDA device ", on.device,
             ", and backend cpu takes host memory: use auto or cuda, or copy it");
    if (!on.on_device() && wanted != CUSZ_BACKEND_CUDA) return *context.cpu;
    return backend_on(context, on.device);
}

// The workers of a call on a field of this size.
Workers workers_for(cusz_context& context, std::int32_t wanted, std::int32_t threads, const Layout& layout,
                    std::initializer_list<Source> all) {
    const int n = resolve_threads(threads, layout.bytes());
    return {backend_for(context, wanted, all), *context.cpu, context.scratch, n};
}

// Parses an archive, wherever it resides. One of logarithms or of the spline codec is read on the host: if it is on a
// device, it is copied, and `archive` is the copy.
Frame parse(cusz_context& context, Source& archive, std::size_t archive_bytes) {
    if (!archive.on_device()) return cusz::parse(archive.pointer, archive.pointer, archive_bytes);
    Backend& backend = backend_on(context, archive.device);
    std::vector<std::byte> header(std::min(archive_bytes, max_front_bytes()));
    backend.copy(header.data(), archive.pointer, header.size());
    Frame frame = cusz::parse(header.data(), archive.pointer, archive_bytes);
    if (!frame.has_logs && (frame.codec == nullptr || !frame.codec->is_compact)) return frame;
    void* const copy = context.scratch.inner.reserve(archive_bytes);
    backend.copy(copy, archive.pointer, archive_bytes);
    archive = {copy, host, archive.name};
    return cusz::parse(copy, copy, archive_bytes);
}

// The workers for the values of a packed block.
Workers workers_for_packing(cusz_context& context, const Source& values) {
    return {backend_for(context, CUSZ_BACKEND_AUTO, {values}), *context.cpu, context.scratch, 1};
}

const std::byte* packed(const void* block, std::size_t block_bytes) {
    need(block, "block");
    const auto* const bytes = static_cast<const std::byte*>(block);
    if (!is_packed(bytes, block_bytes)) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: not a packed block");
    return bytes;
}

// A box of an array of this shape, without its memory.
Selection selection(std::int32_t ndim, const std::uint64_t* shape, const std::uint64_t* start,
                    const std::uint64_t* count, const std::uint64_t* stride) {
    Selection box{.start = {}, .count = {}, .stride = {}, .field = nullptr};
    for (std::size_t d = 0; d < static_cast<std::size_t>(ndim); ++d) {
        if (start[d] > shape[d] || count[d] > shape[d] - start[d])
            fail(CUSZ_ERROR_PARAMETER, "the box begins at ", start[d], " along dimension ", d, " and has ", count[d],
                 " values there; the field has ", shape[d]);
        box.start[d] = start[d];
        box.count[d] = count[d];
        box.stride[d] = stride[d];
    }
    return box;
}

Source body_of(const Frame& frame, const Source& archive) { return {frame.body, archive.device, archive.name}; }

} // namespace

const char* cusz_version(void) { return CUSZ_VERSION; }

const char* cusz_status_name(cusz_status status) {
    switch (status) {
    case CUSZ_OK: return "ok";
    case CUSZ_ERROR_PARAMETER: return "bad parameter";
    case CUSZ_ERROR_UNSUPPORTED: return "unsupported type or layout";
    case CUSZ_ERROR_CORRUPT: return "corrupt archive";
    case CUSZ_ERROR_TOO_NEW: return "archive too new";
    case CUSZ_ERROR_DEVICE: return "device failure";
    case CUSZ_ERROR_MEMORY: return "out of memory";
    case CUSZ_ERROR_INTERNAL: return "internal error";
    }
    return "unknown status";
}

const char* cusz_predictor_name(int32_t predictor) {
    return predictor == CUSZ_NO_STAGE ? "none" : predictor_name(predictor);
}

const char* cusz_coder_name(int32_t coder) {
    if (coder == CUSZ_NO_STAGE) return "none";
    return coder == CUSZ_CODER_HUFFMAN ? "huffman" : coder == CUSZ_CODER_RANS ? "rans" : nullptr;
}

int32_t cusz_default_threads(void) { return default_threads(); }

const char* cusz_instruction_set(void) { return cpu::kernels().name; }

int32_t cusz_has_backend(cusz_backend backend) {
#ifdef CUSZ_HAVE_CUDA
    if (backend == CUSZ_BACKEND_CUDA) return 1;
#endif
    return backend == CUSZ_BACKEND_AUTO || backend == CUSZ_BACKEND_CPU;
}

int32_t cusz_has_lossless(cusz_lossless stage) {
    return stage == CUSZ_LOSSLESS_NONE || (stage == CUSZ_LOSSLESS_ZSTD && have_zstd());
}

cusz_context* cusz_create(void) {
    if (!prepare_to_throw()) return nullptr;
    try {
        return std::make_unique<cusz_context>().release();
    } catch (...) {
        return nullptr;
    }
}

void cusz_destroy(cusz_context* context) { const std::unique_ptr<cusz_context> owned(context); }

const char* cusz_last_error(const cusz_context* context) {
    return context != nullptr ? context->error.c_str() : "context is NULL";
}

size_t cusz_scratch_bytes(const cusz_context* context) {
    if (context == nullptr) return 0;
    std::size_t bytes = context->cpu->scratch_bytes() + (context->cuda ? context->cuda->scratch_bytes() : 0) +
                        context->scratch.bytes() + context->staging.bytes();
    for (const auto& helper : context->helpers) bytes += cusz_scratch_bytes(helper.get());
    return bytes;
}

void cusz_release_scratch(cusz_context* context) {
    if (context == nullptr) return;
    context->helpers.clear();
    context->staging.release();
    context->cpu->release_scratch();
    if (context->cuda) context->cuda->release_scratch();
    context->scratch.release();
}

cusz_status cusz_set_stream(cusz_context* context, void* stream) {
    return guarded(context, [&] {
        need(context, "context");
        context->stream = stream;
        if (context->cuda) context->cuda->set_stream(stream);
    });
}

cusz_status cusz_set_allocator(cusz_context* context, const cusz_allocator* allocator) {
    return guarded(context, [&] {
        need(context, "context");
        if (allocator != nullptr && (allocator->allocate == nullptr || allocator->release == nullptr))
            fail(CUSZ_ERROR_PARAMETER, "an allocator needs both of its functions");
        context->allocator = allocator != nullptr ? *allocator : cusz_allocator{};
        if (context->cuda) context->cuda->set_allocator(allocator);
    });
}

int32_t cusz_device_count(const char** reason) { return cuda::device_count(reason); }

cusz_status cusz_device_name(int32_t device, char* name, size_t name_bytes) {
    return guarded(nullptr, [&] {
        need(name, "name");
        if (name_bytes == 0) fail(CUSZ_ERROR_PARAMETER, "name_bytes is 0");
        put(name, name_bytes, cuda::device_name(device));
    });
}

int32_t cusz_device_of(const void* pointer) { return cuda::device_of(pointer); }

void cusz_params_init_sized(cusz_params* params, size_t struct_bytes) {
    if (params == nullptr) return;
    cusz_params defaults = default_params();
    defaults.struct_bytes = static_cast<std::uint32_t>(struct_bytes);
    put(params, struct_bytes, defaults);
}

// In parentheses: the function, not the macro.
void(cusz_params_init)(cusz_params* params) { cusz_params_init_sized(params, first_params_bytes); }

const cusz_parameter* cusz_parameter_at(int32_t number) { return parameter_at(number); }

cusz_status cusz_params_set(cusz_params* params, const char* key, const char* value, char* message,
                            size_t message_bytes) {
    std::string text;
    const cusz_status status = reported(&text, [&] {
        need(params, "params");
        need(key, "key");
        need(value, "value");
        cusz_params all = known_members(*params);
        set_parameter(all, key, value, params->struct_bytes);
        const std::size_t struct_bytes = params->struct_bytes;
        all.struct_bytes = params->struct_bytes;
        put(params, struct_bytes, all);
    });
    put(message, message_bytes, text);
    return status;
}

cusz_status cusz_max_archive_bytes(cusz_dtype dtype, int32_t ndim, const uint64_t* shape, size_t* max_bytes) {
    return guarded(nullptr, [&] {
        need(max_bytes, "max_bytes");
        *max_bytes = static_cast<std::size_t>(Layout(dtype, ndim, shape).bytes()) + raw_header_bytes;
    });
}

double cusz_absolute_bound(double rel, double min, double max) {
    const FloatMode mode;
    return absolute_bound(rel, min, max);
}

cusz_status cusz_value_range(cusz_context* context, cusz_dtype dtype, uint64_t count, const void* field,
                             int32_t has_fill, double fill, int32_t threads, double* min, double* max,
                             uint64_t* n_valid) {
    return guarded(context, [&] {
        need(context, "context");
        need(min, "min");
        need(max, "max");
        const Layout layout(dtype, 1, &count);
        if (layout.values > 0) need(field, "field");
        const Source from = source(field, "field");
        const Workers workers = workers_for(*context, CUSZ_BACKEND_AUTO, threads, layout, {from});
        const ValueRange range = workers.backend.value_range(
            dtype, count, from, special_pattern(dtype, has_fill != 0, fill), workers.threads);
        *min = range.min;
        *max = range.max;
        if (n_valid != nullptr) *n_valid = range.n_valid;
    });
}

namespace {

// cusz_inspect, whose info is not null.
void describe(cusz_context* context, const void* archive, std::size_t archive_bytes, cusz_info* info) {
    const std::size_t struct_bytes = info->struct_bytes;
    check_struct_bytes("info", struct_bytes, first_info_bytes, "set it to sizeof(cusz_info)");
    // Without a context, the archive is assumed to be in host memory if CUDA cannot tell.
    Source from = source(archive, "archive", context != nullptr ? CUSZ_BACKEND_AUTO : CUSZ_BACKEND_CPU);
    if (from.on_device()) need(context, "context");
    const Frame outer =
        from.on_device() ? parse(*context, from, archive_bytes) : cusz::parse(archive, archive, archive_bytes);
    const Frame frame = outer.has_logs ? parse_logs(outer) : outer;
    const Layout& layout = outer.layout;
    cusz_info i{};
    i.struct_bytes = static_cast<std::uint32_t>(std::min(struct_bytes, sizeof i));
    i.version = static_cast<std::int32_t>(outer.version);
    i.kind = frame.kind;
    i.dtype = layout.dtype;
    i.ndim = layout.ndim;
    i.checksum = outer.payload_checksum;
    for (std::size_t d = 0; d < CUSZ_MAX_NDIM; ++d) i.shape[d] = layout.shape[d];
    i.raw_bytes = layout.bytes();
    i.archive_bytes = archive_bytes;
    i.header_bytes = frame.header_bytes;
    if (outer.has_logs) i.header_bytes += archive_bytes - static_cast<std::size_t>(outer.logs.archive_bytes);
    i.payload_bytes = i.raw_bytes;
    i.predictor = i.coder = i.coarse = CUSZ_NO_STAGE;
    if (frame.kind == CUSZ_KIND_TILED) {
        const Coding& c = frame.coding;
        i.mode = c.mode;
        i.predictor = frame.codec->predictor;
        i.coder = frame.codec->coder;
        if (frame.codec->is_compact && !frame.is_constant)
            i.coarse = static_cast<std::int32_t>(c.interpolation.bounds) + CUSZ_COARSE_SAME;
        i.lossless = c.lossless;
        i.bins = 2 << c.r;
        i.has_fill = c.has_fill;
        i.eb = c.eb;
        i.eb_abs = c.eb_abs;
        i.step = c.step;
        i.fill = c.has_fill ? value_of(layout.dtype, c.special) : 0;
        i.codebook_bytes = frame.model.size();
        const TileGrid tiles = frame.is_constant ? TileGrid{} : frame.codec->tiles(frame.layout, c);
        i.n_tiles = tiles.n;
        std::copy(std::begin(tiles.shape), std::end(tiles.shape), i.tile_shape);
        i.index_bytes = tiles.index_bytes;
        i.payload_bytes = c.body_bytes - i.index_bytes - (frame.codec->is_compact ? frame.header_bytes : 0);
        i.n_special = c.n_special;
        i.n_out_of_range = c.n_out_of_range;
        i.n_unpredictable = c.n_unpredictable;
    }
    if (outer.has_logs) {
        i.mode = CUSZ_PW_REL;
        i.eb = outer.logs.eb;
        i.eb_abs = i.step = std::numeric_limits<double>::quiet_NaN(); // every value has its own
        i.has_fill = outer.logs.has_fill;
        i.fill = outer.logs.has_fill ? value_of(layout.dtype, outer.logs.special) : 0;
    }
    put(info, struct_bytes, i);
}

// cusz_compress without its result. range: if not null, gets the field's value range.
std::size_t compress(cusz_context* context, const cusz_params* given, cusz_dtype dtype, int32_t ndim,
                     const uint64_t* shape, const void* field, void* archive, size_t archive_capacity,
                     std::optional<ValueRange>* range) {
    need(context, "context");
    need(given, "params");
    need(archive, "archive");
    const cusz_params params = checked(*given);
    const Layout layout(dtype, ndim, shape);
    if (layout.values > 0) need(field, "field");
    const std::uint64_t needed = layout.bytes() + raw_header_bytes;
    if (archive_capacity < needed)
        fail(CUSZ_ERROR_PARAMETER, "archive_capacity is ", archive_capacity, " bytes; this field needs ", needed,
             " (cusz_max_archive_bytes)");
    const Source from = source(field, "field", params.backend);
    const Target to = target(archive, "archive", params.backend);
    Workers workers = workers_for(*context, params.backend, params.threads, layout, {from, to});
    if (params.lossless != CUSZ_LOSSLESS_NONE && to.on_device())
        fail(CUSZ_ERROR_UNSUPPORTED, "the lossless stage runs on the CPU: it needs an archive in host memory");

    const Coding coding = coding_of(params, dtype);
    const auto write = coding.mode == CUSZ_PW_REL                              ? write_pointwise
                       : coding.mode == CUSZ_PSNR || coding.mode == CUSZ_RATIO ? write_for_goal
                                                                               : write_archive;
    const bool in_passing = coding.mode == CUSZ_ABS || coding.mode == CUSZ_REL; // other modes code other values, too
    if (in_passing) workers.range = range;
    const std::size_t bytes = write(workers, layout, coding, from, to);
    if (range != nullptr && !*range)
        *range = workers.backend.value_range(dtype, layout.values, from, coding.special, workers.threads);
    return bytes;
}

} // namespace

cusz_status cusz_compress(cusz_context* context, const cusz_params* params, cusz_dtype dtype, int32_t ndim,
                          const uint64_t* shape, const void* field, void* archive, size_t archive_capacity,
                          size_t* archive_bytes) {
    return guarded(context, [&] {
        need(archive_bytes, "archive_bytes");
        *archive_bytes = compress(context, params, dtype, ndim, shape, field, archive, archive_capacity, nullptr);
    });
}

cusz_status cusz_compress_and_describe(cusz_context* context, const cusz_params* params, cusz_dtype dtype, int32_t ndim,
                                       const uint64_t* shape, const void* field, void* archive, size_t archive_capacity,
                                       cusz_info* info, double* min, double* max, uint64_t* n_valid) {
    return guarded(context, [&] {
        need(info, "info");
        check_struct_bytes("info", info->struct_bytes, first_info_bytes, "set it to sizeof(cusz_info)");
        if ((min == nullptr) != (max == nullptr)) fail(CUSZ_ERROR_PARAMETER, "only one of min and max is NULL");
        std::optional<ValueRange> range;
        const std::size_t bytes = compress(context, params, dtype, ndim, shape, field, archive, archive_capacity,
                                           min != nullptr ? &range : nullptr);
        describe(context, archive, bytes, info);
        if (!range) return;
        *min = range->min;
        *max = range->max;
        if (n_valid != nullptr) *n_valid = range->n_valid;
    });
}

cusz_status cusz_inspect(cusz_context* context, const void* archive, size_t archive_bytes, cusz_info* info) {
    return guarded(context, [&] {
        need(info, "info");
        describe(context, archive, archive_bytes, info);
    });
}

cusz_status cusz_check(cusz_context* context, const void* archive, size_t archive_bytes, int32_t threads) {
    return guarded(context, [&] {
        need(context, "context");
        Source from = source(archive, "archive");
        const Frame frame = parse(*context, from, archive_bytes);
        read_any_archive(workers_for(*context, CUSZ_BACKEND_AUTO, threads, frame.layout, {from}), frame,
                         body_of(frame, from), {});
    });
}

cusz_status cusz_decompress(cusz_context* context, const void* archive, size_t archive_bytes, cusz_backend backend,
                            int32_t threads, void* field, size_t field_bytes) {
    return guarded(context, [&] {
        need(context, "context");
        if (backend < CUSZ_BACKEND_AUTO || backend > CUSZ_BACKEND_CUDA)
            fail(CUSZ_ERROR_PARAMETER, "backend is ", static_cast<int>(backend), "; legal: 0 to 2");
        const Source given = source(archive, "archive", backend);
        if (backend == CUSZ_BACKEND_CPU) backend_for(*context, backend, {given}); // refuses device memory
        Source from = given;
        const Frame frame = parse(*context, from, archive_bytes);
        if (field_bytes != frame.layout.bytes())
            fail(CUSZ_ERROR_PARAMETER, "field_bytes is ", field_bytes, "; the archive's field takes ",
                 frame.layout.bytes());
        if (field_bytes > 0) need(field, "field");
        const Target to = target(field, "field", backend);
        backend_for(*context, backend, {given, to}); // refuses different devices
        const Workers workers = workers_for(*context, backend, threads, frame.layout, {from, to});
        read_any_archive(workers, frame, body_of(frame, from), to);
    });
}

cusz_status cusz_decompress_box(cusz_context* context, const void* archive, size_t archive_bytes, int32_t threads,
                                const uint64_t* start, const uint64_t* count, const uint64_t* stride, void* field) {
    return guarded(context, [&] {
        need(context, "context");
        need(start, "start");
        need(count, "count");
        need(stride, "stride");
        const Source from = source(archive, "archive", CUSZ_BACKEND_CPU);
        const Target to = target(field, "field", CUSZ_BACKEND_CPU);
        backend_for(*context, CUSZ_BACKEND_CPU, {from, to});
        const Frame frame = cusz::parse(archive, archive, archive_bytes);
        Selection box = selection(frame.layout.ndim, frame.layout.shape.data(), start, count, stride);
        box.field = field;
        std::uint64_t values = 1;
        for (std::size_t d = 0; d < static_cast<std::size_t>(frame.layout.ndim); ++d) values *= count[d];
        const Workers workers = workers_for(*context, CUSZ_BACKEND_CPU, threads, frame.layout, {});
        if (values == 0) return read_any_archive(workers, frame, body_of(frame, from), {});
        need(field, "field");
        read_any_box(workers, frame, box);
    });
}

namespace {

void put_level(cusz_level* info, const LevelOfArchive& found, std::int32_t dtype) {
    const std::size_t struct_bytes = info->struct_bytes;
    cusz_level level{};
    level.struct_bytes = static_cast<std::uint32_t>(std::min(struct_bytes, sizeof level));
    level.n_levels = static_cast<std::int32_t>(found.n_levels);
    level.exact_cost = found.is_exact;
    level.dtype = dtype;
    level.ndim = found.layout.ndim;
    std::ranges::copy(found.level.shape, level.shape);
    std::ranges::copy(found.level.step, level.step);
    level.needed_bytes = found.needed_bytes;
    level.checksum = found.checksum;
    put(info, struct_bytes, level);
}

void check_level_info(const cusz_level* info) {
    need(info, "info");
    check_struct_bytes("info", info->struct_bytes, first_level_bytes, "set it to sizeof(cusz_level)");
}

// The first bytes of an archive, on the host; copied there from a device.
Prefix prefix_of(cusz_context& context, const void* pointer, std::size_t bytes, std::size_t archive_bytes) {
    need(pointer, "prefix");
    const Source from = source(pointer, "prefix");
    if (!from.on_device()) return {from.bytes(), bytes, archive_bytes};
    auto* const copy = context.scratch.inner.reserve<std::byte>(bytes);
    backend_on(context, from.device).copy(copy, from.pointer, bytes);
    return {copy, bytes, archive_bytes};
}

} // namespace

cusz_status cusz_level_of_shape(int32_t ndim, const uint64_t* shape, int32_t level, cusz_level* info) {
    return guarded(nullptr, [&] {
        check_level_info(info);
        const Layout layout(CUSZ_F64, ndim, shape);
        const Level found = level_of(layout, checked_level(layout, level));
        put_level(info, {layout, n_levels(layout), found, false, 0, 0}, 0);
    });
}

cusz_status cusz_inspect_level(cusz_context* context, const void* prefix, size_t prefix_bytes, size_t archive_bytes,
                               int32_t level, cusz_level* info) {
    return guarded(context, [&] {
        need(context, "context");
        check_level_info(info);
        const LevelOfArchive found = inspect_level(prefix_of(*context, prefix, prefix_bytes, archive_bytes), level);
        put_level(info, found, found.layout.dtype);
    });
}

cusz_status cusz_decompress_level(cusz_context* context, const void* prefix, size_t prefix_bytes, size_t archive_bytes,
                                  int32_t level, int32_t threads, const uint64_t* start, const uint64_t* count,
                                  const uint64_t* stride, void* field) {
    return guarded(context, [&] {
        need(context, "context");
        need(start, "start");
        need(count, "count");
        need(stride, "stride");
        const Prefix from = prefix_of(*context, prefix, prefix_bytes, archive_bytes);
        const LevelOfArchive found = inspect_level(from, level);
        Selection box = selection(found.layout.ndim, found.level.shape.data(), start, count, stride);
        std::uint64_t values = 1;
        bool is_dense = true;
        for (auto d = static_cast<std::size_t>(found.layout.ndim); d-- > 0; values *= box.count[d])
            is_dense = is_dense && (box.count[d] <= 1 || box.stride[d] == values);
        const int n = resolve_threads(threads, values * found.layout.value_bytes());
        const Workers workers{*context->cpu, *context->cpu, context->scratch, n};
        if (values > 0) need(field, "field");
        const Target to = values > 0 ? target(field, "field") : Target{};
        box.field = to.pointer;
        if (!to.on_device()) return read_level(workers, from, level, box);
        if (!is_dense) fail(CUSZ_ERROR_UNSUPPORTED, "the box is not contiguous, as one on a device has to be");
        const auto bytes = static_cast<std::size_t>(values) * found.layout.value_bytes();
        box.field = context->scratch.field.reserve(bytes);
        read_level(workers, from, level, box);
        backend_on(*context, to.device).copy(to.pointer, box.field, bytes);
    });
}

cusz_status cusz_pack(cusz_context* context, cusz_lossless lossless, int32_t value_bytes, uint64_t count,
                      const void* values, void* block, size_t capacity, size_t* block_bytes) {
    return guarded(context, [&] {
        need(context, "context");
        need(block, "block");
        need(block_bytes, "block_bytes");
        if (lossless != CUSZ_LOSSLESS_NONE && lossless != CUSZ_LOSSLESS_ZSTD)
            fail(CUSZ_ERROR_PARAMETER, "lossless is ", static_cast<int>(lossless), "; legal: 0 and 1");
        if (value_bytes < 1 || value_bytes > 8 || !std::has_single_bit(static_cast<unsigned>(value_bytes)))
            fail(CUSZ_ERROR_PARAMETER, "value_bytes is ", value_bytes, "; legal: 1, 2, 4 and 8");
        const auto size = static_cast<std::size_t>(value_bytes);
        if (count > (std::numeric_limits<std::size_t>::max() / 2) / size)
            fail(CUSZ_ERROR_PARAMETER, count, " values of ", size, " bytes do not fit in 63 bits");
        const std::size_t bytes = static_cast<std::size_t>(count) * size;
        if (capacity < bytes + CUSZ_PACKED_OVERHEAD_BYTES)
            fail(CUSZ_ERROR_PARAMETER, "capacity is ", capacity, " bytes; these values need ",
                 bytes + CUSZ_PACKED_OVERHEAD_BYTES);
        if (bytes > 0) need(values, "values");
        const Source from = bytes > 0 ? source(values, "values", CUSZ_BACKEND_CPU) : Source{};
        *block_bytes = pack_values(workers_for_packing(*context, from), lossless, size, from, bytes,
                                   static_cast<std::byte*>(block));
    });
}

int32_t cusz_is_packed(const void* block, size_t block_bytes) {
    return block != nullptr && is_packed(static_cast<const std::byte*>(block), block_bytes);
}

cusz_status cusz_unpacked_bytes(cusz_context* context, const void* block, size_t block_bytes, size_t* values_bytes) {
    return guarded(context, [&] {
        need(context, "context");
        need(values_bytes, "values_bytes");
        const std::byte* const bytes = packed(block, block_bytes);
        *values_bytes = verified_bytes(workers_for_packing(*context, {}), bytes, block_bytes);
    });
}

cusz_status cusz_unpack(cusz_context* context, const void* block, size_t block_bytes, void* values,
                        size_t values_bytes) {
    return guarded(context, [&] {
        need(context, "context");
        const std::byte* const bytes = packed(block, block_bytes);
        const std::size_t needed = verified_bytes(workers_for_packing(*context, {}), bytes, block_bytes);
        if (values_bytes != needed)
            fail(CUSZ_ERROR_PARAMETER, "values_bytes is ", values_bytes, "; the block's values take ", needed);
        if (needed > 0) need(values, "values");
        const Target to = needed > 0 ? target(values, "values", CUSZ_BACKEND_CPU) : Target{};
        unpack_values(workers_for_packing(*context, to), bytes, block_bytes, to, needed);
    });
}
