#include "lossless.hpp"

#include <new>

#include "errors.hpp"

#ifdef CUSZ_HAVE_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

namespace cusz {

#ifdef CUSZ_HAVE_ZSTD

namespace {
constexpr int level = 3; // zstd's default: higher levels cost several times the codec's own time
}

bool have_zstd() { return true; }

std::size_t zstd_pack(const void* data, std::size_t bytes, void* target, std::size_t capacity) {
    const std::size_t packed = ZSTD_compress(target, capacity, data, bytes, level);
    return ZSTD_isError(packed) || packed >= bytes ? 0 : packed;
}

std::size_t zstd_unpacked_bytes(const void* data, std::size_t stored_bytes) {
    const unsigned long long bytes = ZSTD_getFrameContentSize(data, stored_bytes);
    if (bytes == ZSTD_CONTENTSIZE_UNKNOWN || bytes == ZSTD_CONTENTSIZE_ERROR)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the zstd frame does not tell its size");
    return static_cast<std::size_t>(bytes);
}

void zstd_unpack(const void* data, std::size_t stored_bytes, void* target, std::size_t bytes) {
    const std::size_t unpacked = ZSTD_decompress(target, bytes, data, stored_bytes);
    if (ZSTD_getErrorCode(unpacked) == ZSTD_error_memory_allocation) throw std::bad_alloc();
    if (ZSTD_isError(unpacked)) fail(CUSZ_ERROR_CORRUPT, "corrupt archive: zstd: ", ZSTD_getErrorName(unpacked));
    if (unpacked != bytes)
        fail(CUSZ_ERROR_CORRUPT, "corrupt archive: the zstd frame holds ", unpacked, " bytes, expected ", bytes);
}

#else

bool have_zstd() { return false; }

std::size_t zstd_pack(const void*, std::size_t, void*, std::size_t) { return 0; }

namespace {
[[noreturn]] void fail_missing() {
    fail(CUSZ_ERROR_UNSUPPORTED, "the archive uses the zstd stage, which this build does not have: build with libzstd");
}
} // namespace

std::size_t zstd_unpacked_bytes(const void*, std::size_t) { fail_missing(); }

void zstd_unpack(const void*, std::size_t, void*, std::size_t) { fail_missing(); }

#endif

} // namespace cusz
