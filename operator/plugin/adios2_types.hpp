// The ADIOS2 types that cross the plugin's interface, declared here instead of included: their values and layouts are
// the same in ADIOS2 2.10, 2.11 and 2.12 (adios2/common/ADIOSTypes.h), so that one plugin serves all three.
#pragma once

#include <cstddef>
#include <vector>

namespace cusz_operator {

using Dims = std::vector<std::size_t>;

enum class DataType {
    None,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float,
    Double,
    LongDouble,
    FloatComplex,
    DoubleComplex,
    String,
    Char,
    Struct
};

// Size of one value; 0 for types without a fixed size.
std::size_t bytes_of(DataType type) noexcept;

bool is_integer(DataType type) noexcept;

} // namespace cusz_operator
