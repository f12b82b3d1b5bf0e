#include "machine.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <xmmintrin.h>

namespace ptx {

namespace {

constexpr std::uint64_t instructions_of_turn = 20'000;
constexpr std::uint64_t spin_limit = 32'000'000; // instructions, of all warps, while none moves on

std::string text_of(const dim3& index) {
    return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) + ")";
}

std::string text_of(Mask mask) {
    std::string text;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        if ((mask >> lane & 1) == 0) continue;
        unsigned last = lane;
        while (last + 1 < lanes && (mask >> (last + 1) & 1) != 0) ++last;
        text += (text.empty() ? "" : ", ") + std::to_string(lane) + (last > lane ? "-" + std::to_string(last) : "");
        lane = last;
    }
    return text;
}

unsigned size_of(const dim3& d) { return d.x * d.y * d.z; }

} // namespace

Machine::Machine(const Program& program, const simt::Grid& grid, const simt::Schedule& schedule,
                 std::vector<Range> memory, std::span<const std::byte> parameters)
    : executed(program.code.size()), program_(program), grid_(grid), schedule_(schedule), memory_(std::move(memory)),
      parameters_(parameters.begin(), parameters.end()), random_(schedule.seed * 0x9E3779B97F4A7C15u + 1) {
    counts.kernel = program.kernel.name;
    counts.grid = grid.blocks;
    counts.block = grid.threads;
    counts.shared_bytes = program.static_shared + grid.shared_bytes;
}

// ---- Failures

void Machine::fail(const std::string& what, Mask mask) const {
    const Instruction& i = program_.code[running_at_];
    throw Error("ptx: " + what + "\n  kernel " + program_.kernel.name + ", line " + std::to_string(i.line) + ": " +
                std::string(program_.source.line(i.line)) + "\n  block " + text_of(running_->block->index) + ", warp " +
                std::to_string(running_->number) + ", lanes " + text_of(mask) + "\n");
}

unsigned Machine::random(unsigned n) {
    random_ += 0x9E3779B97F4A7C15u;
    std::uint64_t x = (random_ ^ random_ >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return static_cast<unsigned>((x >> 32) * n >> 32);
}

// ---- Memory

void Machine::check_global(const std::array<std::uint64_t, lanes>& at, std::uint64_t first, std::uint64_t last,
                           unsigned bytes, Mask mask) {
    if (last_.contains(first, last + bytes - 1)) return;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        if ((mask >> lane & 1) == 0 || last_.contains(at[lane], at[lane] + bytes - 1)) continue;
        auto it = std::upper_bound(memory_.begin(), memory_.end(), at[lane],
                                   [](std::uint64_t address, const Range& range) { return address < range.begin; });
        if (it == memory_.begin() || !(--it)->contains(at[lane], at[lane] + bytes - 1)) {
            std::string near;
            if (it != memory_.end() && it->begin <= at[lane])
                near = ": it is byte " + std::to_string(at[lane] - it->begin) + " from the beginning of one of " +
                       std::to_string(it->end - it->begin);
            fail("an access to global memory outside of every allocation" + near, Mask{1} << lane);
        }
        last_ = *it;
    }
}

// ---- Blocks

void Machine::begin(Block& block) {
    const std::uint64_t n = size_of(grid_.blocks);
    const std::uint64_t number = schedule_.order == 0 ? begun_ : schedule_.order == 1 ? n - 1 - begun_ : order_[begun_];
    ++begun_;
    block.index = dim3(static_cast<unsigned>(number % grid_.blocks.x),
                       static_cast<unsigned>(number / grid_.blocks.x % grid_.blocks.y),
                       static_cast<unsigned>(number / grid_.blocks.x / grid_.blocks.y));
    constexpr std::array junk{std::byte{0xC7}, std::byte{0x3B}, std::byte{0x91}};
    block.shared.assign(program_.static_shared + grid_.shared_bytes, junk[static_cast<unsigned>(schedule_.order)]);
    block.loaded = block.stored = {};
    for (Barrier& barrier : block.barriers) barrier = {};
    const unsigned threads = size_of(grid_.threads), warps = (threads + lanes - 1) / lanes;
    block.alive = warps;
    counts.warps += warps;
    while (block.warps.size() < warps) block.warps.push_back(std::make_unique<Warp>());
    for (unsigned k = 0; k < warps; ++k) {
        Warp& w = *block.warps[k];
        const unsigned here = std::min(threads - k * lanes, lanes);
        w.machine = this;
        w.block = &block;
        w.number = k;
        w.rows.resize(program_.row_bytes);
        w.predicate_words.resize(program_.n_predicates);
        w.registers = w.rows.data();
        w.predicates = w.predicate_words.data();
        w.predicates[0] = 0;
        w.predicates[1] = whole;
        w.bases = {w.registers, program_.constants.data()};
        w.at = 0;
        w.reconverge = none;
        w.active = w.alive = here == lanes ? whole : (Mask{1} << here) - 1;
        w.state = State::ready;
        w.times = {};
        w.paths.clear();
        w.ready.assign(program_.n_rows, 0);
        w.defined.assign(program_.tracked_names.size(), 0);
        w.local.assign(lanes * program_.local_bytes, junk[0]);
        const auto set = [&](Special which, auto&& value) {
            auto* row = reinterpret_cast<std::uint32_t*>(w.registers) + static_cast<unsigned>(which) * lanes;
            for (unsigned lane = 0; lane < lanes; ++lane) row[lane] = static_cast<std::uint32_t>(value(lane));
        };
        const auto set_all = [&](Special which, std::size_t value) { set(which, [&](unsigned) { return value; }); };
        const dim3& of = grid_.threads;
        set(Special::tid_x, [&](unsigned lane) { return (k * lanes + lane) % of.x; });
        set(Special::tid_y, [&](unsigned lane) { return (k * lanes + lane) / of.x % of.y; });
        set(Special::tid_z, [&](unsigned lane) { return (k * lanes + lane) / of.x / of.y; });
        set_all(Special::ntid_x, of.x);
        set_all(Special::ntid_y, of.y);
        set_all(Special::ctaid_x, block.index.x);
        set_all(Special::ctaid_y, block.index.y);
        set_all(Special::ctaid_z, block.index.z);
        set_all(Special::nctaid_x, grid_.blocks.x);
        set(Special::laneid, [](unsigned lane) { return lane; });
    }
}

void Machine::run() {
    const unsigned modes = _mm_getcsr();
    struct Restore {
        unsigned modes;
        ~Restore() { _mm_setcsr(modes); }
    } const restore{modes};
    _mm_setcsr(0x1F80); // a GPU ignores the host's floating-point modes
    const std::uint64_t blocks = std::uint64_t{grid_.blocks.x} * grid_.blocks.y * grid_.blocks.z;
    if (schedule_.order == 2) {
        order_.resize(blocks);
        std::iota(order_.begin(), order_.end(), 0);
        for (std::size_t n = order_.size(); n > 1; --n)
            std::swap(order_[n - 1], order_[random(static_cast<unsigned>(n))]);
    }
    while (in_flight_.size() < std::min<std::uint64_t>(schedule_.blocks_in_flight, blocks)) {
        in_flight_.push_back(std::make_unique<Block>());
        begin(*in_flight_.back());
    }
    while (!in_flight_.empty()) {
        bool any = false;
        for (std::size_t b = 0; b < in_flight_.size(); ++b) {
            Block& block = *in_flight_[schedule_.order == 2 ? random(static_cast<unsigned>(in_flight_.size())) : b];
            any = go_round(block) || any;
            if (block.alive > 0) continue;
            any = true;
            if (begun_ < blocks) {
                begin(block);
            } else {
                std::erase_if(in_flight_, [&](const auto& it) { return it.get() == &block; });
                break;
            }
        }
        if (!any && !in_flight_.empty() && std::ranges::none_of(in_flight_, can_go_on)) {
            running_ = in_flight_[0]->warps[0].get();
            for (const auto& warp : in_flight_[0]->warps)
                if (warp->state == State::waiting) running_ = warp.get();
            running_at_ = running_->at - 1;
            fail("threads wait for ever in a barrier", running_->active);
        }
    }
}

bool Machine::can_go_on(const std::unique_ptr<Block>& block) {
    return std::ranges::any_of(block->warps, [](const auto& warp) { return warp->state == State::ready; });
}

// Gives every warp of the block a turn. Returns whether any of them could take it.
bool Machine::go_round(Block& block) {
    const unsigned warps = (size_of(grid_.threads) + lanes - 1) / lanes;
    bool any = false;
    for (unsigned k = 0; k < warps && block.alive > 0; ++k) {
        const unsigned which = schedule_.order == 0 ? k : schedule_.order == 1 ? warps - 1 - k : random(warps);
        Warp& warp = *block.warps[which];
        if (warp.state != State::ready) continue;
        any = true;
        turn(warp);
    }
    return any;
}

// ---- A warp's turn

void Machine::turn(Warp& w) {
    running_ = &w;
    const Instruction* const code = program_.code.data();
    const std::uint64_t most = schedule_.order == 2 ? 1 + random(200) : instructions_of_turn;
    for (std::uint64_t n = 0; n < most; ++n) {
        while (w.at == w.reconverge) next_path(w);
        const Instruction& i = code[running_at_ = w.at];
        Mask mask = w.active;
        if (i.guarded && i.kind != Kind::branch) mask &= w.predicate(i.guard);
        account(w, i, mask);
        if (i.tracked) [[unlikely]]
            check_defined(w, mask);
        switch (i.kind) {
        case Kind::plain:
            i.execute(w, i, mask);
            ++w.at;
            continue;
        case Kind::branch: branch(w, i); continue;
        case Kind::table: branch_by_table(w, i); continue;
        case Kind::exit:
            ++w.at;
            exit(w, mask);
            if (w.state == State::done) return;
            continue;
        case Kind::trap:
            if (mask != 0) fail("a trap", mask);
            ++w.at;
            continue;
        case Kind::barrier:
            if (mask == 0) {
                ++w.at;
                continue;
            }
            arrive(w, i);
            if (w.state == State::waiting) return;
            continue;
        case Kind::sleep:
            ++w.at;
            spin(n + 1);
            return;
        }
    }
    spin(most);
}

void Machine::spin(std::uint64_t instructions) {
    spun_ += instructions;
    if (spun_ <= spin_limit) return;
    fail("everything only spins", running_->active);
}

void Machine::account(Warp& w, const Instruction& i, Mask mask) {
    Executed& count = executed[static_cast<std::size_t>(&i - program_.code.data())];
    ++count.warps;
    count.threads += static_cast<std::uint64_t>(std::popcount(mask));
    Times& t = w.times;
    const Class of = i.cost.of;
    const bool accesses = of == Class::shared || of == Class::global || of == Class::local || of == Class::atomic;
    const bool writes = accesses && (of == Class::atomic || i.n_to == 0);
    if (i.begins_block || of == Class::barrier) t.go_on_at(t.clock);
    std::uint64_t start = std::max(t.begin, w.ready[i.guard.row]);
    for (unsigned k = i.n_to; k < i.n; ++k) start = std::max(start, w.ready[i.operands[k].row]);
    const std::array accesses_memory{accesses && (i.space == Space::shared || i.space == Space::generic),
                                     accesses && i.space != Space::shared};
    for (unsigned k = 0; k < accesses_memory.size(); ++k)
        if (accesses_memory[k]) start = std::max(start, writes ? t.accessed[k] : t.written[k]);
    t.started = start;
    for (unsigned k = 0; k < i.n_to; ++k)
        if (i.operands[k].row != 0) w.ready[i.operands[k].row] = start + i.cost.latency;
    const std::uint64_t end = start + 1;
    if (of != Class::move && of != Class::parameter) { // those rarely become machine instructions
        ++t.issued;
        t.clock = std::max({t.clock, t.issued, end});
    }
    for (unsigned k = 0; k < accesses_memory.size(); ++k) {
        if (accesses_memory[k]) t.accessed[k] = std::max(t.accessed[k], end);
        if (accesses_memory[k] && writes) t.written[k] = std::max(t.written[k], end);
    }
    if (of == Class::barrier) t.go_on_at(t.clock);
}

void Machine::check_defined(Warp& w, Mask mask) {
    const Tracked& uses = program_.tracked.at(w.at);
    for (const std::uint32_t r : uses.reads)
        if (const Mask undefined = mask & ~w.defined[r])
            fail("register " + program_.tracked_names[r] + " has no value", undefined);
    for (const std::uint32_t r : uses.writes) w.defined[r] |= mask;
}

// ---- Control flow

void Machine::branch(Warp& w, const Instruction& i) {
    const Mask taken = i.guarded ? w.active & w.predicate(i.guard) : w.active;
    if (taken != 0) w.times.clock += i.cost.latency;
    if (taken == w.active) {
        w.at = i.target;
    } else if (taken == 0) {
        ++w.at;
    } else {
        const std::array sides{Path{w.at + 1, i.reconverge, w.active & ~taken}, Path{i.target, i.reconverge, taken}};
        diverge(w, i.reconverge, sides);
    }
}

void Machine::branch_by_table(Warp& w, const Instruction& i) {
    const auto& targets = program_.tables[i.target];
    const auto* index = w.from<std::uint32_t>(i, 0);
    const Mask mask = i.guarded ? w.active & w.predicate(i.guard) : w.active;
    std::vector<Path> sides;
    if (w.active != mask) sides.push_back({w.at + 1, i.reconverge, w.active & ~mask});
    for (std::uint32_t t = 0; t < targets.size(); ++t) {
        Mask here = 0;
        for (unsigned lane = 0; lane < lanes; ++lane) here |= static_cast<Mask>(index[lane] == t) << lane;
        if ((here & mask) != 0) sides.push_back({targets[t], i.reconverge, here & mask});
    }
    Mask all = 0;
    for (const Path& side : sides) all |= side.mask;
    if (all != w.active) fail("an index beyond the branch's targets", w.active & ~all);
    w.times.clock += i.cost.latency;
    if (sides.size() == 1)
        w.at = sides[0].at;
    else
        diverge(w, i.reconverge, sides);
}

// Splits the lanes into paths until they meet again.
void Machine::diverge(Warp& w, std::uint32_t meet, std::span<const Path> sides) {
    if (meet == none) meet = w.reconverge;                                       // none of them ever reaches the end
    if (meet != w.reconverge) w.paths.push_back({meet, w.reconverge, w.active}); // all, once they have met
    const std::size_t first = w.paths.size();
    for (const Path& side : sides)
        if (side.at != meet) w.paths.push_back({side.at, meet, side.mask});
    if (schedule_.order != 1) std::reverse(w.paths.begin() + static_cast<std::ptrdiff_t>(first), w.paths.end());
    if (schedule_.order == 2 && w.paths.size() > first + 1 && random(2) == 0) std::swap(w.paths[first], w.paths.back());
    next_path(w);
}

// Continues with the last path whose lanes have not all exited.
void Machine::next_path(Warp& w) {
    while (!w.paths.empty()) {
        const Path path = w.paths.back();
        w.paths.pop_back();
        if ((path.mask & w.alive) == 0) continue;
        w.at = path.at;
        w.reconverge = path.reconverge;
        w.active = path.mask & w.alive;
        return;
    }
    fail("no lanes are left that could go on", w.alive);
}

void Machine::exit(Warp& w, Mask mask) {
    w.alive &= ~mask;
    w.active &= ~mask;
    if (w.active != 0) return;
    if (w.alive != 0) return next_path(w);
    w.state = State::done;
    spun_ = 0;
    counts.chain_sum += w.times.clock;
    counts.chain_longest = std::max(counts.chain_longest, w.times.clock);
    --w.block->alive;
    for (unsigned b = 0; b < w.block->barriers.size(); ++b) check_barrier(*w.block, b);
}

// ---- Barriers

void Machine::arrive(Warp& w, const Instruction& i) {
    if (w.active != w.alive) fail("a barrier that not all lanes of the warp have reached", w.alive & ~w.active);
    const unsigned first = i.n_to;
    const auto lane = static_cast<unsigned>(std::countr_zero(w.active));
    const std::uint32_t number = w.from<std::uint32_t>(i, first)[lane];
    const std::uint32_t wanted = w.from<std::uint32_t>(i, first + 1)[lane];
    if (number >= w.block->barriers.size()) fail("barrier " + std::to_string(number), w.active);
    if (wanted % lanes != 0) fail("a barrier for a part of a warp", w.active);
    Barrier& b = w.block->barriers[number];
    if (b.arrived > 0 && (b.operation != i.operation || b.wanted != wanted))
        fail("a barrier that other warps have reached as another kind, or with another count", w.active);
    b.operation = i.operation;
    b.wanted = wanted;
    b.arrived += lanes;
    b.clock = std::max(b.clock, w.times.clock);
    if (i.n > first + 2) {
        const Mask yes = w.predicate(i.operands[first + 2]) & w.active;
        b.truths += static_cast<unsigned>(std::popcount(yes));
        b.all = b.all && yes == w.active;
    }
    ++w.at;
    w.state = State::waiting;
    b.waiting.push_back({&w, &i});
    check_barrier(*w.block, number);
}

// Lets the warps go on if all that have to arrive have done so.
void Machine::check_barrier(Block& block, unsigned number) {
    Barrier& b = block.barriers[number];
    const unsigned wanted = b.wanted > 0 ? b.wanted : block.alive * lanes;
    if (b.arrived == 0 || b.arrived < wanted) return;
    ++counts.barriers;
    spun_ = 0;
    const Barrier done = std::exchange(b, {});
    for (const auto& [warp, instruction] : done.waiting) {
        Warp& w = *warp;
        w.state = State::ready;
        w.times.go_on_at(done.clock + instruction->cost.latency);
        if (instruction->n_to == 0) continue;
        w.ready[instruction->operands[0].row] = w.times.clock;
        if (done.operation == barrier_count) {
            auto* to = w.to<std::uint32_t>(*instruction, 0);
            for (unsigned lane = 0; lane < lanes; ++lane)
                if (w.active >> lane & 1) to[lane] = done.truths;
        } else {
            const bool holds = done.operation == barrier_and ? done.all : done.truths > 0;
            w.set_predicate(*instruction, 0, holds ? whole : 0, w.active);
        }
    }
}

} // namespace ptx
