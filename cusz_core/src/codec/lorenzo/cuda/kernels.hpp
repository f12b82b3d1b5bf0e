// The kernels' host interface (model.cu, writing.cu, reading.cu), and the data passed to them. The host computes
// arguments once, for every tile; pointers are device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "archive/quantiser.hpp"
#include "archive/tiling.hpp"
#include "archive/v1.hpp"
#include "codec/cuda/value_range.hpp"
#include "codec/lorenzo/sample.hpp"

namespace cusz::cuda {

// The tiles of a field, or of a batch of its layers.
struct TileBatch {
    Tiling tiling;
    std::uint64_t first_tile, n_tiles;
    std::uint64_t first_value; // index in the field of the first value in the batch's memory
};

// What the device determines about a field before it is coded.
template <class T>
struct FieldState {
    Quantiser<T> quantiser;
    double eb_abs;
    std::uint32_t raw;   // nonzero: the bound needs a raw archive, and nothing is coded
    std::uint32_t reach; // codes of this magnitude or more are out of range
};

// For encoding: the codewords of an archive's symbols.
struct EncodeTables {
    int r; // of the alphabet
    // Codes from -small_span to small_span - 1 with their extra bits: bits << 5 | length; 0: not in this table.
    static constexpr std::uint32_t small_span = 512;
    const std::uint32_t* small;
    // For every symbol: codeword | length << 16; length 0 if it has none.
    const std::uint32_t* of_symbol;
};

// For decoding, the reverse codebook: DecodeBook's entry (codebook.hpp) for every pattern of bits, laid out so that
// shifts modulo 32 take their counts from an entry without masks.
struct DecodeTable {
    static constexpr std::uint32_t total_bits = 63;   // of codeword and extra bits
    static constexpr std::uint32_t extra_bits_at = 6; // 5 bits
    static constexpr std::uint32_t missing = 1 << 11; // a missing value
    static constexpr std::uint32_t leading_at = 12;   // the leading number, 20 bits
    const std::uint32_t* entry;
    std::uint32_t mask; // number of entries minus 1
    bool empty;
};

template <class T>
struct BoundArguments {
    double eb; // absolute; relative to the range if `results` is not null
    typename Traits<T>::Bits special;
    const typename RangeArguments<T>::Result* results; // or null
    std::uint32_t n_results;
    FieldState<T>* state; // receives everything but reach
};

template <class T>
struct CountArguments {
    TileBatch batch;
    const T* field;
    int r; // of the alphabet
    Sample sample;
    const FieldState<T>* state;
    std::uint64_t* counts; // per symbol, added to
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
// Device memory that make_book needs; 0 if shared memory is enough.
std::size_t book_memory_bytes(int r);

// Totals over all batches of tiles. Must be zeroed before the first one.
struct CompressResult {
    std::uint64_t words, checksum; // of all payloads
    std::uint64_t n_special, n_out_of_range, n_unpredictable;
    std::uint64_t too_large; // nonzero: the payloads exceed the capacity and are incomplete
};

template <class T>
struct CompressArguments {
    TileBatch batch;
    const T* field;
    EncodeTables tables;
    const FieldState<T>* state;
    std::uint16_t* index; // of the batch's tiles
    std::uint32_t* payloads;
    std::uint64_t capacity; // words
    std::uint64_t* ticket;  // initially 0
    std::uint64_t* states;  // for the look-back, one per tile, initially 0
    CompressResult* result;
};

// The starts of payloads are stored for one tile in this many.
inline constexpr std::uint32_t tiles_of_start = 32;

// The result of reading a batch of tiles. Must be zeroed before the kernels start.
struct DecompressResult {
    std::uint64_t ticket, words, checksum;
    std::uint64_t index_error, error; // of the first bad entry and tile: ~((number + 1) << 8 | TileError); or 0
};

// What is wrong with a tile or with the index.
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
    bool padded;                     // one more entry follows, which must be 0
    std::uint32_t shortest, longest; // legal lengths of a payload
    std::uint64_t* starts;           // of tiles 0, 32, 64, .. of the batch, in words
    std::uint64_t* states;           // for the look-back, one per tiles_of_index_block tiles, initially 0
    DecompressResult* result;
};
inline constexpr std::uint32_t tiles_of_index_block = 256 * tiles_of_start;

template <class T>
struct DecompressArguments {
    TileBatch batch;
    Quantiser<T> quantiser; // only step and special are used
    DecodeTable table;
    const std::uint16_t* index;
    const std::uint64_t* starts;
    const std::uint32_t* payloads;
    std::uint64_t words; // of all payloads
    T* field;            // null: only the checksum is wanted
    DecompressResult* result;
};

// What fields that are encoded together have in common.
struct ManyTiles {
    TileShape shape;
    int r;
    std::uint64_t max_tiles; // of a field
};

// Each launches one kernel on the stream, for a field or for many. Throws Error(DEVICE).
template <class T>
void resolve_bound(const BoundArguments<T>& arguments, cudaStream_t stream);
template <class T>
void resolve_bound(const Each<BoundArguments<T>>& fields, cudaStream_t stream);
template <class T>
void count_symbols(const CountArguments<T>& arguments, cudaStream_t stream);
template <class T>
void count_symbols(const Each<CountArguments<T>>& fields, const ManyTiles& tiles, cudaStream_t stream);
void make_book(const BookArguments& arguments, cudaStream_t stream);
void make_books(const Each<BookArguments>& fields, int r, cudaStream_t stream); // book_memory_bytes(r) must be 0
template <class T>
void compress_tiles(const CompressArguments<T>& arguments, cudaStream_t stream);
template <class T>
void compress_tiles(const Each<CompressArguments<T>>& fields, const ManyTiles& tiles, cudaStream_t stream);
void find_starts(const IndexArguments& arguments, cudaStream_t stream);
template <class T>
void decompress_tiles(const DecompressArguments<T>& arguments, cudaStream_t stream);

} // namespace cusz::cuda
