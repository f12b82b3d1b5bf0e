#include "estimate.hpp"

#include <algorithm>
#include <vector>

#include "archive/v1.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/lorenzo/codebook.hpp"
#include "codec/lorenzo/sample.hpp"

namespace cusz::cpu {

namespace {

// Bits of all codewords of an optimal code, of any lengths: the sum of all weights of its tree but those of its leaves.
std::uint64_t codeword_bits(std::vector<std::uint64_t> weights) {
    std::erase(weights, 0);
    if (weights.size() < 2) return weights.empty() ? 0 : weights[0];
    std::ranges::sort(weights);
    std::vector<std::uint64_t> sums;
    std::size_t leaf = 0, sum = 0;
    const auto least = [&] {
        const bool is_leaf = sum == sums.size() || (leaf < weights.size() && weights[leaf] <= sums[sum]);
        return is_leaf ? weights[leaf++] : sums[sum++];
    };
    std::uint64_t bits = 0;
    while (sums.size() + 1 < weights.size()) {
        const std::uint64_t first = least();
        sums.push_back(first + least());
        bits += sums.back();
    }
    return bits;
}

} // namespace

template <class T>
std::uint64_t estimated_lorenzo_bytes(const Layout& field, const Coding& coding, const Layout& box, const T* boxes,
                                      std::uint64_t n, Tile<T>& tile) {
    const Tiling tiling(box.ndim, box.shape.data());
    Quantiser<T> q = Quantiser<T>::from_bound(coding.eb_abs);
    q.special = static_cast<typename Traits<T>::Bits>(coding.special);
    const Alphabet alphabet(coding.r);
    Histogram histogram(coding.r);
    std::uint64_t bits = 0;
    for (std::uint64_t j = 0; j < n; ++j, boxes += box.values)
        for (std::uint64_t t = 0; t < tiling.n_tiles(); ++t) {
            const TileBox place = tiling.box(t);
            tile.begin(place, place);
            const PreparedTile prepared = kernels().lorenzo<T>().prepare(tiling, q, alphabet.reach(), boxes, tile);
            histogram.add(prepared.code, prepared.n);
            // Entry of the index, header, about 6 bits for the length of each substream of 64 values or more.
            bits += 16 + 32 + 32 * std::uint64_t{prepared.front_words + prepared.back_words} + prepared.n / 64 * 6;
        }
    const std::vector<std::uint64_t> weights = histogram.weights(Sample(1, coding.r));
    bits += codeword_bits(weights);
    for (std::uint32_t s = 0; s < alphabet.size(); ++s) bits += weights[s] * alphabet.meaning(s).extra_bits;
    return std::min(v1::header_bytes + codebook_bytes(coding.r) +
                        scaled(bits, field.values, std::max<std::uint64_t>(n * box.values, 1)) / 8,
                    field.bytes() + raw_header_bytes);
}

template std::uint64_t estimated_lorenzo_bytes<float>(const Layout&, const Coding&, const Layout&, const float*,
                                                      std::uint64_t, Tile<float>&);
template std::uint64_t estimated_lorenzo_bytes<double>(const Layout&, const Coding&, const Layout&, const double*,
                                                       std::uint64_t, Tile<double>&);

} // namespace cusz::cpu
