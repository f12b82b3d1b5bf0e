// The text of a PTX file, split into its variables and its kernels' statements. Nothing is interpreted here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ptx {

// What is wrong with a file, or with what a kernel did.
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Space : std::uint8_t { generic, global, shared, local, param, constant };

// A variable or a kernel's parameter: `bytes` of its space, initially `value` (or junk, if that is empty).
struct Variable {
    std::string name;
    Space space{};
    std::size_t bytes = 0, alignment = 1;
    bool dynamic = false; // an array of unknown size: dynamic shared memory
    std::vector<std::byte> value;
};

// The registers that one declaration makes: `name`, or name0, name1, ..
struct Registers {
    std::string name;
    std::uint32_t count = 1, first = 0; // number of the first one
    bool numbered = false;
    unsigned bits = 0; // 1: a predicate
};

// An instruction's operand as it is written.
struct Written {
    enum class Kind : std::uint8_t { reg, immediate, symbol, address, list } kind{};
    bool negated = false;
    std::uint32_t reg = 0;        // of reg, and of an address that has one
    bool has_reg = false;         // of an address
    std::string_view symbol;      // of symbol, of a label, and of an address without a register
    std::int64_t offset = 0;      // of symbol and of an address
    std::uint64_t bits = 0;       // of immediate: an integer, or the bits of a floating-point number
    std::vector<Written> members; // of list
};

struct Statement {
    std::uint32_t line = 0;
    bool guarded = false, guard_negated = false;
    std::uint32_t guard = 0; // register
    std::string_view opcode;
    std::vector<Written> operands; // `a|b` is two operands
    bool paired = false;           // the first two were written a|b
};

struct Kernel {
    std::string name;
    std::uint32_t line = 0;
    std::vector<Variable> parameters, variables; // variables: shared and local ones of its own
    std::vector<unsigned> register_bits;         // of every register: 1, 16, 32 or 64
    std::vector<std::string> register_names;
    std::vector<Statement> statements;
    std::map<std::string_view, std::size_t> labels; // the statement that follows
    std::map<std::string_view, std::vector<std::string_view>> branch_targets;
};

// Keeps the text, to which everything refers.
class Source {
public:
    explicit Source(std::string text);
    Source(const Source&) = delete;
    Source& operator=(const Source&) = delete;

    const std::vector<Variable>& variables() const { return variables_; }
    const std::map<std::string, Kernel, std::less<>>& kernels() const { return kernels_; }
    std::string_view line(std::uint32_t number) const;

private:
    friend class Parser;
    std::string text_;
    std::vector<std::size_t> lines_; // where each begins
    std::vector<Variable> variables_;
    std::map<std::string, Kernel, std::less<>> kernels_;
};

} // namespace ptx
