#include "estimate.hpp"

#include <algorithm>

#include "archive/v1.hpp"
#include "codec/cpu/kernels.hpp"
#include "codec/cpu/parallel.hpp"
#include "codec/lorenzo/codebook.hpp"
#include "codec/lorenzo/sample.hpp"

namespace cusz::cpu {

template <class T>
std::uint64_t estimated_lorenzo_bytes(const Layout& layout, const Coding& coding, const BoxReader& read,
                                      std::uint64_t n, std::vector<std::unique_ptr<Tile<T>>>& tiles) {
    const Tiling tiling(layout.ndim, layout.shape.data());
    Quantiser<T> q = Quantiser<T>::from_bound(coding.eb_abs);
    q.special = static_cast<typename Traits<T>::Bits>(coding.special);
    const TileCoder<T> coder{tiling, q};
    const Alphabet alphabet(coding.r);
    struct Seen {
        Histogram histogram;
        std::uint64_t bits = 0, values = 0;
    };
    const auto threads = static_cast<int>(tiles.size());
    std::vector<Seen> seen(tiles.size(), {Histogram(coding.r)}); // by thread
    std::vector<TileBox> boxes;
    n = std::min(n, tiling.n_tiles());
    boxes.reserve(static_cast<std::size_t>(n));
    for (std::uint64_t j = 0; j < n; ++j) boxes.push_back(tiling.box(sampled(j, n, tiling.n_tiles())));
    const auto* const values = static_cast<const T*>(read(boxes).first);
    const Parts shared(boxes.size(), threads);
    parallel(threads, shared.number, [&](std::uint64_t part, int thread) {
        auto& tile = tiles[static_cast<std::size_t>(thread)];
        if (!tile) tile = std::make_unique<Tile<T>>();
        auto& [histogram, bits, n_values] = seen[static_cast<std::size_t>(thread)];
        const auto [begin, end] = shared[part];
        for (std::uint64_t j = begin; j < end; ++j) {
            tile->begin(boxes[j], boxes[std::min<std::size_t>(j + prefetch_distance, boxes.size() - 1)]);
            const PreparedTile prepared = kernels().lorenzo.of<T>().prepare(coder, alphabet.reach(), values, *tile);
            histogram.add(prepared.code, prepared.n);
            // Entry of the index, header, about 6 bits for the length of each substream of 64 values or more.
            bits += 16 + 32 + 32 * std::uint64_t{prepared.front_words + prepared.back_words} + prepared.n / 64 * 6;
            n_values += tile->n_values();
        }
    });
    for (std::size_t i = 1; i < seen.size(); ++i) {
        seen[0].histogram.add(seen[i].histogram);
        seen[0].bits += seen[i].bits;
        seen[0].values += seen[i].values;
    }
    auto& [histogram, bits, n_values] = seen[0];
    const std::vector<std::uint64_t> weights = histogram.weights(Sample(1, coding.r));
    const std::vector<std::uint8_t> lengths = code_lengths(weights, alphabet);
    for (std::uint32_t s = 0; s < alphabet.size(); ++s)
        bits += weights[s] * (lengths[s] + alphabet.meaning(s).extra_bits);
    return std::min(v1::header_bytes + codebook_bytes(coding.r) + scaled(bits, layout.values, n_values) / 8,
                    layout.bytes() + raw_header_bytes);
}

template std::uint64_t estimated_lorenzo_bytes<float>(const Layout&, const Coding&, const BoxReader&, std::uint64_t,
                                                      std::vector<std::unique_ptr<Tile<float>>>&);
template std::uint64_t estimated_lorenzo_bytes<double>(const Layout&, const Coding&, const BoxReader&, std::uint64_t,
                                                       std::vector<std::unique_ptr<Tile<double>>>&);

} // namespace cusz::cpu
