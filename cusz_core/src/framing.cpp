#include "framing.hpp"

#include <cstring>

#include "errors.hpp"
#include "format/v1.hpp"
#include "lossless.hpp"

namespace cusz {

namespace {

void check_pieces(Backend& backend, const Frame& frame, const Source& body, int threads, const Target& target) {
    if (backend.piece_checksum(body, frame.body_stored_bytes, threads, target) != frame.payload_checksum)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
}

std::size_t write_raw(const Workers& workers, const Layout& layout, const Source& field, const Target& archive) {
    const std::uint32_t checksum =
        workers.backend.piece_checksum(field, layout.bytes(), workers.threads, archive.at(raw_header_bytes));
    std::byte header[raw_header_bytes];
    write_raw_header(header, layout, checksum);
    workers.backend.copy(archive.pointer, header, sizeof header);
    return raw_header_bytes + static_cast<std::size_t>(layout.bytes());
}

// Replaces the body with its zstd frame if that is smaller.
void pack(const Workers& workers, Encoded& encoded, const Target& body) {
    const auto bytes = static_cast<std::size_t>(encoded.coding.body_bytes);
    void* const packed = workers.unpacked.reserve(bytes);
    const std::size_t stored = zstd_pack(body.pointer, bytes, packed, bytes);
    if (stored == 0) return;
    encoded.coding.lossless = CUSZ_LOSSLESS_ZSTD;
    encoded.coding.stored_bytes = stored;
    encoded.payload_checksum = workers.cpu.piece_checksum({packed}, stored, workers.threads, body);
}

// Undoes the lossless stage of a tiled archive, whose stored bytes are verified first.
const std::byte* unpack(const Workers& workers, const Frame& frame) {
    check_pieces(workers.cpu, frame, {frame.body}, workers.threads, {});
    const auto bytes = static_cast<std::size_t>(frame.coding.body_bytes);
    auto* unpacked = static_cast<std::byte*>(workers.unpacked.reserve(bytes));
    zstd_unpack(frame.body, static_cast<std::size_t>(frame.body_stored_bytes), unpacked, bytes);
    return unpacked;
}

// Copies a box of a raw archive's values.
void copy_box(const Frame& frame, const Selection& box) {
    const auto& [start, count, stride, field] = box;
    const std::size_t size = frame.layout.value_bytes();
    std::uint64_t rows = 1;
    const auto ndim = static_cast<std::size_t>(frame.layout.ndim), last = ndim - 1;
    for (std::size_t d = 0; d < last; ++d) rows *= count[d];
    for (std::uint64_t row = 0; row < rows; ++row) {
        std::uint64_t rest = row, from = 0, to = 0, values = frame.layout.shape[last];
        for (std::size_t d = last; d-- > 0; values *= frame.layout.shape[d]) {
            const std::uint64_t i = rest % count[d];
            rest /= count[d];
            from += (start[d] + i) * values;
            to += i * stride[d];
        }
        for (std::uint64_t i = 0; i < count[last]; ++i)
            std::memcpy(static_cast<std::byte*>(field) + (to + i * stride[last]) * size,
                        frame.body + (from + start[last] + i) * size, size);
    }
}

} // namespace

std::size_t write_archive(const Workers& workers, const Layout& layout, const Coding& coding, const Source& field,
                          const Target& archive) {
    const std::uint64_t body_at = v1::body_offset(coding.r);
    const std::uint64_t most =
        layout.bytes() + raw_header_bytes - 1; // a tiled archive has to be shorter than a raw one
    if (coding.eb == 0 || body_at > most) return write_raw(workers, layout, field, archive);
    const Target body = archive.at(body_at);
    auto encoded = workers.backend.compress(layout, coding, field, workers.threads, body, most - body_at);
    if (!encoded) return write_raw(workers, layout, field, archive);
    encoded->coding.lossless = CUSZ_LOSSLESS_NONE;
    if (coding.lossless != CUSZ_LOSSLESS_NONE) pack(workers, *encoded, body);
    std::vector<std::byte> header(body_at);
    v1::write_tiled_header(header.data(), layout, encoded->coding, encoded->lengths, encoded->payload_checksum);
    workers.backend.copy(archive.pointer, header.data(), header.size());
    return body_at + encoded->coding.stored_bytes;
}

void read_archive(const Workers& workers, const Frame& frame, const Source& body, const Target& field) {
    const auto& [backend, cpu, unpacked, threads] = workers;
    if (frame.kind == CUSZ_KIND_RAW) return check_pieces(backend, frame, body, threads, field);
    if (frame.coding.lossless == CUSZ_LOSSLESS_NONE) return backend.decompress(frame, body, threads, field);
    if (body.on_device())
        fail(CUSZ_ERROR_UNSUPPORTED, "the archive has a lossless stage, which runs on the CPU: copy it to the host");
    if (field.pointer == nullptr) return check_pieces(cpu, frame, body, threads, {});
    backend.decompress(frame, {unpack(workers, frame)}, threads, field);
}

void read_box(const Workers& workers, const Frame& frame, const Selection& box) {
    if (frame.kind == CUSZ_KIND_RAW) {
        check_pieces(workers.cpu, frame, {frame.body}, workers.threads, {});
        return copy_box(frame, box);
    }
    const bool packed = frame.coding.lossless != CUSZ_LOSSLESS_NONE;
    workers.cpu.decompress_box(frame, packed ? unpack(workers, frame) : frame.body, workers.threads, box);
}

} // namespace cusz
