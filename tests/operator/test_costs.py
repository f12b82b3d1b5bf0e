"""Costs, counted in calls, that must not grow with the number of variables, steps or blocks."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_operator as cz
import support
from cusz_operator import names, plugin
from cusz_operator.reading import contents, datafiles, levels, walk
from cusz_operator.reading import input as adios2_side
from cusz_operator.writing import settings, writer

adios2 = pytest.importorskip("adios2")

X = support.smooth((8, 8, 8), support.F32)


def functions_called(work: Callable[[], Any]) -> int:
    """How many functions are called, and generators resumed."""
    calls = 0

    def see(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def written(path: Path, variables: int, steps: int = 1, **options: Any) -> Path:
    with cz.Writer(path, eb=1e-3, **options) as out:
        for number in range(variables):
            out.attribute(f"v{number:03}/units", "K")
        for _ in range(steps):
            with out.step():
                for number in range(variables):
                    out.put(f"v{number:03}", X)
    return path


def test_every_variable_of_a_step_is_laid_out_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = written(tmp_path / "run.bp", 20)
    calls = support.calls_of(monkeypatch, datafiles.StepLayout, "add")
    with cz.Reader(path) as run:
        for name in run[0].variables:
            run[0].read(name, level=1)
    assert len(calls) <= 20


def test_a_small_box_needs_no_block_tables_of_other_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = written(tmp_path / "run.bp", 20)
    calls = support.calls_of(monkeypatch, contents.Contents, "_found")
    with cz.Reader(path) as run:
        assert not support.violations(X[:1, :1, :1], run[0].read("v019", (0, 0, 0), (1, 1, 1)), 1e-3)
    assert len(calls) == 1
    monkeypatch.setattr(contents, "_BYTES_PER_TABLE", X.nbytes)
    with cz.Reader(path, cache_bytes=0) as run:
        for _ in range(25):  # until reading the tables would have paid
            assert not support.violations(X, run[0].read("v019"), 1e-3)
    assert len(calls) == 1 + 20


def test_many_small_blocks_are_not_fetched_one_by_one_from_adios2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "run.bp"
    with cz.Writer(path, eb=1e-3) as out, out.step():
        for number in range(10):
            for start in range(0, 800, 8):
                out.put(f"v{number}", X, (800, 8, 8), (start, 0, 0))
    calls = support.calls_of(monkeypatch, contents.Contents, "_captured")
    with cz.Reader(path) as run:
        assert not support.violations(np.tile(X, (100, 1, 1)), run[0].read("v9"), 1e-3)
        assert len(calls) == 0
    with cz.Reader(path) as run:
        for start in range(0, 800, 8):
            run[0].read("v9", (start, 0, 0), X.shape)
    assert 0 < len(calls) <= 50  # until reading the tables has paid


def test_a_block_is_read_from_its_data_file_without_adios2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = written(tmp_path / "run.bp", 1)
    with cz.Reader(path, cache_bytes=0) as run:
        run[0].read("v000")
        calls = support.calls_of(monkeypatch, type(run._input._io), "inquire_variable")
        for _ in range(10):
            run[0].read("v000")
    assert len(calls) == 0


def test_copies_of_the_plugin_are_looked_for_once_for_a_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    io = adios2.Adios().declare_io("plain")
    variable = io.define_variable("x", X, list(X.shape), [0, 0, 0], list(X.shape))
    with contextlib.closing(io.open(str(tmp_path / "run.bp"), adios2.Mode.Write)) as engine:
        for _ in range(20):
            engine.begin_step()
            engine.put(variable, X, adios2.Mode.Sync)
            engine.end_step()
    with cz.Reader(tmp_path / "run.bp") as run:
        calls = support.calls_of(monkeypatch, plugin, "_loaded_copies")
        for step in run:
            assert support.same_bits(step.read("x"), X)
    assert len(calls) == 1


def test_wanted_steps_are_not_compared_with_each_other(tmp_path: Path) -> None:
    class Wanted(set):
        times = 0

        def __iter__(self) -> Iterator[int]:
            Wanted.times += 1
            return super().__iter__()

    path = str(written(tmp_path / "run.bp", 1, steps=10))
    steps = [step.number for step in walk.walk(adios2, path, path, Wanted(range(1, 9)), {})]
    assert steps == list(range(1, 9))
    assert Wanted.times == 1


def test_a_read_does_not_look_at_the_names_of_all_variables(tmp_path: Path) -> None:
    work = []
    for n in (100, 200):
        path = written(tmp_path / f"{n}.bp", n)
        with cz.Reader(path) as run:
            last = list(run.variables)[-1]
            work.append(functions_called(functools.partial(run[0].read, last)))
    assert work[1] < work[0] + 50


def test_the_attributes_of_a_variable_alone_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = written(tmp_path / "run.bp", 20)
    with cz.Reader(path) as run:
        single = support.calls_of(monkeypatch, type(run._input._io), "inquire_attribute")
        of_all = support.calls_of(monkeypatch, type(run._input._io), "available_attributes")
        for name in run.variables:
            assert run[name].attributes == {"units": "K"}
    assert len(single) < 3 * 20
    assert len(of_all) == 1  # which looks at all of them


def test_the_shapes_of_bp4_are_asked_for_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = written(tmp_path / "run.bp", 1, steps=30, engine="BP4")
    with cz.Reader(path) as run:
        calls = support.calls_of(monkeypatch, adios2.Variable, "shape")
        for step in run:
            step.read("v000")
    assert len(calls) < 5 * 30


def test_a_box_of_a_level_looks_at_the_blocks_around_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x = support.smooth((32, 32, 32), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out, out.step():
        for start in np.ndindex(4, 4, 4):
            z, y, a = (8 * s for s in start)
            out.put("x", x[z : z + 8, y : y + 8, a : a + 8].copy(), x.shape, (z, y, a))
    with cz.Reader(tmp_path / "run.bp") as run:
        whole = run[0].read("x", level=1)
        calls = support.calls_of(monkeypatch, levels.VariableLevel, "box_within")
        assert run[0].read("x", (5, 6, 7), (1, 1, 1), level=1) == whole[5, 6, 7]
        assert len(calls) == 1
        for low, n in (((3, 0, 9), (2, 16, 5)), ((0, 0, 0), (16, 0, 16)), ((15, 15, 3), (1, 1, 1))):
            box = tuple(slice(s, s + c) for s, c in zip(low, n, strict=True))
            assert support.same_bits(run[0].read("x", low, n, level=1), np.ascontiguousarray(whole[box]))


def test_blocks_that_are_put_alike_are_prepared_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Even if the shape is an equal tuple, not the same object; and patterns are searched once per name."""
    prepared = support.calls_of(monkeypatch, writer, "prepare")
    decided = support.calls_of(monkeypatch, settings, "deciding")
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, variables={"x*": {"bins": 256}}) as out:
        for _ in range(3):
            with out.step():
                for number in range(10):
                    out.put("x", X, (80, *X.shape[1:]), (8 * number, 0, 0))
    assert len(prepared) == 3
    assert len(decided) <= 2  # once more on closing


@pytest.mark.parametrize("engine", ["BP4", "BP5"])
def test_blocks_after_one_that_adios2_cannot_read(engine: Any, tmp_path: Path) -> None:
    """BP4 tries to read that one again at every later request."""
    path = written(tmp_path / "run.bp", 2, steps=2, engine=engine)
    support.damage(path / "data.0", 0, ord("5") ^ 1, within=b"5\1\0\0")  # ADIOS2's code for an operator
    with cz.Reader(path) as run:
        read = []
        for step in run:
            for name in ("v000", "v001"):
                try:
                    assert not support.violations(X, step.read(name), 1e-3)
                    read.append(True)
                except cz.PluginError:
                    raise
                except Exception:
                    read.append(False)
    assert read == [False, True, True, True]


class OfTwo:
    rank, size = 0, 2


def test_shares_are_found_once_for_all_variables_of_a_shape(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = written(tmp_path / "run.bp", 100)  # more than tables are kept of
    with cz.Reader(path, OfTwo()) as run:
        calls = support.calls_of(monkeypatch, contents.Contents, "_found")
        shares = {run[0].share(name) for name in run.variables}
    assert len(shares) == 1
    assert len(calls) <= 2 * 100


def test_shares_of_variables_of_different_shapes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = support.calls_of(monkeypatch, adios2_side.Input, "shape")
    asked = []
    for most in (20, 40):
        path = tmp_path / f"{most}.bp"
        with cz.Writer(path, eb=1e-3) as out, out.step():
            for n in range(1, most + 1):
                out.put(f"v{n}", np.ones((n, 4), np.float32))
        with cz.Reader(path, OfTwo()) as run:
            before = len(calls)
            for n in range(1, most + 1):
                run[0].share(f"v{n}")
            asked.append(len(calls) - before)
    assert asked[1] <= 2 * asked[0]


class Name(str):
    """A name that counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("options", [{"eb": 1e-3}, {"psnr": 40.0}, {"ratio": 2.0}, {"variables": {}}], ids=list)
def test_names_of_a_step_are_not_compared_with_each_other(options: dict[str, Any], tmp_path: Path) -> None:
    compared = []
    for n in (20, 40):
        if "variables" in options:
            options = {"variables": {Name(f"v{i}"): {"eb": 1e-2} for i in range(n)}}
        Name.compared = 0
        with cz.Writer(tmp_path / "run.bp", **options) as out, out.step():
            for i in range(n):
                out.put(Name(f"v{i}"), X[:4, :4, :4].copy())
        compared.append(Name.compared)
    assert compared[1] <= 3 * compared[0]  # some have equal hashes


def test_what_is_for_other_variables_is_not_matched_with_every_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    matched = [support.calls_of(monkeypatch, where, "fits") for where in (names, settings)]
    out = cz.Writer(tmp_path / "run.bp", eb=1e-3, variables={f"other{i}": {"eb": 1e-2} for i in range(10)})
    with out.step():
        for i in range(10):
            out.put(f"v{i}", X[:4, :4, :4].copy())
    with pytest.warns(UserWarning, match="no array of such a name"):
        out.close()
    assert matched == [[], []]
