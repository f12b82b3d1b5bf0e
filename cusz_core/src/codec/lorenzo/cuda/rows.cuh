// A warp reads the codes of one tile row by row, as it decodes the symbols, so that no tile is kept in memory. For the
// tile shapes that nearly all fields have; lorenzo_rows.cuh turns the codes into values.
#pragma once

#include "coded_runs.cuh"
#include "huffman_decoder.cuh"
#include "payload_reader.cuh"

namespace cusz::cuda {

// These classes give the codes of a tile chunk by chunk. Each lane asks for its own code in every chunk, in order.

// If all values are coded and the tile is not clipped, a lane's substream has the symbols of its own values.
template <class T, bool missing>
struct AllCodes {
    static constexpr bool may_be_missing = missing;
    static constexpr bool needs_registers = missing;

    SubstreamDecoder& decoder;
    const DecodeTable& table;

    __device__ typename Traits<T>::Bits next(std::uint32_t, std::uint32_t, std::uint32_t) {
        return static_cast<typename Traits<T>::Bits>(static_cast<typename Traits<T>::Int>(decoder.reader.next(table)));
    }
    // Whether the last code stands for a missing value.
    __device__ bool is_missing() const { return may_be_missing && decoder.reader.is_missing(); }
};

// If some values are not coded, or the tile is clipped, symbols are decoded into memory as chunks need them.
template <TileShape shape, class T>
class SomeCodes {
    using U = typename Traits<T>::Bits;

public:
    static constexpr bool may_be_missing = false;
    static constexpr bool needs_registers = true; // leaves few for the reconstruction

    __device__ SomeCodes(SubstreamDecoder& decoder, const DecodeTable& table, const CodedRuns<shape>& coded,
                         std::uint32_t n_coded, RowMemory<T, shape>& memory)
        : decoder_(decoder), table_(table), coded_(coded), memory_(memory),
          own_end_(lane() < decoder.count() ? static_cast<int>(n_coded - lane()) : 0) {}

    // The code in chunk x of row (y, z) of a tile that is not clipped and has no missing values; 0 if it is not coded.
    __device__ U next(std::uint32_t x, std::uint32_t y, std::uint32_t z) {
        // In a box, two rows share a mask.
        if (shape != TileShape::box || y % 2 == 0) lanes_ = __ballot_sync(whole_warp, coded_.is_coded(x, y, z));
        return static_cast<U>(static_cast<typename Traits<T>::Int>(take(lanes_, 0)));
    }
    __device__ bool is_missing() const { return false; }
    // This lane's code in a chunk in which `lanes` have one, or missing_code; `none` if this lane has none.
    __device__ std::int32_t take(std::uint32_t lanes, std::int32_t none) {
        const std::uint32_t end = rank_ + static_cast<std::uint32_t>(__popc(lanes));
        while (decoded_ < end) decode();
        __syncwarp();
        std::int32_t code = none;
        const std::uint32_t own = 1u << lane();
        if ((lanes & own) != 0)
            code = memory_.code[(rank_ + static_cast<std::uint32_t>(__popc(lanes & (own - 1)))) % codes_ahead];
        rank_ = end;
        __syncwarp(); // all have their codes
        return code;
    }

private:
    // Decodes one code of every substream.
    __device__ void decode() {
        if (static_cast<int>(decoded_) < own_end_) {
            const std::int32_t code = decoder_.reader.next(table_);
            memory_.code[(decoded_ + lane()) % codes_ahead] = decoder_.reader.is_missing() ? missing_code : code;
        }
        decoded_ += decoder_.count();
    }

    SubstreamDecoder& decoder_;
    const DecodeTable& table_;
    const CodedRuns<shape>& coded_;
    RowMemory<T, shape>& memory_;
    const int own_end_; // this lane has codes left while decoded_ is below this
    std::uint32_t rank_ = 0, decoded_ = 0, lanes_ = 0;
};

// For any tile: some values may be missing, and some codes out of range.
template <TileShape shape, class T>
class AnyCodes {
    using U = typename Traits<T>::Bits;

public:
    __device__ AnyCodes(SubstreamDecoder& decoder, const DecodeTable& table, const CodedRuns<shape>& coded,
                        std::uint32_t n_coded, const Outliers<T>& out_of_range, RowMemory<T, shape>& memory)
        : some_(decoder, table, coded, n_coded, memory), all_{decoder, table}, coded_(coded),
          out_of_range_(out_of_range), edge_(memory.box.edge), is_all_(n_coded == max_tile_values),
          has_mask_(n_coded < memory.box.values()) {}

    // A code, or a mark that the value is missing.
    struct Code {
        U bits;
        bool missing;
    };
    __device__ Code next(std::uint32_t x, std::uint32_t y, std::uint32_t z) {
        Code code{0, false};
        const std::uint32_t here = std::min(edge_[0] - x * warp_lanes, +warp_lanes);
        if (is_all_) {
            code.bits = all_.next(x, y, z);
            code.missing = all_.is_missing();
        } else {
            std::uint32_t lanes = here == warp_lanes ? whole_warp : (1u << here) - 1;
            if (has_mask_) lanes &= __ballot_sync(whole_warp, coded_.is_coded(x, y, z));
            const std::int32_t taken = some_.take(lanes, 0);
            code = {static_cast<U>(static_cast<typename Traits<T>::Int>(taken)), taken == missing_code};
        }
        if (out_of_range_.any()) {
            const std::uint32_t first = (z * edge_[1] + y) * edge_[0] + x * warp_lanes;
            out_of_range_.within(first, first + here, [&](std::uint32_t at, U bits) {
                if (lane() == at - first) code.bits = bits;
            });
        }
        return code;
    }

private:
    SomeCodes<shape, T> some_;
    AllCodes<T, true> all_;
    const CodedRuns<shape>& coded_;
    Outliers<T> out_of_range_;
    const Edges& edge_;
    const bool is_all_, has_mask_;
};

} // namespace cusz::cuda
