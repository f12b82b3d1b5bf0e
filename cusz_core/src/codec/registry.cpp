// The table of codecs.
#include <algorithm>
#include <iterator>

#include "archive/v1.hpp"
#include "archive/v2/frame.hpp"
#include "codec.hpp"
#include "errors.hpp"
#include "lorenzo/codec.hpp"
#include "spline/codec.hpp"

namespace cusz {

namespace {

#ifdef CUSZ_HAVE_CUDA
#define CUSZ_ON_DEVICE(make) make
#else
#define CUSZ_ON_DEVICE(make) nullptr
#endif

constexpr Codec table[] = {
    {
        .version = 2,
        .predictor = CUSZ_PREDICTOR_SPLINE,
        .coder = CUSZ_CODER_RANS,
        .is_compact = true,
        .chooses = true,
        .header_bytes = 0,
        .max_model_bytes = v2::max_front_bytes + 4 + v2::interpolation_bytes + v2::max_packed_length_bytes,
        .model_bytes = nullptr,
        .read_header = nullptr,
        .write_header = nullptr,
        .tiles = spline::tiles,
        .on_cpu = spline::on_cpu,
        .on_device = CUSZ_ON_DEVICE(spline::on_device),
    },
    {
        .version = 1,
        .predictor = CUSZ_PREDICTOR_LORENZO,
        .coder = CUSZ_CODER_HUFFMAN,
        .chooses = false,
        .header_bytes = v1::header_bytes,
        .max_model_bytes = v1::max_model_bytes,
        .model_bytes = v1::model_bytes,
        .read_header = v1::read_header,
        .write_header = v1::write_header,
        .tiles = lorenzo::tiles,
        .on_cpu = lorenzo::on_cpu,
        .on_device = CUSZ_ON_DEVICE(lorenzo::on_device),
    },
};

} // namespace

bool Engine::encode_together(const Coding&, bool, std::span<FieldToEncode>) { return false; }

Advice HostEngine::choose(const Layout&, Coding&, const BoxReader&, int) { return {}; }

void HostEngine::decode_lattice(const Prefix&, int, std::size_t, const Selection&) {
    fail(CUSZ_ERROR_INTERNAL, "a codec without lattices was asked for one");
}

std::size_t Codec::number() const { return static_cast<std::size_t>(this - table); }

std::span<const Codec> codecs() { return table; }

std::vector<const Codec*> codecs_for(cusz_predictor predictor) {
    std::vector<const Codec*> wanted;
    for (const Codec& codec : table)
        if (predictor == CUSZ_PREDICTOR_AUTO || codec.predictor == predictor) wanted.push_back(&codec);
    if (wanted.empty()) fail(CUSZ_ERROR_UNSUPPORTED, "no codec has predictor ", static_cast<int>(predictor));
    if (const Codec* const last = std::prev(std::end(table)); wanted.back() != last) wanted.push_back(last);
    return wanted;
}

const Codec& compact_codec() { return *std::ranges::find(table, true, &Codec::is_compact); }

const Codec& codec_of(std::uint32_t version, unsigned predictor, unsigned coder) {
    for (const Codec& codec : table)
        if (!codec.is_compact && codec.version == version && static_cast<unsigned>(codec.predictor) == predictor &&
            static_cast<unsigned>(codec.coder) == coder)
            return codec;
    fail(CUSZ_ERROR_CORRUPT, "corrupt archive: no codec has format version ", version, ", predictor family ", predictor,
         " and entropy coder ", coder);
}

} // namespace cusz
