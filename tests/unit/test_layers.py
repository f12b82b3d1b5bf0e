"""Which package may import which: apps and scripts the operator, and all of them the core's public names."""

from __future__ import annotations

import ast
import importlib
import shutil
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import cusz_core
import support

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "cusz_core": ROOT / "cusz_core/python/cusz_core",
    "cusz_operator": ROOT / "operator/python/cusz_operator",
    "comparison": ROOT / "scripts/bench/comparison",
}
#: What cusz_core/embedding.py says.
PUBLIC = (
    *("cusz_core", "cusz_core.command_line", "cusz_core.embedding", "cusz_core.errors", "cusz_core.parameters"),
    *("cusz_core.hdf5", "cusz_core.numcodecs", "cusz_core.tuning", "cusz_core.zarr"),
)
#: The rooms of cusz_operator, and which other rooms each may import. Modules outside rooms stand above all rooms.
ROOMS = {
    "tables": set[str](),
    "reading": {"tables"},
    "writing": {"tables", "reading"},
    "inspecting": {"tables", "reading"},
    "configuring": {"tables", "reading", "inspecting"},
}
SHARED = {"adios2_calls", "errors", "forks", "names", "parameters", "plugin", "ranks", "streams"}
ABOVE_THE_CORE = ("adios2", "comparison", "cusz_operator", "mpi4py")


def is_python(path: Path) -> bool:
    if path.suffix:
        return path.suffix in (".py", ".pyi")
    return path.is_file() and path.read_text().partition("\n")[0].startswith("#!/usr/bin/env python")


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if is_python(path) and "__pycache__" not in path.parts)


def module_of(path: Path) -> tuple[str, bool]:
    """A module's name, and whether it is a package."""
    for name, folder in PACKAGES.items():
        if path.is_relative_to(folder):
            parts = [name, *path.relative_to(folder).with_suffix("").parts]
            return (".".join(parts[:-1]), True) if parts[-1] == "__init__" else (".".join(parts), False)
    return path.stem, False


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Every import of a file, also within functions, as (module, imported name or "")."""
    module, is_package = module_of(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*parent, *filter(None, [node.module])])
            yield from ((base, alias.name) for alias in node.names)


def used_of_core(path: Path) -> Iterator[tuple[str, str]]:
    """What a file uses of the core: what it imports, and attributes of the package, as (module, name)."""
    yield from ((m, name) for m, name in imports(path) if m.partition(".")[0] == "cusz_core")
    tree = ast.parse(path.read_text())
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "cusz_core"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield "cusz_core", node.attr


def is_public(module: str, name: str) -> bool:
    if module not in PUBLIC:
        return False
    whole = f"{module}.{name}"
    return not name or whole in PUBLIC or name.startswith("__") or name in importlib.import_module(module).__all__


@pytest.mark.parametrize("folder", ["operator", "apps", "scripts"])
def test_public_names_of_the_core_alone_are_used(folder: str) -> None:
    used = {path: set(used_of_core(path)) for path in sources(ROOT / folder)}
    assert any(used.values())
    private = {str(path): found for path in used if (found := {use for use in used[path] if not is_public(*use)})}
    assert private == {}


def test_the_core_knows_nobody_above_it() -> None:
    known = {
        (str(path), module)
        for path in sources(PACKAGES["cusz_core"])
        for module, _ in imports(path)
        if module.partition(".")[0] in ABOVE_THE_CORE
    }
    assert known == set()
    files = [path for path in (ROOT / "cusz_core").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert [str(path) for path in files if "adios" in path.read_text().lower()] == []


def imports_within(package: str) -> dict[str, set[str]]:
    """Which modules of the package each of its modules imports."""
    paths = {module_of(path)[0]: path for path in sources(PACKAGES[package])}
    return {
        module: {whole if (whole := f"{base}.{name}") in paths else base for base, name in imports(path)} & paths.keys()
        for module, path in paths.items()
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_import_each_other(package: str) -> None:
    graph = imports_within(package)
    assert sum(map(len, graph.values())) > len(graph)
    while leaves := {module for module, needed in graph.items() if not needed & graph.keys()}:
        graph = {module: needed for module, needed in graph.items() if module not in leaves}
    assert graph == {}, "these modules are in a circle, or import one that is"


def test_rooms_import_each_other_in_one_direction() -> None:
    TopologicalSorter(ROOMS).prepare()  # fails if there is a cycle
    assert {path.parent.name for path in PACKAGES["cusz_operator"].glob("*/__init__.py")} == ROOMS.keys()
    allowed = dict.fromkeys(SHARED, SHARED) | {room: {room, *below, *SHARED} for room, below in ROOMS.items()}
    for module, needed in imports_within("cusz_operator").items():
        room, *rooms = ("".join(name.split(".")[1:2]) for name in (module, *needed))
        assert set(rooms) <= allowed.get(room, set(rooms)), module


def test_what_is_public_is_there() -> None:
    for module in PUBLIC:
        for name in importlib.import_module(module).__all__:
            assert getattr(importlib.import_module(module), name) is not None


def test_errors_of_other_packages_are_found_where_they_were() -> None:
    cusz_operator = importlib.import_module("cusz_operator")
    assert cusz_core.PluginError is cusz_core.errors.PluginError is cusz_operator.PluginError  # type: ignore[attr-defined]
    assert issubclass(cusz_operator.PluginError, (cusz_core.CuszError, RuntimeError))
    for module in (cusz_core, cusz_core.errors):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'Absent'"):
            _ = module.Absent


@pytest.mark.skipif(shutil.which("nm") is None, reason="binutils is not there")
@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_code_for_newer_processors_stays_by_itself(name: str) -> None:
    """The linker keeps one of a function's several definitions: it must not be one that older processors cannot run."""
    objects = list((ROOT / "build/release").rglob(f"kernels_{name}.cpp.o"))
    if not objects:
        pytest.skip("this was not built by scripts/setup, or not for x86")
    for path in objects:
        symbols = support.run(["nm", "-C", path]).stdout.splitlines()
        own = (f"{name}::", f"N4cusz3cpu{len(name)}{name}")  # the latter where nm cannot tell what a name means
        shared = [line for line in symbols if line[16:19] == " W " and not any(part in line for part in own)]
        assert any(f" t cusz::cpu::{name}::" in line or f" W cusz::cpu::{name}::" in line for line in symbols)
        assert shared == []
