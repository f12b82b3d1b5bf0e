// Looks to the plugin like an ADIOS2 with the interface of 2.12 and any version number:
//
//   newcomer PLUGIN MAJOR.MINOR.PATCH    prints whether a block comes back unchanged, or the plugin's refusal
//   newcomer PLUGIN MAJOR.MINOR.PATCH +  calls a virtual function that 2.12 does not have
#include <adios2/common/ADIOSTypes.h>
#include <adios2/cxx/IO.h>
#include <adios2/plugin/PluginEngineInterface.h>
#include <adios2/plugin/PluginOperatorInterface.h>

#include <dlfcn.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <typeinfo>
#include <vector>

extern "C" {
// Named as in ADIOS2, which exports them as constants.
int adios2_version_major, adios2_version_minor, adios2_version_patch;
}

namespace {

using Plugin = adios2::plugin::PluginOperatorInterface;

// Type names by which the plugin recognises ADIOS2 2.12 (operator/plugin/host.cpp).
const char* const volatile names_of_types[] = {
    typeid(adios2::plugin::PluginEngineInterface * (adios2::IO, const std::string&, adios2::Mode)).name(),
    typeid(Plugin * (const adios2::Params&)).name(),
};

} // namespace

// Outside the anonymous namespace, where the compiler would know that no class derives from it.
struct Extended : Plugin {
    using Plugin::Plugin;
    virtual std::size_t added(const char* field, std::size_t n) = 0;
};

int main(int argc, char** argv) {
    if (argc < 3 ||
        std::sscanf(argv[2], "%d.%d.%d", &adios2_version_major, &adios2_version_minor, &adios2_version_patch) != 3 ||
        names_of_types[0] == nullptr)
        return 2;
    void* handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    auto* create = reinterpret_cast<Plugin* (*)(const adios2::Params&)>(dlsym(handle, "OperatorCreate"));
    auto* destroy = reinterpret_cast<void (*)(Plugin*)>(dlsym(handle, "OperatorDestroy"));
    try {
        Plugin* plugin = create({{"accuracy", "0"}});
        const std::vector<float> field(1000, 1.5f);
        if (argc > 3) static_cast<Extended*>(plugin)->added(reinterpret_cast<const char*>(field.data()), field.size());
        const adios2::Dims count = {field.size()};
        std::vector<char> archive(plugin->GetEstimatedSize(field.size(), sizeof(float), 1, count.data()));
        const std::size_t n = plugin->Operate(reinterpret_cast<const char*>(field.data()), {0}, count,
                                              adios2::DataType::Float, archive.data());
        std::vector<float> got(field.size());
        plugin->InverseOperate(archive.data(), n, reinterpret_cast<char*>(got.data()));
        destroy(plugin);
        std::cout << (got == field ? "the same" : "another") << '\n';
    } catch (const std::exception& error) {
        std::cout << error.what() << '\n';
    }
}
