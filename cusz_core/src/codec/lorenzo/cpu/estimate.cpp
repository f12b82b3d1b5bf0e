#include "estimate.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "archive/v1.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/cpu/parallel.hpp"
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
                                      std::uint64_t n, std::uint64_t enough, int threads, std::vector<Tile<T>>& tiles) {
    const auto bytes = [&, part = std::max<std::uint64_t>(n * box.values, 1)](std::uint64_t of_boxes) {
        return std::min(v1::header_bytes + codebook_bytes(coding.r) + scaled(of_boxes, field.values, part) / 8,
                        field.bytes() + raw_header_bytes);
    };
    if (const std::uint64_t least = bytes(0); least > enough) return least;
    const Tiling tiling(box.ndim, box.shape.data());
    Quantiser<T> q = Quantiser<T>::from_bound(coding.eb_abs);
    q.special = static_cast<typename Traits<T>::Bits>(coding.special);
    const Alphabet alphabet(coding.r);
    const auto n_threads = static_cast<std::size_t>(threads);
    if (tiles.size() < n_threads) tiles.resize(n_threads);
    std::vector<Histogram> histograms(n_threads, Histogram(coding.r));
    struct OfTile {
        std::uint64_t bits, codes; // without the codes' own bits; each code takes at least one
    };
    const auto prepare = [&](std::uint64_t number, int thread) -> OfTile {
        Tile<T>& tile = tiles[static_cast<std::size_t>(thread)];
        const TileBox place = tiling.box(number % tiling.n_tiles());
        tile.begin(place, place);
        const PreparedTile prepared = kernels().lorenzo<T>().prepare(
            tiling, q, alphabet.reach(), boxes + number / tiling.n_tiles() * box.values, tile);
        histograms[static_cast<std::size_t>(thread)].add(prepared.code, prepared.n);
        // Entry of the index, header, about 6 bits for the length of each substream of 64 values or more.
        return {16 + 32 + 32 * std::uint64_t{prepared.front_words + prepared.back_words} + prepared.n / 64 * 6,
                prepared.n};
    };
    // Several threads prepare all tiles before the first is looked at; a single one stops when it has enough.
    const std::uint64_t n_tiles = n * tiling.n_tiles();
    std::vector<OfTile> prepared(threads > 1 ? static_cast<std::size_t>(n_tiles) : 0);
    if (threads > 1)
        parallel(threads, n_tiles, [&](std::uint64_t number, int thread) {
            prepared[static_cast<std::size_t>(number)] = prepare(number, thread);
        });
    std::uint64_t bits = 0, codes = 0;
    for (std::uint64_t number = 0; number < n_tiles; ++number) {
        const OfTile of = threads > 1 ? prepared[static_cast<std::size_t>(number)] : prepare(number, 0);
        bits += of.bits;
        codes += of.codes;
        if (const std::uint64_t least = bytes(bits + codes); least > enough) return least;
    }
    for (std::size_t thread = 1; thread < n_threads; ++thread) histograms[0].add(histograms[thread]);
    std::vector<std::uint64_t> weights = histograms[0].weights(Sample(1, coding.r));
    for (std::uint32_t s = 0; s < alphabet.size(); ++s)
        if (weights[s] > 0) bits += weights[s] * alphabet.meaning(s).extra_bits;
    bits += codeword_bits(std::move(weights));
    return bytes(bits);
}

template std::uint64_t estimated_lorenzo_bytes<float>(const Layout&, const Coding&, const Layout&, const float*,
                                                      std::uint64_t, std::uint64_t, int, std::vector<Tile<float>>&);
template std::uint64_t estimated_lorenzo_bytes<double>(const Layout&, const Coding&, const Layout&, const double*,
                                                       std::uint64_t, std::uint64_t, int, std::vector<Tile<double>>&);

} // namespace cusz::cpu
