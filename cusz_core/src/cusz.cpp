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

#include "backend.hpp"
#include "cpu/kernels.hpp"
#include "cuda/device.hpp"
#include "errors.hpp"
#include "float_mode.hpp"
#include "format/frame.hpp"
#include "format/tiling.hpp"
#include "format/v1.hpp"
#include "lossless.hpp"
#include "parameter_table.hpp"
#include "params.hpp"

#ifndef CUSZ_VERSION
#error "CUSZ_VERSION comes from the build"
#endif

struct cusz_context {
    std::unique_ptr<cusz::HostBackend> cpu = cusz::make_cpu_backend();
    std::unique_ptr<cusz::cuda::DeviceBackend> cuda; // once it is needed
    void* stream = nullptr;
    cusz_allocator allocator{}; // if `allocate` is set
    cusz::Buffer body;          // of an archive with a lossless stage
    std::string error;
};

namespace {

using namespace cusz;

// Runs a call and turns what it throws into a status and a message, unless that is null.
template <class Call>
cusz_status reported(std::string* message, const Call& call) noexcept {
    const auto report = [&](cusz_status status, const char* text) {
        try {
            if (message != nullptr) *message = text;
        } catch (...) {
            message->clear();
        }
        return status;
    };
    try {
        const FloatMode mode;
        call();
        if (message != nullptr) message->clear();
        return CUSZ_OK;
    } catch (const Error& error) {
        return report(error.status(), error.what());
    } catch (const std::bad_alloc&) {
        return report(CUSZ_ERROR_MEMORY, "out of memory");
    } catch (const std::exception& error) {
        return report(CUSZ_ERROR_INTERNAL, error.what());
    } catch (...) {
        return report(CUSZ_ERROR_INTERNAL, "unknown failure");
    }
}

template <class Call>
cusz_status guarded(cusz_context* context, const Call& call) noexcept {
    return reported(context != nullptr ? &context->error : nullptr, call);
}

// A text for a caller, cut to fit.
void put(char* to, std::size_t bytes, const std::string& text) {
    if (to == nullptr || bytes == 0) return;
    const std::size_t length = std::min(text.size(), bytes - 1);
    std::memcpy(to, text.data(), length);
    to[length] = 0;
}

void need(const void* pointer, const char* name) {
    if (pointer == nullptr) fail(CUSZ_ERROR_PARAMETER, name, " is NULL");
}

// A structure for a caller who has one of struct_bytes bytes: what fits, and 0 where it knows more members.
template <class Struct>
void put(Struct* to, std::size_t struct_bytes, const Struct& from) {
    const std::size_t fitting = std::min(struct_bytes, sizeof from);
    auto* const bytes = reinterpret_cast<std::byte*>(to);
    std::memcpy(bytes, &from, fitting);
    std::fill(bytes + fitting, bytes + struct_bytes, std::byte{0});
}

std::uint64_t special_bits(cusz_dtype dtype, bool has_fill, double fill) {
    return dtype == CUSZ_F32 ? special_pattern<float>(has_fill, fill) : special_pattern<double>(has_fill, fill);
}

double as_double(cusz_dtype dtype, std::uint64_t bits) {
    return dtype == CUSZ_F32 ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))
                             : std::bit_cast<double>(bits);
}

// A pointer that a caller passed, by the name of its parameter.
struct Passed {
    const void* pointer;
    const char* name;
};

cuda::DeviceBackend& on_device(cusz_context& context, int device) {
    if (!context.cuda) {
        context.cuda = cuda::make_backend();
        context.cuda->set_stream(context.stream);
        if (context.allocator.allocate != nullptr) context.cuda->set_allocator(&context.allocator);
    }
    context.cuda->use(device == cuda::host ? context.cuda->current_device() : device);
    return *context.cuda;
}

// The backend for a call with these pointers (cusz.h, cusz_backend).
Backend& backend_for(cusz_context& context, std::int32_t wanted, std::initializer_list<Passed> all) {
    Passed on{nullptr, nullptr};
    int device = cuda::host;
    for (const Passed& passed : all) {
        const int own = cuda::device_of(passed.pointer);
        if (own == cuda::host || (own == cuda::unknown && wanted == CUSZ_BACKEND_CPU)) continue;
        if (own == cuda::unknown) cuda::fail_unknown(passed.name);
        if (device != cuda::host && own != device)
            fail(CUSZ_ERROR_PARAMETER, on.name, " lies on CUDA device ", device, ", ", passed.name, " on device ", own,
                 ": copy one of them");
        device = own;
        on = passed;
    }
    if (device != cuda::host && wanted == CUSZ_BACKEND_CPU)
        fail(CUSZ_ERROR_PARAMETER, on.name, " lies on CUDA device ", device,
             ", and the backend cpu takes host memory: use auto or cuda, or copy it");
    if (device == cuda::host && wanted != CUSZ_BACKEND_CUDA) return *context.cpu;
    return on_device(context, device);
}

bool is_on_device(const void* pointer) { return cuda::device_of(pointer) >= 0; }

// A parsed archive, wherever it lies, for a call with this backend.
Frame parse_anywhere(cusz_context& context, const void* archive, std::size_t archive_bytes,
                     std::int32_t wanted = CUSZ_BACKEND_AUTO) {
    const int device = cuda::device_of(archive);
    if (device == cuda::host || (device == cuda::unknown && wanted == CUSZ_BACKEND_CPU))
        return parse(archive, archive, archive_bytes);
    if (device == cuda::unknown) cuda::fail_unknown("archive");
    std::vector<std::byte> header(std::min(archive_bytes, most_header_bytes()));
    on_device(context, device).copy(header.data(), archive, header.size());
    return parse(header.data(), archive, archive_bytes);
}

std::size_t compress_raw(cusz_context& context, Backend& backend, const Layout& layout, const void* field, int threads,
                         void* archive) {
    auto* body = static_cast<std::byte*>(archive) + raw_header_bytes;
    const std::uint32_t checksum = backend.piece_checksum(field, layout.bytes(), threads, body);
    if (&backend == context.cuda.get()) { // the archive may lie on the device
        std::byte header[raw_header_bytes];
        write_raw_header(header, layout, checksum);
        context.cuda->copy(archive, header, raw_header_bytes);
    } else {
        write_raw_header(archive, layout, checksum);
    }
    return raw_header_bytes + static_cast<std::size_t>(layout.bytes());
}

// Replaces the body of a tiled archive by its zstd frame where that is smaller. Returns the archive's bytes.
std::size_t pack(cusz_context& context, void* archive, std::size_t archive_bytes, int threads) {
    const Frame frame = parse(archive, archive, archive_bytes);
    const auto bytes = static_cast<std::size_t>(frame.body_stored_bytes);
    void* packed = context.body.reserve(bytes);
    const std::size_t stored = zstd_pack(frame.body, bytes, packed, bytes);
    if (stored == 0) return archive_bytes;
    Coding coding = frame.coding;
    coding.lossless = CUSZ_LOSSLESS_ZSTD;
    coding.stored_bytes = stored;
    auto* body = static_cast<std::byte*>(archive) + frame.header_bytes + frame.model_bytes;
    const std::uint32_t checksum = context.cpu->piece_checksum(packed, stored, threads, body);
    v1::write_tiled_header(archive, frame.layout, coding, frame.lengths, checksum);
    return frame.header_bytes + frame.model_bytes + stored;
}

void check_pieces(Backend& backend, const Frame& frame, int threads, void* target) {
    if (backend.piece_checksum(frame.body, frame.body_stored_bytes, threads, target) != frame.payload_checksum)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
}

// The verified body of a tiled archive with a lossless stage, in front of that.
const std::byte* unpack(cusz_context& context, const Frame& frame, int threads) {
    check_pieces(*context.cpu, frame, threads, nullptr);
    const auto bytes = static_cast<std::size_t>(frame.coding.body_bytes);
    auto* unpacked = static_cast<std::byte*>(context.body.reserve(bytes));
    zstd_unpack(frame.body, static_cast<std::size_t>(frame.body_stored_bytes), unpacked, bytes);
    return unpacked;
}

// Decodes, or with field == nullptr verifies the checksums only.
void decode(cusz_context& context, const Frame& frame, std::int32_t wanted, std::int32_t threads, void* field) {
    const int n = resolve_threads(threads, frame.layout.bytes());
    Backend& backend = backend_for(context, wanted, {{frame.body, "archive"}, {field, "field"}});
    if (frame.kind == CUSZ_KIND_RAW) return check_pieces(backend, frame, n, field);
    if (frame.coding.lossless == CUSZ_LOSSLESS_NONE) return backend.decompress(frame, frame.body, n, field);
    if (is_on_device(frame.body))
        fail(CUSZ_ERROR_UNSUPPORTED, "the archive has a lossless stage, which is the CPU's: copy it to the host");
    if (field == nullptr) return check_pieces(*context.cpu, frame, n, nullptr);
    backend.decompress(frame, unpack(context, frame, n), n, field);
}

// Copies a box of a raw archive's values of `size` bytes each.
void copy_box(const Frame& frame, const Selection& box) {
    const auto& [start, count, stride, field] = box;
    const std::size_t size = frame.layout.value_bytes();
    std::uint64_t rows = 1;
    const auto ndim = static_cast<std::size_t>(frame.layout.ndim), last = ndim - 1;
    for (std::size_t d = 0; d < last; ++d) rows *= count[d];
    for (std::uint64_t row = 0; row < rows; ++row) {
        std::uint64_t rest = row, from = 0, to = 0, values = frame.layout.shape[last];
        for (std::size_t d = last; d-- > 0; values *= frame.layout.shape[d]) {
            const std::uint64_t i = rest % count[d];
            rest /= count[d];
            from += (start[d] + i) * values;
            to += i * stride[d];
        }
        for (std::uint64_t i = 0; i < count[last]; ++i)
            std::memcpy(static_cast<std::byte*>(field) + (to + i * stride[last]) * size,
                        frame.body + (from + start[last] + i) * size, size);
    }
}

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
    case CUSZ_ERROR_PLUGIN: return "missing plugin";
    case CUSZ_ERROR_INTERNAL: return "internal error";
    }
    return "unknown status";
}

const char* cusz_predictor_name(int32_t predictor) {
    if (predictor == CUSZ_NO_STAGE) return "none";
    return predictor == CUSZ_PREDICTOR_LORENZO ? "lorenzo" : nullptr;
}

const char* cusz_coder_name(int32_t coder) {
    if (coder == CUSZ_NO_STAGE) return "none";
    return coder == CUSZ_CODER_HUFFMAN ? "huffman" : nullptr;
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
    return context->cpu->scratch_bytes() + (context->cuda ? context->cuda->scratch_bytes() : 0) + context->body.bytes();
}

void cusz_release_scratch(cusz_context* context) {
    if (context == nullptr) return;
    context->cpu->release_scratch();
    if (context->cuda) context->cuda->release_scratch();
    context->body.release();
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
        const ValueRange range = backend_for(*context, CUSZ_BACKEND_AUTO, {{field, "field"}})
                                     .value_range(dtype, count, field, special_bits(dtype, has_fill != 0, fill),
                                                  resolve_threads(threads, layout.bytes()));
        *min = range.min;
        *max = range.max;
        if (n_valid != nullptr) *n_valid = range.n_valid;
    });
}

cusz_status cusz_compress(cusz_context* context, const cusz_params* given, cusz_dtype dtype, int32_t ndim,
                          const uint64_t* shape, const void* field, void* archive, size_t archive_capacity,
                          size_t* archive_bytes) {
    return guarded(context, [&] {
        need(context, "context");
        need(given, "params");
        need(archive, "archive");
        need(archive_bytes, "archive_bytes");
        const cusz_params params = checked(*given);
        const Layout layout(dtype, ndim, shape);
        if (layout.values > 0) need(field, "field");
        const std::uint64_t needed = layout.bytes() + raw_header_bytes;
        if (archive_capacity < needed)
            fail(CUSZ_ERROR_PARAMETER, "archive_capacity is ", archive_capacity, " bytes; this field needs ", needed,
                 " (cusz_max_archive_bytes)");
        const int threads = resolve_threads(params.threads, layout.bytes());
        Backend& backend = backend_for(*context, params.backend, {{field, "field"}, {archive, "archive"}});
        if (params.lossless != CUSZ_LOSSLESS_NONE && is_on_device(archive))
            fail(CUSZ_ERROR_UNSUPPORTED, "the lossless stage is the CPU's: it needs an archive in host memory");

        Coding coding;
        coding.predictor = static_cast<cusz_predictor>(params.predictor);
        coding.mode = static_cast<cusz_mode>(params.mode);
        coding.r = static_cast<int>(std::bit_width(static_cast<unsigned>(params.bins))) - 2;
        coding.has_fill = params.has_fill != 0;
        coding.special = special_bits(dtype, coding.has_fill, params.fill);
        coding.eb = coding.eb_abs = params.eb;
        std::size_t bytes = 0;
        if (layout.values > 0 && coding.eb > 0) bytes = backend.compress(layout, coding, field, threads, archive);
        if (bytes == 0)
            bytes = compress_raw(*context, backend, layout, field, threads, archive);
        else if (params.lossless != CUSZ_LOSSLESS_NONE)
            bytes = pack(*context, archive, bytes, threads);
        *archive_bytes = bytes;
    });
}

cusz_status cusz_inspect(cusz_context* context, const void* archive, size_t archive_bytes, cusz_info* info) {
    return guarded(context, [&] {
        need(info, "info");
        const std::size_t struct_bytes = info->struct_bytes;
        check_struct_bytes("info", struct_bytes, first_info_bytes, "set it to sizeof(cusz_info)");
        if (context == nullptr && is_on_device(archive)) need(context, "context");
        const Frame frame = context != nullptr ? parse_anywhere(*context, archive, archive_bytes)
                                               : parse(archive, archive, archive_bytes);
        const Layout& layout = frame.layout;
        cusz_info i{};
        i.struct_bytes = static_cast<std::uint32_t>(std::min(struct_bytes, sizeof i));
        i.version = static_cast<std::int32_t>(frame.version);
        i.kind = frame.kind;
        i.dtype = layout.dtype;
        i.ndim = layout.ndim;
        i.checksum = frame.payload_checksum;
        for (std::size_t d = 0; d < CUSZ_MAX_NDIM; ++d) i.shape[d] = layout.shape[d];
        i.raw_bytes = layout.bytes();
        i.archive_bytes = archive_bytes;
        i.header_bytes = frame.header_bytes;
        i.payload_bytes = i.raw_bytes;
        i.predictor = i.coder = CUSZ_NO_STAGE;
        if (frame.kind == CUSZ_KIND_TILED) {
            const Coding& c = frame.coding;
            const Tiling tiling(layout.ndim, layout.shape.data());
            i.mode = c.mode;
            i.predictor = c.predictor;
            i.coder = c.coder;
            i.lossless = c.lossless;
            i.bins = 2 << c.r;
            i.has_fill = c.has_fill;
            i.eb = c.eb;
            i.eb_abs = c.eb_abs;
            i.step = c.step;
            i.fill = c.has_fill ? as_double(layout.dtype, c.special) : 0;
            i.codebook_bytes = frame.model_bytes;
            i.n_tiles = tiling.n_tiles();
            i.index_bytes = (i.n_tiles + 1) / 2 * 4;
            i.payload_bytes = c.body_bytes - i.index_bytes;
            tiling.tile_shape(layout.ndim, layout.shape.data(), i.tile_shape);
            i.n_special = c.n_special;
            i.n_out_of_range = c.n_out_of_range;
            i.n_unpredictable = c.n_unpredictable;
        }
        put(info, struct_bytes, i);
    });
}

cusz_status cusz_check(cusz_context* context, const void* archive, size_t archive_bytes, int32_t threads) {
    return guarded(context, [&] {
        need(context, "context");
        decode(*context, parse_anywhere(*context, archive, archive_bytes), CUSZ_BACKEND_AUTO, threads, nullptr);
    });
}

cusz_status cusz_decompress(cusz_context* context, const void* archive, size_t archive_bytes, cusz_backend backend,
                            int32_t threads, void* field, size_t field_bytes) {
    return guarded(context, [&] {
        need(context, "context");
        if (backend < CUSZ_BACKEND_AUTO || backend > CUSZ_BACKEND_CUDA)
            fail(CUSZ_ERROR_PARAMETER, "backend is ", static_cast<int>(backend), "; legal: 0 to 2");
        const Frame frame = parse_anywhere(*context, archive, archive_bytes, backend);
        if (field_bytes != frame.layout.bytes())
            fail(CUSZ_ERROR_PARAMETER, "field_bytes is ", field_bytes, "; the archive's field takes ",
                 frame.layout.bytes());
        if (field_bytes > 0) need(field, "field");
        decode(*context, frame, backend, threads, field);
    });
}

cusz_status cusz_decompress_box(cusz_context* context, const void* archive, size_t archive_bytes, int32_t threads,
                                const uint64_t* start, const uint64_t* count, const uint64_t* stride, void* field) {
    return guarded(context, [&] {
        need(context, "context");
        need(start, "start");
        need(count, "count");
        need(stride, "stride");
        backend_for(*context, CUSZ_BACKEND_CPU, {{archive, "archive"}, {field, "field"}});
        const Frame frame = parse(archive, archive, archive_bytes);
        Selection box{.start = {}, .count = {}, .stride = {}, .field = field};
        std::uint64_t values = 1;
        for (std::size_t d = 0; d < static_cast<std::size_t>(frame.layout.ndim); ++d) {
            const std::uint64_t extent = frame.layout.shape[d];
            if (start[d] > extent || count[d] > extent - start[d])
                fail(CUSZ_ERROR_PARAMETER, "the box begins at ", start[d], " along dimension ", d, " and has ",
                     count[d], " values there; the field has ", extent);
            box.start[d] = start[d];
            box.count[d] = count[d];
            box.stride[d] = stride[d];
            values *= count[d];
        }
        const int n = resolve_threads(threads, frame.layout.bytes());
        if (values == 0) return decode(*context, frame, CUSZ_BACKEND_CPU, threads, nullptr);
        need(field, "field");
        if (frame.kind == CUSZ_KIND_RAW) {
            check_pieces(*context->cpu, frame, n, nullptr);
            return copy_box(frame, box);
        }
        const bool packed = frame.coding.lossless != CUSZ_LOSSLESS_NONE;
        context->cpu->decompress_box(frame, packed ? unpack(*context, frame, n) : frame.body, n, box);
    });
}
