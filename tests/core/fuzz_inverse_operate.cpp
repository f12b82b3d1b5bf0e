// The plugin's InverseOperate (BlockOperator::decompress) on arbitrary bytes. ADIOS2 sizes the target from its own
// metadata, which the plugin cannot see: here it is the size that the block declares (SECURITY.md).
#include <cusz/cusz.h>

#include <memory>
#include <span>
#include <stdexcept>

#include "block_operator.hpp"
#include "mutator.hpp"
#include "promises.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const cusz_operator::Parameter bound = {"accuracy", "1e-3"};
    static const cusz_operator::BlockOperator plugin(std::span(&bound, 1));
    static cusz_context* const context = cusz_create();
    cusz_info info{};
    info.struct_bytes = sizeof info;
    std::size_t field_bytes = size;
    if (cusz_inspect(context, data, size, &info) == CUSZ_OK) field_bytes = static_cast<std::size_t>(info.raw_bytes);
    if (cusz_is_packed(data, size) != 0) cusz_unpacked_bytes(context, data, size, &field_bytes);
    if (field_bytes > (1u << 24)) return 0;
    const auto field = std::make_unique<char[]>(field_bytes);
    try {
        const std::size_t read = plugin.decompress(reinterpret_cast<const char*>(data), size, field.get());
        cusz_test::demand(read == size && size > 0, "what was read is the block");
    } catch (const std::runtime_error&) {
        // the documented way to refuse
    }
    return 0;
}
