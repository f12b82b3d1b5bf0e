// The Huffman coder's model on a device: its memory, and how it is built (codec/lorenzo/cpu/huffman_model.hpp is the
// CPU's model; the kernels are in histogram.cuh and codebook.cuh).
#pragma once

#include <cstdint>
#include <vector>

#include "codec/lorenzo/codebook.hpp"
#include "device/memory.hpp"
#include "kernels.hpp"

namespace cusz::cuda {

// The model for writing. Its memory has three parts, the first of which must be zeroed beforehand.
class HuffmanModel {
public:
    explicit HuffmanModel(int r) : alphabet_(r) {}

    void take_cleared(Parts& parts) { counts_ = parts.take<std::uint64_t>(alphabet_.size()); }
    void take_lengths(Parts& parts) { lengths_ = parts.take<std::uint8_t>(alphabet_.size()); }
    void take(Parts& parts) {
        small_ = parts.take<std::uint32_t>(2 * EncodeTables::small_span);
        of_symbol_ = parts.take<std::uint32_t>(alphabet_.size());
        const std::size_t bytes = book_memory_bytes(alphabet_.r);
        book_ = bytes == 0 ? nullptr : parts.take<std::uint64_t>(bytes / 8 + 1);
    }

    std::uint64_t* counts() const { return counts_; }
    std::size_t n_lengths() const { return alphabet_.size(); }

    // Builds the model from the counts. reach: on the device; receives the smallest magnitude that is out of range.
    void build(const Sample& sample, std::uint32_t* reach, cudaStream_t stream) const {
        make_book(BookArguments{counts_, alphabet_.r, sample, lengths_, small_, of_symbol_, reach, book_}, stream);
    }
    EncodeTables writing() const { return {alphabet_.r, small_, of_symbol_}; }

private:
    Alphabet alphabet_;
    std::uint64_t* counts_ = nullptr;
    std::uint8_t* lengths_ = nullptr;
    std::uint32_t *small_ = nullptr, *of_symbol_ = nullptr;
    std::uint64_t* book_ = nullptr; // memory for make_book
};

// The table for reading an archive, on the device.
class HuffmanTable {
public:
    // entries: receives the table on the host, which must not change until the work on the stream is done.
    HuffmanTable(const Frame& frame, std::vector<std::uint32_t>& entries, DeviceBuffer& buffer,
                 const MemorySource& source) {
        const DecodeBook book(frame.lengths, Alphabet(frame.coding.r));
        empty_ = book.empty();
        entries.clear();
        for (std::size_t i = 0; i < std::size_t{1} << book.width(); ++i) entries.push_back(entry(book.table()[i]));
        last_ = static_cast<std::uint32_t>(entries.size() - 1);
        table_ = buffer.reserve<std::uint32_t>(source, entries.size());
        CUSZ_CUDA(cudaMemcpyAsync(table_, entries.data(), entries.size() * 4, cudaMemcpyDefault, source.stream));
    }
    DecodeTable reading() const { return {table_, last_, empty_}; }

private:
    static std::uint32_t entry(const DecodeBook::Entry& e) {
        const std::uint32_t missing = e.leading() == Alphabet::missing_leading ? DecodeTable::missing : 0;
        return e.total() | (e.total() - e.length()) << DecodeTable::extra_bits_at | missing |
               static_cast<std::uint32_t>(e.leading()) << DecodeTable::leading_at;
    }

    bool empty_;
    std::uint32_t last_;
    std::uint32_t* table_;
};

} // namespace cusz::cuda
