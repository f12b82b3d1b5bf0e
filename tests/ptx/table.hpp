// The table of instructions: what the files that fill it share.
#pragma once

#include "machine.hpp"

#include <bit>
#include <type_traits>

namespace ptx {

// Cycles from an instruction's start until its result can be used. These are assumptions, round figures for the GPUs of
// 2020 to 2024: nothing here has been measured. One PTX instruction may be several machine instructions.
namespace cost {
constexpr Cost simple{Class::integer, 4}, wide{Class::integer, 6}, slow{Class::integer, 12};
constexpr Cost product{Class::integer, 5}, wide_product{Class::integer, 14};
constexpr Cost quotient{Class::integer, 80}, wide_quotient{Class::integer, 250};
constexpr Cost real{Class::floating, 4}, real_quotient{Class::floating, 40};
constexpr Cost real64{Class::real64, 8}, real64_quotient{Class::real64, 100};
constexpr Cost conversion{Class::conversion, 4}, slow_conversion{Class::conversion, 14};
constexpr Cost move{Class::move, 0};
constexpr Cost predicate{Class::predicate, 4}, wide_predicate{Class::predicate, 6};
constexpr Cost control{Class::control, 8}, sleep{Class::control, 40};
constexpr Cost parameter{Class::parameter, 0};
constexpr Cost shared{Class::shared, 30}, local{Class::local, 40};
constexpr Cost global{Class::global, 500}, cached{Class::global, 40};
constexpr Cost shared_atomic{Class::atomic, 60}, global_atomic{Class::atomic, 700};
constexpr Cost shuffle{Class::shuffle, 24}, vote{Class::shuffle, 12};
constexpr Cost barrier{Class::barrier, 20}, warp_barrier{Class::barrier, 8}, fence{Class::barrier, 200};
} // namespace cost

// Rows have items of 32 or 64 bits. A narrower value is extended by its type; nothing reads the extra bits.
template <class T>
using Item = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T>
T unpack(Item<T> item) {
    if constexpr (std::is_floating_point_v<T>)
        return std::bit_cast<T>(item);
    else
        return static_cast<T>(item);
}
template <class T, class To = Item<T>>
To pack(T value) {
    if constexpr (std::is_floating_point_v<T>)
        return std::bit_cast<Item<T>>(value);
    else
        return static_cast<To>(value); // extends a signed value's sign
}

template <class T>
constexpr char letter = sizeof(T) == 8 ? 'd' : 'w';

template <class Use>
void each_lane(Mask mask, Use&& use) {
    for (; mask != 0; mask &= mask - 1) use(static_cast<unsigned>(std::countr_zero(mask)));
}

// A loop over lanes that the compiler may vectorise, because rows are either the same or disjoint.
#define PTX_LANES _Pragma("GCC ivdep") for (unsigned lane = 0; lane < lanes; ++lane)

class Table {
public:
    void put(const std::string& opcode, Form form) { forms_[opcode] = std::move(form); }

    // to = F(from...), lane by lane.
    template <class To, class... From, class F>
    void map(const std::string& opcode, Cost cost, F) {
        Form form{{&run_map<F, To, From...>}, cost};
        form.to = letter<To>;
        form.from = {letter<From>...};
        put(opcode, std::move(form));
    }

    // A predicate from values.
    template <class... From, class F>
    void test(const std::string& opcode, Cost cost, F) {
        Form form{{&run_test<F, From...>}, cost};
        form.to = "p";
        form.from = {letter<From>...};
        put(opcode, std::move(form));
    }

    const Form* find(std::string_view opcode) const {
        const auto it = forms_.find(opcode);
        return it == forms_.end() ? nullptr : &it->second;
    }
    const std::map<std::string, Form, std::less<>>& forms() const { return forms_; }

    template <class F, class... From>
    static Mask tested(Warp& w, const Instruction& i, unsigned first) {
        return tested_at<F, From...>(w, i, first, std::index_sequence_for<From...>{});
    }

private:
    template <class F, class To, class... From>
    static void run_map(Warp& w, const Instruction& i, Mask mask) {
        run_map_at<F, To, From...>(w, i, mask, std::index_sequence_for<From...>{});
    }
    template <class F, class To, class... From, std::size_t... k>
    static void run_map_at(Warp& w, const Instruction& i, Mask mask, std::index_sequence<k...>) {
        const auto run = [&](const auto*... from) {
            Item<To>* const to = w.to<Item<To>>(i, 0);
            if (mask == whole) {
                PTX_LANES to[lane] = pack<To>(F{}(unpack<From>(from[lane])...));
            } else {
                PTX_LANES if (mask >> lane & 1) to[lane] = pack<To>(F{}(unpack<From>(from[lane])...));
            }
        };
        run(w.from<Item<From>>(i, 1 + k)...);
    }
    template <class F, class... From, std::size_t... k>
    static Mask tested_at(Warp& w, const Instruction& i, unsigned first, std::index_sequence<k...>) {
        const auto run = [](const auto*... from) {
            Mask found = 0;
            for (unsigned lane = 0; lane < lanes; ++lane)
                found |= static_cast<Mask>(F{}(unpack<From>(from[lane])...)) << lane;
            return found;
        };
        return run(w.from<Item<From>>(i, static_cast<unsigned>(first + k))...);
    }
    template <class F, class... From>
    static void run_test(Warp& w, const Instruction& i, Mask mask) {
        w.set_predicate(i, 0, tested<F, From...>(w, i, 1), mask);
    }

    std::map<std::string, Form, std::less<>> forms_;
};

void add_integers(Table& table);
void add_reals(Table& table);
void add_conversions(Table& table);
void add_accesses(Table& table);
void add_exchanges(Table& table);

} // namespace ptx
