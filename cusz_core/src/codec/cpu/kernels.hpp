// The stages of one tile, compiled once per instruction set and chosen at run time (pipeline.hpp and its includes).
// They use only IEEE operations and integers, so all give the same bytes. They share their source, too, except where
// AVX-512 is used differently: coding (huffman_lanes.hpp instead of huffman_plain.hpp), gather_significant,
// scatter_significant and quantise_row; tests/contract/test_host_modes.py compares them.
#pragma once

#include <cstdint>

#include "codec/backend.hpp"
#include "codec/lorenzo/cpu/huffman_model.hpp"
#include "codec/lorenzo/cpu/tile.hpp"
#include "codec/spline/cpu/kernels.hpp"

namespace cusz::cpu {

// What all tiles of a field share.
template <class T>
struct TileCoder {
    const Tiling& tiling;
    Quantiser<T> quantiser; // decoding uses only step and special
};

// The longest payload, in words, that write_payload may build before falling back to a raw tile: tile header, part
// before the codes, lengths, codes of 32 bits, outliers.
template <class T>
inline constexpr std::size_t longest_payload = 1 + longest_front + 32 + max_tile_values + sizeof(Tile<T>::back) / 4;

// Words that read_payload may read past the end of a payload.
inline constexpr std::size_t payload_margin_words = 512;

// A codec's functions for one value type. Coder: the types of its model (huffman_model.hpp).
template <class T, class Coder>
struct TileKernels {
    // Predicts the tile that Tile::begin was called for, and determines what is to be coded. Codes of magnitude `reach`
    // or more are outliers. The result points into `tile`.
    PreparedTile (*prepare)(const TileCoder<T>& coder, std::uint32_t reach, const T* field, Tile<T>& tile);

    // Codes a tile. Returns the payload's length in words.
    std::uint32_t (*write_payload)(const TileCoder<T>& coder, const typename Coder::Writing& model,
                                   std::uint64_t number, const T* field, const PreparedTile& prepared,
                                   std::uint32_t* words, Counts& counts);

    // Decodes the tile that Tile::begin was called for, from exactly n_words words, to field + its box's offset. Throws
    // CORRUPT, never having written outside the tile.
    void (*read_payload)(const TileCoder<T>& coder, const typename Coder::Reading& model, std::uint64_t number,
                         const std::uint32_t* words, std::uint32_t n_words, Tile<T>& tile, T* field);

    // Range of the tile's values that are finite and not the special pattern.
    ValueRange (*value_range)(const T* field, const TileBox& box, typename Traits<T>::Bits special);
};

template <class Coder>
struct PipelineKernels {
    TileKernels<float, Coder> f32;
    TileKernels<double, Coder> f64;

    template <class T>
    const TileKernels<T, Coder>& of() const {
        if constexpr (sizeof(T) == 4)
            return f32;
        else
            return f64;
    }
};

// Fields to logarithms and back, by value type. special: the pattern that stands for "no data".
template <class T>
struct LogKernels {
    using Bits = typename Traits<T>::Bits;

    // Of the values that have a logarithm.
    ExponentRange (*exponent_range)(const T* field, std::uint64_t n, Bits special);

    // logs: n values of T, or of double if the scale is wide. signs: a bit for each value.
    void (*to_logs)(const T* field, std::uint64_t n, const LogScale& scale, Bits special, void* logs,
                    std::uint64_t* signs);

    // signs: those of the whole field, in which these values begin at number `first`; null: none is negative.
    void (*from_logs)(const void* logs, std::uint64_t n, const LogScale& scale, Bits special,
                      const std::uint64_t* signs, std::uint64_t first, T* field);
};

struct Kernels {
    const char* name; // of the instruction set

    // weigh of checksum.hpp.
    std::uint64_t (*weigh)(const void* data, std::size_t words);

    // Range of those of n < 2^32 values that are finite and not the special pattern.
    ValueRange (*value_range_f32)(const float* field, std::uint64_t n, std::uint32_t special);
    ValueRange (*value_range_f64)(const double* field, std::uint64_t n, std::uint64_t special);

    PipelineKernels<Huffman> lorenzo;

    SplineKernels<float> spline_f32;
    SplineKernels<double> spline_f64;

    LogKernels<float> logs_f32;
    LogKernels<double> logs_f64;
};

// Throws CORRUPT. Not inline, so that no shared code is compiled for one instruction set.
[[noreturn]] void corrupt_tile(std::uint64_t number, const char* what);

// One per instruction set in the build.
extern const Kernels baseline_kernels;
extern const Kernels avx2_kernels, avx512_kernels; // these only if CUSZ_HAVE_AVX2 and CUSZ_HAVE_AVX512 are defined

// The best that this processor supports. CUSZ_SIMD=baseline, avx2 or avx512 in the environment selects that one, if the
// processor supports it.
const Kernels& kernels();

} // namespace cusz::cpu
