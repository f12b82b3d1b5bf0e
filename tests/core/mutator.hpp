// libFuzzer's own mutations, most of them sealed. To be included by one file of each target.
#pragma once

#include "seal.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
    const unsigned version = cusz_test::version_of(data, size);
    const std::size_t mutated = LLVMFuzzerMutate(data, size, max_size);
    if (seed % 8 != 0) cusz_test::seal(data, mutated, version);
    return mutated;
}
