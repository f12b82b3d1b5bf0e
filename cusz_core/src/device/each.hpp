// Launches of a kernel for many fields at once.
#pragma once

#include <cstdint>

namespace cusz::cuda {

// What a kernel takes in place of its arguments: those for each of n fields, in device memory. blockIdx.y is the number
// of the field, so n is at most max_fields_of_launch.
template <class Arguments>
struct Each {
    const Arguments* of;
    std::uint32_t n;
};
template <class Arguments> // clang before 17 does not find it by itself
Each(const Arguments*, std::uint32_t) -> Each<Arguments>;
template <class Arguments>
inline constexpr bool is_each = false;
template <class Arguments>
inline constexpr bool is_each<Each<Arguments>> = true;
inline constexpr std::uint32_t max_fields_of_launch = 65535;

template <class Arguments>
std::uint32_t fields_of(const Arguments&) {
    return 1;
}
template <class Arguments>
std::uint32_t fields_of(const Each<Arguments>& each) {
    return each.n;
}

} // namespace cusz::cuda
