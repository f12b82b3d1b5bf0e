// The kernels as the host calls them (kernels.cu), and what crosses from the host to them. Arguments that the host
// computes once hold for every tile; pointers are the device's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "../params.hpp"
#include "../sample.hpp"
#include "../tiling.hpp"

namespace cusz::cuda {

// What holds for every tile of a field, or of a batch of its layers.
template <class T>
struct TileCoder {
    Tiling tiling;
    Quantiser<T> quantiser;            // when decoding only step and special are used
    int r;                             // of the alphabet
    std::uint64_t first_tile, n_tiles; // of the batch
    std::uint64_t first_value;         // of the field that the batch's memory begins with
};

// Codes of an archive's symbols.
struct EncodeTables {
    // Deltas from -small_span to small_span - 1 with their raw bits: bits << 5 | length; 0: not in this table.
    static constexpr std::uint32_t small_span = 512;
    const std::uint32_t* small;
    // Of every symbol: code | length << 16, of length 0 where it has none.
    const std::uint32_t* of_symbol;
};

// The reverse codebook: entries as codebook.hpp's DecodeBook has them (total bits, bits of the code, leading
// number), for every pattern of `width` bits.
struct DecodeTable {
    const std::uint32_t* entry;
    std::uint32_t width;
    bool empty;
};

template <class T>
struct RangeArguments {
    struct Result { // of one block; without values min > max
        T min, max;
        std::uint64_t n_valid;
    };
    const T* field;
    std::uint64_t n;
    typename Traits<T>::Bits special;
    Result* results; // most_blocks() of them
};

template <class T>
struct CountArguments {
    TileCoder<T> coder;
    const T* field;
    std::uint32_t reach;
    Sample sample;
    std::uint64_t* counts; // of every symbol, to be added to
};

// What a batch of tiles came to. Zeros before the kernel begins.
struct CompressResult {
    std::uint64_t ticket;
    std::uint64_t words, checksum; // of all payloads
    std::uint64_t n_special, n_delta_outliers, n_value_outliers;
    std::uint64_t too_large; // not 0: the payloads are longer than the capacity, and not all there
};

template <class T>
struct CompressArguments {
    TileCoder<T> coder;
    const T* field;
    EncodeTables tables;
    std::uint32_t reach;
    std::uint16_t* index; // of the batch's tiles
    std::uint32_t* payloads;
    std::uint64_t capacity; // words
    std::uint64_t* states;  // of the look-back, one a tile, zeros
    CompressResult* result;
};

// Where every 32nd tile's payload begins.
inline constexpr std::uint32_t tiles_of_start = 32;

// What reading a batch of tiles came to. Zeros before the kernels begin.
struct DecompressResult {
    std::uint64_t ticket, words, checksum;
    std::uint64_t error; // of the first bad tile: (number + 1) << 8 | TileError, inverted; or 0
};

// What is wrong with a tile, or with the index.
enum class TileError : std::uint32_t {
    none,
    head_or_length,
    head,
    too_short,
    too_many_outliers,
    mask,
    substream,
    outlier_position,
    too_long,
    index_entry
};

struct IndexArguments {
    const std::uint16_t* index; // of the batch's tiles
    std::uint64_t first_tile, n_tiles;
    std::uint32_t longest; // legal length of a payload
    std::uint64_t* starts; // of tiles 0, 32, 64, .. of the batch, in words
    std::uint64_t* states; // of the look-back, one for every tiles_of_index_block tiles, zeros
    DecompressResult* result;
};
inline constexpr std::uint32_t tiles_of_index_block = 256 * tiles_of_start;

template <class T>
struct DecompressArguments {
    TileCoder<T> coder;
    DecodeTable table;
    const std::uint16_t* index;
    const std::uint64_t* starts;
    const std::uint32_t* payloads;
    std::uint64_t words; // of all payloads
    T* field;            // null: only the checksum is asked for
    DecompressResult* result;
};

struct PieceArguments {
    const std::uint32_t* words;
    std::uint64_t n;
    std::uint32_t* target;   // or null
    std::uint64_t* checksum; // to be added to
};

// Most blocks of a kernel on the current device, and so results of compute_range.
std::uint32_t most_blocks();

// Each starts one kernel on the stream. They throw Error(DEVICE).
template <class T>
void compute_range(const RangeArguments<T>& arguments, cudaStream_t stream);
template <class T>
void count_symbols(const CountArguments<T>& arguments, cudaStream_t stream);
template <class T>
void compress_tiles(const CompressArguments<T>& arguments, cudaStream_t stream);
void find_starts(const IndexArguments& arguments, cudaStream_t stream);
template <class T>
void decompress_tiles(const DecompressArguments<T>& arguments, cudaStream_t stream);
void sum_pieces(const PieceArguments& arguments, cudaStream_t stream);

} // namespace cusz::cuda
