// Runs a decoded kernel: blocks in flight, their warps in turn, 32 lanes in lockstep. See ptx.hpp.
#pragma once

#include "program.hpp"

#include "emulator.hpp" // of tests/simt

#include <memory>
#include <span>

namespace ptx {

// ---- What is counted

struct Counts {
    std::string kernel;
    dim3 grid, block;
    std::size_t shared_bytes = 0;
    std::array<std::uint64_t, class_names.size()> threads{}; // executed instructions, by class
    std::uint64_t warp_instructions = 0;
    std::uint64_t shared_wavefronts = 0, shared_accesses = 0; // of warps
    std::uint64_t sectors_loaded = 0, sectors_stored = 0, global_accesses = 0;
    // Of these, loads that miss an L1 cache, and stores that an L2 cache merges (SectorCache).
    std::uint64_t sectors_missed = 0, sectors_merged = 0;
    std::uint64_t barriers = 0; // passed by blocks
    std::uint64_t warps = 0;
    std::uint64_t chain_longest = 0; // cycles, of any warp
    std::uint64_t chain_sum = 0;     // over all warps
};

// Executions of one instruction: by warps, and by lanes that took part.
struct Executed {
    std::uint64_t warps = 0, threads = 0;
};

// ---- State

struct Range {
    std::uint64_t begin = 0, end = 0;
    bool contains(std::uint64_t first, std::uint64_t last) const { return begin <= first && last < end; }
};

struct Block;
class Machine;

// Lanes that continue elsewhere once those before them have reached `reconverge`, or have exited.
struct Path {
    std::uint32_t at, reconverge;
    Mask mask;
};

enum class State : std::uint8_t { ready, waiting, done };

// The cycles of a warp, which starts one instruction at a time.
//
// The assembler reorders the instructions of a basic block, so that those that wait for memory do not hold up the
// others: within a block, an instruction starts when its operands are ready. Only accesses that may touch the same
// memory stay in order, if one of them writes.
struct Times {
    std::uint64_t begin = 0;   // of the basic block, or of the code after a barrier
    std::uint64_t issued = 0;  // when its instructions so far could have started, had none waited
    std::uint64_t clock = 0;   // when all so far have
    std::uint64_t started = 0; // when the last one did
    // After the last access to shared memory, and to other memory; and after the last one that writes there.
    std::array<std::uint64_t, 2> accessed{}, written{};

    void go_on_at(std::uint64_t cycle) { begin = issued = clock = cycle; }
};

struct Warp {
    Machine* machine = nullptr;
    Block* block = nullptr;
    std::array<const std::byte*, 2> bases{}; // of registers and of constants
    std::byte* registers = nullptr;
    Mask* predicates = nullptr;
    unsigned number = 0;
    std::uint32_t at = 0, reconverge = none;
    Mask active = 0, alive = 0;
    State state = State::done;
    Times times;
    std::vector<Path> paths;
    std::vector<std::uint64_t> ready; // by row: the cycle from which it can be used
    std::vector<Mask> defined;        // by number of a register that may be undefined
    std::vector<std::byte> rows, local;
    std::vector<Mask> predicate_words;

    template <class Item>
    const Item* from(const Instruction& i, unsigned operand) const {
        const Operand& o = i.operands[operand];
        return reinterpret_cast<const Item*>(bases[o.constant ? 1 : 0] + o.at);
    }
    template <class Item>
    Item* to(const Instruction& i, unsigned operand) const {
        return reinterpret_cast<Item*>(registers + i.operands[operand].at);
    }
    Mask predicate(const Operand& o) const { return o.negated ? ~predicates[o.at] : predicates[o.at]; }
    void set_predicate(const Instruction& i, unsigned operand, Mask value, Mask mask) const {
        Mask& p = predicates[i.operands[operand].at];
        p = (p & ~mask) | (value & mask);
    }
};

enum BarrierOperation : std::uint8_t { barrier_sync, barrier_count, barrier_and, barrier_or };

// One of a block's barriers.
struct Barrier {
    std::uint8_t operation = barrier_sync;
    unsigned arrived = 0, wanted = 0, truths = 0; // threads; wanted 0: all of the block
    bool all = true;                              // arrived threads have a true predicate
    std::uint64_t clock = 0;
    struct Waiting {
        Warp* warp;
        const Instruction* instruction;
    };
    std::vector<Waiting> waiting;
};

// The cache that a block is assumed to have, 64 KiB of its multiprocessor's: lines of four 32-byte sectors, in sets of
// four lines. The set is a hash of the line's number.
class SectorCache {
public:
    // Returns whether it has this sector, and adds it if not.
    bool take(std::uint64_t sector) {
        const std::uint64_t number = sector / of_line;
        auto& set = sets_[(number * 0x9E3779B97F4A7C15u >> 32) % sets_.size()];
        std::size_t at = 0;
        while (at + 1 < set.size() && set[at].number != number) ++at;
        const unsigned has = set[at].number == number ? set[at].sectors : 0;
        for (; at > 0; --at) set[at] = set[at - 1]; // the one used last comes first
        const unsigned it = 1u << sector % of_line;
        set[0] = {number, has | it};
        return (has & it) != 0;
    }

private:
    struct Line {
        std::uint64_t number = ~std::uint64_t{0};
        unsigned sectors = 0;
    };
    static constexpr std::uint64_t of_line = 4;
    std::array<std::array<Line, 4>, 65536 / 128 / 4> sets_{};
};

struct Block {
    dim3 index;
    SectorCache loaded, stored;
    std::vector<std::unique_ptr<Warp>> warps;
    std::vector<std::byte> shared;
    std::array<Barrier, 16> barriers;
    unsigned alive = 0; // warps
};

// ---- The machine

class Machine {
public:
    // memory: the ranges that kernels can access, sorted.
    Machine(const Program& program, const simt::Grid& grid, const simt::Schedule& schedule, std::vector<Range> memory,
            std::span<const std::byte> parameters);

    // Runs all blocks. Throws Error, with a report of the place.
    void run();

    Counts counts;
    std::vector<Executed> executed; // by instruction

    // ---- For instructions (table.hpp)

    [[noreturn]] void fail(const std::string& what, Mask mask) const;
    // Fails unless the bytes of each lane lie in one allocation. first, last: the lowest and highest address.
    void check_global(const std::array<std::uint64_t, lanes>& at, std::uint64_t first, std::uint64_t last,
                      unsigned bytes, Mask mask);
    std::span<const std::byte> parameters() const { return parameters_; }
    const simt::Schedule& schedule() const { return schedule_; }
    // 0 to n - 1.
    unsigned random(unsigned n);
    const Program& program() const { return program_; }

private:
    void begin(Block& block);
    bool go_round(Block& block);
    static bool can_go_on(const std::unique_ptr<Block>& block);
    void turn(Warp& warp);
    void spin(std::uint64_t instructions);
    void account(Warp& warp, const Instruction& i, Mask mask);
    void check_defined(Warp& warp, Mask mask);
    void branch(Warp& warp, const Instruction& i);
    void branch_by_table(Warp& warp, const Instruction& i);
    void diverge(Warp& warp, std::uint32_t meet, std::span<const Path> sides);
    void next_path(Warp& warp);
    void exit(Warp& warp, Mask mask);
    void arrive(Warp& warp, const Instruction& i);
    void check_barrier(Block& block, unsigned number);

    const Program& program_;
    const simt::Grid& grid_;
    const simt::Schedule& schedule_;
    std::vector<Range> memory_;
    Range last_; // the one accessed last
    std::vector<std::byte> parameters_;
    std::vector<std::unique_ptr<Block>> in_flight_;
    std::vector<std::uint64_t> order_; // of blocks, if it is random
    std::uint64_t begun_ = 0;
    std::uint64_t random_;
    std::uint64_t spun_ = 0; // instructions since something moved on
    Warp* running_ = nullptr;
    std::uint32_t running_at_ = 0; // its instruction
};

} // namespace ptx
