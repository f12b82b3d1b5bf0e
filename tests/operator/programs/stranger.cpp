// Calls the plugin as ADIOS2 would, without being ADIOS2: stranger PLUGIN [MAJOR.MINOR.PATCH]
#include <dlfcn.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <string>

extern "C" {
// Named as in ADIOS2. Only the build as `numbered_stranger` exports them.
int adios2_version_major, adios2_version_minor, adios2_version_patch;
}

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    if (argc > 2) std::sscanf(argv[2], "%d.%d.%d", &adios2_version_major, &adios2_version_minor, &adios2_version_patch);
    using Params = std::map<std::string, std::string>;
    void* handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    auto* create = reinterpret_cast<void* (*)(const Params&)>(dlsym(handle, "OperatorCreate"));
    try {
        create({{"accuracy", "1e-3"}});
    } catch (const std::exception& error) {
        std::cout << error.what() << '\n';
        return 0;
    }
    return 1;
}
