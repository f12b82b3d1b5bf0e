#include "codebook.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "errors.hpp"

namespace cusz {

std::vector<std::uint8_t> code_lengths(const std::vector<std::uint64_t>& weights, const Alphabet& alphabet) {
    std::vector<std::uint8_t> lengths(weights.size(), 0);
    std::vector<std::uint32_t> leaves;
    for (std::uint32_t s = 0; s < weights.size(); ++s)
        if (weights[s] > 0) leaves.push_back(s);
    const std::size_t n = leaves.size();
    if (n <= 1) {
        for (const std::uint32_t s : leaves) lengths[s] = 1;
        return lengths;
    }
    std::stable_sort(leaves.begin(), leaves.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return weights[a] < weights[b]; });

    // Each list holds at most n leaves and n - 1 sums. Only their order matters later.
    const auto limit = static_cast<std::size_t>(alphabet.limit());
    std::vector<std::uint64_t> list, next;
    std::vector<std::vector<bool>> is_leaf(limit);
    for (const std::uint32_t s : leaves) list.push_back(weights[s]);
    is_leaf[0].assign(n, true);
    for (std::size_t i = 1; i < limit; ++i) {
        next.clear();
        const std::size_t n_sums = list.size() / 2;
        for (std::size_t leaf = 0, sum = 0; leaf < n || sum < n_sums;) {
            const std::uint64_t pair = sum < n_sums ? list[2 * sum] + list[2 * sum + 1] : 0;
            const bool take_leaf = sum == n_sums || (leaf < n && weights[leaves[leaf]] <= pair);
            next.push_back(take_leaf ? weights[leaves[leaf]] : pair);
            is_leaf[i].push_back(take_leaf);
            ++(take_leaf ? leaf : sum);
        }
        list.swap(next);
    }

    for (std::size_t i = limit, take = 2 * n - 2; i-- > 0;) {
        std::size_t n_leaves = 0;
        for (std::size_t item = 0; item < take; ++item) n_leaves += is_leaf[i][item];
        for (std::size_t leaf = 0; leaf < n_leaves; ++leaf) ++lengths[leaves[leaf]];
        take = 2 * (take - n_leaves);
    }
    return lengths;
}

std::vector<std::uint8_t> read_lengths(const void* section, const Alphabet& alphabet) {
    const auto* nibbles = static_cast<const std::uint8_t*>(section);
    std::vector<std::uint8_t> lengths(alphabet.size());
    std::uint64_t kraft = 0; // in units of 2^-limit
    std::uint32_t n_codewords = 0;
    for (std::uint32_t s = 0; s < alphabet.size(); ++s) {
        const unsigned length = (nibbles[s / 2] >> (4 * (s % 2))) & 15u;
        if (length > static_cast<unsigned>(alphabet.limit()))
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: codeword of ", length, " bits; the limit is ", alphabet.limit());
        lengths[s] = static_cast<std::uint8_t>(length);
        if (length == 0) continue;
        kraft += 1u << (static_cast<unsigned>(alphabet.limit()) - length);
        ++n_codewords;
    }
    for (std::size_t s = alphabet.size(); s < 2 * codebook_bytes(alphabet.r); ++s)
        if ((nibbles[s / 2] >> (4 * (s % 2)) & 15) != 0)
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the codebook has lengths after its last symbol");
    // A complete code gives every bit pattern a meaning, so the decoder needs no check per symbol.
    const std::uint64_t complete = std::uint64_t{1} << alphabet.limit();
    if (kraft != complete && n_codewords != 0 && !(n_codewords == 1 && kraft == complete / 2))
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the codebook's ", n_codewords,
             " lengths do not form a complete code");
    return lengths;
}

void write_lengths(void* section, const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet) {
    auto* nibbles = static_cast<std::uint8_t*>(section);
    std::memset(nibbles, 0, codebook_bytes(alphabet.r));
    for (std::size_t s = 0; s < lengths.size(); ++s)
        nibbles[s / 2] = static_cast<std::uint8_t>(nibbles[s / 2] | lengths[s] << (4 * (s % 2)));
}

std::vector<std::uint32_t> canonical_codewords(const std::vector<std::uint8_t>& lengths) {
    std::array<std::uint32_t, 17> count{}, first{};
    for (const std::uint8_t length : lengths) ++count[length];
    count[0] = 0;
    for (std::size_t l = 1; l < 17; ++l) first[l] = (first[l - 1] + count[l - 1]) << 1;
    std::vector<std::uint32_t> codewords(lengths.size(), 0);
    for (std::size_t s = 0; s < lengths.size(); ++s) {
        if (lengths[s] == 0) continue;
        std::uint32_t codeword = first[lengths[s]]++;
        for (unsigned bit = 0; bit < lengths[s]; ++bit, codeword >>= 1)
            codewords[s] = codewords[s] << 1 | (codeword & 1);
    }
    return codewords;
}

EncodeBook::EncodeBook(const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet)
    : alphabet_(alphabet), span_(std::max(512u, alphabet.direct())), reach_(alphabet.reach()) {
    const std::vector<std::uint32_t> codewords = canonical_codewords(lengths);
    for (std::size_t s = 0; s < lengths.size(); ++s) codewords_.push_back({codewords[s], lengths[s]});
    if (alphabet.r == default_r) { // codes beyond the escape need their own symbols
        const auto beyond = lengths.begin() + alphabet.symbol(static_cast<std::int32_t>(alphabet.escape_reach()));
        if (std::count(beyond, lengths.begin() + alphabet.escape(0), 0) > 0) reach_ = alphabet.escape_reach();
    }

    const std::size_t places =
        first_bucket_place() + bucket_place(static_cast<std::uint32_t>(alphabet.top_octave()) - 1, -8);
    bits_.resize(places, 0);
    lengths_.resize(places, no_entry);
    extra_bits_.resize(places, 0);
    for (std::uint32_t place = 0; place < 2 * span_; ++place) {
        const auto code = static_cast<std::int32_t>(place - span_);
        if (lengths[alphabet.symbol(code)] == 0) continue;
        const Entry entry = compose(code);
        bits_[place] = entry.bits;
        lengths_[place] = entry.length;
        longest_of_small_ = std::max(longest_of_small_, entry.length);
    }
    if (lengths[alphabet.missing()] > 0) {
        bits_[missing_place()] = codewords[alphabet.missing()];
        lengths_[missing_place()] = lengths[alphabet.missing()];
    }
    for (std::uint32_t symbol = 2 * alphabet.direct(); symbol < alphabet.escape(0); ++symbol) {
        if (lengths[symbol] == 0) continue;
        const Alphabet::Meaning m = alphabet.meaning(symbol);
        const std::size_t place = first_bucket_place() + bucket_place(m.extra_bits, m.leading);
        bits_[place] = codewords[symbol];
        lengths_[place] = lengths[symbol];
        extra_bits_[place] = static_cast<std::uint8_t>(m.extra_bits);
    }
    words_.resize(places);
    for (std::size_t place = 0; place < places; ++place) words_[place] = bits_[place] << 8 | lengths_[place];
}

EncodeBook::Entry EncodeBook::compose(std::int32_t code) const {
    std::uint32_t symbol = alphabet_.symbol(code);
    if (codewords_[symbol].length == 0) symbol = alphabet_.escape(code);
    const std::uint32_t extra_bits = alphabet_.meaning(symbol).extra_bits;
    const std::uint32_t extra = static_cast<std::uint32_t>(code) & ((1u << extra_bits) - 1);
    return {codewords_[symbol].bits | extra << codewords_[symbol].length, codewords_[symbol].length + extra_bits};
}

DecodeBook::DecodeBook(const std::vector<std::uint8_t>& lengths, const Alphabet& alphabet)
    : width_(*std::max_element(lengths.begin(), lengths.end())) {
    const std::vector<std::uint32_t> codewords = canonical_codewords(lengths);
    table_.resize(std::size_t{1} << width_);
    for (std::uint32_t s = 0; s < lengths.size(); ++s) {
        if (lengths[s] == 0) continue;
        empty_ = false;
        const Alphabet::Meaning m = alphabet.meaning(s);
        const Entry entry = Entry::of(lengths[s], m);
        for (std::size_t pattern = codewords[s]; pattern < table_.size(); pattern += std::size_t{1} << lengths[s])
            table_[pattern] = entry;
    }
    // A single codeword: either bit means its symbol, so that every pattern has a meaning.
    if (!empty_ && width_ == 1 && std::count(lengths.begin(), lengths.end(), 1) == 1) table_[1] = table_[0];
}

} // namespace cusz
