// ADIOS2 does not tell a plugin its version, and may be linked statically into a stripped program that exports nothing
// (such as openPMD-api's wheel). But every build retains the names of types that are thrown or stored in a
// std::function (Itanium C++ ABI, 2.9.5), and the two files that load and call plugins have such types.
// PluginManager.cpp stores functions that create plugins, whose argument types changed in ADIOS2 2.12;
// PluginOperator.cpp throws PluginLoadFailure since 2.11. TransportMan.cpp, which every file engine needs, has FileHTTP
// since 2.10.
//
// These names tell the oldest interface that it can be; a later version may have changed it. So an ADIOS2 whose number
// is above those that were tried is refused. Shared libraries export their number; static ones do not.
#include "host.hpp"

#include <cusz/cusz.h>

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace cusz_operator {
namespace {

enum Sign : unsigned {
    creates_engines_of_public_io = 1 << 0, // 2.12
    creates_engines_of_core_io = 1 << 1,   // before
    throws_load_failure = 1 << 2,          // 2.11
    has_http = 1 << 3,                     // 2.10
    has_cxx11_strings = 1 << 4,
    has_old_strings = 1 << 5,
};

struct Name {
    std::string_view text; // the rest of the name
    Sign sign;
};

constexpr std::string_view start = "N6adios2"; // of every name, possibly after "FP" (a function that returns a pointer)
constexpr std::array names = {
    Name{"6plugin21PluginEngineInterfaceENS_2IOE", creates_engines_of_public_io},
    Name{"6plugin21PluginEngineInterfaceERNS_4core2IOE", creates_engines_of_core_io},
    Name{"17PluginLoadFailureE", throws_load_failure},
    Name{"9transport8FileHTTPE", has_http},
    Name{"6plugin23PluginOperatorInterfaceERKSt3mapINSt7__cxx1112basic_string", has_cxx11_strings},
    Name{"6plugin23PluginOperatorInterfaceERKSt3mapISsSs", has_old_strings},
};

// The signs found in memory that the program never writes.
unsigned signs_in(std::string_view constants) {
    const std::boyer_moore_horspool_searcher searcher(start.begin(), start.end());
    unsigned found = 0;
    for (;;) {
        const auto at = std::search(constants.begin(), constants.end(), searcher);
        if (at == constants.end()) return found;
        constants.remove_prefix(static_cast<std::size_t>(at - constants.begin()) + start.size());
        for (const Name& name : names) {
            if (constants.starts_with(name.text)) found |= name.sign;
        }
    }
}

// A program or library in memory.
struct Module {
    std::uintptr_t caller; // an address within it
    std::uintptr_t address = 0;
    const char* file = "";                       // as loaded; "" for the program itself
    std::array<std::string_view, 8> constants{}; // its read-only mappings
    std::size_t n_constants = 0;
};

// For dl_iterate_phdr: fills in the module of the caller.
int describe(dl_phdr_info* info, std::size_t, void* context) {
    auto& module = *static_cast<Module*>(context);
    const std::span parts(info->dlpi_phdr, info->dlpi_phnum);
    const bool is_here = std::any_of(parts.begin(), parts.end(), [&](const ElfW(Phdr) & part) {
        return part.p_type == PT_LOAD && module.caller - (info->dlpi_addr + part.p_vaddr) < part.p_memsz;
    });
    if (!is_here) return 0;
    module.address = info->dlpi_addr;
    module.file = info->dlpi_name;
    for (const ElfW(Phdr) & part : parts) {
        if (part.p_type != PT_LOAD || (part.p_flags & (PF_R | PF_W)) != PF_R) continue;
        if (module.n_constants == module.constants.size()) break; // linkers make one to three of them
        module.constants[module.n_constants++] = {reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr),
                                                  part.p_filesz};
    }
    return 1;
}

std::optional<Host> host_with(unsigned signs) noexcept {
    const auto has = [&](Sign sign) { return (signs & sign) != 0; };
    if (has(has_cxx11_strings) == has(has_old_strings)) return std::nullopt;
    if (has(creates_engines_of_public_io) == has(creates_engines_of_core_io)) return std::nullopt;
    const Strings strings = has(has_old_strings) ? Strings::old : Strings::cxx11;
    if (has(creates_engines_of_public_io)) return Host{Interface::v2_12, strings};
    if (has(throws_load_failure)) return Host{Interface::v2_11, strings};
    if (has(has_http)) return Host{Interface::v2_10, strings};
    return std::nullopt;
}

struct Number {
    int major, minor;

    auto operator<=>(const Number&) const = default;
    std::string text() const { return std::to_string(major) + '.' + std::to_string(minor); }
};

constexpr Number oldest = {2, 10}, newest = {2, 12}; // that were tried

// The version number of ADIOS2, if it is exported.
std::optional<Number> number_of(const Module& module) {
    const auto close = [](void* handle) { dlclose(handle); };
    const std::unique_ptr<void, decltype(close)> handle(
        dlopen(*module.file != '\0' ? module.file : nullptr, RTLD_LAZY | RTLD_NOLOAD));
    if (handle == nullptr) return std::nullopt;
    const auto value = [&](const char* name) -> const int* {
        const void* const found = dlsym(handle.get(), name);
        Dl_info of_found{}, of_caller{}; // dlsym also finds the numbers of libraries that the module needs
        const bool is_here = found != nullptr && dladdr(found, &of_found) != 0 &&
                             dladdr(reinterpret_cast<const void*>(module.caller), &of_caller) != 0 &&
                             of_found.dli_fbase == of_caller.dli_fbase;
        return is_here ? static_cast<const int*>(found) : nullptr;
    };
    const int *const major = value("adios2_version_major"), *const minor = value("adios2_version_minor");
    if (major == nullptr || minor == nullptr) return std::nullopt;
    return Number{*major, *minor};
}

// Whether the user wants to try the plugin with this version.
bool is_to_be_tried(const Number& number) {
    const char* const wanted = std::getenv("CUSZ_TRY_ADIOS2");
    return wanted != nullptr && number.text() == wanted;
}

// The text names the file, because file names usually include the version. what: describes the ADIOS2; newer: what else
// to use; hint: for the end of the text.
std::string refusal(const char* file, const std::string& what, const char* newer, const std::string& hint) {
    const std::unique_ptr<char, decltype(&std::free)> path(::realpath(file, nullptr), &std::free);
    const std::string where = *file == '\0' ? "this program" : path != nullptr ? path.get() : file;
    return "cusz_operator " + std::string(cusz_version()) + " works with ADIOS2 2.10, 2.11 and 2.12, and that in " +
           where + " is " + what + ": use " + newer +
           "a program built with one of them, or take the operator out of its configuration" + hint;
}

constexpr const char* newer_cusz = "a newer cusz, or ";

std::string refusal(const char* file, const std::optional<Number>& number, bool can_be_tried) {
    if (!number || (*number >= oldest && *number <= newest)) return refusal(file, "none of these", "", "");
    if (*number < oldest) return refusal(file, number->text(), "", "");
    const std::string hint = " (or try it as " + newest.text() + " with CUSZ_TRY_ADIOS2=" + number->text() +
                             " in the environment, at the risk of a crash or wrong data)";
    return refusal(file, number->text(), newer_cusz, can_be_tried ? hint : "");
}

// The module that contains a code address.
Module module_of(const void* caller) {
    Module module;
    module.caller = reinterpret_cast<std::uintptr_t>(caller);
    dl_iterate_phdr(describe, &module);
    return module;
}

} // namespace

Host host_of(const void* caller) {
    const Module module = module_of(caller);
    // ADIOS2 creates an object for every variable, and from Python for every write: each module is scanned only once.
    struct Known {
        std::uintptr_t address;
        std::size_t file_hash;
        Host host;
    };
    static std::mutex mutex; // no destructors: ADIOS2 may call while the process exits
    static std::array<Known, 16> known;
    static std::size_t n_known = 0;
    const std::size_t file_hash = std::hash<std::string_view>()(module.file);
    const std::lock_guard<std::mutex> lock(mutex);
    const std::span kept(known.data(), n_known);
    const auto found = std::find_if(kept.begin(), kept.end(), [&](const Known& one) {
        return one.address == module.address && one.file_hash == file_hash;
    });
    if (found != kept.end()) return found->host;

    unsigned signs = 0;
    for (const std::string_view constants : std::span(module.constants.data(), module.n_constants))
        signs |= signs_in(constants);
    const std::optional<Host> host = host_with(signs);
    const std::optional<Number> number = number_of(module);
    const bool is_too_new = number && *number > newest && !is_to_be_tried(*number);
    if (!host || is_too_new) throw std::runtime_error(refusal(module.file, number, host.has_value()));
    if (n_known < known.size()) known[n_known++] = {module.address, file_hash, *host};
    return *host;
}

void refuse_unknown_function(const void* caller) {
    const char* const what = "none of these, as it calls a function of the operator that they do not have";
    throw std::runtime_error(refusal(module_of(caller).file, what, newer_cusz, ""));
}

} // namespace cusz_operator
