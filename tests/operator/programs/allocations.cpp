// Calls the plugin as ADIOS2 does, and makes every allocation fail once: allocations PLUGIN
//
// Whichever fails, the write path must not throw, the size written must be neither 0 nor more than the raw block plus
// 48 bytes, and the block must come back within its bound.
#include <adios2/plugin/PluginEngineInterface.h>
#include <adios2/plugin/PluginOperatorInterface.h>

#include <dlfcn.h>

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <typeinfo>
#include <vector>

// ------------------------------------------------------------------------------------- allocations that fail on demand

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

long countdown = -1;        // allocations until the one that fails; negative: none fails
bool all_after_too = false; // all allocations after the failed one fail, too
bool failed = false;

bool refuse() noexcept {
    if (countdown < 0) return false;
    if (countdown > 0) {
        --countdown;
        return false;
    }
    failed = true;
    if (!all_after_too) countdown = -1;
    return true;
}

} // namespace

extern "C" {
void* malloc(std::size_t n) { return refuse() ? nullptr : __libc_malloc(n); }
void* calloc(std::size_t n, std::size_t size) { return refuse() ? nullptr : __libc_calloc(n, size); }
void* realloc(void* p, std::size_t n) { return refuse() ? nullptr : __libc_realloc(p, n); }
void* aligned_alloc(std::size_t alignment, std::size_t n) { return refuse() ? nullptr : __libc_memalign(alignment, n); }
void* memalign(std::size_t alignment, std::size_t n) { return refuse() ? nullptr : __libc_memalign(alignment, n); }
int posix_memalign(void** p, std::size_t alignment, std::size_t n) {
    *p = refuse() ? nullptr : __libc_memalign(alignment, n);
    return *p != nullptr ? 0 : 12;
}
}

// ---------------------------------------------------------------------------------------------------------- the plugin

namespace {

using Plugin = adios2::plugin::PluginOperatorInterface;

// Type names by which the plugin recognises ADIOS2 2.12 (operator/plugin/host.cpp).
const char* const volatile names_of_types[] = {
    typeid(adios2::plugin::PluginEngineInterface * (adios2::IO, const std::string&, adios2::Mode)).name(),
    typeid(Plugin * (const adios2::Params&)).name(),
};

Plugin* (*create)(const adios2::Params&);
void (*destroy)(Plugin*);

struct Outcome {
    bool failed;       // whether an allocation was refused
    std::size_t bytes; // of the archive
};

// Writes one block while allocation number `fail_at` fails, then reads it while none fails.
Outcome round_trip(long fail_at, bool all_after, bool odd, const adios2::Params& parameters,
                   const adios2::Params& extra) {
    const adios2::Dims count = {30, 50};
    std::vector<double> field(1500), got(1500);
    for (std::size_t i = 0; i < field.size(); ++i) field[i] = std::sin(0.01 * static_cast<double>(i));
    const std::size_t raw_bytes = field.size() * sizeof(double);
    std::vector<char> bytes(raw_bytes + 1), archive(raw_bytes + 48 + 8, '\x55');
    std::memcpy(bytes.data() + odd, field.data(), raw_bytes);

    failed = false;
    all_after_too = all_after;
    countdown = fail_at;
    Plugin* writer = create(parameters);
    const std::size_t estimate = writer->GetEstimatedSize(field.size(), sizeof(double), 2, count.data());
    writer->AddExtraParameters(extra);
    const std::size_t n = writer->Operate(bytes.data() + odd, {}, count, adios2::DataType::Double, archive.data());
    destroy(writer);
    countdown = -1;

    if (estimate != raw_bytes + 48) throw std::runtime_error("estimate");
    if (n == 0 || n > estimate) throw std::runtime_error("size " + std::to_string(n));
    for (std::size_t i = estimate; i < archive.size(); ++i) {
        if (archive[i] != '\x55') throw std::runtime_error("written out of bounds");
    }

    Plugin* reader = create({});
    if (reader->InverseOperate(archive.data(), n, reinterpret_cast<char*>(got.data())) == 0)
        throw std::runtime_error("0");
    destroy(reader);
    for (std::size_t i = 0; i < field.size(); ++i) {
        if (!(std::fabs(field[i] - got[i]) <= 1e-3)) throw std::runtime_error("value " + std::to_string(i));
    }
    return {failed, n};
}

void run(const char* library, const char* predictor) {
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(dlerror());
    create = reinterpret_cast<decltype(create)>(dlsym(handle, "OperatorCreate"));
    destroy = reinterpret_cast<decltype(destroy)>(dlsym(handle, "OperatorDestroy"));
    if (create == nullptr || destroy == nullptr) throw std::runtime_error("no entry points");
    auto* release = reinterpret_cast<void (*)()>(dlsym(handle, "cusz_operator_release_scratch"));
    if (release == nullptr) throw std::runtime_error("no cusz_operator_release_scratch");

    const adios2::Params parameters = {
        {"accuracy", "1e-3"}, {"threads", "1"}, {"predictor", predictor}, {"an-unknown-parameter-of-some-length", "1"}};
    const adios2::Params extra = {{"EngineName", "output"}, {"VariableName", "a variable with a name of some length"}};
    for (const bool all_after : {true, false}) {
        for (const bool odd : {true, false}) {
            long k = 0;
            std::size_t raw = 0;
            for (;; ++k) {
                release();
                const Outcome outcome = round_trip(k, all_after, odd, parameters, extra);
                if (!outcome.failed) break;
                raw += outcome.bytes > 12000;
            }
            std::cout << predictor << ": " << k << " allocations failed one by one"
                      << (all_after ? " with all after them" : "") << ", " << raw << " blocks were stored raw\n";
            if (k < 5 || raw == 0) throw std::runtime_error("the failures did not reach the plugin");
        }
    }
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    try {
        for (const char* predictor : {"lorenzo", "spline"}) run(argv[1], predictor);
    } catch (const std::exception& error) {
        std::cerr << "allocations: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
