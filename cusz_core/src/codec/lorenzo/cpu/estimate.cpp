#include "estimate.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "archive/v1.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/lorenzo/codebook.hpp"
#include "codec/lorenzo/sample.hpp"

namespace cusz::cpu {

namespace {

// Total bits of an optimal code's codewords, without a length limit: the sum of the weights of its tree's inner nodes.
std::uint64_t codeword_bits(std::vector<std::uint64_t> weights) {
    std::erase(weights, 0);
    if (weights.size() < 2) return weights.empty() ? 0 : weights[0];
    std::ranges::sort(weights);
    std::size_t leaf = 0, sum = 0, n_sums = 0; // sums overwrite leaves that are merged
    const auto least = [&] {
        const bool is_leaf = sum == n_sums || (leaf < weights.size() && weights[leaf] <= weights[sum]);
        return weights[is_leaf ? leaf++ : sum++];
    };
    std::uint64_t bits = 0;
    while (n_sums + 1 < weights.size()) {
        const std::uint64_t first = least(), both = first + least();
        bits += weights[n_sums++] = both;
    }
    return bits;
}

} // namespace

template <class T>
std::uint64_t estimated_lorenzo_bytes(const Layout& field, const Coding& coding, const Layout& box, const T* boxes,
                                      std::uint64_t n, std::uint64_t enough, Tile<T>& tile) {
    const auto bytes = [&, part = std::max<std::uint64_t>(n * box.values, 1)](std::uint64_t of_boxes) {
        return std::min(v1::header_bytes + codebook_bytes(coding.r) + scaled(of_boxes, field.values, part) / 8,
                        field.bytes() + raw_header_bytes);
    };
    if (const std::uint64_t least = bytes(0); least > enough) return least;
    const Tiling tiling(box.ndim, box.shape.data());
    Quantiser<T> q = Quantiser<T>::from_bound(coding.eb_abs);
    q.special = static_cast<typename Traits<T>::Bits>(coding.special);
    const Alphabet alphabet(coding.r);
    Histogram histogram(coding.r);
    std::uint64_t bits = 0, codes = 0; // each code takes at least one bit
    for (std::uint64_t j = 0; j < n; ++j, boxes += box.values)
        for (std::uint64_t t = 0; t < tiling.n_tiles(); ++t) {
            const TileBox place = tiling.box(t);
            tile.begin(place, place);
            const PreparedTile prepared = kernels().lorenzo<T>().prepare(tiling, q, alphabet.reach(), boxes, tile);
            // Entry of the index, header, about 6 bits for the length of each substream of 64 values or more.
            bits += 16 + 32 + 32 * std::uint64_t{prepared.front_words + prepared.back_words} + prepared.n / 64 * 6;
            codes += prepared.n;
            if (const std::uint64_t least = bytes(bits + codes); least > enough) return least;
            histogram.add(prepared.code, prepared.n);
        }
    std::vector<std::uint64_t> weights = histogram.weights(Sample(1, coding.r));
    for (std::uint32_t s = 0; s < alphabet.size(); ++s)
        if (weights[s] > 0) bits += weights[s] * alphabet.meaning(s).extra_bits;
    bits += codeword_bits(std::move(weights));
    return bytes(bits);
}

template std::uint64_t estimated_lorenzo_bytes<float>(const Layout&, const Coding&, const Layout&, const float*,
                                                      std::uint64_t, std::uint64_t, Tile<float>&);
template std::uint64_t estimated_lorenzo_bytes<double>(const Layout&, const Coding&, const Layout&, const double*,
                                                       std::uint64_t, std::uint64_t, Tile<double>&);

} // namespace cusz::cpu
