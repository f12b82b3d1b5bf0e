// The header of a tiled archive, finished on the device (docs/format.md, sections 1, 2, 7 and 9): nothing has to be
// waited for in between.
#pragma once

#include "../format/checksum.hpp"
#include "../format/header.hpp"
#include "pipeline.cuh"

namespace cusz::cuda {

struct HeaderMemory {
    Array<std::uint64_t, block_warps> partial;
};

// For one block.
template <class T>
__device__ void write_header(const HeaderArguments<T>& a, HeaderMemory& shared) {
    const Alphabet alphabet(a.r);
    constexpr std::uint32_t front = v1::tiled_header_bytes / 4;
    const std::uint32_t n = front + (alphabet.size() + 7) / 8;
    const std::uint64_t body_bytes = (a.n_tiles + 1) / 2 * 4 + a.result->words * 4;
    const auto low_or_high = [](std::uint64_t v, std::size_t at, std::uint32_t i) {
        return static_cast<std::uint32_t>(v >> (i - at / 4) * 32);
    };
    std::uint64_t sum = 0;
    for (std::uint32_t i = threadIdx.x; i < n; i += block_threads) {
        std::uint32_t word = 0;
        if (i >= front) { // eight code lengths
            for (std::uint32_t s = (i - front) * 8; s < std::min((i - front + 1) * 8, alphabet.size()); ++s)
                word |= std::uint32_t{a.lengths[s]} << s % 8 * 4;
        } else {
            switch (i * 4) {
            case payload_checksum_at: word = fold(a.result->checksum); break;
            case v1::eb_abs_at:
            case v1::eb_abs_at + 4:
                word = low_or_high(std::bit_cast<std::uint64_t>(a.state->eb_abs), v1::eb_abs_at, i);
                break;
            case v1::step_at:
            case v1::step_at + 4: {
                const auto step = static_cast<double>(a.state->quantiser.step);
                word = low_or_high(std::bit_cast<std::uint64_t>(step), v1::step_at, i);
                break;
            }
            case v1::body_bytes_at:
            case v1::body_bytes_at + 4: word = low_or_high(body_bytes, v1::body_bytes_at, i); break;
            case v1::stored_bytes_at:
            case v1::stored_bytes_at + 4: word = low_or_high(body_bytes, v1::stored_bytes_at, i); break;
            case v1::n_special_at:
            case v1::n_special_at + 4: word = low_or_high(a.result->n_special, v1::n_special_at, i); break;
            case v1::n_out_of_range_at:
            case v1::n_out_of_range_at + 4:
                word = low_or_high(a.result->n_out_of_range, v1::n_out_of_range_at, i);
                break;
            case v1::n_unpredictable_at:
            case v1::n_unpredictable_at + 4:
                word = low_or_high(a.result->n_unpredictable, v1::n_unpredictable_at, i);
                break;
            default: word = a.words[i]; break;
            }
        }
        if (i * 4 == header_checksum_at) continue; // counts as 0
        sum += std::uint64_t{word} * checksum_weight(i);
        a.header[i] = word;
    }
    const std::uint64_t part = part_of_sum(0, block_sum<block_warps>(sum, shared.partial), n);
    if (!is_first_thread()) return;
    a.header[header_checksum_at / 4] = fold(part);
    if (a.index != nullptr && a.n_tiles % 2 != 0) a.index[a.n_tiles] = 0;
}

} // namespace cusz::cuda
