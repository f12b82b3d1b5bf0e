#include "block_operator.hpp"

#include "capture.hpp"
#include "contexts.hpp"
#include "cusz_operator.h"
#include "handover.hpp"
#include "output.hpp"
#include "readable.hpp"
#include "report.hpp"

#include <cusz/cusz.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace cusz_operator {
namespace {

struct Shape {
    std::int32_t ndim = 0;
    std::array<std::uint64_t, CUSZ_MAX_NDIM> extents{};
};

// A block's extents as the compressor takes them: 1 to 4, slowest first. If there are more, those of size 1 are
// dropped, and then the slowest are merged.
Shape block_shape(const Dims& count, bool column_major) noexcept {
    const std::size_t n = count.size();
    const bool too_many = n > CUSZ_MAX_NDIM;
    std::size_t kept = 0;
    for (const std::size_t extent : count) kept += !too_many || extent != 1;
    std::size_t to_merge = kept > CUSZ_MAX_NDIM ? kept - CUSZ_MAX_NDIM : 0;

    Shape shape;
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t extent = count[column_major ? n - 1 - i : i];
        if (too_many && extent == 1) continue;
        if (shape.ndim == 1 && to_merge > 0) {
            shape.extents[0] *= extent;
            --to_merge;
        } else {
            shape.extents[static_cast<std::size_t>(shape.ndim++)] = extent;
        }
    }
    if (shape.ndim == 0) {
        shape.ndim = 1;
        shape.extents[0] = 1;
    }
    return shape;
}

struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
};

// The last resorts, which need neither memory nor a known type: a mark, followed by the block's bytes or, if those
// cannot be read, by bytes of 0xff, which are NaN for floating-point types. The short marks are used if there is no
// room for more. Only this plugin (and inspect_bp) reads such blocks, and they have no checksum.
using namespace std::string_view_literals;
struct Marks {
    std::string_view plain, lost;
};
constexpr Marks marks = {"cusz-plain-bytes"sv, "cusz-lost-block\0"sv};
constexpr Marks short_marks = {"cusz-raw"sv, "cusz-nan"sv};
static_assert(marks.plain.size() == 16 && marks.lost.size() == 16 && marks.plain.size() <= CUSZ_RAW_OVERHEAD_BYTES);
static_assert(short_marks.plain.size() == CUSZ_PACKED_OVERHEAD_BYTES);
static_assert(short_marks.lost.size() == CUSZ_PACKED_OVERHEAD_BYTES);

// The mark of a stored block; "" if it has none.
std::string_view mark_of(const char* archive, std::size_t archive_bytes) noexcept {
    const std::string_view stored(archive, archive_bytes);
    for (const std::string_view mark : {marks.plain, marks.lost, short_marks.plain, short_marks.lost})
        if (stored.starts_with(mark)) return mark;
    return {};
}

// A piece of a message, truncated to fit. A variable's whole name fits.
struct Text {
    char c_str[1100] = "";
};

Text format(const char* pattern, ...) noexcept __attribute__((format(printf, 1, 2)));
Text format(const char* pattern, ...) noexcept {
    Text text;
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(text.c_str, sizeof text.c_str, pattern, arguments);
    va_end(arguments);
    return text;
}

// Describes a call's failure. The context's next call overwrites the original message.
Text failure(cusz_status status, const cusz_context* context) noexcept {
    const char* const name = cusz_status_name(status);
    const char* const error = cusz_last_error(context);
    const bool is_named = std::strncmp(error, name, std::strlen(name)) == 0;
    return is_named ? format("%s", error) : format("%s: %s", name, error);
}

// " of variable 'T'", or nothing if the engine does not pass the name (BP4).
Text of_variable(const char* variable) noexcept {
    if (*variable == '\0') return {};
    const bool is_long = std::strlen(variable) > 110;
    return format(" of variable '%.*s%s'", is_long ? 107 : 110, variable, is_long ? "..." : "");
}

// A block, and where to store it.
struct Block {
    const char* variable;
    const char* field;
    std::size_t bytes;
    const Dims& count;
    DataType type;
    char* out;
    bool has_room;   // for more than 8 bytes besides the block's
    int device = -1; // that the field lies on; negative: in host memory
};

void report_raw(const Block& block, const char* reason, const Text& why) noexcept {
    report_once(reason, "a block%s could not be compressed and is stored raw: %s", of_variable(block.variable).c_str,
                why.c_str);
}

std::size_t store_lost(const Block& block, const Text& why) noexcept {
    const std::string_view mark = (block.has_room ? marks : short_marks).lost;
    std::memcpy(block.out, mark.data(), mark.size());
    std::memset(block.out + mark.size(), 0xff, block.bytes);
    report_once(format("lost %s", block.variable).c_str,
                "a block%s cannot be read: its values are LOST, and NaN (integers: all bits set) is stored in their "
                "place (said once per variable): %s",
                of_variable(block.variable).c_str, why.c_str);
    return mark.size() + block.bytes;
}

// Stores the bytes verbatim. If they cannot be read, says so, in the block and to the user.
std::size_t store_plain(const Block& block, const char* reason, const Text& why) noexcept {
    const std::string_view mark = (block.has_room ? marks : short_marks).plain;
    const bool is_plain = copy_readable(block.out + mark.size(), block.field, block.bytes);
    if (!is_plain) return store_lost(block, why);
    std::memcpy(block.out, mark.data(), mark.size());
    report_raw(block, reason, why);
    return mark.size() + block.bytes;
}

std::size_t size_of_block(const Dims& count, DataType type) noexcept {
    std::size_t bytes = bytes_of(type);
    for (const std::size_t extent : count) bytes *= extent;
    return bytes;
}

// The type as the hand-over numbers it (cusz_operator.h).
std::int32_t posted_type(DataType type) noexcept {
    if (is_integer(type)) return CUSZ_OPERATOR_INTEGERS + static_cast<std::int32_t>(bytes_of(type));
    return type == DataType::Float ? CUSZ_F32 : CUSZ_F64;
}

// The following write an archive or a packed block, at most max_bytes(), or the block's bytes behind a mark.

std::size_t pack(cusz_context* context, const Block& block) noexcept {
    if (cusz_has_lossless(CUSZ_LOSSLESS_ZSTD) == 0)
        report_once("no zstd", "this build of the plugin has no zstd: integers are stored as they are");
    const std::size_t value_bytes = bytes_of(block.type);
    std::size_t block_bytes = 0;
    Text why;
    for (const cusz_lossless lossless : {CUSZ_LOSSLESS_ZSTD, CUSZ_LOSSLESS_NONE}) {
        const cusz_status status =
            cusz_pack(context, lossless, static_cast<std::int32_t>(value_bytes), block.bytes / value_bytes, block.field,
                      block.out, block.bytes + CUSZ_PACKED_OVERHEAD_BYTES, &block_bytes);
        if (status == CUSZ_OK) return block_bytes;
        why = failure(status, context);
        cusz_release_scratch(context);
    }
    return store_plain(block, "no packing", why);
}

// Packs values of any type, as they are.
cusz_status pack_bytes(cusz_context* context, const Block& block, std::size_t* block_bytes) noexcept {
    return cusz_pack(context, CUSZ_LOSSLESS_NONE, 1, block.bytes, block.field, block.out,
                     block.bytes + CUSZ_PACKED_OVERHEAD_BYTES, block_bytes);
}

std::size_t compress_with_room(cusz_context* context, const Parameters& parameters, const Block& block) noexcept {
    const cusz_dtype dtype = block.type == DataType::Float ? CUSZ_F32 : CUSZ_F64;
    const std::size_t value_bytes = bytes_of(block.type);
    const int device = block.device;
    const char* field = block.field;
    std::size_t archive_bytes = 0;

    // The compressor needs the alignment of the type, which ADIOS2 does not guarantee.
    std::unique_ptr<void, Free> aligned;
    if (reinterpret_cast<std::uintptr_t>(field) % value_bytes != 0) {
        if (device >= 0) {
            const Text why = format("its address on CUDA device %d is not a multiple of %zu", device, value_bytes);
            const cusz_status packed = pack_bytes(context, block, &archive_bytes);
            if (packed != CUSZ_OK) return store_plain(block, "odd address", failure(packed, context));
            report_raw(block, "odd address", why);
            return archive_bytes;
        }
        aligned.reset(std::malloc(block.bytes));
        if (aligned == nullptr) return store_plain(block, "no memory", format("out of memory"));
        std::memcpy(aligned.get(), field, block.bytes);
        field = static_cast<const char*>(aligned.get());
    }

    const Shape shape = block_shape(block.count, parameters.column_major);
    const auto compress = [&](const cusz_params& params) {
        return cusz_compress(context, &params, dtype, shape.ndim, shape.extents.data(), field, block.out,
                             block.bytes + CUSZ_RAW_OVERHEAD_BYTES, &archive_bytes);
    };

    cusz_params params = parameters.compression;
    const bool is_readable = device < 0; // by the CPU, even if CUDA can no longer tell where memory resides
    if (block.bytes == 0 || (is_readable && params.backend == CUSZ_BACKEND_AUTO)) params.backend = CUSZ_BACKEND_CPU;
    if (device >= 0 && params.backend == CUSZ_BACKEND_CPU) {
        report_once("device field",
                    "parameter 'backend' = 'cpu', but a block%s lies in memory of CUDA device %d and is compressed "
                    "there (the archives are the same)",
                    of_variable(block.variable).c_str, device);
        params.backend = CUSZ_BACKEND_AUTO;
    }
    cusz_status status = compress(params);
    if (status == CUSZ_OK) return archive_bytes;
    Text why = failure(status, context);

    if (device < 0 && params.backend == CUSZ_BACKEND_CUDA) {
        params.backend = CUSZ_BACKEND_CPU;
        status = compress(params);
        if (status == CUSZ_OK) {
            report_once("on the cpu",
                        "parameter 'backend' = 'cuda', but a block%s is compressed on the CPU (the archives are "
                        "the same): %s",
                        of_variable(block.variable).c_str, why.c_str);
            return archive_bytes;
        }
        why = failure(status, context);
    } else if (device >= 0 && status == CUSZ_ERROR_MEMORY) {
        // Device memory is scarce: idle contexts may hold what this one needs.
        cusz_operator_release_scratch();
        cusz_release_scratch(context);
        if (compress(params) == CUSZ_OK) return archive_bytes;
    }

    const char* const reason = status == CUSZ_ERROR_MEMORY ? "no memory" : cusz_status_name(status);
    cusz_params lossless;
    cusz_params_init(&lossless);
    lossless.threads = 1;
    if (is_readable) lossless.backend = CUSZ_BACKEND_CPU;
    cusz_release_scratch(context);
    if (compress(lossless) != CUSZ_OK) return store_plain(block, reason, why);
    report_raw(block, reason, why);
    return archive_bytes;
}

std::size_t compress_within_8_bytes(cusz_context* context, const Parameters& parameters, const Block& block) noexcept {
    std::size_t stored_bytes = 0;
    const std::unique_ptr<void, Free> memory(std::malloc(block.bytes + CUSZ_RAW_OVERHEAD_BYTES));
    if (memory != nullptr) {
        Block apart = block;
        apart.out = static_cast<char*>(memory.get());
        apart.has_room = true;
        stored_bytes = compress_with_room(context, parameters, apart);
        if (stored_bytes <= block.bytes + CUSZ_PACKED_OVERHEAD_BYTES) {
            std::memcpy(block.out, memory.get(), stored_bytes);
            return stored_bytes;
        }
    }
    const cusz_status status = pack_bytes(context, block, &stored_bytes);
    return status == CUSZ_OK ? stored_bytes : store_plain(block, "no packing", failure(status, context));
}

} // namespace

std::size_t bytes_of(DataType type) noexcept {
    switch (type) {
    case DataType::Int8:
    case DataType::UInt8:
    case DataType::Char: return 1;
    case DataType::Int16:
    case DataType::UInt16: return 2;
    case DataType::Int32:
    case DataType::UInt32:
    case DataType::Float: return 4;
    case DataType::Int64:
    case DataType::UInt64:
    case DataType::Double:
    case DataType::FloatComplex: return 8;
    case DataType::LongDouble: return sizeof(long double);
    case DataType::DoubleComplex: return 16;
    case DataType::None:
    case DataType::String:
    case DataType::Struct: break;
    }
    return 0;
}

bool is_integer(DataType type) noexcept {
    return (type >= DataType::Int8 && type <= DataType::UInt64) || type == DataType::Char;
}

BlockOperator::BlockOperator() noexcept {
    cusz_params_init(&m_parameters.compression);
    m_parameters.missing_bound = false;
}

BlockOperator::BlockOperator(std::span<const Parameter> given) : m_parameters(parse_parameters(given)) {}

void BlockOperator::set_variable(const char* name) noexcept {
    std::snprintf(m_variable.data(), m_variable.size(), "%s", name);
}

std::size_t BlockOperator::compress(const char* field, const Dims& count, DataType type, char* out,
                                    bool has_room) const noexcept {
    Block block{m_variable.data(), field, size_of_block(count, type), count, type, out, has_room};
    prepare_output(out, block.bytes);
    if (!accepts(type)) return store_plain(block, "type", format("its ADIOS2 data type is %d", static_cast<int>(type)));

    // The address is a key if the block, which may be empty, is already compressed.
    std::size_t archive_bytes = 0;
    switch (take_posted(field, block.variable, posted_type(type), count.data(), count.size(), out, &archive_bytes)) {
    case HandOver::none: break;
    case HandOver::taken: return archive_bytes;
    case HandOver::refused: return store_lost(block, format("the archive posted under this key is for another block"));
    case HandOver::late: return store_lost(block, format("no archive is posted under this key any more"));
    }

    if (block.bytes == 0) block.field = nullptr; // the address of an empty block may be anything
    block.device = cusz_device_of(block.field);
    if (block.bytes > 0 && block.device < 0 && !cpu_can_read(field, block.bytes)) {
        const char* why = "CUDA does not report it as device memory";
        if (cusz_has_backend(CUSZ_BACKEND_CUDA) == 0) why = "this build of the plugin has no CUDA";
        if (field == nullptr) why = "ADIOS2 gave none (its SST does so for memory selections)";
        return store_plain(
            block, "unreadable",
            format("the CPU cannot read its memory at %p, and %s", static_cast<const void*>(field), why));
    }
    const PooledContext context;
    if (context.get() == nullptr) return store_plain(block, "no memory", format("out of memory"));
    if (is_integer(type)) return pack(context.get(), block);
    if (m_parameters.missing_bound) {
        report_once("no bound",
                    "no error bound is given (parameter 'accuracy'); blocks are stored raw (nothing is lost, "
                    "nothing is compressed)");
    }
    return has_room ? compress_with_room(context.get(), m_parameters, block)
                    : compress_within_8_bytes(context.get(), m_parameters, block);
}

std::size_t BlockOperator::decompress(const char* archive, std::size_t archive_bytes, char* field) const {
    const char* const variable = m_variable.data();
    if (capture(variable, archive, archive_bytes)) return archive_bytes;
    if (const std::string_view mark = mark_of(archive, archive_bytes); !mark.empty()) {
        const std::size_t field_bytes = archive_bytes - mark.size();
        if (field_bytes > 0 && cusz_device_of(field) >= 0) {
            throw std::runtime_error(std::string("cusz_operator: cannot read a block") + of_variable(variable).c_str +
                                     " that is stored verbatim into CUDA device memory: read it into host "
                                     "memory");
        }
        if (mark == marks.lost || mark == short_marks.lost) {
            report_once(format("read lost %s", variable).c_str,
                        "a block%s was LOST when it was written, because its memory could not be read; its values "
                        "are NaN (integers: all bits set)",
                        of_variable(variable).c_str);
        }
        if (field_bytes > 0) std::memcpy(field, archive + mark.size(), field_bytes);
        return archive_bytes; // not 0, which ADIOS2 takes for "not compressed"
    }

    const PooledContext context;
    if (context.get() == nullptr) throw std::runtime_error("cusz_operator: out of memory");
    const auto require = [&](cusz_status status) {
        if (status == CUSZ_OK) return;
        throw std::runtime_error(std::string("cusz_operator: cannot read a block") + of_variable(variable).c_str +
                                 ": " + failure(status, context.get()).c_str);
    };
    if (cusz_is_packed(archive, archive_bytes) != 0) {
        std::size_t field_bytes = 0;
        require(cusz_unpacked_bytes(context.get(), archive, archive_bytes, &field_bytes));
        require(cusz_unpack(context.get(), archive, archive_bytes, field, field_bytes));
        return archive_bytes;
    }
    cusz_info info;
    info.struct_bytes = sizeof info;
    // The archive is in host memory, even if CUDA can no longer tell, as after a device failure. Without a context,
    // cusz_inspect assumes this, but gives no message when it fails.
    cusz_status status = cusz_inspect(nullptr, archive, archive_bytes, &info);
    if (status != CUSZ_OK) status = cusz_inspect(context.get(), archive, archive_bytes, &info);
    if (status == CUSZ_OK) {
        const auto field_bytes = static_cast<std::size_t>(info.raw_bytes);
        const bool is_unknown = cusz_device_of(field) == -2;
        const bool on_host = field_bytes == 0 || (is_unknown && cpu_can_read(field, field_bytes));
        status = cusz_decompress(context.get(), archive, archive_bytes, on_host ? CUSZ_BACKEND_CPU : CUSZ_BACKEND_AUTO,
                                 m_parameters.compression.threads, field, field_bytes);
    }
    require(status);
    return archive_bytes;
}

} // namespace cusz_operator
