#include "program.hpp"

#include <algorithm>
#include <bit>

namespace ptx {

namespace {

constexpr std::array special_names{"%tid.x",   "%tid.y",   "%tid.z",   "%ntid.x",   "%ntid.y",
                                   "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%laneid"};
static_assert(special_names.size() == static_cast<std::size_t>(Special::count));

constexpr std::size_t word_row = 4 * lanes, long_row = 8 * lanes;
// Rows that every warp has: those of special registers, and one for unwanted results.
constexpr std::size_t sink_at = static_cast<std::size_t>(Special::count) * word_row;
constexpr std::size_t registers_at = sink_at + long_row;

std::size_t aligned(std::size_t n, std::size_t alignment) { return (n + alignment - 1) / alignment * alignment; }

// ---- Sets of registers

class Bits {
public:
    explicit Bits(std::size_t n = 0) : words_((n + 63) / 64) {}
    bool test(std::size_t i) const { return words_[i / 64] >> i % 64 & 1; }
    void set(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << i % 64; }
    void clear(std::size_t i) { words_[i / 64] &= ~(std::uint64_t{1} << i % 64); }
    // Adds what is in `other` and not in `without`. Returns whether that changes anything.
    bool add(const Bits& other, const Bits& without) {
        std::uint64_t changed = 0;
        for (std::size_t i = 0; i < words_.size(); ++i) {
            const std::uint64_t now = words_[i] | (other.words_[i] & ~without.words_[i]);
            changed |= now ^ words_[i];
            words_[i] = now;
        }
        return changed != 0;
    }
    void add(const Bits& other) {
        for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    }
    template <class Use>
    void each(Use&& use) const {
        for (std::size_t w = 0; w < words_.size(); ++w)
            for (std::uint64_t left = words_[w]; left != 0; left &= left - 1)
                use(64 * w + static_cast<std::size_t>(std::countr_zero(left)));
    }

private:
    std::vector<std::uint64_t> words_;
};

// ---- Statements with their forms

struct Decoded {
    const Statement* statement;
    const Form* form;
    std::vector<Written> operands; // lists flattened, omitted results put in
    unsigned n_to = 0;
};

constexpr std::string_view sink = "_";

[[noreturn]] void fail(const Statement& statement, std::string_view what) {
    throw Error("PTX line " + std::to_string(statement.line) + ": " + std::string(statement.opcode) + ": " +
                std::string(what));
}

Decoded decoded(const Statement& statement) {
    Decoded made{&statement, nullptr, {}, 0};
    std::string opcode(statement.opcode);
    // mov between a register and its parts is a form of its own
    if (opcode.starts_with("mov."))
        for (std::size_t i = 0; i < statement.operands.size(); ++i)
            if (statement.operands[i].kind == Written::Kind::list)
                opcode = (i == 0 ? "unpack" : "pack") + std::to_string(statement.operands[i].members.size()) +
                         opcode.substr(3);
    try {
        made.form = &form_of(opcode);
    } catch (const Error& error) {
        fail(statement, error.what());
    }
    const Form& form = *made.form;
    const bool optional = form.to.ends_with('?');
    const std::string wanted = form.to.substr(0, form.to.size() - (optional ? 1 : 0));
    made.n_to = static_cast<unsigned>(wanted.size());
    for (const Written& operand : statement.operands) {
        if (operand.kind == Written::Kind::list)
            made.operands.insert(made.operands.end(), operand.members.begin(), operand.members.end());
        else
            made.operands.push_back(operand);
    }
    if (optional && !statement.paired) {
        Written nothing;
        nothing.kind = Written::Kind::symbol;
        nothing.symbol = sink;
        made.operands.insert(made.operands.begin() + 1, nothing);
    }
    if (form.kind == Kind::barrier && made.operands.size() + 1 == wanted.size() + form.from.size()) {
        Written all_threads; // without a count of threads
        all_threads.kind = Written::Kind::immediate;
        made.operands.insert(made.operands.begin() + made.n_to + 1, all_threads);
    }
    if (made.operands.size() != wanted.size() + form.from.size())
        fail(statement, "takes " + std::to_string(wanted.size() + form.from.size()) + " operands");
    return made;
}

class Decoder {
public:
    Decoder(Program& program, const std::map<std::string, std::uint64_t>& addresses)
        : p_(program), kernel_(program.kernel), addresses_(addresses) {}

    void decode() {
        place_variables();
        for (const Statement& statement : kernel_.statements) all_.push_back(decoded(statement));
        if (all_.empty()) throw Error("kernel " + kernel_.name + " is empty");
        find_blocks();
        find_live();
        find_post_dominators();
        place_registers();
        for (std::size_t i = 0; i < all_.size(); ++i) p_.code.push_back(instruction(i));
        find_tracked();
    }

private:
    struct Block {
        std::uint32_t begin = 0, end = 0;
        std::vector<std::uint32_t> next, before; // blocks
        bool exits = false;
        Bits live_in, live_out;
    };

    // ---- Memory

    void place_variables() {
        std::size_t param = 0;
        for (const Variable& v : kernel_.parameters) {
            param = aligned(param, v.alignment);
            p_.param_at.push_back(param);
            places_[v.name] = param_begin + param;
            param += v.bytes;
        }
        p_.param_bytes = param;
        std::vector<const Variable*> shared;
        for (const Variable& v : p_.source.variables())
            if (v.space == Space::shared) shared.push_back(&v);
        for (const Variable& v : kernel_.variables) {
            if (v.space == Space::shared) shared.push_back(&v);
            if (v.space != Space::local) continue;
            p_.local_bytes = aligned(p_.local_bytes, v.alignment);
            places_[v.name] = local_begin + p_.local_bytes;
            p_.local_bytes += v.bytes;
        }
        for (const Variable* v : shared) {
            if (v->dynamic) {
                p_.shared_alignment = std::max(p_.shared_alignment, v->alignment);
                continue;
            }
            p_.static_shared = aligned(p_.static_shared, v->alignment);
            places_[v->name] = shared_begin + p_.static_shared;
            p_.static_shared += v->bytes;
        }
        p_.static_shared = aligned(p_.static_shared, p_.shared_alignment);
        for (const Variable* v : shared)
            if (v->dynamic) places_[v->name] = shared_begin + p_.static_shared;
    }

    std::uint64_t place(const Statement& statement, std::string_view symbol) const {
        const std::string name(symbol);
        if (const auto it = places_.find(name); it != places_.end()) return it->second;
        if (const auto it = addresses_.find(name); it != addresses_.end()) return it->second;
        fail(statement, "'" + name + "' is not known");
    }

    // ---- Control flow

    std::uint32_t label(const Statement& statement, std::string_view name) const {
        const auto it = kernel_.labels.find(name);
        if (it == kernel_.labels.end()) fail(statement, "no label " + std::string(name));
        if (it->second >= all_.size()) fail(statement, "nothing follows label " + std::string(name));
        return static_cast<std::uint32_t>(it->second);
    }

    std::vector<std::uint32_t> targets_of(std::size_t i) const {
        const Decoded& d = all_[i];
        if (d.form->kind == Kind::branch) return {label(*d.statement, d.operands.back().symbol)};
        if (d.form->kind != Kind::table) return {};
        const auto it = kernel_.branch_targets.find(d.operands.back().symbol);
        if (it == kernel_.branch_targets.end()) fail(*d.statement, "no such branch targets");
        std::vector<std::uint32_t> found;
        for (const std::string_view name : it->second) found.push_back(label(*d.statement, name));
        return found;
    }
    // Whether lanes may go on with the next statement.
    bool goes_on(std::size_t i) const {
        const Kind kind = all_[i].form->kind;
        return (kind != Kind::branch && kind != Kind::table && kind != Kind::exit && kind != Kind::trap) ||
               all_[i].statement->guarded;
    }

    void find_blocks() {
        std::vector<bool> begins(all_.size() + 1);
        begins[0] = true;
        for (std::size_t i = 0; i < all_.size(); ++i) {
            const Kind kind = all_[i].form->kind;
            if (kind != Kind::branch && kind != Kind::table && kind != Kind::exit && kind != Kind::trap) continue;
            begins[i + 1] = true;
            for (const std::uint32_t target : targets_of(i)) begins[target] = true;
        }
        block_of_.resize(all_.size());
        for (std::size_t i = 0; i < all_.size(); ++i) {
            if (begins[i]) blocks_.emplace_back().begin = static_cast<std::uint32_t>(i);
            block_of_[i] = static_cast<std::uint32_t>(blocks_.size() - 1);
            blocks_.back().end = static_cast<std::uint32_t>(i + 1);
        }
        for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
            const std::size_t last = blocks_[b].end - 1;
            // after a guarded exit the other lanes still meet again
            blocks_[b].exits = all_[last].form->kind == Kind::exit && !all_[last].statement->guarded;
            std::vector<std::uint32_t> next = targets_of(last);
            if (goes_on(last)) {
                if (last + 1 == all_.size()) fail(*all_[last].statement, "nothing follows");
                next.push_back(static_cast<std::uint32_t>(last + 1));
            }
            for (const std::uint32_t i : next) {
                blocks_[b].next.push_back(block_of_[i]);
                blocks_[block_of_[i]].before.push_back(b);
            }
        }
    }

    // Immediate post-dominators (Cooper, Harvey and Kennedy), with all exits as one more block at the end. Blocks from
    // which no exit can be reached (they trap, or never end) have none.
    void find_post_dominators() {
        const auto end = static_cast<std::uint32_t>(blocks_.size());
        std::vector<std::uint32_t> order; // from the end, every block after those that follow it, where possible
        std::vector<std::uint32_t> number(end + 1, none);
        std::vector<std::pair<std::uint32_t, std::size_t>> stack;
        std::vector<bool> seen(end + 1);
        std::vector<std::uint32_t> exits;
        for (std::uint32_t b = 0; b < end; ++b)
            if (blocks_[b].exits) exits.push_back(b);
        const auto before = [&](std::uint32_t b) -> const std::vector<std::uint32_t>& {
            return b == end ? exits : blocks_[b].before;
        };
        stack.emplace_back(end, 0);
        seen[end] = true;
        while (!stack.empty()) {
            auto& [b, i] = stack.back();
            if (i < before(b).size()) {
                const std::uint32_t next = before(b)[i++];
                if (!seen[next]) {
                    seen[next] = true;
                    stack.emplace_back(next, 0);
                }
                continue;
            }
            order.push_back(b);
            stack.pop_back();
        }
        std::reverse(order.begin(), order.end());
        for (std::uint32_t i = 0; i < order.size(); ++i) number[order[i]] = i;
        std::vector<std::uint32_t> dominator(end + 1, none);
        dominator[end] = end;
        const auto common = [&](std::uint32_t a, std::uint32_t b) {
            while (a != b) {
                while (number[a] > number[b]) a = dominator[a];
                while (number[b] > number[a]) b = dominator[b];
            }
            return a;
        };
        for (bool changed = true; changed;) {
            changed = false;
            for (const std::uint32_t b : order) {
                if (b == end) continue;
                std::uint32_t found = blocks_[b].exits ? end : none;
                for (const std::uint32_t next : blocks_[b].next)
                    if (dominator[next] != none) found = found == none ? next : common(found, next);
                if (found != dominator[b]) {
                    dominator[b] = found;
                    changed = true;
                }
            }
        }
        for (const Block& block : blocks_) {
            const std::uint32_t found = dominator[static_cast<std::size_t>(&block - blocks_.data())];
            reconverge_.push_back(found == none || found == end ? none : blocks_[found].begin);
        }
    }

    // ---- Registers

    template <class Use>
    void reads(const Decoded& d, Use&& use) const {
        if (d.statement->guarded) use(d.statement->guard);
        for (std::size_t i = 0; i < d.operands.size(); ++i) {
            const Written& o = d.operands[i];
            const bool is_address = o.kind == Written::Kind::address;
            if (is_address ? o.has_reg : i >= d.n_to && o.kind == Written::Kind::reg) use(o.reg);
        }
    }
    template <class Use>
    void writes(const Decoded& d, Use&& use) const {
        for (std::size_t i = 0; i < d.n_to; ++i)
            if (d.operands[i].kind == Written::Kind::reg) use(d.operands[i].reg);
    }

    void find_live() {
        const std::size_t n = kernel_.register_bits.size();
        std::vector<Bits> written;
        for (Block& block : blocks_) {
            block.live_in = block.live_out = Bits(n);
            written.emplace_back(n);
            for (std::uint32_t i = block.end; i-- > block.begin;) {
                if (!all_[i].statement->guarded) // else some lanes may keep the old value
                    writes(all_[i], [&](std::uint32_t r) {
                        block.live_in.clear(r);
                        written.back().set(r);
                    });
                reads(all_[i], [&](std::uint32_t r) { block.live_in.set(r); });
            }
        }
        std::vector<std::uint32_t> work(blocks_.size());
        std::vector<bool> waits(blocks_.size(), true);
        for (std::uint32_t b = 0; b < work.size(); ++b) work[b] = b;
        while (!work.empty()) {
            const std::uint32_t b = work.back();
            work.pop_back();
            waits[b] = false;
            Block& block = blocks_[b];
            for (const std::uint32_t next : block.next) block.live_out.add(blocks_[next].live_in);
            if (!block.live_in.add(block.live_out, written[b])) continue;
            for (const std::uint32_t before : block.before)
                if (!waits[before]) {
                    waits[before] = true;
                    work.push_back(before);
                }
        }
    }

    // Assigns rows to registers: those whose lives, as stretches of the program's text, do not overlap can share one.
    void place_registers() {
        const std::size_t n = kernel_.register_bits.size();
        struct Life {
            std::uint32_t first = none, last = 0;
            void meet(std::uint32_t i) {
                first = std::min(first, i);
                last = std::max(last, i);
            }
        };
        std::vector<Life> lives(n);
        for (const Block& block : blocks_) {
            block.live_in.each([&](std::size_t r) { lives[r].meet(block.begin); });
            block.live_out.each([&](std::size_t r) { lives[r].meet(block.end - 1); });
            for (std::uint32_t i = block.begin; i < block.end; ++i) {
                reads(all_[i], [&](std::uint32_t r) { lives[r].meet(i); });
                writes(all_[i], [&](std::uint32_t r) { lives[r].meet(i); });
            }
        }
        number_.assign(n, none);
        blocks_[0].live_in.each([&](std::size_t r) {
            lives[r] = {0, none - 1}; // may be undefined: must not share its row
            number_[r] = static_cast<std::uint32_t>(p_.tracked_names.size());
            p_.tracked_names.push_back(kernel_.register_names[r]);
        });
        std::vector<std::uint32_t> order;
        for (std::uint32_t r = 0; r < n; ++r)
            if (lives[r].first != none) order.push_back(r);
        std::sort(order.begin(), order.end(),
                  [&](std::uint32_t a, std::uint32_t b) { return lives[a].first < lives[b].first; });
        at_.resize(n);
        struct Pool {
            std::vector<std::uint32_t> free;
            std::vector<std::pair<std::uint32_t, std::uint32_t>> taken; // a heap of (until when, which)
            std::uint32_t count = 0;
        };
        std::array<Pool, 3> pools; // words, longs, predicates
        for (const std::uint32_t r : order) {
            Pool& pool = pools[pool_of(r)];
            constexpr std::greater<> later;
            while (!pool.taken.empty() && pool.taken.front().first < lives[r].first) {
                std::pop_heap(pool.taken.begin(), pool.taken.end(), later);
                pool.free.push_back(pool.taken.back().second);
                pool.taken.pop_back();
            }
            if (pool.free.empty()) pool.free.push_back(pool.count++);
            at_[r] = pool.free.back();
            pool.free.pop_back();
            pool.taken.emplace_back(lives[r].last, at_[r]);
            std::push_heap(pool.taken.begin(), pool.taken.end(), later);
        }
        words_ = pools[0].count;
        longs_ = pools[1].count;
        p_.row_bytes = registers_at + words_ * word_row + longs_ * long_row;
        p_.n_predicates = 3 + pools[2].count; // false, true, and one for unwanted results
        p_.n_rows = 1 + words_ + longs_ + pools[2].count;
        if (p_.n_rows > 0xFFFF) throw Error("kernel " + kernel_.name + " has too many registers");
    }
    unsigned pool_of(std::uint32_t reg) const {
        const unsigned bits = kernel_.register_bits[reg];
        return bits == 1 ? 2 : bits == 64 ? 1 : 0;
    }

    Operand register_operand(std::uint32_t reg) const {
        const std::uint32_t at = at_[reg];
        Operand made;
        switch (pool_of(reg)) {
        case 0:
            made.at = static_cast<std::uint32_t>(registers_at + at * word_row);
            made.row = static_cast<std::uint16_t>(1 + at);
            break;
        case 1:
            made.at = static_cast<std::uint32_t>(registers_at + words_ * word_row + at * long_row);
            made.row = static_cast<std::uint16_t>(1 + words_ + at);
            break;
        default: made.at = 3 + at; made.row = static_cast<std::uint16_t>(1 + words_ + longs_ + at);
        }
        return made;
    }

    Operand constant(std::uint64_t bits, bool is_long) {
        const auto [it, is_new] = constants_.try_emplace({bits, is_long}, p_.constants.size());
        if (is_new) {
            const std::size_t bytes = is_long ? 8 : 4;
            for (unsigned lane = 0; lane < lanes; ++lane) {
                const auto* from = reinterpret_cast<const std::byte*>(&bits);
                p_.constants.insert(p_.constants.end(), from, from + bytes);
            }
        }
        Operand made;
        made.at = static_cast<std::uint32_t>(it->second);
        made.constant = true;
        return made;
    }

    // ---- Instructions

    Operand operand(const Decoded& d, const Written& written, char wanted, bool& is_long) {
        const Statement& statement = *d.statement;
        if (written.kind == Written::Kind::reg) {
            const unsigned pool = pool_of(written.reg);
            if ((wanted == 'p') != (pool == 2))
                fail(statement, "a predicate where none is expected, or none where one is");
            if ((wanted == 'w' && pool != 0) || (wanted == 'd' && pool != 1))
                fail(statement, "register " + kernel_.register_names[written.reg] + " has the wrong size");
            is_long = pool == 1;
            Operand made = register_operand(written.reg);
            made.negated = written.negated;
            return made;
        }
        if (written.kind == Written::Kind::immediate) {
            if (wanted == 'p') {
                Operand made;
                made.at = written.bits != 0;
                return made;
            }
            return constant(wanted == 'd' ? written.bits : written.bits & 0xFFFFFFFF, wanted == 'd');
        }
        if (written.symbol == sink) {
            Operand made;
            made.at = wanted == 'p' ? 2 : static_cast<std::uint32_t>(sink_at);
            return made;
        }
        for (std::size_t i = 0; i < special_names.size(); ++i)
            if (written.symbol == special_names[i]) {
                if (wanted == 'd') fail(statement, "a special register has 32 bits");
                Operand made;
                made.at = static_cast<std::uint32_t>(i * word_row);
                return made;
            }
        if (wanted == 'p') fail(statement, "expected a predicate");
        return constant(place(statement, written.symbol) + static_cast<std::uint64_t>(written.offset), wanted != 'w');
    }

    Instruction instruction(std::size_t i) {
        const Decoded& d = all_[i];
        const Form& form = *d.form;
        Instruction made;
        made.kind = form.kind;
        made.cost = form.cost;
        made.space = form.space;
        made.bytes = form.bytes;
        made.vector = form.vector;
        made.operation = form.operation;
        made.line = d.statement->line;
        for (const char* word : {".volatile", ".relaxed", ".acquire", ".cg", ".cv"})
            made.passes_cache = made.passes_cache || d.statement->opcode.find(word) != std::string_view::npos;
        if (d.statement->guarded) {
            made.guarded = true;
            made.guard = register_operand(d.statement->guard);
            made.guard.negated = d.statement->guard_negated;
        }
        const std::string wanted = form.to.substr(0, d.n_to) + form.from;
        bool is_long = false, any_long = false;
        for (std::size_t k = 0; k < wanted.size(); ++k) {
            const Written& written = d.operands[k];
            if (wanted[k] == 'l') continue;
            if (made.n == made.operands.size()) fail(*d.statement, "too many operands");
            if (wanted[k] == 'a') {
                made.operands[made.n++] = address(d, written, made.offset);
            } else {
                made.operands[made.n++] = operand(d, written, wanted[k], is_long);
                if (wanted[k] == 'x') any_long = any_long || is_long;
            }
            if (k < d.n_to) ++made.n_to;
        }
        // an immediate that is stored, or an operand of an atomic, has the width of the others
        for (std::size_t k = 0, at = 0; k < wanted.size(); ++k) {
            if (wanted[k] == 'l') continue;
            if (wanted[k] == 'x' && d.operands[k].kind == Written::Kind::immediate)
                made.operands[at] = constant(d.operands[k].bits, any_long || form.bytes == 8);
            if (wanted[k] == 'x') any_long = any_long || form.bytes == 8;
            ++at;
        }
        made.execute = form.execute[any_long ? 1 : 0];
        made.begins_block = i == blocks_[block_of_[i]].begin;
        if (form.kind == Kind::branch) {
            made.target = targets_of(i)[0];
            made.reconverge = reconverge_[block_of_[i]];
        }
        if (form.kind == Kind::table) {
            made.target = static_cast<std::uint32_t>(p_.tables.size());
            p_.tables.push_back(targets_of(i));
            made.reconverge = reconverge_[block_of_[i]];
        }
        return made;
    }

    Operand address(const Decoded& d, const Written& written, std::int64_t& offset) {
        if (written.kind != Written::Kind::address) fail(*d.statement, "expected an address");
        offset = written.offset;
        if (written.has_reg) {
            Operand made = register_operand(written.reg);
            if (pool_of(written.reg) == 2) fail(*d.statement, "a predicate is no address");
            made.negated = pool_of(written.reg) == 1; // of an address: whether it has 64 bits
            return made;
        }
        Operand made = constant(written.symbol.empty() ? written.bits : place(*d.statement, written.symbol), true);
        made.negated = true;
        return made;
    }

    void find_tracked() {
        if (p_.tracked_names.empty()) return;
        for (std::uint32_t i = 0; i < all_.size(); ++i) {
            Tracked found;
            reads(all_[i], [&](std::uint32_t r) {
                if (number_[r] != none) found.reads.push_back(number_[r]);
            });
            writes(all_[i], [&](std::uint32_t r) {
                if (number_[r] != none) found.writes.push_back(number_[r]);
            });
            if (found.reads.empty() && found.writes.empty()) continue;
            p_.code[i].tracked = true;
            p_.tracked.emplace(i, std::move(found));
        }
    }

    Program& p_;
    const Kernel& kernel_;
    const std::map<std::string, std::uint64_t>& addresses_;
    std::map<std::string, std::uint64_t, std::less<>> places_;
    std::vector<Decoded> all_;
    std::vector<Block> blocks_;
    std::vector<std::uint32_t> block_of_;   // by instruction
    std::vector<std::uint32_t> reconverge_; // by block
    std::vector<std::uint32_t> at_;         // by register: its row, or its predicate
    std::vector<std::uint32_t> number_;     // by register: among those that may be undefined
    std::uint32_t words_ = 0, longs_ = 0;
    std::map<std::pair<std::uint64_t, bool>, std::size_t> constants_;
};

} // namespace

Program::Program(const Source& the_source, const Kernel& the_kernel,
                 const std::map<std::string, std::uint64_t>& addresses)
    : source(the_source), kernel(the_kernel) {
    Decoder(*this, addresses).decode();
}

} // namespace ptx
