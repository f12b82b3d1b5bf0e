"""A process that a program with a Writer makes by fork leaves the Writer's file alone, and ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cusz_operator as cz

pytest.importorskip("adios2")

FORKS = """
import os, sys
import numpy as np
import cusz_operator as cz
from cusz_core.errors import ParameterError

path, engine, where, *modes = sys.argv[1:]
field = np.linspace(0, 1, 1000, dtype=np.float32).reshape(10, 100)

def enter(step):
    with step:
        pass

with cz.Writer(path, eb=1e-3, engine=engine, **dict.fromkeys(modes, True)) as out:
    step = out.step()
    for i in range(3):
        child = None
        try:
            with out.step():
                out.put("u", field + i)
                child = os.fork() if where == "within a step" else None
        except ParameterError as error:
            print(error, flush=True)
        if where == "between steps":
            step = out.step()
            child = os.fork()
        if child == 0:
            for call in (
                lambda: out.put("u", field - 7), out.step, lambda: enter(step), lambda: out.attribute("a", 1)
            ):
                try:
                    call()
                except ParameterError as error:
                    print(error, flush=True)
            out.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
"""


def require_steps(path: Path, n: int) -> None:
    with cz.Reader(path) as run:
        assert len(run) == n
        field = np.linspace(0, 1, 1000, dtype=np.float32).reshape(10, 100)
        for i, step in enumerate(run):
            assert np.abs(step.read("u") - (field + i)).max() <= 1e-3


@pytest.mark.quick(2)
@pytest.mark.parametrize("where", ["within a step", "between steps"])
@pytest.mark.parametrize(
    ("engine", "modes"),
    [
        ("BP4", []),
        ("BP4", ["overlap"]),
        *[("BP5", modes) for modes in ([], ["overlap"], ["asynchronous"], ["overlap", "asynchronous"])],
    ],
)
def test_a_child_leaves_the_file_alone(
    engine: str, modes: list[str], where: str, python: Callable, tmp_path: Path
) -> None:
    """It is told so, may close its copy of the Writer, and ends as any program does."""
    path = tmp_path / "run.bp"
    done = python(FORKS, path, engine, where, *modes, timeout=30)
    refusals = done.stdout.splitlines()
    assert len(refusals) == 3 * (5 if where == "within a step" else 4)
    assert all("belongs to process" in refusal for refusal in refusals)
    require_steps(path, 3)


OUTLIVED = """
import os, sys, time
import numpy as np
import cusz_operator as cz

out = cz.Writer(sys.argv[1], eb=1e-3)
with out.step():
    out.put("u", np.linspace(0, 1, 1000, dtype=np.float32).reshape(10, 100))
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.read()  # until the test ends
    os._exit(0)
time.sleep(600)
"""


def test_a_child_that_outlives_its_parent_does_not_lock_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    command = [sys.executable, "-c", OUTLIVED, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "forked\n"
        finally:
            parent.send_signal(signal.SIGKILL)
        parent.wait()
        with cz.Writer(path, eb=1e-3, append=True) as out, out.step():
            out.put("u", np.linspace(1, 2, 1000, dtype=np.float32).reshape(10, 100))
    require_steps(path, 2)


READS = """
import os, signal, sys, threading
import numpy as np
import cusz_operator as cz
from cusz_operator.plugin import Plugin
from cusz_operator.reading import datafiles
from cusz_operator.reading.contents import Blocks

run = cz.Reader(sys.argv[1], cache_bytes=0)
run[0].read("u")
lock = {
    "contents": run._contents._lock,
    "input": run._input._lock,
    "capture": Plugin._capture_lock,
    "files": datafiles._kept.lock,
    "blocks": getattr(Blocks.__dict__["_edges"], "lock", threading.Lock()),  # before Python 3.12
}[sys.argv[2]]
is_held, may_go_on = threading.Event(), threading.Event()

def hold():
    with lock:
        is_held.set()
        may_go_on.wait(0.2)

thread = threading.Thread(target=hold)
thread.start()
is_held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    field = np.linspace(0, 1, 1000, dtype=np.float32).reshape(10, 100)
    right = np.abs(run[1].read("u") - field - 1).max() <= 1e-3 and (run[1].read("n") == 7).all()
    with cz.Reader(sys.argv[1]) as own:
        right = right and np.abs(own[0].read("u") - field).max() <= 1e-3
    os._exit(0 if right else 1)
assert os.waitpid(child, 0)[1] == 0
thread.join()
run[1].read("u"), run[1].read("n")
"""


@pytest.mark.parametrize("lock", ["contents", "input", "capture", "files", "blocks"])
def test_a_child_reads_while_threads_of_its_parent_read(
    lock: str, engine: str, python: Callable, tmp_path: Path
) -> None:
    """A lock that another thread holds while the process forks is free in the child."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=engine) as out:
        for i in range(2):
            with out.step():
                out.put("u", np.linspace(0, 1, 1000, dtype=np.float32).reshape(10, 100) + np.float32(i))
                out.put("n", np.full((10, 100), 7))
    python(READS, tmp_path / "run.bp", lock, timeout=60)


@pytest.mark.parametrize("ends", ["sys.exit()", "raise ValueError"])
def test_a_child_that_ends_closes_nothing_for_the_ranks(ends: str) -> None:
    program = f"""
import os, sys
from cusz_operator import ranks

class Opened:
    pass

opened = Opened()
ranks.close_at_exit(opened, lambda *_: print("closed by", os.getpid(), flush=True))
child = os.fork()
if child == 0:
    {ends}
os.waitpid(child, 0)
print("parent", os.getpid(), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    parent, closed = done.stdout.splitlines()
    assert closed.split()[-1] == parent.split()[-1]
