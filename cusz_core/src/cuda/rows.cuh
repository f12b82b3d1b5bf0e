// The codes of one tile, read by a warp row by row as their symbols come, so that no tile is kept in memory. For the
// tile shapes that nearly all fields have; lorenzo_rows.cuh turns the codes into values.
#pragma once

#include "payload_reader.cuh"
#include "significance.cuh"

namespace cusz::cuda {

// A tile is read in chunks of 32 positions along x, lane by lane. 32 runs of chunks, one to a lane, have 16 subgroups
// each along x: of a box two rows in two planes, of a square two rows, of a line 128 values.
template <TileShape shape>
struct Chunks {
    static constexpr std::uint32_t of_row = shape == TileShape::line ? 128 : shape == TileShape::square ? 2 : 1;
    static constexpr std::uint32_t lanes_of_subgroup = shape == TileShape::line ? 8 : shape == TileShape::square ? 4 : 2;
    static constexpr std::uint32_t subgroups_of_chunk = warp_lanes / lanes_of_subgroup;
    // The run of chunk x of row (y, z), and which of its subgroups is the chunk's first.
    __device__ static std::uint32_t run(std::uint32_t x, std::uint32_t y, std::uint32_t z) {
        return shape == TileShape::line ? x / 4 : shape == TileShape::square ? y / 2 : z / 2 * 8 + y / 2;
    }
    __device__ static std::uint32_t first_subgroup(std::uint32_t x) { return x * subgroups_of_chunk % 16; }
};

// Which values of a tile are coded: for this lane's run of chunks a bit for each subgroup.
template <TileShape shape>
class CodedRuns {
    using C = Chunks<shape>;

public:
    __device__ explicit CodedRuns(const Edges& edge) : edge_(edge) {
        const std::uint32_t i = lane(), x0 = shape == TileShape::line ? i * 16 : 0; // its first subgroup along x
        const std::uint32_t along_x = (edge[0] + C::lanes_of_subgroup - 1) / C::lanes_of_subgroup;
        here_ = x0 < along_x ? std::min(along_x - x0, 16u) : 0;
        clipped_ = along_x * C::lanes_of_subgroup - edge[0];
        last_is_here_ = x0 + here_ == along_x;
        rows_ = 1;
        if (shape == TileShape::square) rows_ = rows_of(2 * i, edge[1]);
        if (shape == TileShape::box) rows_ = rows_of(i % 8 * 2, edge[1]) * rows_of(i / 8 * 2, edge[2]);
        if (rows_ == 0) here_ = 0;
        bits_ = (1u << here_) - 1;
    }
    __device__ void none() { bits_ = 0; }
    __device__ std::uint32_t groups() const { // in the tile
        if (shape == TileShape::line) return (edge_[0] + 63) / 64;
        if (shape == TileShape::square) return (edge_[0] + 7) / 8 * ((edge_[1] + 7) / 8);
        return (edge_[0] + 3) / 4 * ((edge_[1] + 3) / 4) * ((edge_[2] + 3) / 4);
    }
    // From the mask of groups. Returns how many of the subgroups of this lane are in significant ones.
    __device__ std::uint32_t take(std::uint64_t groups) {
        const std::uint32_t i = lane();
        std::uint32_t first = 0; // group of the run
        if (shape == TileShape::line) first = i * 2;
        if (shape == TileShape::square) first = i / 4 * ((edge_[0] + 7) / 8);
        if (shape == TileShape::box) first = (i / 16 * ((edge_[1] + 3) / 4) + i % 8 / 2) * ((edge_[0] + 3) / 4);
        const auto own = here_ > 0 ? static_cast<std::uint32_t>(groups >> first) : 0u;
        constexpr std::uint32_t subgroups_of_group = shape == TileShape::line ? 8 : 2;
        std::uint32_t bits = 0;
        for (std::uint32_t g = 0; g < 16 / subgroups_of_group; ++g)
            bits |= (own >> g & 1) * ((1u << subgroups_of_group) - 1) << g * subgroups_of_group;
        bits_ &= bits;
        return static_cast<std::uint32_t>(__popc(bits_));
    }
    // Of these subgroups only those with a bit in `significant`, in order.
    __device__ void keep(std::uint32_t significant) {
        std::uint32_t kept = 0;
        for (std::uint32_t s = 0; s < 16; ++s)
            if ((bits_ >> s & 1) != 0) {
                kept |= (significant & 1) << s;
                significant >>= 1;
            }
        bits_ = kept;
    }
    // Values coded in the tile; to every lane.
    __device__ std::uint32_t values() const {
        std::uint32_t in_row = static_cast<std::uint32_t>(__popc(bits_)) * C::lanes_of_subgroup;
        if (last_is_here_ && here_ > 0 && (bits_ >> (here_ - 1) & 1) != 0) in_row -= clipped_;
        return warp_sum(rows_ * in_row);
    }
    // Whether this lane's value of a chunk is coded, if it is in the tile.
    __device__ bool is_coded(std::uint32_t x, std::uint32_t y, std::uint32_t z) const {
        const std::uint32_t bits = __shfl_sync(whole_warp, bits_, static_cast<int>(C::run(x, y, z)));
        return (bits >> (C::first_subgroup(x) + lane() / C::lanes_of_subgroup) & 1) != 0;
    }

private:
    __device__ static std::uint32_t rows_of(std::uint32_t first, std::uint32_t edge) {
        return first < edge ? std::min(edge - first, 2u) : 0;
    }

    const Edges& edge_;
    std::uint32_t here_, clipped_, rows_, bits_;
    bool last_is_here_;
};

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
