// Stores blocks: every block of a variable becomes one cusz archive (adios2.md), whichever ADIOS2 calls the plugin.
#pragma once

#include "adios2_types.hpp"
#include "handover.hpp"
#include "parameters.hpp"

#include <cusz/cusz.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace cusz_operator {

class BlockOperator {
public:
    // Stores everything without loss; the fallback when there is no memory to construct another operator.
    BlockOperator() noexcept;

    // May throw std::bad_alloc.
    explicit BlockOperator(std::span<const Parameter> given);

    // Floating-point values are compressed within the bound; integers are packed, exactly.
    static bool accepts(DataType type) noexcept {
        return type == DataType::Float || type == DataType::Double || is_integer(type);
    }

    // The most bytes that compress() writes if ADIOS2 has asked how much room to reserve.
    static std::size_t max_bytes(std::size_t raw_bytes) noexcept {
        return std::max(raw_bytes + CUSZ_RAW_OVERHEAD_BYTES, bytes_for_posted());
    }

    // The variable that the next blocks belong to; "" if unknown. Names are truncated to 1023 bytes.
    void set_variable(const char* name) noexcept;

    // Writes a block of these extents to `out`, whatever happens: what cannot be compressed is stored raw. Returns the
    // number of bytes, which is never 0.
    //   has_room  ADIOS2 has asked for max_bytes(). BP4 and DataMan never do: they reserve the raw size, and for a Put
    //             in mode Sync, BP4 may reserve only a few bytes more, because it does not count what it writes to a
    //             step before the first block. Blocks are then at most 8 bytes larger than raw.
    std::size_t compress(const char* field, const Dims& count, DataType type, char* out, bool has_room) const noexcept;

    // Writes the values of a stored block to `field`. Returns archive_bytes; throws std::runtime_error if the block is
    // damaged.
    std::size_t decompress(const char* archive, std::size_t archive_bytes, char* field) const;

private:
    Parameters m_parameters;
    std::array<char, 1024> m_variable{};
};

} // namespace cusz_operator
