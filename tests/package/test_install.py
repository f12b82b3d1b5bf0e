"""What is installed: the CMake package and its C example, the wheel's layout, and what the build refuses."""

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import cusz_core
import cusz_operator
from cusz_core.command_line import Command
from support import output

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build/release"
CORE = Path(cusz_core.__file__).parent
PLUGIN = Path(cusz_operator.__file__).parent / "libcusz_operator.so"
FILTER = CORE / "hdf5_plugin/libcusz_hdf5.so"


def configure(build: Path, *options: str, ok: bool = True) -> str:
    """Only configures the project; returns what CMake prints, on one line."""
    return " ".join(output("cmake", "-G", "Ninja", "-S", ROOT, "-B", build, *options, ok=ok).split())


def test_c_example_with_the_installed_package(tmp_path: Path) -> None:
    output("cmake", "--install", BUILD, "--prefix", tmp_path / "prefix")
    flags = "-Wall -Wextra -Wpedantic -Wconversion -Werror"
    output(
        *("cmake", "-G", "Ninja", "-S", ROOT / "apps/c_example", "-B", tmp_path / "build"),
        *(f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}", f"-DCMAKE_C_FLAGS={flags}"),
    )
    output("cmake", "--build", tmp_path / "build")
    said = output(tmp_path / "build/c_example")
    assert f"cusz {cusz_core.__version__}: 480000 -> " in said
    assert "one bit flipped: corrupt archive" in said


@pytest.mark.parametrize("name", ["scripts/common.sh", "./scripts/common.sh"])
def test_scripts_find_themselves_with_an_exported_cdpath(name: str) -> None:
    """With CDPATH set, `cd` prints where it goes."""
    command = f'cd "{ROOT}" && . {name} && printf %s "$ROOT"'
    assert output("bash", "-c", command, env={**os.environ, "CDPATH": f"{ROOT}:/"}) == str(ROOT)


USES_BOTH_HEADERS = r"""
#include <cusz/cusz.h>
#include <cusz/cusz_operator.h>
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    void* const plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
    int32_t (*interface)(void);
    *(void**)&interface = dlsym(plugin, "cusz_operator_interface");
    if (interface == NULL || interface() != CUSZ_OPERATOR_INTERFACE) return 1;
    printf("cusz %s\n", cusz_version());
    return interface() == CUSZ_OPERATOR_INTERFACE ? 0 : 1;
}
"""


def test_pkg_config_and_both_headers(tmp_path: Path) -> None:
    """In another folder than the prefix of the installation, as DESTDIR makes possible."""
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not there (Debian: pkg-config)")
    output("cmake", "--install", BUILD, "--prefix", "/opt/cusz", env={**os.environ, "DESTDIR": str(tmp_path / "stage")})
    prefix = (tmp_path / "stage/opt/cusz").rename(tmp_path / "moved")
    (folder,) = prefix.rglob("pkgconfig")
    env = {**os.environ, "PKG_CONFIG_PATH": str(folder)}

    def pkg_config(*words: str) -> list[str]:
        return output("pkg-config", *words, "cusz", env=env).split()

    assert pkg_config("--modversion") == [cusz_core.__version__]
    (libdir,) = pkg_config("--variable=libdir")
    (plugindir,) = pkg_config("--variable=plugindir")
    (hdf5_plugindir,) = pkg_config("--variable=hdf5plugindir")
    assert [path.name for path in Path(hdf5_plugindir).iterdir()] == [FILTER.name]
    found = output("ldd", Path(hdf5_plugindir) / FILTER.name)
    assert re.search(rf"libcusz_core\.so\.0 => {re.escape(str(prefix))}", found)
    (tmp_path / "main.c").write_text(USES_BOTH_HEADERS)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", *pkg_config("--cflags", "--libs")]
    output(os.environ.get("CC", "cc"), "-o", tmp_path / "main", tmp_path / "main.c", *flags)
    said = output(tmp_path / "main", f"{plugindir}/{PLUGIN.name}", env={**env, "LD_LIBRARY_PATH": libdir})
    assert said == f"cusz {cusz_core.__version__}\n"


def test_entry_points_are_installed_and_are_what_they_should_be() -> None:
    """cusz_core uses them to find the commands and errors of cusz_operator, and xarray its engine."""
    declared = re.findall(r'^"?([\w.]+)"? = "(cusz_operator\.\w+:\w+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    of_xarray = [entry for entry in entry_points(group="xarray.backends") if entry.name == "cusz"]
    installed = [*entry_points(group="cusz.commands"), *entry_points(group="cusz.errors"), *of_xarray]
    assert {(entry.name, entry.value) for entry in installed} == set(declared) != set()
    for entry in entry_points(group="cusz.commands"):
        assert isinstance(entry.load(), Command)
    for entry in entry_points(group="cusz.errors"):
        assert issubclass(entry.load(), cusz_core.CuszError)
        assert entry.load().__name__ == entry.name


def test_nothing_of_other_compressors_is_installed() -> None:
    for package in (CORE, PLUGIN.parent):
        for path in package.rglob("*.py"):
            assert not re.search(r"\b(imagecodecs|pysz|hdf5plugin|pcodec|zstandard)\b", path.read_text()), path


def test_one_version_everywhere() -> None:
    project = re.search(r"project\(cusz VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert project
    assert project[1] == version("cusz") == cusz_core.__version__
    assert f"\nversion: {project[1]}\n" in (ROOT / "CITATION.cff").read_text()
    (newest, *_) = re.findall(r"^## \[?([0-9.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == project[1]


def test_the_library_lies_once_and_is_found_beside() -> None:
    libraries = sorted(path.name for path in [*CORE.rglob("lib*"), *PLUGIN.parent.rglob("lib*")])
    assert libraries == ["libcusz_core.so.0", "libcusz_hdf5.so", "libcusz_operator.so"]
    (native,) = CORE.glob("_native*.so")
    assert "[$ORIGIN]" in output("readelf", "-d", native)
    assert "[$ORIGIN:$ORIGIN/../cusz_core]" in output("readelf", "-d", PLUGIN)
    assert "[$ORIGIN/..:$ORIGIN/../..]" in output("readelf", "-d", FILTER)


def exported(library: Path) -> set[str]:
    return {line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines()}


def test_the_hdf5_filter_has_its_folder_for_itself_and_needs_no_hdf5() -> None:
    """HDF5 opens every library in that folder."""
    assert [path.name for path in FILTER.parent.iterdir()] == [FILTER.name]
    assert "hdf5" not in output("readelf", "-d", FILTER).replace(FILTER.name, "")
    assert exported(FILTER) == {"H5PLget_plugin_info", "H5PLget_plugin_type"}


def test_the_plugin_needs_no_adios2_library() -> None:
    assert "adios2" not in output("readelf", "-d", PLUGIN)
    assert "adios2" not in output("nm", "-D", PLUGIN)


def test_the_library_and_the_plugin_export_their_interface_only() -> None:
    headers = ROOT / "cusz_core/include/cusz/cusz.h", ROOT / "operator/plugin/cusz_operator.h"
    of_core, of_plugin = (set(re.findall(r"CUSZ_\w*API .*?(cusz_\w+)\(", header.read_text())) for header in headers)
    assert exported(CORE / "libcusz_core.so.0") == of_core
    assert exported(PLUGIN) == of_plugin | {"OperatorCreate", "OperatorDestroy"}


@pytest.mark.parametrize("cxx", [cxx for cxx in ("c++", "clang++") if shutil.which(cxx)])
def test_flags_that_relax_arithmetic_have_no_effect(cxx: str, tmp_path: Path) -> None:
    """Neither those of the environment nor those of a project that this one is a part of. That project, which has no
    build type, is not given one, and may have unity builds, which do not concern this one."""
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(host)\nadd_compile_options(-ffast-math)\n"
        f'add_subdirectory("{ROOT}" cusz)\n'
    )
    relaxed = "-Ofast -funsafe-math-optimizations -ffinite-math-only -freciprocal-math -fno-signed-zeros"
    options = [f"-DCMAKE_CXX_FLAGS={relaxed}", "-DCUSZ_USE_CUDA=OFF", "-DCMAKE_UNITY_BUILD=ON"]
    options.append(f"-DCMAKE_CXX_COMPILER={cxx}")
    output("cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "build", *options)
    assert "\nCMAKE_BUILD_TYPE:STRING=\n" in (tmp_path / "build/CMakeCache.txt").read_text()
    compilers: set[tuple[str, ...]] = set()
    for entry in json.loads((tmp_path / "build/compile_commands.json").read_text()):
        assert "Unity" not in entry["file"]
        command = shlex.split(entry["command"])
        compilers.add((*command[: command.index("-o")], "-dM", "-E", "-x", "c++", "/dev/null"))
    assert any("-mavx512f" in compiler for compiler in compilers) or platform.machine() != "x86_64"
    for compiler in compilers:
        assert "-ffast-math" in compiler
        assert "-O3" in compiler
        assert "-DNDEBUG" not in compiler
        macros = output(*compiler)
        assert "__FAST_MATH__" not in macros
        assert "#define __FINITE_MATH_ONLY__ 0\n" in macros
        assert "__GCC_IEC_559 " not in macros or "__GCC_IEC_559 2\n" in macros


@pytest.mark.skipif(platform.machine() != "x86_64", reason="of x86-64 alone")
def test_code_for_newer_processors_is_linked_last(tmp_path: Path) -> None:
    """Builds that inline less than Release, such as MinSizeRel, have functions that are defined in many files, with the
    instructions of each. The linker keeps the first definition."""
    configure(tmp_path, "-DCUSZ_USE_CUDA=OFF")
    (linked,) = re.findall(
        r"^build cusz_core/libcusz_core\.so\S*.*: CXX_SHARED_.*", (tmp_path / "build.ninja").read_text(), re.M
    )
    objects = re.findall(r"\S+\.o\b", linked)
    newer = [name for name in objects if "/kernels_avx" in name]
    assert [Path(name).name for name in newer] == ["kernels_avx2.cpp.o", "kernels_avx512.cpp.o"]
    assert objects[-2:] == newer


@pytest.mark.full
def test_flags_that_relax_the_arithmetic_of_a_gpu_have_no_effect(nvcc: str, tmp_path: Path) -> None:
    """The CPU would decode other values, and subnormal ones would become 0."""
    options = ["-DCUSZ_USE_CUDA=ON", f"-DCMAKE_CUDA_COMPILER={nvcc}", "-DCUSZ_CUDA_ARCHITECTURES=90-real"]
    options.append(
        "-DCMAKE_CUDA_FLAGS=--use_fast_math --default-stream=per-thread -DCUDA_API_PER_THREAD_DEFAULT_STREAM"
    )
    configure(tmp_path, *options)
    commands = {
        entry["file"]: entry["command"] for entry in json.loads((tmp_path / "compile_commands.json").read_text())
    }
    command = shlex.split(commands[str(ROOT / "cusz_core/src/codec/cuda/pieces.cu")])
    (tmp_path / "sample.cu").write_text(
        "#ifdef __CUDA_API_PER_THREAD_DEFAULT_STREAM\n#error NULL is another stream\n#endif\n"
        "__global__ void sample(float* x, double* y) {\n"
        "    x[0] = x[1] * x[2] + x[3]; x[4] = x[5] / x[6]; x[7] = sqrtf(x[8]); y[0] = y[1] * y[2] + y[3];\n}\n"
    )
    own = [word for word in command[: command.index("-x")] if "generate-code" not in word]
    output(*own, "-ptx", "-arch=sm_90", "-o", tmp_path / "sample.ptx", tmp_path / "sample.cu")
    ptx = (tmp_path / "sample.ptx").read_text()
    operations = re.findall(r"\b((?:fma|mul|add|div|sqrt)[.][a-z.]*f(?:32|64))\b", ptx)
    rounded = ["add.rn.f32", "add.rn.f64", "div.rn.f32", "mul.rn.f32", "mul.rn.f64", "sqrt.rn.f32"]
    assert sorted(operations) == rounded


def test_a_cuda_that_is_too_old_is_refused(tmp_path: Path) -> None:
    """It is refused before CMake tries to compile with it."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 11.8, V11.8.89'\n")
    nvcc.chmod(0o755)
    said = configure(tmp_path / "build", "-DCUSZ_USE_CUDA=ON", f"-DCMAKE_CUDA_COMPILER={nvcc}", ok=False)
    assert f"needs CUDA 12.0 or newer, whose nvcc has C++20; {nvcc} is of 11.8. Load a newer one" in said


def test_a_nanobind_that_is_too_old_is_refused(tmp_path: Path) -> None:
    """Before the kernels are compiled, which takes minutes."""
    package = tmp_path / "packages/nanobind"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(f"print({str(package)!r})\n")
    (package / "nanobind-config.cmake").write_text("")
    (package / "nanobind-config-version.cmake").write_text(
        'set(PACKAGE_VERSION "2.9.2")\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n'
    )
    command = ["cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path / "build", "-DCUSZ_BUILD_PYTHON=ON"]
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    said = output(*command, f"-DPython_EXECUTABLE={sys.executable}", ok=False, env=environment)
    assert "nanobind 3.1 or newer was not found" in said


def test_static_libraries_are_refused(tmp_path: Path) -> None:
    said = configure(tmp_path, "-DBUILD_SHARED_LIBS=OFF", ok=False)
    assert "cusz is built as shared libraries alone" in said
    configure(tmp_path, "-DBUILD_SHARED_LIBS=ON")


def test_an_old_compiler_is_refused(tmp_path: Path) -> None:
    compiler = tmp_path / "old-c++"
    compiler.write_text('#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=10 "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    said = configure(tmp_path / "build", f"-DCMAKE_CXX_COMPILER={compiler}", ok=False)
    assert re.search(r"GNU 10\.[.\d]+ \(\S+\) is too old: cusz needs GNU 11 or newer", said)


def test_the_operator_builds_without_adios2_and_programs_do_not(tmp_path: Path) -> None:
    nowhere = "-DCMAKE_DISABLE_FIND_PACKAGE_ADIOS2=ON"
    configure(tmp_path, nowhere)
    assert "cusz_operator" in output("cmake", "--build", tmp_path, "--target", "help")
    assert "No ADIOS2 of version 2.10 or newer" in configure(tmp_path, nowhere, "-DCUSZ_BUILD_APPS=ON", ok=False)


def test_what_is_linked_does_not_depend_on_the_build_folder_and_finds_zstd(tmp_path: Path) -> None:
    """The linker makes its identifier of a library from all of it, before what is installed gets another RPATH."""
    prefix = tmp_path / "zstd"
    (prefix / "include").mkdir(parents=True)
    (prefix / "lib").mkdir()
    (prefix / "include/zstd.h").touch()
    (prefix / "lib/libzstd.so").touch()
    build = tmp_path / "build"
    configure(build, "-DCUSZ_USE_CUDA=OFF", f"-DCMAKE_PREFIX_PATH={prefix}")
    paths = re.findall(r"-rpath,(\S*)", (build / "build.ninja").read_text())
    assert paths
    assert not [path for path in paths if str(build) in path]
    assert f'RPATH "{prefix}/lib"' in (build / "cusz_core/cmake_install.cmake").read_text()


def test_the_libraries_are_never_unmapped() -> None:
    """ADIOS2 closes the plugin before a program's static objects are destroyed (tests/operator/test_exit.py), and HDF5
    may close the filter before it has written everything."""
    for library in (PLUGIN, FILTER, CORE / "libcusz_core.so.0"):
        assert re.search(r"FLAGS_1.*NODELETE", output("readelf", "-d", library)), library


LOADS_LAZILY = r"""
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
    if (argc != 2 || dlopen(argv[1], RTLD_LAZY) != NULL) return 1;
    puts(dlerror());
    return 0;
}
"""


def test_a_library_that_lacks_a_function_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    """As an older one in LD_LIBRARY_PATH does, which goes before the one that lies beside. Loaders ask for functions at
    their first call: the process would end there."""
    name = b"\0cusz_decompress\0"
    library = (CORE / "libcusz_core.so.0").read_bytes()
    assert name in library
    (tmp_path / "libcusz_core.so.0").write_bytes(library.replace(name, b"\0cusz_decompresX\0"))
    (tmp_path / "load.c").write_text(LOADS_LAZILY)
    output(os.environ.get("CC", "cc"), "-o", tmp_path / "load", tmp_path / "load.c", "-ldl")
    for plugin in (PLUGIN, FILTER):
        said = output(tmp_path / "load", plugin, env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
        assert "undefined symbol: cusz_decompress" in said


def test_the_plugin_loads_nothing_but_itself() -> None:
    """SECURITY.md: only the CUDA driver is opened by name at run time; libraries needed at load time are known."""
    with_cuda = bool(cusz_core._native.has_backend(cusz_core._native.BACKENDS.index("cuda")))
    system = {"libc.so", "libm.so", "libgcc_s.so", "libstdc++.so", "libpthread.so", "ld-linux-x86-64.so", "libzstd.so"}
    system |= {"librt.so", "libdl.so"} if with_cuda else set()
    for library, own in (
        (PLUGIN, {"libcusz_core.so"}),
        (FILTER, {"libcusz_core.so"}),
        (CORE / "libcusz_core.so.0", set[str]()),
    ):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library))
        assert needed
        assert {re.sub(r"\.so\..*", ".so", name) for name in needed} <= system | own, needed
        undefined = {
            line.split()[-1].split("@")[0] for line in output("nm", "-D", "--undefined-only", library).splitlines()
        }
        runtime_of_cuda = (
            {"dlopen", "dlmopen", "socket"} if with_cuda and library not in (PLUGIN, FILTER) else set[str]()
        )
        refused = {"dlopen", "dlmopen", "system", "popen", "execve", "execvp", "posix_spawn", "fork", "socket"}
        finds_its_host = {"dlopen"} if library in (PLUGIN, FILTER) else set[str]()  # only with RTLD_NOLOAD
        assert not undefined & (refused - runtime_of_cuda - finds_its_host)


def test_every_package_that_is_installed_is_pinned_and_hashed() -> None:
    def pins(path: Path) -> set[tuple[str, str]]:
        found = re.findall(r"^([A-Za-z0-9_.-]+)==([^ \\\n]+)", path.read_text(), re.MULTILINE)
        return {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in found}

    lock = ROOT / "scripts/requirements.lock"
    assert pins(lock) == pins(ROOT / "scripts/requirements.txt") != set()
    for entry in re.split(r"\n(?=[a-z])", re.sub(r"^#.*\n", "", lock.read_text(), flags=re.MULTILINE).strip()):
        assert "--hash=sha256:" in entry, entry
    assert "-r scripts/requirements.lock" in (ROOT / "scripts/setup").read_text()


def test_what_a_step_on_a_gpu_gives_is_handed_over_at_once(tmp_path: Path) -> None:
    """The machine may be taken away before the last step."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "bin").mkdir()
    for program in ("cmake", "ninja", "nvcc"):
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\necho no {program}\nexit 7\n")
        (tmp_path / "bin" / program).chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OUT": str(tmp_path / "out"), "CUSZ_PYTHON": sys.executable}
    said = output(tmp_path / "scripts/gpu", "build", ok=False, env=environment)
    assert "FAILED (exit status 7)" in said
    with tarfile.open(tmp_path / "out/gpu.tar.gz") as handed:
        assert {"./machine.txt", "./build.log", "./summary.txt"} <= set(handed.getnames())
        assert b"no cmake" in handed.extractfile("./build.log").read()


@pytest.mark.parametrize("script", ["setup", "test", "demo", "docs", "wheels", "lint", "fuzz", "sanitize", "gpu"])
def test_help_sets_nothing_up(script: str, tmp_path: Path) -> None:
    """In a tree with no .venv, where whatever is called first would fail."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests/tiers.py", tmp_path / "tests")
    if script != "setup":
        (tmp_path / "scripts/setup").write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    done = subprocess.run([tmp_path / "scripts" / script, "--help"], capture_output=True, text=True, check=False)
    assert f"scripts/{script}" in done.stdout
    assert not done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "build") == ["scripts", "tests"]
