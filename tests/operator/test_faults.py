"""Faults of memory, disks, processes and files: what the in-situ layer makes of them (docs/reliability.md)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cusz_core
import cusz_operator as cz
import support

sys.path.insert(0, str(Path(__file__).parent / "ranks"))
import faults

adios2 = pytest.importorskip("adios2")

ENGINES = ("BP5", "BP4")
RANKS = Path(faults.__file__).parent


def logs(path: Path, ranks: int) -> list[list[str]]:
    """What the ranks of faults.py have said, without their numbers."""
    texts = [Path(f"{path}.rank{rank}").read_text(encoding="utf-8") for rank in range(ranks)]
    return [[line for line in text.splitlines() if not line.startswith(("pid", "rss"))] for text in texts]


READ_ALL = f"""
import sys
sys.path.insert(0, {str(RANKS)!r})
import faults
n, found = faults.check(sys.argv[1], int((sys.argv + ['0'])[2]))
print(n, *found, sep="\\n")
"""


def require_right(python: Callable, path: Path, steps: int) -> int:
    """Reads all that is there, in a process of its own, by the Reader and by plain ADIOS2; returns the steps."""
    n, *found = python(READ_ALL, path, str(steps), timeout=60).stdout.splitlines()
    assert not found, found
    return int(n)


# ------------------------------------------------------------------------------------------------ a rank that fails


FAILURES = {
    "memory": ("OutOfMemoryError", "cannot allocate"),
    "bare memory": ("OutOfMemoryError", "no memory for this"),
    "table": ("OutOfMemoryError", "no memory for this"),
    "range": ("DeviceError", "the device is gone"),
    "device": ("DeviceError", "the device is gone"),
    "not an array": ("UnsupportedError", "is 'text'"),
    "not on a device": ("UnsupportedError", "claims 64 bytes of device memory"),
    "big-endian": ("UnsupportedError", "has dtype >f4"),
    "complex": ("UnsupportedError", "has dtype <c8"),
}


@pytest.mark.mpi
@pytest.mark.parametrize("engine", ENGINES)
def test_a_rank_that_cannot_compress(engine: str, mpirun: Callable, python: Callable, tmp_path: Path) -> None:
    """All ranks raise the same error, and the step may be written once more."""
    path = tmp_path / "run.bp"
    mpirun(3, "faults.py", "fail", path, engine, *FAILURES, timeout=60)
    told = logs(path, 3)
    assert told == [told[0]] * 3
    assert told[0][1::2] == [f"step {step}" for step in range(len(FAILURES))]
    assert told[0][-1] == "closed"
    for step, (error, (kind, message)) in enumerate(zip(told[0][:-1:2], FAILURES.values(), strict=True)):
        assert error.startswith(f"error {kind}: ")
        assert f"step {step} of this Writer is not written: rank 2: " in error
        assert message in error
    assert require_right(python, path, len(FAILURES)) == len(FAILURES)


@pytest.mark.mpi
def test_names_that_differ_between_ranks(mpirun: Callable, tmp_path: Path) -> None:
    """No fault: a rank need not put every variable. Each is in the file, with the blocks that it has."""
    path = tmp_path / "run.bp"
    mpirun(3, "faults.py", "names", path, "BP5", timeout=60)
    with cz.Reader(path) as run:
        assert run[0].variables == ["U", "other"]
        assert run[0].blocks("U")["rank"].tolist() == [0, 1]
        assert run[0].blocks("other")["rank"].tolist() == [2]
        part = faults.rows(2, 3)
        assert not support.violations(faults.field("U", 0)[part], run[0].read("other")[part], faults.EB)


def test_a_step_that_failed_does_not_fix_a_type(tmp_path: Path) -> None:
    """What a variable is follows from the steps that are written."""
    x = support.smooth((20, 30), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        with pytest.raises(cusz_core.ParameterError, match="overlaps"), out.step():
            out.put("T", x.astype(support.F64))
            out.put("T", x.astype(support.F64))
        with out.step():
            out.put("T", x)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert not support.violations(x, run[0].read("T"), 1e-3)


# ------------------------------------------------------------------------------------------------ disks


def in_own_mounts(script: str, *arguments: str | Path) -> list[str | Path]:
    """A command that may mount what nobody else sees, and that is gone with it."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("needs a mount namespace of its own (unshare --mount), which only root may have here")
    return ["unshare", "--mount", "sh", "-euc", script, "sh", *arguments]


# The file is copied away, for those outside the mount namespace.
ON_A_SMALL_DISK = f"""
mkdir "$1/disk"
mount -t tmpfs -o size="$2" none "$1/disk"
status=0
timeout -k 5 60 mpirun -n "$3" {sys.executable} {RANKS}/faults.py fill "$1/disk/run.bp" "$4" "$5" || status=$?
cp -r "$1/disk/." "$1"
exit $status
"""


@pytest.mark.mpi
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_full_disk(engine: str, ranks: int, program: Callable, python: Callable, tmp_path: Path) -> None:
    """The step that does not fit is refused on all ranks before ADIOS2 writes any of it, and a smaller one is written."""
    program(in_own_mounts(ON_A_SMALL_DISK, tmp_path, "8m", str(ranks), engine, "checked"))
    told = logs(tmp_path / "run.bp", ranks)
    assert told == [told[0]] * ranks
    *before, error, after, closed = told[0]
    n = len(before)
    assert n >= 3
    assert (before, after, closed) == ([f"step {i}" for i in range(n)], f"step {n}", "closed")
    assert f"step {n} of this Writer is not written: rank 0: the disk is full: the step needs up to" in error
    assert require_right(python, tmp_path / "run.bp", n + 1) == n + 1


@pytest.mark.mpi
@pytest.mark.parametrize("engine", ENGINES)
def test_a_disk_that_is_full_from_the_start(engine: str, program: Callable, tmp_path: Path) -> None:
    """Nobody hangs, and no process crashes, even where ADIOS2 cannot close the file."""
    done = program(in_own_mounts(ON_A_SMALL_DISK, tmp_path, "16k", "3", engine, "checked"), check=False)
    assert done.returncode not in (0, 124)
    assert "Signal: Aborted" not in done.stderr
    told = logs(tmp_path / "run.bp", 3)
    assert told == [told[0]] * 3
    assert "step 0 of this Writer is not written: rank 0: the disk is full" in told[0][0]
    assert "cannot close" in told[0][1]


@pytest.mark.mpi
@pytest.mark.parametrize(("engine", "ranks"), [("BP5", 1), ("BP4", 1), ("BP4", 3)])
def test_a_disk_that_is_fuller_than_it_says(
    engine: str, ranks: int, program: Callable, python: Callable, tmp_path: Path
) -> None:
    """Where ADIOS2 itself fails, the error is told, and a job with ranks that it leaves waiting ends.

    Not so in BP5 with several ranks on a node: there the rank that fails never comes back from ADIOS2.
    """
    command = in_own_mounts(ON_A_SMALL_DISK, tmp_path, "8m", str(ranks), engine, "unchecked")
    done = program(command, check=False)
    assert done.returncode not in (0, 124)
    told = logs(tmp_path / "run.bp", ranks)
    complete = [line for line in told[0] if line.startswith("step")]
    text = "\n".join([done.stderr, *(line for lines in told for line in lines)])
    assert f"step {len(complete)} of this Writer is not written: rank 0: ADIOS2 failed" in text
    assert "No space left on device" in text
    if ranks > 1:
        assert "ADIOS2 left other ranks waiting: the job is ended" in text
    assert require_right(python, tmp_path / "run.bp", len(complete)) == len(complete)


ON_A_READ_ONLY_DISK = f"""
mkdir "$1/disk"
mount -t tmpfs none "$1/disk"
cp -r "$1/run.bp" "$1/disk"
mount -o remount,ro "$1/disk"
{sys.executable} -c "$3" "$1/disk/run.bp"
LOG="$1/log" timeout -k 5 60 mpirun -n 3 {sys.executable} {RANKS}/faults.py steps "$1/disk/$4" "$2" 1
"""


@pytest.mark.mpi
@pytest.mark.parametrize(("engine", "name"), [("BP5", "run.bp"), ("BP4", "new.bp")])
def test_a_read_only_disk(engine: str, name: str, mpirun: Callable, program: Callable, tmp_path: Path) -> None:
    """It can be read from, and writing is refused on all ranks before ADIOS2 tries it."""
    mpirun(1, "faults.py", "steps", tmp_path / "run.bp", engine, "2", timeout=60)
    command = in_own_mounts(ON_A_READ_ONLY_DISK, tmp_path, engine, READ_ALL, name)
    done = program(command, check=False)
    assert done.stdout.splitlines() == ["2"]
    told = logs(tmp_path / "log", 3)
    assert told == [told[0]] * 3
    assert "error ParameterError: cannot write" in told[0][0]
    assert "is not writable" in told[0][0]


REMOVED = """
import shutil, sys
import cusz_core, support
import cusz_operator as cz
path, engine = sys.argv[1:]
out = cz.Writer(path, eb=1e-3, engine=engine)
for step in range(2):
    try:
        with out.step():
            out.put("T", support.smooth((20, 30), support.F32))
    except cusz_core.CuszError as error:
        print(error)
    shutil.rmtree(path, ignore_errors=True)
try:
    out.close()
except cusz_core.CuszError as error:
    print(" ".join(str(error).split()))
del out
print("goes on")
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_file_that_is_removed_while_it_is_written(engine: str, python: Callable, tmp_path: Path) -> None:
    done = python(REMOVED, tmp_path / "run.bp", engine)
    step, close, end = done.stdout.splitlines()
    assert "step 1 of this Writer is not written: rank 0: FileNotFoundError" in step
    assert "cannot close" in close
    assert end == "goes on"


# ------------------------------------------------------------------------------------------------ a rank that dies


def killed(start_ranks: Callable, folder: Path, ranks: int, engine: str, seed: int) -> Path:
    """Where ranks wrote of which one was killed, at a moment drawn by lot."""
    path = folder / f"killed{seed}.bp"
    delay, victim = support.integers(2, 0, 10**6, seed=seed).tolist()
    job = start_ranks(ranks, "faults.py", "steps", path, engine, "1000000")
    try:
        victim_log = Path(f"{path}.rank{victim % ranks}")
        give_up = time.monotonic() + 60
        while not victim_log.exists() or not victim_log.read_text(encoding="utf-8").endswith("\n"):
            assert time.monotonic() < give_up, "the rank does not start"
            time.sleep(0.001)
        pid = int(victim_log.read_text(encoding="utf-8").split()[1])
        time.sleep(delay / 10**6)
        os.kill(pid, signal.SIGKILL)
        job.communicate(timeout=60)
        assert job.returncode != 0
    finally:
        job.kill()
        job.wait()
    return path


def require_complete_steps(python: Callable, path: Path) -> int:
    """Every step whose end rank 0 came back from is there and right, and so is whatever else is there."""
    complete = [line for line in logs(path, 1)[0] if line.startswith("step")]
    if not path.exists() or not complete:
        return 0
    return require_right(python, path, len(complete))


@pytest.mark.mpi
@pytest.mark.parametrize("engine", ENGINES)
def test_a_rank_is_killed(
    engine: str, python: Callable, mpirun: Callable, start_ranks: Callable, tmp_path: Path
) -> None:
    for seed in range(3):
        path = killed(start_ranks, tmp_path, 3, engine, seed)
        n = require_complete_steps(python, path)
    # Another job may go on from there.
    if n > 0:
        mpirun(2, "faults.py", "steps", path, engine, "3", str(n), timeout=60)
        assert require_right(python, path, n + 3) == n + 3


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_are_killed_25_times(engine: str, python: Callable, start_ranks: Callable, tmp_path: Path) -> None:
    found = [require_complete_steps(python, killed(start_ranks, tmp_path, 3, engine, seed)) for seed in range(25)]
    print("steps:", sorted(found))
    assert len(set(found)) > 5, "they were not killed at different moments"
