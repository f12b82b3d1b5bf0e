"""Spack's recipe, without Spack: its versions, options and folders match those of the project."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CMAKE = (ROOT / "CMakeLists.txt").read_text()
REPOSITORY = ROOT / "scripts/spack/spack_repo/cusz"
RECIPE = REPOSITORY / "packages/cusz_adios2/package.py"


class CMakePackage:
    """As much of Spack's class as the recipe needs; `on`: the variants that are switched on."""

    def __init__(self, *on: str, prefix: Path = Path("/"), cuda_arch: tuple[str, ...] = ("none",)) -> None:
        self.on = on
        self.prefix = SimpleNamespace(lib=str(prefix / "lib"))
        true = {f"+{variant}" for variant in on} | {f"cuda_arch={arch}" for arch in cuda_arch}
        variants = {"cuda_arch": SimpleNamespace(value=cuda_arch)}
        self.spec = SimpleNamespace(satisfies=true.__contains__, variants=variants)

    def define(self, name: str, value: bool | str | tuple[str, ...]) -> str:
        if isinstance(value, bool):
            value = "ON" if value else "OFF"
        return f"-D{name}={value if isinstance(value, str) else ';'.join(value)}"

    def define_from_variant(self, name: str, variant: str) -> str:
        return self.define(name, variant in self.on)


@pytest.fixture
def said() -> list[tuple[str, str, str]]:
    """What the recipe declares: directive, its first argument, and `when`."""
    return []


@pytest.fixture
def package(said: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    def named(name: str) -> Callable[..., Any]:
        if name == "join_path":
            return os.path.join

        def directive(*args: Any, **keywords: Any) -> Callable[[Any], Any]:
            said.append((name, args[0], keywords.get("when", "")))
            return lambda function: function

        return directive

    def module(name: str, **members: Any) -> None:
        made = ModuleType(name)
        made.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, made)

    module("spack")
    module("spack.package", __getattr__=named)
    for parent in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        module(parent)
    module("spack_repo.builtin.build_systems.cmake", CMakePackage=CMakePackage)
    module("spack_repo.builtin.build_systems.cuda", CudaPackage=type("CudaPackage", (), {}))
    made: type[Any] = runpy.run_path(str(RECIPE))["CuszAdios2"]
    return made


def only(found: list[str]) -> str:
    (one,) = found
    return one


def test_versions_are_those_of_the_project(package: type[Any], said: list[tuple[str, str, str]]) -> None:
    def declared(directive: str, pattern: str) -> str:
        return only([match[1] for name, what, _ in said if name == directive and (match := re.match(pattern, what))])

    assert declared("version", r"(.*)$") == only(re.findall(r"project\(cusz VERSION ([\d.]+)", CMAKE))
    assert declared("depends_on", r"cmake@([\d.]+):$") == only(re.findall(r"VERSION ([\d.]+)\)\n", CMAKE)[:1])
    (oldest,) = re.findall(r'foreach\(oldest "GNU (\d+)" "Clang (\d+)"\)', CMAKE)
    assert int(declared("conflicts", r"%gcc@:(\d+)$")) == int(oldest[0]) - 1
    assert int(declared("conflicts", r"%clang@:(\d+)$")) == int(oldest[1]) - 1
    adios2 = declared("depends_on", r"adios2@(.*)$")
    newest = only(re.findall(r"^ADIOS2_VERSION=(\d+\.\d+)", (ROOT / "scripts/common.sh").read_text(), re.MULTILINE))
    assert adios2 == f"{only(re.findall(r'find_package.ADIOS2 ([0-9.]+) ', CMAKE))}:{newest}"


def test_options_are_those_of_cmake(package: type[Any], said: list[tuple[str, str, str]]) -> None:
    own = [what for directive, what, _ in said if directive == "variant"]
    assert own == ["adios2", "hdf5", "zstd"]
    declared = set(re.findall(r"^(?:option|set)\((CUSZ_\w+)", CMAKE, re.MULTILINE))
    for on, arch in [((), ("none",)), ((*own, "cuda"), ("none",)), ((*own, "cuda"), ("80", "90"))]:
        args = package(*on, cuda_arch=arch).cmake_args()
        given = dict(arg.removeprefix("-D").split("=") for arg in args)
        assert given.pop("CMAKE_INSTALL_LIBDIR") == "lib"
        assert given.keys() <= declared
        architectures = given.pop("CUSZ_CUDA_ARCHITECTURES", None)
        assert architectures == (None if "none" in arch else "80;90")
        assert sorted(given.values()) == (["ON"] * 4 if on else ["OFF"] * 4)
    for directive, what, when in said:
        conditions = re.findall(r"[+~](\w+)", f"{when} {what}")
        assert set(conditions) <= {*own, "cuda"}, (directive, what, when)


def test_folders_that_it_names_have_the_plugins(package: type[Any], tmp_path: Path) -> None:
    install = ["cmake", "--install", str(ROOT / "build/release"), "--prefix", str(tmp_path)]
    subprocess.run(install, check=True, capture_output=True)
    found: dict[str, str] = {}
    package("adios2", "hdf5", prefix=tmp_path).setup_run_environment(SimpleNamespace(prepend_path=found.__setitem__))
    assert (Path(found.pop("ADIOS2_PLUGIN_PATH")) / "libcusz_operator.so").is_file()
    assert [path.name for path in Path(found.pop("HDF5_PLUGIN_PATH")).iterdir()] == ["libcusz_hdf5.so"]
    assert not found
    package(prefix=tmp_path).setup_run_environment(SimpleNamespace(prepend_path=found.__setitem__))
    assert not found


def test_it_builds_the_checkout_that_it_lies_in_and_its_test_is_there(package: type[Any]) -> None:
    assert package.git == f"file://{ROOT.resolve()}"
    (example,) = re.findall(r'cache_extra_test_sources\(self, "(.*)"\)', RECIPE.read_text())
    assert (ROOT / example / "CMakeLists.txt").is_file()
    assert (REPOSITORY / "repo.yaml").read_text().split() == ["repo:", "namespace:", "cusz", "api:", "v2.0"]
