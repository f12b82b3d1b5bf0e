// Names of functions by address. Kernels usually have hidden visibility or no linkage, so dladdr cannot see them; the
// symbol table of their file has them.
#include "emulator.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <vector>

namespace simt {
namespace {

struct Module {
    std::uintptr_t address, base;
    std::string path;
};

int find_module(dl_phdr_info* info, std::size_t, void* opaque) {
    auto& module = *static_cast<Module*>(opaque);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        if (segment.p_type == PT_LOAD && module.address - info->dlpi_addr - segment.p_vaddr < segment.p_memsz) {
            module.base = info->dlpi_addr;
            module.path = info->dlpi_name[0] != '\0' ? info->dlpi_name : "/proc/self/exe";
            return 1;
        }
    }
    return 0;
}

template <class T>
std::vector<T> read(std::ifstream& file, std::uint64_t offset, std::uint64_t bytes) {
    std::vector<T> items(bytes / sizeof(T));
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(reinterpret_cast<char*>(items.data()), static_cast<std::streamsize>(items.size() * sizeof(T)));
    if (!file) items.clear();
    return items;
}

std::string symbol_of(const Module& module) {
    std::ifstream file(module.path, std::ios::binary);
    const auto header = read<ElfW(Ehdr)>(file, 0, sizeof(ElfW(Ehdr)));
    if (header.empty()) return {};
    const auto sections = read<ElfW(Shdr)>(file, header[0].e_shoff, header[0].e_shnum * sizeof(ElfW(Shdr)));
    for (const auto& section : sections) {
        if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
        const auto symbols = read<ElfW(Sym)>(file, section.sh_offset, section.sh_size);
        const auto& strings = sections[section.sh_link];
        const auto text = read<char>(file, strings.sh_offset, strings.sh_size);
        for (const auto& symbol : symbols)
            if ((symbol.st_info & 0xF) == STT_FUNC && symbol.st_value == module.address - module.base &&
                symbol.st_name < text.size())
                return text.data() + symbol.st_name;
    }
    return {};
}

} // namespace

std::string mangled_name_of(const void* function) {
    Module module{reinterpret_cast<std::uintptr_t>(function), 0, {}};
    dl_iterate_phdr(find_module, &module);
    return symbol_of(module);
}

std::string name_of(const void* function) {
    std::string name = mangled_name_of(function);
    if (name.empty()) {
        char text[32];
        std::snprintf(text, sizeof(text), "%p", function);
        return text;
    }
    const std::unique_ptr<char, decltype(&std::free)> plain(
        abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr), &std::free);
    if (!plain) return name;
    name = plain.get();
    if (name.starts_with("void ")) name.erase(0, 5);
    // the parameter list is last, and may contain parentheses
    if (name.ends_with(')')) {
        int depth = 0;
        std::size_t i = name.size();
        do {
            --i;
            depth += name[i] == ')' ? 1 : name[i] == '(' ? -1 : 0;
        } while (i > 0 && depth > 0);
        name.resize(i);
    }
    return name;
}

} // namespace simt
