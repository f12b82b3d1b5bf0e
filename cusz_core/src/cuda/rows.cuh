// The codes of one tile, read by a warp row by row as their symbols come, so that no tile is kept in memory. For the
// tile shapes that nearly all fields have; lorenzo_rows.cuh turns the codes into values.
#pragma once

#include "coded_runs.cuh"
#include "payload_reader.cuh"

namespace cusz::cuda {

// The codes of a tile, chunk by chunk.
template <TileShape shape, class Coder, class T>
class RowReader {
public:
    __device__ RowReader(typename Coder::Decoder& decoder, const typename Coder::Model::Reading& model,
                         const CodedRuns<shape>& coded, const Outliers<T>& out_of_range, std::uint32_t n_coded,
                         const Edges& edge, RowMemory<T, shape>& memory)
        : decoder_(decoder), model_(model), coded_(coded), out_of_range_(out_of_range), edge_(edge), memory_(memory),
          n_coded_(n_coded) {}

    // A code, or that there is none as a value is missing.
    struct Code {
        typename Traits<T>::Bits bits;
        bool missing;
    };
    // This lane's code in the next chunk: x of row (y, z).
    __device__ Code next(std::uint32_t x, std::uint32_t y, std::uint32_t z) {
        const std::uint32_t first = x * warp_lanes, here = std::min(edge_[0] - first, +warp_lanes);
        const bool is_coded = coded_.is_coded(x, y, z) && lane() < here;
        const std::uint32_t lanes = __ballot_sync(whole_warp, is_coded);
        const std::uint32_t end = rank_ + static_cast<std::uint32_t>(__popc(lanes));
        while (decoded_ < end) decode();
        __syncwarp();
        Code code{0, false};
        if (is_coded) {
            const std::uint32_t before = static_cast<std::uint32_t>(__popc(lanes & ((1u << lane()) - 1)));
            const std::int32_t decoded = memory_.code[(rank_ + before) % codes_ahead];
            code.missing = decoded == missing_code;
            code.bits = code.missing ? 0 : static_cast<typename Traits<T>::Bits>(decoded);
        }
        rank_ = end;
        position_ += here;
        out_of_range_.before(position_, [&](std::uint32_t at, typename Traits<T>::Bits bits) {
            if (lane() == at - (position_ - here)) code.bits = code.missing ? 0 : bits;
        });
        __syncwarp(); // all have their codes
        return code;
    }

private:
    // One code of every substream.
    __device__ void decode() {
        if (lane() < decoder_.count() && decoded_ + lane() < n_coded_) {
            const std::int32_t code = decoder_.reader.next(model_);
            memory_.code[(decoded_ + lane()) % codes_ahead] = decoder_.reader.is_missing() ? missing_code : code;
        }
        decoded_ += decoder_.count();
    }

    typename Coder::Decoder& decoder_;
    const typename Coder::Model::Reading& model_;
    const CodedRuns<shape>& coded_;
    Outliers<T> out_of_range_;
    const Edges& edge_;
    RowMemory<T, shape>& memory_;
    const std::uint32_t n_coded_;
    std::uint32_t rank_ = 0, decoded_ = 0, position_ = 0;
};

} // namespace cusz::cuda
