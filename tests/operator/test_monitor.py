"""apps/insitu_monitor.py, coupled to ranks that write."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import support

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
        # The standard deviation changes by no more than the values do.
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


def test_whatever_is_in_a_file(mpirun: Callable, tmp_path: Path) -> None:
    """Arrays of real numbers of any name are watched; single values, texts and complex numbers are left out."""
    field = np.linspace(0, 1, 4096, dtype=np.float32).reshape(16, 16, 16)
    others = {"time": 0.1, "step": 7, "title": "a run", "wave": np.exp(1j * field)}
    arrays = {"level0/rho": field, "count": np.arange(12).reshape(3, 4), "mask": field > 0.5}
    support.write_run(tmp_path / "run.bp", {**others, **arrays}, eb=1e-3)
    command = (str(APP), tmp_path / "run.bp", "--engine", "BP5", "--out", tmp_path / "seen")
    mpirun(2, *command, timeout=60)
    with open(tmp_path / "seen" / "statistics.csv", newline="") as file:
        rows = {row["variable"]: row for row in csv.DictReader(file)}
    assert sorted(rows) == ["count", "level0/rho", "mask"]
    assert (float(rows["count"]["max"]), float(rows["count"]["error_bound"])) == (11, 0)
    assert float(rows["mask"]["mean"]) == (field > 0.5).mean()
    pictures = sorted(path.name for path in (tmp_path / "seen").glob("*.png"))
    assert pictures == [f"{name}_00000.png" for name in ("count", "level0_rho", "mask")]

    done = mpirun(2, *command, "--variable", "wave", check=False, timeout=60)
    assert done.returncode != 0
    assert "variable 'wave' is not an array of real numbers" in done.stderr


def test_a_fault_of_one_rank_ends_all(mpirun: Callable, tmp_path: Path) -> None:
    """Here Matplotlib fails, which only rank 0 uses; the others would wait for it."""
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise RuntimeError('out of order')\n", "utf-8")
    mpirun(2, "layer_write.py", tmp_path / "run.bp", "BP5")
    command = (str(APP), tmp_path / "run.bp", "--engine", "BP5", "--variable", "u3", "--out", tmp_path / "seen")
    done = mpirun(2, *command, env={"PYTHONPATH": str(tmp_path)}, check=False, timeout=60)
    assert done.returncode != 0
    assert "RuntimeError: out of order" in done.stderr


@pytest.mark.full
def test_no_stream(mpirun: Callable, tmp_path: Path) -> None:
    command = (str(APP), tmp_path / "nothing", "--out", tmp_path / "seen", "--wait", "1")
    done = mpirun(2, *command, check=False, timeout=60)
    assert done.returncode != 0
    assert "insitu_monitor: rank" in done.stderr
