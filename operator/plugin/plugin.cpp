// The ADIOS2 operator plugin "cusz": every block of a variable becomes one cusz archive (docs/operator.md).
//
// An exception on ADIOS2's write path ends the simulation, and a returned size of 0 makes the block unreadable. So the
// constructor, AddExtraParameters, GetEstimatedSize and Operate catch everything, and what cannot be compressed is
// stored raw. On the read path an exception is clean, and the only way to say that a block is damaged.
#include "capture.hpp"
#include "contexts.hpp"
#include "cusz_operator.h"
#include "parameters.hpp"
#include "report.hpp"

#include <adios2/plugin/PluginOperatorInterface.h>
#include <cusz/cusz.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#if ADIOS2_PLUGIN_OPERATOR_INTERFACE != 2
#error "This plugin is for version 2 of ADIOS2's operator plugin interface (ADIOS2 2.12 or newer)"
#endif

namespace cusz_operator {
namespace {

struct Shape {
    std::int32_t ndim = 0;
    std::array<std::uint64_t, CUSZ_MAX_NDIM> extents{};
};

// A block's extents as the compressor wants them: slowest first, 1 to 4 of them. Of more than four, those of size 1 are
// dropped and then the slowest are merged.
Shape block_shape(const adios2::Dims& count, bool column_major) noexcept {
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

// The last resort, which needs neither memory nor a known type: these 16 bytes and then the block's. Only this plugin
// reads it, and it has no checksum.
constexpr std::array<char, 16> plain_mark = {'c', 'u', 's', 'z', '-', 'p', 'l', 'a',
                                             'i', 'n', '-', 'b', 'y', 't', 'e', 's'};
static_assert(plain_mark.size() <= CUSZ_RAW_OVERHEAD_BYTES, "GetEstimatedSize covers it");

std::size_t store_plain(const char* field, std::size_t bytes, char* out) noexcept {
    std::memcpy(out, plain_mark.data(), plain_mark.size());
    if (bytes > 0) std::memcpy(out + plain_mark.size(), field, bytes);
    return plain_mark.size() + bytes;
}

class CuszOperator final : public adios2::plugin::PluginOperatorInterface {
public:
    explicit CuszOperator(const adios2::Params& parameters)
        : PluginOperatorInterface(parameters), m_parameters(parse_parameters(parameters)) {}

    // Stores everything raw; stands in where there is no memory to construct another.
    CuszOperator() noexcept : PluginOperatorInterface(adios2::Params()), m_is_stand_in(true) {
        cusz_params_init(&m_parameters.compression);
        m_parameters.missing_bound = false;
    }

    bool IsDataTypeValid(const adios2::DataType type) const override {
        return type == adios2::DataType::Float || type == adios2::DataType::Double;
    }

    // BP4 and DataMan never ask: they reserve the raw size, and BP4 little more.
    std::size_t GetEstimatedSize(const std::size_t n_elements, const std::size_t element_bytes, const std::size_t,
                                 const std::size_t*) const override {
        return n_elements * element_bytes + CUSZ_RAW_OVERHEAD_BYTES;
    }

    void AddExtraParameters(const adios2::Params& parameters) override {
        if (m_is_stand_in) return;
        try {
            const auto name = parameters.find("VariableName");
            m_variable = name != parameters.end() ? name->second : std::string();
        } catch (...) {
            m_variable.clear();
        }
    }

    std::size_t Operate(const char* field, const adios2::Dims&, const adios2::Dims& count, const adios2::DataType type,
                        char* out) override {
        const std::size_t field_bytes = adios2::GetTotalSize(count, adios2::GetDataTypeSize(type));
        if (!IsDataTypeValid(type)) {
            report_once("type", "a block%s of ADIOS2 data type %d came to this operator; it is stored raw",
                        of_variable().c_str, static_cast<int>(type));
            return store_plain(field, field_bytes, out);
        }
        if (m_parameters.missing_bound) {
            report_once("no bound",
                        "no error bound is given (parameter 'accuracy'); blocks are stored raw (nothing is lost, "
                        "nothing is compressed)");
        }

        const PooledContext context;
        if (context.get() == nullptr) {
            report_once("no context", "out of memory: a block%s is stored raw", of_variable().c_str);
            return store_plain(field, field_bytes, out);
        }

        // The compressor wants the alignment of the type, which ADIOS2 does not check.
        std::unique_ptr<void, Free> aligned;
        if (field_bytes > 0 && reinterpret_cast<std::uintptr_t>(field) % adios2::GetDataTypeSize(type) != 0) {
            aligned.reset(std::malloc(field_bytes));
            if (aligned == nullptr) {
                report_once("no copy", "out of memory: a block%s is stored raw", of_variable().c_str);
                return store_plain(field, field_bytes, out);
            }
            std::memcpy(aligned.get(), field, field_bytes);
            field = static_cast<const char*>(aligned.get());
        }

        const cusz_dtype dtype = type == adios2::DataType::Float ? CUSZ_F32 : CUSZ_F64;
        const Shape shape = block_shape(count, m_parameters.column_major);
        const std::size_t capacity = field_bytes + CUSZ_RAW_OVERHEAD_BYTES;
        std::size_t archive_bytes = 0;
        cusz_status status = cusz_compress(context.get(), &m_parameters.compression, dtype, shape.ndim,
                                           shape.extents.data(), field, out, capacity, &archive_bytes);
        if (status == CUSZ_OK) return archive_bytes;
        const std::array<char, 2> reason = {static_cast<char>('0' + status), '\0'};
        report_once(reason.data(), "a block%s could not be compressed and is stored raw: %s: %s", of_variable().c_str,
                    cusz_status_name(status), cusz_last_error(context.get()));

        cusz_params lossless;
        cusz_params_init(&lossless);
        lossless.threads = 1;
        cusz_release_scratch(context.get());
        status = cusz_compress(context.get(), &lossless, dtype, shape.ndim, shape.extents.data(), field, out, capacity,
                               &archive_bytes);
        return status == CUSZ_OK ? archive_bytes : store_plain(field, field_bytes, out);
    }

    std::size_t InverseOperate(const char* archive, const std::size_t archive_bytes, char* field) override {
        if (capture(m_variable.c_str(), archive, archive_bytes)) return archive_bytes;
        if (archive_bytes >= plain_mark.size() && std::memcmp(archive, plain_mark.data(), plain_mark.size()) == 0) {
            const std::size_t field_bytes = archive_bytes - plain_mark.size();
            std::memcpy(field, archive + plain_mark.size(), field_bytes);
            return archive_bytes; // not 0, which ADIOS2 takes for "not compressed"
        }

        const PooledContext context;
        if (context.get() == nullptr) throw std::runtime_error("cusz_operator: out of memory");
        cusz_info info;
        info.struct_bytes = sizeof info;
        cusz_status status = cusz_inspect(context.get(), archive, archive_bytes, &info);
        if (status == CUSZ_OK) {
            status = cusz_decompress(context.get(), archive, archive_bytes, CUSZ_BACKEND_AUTO,
                                     m_parameters.compression.threads, field, static_cast<std::size_t>(info.raw_bytes));
        }
        if (status != CUSZ_OK) {
            throw std::runtime_error(std::string("cusz_operator: cannot read a block") + of_variable().c_str + ": " +
                                     cusz_status_name(status) + ": " + cusz_last_error(context.get()));
        }
        return archive_bytes;
    }

private:
    struct Name {
        char c_str[128];
    };

    // " of variable 'T'", or nothing where the engine does not tell (BP4).
    Name of_variable() const noexcept {
        Name name = {""};
        if (!m_variable.empty()) std::snprintf(name.c_str, sizeof name.c_str, " of variable '%s'", m_variable.c_str());
        return name;
    }

    cusz_operator::Parameters m_parameters;
    std::string m_variable;
    bool m_is_stand_in = false;
};

// Never destroyed, because ADIOS2 may use it while the process exits.
CuszOperator* stand_in() noexcept {
    alignas(CuszOperator) static std::array<unsigned char, sizeof(CuszOperator)> memory;
    static CuszOperator* const instance = new (memory.data()) CuszOperator();
    return instance;
}

} // namespace
} // namespace cusz_operator

extern "C" {

CUSZ_OPERATOR_API adios2::plugin::PluginOperatorInterface* OperatorCreate(const adios2::Params& parameters) {
    // One context at least is there before memory runs short.
    const cusz_operator::PooledContext reserve;
    try {
        return new cusz_operator::CuszOperator(parameters);
    } catch (...) {
        cusz_operator::report_once("no operator", "out of memory: blocks are stored raw");
        return cusz_operator::stand_in();
    }
}

CUSZ_OPERATOR_API void OperatorDestroy(adios2::plugin::PluginOperatorInterface* instance) {
    if (instance != cusz_operator::stand_in()) delete instance;
}
}
