"""Faults of memory, disks, processes and files, and how the in-situ layer handles them (reliability.md)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faults
import numpy as np
import pytest
from faults import logs

import cusz_core
import cusz_operator as cz
import formats
import support

pytest.importorskip("adios2")
import adios2
from other_program import Program

RANKS = Path(faults.__file__).parent


# ------------------------------------------------------------------------------------------------ a rank that fails


FAILURES = {
    "memory": ("OutOfMemoryError", "cannot allocate"),
    "bare memory": ("OutOfMemoryError", "no memory for this"),
    "table": ("OutOfMemoryError", "no memory for this"),
    "range": ("DeviceError", "the device is gone"),
    "device": ("DeviceError", "the device is gone"),
    "not an array": ("UnsupportedError", "is a list"),
    "not on a device": ("UnsupportedError", "claims 64 bytes of device memory"),
    "big-endian": ("UnsupportedError", "has dtype >f4"),
    "long complex": ("UnsupportedError", "has dtype <c32"),
    "dtype": ("ParameterError", "variable 'U' has dtype float64 on rank"),
    "shape": ("ParameterError", "variable 'U' has shape"),
    "settings": ("ParameterError", "variable 'U' has settings eb=0.5"),
    "overlap": ("ParameterError", "overlaps that at"),
    "outside": ("ParameterError", "outside the global shape"),
    "long doubles": ("UnsupportedError", "has dtype <f16 (float128)"),
    "no name": ("ParameterError", "it must be a text of 1 to 1000 bytes"),
    "dimensions": ("ParameterError", "they must agree"),
    "user": ("CuszError", "ValueError: of the simulation"),
}


@pytest.mark.quick(1)
@pytest.mark.mpi
def test_a_step_that_fails_on_one_rank(engine: str, mpirun: Callable, require_right: Callable, tmp_path: Path) -> None:
    """All ranks raise the same error, and the step can be repeated."""
    path = tmp_path / "run.bp"
    mpirun(3, "faults.py", "fail", path, engine, *FAILURES, timeout=60)
    told = logs(path, 3)
    assert told == [told[0]] * 3
    assert told[0][1::2] == [f"step {step}" for step in range(len(FAILURES))]
    assert told[0][-1] == "closed"
    for step, (error, (kind, message)) in enumerate(zip(told[0][:-1:2], FAILURES.values(), strict=True)):
        assert error.startswith(f"error {kind}: ")
        assert f"step {step} of this Writer is not written: " in error
        assert "rank 2" in error
        assert message in error
    assert require_right(path, len(FAILURES)) == len(FAILURES)


@pytest.mark.mpi
def test_an_archive_that_is_not_stored(engine: str, mpirun: Callable, require_right: Callable, tmp_path: Path) -> None:
    """Its step had begun, but is left out all the same; nothing can be written after it."""
    path = tmp_path / "run.bp"
    mpirun(3, "faults.py", "fail", path, engine, "user", "not stored", timeout=60)
    told = logs(path, 3)
    assert told == [told[0]] * 3
    _, first, not_stored, closed, _ = told[0]
    assert first == "step 0"
    assert not_stored.startswith("error PluginError: ")
    assert not_stored.endswith("step 1 of this Writer is not written: rank 2: the disk is gone")
    assert closed.endswith("is closed")
    assert require_right(path, 1) == 1


OPENING = {
    "engines": ("ParameterError", "and rank 2 opens"),
    "folder": ("ParameterError", "does not exist"),
    "bound": ("ParameterError", "rank 2: eb is -1.0"),
    "parameter": ("ParameterError", "rank 2: parameters has StatsLevel = 2"),
}


@pytest.mark.mpi
def test_opening_fails_on_all_ranks(mpirun: Callable, tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    mpirun(3, "faults.py", "open", path, "BP5", *OPENING, timeout=60)
    told = logs(path, 3)
    assert told == [told[0]] * 3
    for line, (kind, message) in zip(told[0], OPENING.values(), strict=True):
        assert line.startswith(f"error {kind}: ")
        assert message in line
    assert not path.exists()


#: What a rank that leaves the program logs, and what the ranks that it leaves behind log.
LEFT = {
    "exit 0": ("left 0", "rank 1 closed the Writer while others ended a step"),
    "exit 1": ("left 1", "rank 1: SystemExit: 1"),
    "error": ("error ValueError: of the simulation", "rank 1: ValueError: of the simulation"),
}


@pytest.mark.mpi
@support.pairs(
    "mode,who,how,where",
    ["plain", "overlap", "asynchronous"],
    ["all", "last"],
    ["exit 0", "exit 1", "error"],
    ["between steps", "in a step"],
)
def test_ranks_that_leave_the_program(
    mode: str, who: str, how: str, where: str, mpirun: Callable, require_right: Callable, tmp_path: Path
) -> None:
    """Steps that have ended are in the file. Ranks do not wait for a single one that has left."""
    path = tmp_path / "run.bp"
    mpirun(2, "faults.py", "leave", path, "BP5", mode, who, how, where, timeout=60, check=False)
    left_behind, last = logs(path, 2)
    own, told = LEFT[how]
    if how == "error" and where == "in a step":  # the step fails on all ranks
        assert left_behind == last
        assert f"rank {0 if who == 'all' else 1}: ValueError: of the simulation" in last[0]
    else:
        assert last == [own]
        assert left_behind == last if who == "all" else left_behind[0].endswith(told)
    assert require_right(path, 3) == 3


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize("where", ["between steps", "in a step"])
@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("overlap", [False, True], ids=["", "overlap"])
def test_a_rank_that_fails_while_others_wait_elsewhere(
    overlap: bool, victim: int, where: str, mpirun: Callable, require_right: Callable, tmp_path: Path
) -> None:
    """They cannot be told of it in the program's own communication: the job ends, and says why."""
    path = tmp_path / "run.bp"
    arguments = [path, "BP5", str(victim), where, *(["overlap"] if overlap else [])]
    env = {**os.environ, "CUSZ_PATIENCE": "2"}
    done = mpirun(3, "faults.py", "strand", *arguments, timeout=60, check=False, env=env)
    assert done.returncode != 0
    assert logs(path, 3) == [["step 0", "step 1", "step 2"]] * 3
    assert "raise LEAVING" in done.stderr  # where it failed
    said = f"rank {victim} has failed: ValueError: of the simulation. For 2 s the other ranks have neither"
    assert done.stderr.count(said) == 1
    assert require_right(path, 3 - overlap) == 3 - overlap


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize("who", ["all", "last"])
@pytest.mark.parametrize("how", ["end", "exit 1", "error"])
def test_ranks_that_end_without_closing(
    who: str, how: str, mpirun: Callable, require_right: Callable, tmp_path: Path
) -> None:
    """The Writer is closed when the program ends, so that no rank waits for one that has left."""
    path = tmp_path / "run.bp"
    done = mpirun(2, "faults.py", "leave open", path, "BP5", who, how, timeout=60, check=False)
    assert (done.returncode == 0) == (who == "all" and how == "end")
    left_behind, last = logs(path, 2)
    told = ["error ValueError: of the simulation"] if how == "error" else []
    assert last == ["step 0", "step 1", "step 2", *told]
    if who == "all":
        assert left_behind == last
    else:
        reason = "ValueError: of the simulation" if how == "error" else "closed the Writer while others ended a step"
        assert "rank 1" in left_behind[-1]
        assert left_behind[-1].endswith(reason)
    assert require_right(path, 3) == 3


@pytest.mark.quick(2, rest="long")
@pytest.mark.mpi
@pytest.mark.parametrize("overlap", [False, True], ids=["", "overlap"])
@pytest.mark.parametrize(("ranks", "victim"), [(1, 0), (3, 0), (3, 2), (4, 1)])
def test_a_rank_that_fails_anywhere(
    ranks: int, victim: int, overlap: bool, mpirun: Callable, require_right: Callable, tmp_path: Path
) -> None:
    """Between any two exchanges: no rank waits for ever, all get the same error, and later steps are written."""
    path = tmp_path / "run.bp"
    mpirun(ranks, "faults.py", "anywhere", path, "BP5", str(victim), *(["overlap"] if overlap else []), timeout=100)
    told = logs(path, ranks)
    assert told == [told[0]] * ranks
    assert told[0][-1] == "closed"
    found: dict[str, set[str]] = {}
    for line in told[0][:-1]:
        function, kind, said = re.split(", |: ", line, maxsplit=2)
        if said != "step":
            assert said.startswith("OutOfMemoryError: ")
            assert f"rank {victim}: out of memory: {function}" in said
            found.setdefault(function, set()).add(kind)
    every = {"same", "moved", "names", "sought"}
    in_all = {"described", "spans_of"}
    if not overlap:  # with overlap, these make the next step fail
        in_all |= {"spans_from", "bounds_of", "compress", "parts_of", "in_one", "totals_of"}
        assert found["sample"] == found["_in_units"] == {"sought"}
        assert ("find" in found) == (victim == 0)  # rank 0 searches for all
    assert {name: found.get(name) for name in in_all} == dict.fromkeys(in_all, every)
    changed = {"arrays_of", "values_of", "Layout", "digest"} | ({"rows_of", "first_overlap"} if ranks > 1 else set())
    assert changed <= found.keys()
    with cz.Reader(path) as run:
        assert len(run) > len(faults.ANYWHERE) * 4
        assert not support.violations(faults.field("U", 0), run[-1].read("U"), faults.EB)


def put_twice(out: cz.Writer, x: np.ndarray) -> None:
    for _ in range(2):
        out.put("T", x)


def test_a_step_that_failed_does_not_fix_a_type(tmp_path: Path) -> None:
    """Only steps that are written determine the type of a variable."""
    x = support.smooth((20, 30), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        with pytest.raises(cusz_core.ParameterError, match="overlaps"), out.step():
            put_twice(out, x.astype(support.F64))
        with out.step():
            out.put("T", x)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert not support.violations(x, run[0].read("T"), 1e-3)


# ------------------------------------------------------------------------------------------------ disks


def in_own_mounts(script: str, *arguments: str | Path) -> list[str | Path]:
    """A command that runs a shell script in its own mount namespace; its mounts vanish with it."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("needs a mount namespace of its own (unshare --mount), which only root may have here")
    return ["unshare", "--mount", "sh", "-euc", script, "sh", *arguments]


# Copies the file so that it is visible outside the mount namespace.
ON_A_SMALL_DISK = f"""
mkdir "$1/disk"
mount -t tmpfs -o size="$2" none "$1/disk"
status=0
timeout -k 5 60 mpirun -n "$3" {sys.executable} {RANKS}/faults.py fill "$1/disk/run.bp" "$4" "$5" || status=$?
cp -r "$1/disk/." "$1"
exit $status
"""


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_full_disk(engine: str, ranks: int, program: Callable, require_right: Callable, tmp_path: Path) -> None:
    """All ranks refuse a step that does not fit before ADIOS2 writes any of it; a smaller one is written."""
    program(in_own_mounts(ON_A_SMALL_DISK, tmp_path, "8m", str(ranks), engine, "checked"))
    told = logs(tmp_path / "run.bp", ranks)
    assert told == [told[0]] * ranks
    *before, error, after, closed = told[0]
    n = len(before)
    assert n >= 3
    assert (before, after, closed) == ([f"step {i}" for i in range(n)], f"step {n}", "closed")
    assert f"step {n} of this Writer is not written: rank 0: the disk is full: the step needs up to" in error
    assert require_right(tmp_path / "run.bp", n + 1) == n + 1


@pytest.mark.full
@pytest.mark.mpi
def test_a_disk_that_is_full_from_the_start(engine: str, program: Callable, tmp_path: Path) -> None:
    """No rank hangs or crashes, even if ADIOS2 cannot close the file, and the reason is still reported."""
    done = program(in_own_mounts(ON_A_SMALL_DISK, tmp_path, "16k", "3", engine, "checked"), check=False)
    assert done.returncode not in (0, 124)
    assert "Signal: Aborted" not in done.stderr
    told = logs(tmp_path / "run.bp", 3)
    assert told == [told[0]] * 3
    assert "step 0 of this Writer is not written: rank 0: the disk is full" in told[0][0]
    assert told[0][1].removeprefix("error ") == told[0][0].removeprefix("error ")


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.parametrize(("engine", "ranks"), [("BP5", 1), ("BP4", 1), ("BP4", 3)])
def test_a_disk_that_is_fuller_than_it_says(
    engine: str, ranks: int, program: Callable, require_right: Callable, tmp_path: Path
) -> None:
    """If ADIOS2 itself fails, its error is reported, and a job ends in which it leaves ranks waiting."""
    command = in_own_mounts(ON_A_SMALL_DISK, tmp_path, "8m", str(ranks), engine, "unchecked")
    done = program(command, check=False)
    assert done.returncode not in (0, 124)
    told = logs(tmp_path / "run.bp", ranks)
    complete = [line for line in told[0] if line.startswith("step")]
    text = "\n".join([done.stderr, *(line for lines in told for line in lines)])
    assert f"step {len(complete)} of this Writer is not written: rank 0: ADIOS2 failed" in text
    assert "No space left on device" in text
    if ranks > 1:
        assert "ADIOS2 left other ranks waiting: the job is aborted" in text
    assert require_right(tmp_path / "run.bp", len(complete)) == len(complete)


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.parametrize("how", ["unchecked", "unchecked, asynchronous"])
def test_a_rank_that_does_not_come_back(how: str, program: Callable, require_right: Callable, tmp_path: Path) -> None:
    """In BP5, with several ranks on a node, a rank whose write fails stays in ADIOS2, and waits there for ranks that
    wait for it. The job ends all the same, and says why. (After ADIOS2 2.12 it returns, if it does not write in the
    background.)"""
    done = program(in_own_mounts(ON_A_SMALL_DISK, tmp_path, "8m", "3", "BP5", how), check=False)
    assert done.returncode not in (0, 124)
    told = logs(tmp_path / "run.bp", 3)
    n = sum(line.startswith("step") for line in told[0])
    assert all(line.startswith("step") for lines in told for line in lines), told
    waited = (
        f"disk/run.bp': writing step {n} of this Writer: ADIOS2 does not come back, and nothing in the folder has "
        "changed for 5 s: it has failed on a rank, and left all of them waiting",
    )
    failed = (
        f"disk/run.bp': step {n} of this Writer is not written: rank 0: ADIOS2 failed",
        "No space left on device",
        "ADIOS2 left other ranks waiting: the job is aborted",
    )
    assert any(all(part in done.stderr for part in parts) for parts in (waited, failed)), done.stderr
    complete = n - how.endswith("asynchronous")
    assert require_right(tmp_path / "run.bp", complete) >= complete


#: Watches a call that holds the interpreter's lock, while another process may change something in the folder.
WATCH = """
import ctypes, subprocess, sys, time
from cusz_operator.plugin import Plugin
folder, patience, seconds, beside = sys.argv[1:]
with subprocess.Popen(["sh", "-c", beside], cwd=folder) as other:
    with Plugin().watch(folder, float(patience), "nothing has changed"):
        ctypes.PyDLL(None).usleep(int(float(seconds) * 1e6))
    print("came back", flush=True)
    other.kill()
"""
GROWS = "while sleep 0.1; do echo more >> grows; done"
CHANGES = "echo 1234567 > file; while sleep 0.1; do echo other | dd of=file conv=notrunc status=none; done"
APPEARS = "for i in $(seq 100); do sleep 0.1; : > file$i; done"
STOPS = "sleep 0.3; kill -STOP $PPID; sleep 2; kill -CONT $PPID"


@pytest.mark.full
@pytest.mark.parametrize(
    ("patience", "beside"),
    [("1", GROWS), ("1", CHANGES), ("1", APPEARS), ("1.5", STOPS), ("inf", "true"), ("0", "true"), ("100", "true")],
    ids=["grows", "changes", "appears", "stopped", "infinite", "none", "long"],
)
def test_a_watch_lets_work_go_on(patience: str, beside: str, python: Callable, tmp_path: Path) -> None:
    """As long as something is written, however slowly; time during which the process is stopped does not count."""
    seconds = "1" if beside == STOPS else "3"
    assert python(WATCH, tmp_path, patience, seconds, beside, timeout=30).stdout == "came back\n"


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "beside",
    ["true", "echo once > file", f"mkdir new; cd new; {GROWS}", "rm -rf $PWD", f"cd ..; {APPEARS}"],
    ids=["nothing", "once", "in a folder", "removed", "beside the folder"],
)
def test_a_watch_ends_the_process(beside: str, python: Callable, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    done = python(WATCH, folder, "0.5", "20", f"({beside}) & sleep 3; kill $! 2> /dev/null", timeout=15, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "nothing has changed\n")


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon", ""])
def test_a_patience_that_makes_no_sense(text: str, python: Callable) -> None:
    done = python("import cusz_operator", env={"CUSZ_PATIENCE": text}, check=False)
    assert done.returncode == 1
    assert f"CUSZ_PATIENCE is {text!r}; it must be a number of seconds > 0, or inf" in done.stderr


ON_A_READ_ONLY_DISK = f"""
mkdir "$1/disk"
mount -t tmpfs none "$1/disk"
cp -r "$1/run.bp" "$1/disk"
mount -o remount,ro "$1/disk"
{sys.executable} {RANKS}/faults.py check "$1/disk/run.bp"
LOG="$1/log" timeout -k 5 60 mpirun -n 3 {sys.executable} {RANKS}/faults.py steps "$1/disk/$3" "$2" 1
"""


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.parametrize(("engine", "name"), [("BP5", "run.bp"), ("BP4", "new.bp")])
def test_a_read_only_disk(engine: str, name: str, mpirun: Callable, program: Callable, tmp_path: Path) -> None:
    """Reading works, and all ranks refuse to write before ADIOS2 tries it."""
    mpirun(1, "faults.py", "steps", tmp_path / "run.bp", engine, "2", timeout=60)
    done = program(in_own_mounts(ON_A_READ_ONLY_DISK, tmp_path, engine, name), check=False)
    assert done.stdout.splitlines() == ["2"]
    told = logs(tmp_path / "log", 3)
    assert told == [told[0]] * 3
    assert "error ParameterError: cannot write" in told[0][0]
    assert "is not writable" in told[0][0]


REMOVED = """
import os, shutil, sys
import cusz_core, support
import cusz_operator as cz
path, engine, how = sys.argv[1:]
out = cz.Writer(path, eb=1e-3, engine=engine)
for step in range(2):
    try:
        with out.step():
            out.put("T", support.smooth((20, 30), support.F32))
    except cusz_core.CuszError as error:
        print(error)
    if step == 0 and "removed" in how:
        shutil.rmtree(path)
    elif step == 0:
        os.rename(path, f"{path}.moved")
    if step == 0 and how.endswith("by a folder"):
        os.mkdir(path)
    elif step == 0 and how.endswith("by a file"):
        open(path, "w").close()
    elif step == 0 and how.endswith("by a Writer"):
        other = cz.Writer(path, eb=1e-3, engine=engine)
        with other.step():
            other.put("i", 7)
try:
    out.close()
except cusz_core.CuszError as error:
    print(" ".join(str(error).split()))
del out
print("goes on")
"""


GONE = "rank 0: the folder was removed, renamed or replaced while it was written"


@pytest.mark.parametrize(
    "how",
    ["removed", "removed, replaced by a Writer", "renamed", "renamed, replaced by a folder", "renamed, by a file"],
)
def test_a_file_that_is_removed_while_it_is_written(engine: str, how: str, python: Callable, tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    done = python(REMOVED, path, engine, how)
    assert done.stdout.splitlines() == [
        f"{str(path)!r}: step 1 of this Writer is not written: {GONE}",
        f"cannot close {str(path)!r}: {GONE}",
        "goes on",
    ]
    for left in (path, Path(f"{path}.moved")):  # the other Writer's file, and the steps before
        if (left / "data.0").exists():
            with cz.Reader(left) as run:
                assert len(run) == 1


@pytest.mark.mpi
def test_a_file_of_several_ranks_that_is_replaced(engine: str, start_ranks: Callable, tmp_path: Path) -> None:
    path, log = tmp_path / "run.bp", Path(f"{tmp_path / 'run.bp'}.rank0")
    job = start_ranks(2, "faults.py", "steps", path, engine, "1000000")
    faults.wait_until(lambda: log.exists() and "step 1" in log.read_text(encoding="utf-8"))
    shutil.rmtree(path)
    path.mkdir()
    job.communicate(timeout=60)
    told = [lines[-1] for lines in logs(path, 2)]
    assert told == [told[0]] * 2
    assert GONE in told[0]


# ------------------------------------------------------------------------------------------------ a rank that dies


def killed(start_ranks: Callable, folder: Path, ranks: int, engine: str, seed: int, kind: str = "steps") -> Path:
    """The file of ranks of which one is killed: after at least seed % 10 lines of its log, and a random delay."""
    path = folder / f"killed{seed}.bp"
    delay, victim = support.integers(2, 0, 10**6, seed=seed).tolist()
    job = start_ranks(ranks, "faults.py", kind, path, engine, "1000000")
    victim_log = Path(f"{path}.rank{victim % ranks}")
    # The first line has the process ID. Counting lines works on a slow machine, too; a delay alone would not.
    faults.wait_until(lambda: victim_log.exists() and victim_log.read_text(encoding="utf-8").count("\n") > seed % 10)
    pid = int(victim_log.read_text(encoding="utf-8").split()[1])
    time.sleep(delay / 10**7)
    os.kill(pid, signal.SIGKILL)
    job.communicate(timeout=60)
    assert job.returncode != 0
    return path


def require_complete_steps(require_right: Callable, path: Path) -> int:
    """Every step that has ended for rank 0 is there, and everything that is there is right; returns the steps."""
    complete = [line for line in logs(path, 1)[0] if line.startswith("step")]
    if not path.exists() or not complete:
        return 0
    return require_right(path, len(complete))


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize(("seed", "kind"), [(0, "steps"), (1, "steps"), (2, "steps"), (8, "overlap")])
def test_a_rank_is_killed(
    engine: str, seed: int, kind: str, require_right: Callable, mpirun: Callable, start_ranks: Callable, tmp_path: Path
) -> None:
    path = killed(start_ranks, tmp_path, 3, engine, seed, kind)
    n = require_complete_steps(require_right, path)
    # Another job can go on from there.
    if n > 0:
        mpirun(2, "faults.py", "steps", path, engine, "3", str(n), timeout=60)
        assert require_right(path, n + 3) == n + 3


@pytest.mark.mpi
@pytest.mark.long
def test_ranks_are_killed_25_times(engine: str, require_right: Callable, start_ranks: Callable, tmp_path: Path) -> None:
    found = [
        require_complete_steps(require_right, killed(start_ranks, tmp_path, 3, engine, seed)) for seed in range(25)
    ]
    print("steps:", sorted(found))
    assert len(set(found)) > 5, "they were not killed at different moments"


# ------------------------------------------------------------------------------------------------ a reader that fails


def failing_readers(
    start_ranks: Callable, folder: Path, patch: pytest.MonkeyPatch, *others: str
) -> tuple[str, list[list[str]]]:
    """What three ranks print and log that read a stream, the last of which fails in step 2. The writer goes on."""
    stream, log = folder / "stream", folder / "received"
    writing = start_ranks(2, "faults.py", "steps", stream, "SST", "30")
    patch.setenv("LOG", str(log))
    reading = start_ranks(3, "faults.py", "receive", stream, "SST", "2", *others)
    output, _ = reading.communicate(timeout=60)
    assert reading.returncode != 0, output
    assert writing.wait(60) == 0
    return output, logs(log, 3)


@pytest.mark.full
@pytest.mark.mpi
def test_a_rank_fails_while_others_receive(
    start_ranks: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks that read the stream end with an error that names the rank; the writer goes on."""
    _, (*others, last) = failing_readers(start_ranks, tmp_path, monkeypatch)
    steps, error = ["step 0", "step 1", "step 2"], "before its end: ValueError: of the monitor"
    assert last == [*steps, "error ValueError: of the monitor"]
    for lines in others:
        assert lines == [*steps, f"error CuszError: rank 2 has left the stream {str(tmp_path / 'stream')!r} {error}"]


@pytest.mark.full
@pytest.mark.mpi
def test_a_rank_fails_while_others_that_receive_wait_elsewhere(
    start_ranks: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job that reads ends, and says why; the writer goes on."""
    monkeypatch.setenv("CUSZ_PATIENCE", "2")
    output, received = failing_readers(start_ranks, tmp_path, monkeypatch, "others wait")
    assert "rank 2 has failed: ValueError: of the monitor. For 2 s the other ranks have neither" in output
    assert received == [["step 0", "step 1", "step 2"]] * 3


def kill_the_writer(
    start_ranks: Callable, folder: Path, patch: pytest.MonkeyPatch, readers: int, delay: float = 0.0, hold: str = ""
) -> list[list[str]]:
    """The logs of ranks that read a stream whose Writer is killed, `delay` seconds after the last rank has read the
    first step. hold: the name of a file; rank 0 does not read while it exists."""
    stream, log, held = folder / "stream", folder / "received", folder / hold
    patch.setenv("LOG", str(stream))
    writing = start_ranks(2, "faults.py", "steps", stream, "SST", "1000000")
    patch.setenv("LOG", str(log))
    patch.setenv("HOLD", str(held) if hold else "")
    if hold:
        held.touch()
    reading = start_ranks(readers, "faults.py", "receive", stream, "SST")
    last_log = Path(f"{log}.rank{readers - 1}")
    faults.wait_until(lambda: last_log.exists() and "step 0\n" in last_log.read_text(encoding="utf-8"))
    time.sleep(delay)
    os.kill(int(Path(f"{stream}.rank0").read_text(encoding="utf-8").split()[1]), signal.SIGKILL)
    assert writing.wait(60) != 0
    if hold:
        time.sleep(0.5)  # until the readers have noticed
        held.unlink()
    output, _ = reading.communicate(timeout=60)
    assert reading.returncode != 0, output
    return logs(log, readers)


@pytest.mark.full
@pytest.mark.mpi
def test_the_writer_is_gone_for_one_rank_of_its_readers(
    start_ranks: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the writer is killed, rank 1 has read its share of a step, rank 0 has not: both end with an error."""
    first, second = (lines[-1] for lines in kill_the_writer(start_ranks, tmp_path, monkeypatch, 2, hold="hold"))
    assert first.startswith("error CuszError: ADIOS2 cannot read ")
    assert first.endswith("Writer failed before returning data")
    why = f"rank 0 has left the stream {str(tmp_path / 'stream')!r} before its end: "
    assert second.startswith(f"error CuszError: {why}")


@pytest.mark.mpi
@pytest.mark.long
def test_the_writer_of_a_stream_is_killed_25_times(
    start_ranks: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At random moments: the ranks that read end with an error, and in time."""
    for seed in range(25):
        (delay,) = support.integers(1, 0, 10**6, seed=seed).tolist()
        folder = tmp_path / str(seed)
        folder.mkdir()
        told = kill_the_writer(start_ranks, folder, monkeypatch, 3, delay / 10**6)
        assert any(lines[-1].startswith("error CuszError: ") for lines in told), (seed, told)


@pytest.mark.full
@pytest.mark.mpi
def test_the_writer_of_a_stream_ends_while_it_is_opened(
    start_ranks: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops answering, and then dies: ADIOS2 tells rank 0 of the readers, or all of them if they come too late."""
    stream, log = tmp_path / "stream", tmp_path / "received"
    monkeypatch.setenv("LOG", str(stream))
    start_ranks(2, "faults.py", "steps", stream, "SST", "1000000")
    monkeypatch.setenv("LOG", str(log))
    monkeypatch.setenv("CUSZ_PATIENCE", "2")
    faults.wait_until(Path(f"{stream}.sst").exists)
    numbers = [int(Path(f"{stream}.rank{i}").read_text(encoding="utf-8").split()[1]) for i in range(2)]
    for number in numbers:
        os.kill(number, signal.SIGSTOP)
    reading = start_ranks(3, "faults.py", "receive", stream, "SST")
    faults.wait_until(lambda: all(Path(f"{log}.rank{i}").exists() for i in range(3)))
    time.sleep(3)
    for number in numbers:
        os.kill(number, signal.SIGKILL)
    output, _ = reading.communicate(timeout=60)
    assert reading.returncode != 0
    assert "ADIOS2 cannot open" in output


# ------------------------------------------------------------------------------------------------ damaged files


def read_damaged(engine: str, count: int, mpirun: Callable, program: Callable, folder: Path) -> dict[str, Counter[str]]:
    """How reads of a file end that is damaged in every part in turn: a count of outcomes by part."""
    mpirun(2, "faults.py", "steps", folder / "run.bp", engine, "4", timeout=60)
    (folder / "work").mkdir()
    command = [sys.executable, RANKS / "faults_damage.py", folder / "run.bp", folder / "work", "1", str(count)]
    done = program(command, timeout=60 + 2 * count, env={"MPI4PY_RC_INITIALIZE": "0"})
    told = [json.loads(line) for line in done.stdout.splitlines()]
    surprises = [one for one in told if one[2] not in ("right", "error")]
    assert not surprises, surprises[:20]
    parts = {one[0] for one in told}
    assert parts == {"data.0", "md.0", "md.idx", "cusz.checks", *(["mmd.0"] if engine == "BP5" else [])}
    return {part: Counter(one[2] for one in told if one[0] == part) for part in parts}


@pytest.mark.quick(1)
@pytest.mark.mpi
def test_a_damaged_file_is_an_error_or_right(engine: str, mpirun: Callable, program: Callable, tmp_path: Path) -> None:
    """With bits, bytes and pieces changed or ends cut off, reads never return wrong values, shapes or tables, crash or
    hang."""
    ends = read_damaged(engine, 25, mpirun, program, tmp_path)
    assert all(counted["error"] > 5 for counted in ends.values())


@pytest.mark.mpi
@pytest.mark.long
def test_a_file_damaged_in_1000_places(engine: str, mpirun: Callable, program: Callable, tmp_path: Path) -> None:
    print(engine, read_damaged(engine, 1000, mpirun, program, tmp_path))


def test_a_file_that_is_not_whole(tmp_path: Path) -> None:
    """Missing files are errors; missing checksums are not."""
    x = support.smooth((20, 30), support.F32)
    path = tmp_path / "run.bp"
    support.write_run(path, {"T": x}, eb=1e-3)
    for part in ("data.0", "md.0", "mmd.0"):
        (path / part).rename(tmp_path / part)
        with pytest.raises(cusz_core.CorruptArchiveError, match=rf"{part} is damaged|{part} has 0 bytes"):
            cz.Reader(path)[0].read("T")
        with pytest.raises(cusz_core.CorruptArchiveError, match=rf"{part} is damaged|{part} has 0 bytes"):
            cz.inspect_bp(path)
        (tmp_path / part).rename(path / part)
    (path / cz.tables.checks.CHECKS_FILE).unlink()
    with cz.Reader(path) as run:
        assert not support.violations(x, run[0].read("T"), 1e-3)


def test_checksums_of_steps_that_are_added(tmp_path: Path) -> None:
    """A Writer that appends adds its checksums to those before; what plain ADIOS2 appends is not checked."""
    x = support.smooth((20, 30), support.F32)
    path = tmp_path / "run.bp"
    for step in range(3):
        support.write_run(path, {"T": x + step}, eb=1e-3, append=step > 0)
    sums = path / cz.tables.checks.CHECKS_FILE
    whole = sums.read_bytes()
    assert {step for step, _ in cz.tables.checks.verify(path).tables} == {0, 1, 2}
    sums.write_bytes(whole + b'{"metadata"')  # a line cut off when its process was killed
    support.write_run(path, {"T": x + 3}, eb=1e-3, append=True)
    assert {step for step, _ in cz.tables.checks.verify(path).tables} == {0, 1, 2, 3}
    with Program(path, mode="Append") as other, other.step():
        other.put("other", np.ones(3))
    with cz.Reader(path) as run:
        assert len(run) == 5
        for step in range(4):
            assert not support.violations(x + np.float32(step), run[step].read("T"), 1e-3)


# ------------------------------------------------------------------------------------------------ plugins

READ_WITH = """
import os, sys
import cusz_core
import cusz_operator as cz
path, folder = sys.argv[1:]
try:
    with cz.Reader(path) as run:
        os.environ["ADIOS2_PLUGIN_PATH"] = folder
        print(run[0].blocks("U")["count"].tolist())
        run[0].read("U")
except cusz_core.CuszError as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.full
def test_a_reader_without_the_plugin(python: Callable, mpirun: Callable, tmp_path: Path) -> None:
    """ADIOS2 finds no plugin, or another copy of it. Archives in BP5 are read without it."""
    path, other = tmp_path / "run.bp", tmp_path / "bp5.bp"
    mpirun(1, "faults.py", "steps", path, "BP4", "1", timeout=60)
    mpirun(1, "faults.py", "steps", other, "BP5", "1", timeout=60)
    for folder in ("empty", "copy"):
        (tmp_path / folder).mkdir()
    shutil.copy(cz.plugin_path() / "libcusz_operator.so", tmp_path / "copy")
    table, error = python(READ_WITH, path, tmp_path / "empty").stdout.split("\n", 1)
    assert table == "[[12, 500]]"
    assert "CuszError: " in error
    assert "operator plugin named cusz" in error
    assert python(READ_WITH, other, tmp_path / "empty").stdout == "[[12, 500]]\n"
    core = {"LD_LIBRARY_PATH": str(Path(cusz_core.__file__).parent)}
    table, error = python(READ_WITH, path, tmp_path / "copy", env=core).stdout.split("\n", 1)
    assert table == "[[12, 500]]"
    assert "PluginError: several copies of the ADIOS2 plugin are loaded in this process" in error


# ------------------------------------------------------------------------------------------------ newer versions


def test_an_archive_of_a_newer_version(engine: Any, tmp_path: Path) -> None:
    """The Reader and plain ADIOS2 name the version."""
    x = support.smooth((20, 30), support.F32)
    support.write_run(tmp_path / "run.bp", {"T": x}, eb=1e-3, engine=engine, predictor="lorenzo")
    data = tmp_path / "run.bp" / "data.0"
    content = bytearray(data.read_bytes())
    archive = cusz_core.compress(x, 1e-3, predictor="lorenzo")
    at = content.index(archive)
    newer = bytearray(archive)
    newer[formats.VERSION_AT] = 7
    formats.seal(newer, archive)
    content[at : at + len(newer)] = newer
    data.write_bytes(content)
    with cz.Reader(tmp_path / "run.bp") as run, pytest.raises(cusz_core.CuszError, match="version 7") as caught:
        run[0].read("T")
    assert isinstance(caught.value, cusz_core.ArchiveTooNewError)
    with adios2.FileReader(str(tmp_path / "run.bp")) as plain, pytest.raises(RuntimeError, match="version 7"):
        plain.read("T")


def write_plainly(path: Path, table: np.ndarray) -> None:
    """Writes a variable T with plain ADIOS2, and the given table as its block table."""
    x = support.smooth((20, 30), support.F32)
    with Program(path, StatsLevel="0") as out, out.step():
        out.put("T", x, eb=1e-3)
        out.put(cz.tables.blocktable.table_name("T"), table)


TABLES = {
    "more columns": np.zeros((1, 17)),
    "fewer columns": np.zeros((1, 3)),
    "one dimension": np.zeros(15),
    "three dimensions": np.zeros((1, 15, 1)),
    "integers": np.zeros((1, 15), np.int64),
    "single precision": np.zeros((1, 15), np.float32),
    "not numbers": np.full((1, 15), np.nan),
    "columns of a variable of one dimension": np.zeros((1, 13)),
    "no blocks": np.zeros((0, 15)),
    "blocks elsewhere": np.zeros((1, 15)),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_block_table_of_another_layout(name: str, tmp_path: Path) -> None:
    """From a newer version or a foreign program: an error, and inspect_bp reports what it knows without it."""
    write_plainly(tmp_path / "run.bp", TABLES[name])
    with cz.Reader(tmp_path / "run.bp") as run, pytest.raises(cusz_core.CuszError) as caught:
        run[0].read("T")
    assert "block table" in str(caught.value)
    (block,) = cz.inspect_bp(tmp_path / "run.bp")
    assert (block["variable"], block["operator"]) == ("T", "cusz")
    assert "device" not in block or name == "blocks elsewhere"


# ------------------------------------------------------------------------------------------------ long runs

STEPS = 1000
WARM_UP = 300  # steps until buffers have reached their sizes
#: Bytes, over the 700 steps after that. Leaking one archive in every step would be 2 MiB, one block 9 MiB.
MOST_GROWTH = 1 << 20


def require_flat_memory(log: Path, ranks: int) -> None:
    for rank in range(ranks):
        lines = Path(f"{log}.rank{rank}").read_text(encoding="utf-8").splitlines()
        sizes = [int(line.split()[1]) for line in lines if line.startswith("rss")]
        assert len(sizes) == STEPS // 10
        growth = max(sizes[-10:]) - max(sizes[: WARM_UP // 10])
        print(f"{log.name}, rank {rank}: {sizes[-1]} bytes, grown by {growth} since step {WARM_UP}")
        assert growth < MOST_GROWTH


@pytest.mark.mpi
@pytest.mark.long
def test_memory_in_1000_steps(engine: str, mpirun: Callable, tmp_path: Path) -> None:
    mpirun(2, "faults.py", "steps", tmp_path / "run.bp", engine, str(STEPS), timeout=500)
    require_flat_memory(tmp_path / "run.bp", 2)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert len(run) == STEPS


@pytest.mark.mpi
@pytest.mark.long
def test_memory_in_1000_steps_of_a_stream(
    start_ranks: Callable, together: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Lorenzo, whose archives have about the same length in every step. With the default, lengths differ: a
    reader's buffers may grow once more after 600 steps, and then no more in 3000."""
    stream, log = tmp_path / "stream", tmp_path / "received"
    monkeypatch.setenv("PREDICTOR", "lorenzo")
    processes = [start_ranks(2, "faults.py", "steps", stream, "SST", str(STEPS))]
    monkeypatch.setenv("LOG", str(log))
    processes.append(start_ranks(2, "faults.py", "receive", stream, "SST"))
    together(processes, timeout=500)
    for name in (stream, log):
        assert logs(name, 1)[0][-1] == "closed"
        require_flat_memory(name, 2)
