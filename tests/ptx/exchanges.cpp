// What the lanes of a warp do together; control flow, barriers and fences; and the lookup of forms.
#include "table.hpp"

#include <algorithm>

namespace ptx {

namespace {

std::string hex(Mask v) {
    char text[16];
    std::snprintf(text, sizeof(text), "0x%08x", v);
    return text;
}

// Calls use(lanes) for every group of lanes that name each other in their masks. Lanes that have exited are not waited
// for, as in CUDA; naming lanes that are elsewhere fails, because they cannot come here before these go on.
template <class Use>
void each_group(Warp& w, const Instruction& i, unsigned operand, Mask mask, Use&& use) {
    const std::uint32_t* members = w.from<std::uint32_t>(i, operand);
    for (Mask left = mask; left != 0;) {
        const auto first = static_cast<unsigned>(std::countr_zero(left));
        const Mask named = members[first];
        if ((named >> first & 1) == 0)
            w.machine->fail("mask " + hex(named) + " does not name the lane itself", Mask{1} << first);
        if (const Mask absent = named & w.alive & ~mask)
            w.machine->fail("mask " + hex(named) + " names lanes that are not here", absent);
        Mask others = 0;
        each_lane(named & mask, [&](unsigned lane) { others |= static_cast<Mask>(members[lane] != named) << lane; });
        if (others != 0)
            w.machine->fail("other lanes have mask " + hex(named) + "; masks that differ are those of", others);
        use(named & mask);
        left &= ~named;
    }
}

enum Shuffle : std::uint8_t { up, down, bfly, idx };

void shuffle(Warp& w, const Instruction& i, Mask mask) {
    const auto *value = w.from<std::uint32_t>(i, 2), *b = w.from<std::uint32_t>(i, 3), *c = w.from<std::uint32_t>(i, 4);
    std::array<std::uint32_t, lanes> found{};
    Mask in_range = 0;
    each_group(w, i, 5, mask, [&](Mask group) {
        each_lane(group, [&](unsigned lane) {
            const int own = static_cast<int>(lane), by = static_cast<int>(b[lane] & 31);
            const unsigned segment = c[lane] >> 8 & 31, clamp = c[lane] & 31;
            const int least = static_cast<int>(lane & segment);
            const int most = static_cast<int>((lane & segment) | (clamp & ~segment & 31));
            const int wanted = i.operation == up     ? own - by
                               : i.operation == down ? own + by
                               : i.operation == bfly ? own ^ by
                                                     : least | (by & ~static_cast<int>(segment));
            const bool inside = i.operation == up ? wanted >= most : wanted <= most;
            const auto source = static_cast<unsigned>(inside ? wanted : own);
            if ((group >> source & 1) == 0)
                w.machine->fail("reads lane " + std::to_string(source) + ", which does not take part", Mask{1} << lane);
            found[lane] = value[source];
            in_range |= static_cast<Mask>(inside) << lane;
        });
    });
    auto* to = w.to<std::uint32_t>(i, 0);
    each_lane(mask, [&](unsigned lane) { to[lane] = found[lane]; });
    w.set_predicate(i, 1, in_range, mask);
}

enum Vote : std::uint8_t { all, any, ballot };

void vote(Warp& w, const Instruction& i, Mask mask) {
    const Mask p = w.predicate(i.operands[1]);
    Mask found = 0;
    each_group(w, i, 2, mask, [&](Mask group) {
        const Mask yes = p & group;
        if (i.operation == ballot) {
            auto* to = w.to<std::uint32_t>(i, 0);
            each_lane(group, [&](unsigned lane) { to[lane] = yes; });
        } else {
            if (i.operation == all ? yes == group : yes != 0) found |= group;
        }
    });
    if (i.operation != ballot) w.set_predicate(i, 0, found, mask);
}

template <class T, class F>
void reduce(Warp& w, const Instruction& i, Mask mask) {
    const auto* from = w.from<std::uint32_t>(i, 1);
    std::array<std::uint32_t, lanes> found{};
    each_group(w, i, 2, mask, [&](Mask group) {
        T total = static_cast<T>(from[std::countr_zero(group)]);
        each_lane(group & (group - 1), [&](unsigned lane) { total = F{}(total, static_cast<T>(from[lane])); });
        each_lane(group, [&](unsigned lane) { found[lane] = static_cast<std::uint32_t>(total); });
    });
    auto* to = w.to<std::uint32_t>(i, 0);
    each_lane(mask, [&](unsigned lane) { to[lane] = found[lane]; });
}

void meet_warp(Warp& w, const Instruction& i, Mask mask) {
    each_group(w, i, 0, mask, [](Mask) {});
}

void active_mask(Warp& w, const Instruction& i, Mask mask) {
    auto* to = w.to<std::uint32_t>(i, 0);
    each_lane(mask, [&](unsigned lane) { to[lane] = mask; });
}

void nothing(Warp&, const Instruction&, Mask) {}

Form form(Execute execute, Cost the_cost, const char* to, const char* from, std::uint8_t operation = 0) {
    Form made{{execute}, the_cost};
    made.to = to;
    made.from = from;
    made.operation = operation;
    return made;
}

void add_control(Table& t) {
    const auto put = [&](const char* opcode, Kind kind, const char* from, Cost the_cost = cost::control) {
        Form made = form(&nothing, the_cost, "", from);
        made.kind = kind;
        t.put(opcode, std::move(made));
    };
    put("bra", Kind::branch, "l");
    put("brx.idx", Kind::table, "wl");
    put("ret", Kind::exit, "");
    put("exit", Kind::exit, "");
    put("trap", Kind::trap, "");
    put("nanosleep.u32", Kind::sleep, "w", cost::sleep);
}

void add_barriers(Table& t) {
    const auto put = [&](const std::string& name, const char* to, const char* from, std::uint8_t operation) {
        Form made = form(&nothing, cost::barrier, to, from, operation);
        made.kind = Kind::barrier;
        t.put("bar." + name, std::move(made));
    };
    put("sync", "", "ww", barrier_sync);
    put("red.popc.u32", "w", "wwp", barrier_count);
    put("red.and.pred", "p", "wwp", barrier_and);
    put("red.or.pred", "p", "wwp", barrier_or);
    t.put("bar.warp.sync", form(&meet_warp, cost::warp_barrier, "", "w"));
    t.put("membar", form(&nothing, cost::fence, "", ""));
    t.put("fence", form(&nothing, cost::fence, "", ""));
}

template <class T, class F>
void add_reduction(Table& t, const char* opcode, F) {
    t.put(opcode, form(&reduce<T, F>, cost::shuffle, "w", "ww"));
}

const Table& table() {
    static const Table it = [] {
        Table made;
        add_integers(made);
        add_reals(made);
        add_conversions(made);
        add_accesses(made);
        add_exchanges(made);
        return made;
    }();
    return it;
}

// Suffixes about caches, or the order and scope in which others see an access: no form depends on them.
bool is_hint(std::string_view word) {
    constexpr std::array hints{"volatile", "relaxed", "acquire", "release", "acq_rel", "weak",    "sc",   "cta",
                               "cluster",  "gpu",     "sys",     "gl",      "ca",      "cg",      "cs",   "lu",
                               "cv",       "wb",      "wt",      "nc",      "uni",     "aligned", "noftz"};
    return std::find(hints.begin(), hints.end(), word) != hints.end() || word.starts_with("L1::") ||
           word.starts_with("L2::");
}

} // namespace

void add_exchanges(Table& t) {
    add_control(t);
    add_barriers(t);
    t.put("shfl.sync.up.b32", form(&shuffle, cost::shuffle, "wp?", "wwww", up));
    t.put("shfl.sync.down.b32", form(&shuffle, cost::shuffle, "wp?", "wwww", down));
    t.put("shfl.sync.bfly.b32", form(&shuffle, cost::shuffle, "wp?", "wwww", bfly));
    t.put("shfl.sync.idx.b32", form(&shuffle, cost::shuffle, "wp?", "wwww", idx));
    t.put("vote.sync.all.pred", form(&vote, cost::vote, "p", "pw", all));
    t.put("vote.sync.any.pred", form(&vote, cost::vote, "p", "pw", any));
    t.put("vote.sync.ballot.b32", form(&vote, cost::vote, "w", "pw", ballot));
    add_reduction<std::uint32_t>(t, "redux.sync.add.u32", [](std::uint32_t a, std::uint32_t b) { return a + b; });
    add_reduction<std::uint32_t>(t, "redux.sync.add.s32", [](std::uint32_t a, std::uint32_t b) { return a + b; });
    add_reduction<std::uint32_t>(t, "redux.sync.min.u32",
                                 [](std::uint32_t a, std::uint32_t b) { return std::min(a, b); });
    add_reduction<std::uint32_t>(t, "redux.sync.max.u32",
                                 [](std::uint32_t a, std::uint32_t b) { return std::max(a, b); });
    add_reduction<std::int32_t>(t, "redux.sync.min.s32", [](std::int32_t a, std::int32_t b) { return std::min(a, b); });
    add_reduction<std::int32_t>(t, "redux.sync.max.s32", [](std::int32_t a, std::int32_t b) { return std::max(a, b); });
    add_reduction<std::uint32_t>(t, "redux.sync.and.b32", [](std::uint32_t a, std::uint32_t b) { return a & b; });
    add_reduction<std::uint32_t>(t, "redux.sync.or.b32", [](std::uint32_t a, std::uint32_t b) { return a | b; });
    add_reduction<std::uint32_t>(t, "redux.sync.xor.b32", [](std::uint32_t a, std::uint32_t b) { return a ^ b; });
    t.put("activemask.b32", form(&active_mask, cost::vote, "w", ""));
}

const Form& form_of(std::string_view opcode) {
    if (const Form* found = table().find(opcode)) return *found;
    std::string plain;
    for (std::size_t begin = 0; begin <= opcode.size();) {
        const std::size_t end = std::min(opcode.find('.', begin), opcode.size());
        const std::string_view word = opcode.substr(begin, end - begin);
        if (begin == 0 || !is_hint(word)) plain += (begin == 0 ? "" : ".") + std::string(word);
        begin = end + 1;
    }
    if (const Form* found = table().find(plain)) return *found;
    throw Error("no such instruction is known");
}

std::string list_of_forms() {
    std::string text;
    for (const auto& [opcode, made] : table().forms())
        text += opcode + " " + (made.to.empty() ? "-" : made.to) + " " + (made.from.empty() ? "-" : made.from) + "\n";
    return text;
}

} // namespace ptx
