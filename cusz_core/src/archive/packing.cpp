#include "packing.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <type_traits>

#include "errors.hpp"
#include "lossless.hpp"

namespace cusz {
namespace {

constexpr std::size_t head_bytes = CUSZ_PACKED_OVERHEAD_BYTES;

using Tag = std::array<char, 4>;
constexpr Tag verbatim_tag = {'r', 'a', 'w', '8'};
// The digit is the size of a value.
constexpr Tag zstd_tag(std::size_t value_bytes) { return {'z', 's', 't', static_cast<char>('0' + value_bytes)}; }

struct Head {
    Tag tag;
    std::uint32_t checksum;
};
static_assert(sizeof(Head) == head_bytes);

Head head_of(const std::byte* block) {
    Head head{};
    std::memcpy(&head, block, sizeof head);
    return head;
}

// Size of a value in the frame; 0 if there is no frame.
std::size_t value_bytes_in_frame(const Tag& tag) {
    for (const std::size_t n : {1u, 2u, 4u, 8u})
        if (tag == zstd_tag(n)) return n;
    return 0;
}

// Checksum of the bytes after the head, as in archives, plus what that does not cover: the size of a value in a frame,
// and the number of bytes beyond whole words.
std::uint32_t checksum_of(HostBackend& cpu, const std::byte* payload, std::size_t bytes, std::size_t value_bytes,
                          int threads) {
    const std::uint32_t sum = cpu.piece_checksum({payload}, bytes, threads, {});
    return sum + static_cast<std::uint32_t>(value_bytes + 16 * (bytes % 4));
}

// Writes the first bytes of all values, then the second ones, and so on. zstd compresses these better, because the
// integers of a field differ mostly in their low bytes. With `back`, from groups to values.
template <std::size_t value_bytes, bool back>
void regroup(const std::byte* from, std::size_t n, std::byte* to) {
    constexpr std::size_t run = 4096; // values whose bytes stay in the cache
    for (std::size_t first = 0; first < n; first += run) {
        const std::size_t last = std::min(n, first + run);
        for (std::size_t byte = 0; byte < value_bytes; ++byte)
            for (std::size_t i = first; i < last; ++i) {
                const std::size_t in_values = i * value_bytes + byte, in_groups = byte * n + i;
                to[back ? in_values : in_groups] = from[back ? in_groups : in_values];
            }
    }
}

// Calls `work` with the size of a value as a constant.
template <class Work>
void by_size(std::size_t value_bytes, const Work& work) {
    switch (value_bytes) {
    case 2: return work(std::integral_constant<std::size_t, 2>());
    case 4: return work(std::integral_constant<std::size_t, 4>());
    case 8: return work(std::integral_constant<std::size_t, 8>());
    default: return;
    }
}

} // namespace

bool is_packed(const std::byte* block, std::size_t block_bytes) {
    if (block_bytes < head_bytes) return false;
    const Tag tag = head_of(block).tag;
    return tag == verbatim_tag || value_bytes_in_frame(tag) != 0;
}

std::size_t pack_values(const Workers& workers, cusz_lossless lossless, std::size_t value_bytes, const Source& values,
                        std::size_t bytes, std::byte* block) {
    std::unique_ptr<std::byte[]> copied;
    const std::byte* from = values.bytes();
    if (values.on_device()) {
        copied = std::make_unique_for_overwrite<std::byte[]>(bytes);
        workers.backend.copy(copied.get(), from, bytes);
        from = copied.get();
    }
    std::byte* const payload = block + head_bytes;
    const auto write_head = [&](const Tag& tag, std::uint32_t checksum) {
        const Head head = {tag, checksum};
        std::memcpy(block, &head, sizeof head);
    };
    if (lossless == CUSZ_LOSSLESS_ZSTD) {
        const std::byte* groups = from;
        if (value_bytes > 1) {
            auto* const regrouped = static_cast<std::byte*>(workers.scratch.unpacked.reserve(bytes));
            by_size(value_bytes, [&](auto size) { regroup<size, false>(from, bytes / size, regrouped); });
            groups = regrouped;
        }
        const std::size_t stored = zstd_pack(groups, bytes, payload, bytes);
        if (stored > 0) {
            write_head(zstd_tag(value_bytes), checksum_of(workers.cpu, payload, stored, value_bytes, workers.threads));
            return head_bytes + stored;
        }
    }
    if (bytes > 0) std::memcpy(payload, from, bytes);
    write_head(verbatim_tag, checksum_of(workers.cpu, payload, bytes, 0, workers.threads));
    return head_bytes + bytes;
}

std::size_t verified_bytes(const Workers& workers, const std::byte* block, std::size_t block_bytes) {
    const Head head = head_of(block);
    const std::byte* const payload = block + head_bytes;
    const std::size_t stored = block_bytes - head_bytes;
    const std::size_t value_bytes = value_bytes_in_frame(head.tag);
    if (checksum_of(workers.cpu, payload, stored, value_bytes, workers.threads) != head.checksum)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the payload does not match its checksum");
    if (value_bytes == 0) return stored;
    const std::size_t bytes = zstd_unpacked_bytes(payload, stored);
    // A zstd block takes at least 4 bytes and expands to at most 128 KiB.
    if (bytes % value_bytes != 0 || bytes / 32768 > stored)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: ", bytes, " bytes are not ", stored, " bytes' values of ",
             value_bytes, " bytes");
    return bytes;
}

void unpack_values(const Workers& workers, const std::byte* block, std::size_t block_bytes, const Target& values,
                   std::size_t bytes) {
    if (bytes == 0) return;
    const std::byte* const payload = block + head_bytes;
    const std::size_t stored = block_bytes - head_bytes;
    const std::size_t value_bytes = value_bytes_in_frame(head_of(block).tag);
    if (value_bytes == 0) return workers.backend.copy(values.pointer, payload, bytes);

    auto* const groups = static_cast<std::byte*>(workers.scratch.unpacked.reserve(bytes));
    zstd_unpack(payload, stored, groups, bytes);
    if (value_bytes == 1) return workers.backend.copy(values.pointer, groups, bytes);
    std::unique_ptr<std::byte[]> staged;
    std::byte* to = values.bytes();
    if (values.on_device()) {
        staged = std::make_unique_for_overwrite<std::byte[]>(bytes);
        to = staged.get();
    }
    by_size(value_bytes, [&](auto size) { regroup<size, true>(groups, bytes / size, to); });
    if (staged != nullptr) workers.backend.copy(values.pointer, to, bytes);
}

} // namespace cusz
