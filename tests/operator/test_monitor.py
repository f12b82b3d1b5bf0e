"""apps/insitu_monitor.py, coupled with ranks that write."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

APP = Path(__file__).resolve().parents[2] / "apps" / "insitu_monitor.py"

pytest.importorskip("adios2")
pytestmark = pytest.mark.mpi


def check(folder: Path, steps: int, name: str) -> None:
    from cases import values
    from layer import bound

    with open(folder / "statistics.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["variable"] == name]
    assert [int(row["step"]) for row in rows] == list(range(steps))
    for row in rows:
        step = int(row["step"])
        x, eb = values(name, step).astype(np.float64), bound(name, step)
        assert float(row["error_bound"]) == eb
        assert int(row["values"]) == x.size
        for what, exact in [("min", x.min()), ("max", x.max()), ("mean", x.mean())]:
            assert abs(float(row[what]) - exact) <= eb, what
        # No deviation changes by more than the values do.
        assert abs(float(row["std"]) - x.std()) <= eb
        assert float(row["ratio"]) > 1
        assert (folder / f"{name}_{step:05}.png").stat().st_size > 5000


def test_a_stream(start_ranks: Callable, together: Callable, tmp_path: Path) -> None:
    stream = str(tmp_path / "stream")
    writing = start_ranks(2, "layer_write.py", stream, "SST")
    watching = start_ranks(3, str(APP), stream, "--variable", "u3_spline", "--out", str(tmp_path / "seen"))
    together([writing, watching])
    check(tmp_path / "seen", 3, "u3_spline")


def test_a_file(mpirun: Callable, tmp_path: Path) -> None:
    mpirun(2, "layer_write.py", tmp_path / "run.bp", "BP5")
    mpirun(2, str(APP), tmp_path / "run.bp", "--engine", "BP5", "--variable", "u3", "--out", tmp_path / "seen")
    check(tmp_path / "seen", 3, "u3")


@pytest.mark.full
def test_no_stream(mpirun: Callable, tmp_path: Path) -> None:
    command = (str(APP), tmp_path / "nothing", "--out", tmp_path / "seen", "--wait", "1")
    done = mpirun(2, *command, check=False, timeout=60)
    assert done.returncode != 0
    assert "insitu_monitor: rank" in done.stderr
