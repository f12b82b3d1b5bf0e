// Loads, stores and atomics. Every access has to be aligned, and within what the kernel may access.
#include "table.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ptx {

namespace {

std::string hex(std::uint64_t v) {
    char text[32];
    std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(v));
    return text;
}

// The addresses of a warp's access; a lane that takes no part has the address of the first one that does.
struct Addresses {
    std::array<std::uint64_t, lanes> at;
    std::uint64_t first, last; // the lowest and the highest
    bool consecutive;          // of all lanes, in order, without gaps
};

Addresses addresses(const Warp& w, const Instruction& i, unsigned operand, Mask mask, unsigned bytes) {
    Addresses found;
    const auto offset = static_cast<std::uint64_t>(i.offset);
    if (i.operands[operand].negated) { // 64-bit
        const auto* from = w.from<std::uint64_t>(i, operand);
        PTX_LANES found.at[lane] = from[lane] + offset;
    } else {
        const auto* from = w.from<std::uint32_t>(i, operand);
        PTX_LANES found.at[lane] = from[lane] + static_cast<std::uint32_t>(offset); // modulo 2^32
    }
    if (mask != whole) {
        const std::uint64_t filler = found.at[static_cast<unsigned>(std::countr_zero(mask))];
        PTX_LANES found.at[lane] = mask >> lane & 1 ? found.at[lane] : filler;
    }
    std::uint64_t low = found.at[0], high = found.at[0], gap = 0;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        low = std::min(low, found.at[lane]);
        high = std::max(high, found.at[lane]);
        gap |= found.at[lane] ^ (found.at[0] + std::uint64_t{lane} * bytes);
    }
    found.first = low;
    found.last = high;
    found.consecutive = mask == whole && gap == 0;
    return found;
}

// ---- What an access costs

// Passes for an access of `bytes` per lane. There are 32 banks of 4 bytes; lanes that access the same word share a
// pass, except in atomics; accesses of 8 and 16 bytes are done in halves and quarters of a warp.
std::uint64_t wavefronts(const Addresses& a, Mask mask, unsigned bytes, bool atomic) {
    const unsigned words = std::max(bytes / 4, 1u), together = lanes / words;
    std::uint64_t passes = 0;
    for (unsigned begin = 0; begin < lanes; begin += together) {
        const Mask part = together == lanes ? mask : mask >> begin & ((Mask{1} << together) - 1);
        if (part == 0) continue;
        if (!atomic && (a.consecutive || a.first == a.last)) {
            ++passes;
            continue;
        }
        std::array<std::array<std::uint64_t, lanes>, lanes> seen; // words, by bank
        std::array<std::uint8_t, lanes> count{};
        unsigned most = 0;
        each_lane(part, [&](unsigned lane) {
            for (unsigned k = 0; k < words; ++k) {
                const std::uint64_t word = a.at[begin + lane] / 4 + k;
                auto& of_bank = seen[word % lanes];
                auto& n = count[word % lanes];
                if (!atomic && std::find(of_bank.begin(), of_bank.begin() + n, word) != of_bank.begin() + n) continue;
                of_bank[n++] = word;
                most = std::max<unsigned>(most, n);
            }
        });
        passes += most;
    }
    return passes;
}

// The number of different 32-byte sectors.
std::uint64_t sectors(const Addresses& a, Mask mask, unsigned bytes) {
    constexpr unsigned shift = 5;
    if (a.consecutive || a.first == a.last) return ((a.last + bytes - 1) >> shift) - (a.first >> shift) + 1;
    std::array<std::uint64_t, lanes> seen;
    unsigned n = 0;
    std::uint64_t last = ~std::uint64_t{0};
    each_lane(mask, [&](unsigned lane) {
        const std::uint64_t sector = a.at[lane] >> shift;
        if (sector == last) return;
        last = sector;
        if (std::find(seen.begin(), seen.begin() + n, sector) == seen.begin() + n) seen[n++] = sector;
    });
    return n;
}

// The number of them that the cache did not have; it has them now.
std::uint64_t missed(SectorCache& cache, const Addresses& a, Mask mask) {
    std::uint64_t n = 0, last = ~std::uint64_t{0};
    each_lane(mask, [&](unsigned lane) {
        const std::uint64_t sector = a.at[lane] / 32;
        if (std::exchange(last, sector) != sector && !cache.take(sector)) ++n;
    });
    return n;
}

// ---- Places

enum class Way { load, store, atomic };

// Where the memory of lanes lies: lane l's place is `base + at[l] + l * apart`; and the cost of the access.
struct Places {
    std::byte* base;
    std::uint64_t apart;
    Cost cost;
};

Places bounded(const Machine& machine, const Addresses& a, std::byte* data, std::uint64_t begin, std::uint64_t size,
               unsigned bytes, Mask mask, const char* what, Cost cost, std::uint64_t apart = 0) {
    if (a.first < begin || a.last > begin + size - bytes || size < bytes) {
        Mask wrong = 0;
        each_lane(mask, [&](unsigned lane) {
            if (a.at[lane] < begin || a.at[lane] + bytes > begin + size) wrong |= Mask{1} << lane;
        });
        const std::uint64_t at = a.at[static_cast<unsigned>(std::countr_zero(wrong))];
        machine.fail("byte " + std::to_string(static_cast<std::int64_t>(at - begin)) + " of " + std::to_string(size) +
                         " bytes of " + what + " memory",
                     wrong);
    }
    return {data - begin, apart, cost};
}

void check_aligned(const Machine& machine, const Addresses& a, Mask mask, unsigned bytes) {
    std::uint64_t unaligned = 0;
    for (unsigned lane = 0; lane < lanes; ++lane) unaligned |= a.at[lane] & (bytes - 1);
    if (unaligned == 0) return;
    Mask wrong = 0;
    each_lane(mask, [&](unsigned lane) { wrong |= static_cast<Mask>((a.at[lane] & (bytes - 1)) != 0) << lane; });
    machine.fail("address " + hex(a.at[static_cast<unsigned>(std::countr_zero(wrong))]) + " is not a multiple of " +
                     std::to_string(bytes),
                 wrong);
}

Places places(Warp& w, const Instruction& i, Space space, const Addresses& a, Mask mask, Way way) {
    Machine& machine = *w.machine;
    Counts& counts = machine.counts;
    const unsigned bytes = i.bytes * i.vector;
    check_aligned(machine, a, mask, bytes);
    switch (space) {
    case Space::shared: {
        const std::span<std::byte> memory = w.block->shared;
        const Cost cost = way == Way::atomic ? cost::shared_atomic : cost::shared;
        const Places found =
            bounded(machine, a, memory.data(), shared_begin, memory.size(), bytes, mask, "shared", cost);
        ++counts.shared_accesses;
        counts.shared_wavefronts += wavefronts(a, mask, bytes, way == Way::atomic);
        return found;
    }
    case Space::local: {
        const std::uint64_t of_lane = machine.program().local_bytes;
        return bounded(machine, a, w.local.data(), local_begin, of_lane, bytes, mask, "local", cost::local, of_lane);
    }
    case Space::param: {
        if (way != Way::load) machine.fail("parameters cannot be written", mask);
        const auto memory = machine.parameters();
        return bounded(machine, a, const_cast<std::byte*>(memory.data()), param_begin, memory.size(), bytes, mask,
                       "parameter", cost::parameter);
    }
    case Space::constant:
        machine.check_global(a.at, a.first, a.last, bytes, mask);
        return {nullptr, 0, cost::parameter};
    default: {
        machine.check_global(a.at, a.first, a.last, bytes, mask);
        ++counts.global_accesses;
        const std::uint64_t n = sectors(a, mask, bytes);
        if (way != Way::store) counts.sectors_loaded += n;
        if (way != Way::load) counts.sectors_stored += n;
        if (way == Way::atomic) return {nullptr, 0, cost::global_atomic};
        if (way == Way::store) {
            counts.sectors_merged += n - std::min(n, missed(w.block->stored, a, mask));
            return {nullptr, 0, cost::global};
        }
        const std::uint64_t from_memory = i.passes_cache ? n : missed(w.block->loaded, a, mask);
        counts.sectors_missed += from_memory;
        return {nullptr, 0, from_memory == 0 ? cost::cached : cost::global};
    }
    }
}

// The addresses of the lanes `here`, which are in the window of a space, as addresses of that space.
Addresses within(const Addresses& a, Space space, Mask here) {
    Addresses part{};
    const std::uint64_t filler = a.at[static_cast<unsigned>(std::countr_zero(here))];
    part.first = ~std::uint64_t{0};
    for (unsigned lane = 0; lane < lanes; ++lane) {
        part.at[lane] = (here >> lane & 1 ? a.at[lane] : filler) - window_of(space);
        part.first = std::min(part.first, part.at[lane]);
        part.last = std::max(part.last, part.at[lane]);
    }
    part.consecutive = a.consecutive && here == whole;
    return part;
}

// Calls `use(places, addresses, mask)`; for generic addresses, once for each space that they are in.
template <class Use>
void with_places(Warp& w, const Instruction& i, unsigned operand, Mask mask, Way way, Use&& use) {
    const Addresses a = addresses(w, i, operand, mask, i.bytes * i.vector);
    std::uint16_t latency = 0;
    const auto use_part = [&](Space space, const Addresses& part, Mask here) {
        const Places found = places(w, i, space, part, here, way);
        latency = std::max(latency, found.cost.latency);
        // counted by the class of its space, which only the address tells
        auto& threads = w.machine->counts.threads;
        const auto n = static_cast<std::uint64_t>(std::popcount(here));
        threads[static_cast<std::size_t>(found.cost.of)] += n;
        threads[static_cast<std::size_t>(i.cost.of)] -= n; // all are added there at the end
        use(found, part, here);
    };
    if (i.space != Space::generic) {
        use_part(i.space, a, mask);
    } else {
        for (const Space space : {Space::global, Space::shared}) {
            Mask here = 0;
            for (unsigned lane = 0; lane < lanes; ++lane)
                here |= static_cast<Mask>(a.at[lane] >> window_shift == window_of(space) >> window_shift) << lane;
            here &= mask;
            if (here != 0) use_part(space, within(a, space, here), here);
            mask &= ~here;
        }
        if (mask != 0)
            w.machine->fail("address " + hex(a.at[static_cast<unsigned>(std::countr_zero(mask))]) + " is in no space",
                            mask);
    }
    for (unsigned k = 0; k < i.n_to; ++k)
        if (i.operands[k].row != 0) w.ready[i.operands[k].row] = w.times.started + latency;
}

// In the order of the schedule, because lanes may write the same place in any order.
template <class Use>
void each_in_turn(const Machine& machine, Mask mask, Use&& use) {
    if (machine.schedule().order == 0) return each_lane(mask, use);
    for (unsigned lane = lanes; lane-- > 0;)
        if (mask >> lane & 1) use(lane);
}

template <class T, class Row>
void load(Warp& w, const Instruction& i, Mask mask) {
    if (mask == 0) return;
    const unsigned n = i.vector;
    with_places(w, i, n, mask, Way::load, [&](Places p, const Addresses& a, Mask part) {
        if (a.consecutive && n == 1 && sizeof(T) == sizeof(Row) && p.apart == 0) {
            std::memcpy(w.to<Row>(i, 0), p.base + a.at[0], lanes * sizeof(T));
            return;
        }
        for (unsigned k = 0; k < n; ++k) {
            Row* to = w.to<Row>(i, k);
            each_lane(part, [&](unsigned lane) {
                T value;
                std::memcpy(&value, p.base + a.at[lane] + lane * p.apart + k * sizeof(T), sizeof(T));
                to[lane] = static_cast<Row>(value);
            });
        }
    });
}

template <class T, class Row>
void store(Warp& w, const Instruction& i, Mask mask) {
    if (mask == 0) return;
    const unsigned n = i.vector;
    with_places(w, i, 0, mask, Way::store, [&](Places p, const Addresses& a, Mask part) {
        if (a.consecutive && n == 1 && sizeof(T) == sizeof(Row) && p.apart == 0) {
            std::memcpy(p.base + a.at[0], w.from<Row>(i, 1), lanes * sizeof(T));
            return;
        }
        each_in_turn(*w.machine, part, [&](unsigned lane) {
            for (unsigned k = 0; k < n; ++k) {
                const auto value = static_cast<T>(w.from<Row>(i, 1 + k)[lane]);
                std::memcpy(p.base + a.at[lane] + lane * p.apart + k * sizeof(T), &value, sizeof(T));
            }
        });
    });
}

// returns: atom, else red.
template <class T, class F, bool returns>
void update(Warp& w, const Instruction& i, Mask mask) {
    if (mask == 0) return;
    constexpr unsigned first = returns ? 1 : 0;
    const auto* b = w.from<Item<T>>(i, first + 1);
    with_places(w, i, first, mask, Way::atomic, [&](Places p, const Addresses& a, Mask part) {
        each_in_turn(*w.machine, part, [&](unsigned lane) {
            std::byte* const at = p.base + a.at[lane] + lane * p.apart;
            T old;
            std::memcpy(&old, at, sizeof(T));
            const T now = F{}(old, unpack<T>(b[lane]));
            std::memcpy(at, &now, sizeof(T));
            if constexpr (returns) w.to<Item<T>>(i, 0)[lane] = pack<T>(old);
        });
    });
}

// ---- Forms

struct SpaceName {
    const char* name;
    Space space;
    Cost load;
};
constexpr std::array spaces{
    SpaceName{"", Space::generic, cost::global},          SpaceName{".global", Space::global, cost::global},
    SpaceName{".shared", Space::shared, cost::shared},    SpaceName{".shared::cta", Space::shared, cost::shared},
    SpaceName{".local", Space::local, cost::local},       SpaceName{".param", Space::param, cost::parameter},
    SpaceName{".const", Space::constant, cost::parameter}};

template <class T>
void add_type(Table& t, const std::string& type) {
    for (const auto& [name, space, the_cost] : spaces)
        for (std::uint8_t vector = 1; vector <= 4; vector = static_cast<std::uint8_t>(vector * 2)) {
            Form form{{&load<T, std::uint32_t>, &load<T, std::uint64_t>}, the_cost};
            form.space = space;
            form.bytes = sizeof(T);
            form.vector = vector;
            const std::string suffix =
                std::string(name) + (vector > 1 ? ".v" + std::to_string(vector) : "") + "." + type;
            form.to = std::string(vector, 'x');
            form.from = "a";
            t.put("ld" + suffix, form);
            if (space == Space::param || space == Space::constant) continue;
            form.execute = {&store<T, std::uint32_t>, &store<T, std::uint64_t>};
            form.from += form.to;
            form.to.clear();
            t.put("st" + suffix, form);
        }
}

template <class T, class F>
void add_update(Table& t, const std::string& operation, const std::string& type, F) {
    for (const auto& [name, space, the_cost] : spaces) {
        if (space != Space::generic && space != Space::global && space != Space::shared) continue;
        Form form{{&update<T, F, true>}, space == Space::shared ? cost::shared_atomic : cost::global_atomic};
        form.space = space;
        form.bytes = sizeof(T);
        form.to = letter<T>;
        form.from = {'a', letter<T>};
        const std::string suffix = std::string(name) + "." + operation + "." + type;
        t.put("atom" + suffix, form);
        form.to.clear();
        form.execute = {&update<T, F, false>};
        t.put("red" + suffix, form);
    }
}

template <class T>
void add_updates(Table& t, const std::string& bits) {
    add_update<T>(t, "add", "u" + bits, [](T old, T b) { return old + b; });
    add_update<T>(t, "max", "u" + bits, [](T old, T b) { return std::max(old, b); });
    add_update<T>(t, "or", "b" + bits, [](T old, T b) { return old | b; });
}

} // namespace

void add_accesses(Table& t) {
    add_type<std::uint8_t>(t, "u8");
    add_type<std::uint8_t>(t, "b8");
    add_type<std::int8_t>(t, "s8");
    add_type<std::uint16_t>(t, "u16");
    add_type<std::uint16_t>(t, "b16");
    add_type<std::int16_t>(t, "s16");
    for (const char* type : {"u32", "b32", "f32"}) add_type<std::uint32_t>(t, type);
    add_type<std::int32_t>(t, "s32");
    for (const char* type : {"u64", "b64", "s64", "f64"}) add_type<std::uint64_t>(t, type);
    add_updates<std::uint32_t>(t, "32");
    add_updates<std::uint64_t>(t, "64");
}

} // namespace ptx
