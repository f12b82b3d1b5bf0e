#include "emulator.hpp"

#include "memory.hpp"

#include <boost/context/detail/fcontext.hpp> // the public fiber unwinds abandoned stacks, which a kernel must not

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

using boost::context::detail::fcontext_t;
using boost::context::detail::transfer_t;

__align__(128) unsigned char (*simt_dynamic_shared)[] = nullptr;

namespace simt {

uint3 thread_index{}, block_index{};
dim3 block_size, grid_size;
long steps_left = 0;

namespace {

constexpr unsigned warp_lanes = 32;
constexpr std::size_t stack_bytes = with_asan ? 256 * 1024 : 64 * 1024;
constexpr auto canary = std::byte{0x5A};
constexpr std::size_t near = 4096; // bytes past shared memory checked after each block; the rest after the launch
constexpr long steps_in_order = 1 << 20;
constexpr unsigned long spin_limit = 16'000'000; // over all threads, while no thread returns

constexpr const char* call_names[] = {
    "__syncthreads",   "__syncthreads_or",    "__syncthreads_and", "__syncthreads_count", "__syncwarp",
    "__ballot_sync",   "__any_sync",          "__all_sync",        "__shfl_sync",         "__shfl_up_sync",
    "__shfl_xor_sync", "__reduce_add_sync",   "__reduce_min_sync", "__reduce_max_sync",   "__reduce_or_sync",
    "__nanosleep",     "an atomic or a fence"};
const char* name(Call call) { return call_names[static_cast<unsigned>(call)]; }
bool of_block(Call call) { return call <= Call::syncthreads_count; }

bool same_text(const Site& a, const Site& b) {
    return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}
bool same(const Site& a, const Site& b) {
    static_assert(sizeof(Site) == sizeof(void*));
    return std::bit_cast<const void*>(a) == std::bit_cast<const void*>(b) || same_text(a, b);
}

class Random {
public:
    void seed(std::uint64_t seed) { state_ = seed * 0x9E3779B97F4A7C15u + 0x2545F4914F6CDD1Du; }
    // 0 to n - 1
    unsigned below(unsigned n) {
        state_ += 0x9E3779B97F4A7C15u;
        std::uint64_t x = (state_ ^ state_ >> 30) * 0xBF58476D1CE4E5B9u;
        x = (x ^ x >> 27) * 0x94D049BB133111EBu;
        return static_cast<unsigned>((x >> 32) * n >> 32);
    }
    template <class T>
    void shuffle(T* items, unsigned n) {
        for (unsigned i = n; i > 1; --i) std::swap(items[i - 1], items[below(i)]);
    }

private:
    std::uint64_t state_ = 0;
};

// Threads ---------------------------------------------------------------------------------------------------------

struct Block;

enum class State : unsigned char { ready, waiting, spinning, exited };

// What every switch needs comes first, in one cache line.
struct alignas(64) Thread {
    fcontext_t context = nullptr; // where it resumes, while suspended
    Thread* next = nullptr;       // in a queue
    Block* block = nullptr;
    std::uint64_t result = 0; // of the warp call that it waited in
    uint3 index{};
    unsigned number = 0; // within the block
    unsigned mask = 0;   // mask and site of its current call
    Call call{};
    State state = State::exited;
    Site site;

    const void* stack_bottom = nullptr;
    std::size_t stack_size = 0;
    std::byte* stack_top = nullptr;
    void* fake_stack = nullptr; // AddressSanitizer's

    unsigned lane() const { return number % warp_lanes; }
};
static_assert(offsetof(Thread, stack_bottom) == 64);

class Queue {
public:
    bool empty() const { return head_ == nullptr; }
    void push_back(Thread& thread) {
        thread.next = nullptr;
        (head_ == nullptr ? head_ : tail_->next) = &thread;
        tail_ = &thread;
    }
    void push_front(Thread& thread) {
        thread.next = head_;
        if (head_ == nullptr) tail_ = &thread;
        head_ = &thread;
    }
    Thread& pop() {
        Thread& first = *head_;
        head_ = first.next;
        return first;
    }

private:
    Thread *head_ = nullptr, *tail_ = nullptr;
};

// Lanes of a warp that wait for each other.
struct Group {
    unsigned mask, arrived;
    Call call;
    Site site;
};

struct Warp {
    unsigned alive = 0;   // lanes that have not returned
    unsigned pending = 0; // groups
    std::array<Group, warp_lanes> groups;
    std::array<std::uint64_t, warp_lanes> values;
    std::array<unsigned, warp_lanes> sources; // for shuffles: the lane that the value comes from
};

// A slot for a block in flight, whose threads and shared memory serve one block after another.
struct Block {
    std::vector<Thread> threads{block_limit};
    std::array<Warp, block_limit / warp_lanes> warps;
    Queue ready, spinning;
    uint3 index{};
    unsigned alive = 0;

    unsigned arrived = 0, count = 0; // at the barrier: threads, true predicates
    int result = 0;
    Call call{};
    Site site;

    Pages pages{page + shared_limit + page};
    std::size_t canary_from = 0; // in pages, past the part in use; everything from there on is intact
};

// Slabs of stacks, each with a guard page below. They are reused by every launch.
class Stacks {
public:
    void give(Thread& thread) {
        if (thread.stack_top != nullptr) return;
        constexpr unsigned per_slab = 64;
        constexpr std::size_t stride = stack_bytes + page;
        if (given_ % per_slab == 0) {
            slabs_.push_back(std::make_unique<Pages>(per_slab * stride));
            for (unsigned i = 0; i < per_slab; ++i)
                if (mprotect(slabs_.back()->begin() + i * stride, page, PROT_NONE) != 0) throw std::bad_alloc();
        }
        std::byte* bottom = slabs_.back()->begin() + given_ % per_slab * stride + page;
        thread.stack_bottom = bottom;
        thread.stack_size = stack_bytes;
        // Tops at different offsets within a page: otherwise they would all compete for the same cache lines.
        thread.stack_top = bottom + stack_bytes - given_ % 29 * 128;
        ++given_;
    }

private:
    std::vector<std::unique_ptr<Pages>> slabs_;
    unsigned given_ = 0;
};

// The launch that runs --------------------------------------------------------------------------------------------

Stacks stacks;
std::vector<std::unique_ptr<Block>> slots;
Thread host;               // the caller of the launch
Thread* current = nullptr; // host or a thread of a block; null while nothing runs
pthread_t runner;          // the OS thread that runs them all

const Grid* grid = nullptr;
Schedule schedule;
Random randomness;
std::vector<Block*> in_flight;
std::size_t turn = 0;     // index in in_flight of the block that runs
bool leave_block = false; // switch to another block although this one could continue
std::uint64_t begun = 0;  // blocks
std::vector<unsigned> shuffled_blocks;
unsigned long spins = 0; // since a thread returned

struct Failure {
    cudaError_t error = cudaSuccess;
    Thread* thread = nullptr;
    char text[512] = "";
} failure;

bool in_kernel() { return current != nullptr && current != &host && pthread_equal(runner, pthread_self()) != 0; }

// A switch leaves the processor's return predictor off by one call, so every return up to the kernel is mispredicted.
// Hence only one function lies between a kernel and the switch; it contains the whole common path.
#define SIMT_INLINE [[gnu::always_inline]] inline

// Records where the previously running thread was suspended.
SIMT_INLINE void arrive(transfer_t from) {
    Thread& before = *static_cast<Thread*>(from.data);
    before.context = from.fctx;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(current->fake_stack, &before.stack_bottom, &before.stack_size);
#endif
}

SIMT_INLINE void switch_to(Thread& next) {
    Thread& self = *current;
    if (&next == &self) return;
    current = &next;
    thread_index = next.index;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&self.fake_stack, next.stack_bottom, next.stack_size);
#endif
    arrive(boost::context::detail::jump_fcontext(next.context, &self));
}

// Ends the launch; the report is built on the host's stack, from the state of the threads.
[[noreturn, gnu::format(printf, 2, 3)]] void fail(cudaError_t error, const char* format, ...) {
    failure.error = error;
    failure.thread = current;
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(failure.text, sizeof(failure.text), format, arguments);
    va_end(arguments);
    switch_to(host);
    std::abort(); // not reached: nothing resumes this thread
}

void reset_steps() { steps_left = schedule.order == 2 ? 1 + static_cast<long>(randomness.below(48)) : steps_in_order; }

void spin(unsigned long times) {
    if ((spins += times) > spin_limit) fail(cudaErrorLaunchFailure, "everything only spins");
}

// After many steps without __nanosleep, other threads must get a turn: this one may be waiting for them.
void steps_are_over() {
    reset_steps();
    spin(schedule.order == 2 ? 1 : spin_limit / 512);
}

void enter(Block& block) {
    block_index = block.index;
    simt_dynamic_shared = reinterpret_cast<unsigned char (*)[]>(block.pages.begin() + page);
}

SIMT_INLINE Thread& take(Block& block) {
    Thread& next = block.ready.pop();
    next.state = State::ready;
    return next;
}

[[gnu::noinline]] Thread& next_elsewhere() {
    Block* block = in_flight[turn];
    if (block->ready.empty() && block->spinning.empty()) fail(cudaErrorLaunchFailure, "threads wait for ever");
    leave_block = false;
    turn =
        schedule.order == 2 ? randomness.below(static_cast<unsigned>(in_flight.size())) : (turn + 1) % in_flight.size();
    block = in_flight[turn];
    if (block->ready.empty()) std::swap(block->ready, block->spinning);
    enter(*block);
    return take(*block);
}

// The next thread to run: from this block while it has any, else from the next one in flight.
SIMT_INLINE Thread& next_thread(Block& block) {
    return leave_block || block.ready.empty() ? next_elsewhere() : take(block);
}

// Queues lanes of the warp whose first thread is `first`, in the order of the schedule.
void release(Thread* first, unsigned lanes, Queue& queue) {
    std::array<unsigned, warp_lanes> order;
    unsigned n = 0;
    for (; lanes != 0; lanes &= lanes - 1) {
        order[n] = static_cast<unsigned>(std::countr_zero(lanes));
        first[order[n++]].state = State::ready;
    }
    bool back = schedule.order == 1;
    if (schedule.order == 2) {
        randomness.shuffle(order.data(), n);
        back = randomness.below(2) == 0;
    }
    for (unsigned i = n; i-- > 0;) back ? queue.push_back(first[order[i]]) : queue.push_front(first[order[i]]);
}

// Makes ready all threads of the block that have not returned.
void release(Block& block) {
    const unsigned n = block_size.x * block_size.y * block_size.z;
    std::array<unsigned, block_limit> order;
    if (schedule.order == 2) {
        std::iota(order.begin(), order.begin() + n, 0u);
        randomness.shuffle(order.data(), n);
    }
    for (unsigned i = 0; i < n; ++i) {
        Thread& thread = block.threads[schedule.order == 0 ? i : schedule.order == 1 ? n - 1 - i : order[i]];
        if (thread.state == State::exited) continue;
        thread.state = State::ready;
        block.ready.push_back(thread);
    }
}

void complete_barrier(Block& block) {
    switch (block.call) {
    case Call::syncthreads_or: block.result = block.count > 0; break;
    case Call::syncthreads_and: block.result = block.count == block.arrived; break;
    default: block.result = static_cast<int>(block.count);
    }
    block.arrived = block.count = 0;
    release(block);
    if (schedule.order == 2 && in_flight.size() > 1) leave_block = randomness.below(4) == 0;
}

std::uint64_t reduce(Call call, std::uint64_t a, std::uint64_t b) {
    switch (call) {
    case Call::min: return std::min(a, b);
    case Call::max: return std::max(a, b);
    case Call::bit_or: return a | b;
    default: return a + b;
    }
}

// All lanes of the group have arrived or returned: gives each its result.
void complete_group(Block& block, unsigned first, Warp& warp, unsigned which) {
    const Group group = warp.groups[which];
    warp.groups[which] = warp.groups[--warp.pending];
    const auto lanes_do = [&](auto&& action) {
        for (unsigned lanes = group.arrived; lanes != 0; lanes &= lanes - 1)
            action(static_cast<unsigned>(std::countr_zero(lanes)));
    };
    Thread* threads = &block.threads[first];
    switch (group.call) {
    case Call::syncwarp: break;
    case Call::shuffle:
    case Call::shuffle_up:
    case Call::shuffle_xor:
        // The value of a lane that does not take part is undefined.
        lanes_do([&](unsigned lane) {
            const unsigned source = warp.sources[lane];
            threads[lane].result = group.arrived >> source & 1 ? warp.values[source] : 0xBADBADBADBADBADBu;
        });
        break;
    case Call::ballot:
    case Call::any:
    case Call::all: {
        unsigned ballot = 0;
        lanes_do([&](unsigned lane) { ballot |= static_cast<unsigned>(warp.values[lane]) << lane; });
        const unsigned result = group.call == Call::ballot ? ballot
                                : group.call == Call::any  ? ballot != 0
                                                           : ballot == group.arrived;
        lanes_do([&](unsigned lane) { threads[lane].result = result; });
        break;
    }
    default: {
        const auto lowest = static_cast<unsigned>(std::countr_zero(group.arrived));
        std::uint64_t result = warp.values[lowest];
        lanes_do([&](unsigned lane) {
            if (lane != lowest) result = reduce(group.call, result, warp.values[lane]);
        });
        lanes_do([&](unsigned lane) { threads[lane].result = result; });
    }
    }
    if (--steps_left > 0) return release(threads, group.arrived, block.ready);
    release(threads, group.arrived, block.spinning);
    steps_are_over();
}

// Blocks begin and end --------------------------------------------------------------------------------------------

[[noreturn]] void fiber(transfer_t from) noexcept;

// Starts the grid's next block in the slot; false if all have started.
bool begin_block(Block& block) {
    const std::uint64_t n = std::uint64_t{grid_size.x} * grid_size.y * grid_size.z;
    if (begun == n) return false;
    const std::uint64_t number = schedule.order == 0   ? begun
                                 : schedule.order == 1 ? n - 1 - begun
                                                       : shuffled_blocks[begun];
    ++begun;
    block.index.x = static_cast<unsigned>(number % grid_size.x);
    block.index.y = static_cast<unsigned>(number / grid_size.x % grid_size.y);
    block.index.z = static_cast<unsigned>(number / grid_size.x / grid_size.y);
    block.ready = block.spinning = {};
    block.arrived = block.count = 0;

    std::byte* shared = block.pages.begin() + page;
    if constexpr (with_asan) {
        poison(block.pages.begin(), block.pages.size());
        unpoison(shared, grid->shared_bytes);
    } else if (block.canary_from == 0) {
        fill(block.pages.begin(), block.pages.size(), canary);
    } else if (block.canary_from > grid->shared_bytes + page) {
        fill(shared + grid->shared_bytes, block.canary_from - page - grid->shared_bytes, canary);
    }
    block.canary_from = page + grid->shared_bytes;
    constexpr std::byte patterns[] = {std::byte{0xC7}, std::byte{0x3B}};
    fill(shared, grid->shared_bytes,
         schedule.order < 2 ? patterns[schedule.order] : static_cast<std::byte>(1 + randomness.below(255)));

    const unsigned threads = block_size.x * block_size.y * block_size.z;
    uint3 index{};
    for (unsigned i = 0; i < threads; ++i) {
        Thread& thread = block.threads[i];
        thread.block = &block;
        thread.number = i;
        thread.index = index;
        if (++index.x == block_size.x) index.x = 0, ++index.y;
        if (index.y == block_size.y) index.y = 0, ++index.z;
        thread.state = State::ready;
        if (thread.context == nullptr) {
            stacks.give(thread);
            unpoison(thread.stack_bottom, thread.stack_size);
            thread.context = boost::context::detail::make_fcontext(
                thread.stack_top,
                static_cast<std::size_t>(thread.stack_top - static_cast<const std::byte*>(thread.stack_bottom)), fiber);
        }
        Warp& warp = block.warps[i / warp_lanes];
        if (thread.lane() == 0) warp.alive = warp.pending = 0;
        warp.alive |= 1u << thread.lane();
    }
    block.alive = threads;
    release(block);
    return true;
}

// Offset, from the beginning of shared memory, of the first byte written outside it.
std::optional<std::ptrdiff_t> damage(const Block& block, std::size_t behind) {
    if constexpr (with_asan) return {}; // AddressSanitizer reports it itself
    const std::byte* begin = block.pages.begin();
    if (const std::size_t n = intact(begin, page, canary); n < page)
        return static_cast<std::ptrdiff_t>(n) - static_cast<std::ptrdiff_t>(page);
    behind = std::min(behind, block.pages.size() - block.canary_from);
    if (const std::size_t n = intact(begin + block.canary_from, behind, canary); n < behind)
        return static_cast<std::ptrdiff_t>(block.canary_from - page + n);
    return {};
}

constexpr const char* damage_text = "byte %td was written in dynamic shared memory of %zu bytes";

void end_block(Block& block) {
    if (const auto at = damage(block, near)) fail(cudaErrorLaunchFailure, damage_text, *at, grid->shared_bytes);
    // The other blocks in flight go before the one that takes this slot, so that all make progress.
    if (begin_block(block))
        ++turn;
    else
        in_flight.erase(in_flight.begin() + static_cast<std::ptrdiff_t>(turn));
    if (in_flight.empty()) return;
    turn %= in_flight.size();
    Block& next = *in_flight[turn];
    if (next.ready.empty()) std::swap(next.ready, next.spinning);
    enter(next);
}

// Called when the kernel has returned in a thread; returns when the thread serves the next block.
void exit_thread() {
    Thread& self = *current;
    Block& block = *self.block;
    Warp& warp = block.warps[self.number / warp_lanes];
    self.state = State::exited;
    spins = 0;
    warp.alive &= ~(1u << self.lane());
    // groups that only waited for this thread
    for (unsigned i = 0; i < warp.pending;) {
        const Group& group = warp.groups[i];
        if ((group.mask & warp.alive) == group.arrived)
            complete_group(block, self.number - self.lane(), warp, i);
        else
            ++i;
    }
    if (--block.alive == 0)
        end_block(block);
    else if (block.arrived == block.alive)
        complete_barrier(block);
    switch_to(in_flight.empty() ? host : next_thread(*in_flight[turn]));
}

// What a fiber runs. It never returns: it waits in exit_thread for the next block, or is abandoned.
void fiber(transfer_t from) noexcept {
    arrive(from);
#if defined(__SSE__)
    _mm_setcsr(0x1F80); // a GPU ignores the host's floating-point modes
#endif
    for (;;) {
        grid->call(grid->arguments);
        exit_thread();
    }
}

// Reports ---------------------------------------------------------------------------------------------------------

// The indices for which the predicate holds, as in "0-3, 7"
template <class Predicate>
std::string ranges(unsigned n, Predicate&& predicate) {
    std::string text;
    for (unsigned i = 0; i < n; ++i) {
        if (!predicate(i)) continue;
        unsigned last = i;
        while (last + 1 < n && predicate(last + 1)) ++last;
        text += join(text.empty() ? "" : ", ", std::to_string(i));
        if (last > i) text += join("-", std::to_string(last));
        i = last;
    }
    return text;
}

std::string text_of(uint3 index) {
    return join("(", std::to_string(index.x), ", ", std::to_string(index.y), ", ", std::to_string(index.z), ")");
}

std::string text_of(const Site& site) { return join(site.file_name(), ":", std::to_string(site.line())); }

// One line per set of threads at the same place.
std::string whereabouts(const Block& block) {
    const unsigned n = block_size.x * block_size.y * block_size.z;
    const auto place = [&](unsigned i) {
        const Thread& t = block.threads[i];
        const bool in_call = t.state == State::waiting || t.state == State::spinning;
        const bool of_warp = t.state == State::waiting && !of_block(t.call);
        return std::tuple(t.state, in_call ? t.call : Call{}, in_call ? text_of(t.site) : "", of_warp ? t.mask : 0,
                          of_warp ? i / warp_lanes : 0);
    };
    std::vector<decltype(place(0))> places(n);
    for (unsigned i = 0; i < n; ++i) places[i] = place(i);
    std::string text;
    std::vector<bool> told(n);
    for (unsigned i = 0; i < n; ++i) {
        if (told[i]) continue;
        const auto& [state, call, site, mask, warp] = places[i];
        text += join("    threads ", ranges(n, [&](unsigned k) { return places[k] == places[i]; }), ": ");
        for (unsigned k = i; k < n; ++k)
            if (places[k] == places[i]) told[k] = true;
        switch (state) {
        case State::ready: text += "can go on"; break;
        case State::exited: text += "have returned"; break;
        case State::spinning: text += join("spin with ", name(call), " at ", site); break;
        case State::waiting:
            text += join("wait in ", name(call), " at ", site);
            if (!of_block(call)) {
                char hex[64];
                std::snprintf(hex, sizeof(hex), ", mask 0x%08x", mask);
                text += hex;
                unsigned arrived = 0;
                for (unsigned k = 0; k < n; ++k)
                    if (places[k] == places[i]) arrived |= 1u << k % warp_lanes;
                const unsigned missing = mask & block.warps[warp].alive & ~arrived;
                if (missing != 0)
                    text += join(", without lanes ", ranges(warp_lanes, [&](unsigned k) { return missing >> k & 1; }));
            }
        }
        text += "\n";
    }
    return text;
}

std::string report_text() {
    std::string text = join("simt: ", failure.text, "\n  kernel ", name_of(grid->kernel), ", grid ",
                            text_of({grid_size.x, grid_size.y, grid_size.z}), ", block size ",
                            text_of({block_size.x, block_size.y, block_size.z}), "\n");
    const Block* block = failure.thread != nullptr ? failure.thread->block : nullptr;
    if (block == nullptr) return text;
    text +=
        join("  block ", text_of(block->index), ", thread ", text_of(failure.thread->index), "\n", whereabouts(*block));
    for (const Block* other : in_flight)
        if (other != block) text += join("  block ", text_of(other->index), ", in flight\n", whereabouts(*other));
    return text;
}

// Faults in kernels -------------------------------------------------------------------------------------------------

#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
// While it exists, a fault in a kernel ends the launch instead of the process.
class FaultGuard {
public:
    FaultGuard() {
        static Pages stack(stack_bytes), landing(stack_bytes);
        landing_top = landing.end();
        stack_t alternative{};
        alternative.ss_sp = stack.begin();
        alternative.ss_size = stack.size();
        sigaltstack(&alternative, &stack_before_);
        struct sigaction action{};
        action.sa_sigaction = handle;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (unsigned i = 0; i < signals.size(); ++i) sigaction(signals[i], &action, &before[i]);
    }
    FaultGuard(const FaultGuard&) = delete;
    FaultGuard& operator=(const FaultGuard&) = delete;
    ~FaultGuard() {
        for (unsigned i = 0; i < signals.size(); ++i) sigaction(signals[i], &before[i], nullptr);
        sigaltstack(&stack_before_, nullptr);
    }

private:
    static constexpr std::array signals{SIGSEGV, SIGBUS, SIGFPE};
    static inline std::array<struct sigaction, signals.size()> before;
    static inline std::byte* landing_top;
    static inline int fault_signal;
    static inline const void* fault_address;

    [[noreturn]] static void land() {
        if (fault_signal == SIGFPE) fail(cudaErrorLaunchFailure, "an integer was divided by zero");
        const auto* address = static_cast<const std::byte*>(fault_address);
        const auto* bottom = static_cast<const std::byte*>(current->stack_bottom);
        const bool overflow = address < bottom && address >= bottom - page;
        fail(cudaErrorIllegalAddress, "%s: address %p", overflow ? "the thread's stack is full" : "illegal access",
             fault_address);
    }

    static void handle(int signal, siginfo_t* info, void* opaque) {
        if (!in_kernel()) { // not ours: let it happen again under the previous handler
            for (unsigned i = 0; i < signals.size(); ++i)
                if (signals[i] == signal) sigaction(signal, &before[i], nullptr);
            return;
        }
        fault_signal = signal;
        fault_address = info->si_addr;
        auto& registers = static_cast<ucontext_t*>(opaque)->uc_mcontext.gregs;
        registers[REG_RSP] = reinterpret_cast<greg_t>(landing_top - 8); // aligned as after a call
        registers[REG_RIP] = reinterpret_cast<greg_t>(&land);
    }

    stack_t stack_before_{};
};
#else
struct FaultGuard {
    ~FaultGuard() {}
};
#endif

SIMT_INLINE void enter_call(Thread& self, Call call, unsigned mask, const Site& site) {
    self.call = call;
    self.mask = mask;
    self.site = site;
}

SIMT_INLINE Thread& self_in(Call call) {
    if (current != nullptr && current != &host) [[likely]]
        return *current;
    std::fprintf(stderr, "simt: %s outside of a kernel\n", name(call));
    std::abort();
}

SIMT_INLINE std::uint64_t meet(Thread& self, Call call, unsigned mask, std::uint64_t value, unsigned source,
                               const Site& site) {
    Block& block = *self.block;
    Warp& warp = block.warps[self.number / warp_lanes];
    const unsigned lane = self.lane(), bit = 1u << lane;
    enter_call(self, call, mask, site);
    if ((mask & bit) == 0) [[unlikely]]
        fail(cudaErrorLaunchFailure, "%s at %s:%u: mask 0x%08x does not name lane %u, which calls it", name(call),
             site.file_name(), site.line(), mask, lane);
    unsigned which = 0;
    while (which < warp.pending && warp.groups[which].mask != mask) ++which;
    if (which == warp.pending) {
        warp.groups[which] = {mask, 0, call, site};
        ++warp.pending;
    }
    for (unsigned i = 0; warp.pending > 1 && i < warp.pending; ++i)
        if (i != which && (warp.groups[i].mask & bit) != 0 && (warp.groups[i].arrived & mask) != 0)
            fail(cudaErrorLaunchFailure, "lanes of a warp wait for each other with masks 0x%08x and 0x%08x",
                 warp.groups[i].mask, mask);
    Group& group = warp.groups[which];
    if (group.call != call || !same(group.site, site)) [[unlikely]]
        fail(cudaErrorLaunchFailure, "lanes of a warp meet in different calls: %s at %s:%u and %s at %s:%u",
             name(group.call), group.site.file_name(), group.site.line(), name(call), site.file_name(), site.line());
    group.arrived |= bit;
    warp.values[lane] = value;
    warp.sources[lane] = source;
    self.state = State::waiting;
    if ((mask & warp.alive) == group.arrived) complete_group(block, self.number - lane, warp, which);
    switch_to(next_thread(block));
    return self.result;
}

} // namespace

int meet_block(Call call, int predicate, Site site) {
    Thread& self = self_in(call);
    Block& block = *self.block;
    enter_call(self, call, 0, site);
    if (block.arrived == 0) {
        block.call = call;
        block.site = site;
    } else if (block.call != call || !same(block.site, site)) [[unlikely]] {
        fail(cudaErrorLaunchFailure, "threads of a block meet in different barriers: %s at %s:%u and %s at %s:%u",
             name(block.call), block.site.file_name(), block.site.line(), name(call), site.file_name(), site.line());
    }
    ++block.arrived;
    block.count += predicate != 0;
    self.state = State::waiting;
    if (block.arrived == block.alive) complete_barrier(block);
    switch_to(next_thread(block));
    return block.result; // remains until all threads meet again
}

std::uint64_t meet_warp(Call call, unsigned mask, std::uint64_t value, Site site) {
    return meet(self_in(call), call, mask, value, 0, site);
}

std::uint64_t shuffle(Call call, unsigned mask, std::uint64_t value, int operand, int width, Site site) {
    Thread& self = self_in(call);
    if (width < 1 || width > 32 || (width & (width - 1)) != 0) [[unlikely]]
        fail(cudaErrorLaunchFailure, "%s at %s:%u: width %d", name(call), site.file_name(), site.line(), width);
    const unsigned lane = self.lane(), part = static_cast<unsigned>(width), offset = static_cast<unsigned>(operand);
    const unsigned first = lane & ~(part - 1), end = first + part;
    unsigned source = lane;
    switch (call) {
    case Call::shuffle_up: source = offset <= lane - first ? lane - offset : lane; break;
    case Call::shuffle_xor: source = (lane ^ offset) < end ? lane ^ offset : lane; break;
    default: source = first | (offset & (part - 1));
    }
    return meet(self, call, mask, value, source, site);
}

void pause(Call call, Site site) {
    if (call == Call::step && !in_kernel()) return reset_steps(); // the host may call functions that kernels use
    Thread& self = self_in(call);
    enter_call(self, call, 0, site);
    self.state = State::spinning;
    self.block->spinning.push_back(self);
    call == Call::step ? steps_are_over() : spin(1);
    switch_to(next_thread(*self.block));
}

cudaError_t run(const Grid& what, const Schedule& how, std::string& report) {
    grid = &what;
    schedule = how;
    grid_size = what.blocks;
    block_size = what.threads;
    randomness.seed(how.seed);
    failure = {};
    begun = 0;
    spins = 0;
    turn = 0;
    leave_block = false;
    reset_steps();
    const std::uint64_t blocks = std::uint64_t{grid_size.x} * grid_size.y * grid_size.z;
    if (how.order == 2) {
        shuffled_blocks.resize(blocks);
        std::iota(shuffled_blocks.begin(), shuffled_blocks.end(), 0u);
        randomness.shuffle(shuffled_blocks.data(), static_cast<unsigned>(blocks));
    }
    in_flight.clear();
    while (in_flight.size() < std::min<std::uint64_t>(how.blocks_in_flight, blocks)) {
        if (slots.size() == in_flight.size()) slots.push_back(std::make_unique<Block>());
        in_flight.push_back(slots[in_flight.size()].get());
        begin_block(*in_flight.back());
    }
    const std::size_t used = in_flight.size();
    enter(*in_flight[0]);
    runner = pthread_self();
    {
        const FaultGuard guard;
        current = &host;
        switch_to(next_thread(*in_flight[0]));
        current = nullptr;
    }
    for (std::size_t i = 0; i < used && failure.error == cudaSuccess; ++i)
        if (const auto at = damage(*slots[i], slots[i]->pages.size())) {
            failure.error = cudaErrorLaunchFailure;
            std::snprintf(failure.text, sizeof(failure.text), damage_text, *at, grid->shared_bytes);
        }
    if (failure.error != cudaSuccess) {
        report = report_text();
        // Suspended threads are abandoned: everything starts afresh.
        for (const auto& slot : slots) {
            slot->canary_from = 0;
            for (Thread& thread : slot->threads) thread.context = nullptr;
        }
    }
    grid = nullptr;
    return failure.error;
}

} // namespace simt

// A failed assertion in a kernel ends the launch instead of the process. Hidden, so that it overrides the C library's
// only for programs that link this.
extern "C" [[noreturn, gnu::visibility("hidden")]] void __assert_fail(const char* assertion, const char* file,
                                                                      unsigned line, const char* function) noexcept {
    if (simt::in_kernel())
        simt::fail(cudaErrorAssert, "assertion `%s' does not hold, in %s at %s:%u", assertion, function, file, line);
    std::fprintf(stderr, "%s:%u: %s: assertion `%s' does not hold\n", file, line, function, assertion);
    std::abort();
}
