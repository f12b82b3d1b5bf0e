"""A file has one Writer at a time: what others are told, and when it is free again."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_operator as cz
from cusz_core.errors import CuszError
from cusz_operator.tables import checks

pytest.importorskip("adios2")

FIELD = np.linspace(0, 1, 1000, dtype=np.float32).reshape(10, 100)
ANOTHER = "another Writer has it open"


def write(out: cz.Writer) -> None:
    with out.step():
        out.put("u", FIELD)


def steps(path: Path) -> int:
    with cz.Reader(path) as run:
        for step in run:
            assert np.abs(step.read("u") - FIELD).max() <= 1e-3
        return len(run)


@pytest.mark.parametrize("engine", ["BP5", "BP4"])
def test_a_second_writer_is_refused_and_the_first_goes_on(engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    with cz.Writer(path, eb=1e-3, engine=engine) as first:
        for append in (False, True):
            with pytest.raises(CuszError, match=ANOTHER):
                cz.Writer(path, eb=1e-3, engine=engine, append=append)
            write(first)
    assert steps(path) == 2
    with cz.Writer(path, eb=1e-3, engine=engine, append=True) as second:
        write(second)
    assert steps(path) == 3


def test_a_writer_that_is_dropped_or_cannot_be_opened_claims_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    with pytest.raises(CuszError):
        cz.Writer(path, eb=1e-3, parameters={"NumAggregators": "many"})
    out = cz.Writer(path, eb=1e-3)
    write(out)
    with pytest.raises(KeyboardInterrupt), out:
        raise KeyboardInterrupt
    with cz.Writer(path, eb=1e-3) as again:
        write(again)
    assert steps(path) == 1


OTHER = """
import sys, time
import numpy as np, cusz_operator as cz
out = cz.Writer(sys.argv[1], eb=1e-3)
with out.step():
    out.put("u", np.linspace(0, 1, 1000, dtype=np.float32).reshape(10, 100))
print("written", flush=True)
time.sleep(600)
"""


def test_a_job_that_has_not_ended_and_one_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    with subprocess.Popen([sys.executable, "-c", OTHER, str(path)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "written\n"
            with pytest.raises(CuszError, match=ANOTHER):
                cz.Writer(path, eb=1e-3, append=True)
        finally:
            other.send_signal(signal.SIGKILL)
    with cz.Writer(path, eb=1e-3, append=True) as out:
        write(out)
    assert steps(path) == 2


def test_processes_that_were_forked_keep_nothing_from_it(tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    out = cz.Writer(path, eb=1e-3)
    write(out)
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(begin)
        os.read(end, 1)  # until the parent closes it
        os._exit(0)
    try:
        out.close()
        with cz.Writer(path, eb=1e-3, append=True) as again:
            write(again)
    finally:
        os.close(begin)
        os.close(end)
        os.waitpid(child, 0)
    assert steps(path) == 2


def test_checksums_end_when_another_file_takes_the_place_of_metadata(tmp_path: Path) -> None:
    recorder = checks.Recorder(tmp_path, 0)
    for step, size in enumerate((100, 10, 200)):
        (tmp_path / "md.0").write_bytes(bytes(size))
        recorder.record(step)
    recorder.close()
    assert (tmp_path / checks.CHECKS_FILE).read_bytes().count(b"\n") == 1


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    path, moved = tmp_path / "run.bp", tmp_path / "moved.bp"
    with cz.Writer(path, eb=1e-3) as out:
        write(out)
    assert steps(path) == 1
    out = cz.Writer(path, eb=1e-3)
    write(out)
    path.rename(moved)
    path.mkdir()
    for use in (lambda: write(out), out.close):
        with pytest.raises(CuszError, match="the folder was removed, renamed or replaced"):
            use()
    assert steps(moved) == 1
