// The kernels as the host calls them (kernels.cu), and what crosses from the host to them. Arguments that the host
// computes once hold for every tile; pointers are the device's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "../format/sample.hpp"
#include "../format/tiling.hpp"
#include "../format/v1.hpp"
#include "../params.hpp"

namespace cusz::cuda {

// Where the tiles of a field lie, or of a batch of its layers.
struct TileBatch {
    Tiling tiling;
    std::uint64_t first_tile, n_tiles;
    std::uint64_t first_value; // of the field that the batch's memory begins with
};

// What is found out about a field on the device before it is coded.
template <class T>
struct FieldState {
    Quantiser<T> quantiser;
    double eb_abs;
    std::uint32_t raw;   // not 0: the bound needs a raw archive, and nothing is coded
    std::uint32_t reach; // codes of this magnitude or more are out of range
};

// What the Huffman coder writes with: the codewords of an archive's symbols.
struct EncodeTables {
    int r; // of the alphabet
    // Codes from -small_span to small_span - 1 with their extra bits: bits << 5 | length; 0: not in this table.
    static constexpr std::uint32_t small_span = 512;
    const std::uint32_t* small;
    // Of every symbol: codeword | length << 16, of length 0 where it has none.
    const std::uint32_t* of_symbol;
};

// What the Huffman coder reads with, the reverse codebook: entries as codebook.hpp's DecodeBook has them (total bits,
// bits of the codeword, leading number), for every pattern of `width` bits.
struct DecodeTable {
    const std::uint32_t* entry;
    std::uint32_t width;
    bool empty;
};

// A coder's types, as kernels get them (those of the CPU: ../cpu/huffman_model.hpp).
struct Huffman {
    using Writing = EncodeTables;
    using Reading = DecodeTable;
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
struct BoundArguments {
    double eb; // absolute, or relative to the range if there are results
    typename Traits<T>::Bits special;
    const typename RangeArguments<T>::Result* results; // or null
    std::uint32_t n_results;
    FieldState<T>* state; // gets all but reach
};

template <class T>
struct CountArguments {
    TileBatch batch;
    const T* field;
    int r; // of the alphabet
    Sample sample;
    const FieldState<T>* state;
    std::uint64_t* counts; // of every symbol, to be added to
};

struct BookArguments {
    const std::uint64_t* counts;
    int r;
    Sample sample;
    std::uint8_t* lengths;            // of every symbol's codeword
    std::uint32_t *small, *of_symbol; // EncodeTables
    std::uint32_t* reach;
    void* memory; // book_memory_bytes(r), or null if that is 0
};
// What make_book needs on the device; 0 where shared memory is enough.
std::size_t book_memory_bytes(int r);

// What all batches of tiles came to. Zeros before the first one begins.
struct CompressResult {
    std::uint64_t words, checksum; // of all payloads
    std::uint64_t n_special, n_out_of_range, n_unpredictable;
    std::uint64_t too_large; // not 0: the payloads are longer than the capacity, and not all there
};

template <class T, class Coder>
struct CompressArguments {
    TileBatch batch;
    const T* field;
    typename Coder::Writing model;
    const FieldState<T>* state;
    std::uint16_t* index; // of the batch's tiles
    std::uint32_t* payloads;
    std::uint64_t capacity; // words
    std::uint64_t* ticket;  // 0
    std::uint64_t* states;  // of the look-back, one a tile, zeros
    CompressResult* result;
};

// Where every 32nd tile's payload begins.
inline constexpr std::uint32_t tiles_of_start = 32;

// What reading a batch of tiles came to. Zeros before the kernels begin.
struct DecompressResult {
    std::uint64_t ticket, words, checksum;
    std::uint64_t index_error, error; // of the first bad entry, tile: (number + 1) << 8 | TileError, inverted; or 0
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
    index_entry,
    index_padding
};

struct IndexArguments {
    const std::uint16_t* index; // of the batch's tiles
    std::uint64_t first_tile, n_tiles;
    bool padded;           // behind them is an entry that has to be 0
    std::uint32_t longest; // legal length of a payload
    std::uint64_t* starts; // of tiles 0, 32, 64, .. of the batch, in words
    std::uint64_t* states; // of the look-back, one for every tiles_of_index_block tiles, zeros
    DecompressResult* result;
};
inline constexpr std::uint32_t tiles_of_index_block = 256 * tiles_of_start;

template <class T, class Coder>
struct DecompressArguments {
    TileBatch batch;
    Quantiser<T> quantiser; // of which step and special are used
    typename Coder::Reading model;
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
void resolve_bound(const BoundArguments<T>& arguments, cudaStream_t stream);
template <class T>
void count_symbols(const CountArguments<T>& arguments, cudaStream_t stream);
void make_book(const BookArguments& arguments, cudaStream_t stream);
template <class T>
void compress_tiles(const CompressArguments<T, Huffman>& arguments, cudaStream_t stream);
void find_starts(const IndexArguments& arguments, cudaStream_t stream);
template <class T>
void decompress_tiles(const DecompressArguments<T, Huffman>& arguments, cudaStream_t stream);
void sum_pieces(const PieceArguments& arguments, cudaStream_t stream);

} // namespace cusz::cuda
