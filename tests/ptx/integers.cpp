// Integer arithmetic, bits, comparisons, selections and moves.
#include "table.hpp"

#include <algorithm>

namespace ptx {

namespace {

__extension__ using Wide = unsigned __int128;
__extension__ using SignedWide = __int128;

template <class T>
struct Twice;
template <>
struct Twice<std::int16_t> : std::type_identity<std::int32_t> {};
template <>
struct Twice<std::uint16_t> : std::type_identity<std::uint32_t> {};
template <>
struct Twice<std::int32_t> : std::type_identity<std::int64_t> {};
template <>
struct Twice<std::uint32_t> : std::type_identity<std::uint64_t> {};
template <>
struct Twice<std::int64_t> : std::type_identity<SignedWide> {};
template <>
struct Twice<std::uint64_t> : std::type_identity<Wide> {};

template <class T>
constexpr bool is_long = sizeof(T) == 8;
template <class T>
constexpr Cost simple = is_long<T> ? cost::wide : cost::simple;

template <class T>
void add_arithmetic(Table& t, const std::string& type) {
    using U = std::make_unsigned_t<T>;
    using Two = typename Twice<T>::type;
    constexpr Cost product = is_long<T> ? cost::wide_product : cost::product;
    constexpr Cost quotient = is_long<T> ? cost::wide_quotient : cost::quotient;
    constexpr auto high = [](T a, T b) {
        return static_cast<T>(static_cast<Two>(a) * static_cast<Two>(b) >> 8 * sizeof(T));
    };
    constexpr auto low = [](T a, T b) {
        return static_cast<T>(static_cast<U>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b)));
    };
    constexpr auto sum = [](T a, T b) { return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b))); };
    t.map<T, T, T>("add." + type, simple<T>, sum);
    t.map<T, T, T>("sub." + type, simple<T>,
                   [](T a, T b) { return static_cast<T>(static_cast<U>(static_cast<U>(a) - static_cast<U>(b))); });
    t.map<T, T, T>("mul.lo." + type, product, low);
    t.map<T, T, T>("mul.hi." + type, product, high);
    t.map<T, T, T, T>("mad.lo." + type, product,
                      [](T a, T b, T c) { return decltype(sum){}(decltype(low){}(a, b), c); });
    t.map<T, T, T, T>("mad.hi." + type, product,
                      [](T a, T b, T c) { return decltype(sum){}(decltype(high){}(a, b), c); });
    if constexpr (!is_long<T>) {
        t.map<Two, T, T>("mul.wide." + type, cost::product,
                         [](T a, T b) { return static_cast<Two>(static_cast<Two>(a) * static_cast<Two>(b)); });
        t.map<Two, T, T, Two>("mad.wide." + type, cost::product, [](T a, T b, Two c) {
            using V = std::make_unsigned_t<Two>;
            return static_cast<Two>(static_cast<V>(static_cast<Two>(a) * static_cast<Two>(b)) + static_cast<V>(c));
        });
    }
    // The result of a division by zero is not specified; neither that nor the min over -1 may trap on the host.
    t.map<T, T, T>("div." + type, quotient, [](T a, T b) {
        if (b == 0) return static_cast<T>(-1);
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(U{0} - static_cast<U>(a));
        return static_cast<T>(a / b);
    });
    t.map<T, T, T>("rem." + type, quotient, [](T a, T b) {
        if (b == 0) return a;
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return T{0};
        return static_cast<T>(a % b);
    });
    t.map<T, T, T>("min." + type, simple<T>, [](T a, T b) { return std::min(a, b); });
    t.map<T, T, T>("max." + type, simple<T>, [](T a, T b) { return std::max(a, b); });
    if constexpr (std::is_signed_v<T>) {
        t.map<T, T>("neg." + type, simple<T>,
                    [](T a) { return static_cast<T>(static_cast<U>(U{0} - static_cast<U>(a))); });
        t.map<T, T>("abs." + type, simple<T>,
                    [](T a) { return a < 0 ? static_cast<T>(static_cast<U>(U{0} - static_cast<U>(a))) : a; });
    }
}

template <class T>
void add_right_shift(Table& t, const std::string& type) {
    t.map<T, T, std::uint32_t>("shr." + type, simple<T>, [](T a, std::uint32_t n) {
        constexpr std::uint32_t bits = 8 * sizeof(T);
        if constexpr (std::is_signed_v<T>)
            return static_cast<T>(a >> std::min(n, bits - 1));
        else
            return static_cast<T>(n < bits ? a >> n : 0);
    });
}

template <class T>
void add_bits(Table& t, const std::string& type) {
    t.map<T, T, T>("and." + type, simple<T>, [](T a, T b) { return static_cast<T>(a & b); });
    t.map<T, T, T>("or." + type, simple<T>, [](T a, T b) { return static_cast<T>(a | b); });
    t.map<T, T, T>("xor." + type, simple<T>, [](T a, T b) { return static_cast<T>(a ^ b); });
    t.map<T, T>("not." + type, simple<T>, [](T a) { return static_cast<T>(~a); });
    t.map<T, T, std::uint32_t>("shl." + type, simple<T>, [](T a, std::uint32_t n) {
        return static_cast<T>(n < 8 * sizeof(T) ? a << (n % (8 * sizeof(T))) : 0);
    });
    add_right_shift<T>(t, type);
}

template <class T>
T reversed(T v) {
    T found = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); ++i) found = static_cast<T>(found << 1 | (v >> i & 1));
    return found;
}

template <class T>
T with_field(T a, T b, std::uint32_t c, std::uint32_t d) {
    constexpr std::uint32_t bits = 8 * sizeof(T);
    const std::uint32_t first = c & 255, count = d & 255;
    if (first >= bits || count == 0) return b;
    const T low = count >= bits ? ~T{0} : static_cast<T>((T{1} << count) - 1);
    return static_cast<T>((b & ~(low << first)) | (a & low) << first);
}

template <class T>
void add_bit_fields(Table& t, const std::string& bits) {
    using W = std::uint32_t;
    t.map<W, T>("popc.b" + bits, cost::slow, [](T a) { return static_cast<W>(std::popcount(a)); });
    t.map<W, T>("clz.b" + bits, cost::slow, [](T a) { return static_cast<W>(std::countl_zero(a)); });
    t.map<T, T>("brev.b" + bits, cost::slow, [](T a) { return reversed(a); });
    t.map<T, T, T, W, W>("bfi.b" + bits, simple<T>, [](T a, T b, W c, W d) { return with_field(a, b, c, d); });
}

void add_words(Table& t) {
    using W = std::uint32_t;
    t.map<W, W>("bfind.shiftamt.u32", cost::slow,
                [](W a) { return a == 0 ? ~0u : static_cast<W>(std::countl_zero(a)); });
    t.map<W, W, W, W>("shf.l.wrap.b32", cost::simple,
                      [](W a, W b, W n) { return static_cast<W>(((std::uint64_t{b} << 32 | a) << (n & 31)) >> 32); });
    t.map<W, W, W, W>("shf.r.wrap.b32", cost::simple,
                      [](W a, W b, W n) { return static_cast<W>((std::uint64_t{b} << 32 | a) >> (n & 31)); });
    t.map<W, W, W, W>("dp2a.lo.u32.u32", cost::simple,
                      [](W a, W b, W sum) { return sum + (a & 0xFFFF) * (b & 255) + (a >> 16) * (b >> 8 & 255); });
    t.map<W, W, W, W>("prmt.b32", cost::simple, [](W a, W b, W select) {
        W found = 0;
        for (unsigned k = 0; k < 4; ++k) {
            const W one = select >> 4 * k & 15;
            const W byte = static_cast<W>((std::uint64_t{b} << 32 | a) >> 8 * (one & 7)) & 255;
            found |= ((one & 8) == 0 ? byte : (byte & 128) != 0 ? 255u : 0u) << 8 * k;
        }
        return found;
    });
}

// ---- Predicates

// setp: a comparison, and its opposite.
template <class F, class T>
void compare(Warp& w, const Instruction& i, Mask mask) {
    const Mask found = Table::tested<F, T, T>(w, i, 2);
    w.set_predicate(i, 0, found, mask);
    w.set_predicate(i, 1, ~found, mask);
}

template <class T, class F>
void add_comparison(Table& t, const std::string& name, const std::string& type, F) {
    Form form{{&compare<F, T>}, is_long<T> ? cost::wide_predicate : cost::predicate};
    form.to = "pp?";
    form.from = {letter<T>, letter<T>};
    t.put("setp." + name + "." + type, std::move(form));
}

template <class T>
void add_comparisons(Table& t, const std::string& type) {
    add_comparison<T>(t, "eq", type, [](T a, T b) { return a == b; });
    add_comparison<T>(t, "ne", type, [](T a, T b) {
        if constexpr (std::is_floating_point_v<T>)
            return a < b || a > b; // ordered
        else
            return a != b;
    });
    if (type[0] == 'b') return;
    add_comparison<T>(t, "lt", type, [](T a, T b) { return a < b; });
    add_comparison<T>(t, "le", type, [](T a, T b) { return a <= b; });
    add_comparison<T>(t, "gt", type, [](T a, T b) { return a > b; });
    add_comparison<T>(t, "ge", type, [](T a, T b) { return a >= b; });
    if constexpr (std::is_floating_point_v<T>) { // or unordered
        add_comparison<T>(t, "equ", type, [](T a, T b) { return !(a < b || a > b); });
        add_comparison<T>(t, "neu", type, [](T a, T b) { return !(a == b); });
        add_comparison<T>(t, "ltu", type, [](T a, T b) { return !(a >= b); });
        add_comparison<T>(t, "leu", type, [](T a, T b) { return !(a > b); });
        add_comparison<T>(t, "gtu", type, [](T a, T b) { return !(a <= b); });
        add_comparison<T>(t, "geu", type, [](T a, T b) { return !(a < b); });
        add_comparison<T>(t, "nan", type, [](T a, T b) { return a != a || b != b; });
    }
}

template <class F>
void logic(Warp& w, const Instruction& i, Mask mask) {
    w.set_predicate(i, 0, F{}(w.predicate(i.operands[1]), i.n > 2 ? w.predicate(i.operands[2]) : 0), mask);
}
template <class F>
void add_logic(Table& t, const std::string& opcode, const std::string& from, F) {
    Form form{{&logic<F>}, cost::predicate};
    form.to = "p";
    form.from = from;
    t.put(opcode, std::move(form));
}

template <class T>
void select(Warp& w, const Instruction& i, Mask mask) {
    const T *a = w.from<T>(i, 1), *b = w.from<T>(i, 2);
    const Mask chosen = w.predicate(i.operands[3]);
    T* to = w.to<T>(i, 0);
    PTX_LANES if (mask >> lane & 1) to[lane] = chosen >> lane & 1 ? a[lane] : b[lane];
}

// ---- Moves

template <class T>
void add_moves(Table& t, std::initializer_list<const char*> types) {
    for (const char* type : types) {
        t.map<T, T>(std::string("mov.") + type, cost::move, [](T a) { return a; });
        Form form{{&select<T>}, sizeof(T) == 8 ? cost::wide_predicate : cost::predicate};
        form.to = letter<T>;
        form.from = {letter<T>, letter<T>, 'p'};
        t.put(std::string("selp.") + type, std::move(form));
    }
}

void add_parts(Table& t) {
    using W = std::uint32_t;
    using L = std::uint64_t;
    t.map<L, W, W>("pack2.b64", cost::move, [](W a, W b) { return L{b} << 32 | a; });
    t.map<W, W, W>("pack2.b32", cost::move, [](W a, W b) { return b << 16 | (a & 0xFFFF); });
    Form form{{[](Warp& w, const Instruction& i, Mask mask) {
                  const L* from = w.from<L>(i, 2);
                  W *low = w.to<W>(i, 0), *high = w.to<W>(i, 1);
                  each_lane(mask, [&](unsigned lane) {
                      low[lane] = static_cast<W>(from[lane]);
                      high[lane] = static_cast<W>(from[lane] >> 32);
                  });
              }},
              cost::move};
    form.to = "ww";
    form.from = "d";
    t.put("unpack2.b64", std::move(form));
}

void add_addresses(Table& t) {
    using L = std::uint64_t;
    // Global addresses are generic addresses as they are; shared memory has a window (program.hpp).
    t.map<L, L>("cvta.to.global.u64", cost::move, [](L a) { return a; });
    t.map<L, L>("cvta.shared.u64", cost::simple, [](L a) { return a + window_of(Space::shared); });
}

} // namespace

void add_integers(Table& t) {
    add_arithmetic<std::int16_t>(t, "s16");
    add_arithmetic<std::uint16_t>(t, "u16");
    add_arithmetic<std::int32_t>(t, "s32");
    add_arithmetic<std::uint32_t>(t, "u32");
    add_arithmetic<std::int64_t>(t, "s64");
    add_arithmetic<std::uint64_t>(t, "u64");
    add_bits<std::uint16_t>(t, "b16");
    add_bits<std::uint32_t>(t, "b32");
    add_bits<std::uint64_t>(t, "b64");
    add_right_shift<std::uint16_t>(t, "u16");
    add_right_shift<std::uint32_t>(t, "u32");
    add_right_shift<std::uint64_t>(t, "u64");
    add_right_shift<std::int16_t>(t, "s16");
    add_right_shift<std::int32_t>(t, "s32");
    add_right_shift<std::int64_t>(t, "s64");
    add_bit_fields<std::uint32_t>(t, "32");
    add_bit_fields<std::uint64_t>(t, "64");
    add_words(t);

    add_comparisons<std::int16_t>(t, "s16");
    add_comparisons<std::uint16_t>(t, "u16");
    add_comparisons<std::uint16_t>(t, "b16");
    add_comparisons<std::int32_t>(t, "s32");
    add_comparisons<std::uint32_t>(t, "u32");
    add_comparisons<std::uint32_t>(t, "b32");
    add_comparisons<std::int64_t>(t, "s64");
    add_comparisons<std::uint64_t>(t, "u64");
    add_comparisons<std::uint64_t>(t, "b64");
    add_comparisons<float>(t, "f32");
    add_comparisons<double>(t, "f64");
    add_logic(t, "and.pred", "pp", [](Mask a, Mask b) { return a & b; });
    add_logic(t, "or.pred", "pp", [](Mask a, Mask b) { return a | b; });
    add_logic(t, "xor.pred", "pp", [](Mask a, Mask b) { return a ^ b; });
    add_logic(t, "not.pred", "p", [](Mask a, Mask) { return ~a; });
    add_logic(t, "mov.pred", "p", [](Mask a, Mask) { return a; });

    add_moves<std::uint32_t>(t, {"b16", "u16", "s16", "b32", "u32", "s32", "f32"});
    add_moves<std::uint64_t>(t, {"b64", "u64", "s64", "f64"});
    add_parts(t);
    add_addresses(t);
}

} // namespace ptx
