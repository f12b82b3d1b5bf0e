"""Writer(overlap=True): a step is compressed while the program goes on, and written when the next one ends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import logs

import cusz_core
import cusz_operator as cz
import support
from cusz_operator.writing import background, output
from fakes import fake_cupy

adios2 = pytest.importorskip("adios2")
X = support.smooth((20, 30), support.F32)


@pytest.fixture(autouse=True)
def funneled(monkeypatch: pytest.MonkeyPatch) -> None:
    """MPI_THREAD_FUNNELED, for ranks."""
    monkeypatch.setenv("MPI4PY_RC_THREAD_LEVEL", "funneled")


def kept(path: Path) -> tuple[list[dict[str, Any]], list[bytes], list[tuple[str, int, Any]]]:
    """The contents of a file: everything known about each block except times; the archive of each block; and the values
    of each step."""
    blocks = [dict(block) for block in cz.inspect_bp(path) if not cz.tables.blocktable.is_table(block["variable"])]
    archives = []
    with cz.Reader(path) as run:
        for block in blocks:
            block.pop("seconds", None)
            if block["operator"] == "cusz" and block["type"] in ("float", "double") and block["raw_bytes"]:
                dtype = np.dtype(np.float32 if block["type"] == "float" else np.float64)
                archive = run._contents.archive(block["variable"], block["step"], block["block"], dtype)
                assert archive is not None
                archives.append(archive.tobytes())
        of_steps = [(name, step.index, np.asarray(step.read(name))) for step in run for name in step.variables]
    return blocks, archives, [(name, index, values.tobytes()) for name, index, values in of_steps]


# ------------------------------------------------------------------------------------------- what is in the file


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "engine", "options"),
    [(1, "BP5", ()), (2, "BP5", ()), (4, "BP5", ()), (2, "BP4", ()), (2, "BP5", ("asynchronous",))],
    ids=str,
)
def test_the_file_is_the_same(
    ranks: int, engine: str, options: tuple[str, ...], mpirun: Callable, tmp_path: Path
) -> None:
    """Archive by archive, in the same order, although arrays change as soon as their step has ended."""
    for name, given in (("plain", ()), ("overlap", ("overlap", *options))):
        mpirun(ranks, "layer_overlap.py", "write", tmp_path / f"{name}.bp", engine, *given, timeout=100)
    plain, overlapped = kept(tmp_path / "plain.bp"), kept(tmp_path / "overlap.bp")
    for of_plain, of_overlapped in zip(plain, overlapped, strict=True):
        assert len(of_plain) > 60
        assert len(of_overlapped) == len(of_plain)
        for ours, theirs in zip(of_overlapped, of_plain, strict=True):
            assert repr(ours) == repr(theirs)  # some contain NaN


def test_nothing_is_written_before_the_next_step_ends(tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    with cz.Writer(path, eb=1e-3, overlap=True) as out:
        for i in range(3):
            with out.step():
                out.put("T", X + np.float32(i))
            if i > 0:
                assert len(cz.Reader(path)) == i
    with cz.Reader(path) as run:
        assert len(run) == 3
        for i, step in enumerate(run):
            assert not support.violations(X + np.float32(i), step.read("T"), 1e-3)


def test_steps_without_variables_and_none_at_all(tmp_path: Path) -> None:
    for n in (0, 1, 2):
        for overlap in (False, True):
            support.write_run(tmp_path / f"{n}{overlap}.bp", *[{}] * n, eb=1e-3, overlap=overlap)
        lengths = [len(cz.Reader(tmp_path / f"{n}{overlap}.bp")) for overlap in (False, True)]
        assert lengths == [n or 1] * 2, "(ADIOS2 closes a file without steps with an empty one)"


def test_a_bound_that_is_sought(tmp_path: Path) -> None:
    """Such a step is written before it ends, after those before it, because ranks must communicate for the search."""
    path = tmp_path / "run.bp"
    with cz.Writer(path, eb=1e-3, overlap=True) as out:
        for i, goal in enumerate([{}, {"ratio": 4.0}, {}]):
            with out.step():
                out.put("T", X + np.float32(i), **goal)
                out.put("S", X)
            assert len(cz.Reader(path)) == (0, 2, 2)[i]
    with cz.Reader(path) as run:
        assert len(run) == 3
        assert [step.blocks("T")["eb_abs"][0] == 1e-3 for step in run] == [True, False, True]
        for i, step in enumerate(run):
            assert not support.violations(X + np.float32(i), step.read("T"), step.blocks("T")["eb_abs"][0])


def test_progress(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, overlap=True, progress=True) as out:
        for i in range(2):
            with out.step():
                out.put("T", X)
            assert [each.steps for each in out.summary()] == [1] * i, "of what is written"
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines[:2]] == ["step 0", "step 1"]
    assert ": 2 steps written" in lines[2]


# ------------------------------------------------------------------------------------ who does what, and when


class Watched:
    """Records what happens, in order: copies of blocks, compression, writing; and where the copies are in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.events: list[str] = []
        self.threads: dict[str, set[int]] = {}
        self.memory: set[int] = set()
        self._compress, self._copy = cusz_core.compress_described, background.Background._copy
        self._write = output.Output.end_step
        monkeypatch.setattr(cusz_core, "compress_described", self.compress)
        monkeypatch.setattr(background.Background, "_copy", lambda own, *block: self.copy(own, *block))
        monkeypatch.setattr(output.Output, "end_step", lambda own: self.write(own))
        self._seconds = seconds

    def log(self, what: str) -> None:
        self.events.append(what)
        self.threads.setdefault(what, set()).add(threading.get_ident())

    def copy(self, own: Any, number: int, field: np.ndarray) -> np.ndarray:
        self.log("copy")
        made = self._copy(own, number, field)
        self.memory.add(made.ctypes.data)
        assert not np.shares_memory(made, field)
        return made

    def compress(self, field: np.ndarray, *arguments: Any, **options: Any) -> Any:
        self.log("compress")
        assert field.ctypes.data in self.memory
        time.sleep(self._seconds)
        made = self._compress(field, *arguments, **options)
        self.log("compressed")
        return made

    def write(self, own: Any) -> None:
        self.log("write")
        self._write(own)


def test_one_step_is_under_way_and_no_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The end of a step does not wait for its own compression, but for that of the step before. Hence there is one copy
    of a block, in the same memory for all steps."""
    slow = 0.3
    watched = Watched(monkeypatch, slow)
    waits = []
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, overlap=True) as out:
        for _ in range(4):
            with out.step():
                out.put("T", X)
                began = time.perf_counter()
            waits.append(time.perf_counter() - began)
    assert waits[0] < slow / 2
    assert min(waits[1:]) > slow / 2
    one = ["copy", "compress", "compressed", "write"]
    assert watched.events == one * 4
    assert len(watched.memory) == 1
    (main,) = watched.threads["write"]
    assert main == threading.get_ident()
    assert watched.threads["copy"] == {main}
    assert len(watched.threads["compress"] | {main}) == 2


def test_the_program_goes_on_meanwhile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Even Python code: compression does not hold the interpreter's lock."""
    x = support.smooth((200, 200, 200), support.F32)
    out = cz.Writer(tmp_path / "run.bp", eb=1e-3, overlap=True, threads=1)
    with out.step():
        out.put("T", x)
    assert out._pending is not None
    counted = 0
    while not out._pending.made.done():
        counted += 1
    out.close()
    assert counted > 1000


PEAK = """
import sys
import numpy as np
import cusz_operator as cz
path, overlap = sys.argv[1:]
n = 1 << 24
x = np.cumsum(np.random.default_rng(0).standard_normal(n, np.float32), dtype=np.float32)

def resident(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(key))

with cz.Writer(path, eb=10.0, threads=1, overlap=bool(int(overlap))) as out:
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # forget what making the field took
    for step in range(6):
        with out.step():
            out.put("T", x)
print(resident("VmHWM"))
"""


def test_memory_is_bounded(python: Callable, tmp_path: Path) -> None:
    """To one copy of the blocks of a step, 64 MiB here, for any number of steps."""
    peaks = [int(python(PEAK, tmp_path / f"{how}.bp", how).stdout) for how in "01"]
    copy = 4 << 24
    assert copy * 0.9 < peaks[1] - peaks[0] < copy * 1.25


def test_a_block_on_a_device_is_compressed_before_the_step_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cupy = fake_cupy.install(monkeypatch)
    fields = {"D": X.copy(), "H": X.copy()}
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, overlap=True) as out:
        with out.step():
            out.put("D", cupy.ndarray(fields["D"]))
            out.put("H", fields["H"])
        for field in fields.values():
            field[...] = -1
    with cz.Reader(tmp_path / "run.bp") as run:
        for name in fields:
            assert not support.violations(X, run[0].read(name), 1e-3)


@pytest.mark.parametrize("overlap", [False, True])
def test_the_stream_that_was_current_at_put_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, overlap: bool
) -> None:
    """Another stream is current when the step ends."""
    cupy = fake_cupy.install(monkeypatch)
    field, stream = np.zeros_like(X), cupy.cuda.Stream(7)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, overlap=overlap) as out, out.step():
        with stream:
            stream.queued.append(lambda: np.copyto(field, X))
            for half in (slice(0, 1), slice(1, None)):
                out.put("D", cupy.ndarray(field[half]), shape=X.shape, start=(half.start, *[0] * (X.ndim - 1)))
        assert not field.any(), "put does not wait"
    with cz.Reader(tmp_path / "run.bp") as run:
        assert not support.violations(X, run[0].read("D"), 1e-3)


#: Prints the library of MPI, which the library of `of_first_thread` calls. mpi4py alone would keep MPICH to itself.
LIBRARY_OF_MPI = """
import mpi4py.MPI
print(next(line.split()[-1] for line in open("/proc/self/maps") if "/libmpi" in line))
"""


@pytest.fixture(scope="module")
def of_first_thread(python: Callable, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which a process is aborted if any thread but its first one calls MPI."""
    source = Path(__file__).parent / "programs" / "thread.c"
    library = support.library_of(source, tmp_path_factory.mktemp("thread"))
    return {"LD_PRELOAD": f"{library}:{python(LIBRARY_OF_MPI).stdout.strip()}", "CALLS": "1"}


@pytest.mark.full
@pytest.mark.mpi
def test_mpi_is_called_by_the_thread_that_calls_the_writer(
    engine: str, of_first_thread: dict[str, str], mpirun: Callable, require_right: Callable, tmp_path: Path
) -> None:
    """With MPI_THREAD_FUNNELED."""
    path = tmp_path / "run.bp"
    done = mpirun(3, "layer_overlap.py", "steps", path, engine, "5", env=of_first_thread, timeout=60)
    calls = [int(line.split()[1]) for line in done.stderr.splitlines() if line.endswith("calls by the first thread")]
    assert sum(n > 50 for n in calls) == 3
    assert require_right(path, 5) == 5
    done = mpirun(2, "layer_overlap.py", "wrong thread", path, engine, env=of_first_thread, timeout=60, check=False)
    assert done.returncode != 0
    assert "a thread of its own calls MPI_Barrier" in done.stderr


@pytest.mark.mpi
def test_a_stream(start_ranks: Callable, together: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = tmp_path / "stream"
    processes = [start_ranks(2, "layer_overlap.py", "steps", stream, "SST", "6")]
    monkeypatch.setenv("LOG", str(tmp_path / "received"))
    processes.append(start_ranks(2, "faults.py", "receive", stream, "SST"))
    together(processes, timeout=100)
    for rank in range(2):
        assert logs(tmp_path / "received", 2)[rank] == [*(f"step {i}" for i in range(6)), "closed"]


# --------------------------------------------------------------------------------------------- what goes wrong

FAILURES = {
    "device": ("DeviceError", "the device is gone"),
    "memory": ("OutOfMemoryError", "no memory for this"),
    "table": ("OutOfMemoryError", "no memory for this"),
    "copy": ("OutOfMemoryError", "no memory for this"),
}


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.parametrize(("ranks", "engine"), [(1, "BP5"), (3, "BP5"), (2, "BP4")])
def test_a_step_that_cannot_be_compressed(
    ranks: int, engine: str, mpirun: Callable, require_right: Callable, tmp_path: Path
) -> None:
    """All ranks raise the same error at the end of the next step, or when they close the file. It names the step that
    is missing; those before and after it are there."""
    path = tmp_path / "run.bp"
    mpirun(ranks, "layer_overlap.py", "fail", path, engine, *FAILURES, timeout=60)
    told = logs(path, ranks)
    assert told == [told[0]] * ranks
    expected = []
    for n, (kind, message) in enumerate(FAILURES.values()):
        is_last = n == len(FAILURES) - 1
        where = f"error {kind}: {str(path)!r}: step {n + 1} of this Writer is not written: rank {ranks - 1}: "
        end = "" if is_last else " (nor is the step after it, which ends here)"
        expected += [f"ended {n}", f"ended {n + 1}", (where, message + end)]
    assert told[0][-1] == "closed"
    for line, text in zip(told[0][:-1], expected, strict=True):
        if isinstance(text, str):
            assert line == text
        else:
            assert line.startswith(text[0])
            assert line.endswith(text[1])
    assert require_right(path, len(FAILURES)) == len(FAILURES)


def test_no_room_on_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This is found out when the step is to be written; later steps that fit are written."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, overlap=True) as out:
        with out.step():
            out.put("T", X)
        monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result([4096, 4096, 1000, 0, 0, 0, 0, 0, 0, 255]))
        with pytest.raises(cusz_core.CuszError, match=r"step 0 of .* rank 0: the disk is full"), out.step():
            out.put("T", X)
        monkeypatch.undo()
        with out.step():
            out.put("T", X)
    assert len(cz.Reader(tmp_path / "run.bp")) == 1
