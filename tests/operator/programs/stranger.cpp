// A program that is no ADIOS2 and calls the plugin as if it were: stranger PLUGIN
#include <dlfcn.h>

#include <exception>
#include <iostream>
#include <map>
#include <string>

int main(int argc, char** argv) {
    if (argc != 2) return 2;
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
