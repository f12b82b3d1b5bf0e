"""Whichever ADIOS2 call fails, users get an error of this package, and the first one (adios2_calls.py)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator as cz
import support
from cusz_operator.configuring import sampling
from cusz_operator.inspecting import blocks as inspection
from cusz_operator.reading import input as reader_input
from cusz_operator.tables import statistics
from cusz_operator.writing import output, writer

pytest.importorskip("adios2")
import adios2
from other_program import Program

MESSAGE = "\x1b[1;36m[Thu Nov 26]\x1b[0m it fails"


class Calls:
    """Counts ADIOS2 calls, and makes one of them fail.

    Attributes:
        made: names of the calls so far.
        failing: the number of the call that fails; None: none does.
    """

    def __init__(self) -> None:
        self.made: list[str] = []
        self.failing: int | None = None

    def restart(self, failing: int | None) -> None:
        self.made, self.failing = [], failing

    def call(self, name: str, work: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self.made.append(name)
        if self.failing == len(self.made) - 1:
            raise (RuntimeError, ValueError, IndexError)[self.failing % 3](MESSAGE)
        plain = [a._own if isinstance(a, Spied) else a for a in arguments]
        return self.spied(work(*plain, **named))

    def spied(self, value: Any) -> Any:
        is_object = type(value).__name__ in ("Adios", "IO", "Engine", "Variable", "Attribute", "FileReader")
        return Spied(self, value) if is_object else value


class Spied:
    """Wraps an ADIOS2 object, or the module, to count its calls."""

    def __init__(self, calls: Calls, own: Any) -> None:
        self._calls, self._own = calls, own

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._own, name)
        if name in ("Adios", "FileReader") or (callable(value) and not isinstance(value, type)):
            return lambda *arguments, **named: self._calls.call(name, value, arguments, named)
        return self._calls.spied(value)

    def __enter__(self) -> Spied:
        self._own.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._own.__exit__(*error)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    found = Calls()
    statistics.problem()  # makes its trial now, because that runs once per process
    for module in (reader_input, inspection, writer):
        monkeypatch.setattr(module, "import_adios2", lambda: Spied(found, adios2))
    monkeypatch.setattr(output, "keep_for_ever", lambda adios: None)  # ADIOS2 has not really failed: destructors work
    return found


def write(path: Path, engine: Any, *, append: bool = False) -> None:
    x = support.smooth((40, 50), support.F32)
    with cz.Writer(path, engine=engine, eb=1e-3, append=append, progress=False) as out:
        out.attribute("title", "t")
        for step in range(2):
            with out.step():
                out.put("T", x, dims=("y", "x"))
                out.put("time", 0.5)
                out.put("name", "text")
                if step == 1:
                    out.put("late", np.arange(20, dtype=np.int16))


def other(path: Path, engine: str) -> None:
    """Writes a file as another program would: without block tables, and with a variable in only one step."""
    x = support.smooth((40, 50), support.F32)
    with Program(path, engine) as out:
        out.io.define_attribute("title", "t")
        for step in range(2):
            with out.step():
                for name in ("T", "late")[: 1 + step]:
                    out.put(name, x)
                out.put("local", x, ())


def error_of(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:
        return error
    return None


def require_own(error: Exception | None, call: str) -> None:
    assert error is None or isinstance(error, cusz_core.CuszError), f"{call}: {error!r}"
    assert "\x1b" not in str(error), call


def beside(error: BaseException) -> str:
    """The notes and the context of an error."""
    return "; ".join([*getattr(error, "__notes__", ()), str(error.__context__)])


def read_all(path: Path) -> None:
    with cz.Reader(path) as run:
        assert repr(run)
        assert run.attributes
        for step in run:
            for name in step.variables:
                step.read(name, **({"block": 0} if name == "local" else {}))
                if name in ("T", "late"):
                    step.blocks(name)
                    step.value_range(name)
                    step.verify(name)


def inspect_all(path: Path) -> None:
    assert len(list(cz.inspect_bp(path, variables=["T"], check=True))) == 2
    assert list(cz.inspect_bp(path))


def sample_all(path: Path) -> None:
    assert list(sampling.sampled_variables(path))


@pytest.mark.parametrize("make", [write, other])
@pytest.mark.parametrize("use", [read_all, inspect_all, sample_all])
def test_every_call_that_reads(
    use: Callable[[Path], None], make: Callable[[Path, str], None], engine: str, calls: Calls, tmp_path: Path
) -> None:
    path = tmp_path / "run.bp"
    make(path, engine)
    calls.restart(None)
    use(path)
    names = list(calls.made)
    assert len(names) > 10
    errors = []
    for failing, name in enumerate(names):
        calls.restart(failing)
        errors.append(error_of(lambda: use(path)))
        require_own(errors[-1], f"{name}, call {failing}")
    assert any(errors)


@pytest.mark.parametrize("append", [False, True])
def test_every_call_that_writes(append: bool, engine: str, calls: Calls, tmp_path: Path) -> None:
    original = tmp_path / "original.bp"
    write(original, engine)

    def use() -> None:
        path = tmp_path / "run.bp"
        shutil.rmtree(path, ignore_errors=True)
        if append:
            shutil.copytree(original, path)
        write(path, engine, append=append)

    calls.restart(None)
    use()
    for failing, name in enumerate(list(calls.made)):
        calls.restart(failing)
        require_own(error_of(use), f"{name}, call {failing}")


@pytest.fixture
def gone(tmp_path: Path) -> Iterator[cz.Reader]:
    """A Reader whose file has been removed."""
    path = tmp_path / "run.bp"
    write(path, "BP5")
    run = cz.Reader(path)
    shutil.rmtree(path)
    yield run
    run.close()


def test_checksums_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    support.write_run(path, {"T": np.ones(5)}, eb=1e-3)
    (path / "cusz.checks").unlink()
    (path / "cusz.checks").mkdir()
    for read in (
        lambda: cz.Reader(path),
        lambda: list(cz.inspect_bp(path)),
        lambda: cz.Writer(path, eb=1, append=True),
    ):
        with pytest.raises(cusz_core.CuszError, match=r"cannot (read|write) .*run.bp.* directory"):
            read()


def test_closing_a_reader_whose_file_is_gone(gone: cz.Reader) -> None:
    with pytest.raises(cusz_core.CuszError, match="ADIOS2 cannot read 'late'"):
        gone[1].read("late")
    with pytest.raises(cusz_core.CuszError, match=r"^ADIOS2 cannot close '.*run\.bp': \[[^\x1b]*$"):
        gone.close()


def test_an_error_of_closing_does_not_hide_the_first_one(gone: cz.Reader) -> None:
    with pytest.raises(cusz_core.CuszError, match="ADIOS2 cannot read 'late'") as caught, gone:
        gone[1].read("late")
    assert "ADIOS2 cannot close" in beside(caught.value)


def test_nor_does_one_of_closing_a_writer(calls: Calls, tmp_path: Path) -> None:
    def fail() -> None:
        with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
            with out.step():
                out.put("T", support.smooth((40, 50), support.F32))
            calls.failing = len(calls.made)
            raise KeyError("own")

    error = error_of(fail)
    assert isinstance(error, KeyError)
    assert "ADIOS2 failed: [Thu Nov 26] it fails" in beside(error)


@pytest.mark.parametrize("read", [inspection.inspect_bp, sampling.sampled_variables])
def test_nor_does_one_of_closing_what_is_listed(
    read: Callable[[Path], Iterator[Any]], calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.bp"
    write(path, "BP5")
    calls.restart(None)
    list(read(path))
    last = len(calls.made) - 1
    assert calls.made[last] == "close"

    def listed(*_: object, **__: object) -> Any:
        calls.failing = len(calls.made)
        raise KeyError("own")

    monkeypatch.setattr(inspection.Part, "blocks", listed)
    monkeypatch.setattr(sampling._Run, "sampled", listed)
    calls.restart(None)
    with pytest.raises(KeyError, match="own"):
        list(read(path))


def test_an_adios2_with_another_mpi_than_mpi4py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would crash. A library in which MPI is not initialized stands in for its Python module."""
    mpi = pytest.importorskip("mpi4py.MPI")
    source, library = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text("int MPI_Initialized(int* flag) { *flag = 0; return 0; }\n", encoding="utf-8")
    support.run(["cc", "-shared", "-fPIC", source, "-o", library])
    monkeypatch.setattr(adios2, "is_built_with_mpi", True)
    monkeypatch.setattr(adios2.bindings.adios2_bindings, "__file__", str(library))
    said = r"mpi4py uses .*, and this adios2 another MPI: build mpi4py"
    with pytest.raises(cusz_core.UnsupportedError, match=said):
        cz.Writer(tmp_path / "run.bp", mpi.COMM_SELF, eb=1e-3)
    with pytest.raises(cusz_core.UnsupportedError, match=said):
        cz.Reader(tmp_path / "stream", mpi.COMM_SELF, engine="SST", parameters={"OpenTimeoutSecs": 1})


def test_without_a_home(python: Callable, tmp_path: Path) -> None:
    """In a service, or a job with an environment of its own: ADIOS2 takes HOME for granted, and crashes."""
    python(
        "import sys, cusz_operator as cz\n"
        "with cz.Writer(sys.argv[1], eb=0) as out, out.step():\n"
        "    out.put('u', __import__('numpy').arange(100.0))\n"
        "assert cz.Reader(sys.argv[1])[0].read('u')[-1] == 99\n",
        tmp_path / "run.bp",
        env={"HOME": None},
    )
