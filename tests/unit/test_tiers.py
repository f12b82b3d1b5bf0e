"""Which tests run when: the table of parts, slices, and what is quick (tests/tiers.py, scripts/run_tests.py)."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import support
import tiers

ROOT = Path(__file__).resolve().parents[2]
PARTS = tiers.read_table()


def test_every_file_of_tests_belongs_to_one_part() -> None:
    for file in (ROOT / "tests").rglob("test_*.py"):
        assert tiers.part_of(file.relative_to(ROOT).as_posix(), PARTS.values()) in PARTS


def test_the_table_names_what_there_is() -> None:
    for part in PARTS.values():
        for path in (*part.paths, *part.tests, *part.together):
            assert (ROOT / path.removeprefix("!")).exists(), path
    commands = [name for part in PARTS.values() for name in part.commands]
    assert len(set(commands)) == len(commands)


def test_every_kernel_concerns_the_tests_of_kernels() -> None:
    """That includes the kernels of a new codec."""
    kernels = [path for pattern in ("*.cu", "*.cuh") for path in (ROOT / "cusz_core" / "src").rglob(pattern)]
    assert kernels
    for file in kernels:
        path = file.relative_to(ROOT).as_posix()
        assert tiers.touched([path], PARTS) == ["cuda"], path


def test_a_file_that_no_part_has_is_an_error() -> None:
    with pytest.raises(ValueError, match="belongs to no part"):
        tiers.part_of("elsewhere/test_new.py", PARTS.values())


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("cusz_core/src/codec/lorenzo/cuda/writing.cu", ["cuda"]),
        ("cusz_core/src/codec/spline/cpu/engine.cpp", ["core"]),
        ("cusz_core/src/archive/v1.hpp", ["core", "cuda"]),
        ("operator/plugin/plugin.cpp", ["plugin"]),
        ("operator/python/cusz_operator/inspecting/view.py", ["inspecting"]),
        ("operator/python/cusz_operator/reading/steps.py", ["inspecting", "layer"]),
        ("operator/python/cusz_operator/reading/input.py", ["inspecting", "layer", "writing", "nodes"]),
        ("tests/operator/test_hosts.py", ["plugin", "layer"]),
        ("pyproject.toml", ["package"]),
        ("docs/guides/python.md", []),
    ],
)
def test_what_a_change_touches(path: str, wanted: list[str]) -> None:
    assert tiers.touched([path, "README.md"], PARTS) == wanted


def test_slices_have_everything_once_and_are_even() -> None:
    names = [f"tests/contract/test_x.py::test_y[{i}]" for i in range(8000)]
    numbers = [tiers.slice_of_test(name, PARTS) for name in names]
    assert set(numbers) == set(range(tiers.SLICES))
    assert all(800 < numbers.count(number) < 1200 for number in range(tiers.SLICES))
    commands = [name for part in PARTS.values() for name in part.commands]
    of_commands = [tiers.slice_of_command(name, PARTS) for name in commands]
    assert max(map(of_commands.count, of_commands)) <= -(-len(commands) // tiers.SLICES)


def test_what_shares_something_expensive_is_in_one_slice() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "ptx").glob("test_*.py")]
    assert len({tiers.slice_of_test(f"{file}::test_{i}", PARTS) for file in files for i in range(20)}) == 1


def test_what_takes_longest_takes_turns() -> None:
    core, cuda = PARTS["core"], PARTS["cuda"]
    of_core = ["address sanitizer", "fuzzing", "thread sanitizer", "gcc 11"]
    of_cuda = ["nvcc", "mutants", "tests/ptx"]
    for number in range(tiers.SLICES):
        assert [name for name in of_core if core.has_turn(number, name)] == [of_core[number % 4]]
        assert [name for name in of_cuda if cuda.has_turn(number, name)] == [of_cuda[number % 3]]
        assert cuda.runs(number, "tests/ptx/test_ptx_machine.py") == (number % 3 == 2)
        assert cuda.runs(number, "tests/simt/test_engine.py")
        assert tiers.commands_of(number, [], PARTS).keys() == {
            name for part in PARTS.values() for name in part.commands if tiers.slice_of_command(name, PARTS) == number
        }
        touched = tiers.commands_of(number, ["core"], PARTS).keys()
        assert touched == {of_core[number % 4]} | tiers.commands_of(number, [], PARTS).keys()


@given(st.lists(st.frozensets(st.integers(0, 30), max_size=8), max_size=30))
def test_a_cover_has_every_element_and_no_needless_set(sets: list[frozenset[int]]) -> None:
    chosen = tiers.cover(sets)
    everything = frozenset[int]().union(*sets)
    assert frozenset[int]().union(*(sets[i] for i in chosen)) == everything
    left = set(everything)
    for i in chosen:  # greedy: each adds the most
        assert len(sets[i] & left) == max(len(own & left) for own in sets) > 0
        left -= sets[i]


def test_the_quick_cases_have_every_value() -> None:
    cases = [{"a": a, "b": b, "c": c} for a, b, c in itertools.product([1, True, 1.0], ["x", "y"], [[0], [0]])]
    chosen = tiers.covering(cases)
    assert len(chosen) == 3
    for name in "abc":
        assert {id(cases[i][name]) for i in chosen} == {id(case[name]) for case in cases}


def test_every_pair_meets() -> None:
    axes = (range(5), "abc", [None, 1], range(4))
    few = support.pairwise(*axes)
    assert len(few) < 30
    for (i, a), (j, b) in itertools.combinations(enumerate(axes), 2):
        assert {(case[i], case[j]) for case in few} == set(itertools.product(a, b))


PROJECT = """
import pytest
import support

@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", range(4))
def test_covered(a, b): pass

@support.pairs("a, b, c", range(2), range(2), range(2))
def test_pairs(a, b, c): pass

@pytest.mark.quick(1)
@pytest.mark.parametrize("a", range(5))
def test_one(a): pass

@pytest.mark.quick(1, rest="long")
@pytest.mark.parametrize("a", range(3))
def test_first(a): pass

@pytest.mark.quick("all")
@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", range(4))
def test_whole(a, b): pass

@pytest.mark.full
def test_long(): pass

@pytest.mark.long
def test_longest(): pass

def test_short(): pass

def test_skipped(): pytest.skip("something new")
"""


@pytest.fixture
def run_project(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs pytest in a small project, with these options and environment variables."""
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_it.py").write_text(PROJECT, encoding="utf-8")
    for name in ("conftest.py", "support.py", "tiers.py", "parts.toml", "allowed_skips.txt"):
        (tmp_path / "tests" / name).symlink_to(ROOT / "tests" / name)
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")

    def run(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        environment = {**{k: v for k, v in os.environ.items() if k != "CI"}, **variables}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def names_of(run_project: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., list[str]]:
    """The tests of that project that run with these options."""

    def names(*options: str) -> list[str]:
        done = run_project("--collect-only", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]

    return names


def test_a_new_reason_to_skip_fails_in_ci(run_project) -> None:
    assert run_project().returncode == 0
    for workers in ("0", "2"):
        done = run_project("-n", workers, CI="true")
        assert done.returncode == 1
        assert "no test may be skipped for this reason in CI (allowed_skips.txt): something new" in done.stdout
        assert "     1 skipped: something new\n" in done.stdout


def test_tiers_of_a_project(names_of) -> None:
    quick = names_of()
    names = ("covered", "pairs", "one", "first", "whole", "short", "skipped")
    assert {name.partition("[")[0] for name in quick} == {f"test_{name}" for name in names}
    assert sum(name.startswith("test_covered") for name in quick) == 4
    assert sum(name.startswith(("test_one", "test_first")) for name in quick) == 2
    assert sum(name.startswith("test_whole") for name in quick) == 12
    everything = names_of("--all")
    assert len(everything) == 12 + 4 + 5 + 3 + 12 + 1 + 1 + 1 + 1
    of_part = names_of("--parts", "core")
    assert len(of_part) == len(everything) - 3  # all but the long ones
    assert names_of("--parts", "nodes") == quick
    assert names_of("tests/unit/test_it.py::test_long") == ["test_long"]


@pytest.mark.full
def test_slices_of_a_project(names_of) -> None:
    quick, everything = set(names_of()), set(names_of("--all"))
    number_of = {name: tiers.slice_of_test(f"tests/unit/test_it.py::{name}", PARTS) for name in everything}
    number = number_of["test_long"]
    wanted = quick | {name for name in everything if number_of[name] == number}
    assert set(names_of("--slice", str(number))) == wanted
    of_part = set(names_of("--parts", "core"))
    assert set(names_of("--parts", "core", "--slice", str(number))) == wanted | of_part
    half = {name for name in of_part if number_of[name] % 2 == number % 2}
    assert set(names_of("--parts", "core", "--half", "--slice", str(number))) == wanted | half < wanted | of_part
