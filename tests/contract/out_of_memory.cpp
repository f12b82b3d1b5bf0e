// Makes every allocation of the core fail once, alone and with all after it.
//
// Whichever fails, calls succeed or say that memory ran out, nothing leaks, and the same context then does all of it.
#include <cusz/cusz.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

// ------------------------------------------------------------------------------------- allocations that fail on demand

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

std::atomic<long> countdown = 0; // allocations up to the one that fails; 0: none fails
std::atomic<bool> all_after = false, failed = false;
std::atomic<long> held = 0; // allocations that are not freed yet

bool refuse() noexcept {
    if (failed) return all_after;
    if (countdown == 0 || --countdown > 0) return false;
    failed = true;
    return true;
}
void* counted(void* memory) noexcept {
    held += memory != nullptr ? 1 : 0;
    return memory;
}

} // namespace

extern "C" {
void* malloc(std::size_t n) { return refuse() ? nullptr : counted(__libc_malloc(n)); }
void* calloc(std::size_t n, std::size_t size) { return refuse() ? nullptr : counted(__libc_calloc(n, size)); }
void* realloc(void* p, std::size_t n) {
    if (refuse()) return nullptr;
    return p == nullptr ? counted(__libc_realloc(p, n)) : __libc_realloc(p, n);
}
void* aligned_alloc(std::size_t to, std::size_t n) { return refuse() ? nullptr : counted(__libc_memalign(to, n)); }
void free(void* p) {
    held -= p != nullptr ? 1 : 0;
    __libc_free(p);
}
}

// ------------------------------------------------------------------------------------------------------------ the core

namespace {

std::string what; // is being tried

void demand(bool holds, const char* promise) {
    if (holds) return;
    std::fprintf(stderr, "broken promise: %s; %s\n", promise, what.c_str());
    std::exit(1);
}

struct Case {
    std::vector<std::uint64_t> shape;
    cusz_params params;
    std::size_t values = 1;
    std::vector<float> field;
    std::vector<char> archive; // and what a context that lacks no memory makes of it
    std::vector<float> decoded;
};

// Memory for what a case makes.
struct Made {
    std::vector<char> archive, packed, archives;
    std::vector<float> decoded, blocks;
    explicit Made(const Case& c)
        : archive(c.values * sizeof(float) + CUSZ_RAW_OVERHEAD_BYTES), packed(archive.size()),
          archives(n_blocks * archive.size()), decoded(c.values), blocks(n_blocks * c.values) {}
    static constexpr std::size_t n_blocks = 5;
};

// Calls the core in every way, or only to decompress. Returns how often memory ran out.
int use(cusz_context* context, const Case& c, Made& to, bool only_decompress) {
    int ran_out = 0;
    const auto worked = [&](cusz_status status) {
        demand(status == CUSZ_OK || status == CUSZ_ERROR_MEMORY, cusz_last_error(context));
        ran_out += status == CUSZ_ERROR_MEMORY ? 1 : 0;
        return status == CUSZ_OK;
    };
    const auto ndim = static_cast<std::int32_t>(c.shape.size());
    const std::size_t bytes = c.values * sizeof(float);
    if (worked(cusz_decompress(context, c.archive.data(), c.archive.size(), CUSZ_BACKEND_CPU, c.params.threads,
                               to.decoded.data(), bytes)))
        demand(std::memcmp(to.decoded.data(), c.decoded.data(), bytes) == 0, "the values");
    if (only_decompress) return ran_out;
    std::size_t size = 0;
    if (worked(cusz_compress(context, &c.params, CUSZ_F32, ndim, c.shape.data(), c.field.data(), to.archive.data(),
                             to.archive.size(), &size)) &&
        (ran_out == 0 && !failed))
        demand(size == c.archive.size() && std::memcmp(to.archive.data(), c.archive.data(), size) == 0, "the archive");
    worked(cusz_check(context, c.archive.data(), c.archive.size(), c.params.threads));
    std::uint64_t start[CUSZ_MAX_NDIM] = {}, stride[CUSZ_MAX_NDIM] = {};
    cusz_level level{};
    level.struct_bytes = sizeof level;
    if (worked(cusz_inspect_level(context, c.archive.data(), c.archive.size(), c.archive.size(), 1, &level))) {
        std::uint64_t apart = 1;
        for (std::size_t d = c.shape.size(); d-- > 0; apart *= level.shape[d]) stride[d] = apart;
        worked(cusz_decompress_level(context, c.archive.data(), level.needed_bytes, c.archive.size(), 1,
                                     c.params.threads, start, level.shape, stride, to.decoded.data()));
        worked(cusz_decompress_box(context, c.archive.data(), c.archive.size(), c.params.threads, start, level.shape,
                                   stride, to.decoded.data()));
    }
    std::size_t packed = 0;
    if (worked(cusz_pack(context, CUSZ_LOSSLESS_ZSTD, 4, c.values, c.field.data(), to.packed.data(), to.packed.size(),
                         &packed)) &&
        worked(cusz_unpack(context, to.packed.data(), packed, to.decoded.data(), bytes)))
        demand(std::memcmp(to.decoded.data(), c.field.data(), bytes) == 0, "packed values");
    cusz_block blocks[Made::n_blocks]{};
    for (cusz_block& block : blocks) {
        block.struct_bytes = sizeof block;
        block.shape = c.shape.data();
        block.field = c.field.data();
    }
    worked(cusz_compress_many(context, &c.params, CUSZ_F32, ndim, Made::n_blocks, blocks, 1, to.archives.data(),
                              to.archives.size()));
    std::uint64_t apart[CUSZ_MAX_NDIM] = {}, n = 1;
    for (std::size_t d = c.shape.size(); d-- > 0; n *= c.shape[d]) apart[d] = n;
    cusz_box boxes[Made::n_blocks]{};
    for (std::size_t i = 0; i < Made::n_blocks; ++i)
        boxes[i] = {sizeof(cusz_box),
                    0,
                    c.archive.data(),
                    c.archive.size(),
                    start,
                    c.shape.data(),
                    apart,
                    to.blocks.data() + i * c.values};
    worked(cusz_decompress_many(context, CUSZ_F32, ndim, c.params.threads, Made::n_blocks, boxes));
    return ran_out;
}

// Makes one allocation fail in each trial, of many only some. Returns the number of trials.
long try_all(const Case& c, bool only_decompress, bool with_all_after) {
    Made to(c);
    cusz_destroy(cusz_create()); // what is allocated once in a process
    long trials = 0;
    for (long k = 1;; k += 1 + k / 32, ++trials) {
        what = "allocation " + std::to_string(k);
        const long before = held;
        failed = false;
        all_after = with_all_after;
        countdown = k;
        cusz_context* const context = cusz_create();
        if (context != nullptr) use(context, c, to, only_decompress);
        const bool reached = failed;
        countdown = 0;
        failed = false;
        if (context != nullptr)
            demand(use(context, c, to, only_decompress) == 0, "a context that lacked memory can be used");
        cusz_destroy(context);
        demand(held == before, "nothing leaks");
        if (!reached) return trials;
    }
}

Case make(std::vector<std::uint64_t> shape, std::int32_t mode, cusz_predictor predictor, cusz_lossless lossless,
          std::int32_t threads) {
    Case c{.shape = std::move(shape), .params = {}, .field = {}, .archive = {}, .decoded = {}};
    for (const std::uint64_t extent : c.shape) c.values *= extent;
    for (std::size_t i = 0; i < c.values; ++i) {
        const auto at = static_cast<float>(i);
        c.field.push_back(i % 501 == 7 ? 1e9f * at : std::sin(0.01f * at));
    }
    c.field[5] = std::numeric_limits<float>::quiet_NaN();
    cusz_params_init(&c.params);
    c.params.mode = mode;
    c.params.eb = mode == CUSZ_PSNR ? 60 : mode == CUSZ_RATIO ? 1.5 : 1e-3;
    c.params.predictor = predictor;
    c.params.lossless = lossless;
    c.params.threads = threads;
    c.archive.resize(c.values * sizeof(float) + CUSZ_RAW_OVERHEAD_BYTES);
    c.decoded.resize(c.values);
    std::size_t size = 0;
    cusz_context* const context = cusz_create();
    demand(cusz_compress(context, &c.params, CUSZ_F32, static_cast<std::int32_t>(c.shape.size()), c.shape.data(),
                         c.field.data(), c.archive.data(), c.archive.size(), &size) == CUSZ_OK,
           cusz_last_error(context));
    c.archive.resize(size);
    demand(cusz_decompress(context, c.archive.data(), size, CUSZ_BACKEND_CPU, threads, c.decoded.data(),
                           c.values * sizeof(float)) == CUSZ_OK,
           cusz_last_error(context));
    cusz_release_scratch(context);
    demand(cusz_scratch_bytes(context) == 0, "scratch memory is given back");
    cusz_destroy(context);
    return c;
}

} // namespace

int main() {
    const cusz_lossless best = cusz_has_lossless(CUSZ_LOSSLESS_ZSTD) != 0 ? CUSZ_LOSSLESS_ZSTD : CUSZ_LOSSLESS_NONE;
    const std::vector<Case> cases = {
        make({30, 50}, CUSZ_ABS, CUSZ_PREDICTOR_SPLINE, CUSZ_LOSSLESS_NONE, 1),
        make({30, 50}, CUSZ_PW_REL, CUSZ_PREDICTOR_AUTO, best, 1),
        make({30, 50}, CUSZ_RATIO, CUSZ_PREDICTOR_LORENZO, CUSZ_LOSSLESS_NONE, 1),
        make({30, 50}, CUSZ_PSNR, CUSZ_PREDICTOR_SPLINE, CUSZ_LOSSLESS_NONE, 1),
        make({24, 30, 40}, CUSZ_REL, CUSZ_PREDICTOR_AUTO, best, 1),
        make({24, 30, 40}, CUSZ_ABS, CUSZ_PREDICTOR_LORENZO, best, 3),
        make({24, 30, 40}, CUSZ_ABS, CUSZ_PREDICTOR_SPLINE, CUSZ_LOSSLESS_NONE, 3),
    };
    for (const Case& c : cases)
        for (const bool only_decompress : {true, false})
            for (const bool with_all_after : {false, true})
                std::printf("%ld\n", try_all(c, only_decompress, with_all_after));
    return 0;
}
