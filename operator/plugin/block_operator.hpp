// How a block is stored: every block of a variable becomes one cusz archive (docs/operator.md), whichever version of
// ADIOS2 calls the plugin.
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
    // Stores everything without loss; the fallback when there is no memory to construct another.
    BlockOperator() noexcept;

    // May throw std::bad_alloc.
    explicit BlockOperator(std::span<const Parameter> given);

    static bool accepts(DataType type) noexcept { return type == DataType::Float || type == DataType::Double; }

    // The most bytes that compress() writes. BP4 and DataMan never ask: they reserve the raw size, BP4 slightly more.
    static std::size_t max_bytes(std::size_t raw_bytes) noexcept {
        return std::max(raw_bytes + CUSZ_RAW_OVERHEAD_BYTES, bytes_for_posted());
    }

    // The variable that the next blocks belong to; "" if unknown. Names are truncated to 1023 bytes.
    void set_variable(const char* name) noexcept;

    // Writes a block of these extents to `out`, whatever happens: what cannot be compressed is stored raw. Returns the
    // number of bytes, which is never 0.
    std::size_t compress(const char* field, const Dims& count, DataType type, char* out) const noexcept;

    // Writes the values of a stored block to `field`. Returns archive_bytes; throws std::runtime_error if the block is
    // damaged.
    std::size_t decompress(const char* archive, std::size_t archive_bytes, char* field) const;

private:
    Parameters m_parameters;
    std::array<char, 1024> m_variable{};
};

} // namespace cusz_operator
