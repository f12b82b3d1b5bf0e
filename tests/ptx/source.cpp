#include "source.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace ptx {

namespace {

struct Token {
    std::string_view text; // empty at the end
    std::uint32_t line = 1;
    bool is(std::string_view what) const { return text == what; }
};

bool in_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '%' || c == '.';
}

std::vector<Token> tokens_of(std::string_view text) {
    std::vector<Token> tokens;
    tokens.reserve(text.size() / 4);
    std::uint32_t line = 1;
    for (std::size_t i = 0; i < text.size();) {
        const char c = text[i];
        const std::size_t begin = i;
        if (c == '\n') ++line;
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\0') {
            ++i;
            continue;
        }
        if (text.substr(i, 2) == "//") {
            i = std::min(text.find('\n', i), text.size());
            continue;
        }
        if (text.substr(i, 2) == "/*") {
            const std::size_t end = std::min(text.find("*/", i), text.size() - 2) + 2;
            line += static_cast<std::uint32_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(i),
                                                          text.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
            i = end;
            continue;
        }
        if (c == '"') {
            i = std::min(text.find('"', i + 1), text.size() - 1) + 1;
        } else if (in_word(c)) {
            while (i < text.size() && (in_word(text[i]) || text.substr(i, 2) == "::" || text.substr(i - 1, 2) == "::"))
                ++i;
        } else {
            ++i;
        }
        tokens.push_back({text.substr(begin, i - begin), line});
    }
    tokens.push_back({{}, line});
    return tokens;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Bytes of a type, such as .u32.
std::size_t bytes_of(std::string_view type) {
    const std::size_t digit = type.find_first_of("0123456789");
    unsigned bits = 0;
    if (digit != std::string_view::npos) std::from_chars(type.data() + digit, type.data() + type.size(), bits);
    return bits / 8;
}

} // namespace

class Parser {
public:
    explicit Parser(Source& source) : source_(source), tokens_(tokens_of(source.text_)) {}

    void parse() {
        while (!now().text.empty()) statement_of_module();
    }

private:
    [[noreturn]] void fail(std::string_view what) const {
        throw Error("PTX line " + std::to_string(now().line) + ": " + std::string(what) + " at '" +
                    std::string(now().text) + "'");
    }
    const Token& now() const { return tokens_[at_]; }
    const Token& ahead(std::size_t n = 1) const { return tokens_[std::min(at_ + n, tokens_.size() - 1)]; }
    Token take() {
        const Token token = now();
        if (token.text.empty()) fail("the file ends within a statement");
        ++at_;
        return token;
    }
    bool skip(std::string_view text) {
        if (!now().is(text)) return false;
        ++at_;
        return true;
    }
    void expect(std::string_view text) {
        if (!skip(text)) fail("expected '" + std::string(text) + "'");
    }
    void skip_statement() {
        while (!take().is(";")) {
        }
    }
    void skip_line() {
        const std::uint32_t line = now().line;
        while (!now().text.empty() && now().line == line) ++at_;
    }
    void skip_body() {
        int depth = 0;
        do {
            const Token token = take();
            depth += token.is("{") ? 1 : token.is("}") ? -1 : 0;
        } while (depth > 0);
    }

    // ---- Numbers

    std::int64_t integer() {
        const bool negative = skip("-");
        const auto value = static_cast<std::int64_t>(number(take().text));
        return negative ? -value : value;
    }
    std::uint64_t number(std::string_view text) const {
        if (text.size() > 2 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F' || text[1] == 'd' || text[1] == 'D'))
            return digits(text.substr(2), 16);
        if (!text.empty() && (text.back() == 'U' || text.back() == 'u')) text.remove_suffix(1);
        if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) return digits(text.substr(2), 16);
        if (text.size() > 2 && text[0] == '0' && (text[1] == 'b' || text[1] == 'B')) return digits(text.substr(2), 2);
        return digits(text, text.size() > 1 && text[0] == '0' ? 8 : 10);
    }
    // Bits of a number such as 0.5, of the type that this instruction reads.
    std::uint64_t real(std::string_view text, bool negative, std::string_view opcode) const {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc{} || end != text.data() + text.size()) fail_number(text);
        if (negative) value = -value;
        const std::size_t type = opcode.rfind(".f");
        const bool is_long = type != std::string_view::npos && opcode.substr(type) == ".f64";
        if (!is_long && (type == std::string_view::npos || opcode.substr(type) != ".f32")) fail_number(text);
        return is_long ? std::bit_cast<std::uint64_t>(value) : std::bit_cast<std::uint32_t>(static_cast<float>(value));
    }
    [[noreturn]] void fail_number(std::string_view text) const {
        throw Error("PTX line " + std::to_string(now().line) + ": '" + std::string(text) + "' is no number");
    }
    std::uint64_t digits(std::string_view text, int base) const {
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
        if (error != std::errc{} || end != text.data() + text.size()) fail_number(text);
        return value;
    }

    // ---- Modules

    void statement_of_module() {
        const Token& token = now();
        if (token.is(".version") || token.is(".target") || token.is(".address_size") || token.is(".file") ||
            token.is(".loc") || token.is(".pragma")) {
            skip_line();
        } else if (token.is(".visible") || token.is(".extern") || token.is(".weak") || token.is(".common")) {
            ++at_;
        } else if (token.is(".entry")) {
            kernel();
        } else if (token.is(".func")) { // functions that were not inlined: a call is an error
            while (!now().is("{") && !now().is(";")) take();
            now().is("{") ? skip_body() : static_cast<void>(take());
        } else if (token.is(".section")) {
            while (!now().is("{")) take();
            skip_body();
        } else if (token.text.starts_with('.')) {
            source_.variables_.push_back(variable());
            expect(";");
        } else {
            fail("a statement that is not known");
        }
    }

    // A declaration of memory, up to what ends it.
    Variable variable() {
        Variable made;
        std::size_t bytes_of_item = 0;
        for (; now().text.starts_with('.'); ++at_) {
            const std::string_view word = now().text;
            if (word == ".align" || word == ".ptr") {
                if (word == ".ptr") continue;
                made.alignment = number(ahead().text);
                ++at_;
            } else if (word == ".shared") {
                made.space = Space::shared;
            } else if (word == ".local") {
                made.space = Space::local;
            } else if (word == ".global") {
                made.space = Space::global;
            } else if (word == ".const") {
                made.space = Space::constant;
            } else if (word == ".param") {
                made.space = Space::param;
            } else if (bytes_of(word) != 0) {
                bytes_of_item = bytes_of(word);
            } else {
                fail("a declaration that is not known");
            }
        }
        if (bytes_of_item == 0) fail("a declaration without a type");
        made.name = take().text;
        made.alignment = std::max(made.alignment, bytes_of_item);
        std::size_t items = 1;
        while (skip("[")) {
            made.dynamic = now().is("]");
            if (!made.dynamic) items *= number(take().text);
            expect("]");
        }
        made.bytes = made.dynamic ? 0 : items * bytes_of_item;
        if (skip("=")) {
            const bool braces = skip("{");
            do {
                const auto item = static_cast<std::uint64_t>(integer());
                for (std::size_t i = 0; i < bytes_of_item; ++i)
                    made.value.push_back(static_cast<std::byte>(item >> 8 * i));
            } while (skip(","));
            if (braces) expect("}");
        }
        if (made.space == Space::global || made.space == Space::constant) made.value.resize(made.bytes);
        return made;
    }

    void kernel() {
        expect(".entry");
        Kernel made;
        made.line = now().line;
        made.name = take().text;
        kernel_ = &made;
        scopes_.clear();
        if (skip("(")) {
            while (!skip(")")) {
                made.parameters.push_back(variable());
                skip(",");
            }
        }
        while (!now().is("{")) take(); // .maxntid and the like
        expect("{");
        scopes_.emplace_back();
        while (!scopes_.empty()) statement();
        kernel_ = nullptr;
        std::string name = made.name;
        source_.kernels_.insert_or_assign(std::move(name), std::move(made));
    }

    // ---- Statements of a kernel

    void statement() {
        if (skip("{")) return static_cast<void>(scopes_.emplace_back());
        if (skip("}")) return scopes_.pop_back();
        if (skip(";")) return;
        const std::string_view word = now().text;
        if (word == ".loc") return skip_line();
        if (word == ".pragma") return skip_statement();
        if (word == ".reg") return registers();
        if (word.starts_with('.')) {
            kernel_->variables.push_back(variable());
            return expect(";");
        }
        if (ahead().is(":")) {
            if (ahead(2).is(".branchtargets")) return targets();
            kernel_->labels[word] = kernel_->statements.size();
            at_ += 2;
            return;
        }
        instruction();
    }

    void targets() {
        auto& all = kernel_->branch_targets[take().text];
        at_ += 2;
        do all.push_back(take().text);
        while (skip(","));
        expect(";");
    }

    void registers() {
        expect(".reg");
        const std::string_view type = take().text;
        const unsigned bits = type == ".pred" ? 1u : static_cast<unsigned>(8 * bytes_of(type));
        if (bits != 1 && bits != 16 && bits != 32 && bits != 64) fail("registers of this type are not known");
        do {
            Registers made{std::string(take().text), 1, static_cast<std::uint32_t>(kernel_->register_bits.size()),
                           false, bits};
            if (skip("<")) {
                made.numbered = true;
                made.count = static_cast<std::uint32_t>(number(take().text));
                expect(">");
            }
            for (std::uint32_t i = 0; i < made.count; ++i) {
                kernel_->register_bits.push_back(bits);
                kernel_->register_names.push_back(made.name + (made.numbered ? std::to_string(i) : ""));
            }
            scopes_.back().push_back(std::move(made));
        } while (skip(","));
        expect(";");
    }

    // The register of this name, of the innermost scope that has one.
    bool find(std::string_view name, std::uint32_t& found) const {
        std::size_t digits_at = name.size();
        while (digits_at > 0 && is_digit(name[digits_at - 1])) --digits_at;
        const std::string_view stem = name.substr(0, digits_at);
        for (std::size_t s = scopes_.size(); s-- > 0;)
            for (const Registers& all : scopes_[s]) {
                if (!all.numbered && all.name == name) {
                    found = all.first;
                    return true;
                }
                if (all.numbered && all.name == stem && digits_at < name.size()) {
                    const std::uint64_t n = number_of(name.substr(digits_at));
                    if (n < all.count) {
                        found = all.first + static_cast<std::uint32_t>(n);
                        return true;
                    }
                }
            }
        return false;
    }
    static std::uint64_t number_of(std::string_view text) {
        std::uint64_t value = 0;
        std::from_chars(text.data(), text.data() + text.size(), value);
        return value;
    }

    void instruction() {
        Statement made;
        made.line = now().line;
        if (skip("@")) {
            made.guarded = true;
            made.guard_negated = skip("!");
            if (!find(take().text, made.guard)) fail("a guard that is no register");
        }
        made.opcode = take().text;
        while (!skip(";")) {
            made.operands.push_back(operand(made.opcode));
            if (skip("|")) {
                made.paired = true;
                made.operands.push_back(operand(made.opcode));
            }
            skip(",");
        }
        kernel_->statements.push_back(std::move(made));
    }

    Written operand(std::string_view opcode) {
        Written made;
        if (skip("{")) {
            made.kind = Written::Kind::list;
            while (!skip("}")) {
                made.members.push_back(operand(opcode));
                skip(",");
            }
            return made;
        }
        if (skip("[")) {
            made = operand(opcode);
            made.has_reg = made.kind == Written::Kind::reg;
            made.kind = Written::Kind::address;
            expect("]");
            return made;
        }
        made.negated = skip("!");
        const bool negative = now().is("-");
        if (negative || is_digit(now().text.front())) {
            if (negative) ++at_;
            made.kind = Written::Kind::immediate;
            const std::string_view text = take().text;
            const bool fraction = text.find('.') != std::string_view::npos;
            made.bits = fraction ? real(text, negative, opcode) : number(text);
            if (negative && !fraction) made.bits = 0 - made.bits;
            return made;
        }
        const std::string_view name = take().text;
        if (find(name, made.reg)) {
            made.kind = Written::Kind::reg;
        } else {
            made.kind = Written::Kind::symbol;
            made.symbol = name;
        }
        if (skip("+"))
            made.offset = integer();
        else if (now().is("-"))
            made.offset = integer();
        return made;
    }

    Source& source_;
    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    Kernel* kernel_ = nullptr;
    std::vector<std::vector<Registers>> scopes_;
};

Source::Source(std::string text) : text_(std::move(text)) {
    lines_.push_back(0);
    for (std::size_t i = 0; i < text_.size(); ++i)
        if (text_[i] == '\n') lines_.push_back(i + 1);
    Parser(*this).parse();
}

std::string_view Source::line(std::uint32_t number) const {
    if (number == 0 || number > lines_.size()) return {};
    const std::size_t begin = lines_[number - 1];
    const std::size_t end = std::min(text_.find('\n', begin), text_.size());
    std::string_view text = std::string_view(text_).substr(begin, end - begin);
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    return text;
}

} // namespace ptx
