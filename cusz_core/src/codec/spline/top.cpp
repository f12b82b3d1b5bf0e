#include "top.hpp"

#include <algorithm>

#include "archive/alphabet.hpp"
#include "archive/header.hpp"
#include "archive/quantiser.hpp"
#include "errors.hpp"

namespace cusz::spline {

namespace {

// How the top of a pyramid is coded.
Coding coding_of_top(const Layout& layout, const Coding& coding, const Pyramid& pyramid) {
    Coding plain;
    plain.has_fill = coding.has_fill;
    plain.special = coding.special;
    plain.r = default_r;
    const double divisor = coding.spline.divisor(pyramid.n_coded());
    plain.eb = layout.dtype == CUSZ_F32
                   ? static_cast<double>(quantiser_of(static_cast<float>(coding.step / 2), divisor).e)
                   : quantiser_of(coding.step / 2, divisor).e;
    return plain;
}

} // namespace

Top TopCoder::write(const Layout& layout, const Coding& coding, const Pyramid& pyramid,
                    const std::function<void(void* values)>& gather) {
    const Extents shape = pyramid.top_shape();
    const Layout of_top(layout.dtype, CUSZ_MAX_NDIM, shape.data());
    const auto bytes = static_cast<std::size_t>(of_top.bytes());
    void* const values = values_.reserve(bytes);
    gather(values);
    Top top;
    top.section.resize(8 + (bytes + raw_header_bytes + 3) / 4 * 4);
    const Workers one{cpu_, cpu_, scratch_, 1};
    std::byte* const archive = top.section.data() + 8;
    const std::size_t size = write_archive(one, of_top, coding_of_top(layout, coding, pyramid), {values}, {archive});
    put(top.section.data(), 0, std::uint64_t{size});
    top.section.resize(8 + (size + 3) / 4 * 4);
    std::fill(top.section.begin() + 8 + static_cast<std::ptrdiff_t>(size), top.section.end(), std::byte{0});
    const Frame frame = parse(top.section.data() + 8, top.section.data() + 8, size);
    read_archive(one, frame, {frame.body}, {values}); // what a reader will have
    top.values = values;
    return top;
}

Top TopCoder::read(const Frame& frame, const Pyramid& pyramid,
                   const std::function<void(void* to, std::size_t from, std::size_t bytes)>& copy) {
    const std::uint64_t index_bytes = (pyramid.n_tiles + 1) / 2 * 4, most = frame.coding.body_bytes - 8 - index_bytes;
    Top top;
    // Most are short: one copy is then enough.
    top.section.resize(static_cast<std::size_t>(std::min<std::uint64_t>(8 + most, 4096)));
    copy(top.section.data(), 0, top.section.size());
    const auto size = get<std::uint64_t>(top.section.data(), 0);
    if (size < raw_header_bytes || size > most || (size + 3) / 4 * 4 > most)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: a pyramid's top of ", size, " bytes");
    const std::size_t here = top.section.size();
    top.section.resize(static_cast<std::size_t>(8 + (size + 3) / 4 * 4));
    if (top.section.size() > here) copy(top.section.data() + here, here, top.section.size() - here);
    for (std::size_t i = 8 + size; i < top.section.size(); ++i)
        if (top.section[i] != std::byte{0})
            fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the padding of the top is not 0");
    if (get<std::uint8_t>(top.section.data() + 8, version_at) != 1)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the pyramid's top is not of version 1");
    const Frame of_top = parse(top.section.data() + 8, top.section.data() + 8, size);
    const Extents shape = pyramid.top_shape();
    const Coding expected = coding_of_top(frame.layout, frame.coding, pyramid);
    const Coding& given = of_top.coding;
    const bool fits = of_top.layout.dtype == frame.layout.dtype && of_top.layout.ndim == CUSZ_MAX_NDIM &&
                      of_top.layout.shape == shape &&
                      (of_top.kind == CUSZ_KIND_RAW ||
                       (given.lossless == CUSZ_LOSSLESS_NONE && given.mode == CUSZ_ABS && given.r == default_r &&
                        given.has_fill == expected.has_fill && given.special == expected.special &&
                        given.eb == expected.eb && given.eb_abs == expected.eb && given.step == 2 * expected.eb));
    if (!fits) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the pyramid's top is not that of this field");
    void* const values = values_.reserve(static_cast<std::size_t>(of_top.layout.bytes()));
    read_archive({cpu_, cpu_, scratch_, 1}, of_top, {of_top.body}, {values});
    top.values = values;
    return top;
}

} // namespace cusz::spline
