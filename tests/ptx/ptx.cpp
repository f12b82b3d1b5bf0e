#include "ptx.hpp"

#include "machine.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace ptx {

namespace {

// A loaded file: its kernels, decoded when they are first launched, and memory for its variables.
class Module {
public:
    explicit Module(std::string text) : source(std::move(text)) {
        for (const Variable& v : source.variables())
            if (v.space == Space::global || v.space == Space::constant) {
                // room for the alignment
                std::vector<std::byte>& memory = variables_.emplace_back(v.bytes + v.alignment);
                const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
                const std::uintptr_t begin = (at + v.alignment - 1) / v.alignment * v.alignment;
                std::copy(v.value.begin(), v.value.end(), reinterpret_cast<std::byte*>(begin));
                addresses_[v.name] = begin;
                ranges.push_back({begin, begin + v.bytes});
            }
    }

    const Program& program(const std::string& name) {
        if (const auto it = programs_.find(name); it != programs_.end()) return *it->second;
        const auto it = source.kernels().find(name);
        if (it == source.kernels().end()) throw Error("ptx: the file has no kernel " + name + "\n");
        return *programs_.emplace(name, std::make_unique<Program>(source, it->second, addresses_)).first->second;
    }

    const Source source;
    std::vector<Range> ranges;

private:
    std::vector<std::vector<std::byte>> variables_;
    std::map<std::string, std::uint64_t> addresses_;
    std::map<std::string, std::unique_ptr<Program>> programs_;
};

struct Lines {
    std::map<std::uint32_t, Executed> of_line;
};

struct Loaded {
    std::unique_ptr<Module> module;
    std::map<const void*, std::string> names; // of kernels, by address
    std::vector<Counts> counts;
    std::map<std::string, Lines> lines;
    std::string error;
};

Loaded& loaded() {
    static Loaded it;
    return it;
}

std::vector<std::byte> bytes_of(std::span<const simt::Parameter> parameters, const Program& program) {
    if (parameters.size() != program.param_at.size())
        throw Error("ptx: kernel " + program.kernel.name + " has another number of parameters\n");
    std::vector<std::byte> bytes(program.param_bytes);
    for (std::size_t k = 0; k < parameters.size(); ++k) {
        if (parameters[k].bytes != program.kernel.parameters[k].bytes)
            throw Error("ptx: parameter " + std::to_string(k) + " of kernel " + program.kernel.name + " has " +
                        std::to_string(program.kernel.parameters[k].bytes) + " bytes, not " +
                        std::to_string(parameters[k].bytes) + "\n");
        std::memcpy(bytes.data() + program.param_at[k], parameters[k].at, parameters[k].bytes);
    }
    return bytes;
}

const std::string& name_of(const void* kernel) {
    auto& names = loaded().names;
    const auto it = names.find(kernel);
    return it != names.end() ? it->second : names.emplace(kernel, simt::mangled_name_of(kernel)).first->second;
}

cudaError_t run(const simt::Grid& grid, const simt::Schedule& schedule, std::span<const simt::Memory> memory,
                std::string& report) {
    Loaded& all = loaded();
    try {
        const Program& program = all.module->program(name_of(grid.kernel));
        std::vector<Range> ranges = all.module->ranges;
        for (const auto& [begin, end] : memory) ranges.push_back({begin, end});
        std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
        Machine machine(program, grid, schedule, std::move(ranges), bytes_of(grid.parameters, program));
        machine.run();
        Lines& lines = all.lines[program.kernel.name];
        for (std::size_t i = 0; i < program.code.size(); ++i) {
            const Executed& n = machine.executed[i];
            machine.counts.threads[static_cast<std::size_t>(program.code[i].cost.of)] += n.threads;
            machine.counts.warp_instructions += n.warps;
            if (n.warps == 0) continue;
            Executed& line = lines.of_line[program.code[i].line];
            line.warps += n.warps;
            line.threads += n.threads;
        }
        all.counts.push_back(std::move(machine.counts));
        return cudaSuccess;
    } catch (const Error& error) {
        report = error.what();
        if (!report.ends_with('\n')) report += '\n';
        return cudaErrorLaunchFailure;
    }
}

int use(const char* text_or_null, std::string text) {
    Loaded& all = loaded();
    all.error.clear();
    simt::set_runner(nullptr);
    all.module.reset();
    all.names.clear();
    all.lines.clear();
    if (text_or_null == nullptr) return 0;
    try {
        all.module = std::make_unique<Module>(std::move(text));
    } catch (const Error& error) {
        all.error = error.what();
        return 1;
    }
    simt::set_runner(run);
    return 0;
}

std::size_t give(const std::string& text, char* buffer, std::size_t size) {
    if (size > 0) {
        const std::size_t n = std::min(text.size(), size - 1);
        std::memcpy(buffer, text.data(), n);
        buffer[n] = '\0';
    }
    return text.size() + 1;
}

std::ostream& operator<<(std::ostream& out, const dim3& d) {
    return out << "[" << d.x << ", " << d.y << ", " << d.z << "]";
}

std::ostream& operator<<(std::ostream& out, const Counts& c) {
    out << "{\"kernel\": \"" << c.kernel << "\", \"grid\": " << c.grid << ", \"block\": " << c.block
        << ", \"shared_bytes\": " << c.shared_bytes << ", \"threads\": {";
    for (std::size_t k = 0; k < class_names.size(); ++k)
        out << (k == 0 ? "" : ", ") << "\"" << class_names[k] << "\": " << c.threads[k];
    const auto field = [&](const char* name, std::uint64_t value) { out << ", \"" << name << "\": " << value; };
    out << "}";
    field("warp_instructions", c.warp_instructions);
    field("shared_accesses", c.shared_accesses);
    field("shared_wavefronts", c.shared_wavefronts);
    field("global_accesses", c.global_accesses);
    field("sectors_loaded", c.sectors_loaded);
    field("sectors_stored", c.sectors_stored);
    field("sectors_missed", c.sectors_missed);
    field("sectors_merged", c.sectors_merged);
    field("barriers", c.barriers);
    field("warps", c.warps);
    field("chain_longest", c.chain_longest);
    field("chain_sum", c.chain_sum);
    return out << "}";
}

} // namespace

} // namespace ptx

using namespace ptx;

extern "C" {

int simt_use_ptx(const char* path) {
    if (path == nullptr) return use(nullptr, {});
    std::ifstream file(path, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (file.bad() || text.empty()) {
        use(nullptr, {});
        loaded().error = std::string(path) + " cannot be read, or is empty";
        return 1;
    }
    return use(path, std::move(text));
}
int simt_use_ptx_text(const char* text) { return use(text, text == nullptr ? "" : text); }
const char* simt_ptx_error() { return loaded().error.c_str(); }

int simt_ptx_launch(const char* entry, const unsigned (*sizes)[3], size_t shared_bytes, const void* parameters,
                    size_t parameter_bytes) {
    Loaded& all = loaded();
    all.error.clear();
    if (all.module == nullptr) return cudaErrorInvalidDeviceFunction;
    const auto it = all.module->source.kernels().find(std::string_view(entry));
    if (it == all.module->source.kernels().end()) return cudaErrorInvalidDeviceFunction;
    const Kernel& kernel = it->second;
    all.names[&kernel] = kernel.name;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(sizes[0][0], sizes[0][1], sizes[0][2]);
    config.blockDim = dim3(sizes[1][0], sizes[1][1], sizes[1][2]);
    config.dynamicSmemBytes = shared_bytes;
    if (const int error =
            cudaFuncSetAttribute(static_cast<const void*>(&kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes)))
        return error;
    std::vector<simt::Parameter> all_parameters;
    std::size_t at = 0;
    for (const Variable& v : kernel.parameters) {
        at = (at + v.alignment - 1) / v.alignment * v.alignment;
        if (at + v.bytes > parameter_bytes) return cudaErrorInvalidValue;
        all_parameters.push_back({static_cast<const std::byte*>(parameters) + at, v.bytes, v.alignment});
        at += v.bytes;
    }
    return simt::launch(&config, &kernel, nullptr, nullptr, all_parameters);
}

size_t simt_ptx_counts(char* buffer, size_t size) {
    std::ostringstream text;
    text << "[";
    for (const Counts& one : loaded().counts) text << (&one == loaded().counts.data() ? "" : ",\n ") << one;
    text << "]\n";
    return give(text.str(), buffer, size);
}
size_t simt_ptx_lines(char* buffer, size_t size) {
    std::ostringstream text;
    text << "{";
    for (const char* between = ""; const auto& [kernel, lines] : loaded().lines) {
        text << between << "\"" << kernel << "\": {";
        between = ",\n ";
        for (const char* comma = ""; const auto& [line, n] : lines.of_line) {
            text << comma << "\"" << line << "\": [" << n.warps << ", " << n.threads << "]";
            comma = ", ";
        }
        text << "}";
    }
    text << "}\n";
    return give(text.str(), buffer, size);
}
size_t simt_ptx_forms(char* buffer, size_t size) { return give(list_of_forms(), buffer, size); }
void simt_ptx_clear() {
    loaded().counts.clear();
    loaded().lines.clear();
}

} // extern "C"
