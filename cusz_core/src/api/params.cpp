#include "params.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

#include "errors.hpp"
#include "parameter_table.hpp"

namespace cusz {

namespace {

constexpr std::uint64_t tile_bytes = 16 << 10; // approximate; a thread takes at least one tile
constexpr std::uint64_t min_share = 1 << 20;   // bytes of field that repay starting a thread (measured)

// A positive integer at the start of an environment variable ("4", or OpenMP's "4,2"), else 0.
int positive_variable(const char* name) {
    const char* text = std::getenv(name);
    if (text == nullptr) return 0;
    const long value = std::strtol(text, nullptr, 10);
    return value > 0 ? static_cast<int>(std::min<long>(value, max_threads)) : 0;
}

// The number of tasks of this SLURM step on this node, from a list such as "4(x2),3"; 0 if SLURM did not start it.
int tasks_of_slurm() {
    const char* text = std::getenv("SLURM_STEP_TASKS_PER_NODE");
    for (long node = positive_variable("SLURM_NODEID"); text != nullptr && *text != 0;) {
        char* end = nullptr;
        const long tasks = std::strtol(text, &end, 10);
        const long times = std::strncmp(end, "(x", 2) == 0 ? std::strtol(end + 2, &end, 10) : 1;
        if (node < times) return static_cast<int>(std::clamp<long>(tasks, 0, max_threads));
        node -= times;
        text = std::strchr(end, ',');
        if (text != nullptr) ++text;
    }
    return 0;
}

// Ranks that a launcher (Open MPI, MPICH, Intel MPI, MVAPICH, HPE Cray's, SLURM) started on this node; 0 without one.
int ranks_on_node() {
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE",
                             "PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"})
        if (const int ranks = positive_variable(name)) return ranks;
    return tasks_of_slurm();
}

int available_cores() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return static_cast<int>(std::thread::hardware_concurrency());
}

// Above any size that a future version could have, and below what an uninitialised structure is likely to contain.
constexpr std::size_t max_struct_bytes = 4096;

} // namespace

void check_struct_bytes(const char* name, std::size_t bytes, std::size_t first_bytes, const char* remedy) {
    if (bytes < first_bytes || bytes > max_struct_bytes || bytes % alignof(double) != 0)
        fail(CUSZ_ERROR_PARAMETER, name, ".struct_bytes is ", bytes, "; legal: multiples of ", alignof(double),
             " from ", first_bytes, " to ", max_struct_bytes, ": ", remedy);
}

// Members that the program does not know are 0, whatever their defaults, so its results stay the same. Anything after
// the members known to this library must be 0: a program compiled with a newer header works as long as it uses nothing
// new, and gets an error if it does.
cusz_params known_members(const cusz_params& given) {
    const std::size_t bytes = given.struct_bytes;
    check_struct_bytes("params", bytes, first_params_bytes, "call cusz_params_init first");
    cusz_params params{};
    std::memcpy(&params, &given, std::min(bytes, sizeof params));
    params.struct_bytes = sizeof params;
    const auto* const all = reinterpret_cast<const std::byte*>(&given);
    for (std::size_t at = known_params_bytes(); at < bytes; ++at)
        if (all[at] != std::byte{0})
            fail(CUSZ_ERROR_PARAMETER, "params has a parameter at byte ", at, "; this library, version ",
                 cusz_version(), ", knows ", known_params_bytes(),
                 " bytes of them: leave it at 0, or use a newer release");
    return params;
}

cusz_params checked(const cusz_params& given) {
    const cusz_params params = known_members(given);
    check_values(params);
    if (!cusz_has_lossless(static_cast<cusz_lossless>(params.lossless)))
        fail(CUSZ_ERROR_UNSUPPORTED, "this build has no zstd stage; use lossless = none, or build with libzstd");
    return params;
}

Coding coding_of(const cusz_params& params, cusz_dtype dtype) {
    Coding coding;
    coding.predictor = static_cast<cusz_predictor>(params.predictor);
    coding.mode = static_cast<cusz_mode>(params.mode);
    coding.lossless = static_cast<cusz_lossless>(params.lossless);
    coding.r = static_cast<int>(std::bit_width(static_cast<unsigned>(params.bins))) - 2;
    coding.has_fill = params.has_fill != 0;
    coding.special = special_pattern(dtype, coding.has_fill, params.fill);
    coding.eb = coding.eb_abs = params.eb;
    if (params.coarse != CUSZ_COARSE_AUTO) coding.bounds = static_cast<std::uint32_t>(params.coarse - CUSZ_COARSE_SAME);
    return coding;
}

int default_threads() {
    if (const int threads = positive_variable("OMP_NUM_THREADS")) return threads;
    if (ranks_on_node() > 1) return 1;
    return std::clamp(available_cores(), 1, max_threads);
}

int resolve_threads(std::int32_t threads, std::uint64_t field_bytes) {
    if (threads < 0 || threads > max_threads)
        fail(CUSZ_ERROR_PARAMETER, "threads is ", threads, "; legal: 0 (automatic) to ", max_threads);
    const auto wanted = static_cast<std::uint64_t>(threads > 0 ? threads : default_threads());
    return static_cast<int>(std::min(wanted, field_bytes / (threads > 0 ? tile_bytes : min_share) + 1));
}

} // namespace cusz
