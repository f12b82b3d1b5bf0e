// A decoded kernel: everything is looked up once, so that executing an instruction for a warp takes some tens of
// nanoseconds.
//
// Registers lie in rows of 32 values, one per lane; 16-bit registers have rows of 32-bit values. Registers whose values
// are never needed at the same time share a row, so that the rows of a warp fit the CPU's cache. Immediates are rows of
// constants. A predicate is one word with a bit for every lane.
#pragma once

#include "source.hpp"

#include <array>

namespace ptx {

using Mask = std::uint32_t; // of lanes
constexpr unsigned lanes = 32;
constexpr Mask whole = ~Mask{0};
constexpr std::uint32_t none = ~std::uint32_t{0};

struct Warp;
struct Instruction;
using Execute = void (*)(Warp&, const Instruction&, Mask);

// What is counted separately.
enum class Class : std::uint8_t {
    integer,
    floating,
    real64,
    conversion,
    move,
    predicate,
    control,
    parameter,
    shared,
    global,
    local,
    atomic,
    shuffle,
    barrier
};
inline constexpr std::array class_names{"integer",   "float",   "double",    "conversion", "move",
                                        "predicate", "control", "parameter", "shared",     "global",
                                        "local",     "atomic",  "shuffle",   "barrier"};

// What the machine executes itself, because it concerns more than the lanes' registers.
enum class Kind : std::uint8_t { plain, branch, table, exit, trap, barrier, sleep };

struct Cost {
    Class of;
    std::uint16_t latency; // cycles until the result can be used
};

// An instruction's form: its opcode with all suffixes.
struct Form {
    std::array<Execute, 2> execute{}; // with data in 32-bit and in 64-bit rows, if both are possible; else the first
    Cost cost{};
    Kind kind = Kind::plain;
    std::string to{}, from{}; // operands: w and d for rows of 32 and 64 bits, x for either, p for predicates, a for an
                              // address, i for an immediate, l for a label; `to` may end with ?: an optional predicate
    Space space{};            // of an access
    std::uint8_t bytes = 0;   // of one value
    std::uint8_t vector = 1;
    std::uint8_t operation = 0; // of atomics, barriers and the like, each with its own meaning
};

// Throws Error if there is no such instruction.
const Form& form_of(std::string_view opcode);
// All forms in the table, by name, for tests: "opcode to from", one per line.
std::string list_of_forms();

struct Operand {
    std::uint32_t at = 0;  // byte of the row; index of a predicate
    std::uint16_t row = 0; // number for dependences, 0 for constants
    bool constant = false, negated = false;
};

struct Instruction {
    Execute execute = nullptr;
    std::array<Operand, 6> operands{}; // those written come first
    Operand guard{};
    std::uint8_t n_to = 0, n = 0;
    Kind kind{};
    Cost cost{};
    Space space{};
    std::uint8_t bytes = 0, vector = 1, operation = 0;
    bool guarded = false;
    bool tracked = false;      // uses registers that may be undefined
    bool passes_cache = false; // a load that must see what is in memory now
    bool begins_block = false; // it may be jumped to, or it follows a branch
    std::int64_t offset = 0;
    std::uint32_t target = none, reconverge = none;
    std::uint32_t line = 0;
};

// Uses of registers that may be read before they are written.
struct Tracked {
    std::vector<std::uint32_t> reads, writes; // numbers within Program::tracked_names
};

enum class Special : std::uint8_t {
    tid_x,
    tid_y,
    tid_z,
    ntid_x,
    ntid_y,
    ctaid_x,
    ctaid_y,
    ctaid_z,
    nctaid_x,
    laneid,
    count
};

// Where the addresses of a space begin, so that 0 is never valid.
constexpr std::uint64_t shared_begin = 1024, local_begin = 256, param_begin = 256;
// The window of generic addresses that shared memory has, above those of a process.
constexpr unsigned window_shift = 56;
constexpr std::uint64_t window_of(Space space) { return space == Space::shared ? std::uint64_t{1} << window_shift : 0; }

class Program {
public:
    // addresses: of the module's variables in global and constant memory.
    Program(const Source& source, const Kernel& kernel, const std::map<std::string, std::uint64_t>& addresses);

    const Source& source;
    const Kernel& kernel;
    std::vector<Instruction> code;
    std::vector<std::vector<std::uint32_t>> tables; // targets of branches by index
    std::map<std::uint32_t, Tracked> tracked;       // by instruction
    std::vector<std::string> tracked_names;
    std::vector<std::byte> constants;
    std::size_t row_bytes = 0;      // of a warp's rows
    std::uint32_t n_predicates = 2; // the first two are false and true
    std::uint32_t n_rows = 1;       // for dependences
    std::size_t static_shared = 0;  // bytes
    std::size_t shared_alignment = 16;
    std::size_t local_bytes = 0, param_bytes = 0;
    std::vector<std::size_t> param_at; // of each parameter
};

} // namespace ptx
