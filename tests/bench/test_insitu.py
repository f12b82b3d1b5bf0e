"""`scripts/bench/insitu.py`: a small run of all of it."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import in_ranks
import insitu
import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/bench/insitu.py"


@pytest.mark.parametrize("n", [1, 2, 97, 400, 1000, 10_000, 27_000])
def test_grid_of(n):
    assert math.prod(in_ranks.grid_of(n)) == n


@pytest.mark.mpi
@pytest.mark.long
def test_a_small_run(tmp_path):
    command = [sys.executable, SCRIPT, "--size", "40", "--repeat", "1", "--blocks", "60", "--work", "1", "--json",
               tmp_path / "rows.json", "--tmpfs", tmp_path, "--disk", tmp_path]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["ranks"], row["method"]) for row in rows["write"] if row["where"] == "disk"] == [
        (ranks, method) for ranks in (1, 2, 4) for method in insitu.METHODS
    ]
    for row in rows["write"]:
        assert row["raw_bytes"] == row["ranks"] * 4 * 40**3
        assert (row["stored_bytes"] < row["raw_bytes"] / 2) == (row["method"] != "ADIOS2 alone")
    assert [(row["ranks"], row["threads"]) for row in rows["read"]] == [(1, 1)] * 2 + [(1, 2)] * 2 + [(2, 1)] * 2 + [
        (4, 1)
    ] * 2
    assert [row["blocks"] for row in rows["blocks"]] == [60] * 3
    assert len(re.findall(r"^## ", done.stdout, flags=re.MULTILINE)) == 4
    assert os.listdir(tmp_path) == ["rows.json"]


@pytest.mark.mpi
@pytest.mark.long
def test_a_small_run_with_overlap(tmp_path):
    command = [sys.executable, SCRIPT.with_name("overlap.py"), "--size", "40", "--repeat", "1", "--steps", "2",
               "--work", "2", "--json", tmp_path / "rows.json", "--tmpfs", tmp_path]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["ranks"], row["work"]) for row in rows] == [
        (ranks, work) for ranks in (1, 2, 4) for work in ("on these cores", "elsewhere")
    ]
    for row in rows:
        assert list(row["methods"]) == ["ADIOS2 alone", "Writer", "Writer, overlap"]
    assert os.listdir(tmp_path) == ["rows.json"]


@pytest.mark.mpi
@pytest.mark.long
def test_a_small_profile(tmp_path):
    command = [sys.executable, SCRIPT.with_name("writer_profile.py"), "--size", "40", "--repeat", "1", "--blocks", "30",
               "--json", tmp_path / "rows.json", "--tmpfs", tmp_path]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["ranks"], row["blocks"]) for row in rows] == [(ranks, n) for ranks in (1, 2) for n in (1, 1, 30, 30)]
    for row in rows:
        whole, *_ = (row["seconds"].pop(name) for name in ("whole", "compress", "bytes"))
        assert 0.3 * whole < sum(row["seconds"].values()) < 3 * whole, "medians of parts need not add up"
    assert os.listdir(tmp_path) == ["rows.json"]


@pytest.mark.mpi
@pytest.mark.long
def test_a_small_run_of_an_amr_code(tmp_path):
    command = [sys.executable, SCRIPT.with_name("amr.py"), "--size", "64", "--repeat", "1", "--blocks", "20",
               "--of-file", "64", "--json", tmp_path / "rows.json", "--tmpfs", tmp_path]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "rows.json").read_text())
    rows = document["rows"]
    assert [(row["ranks"], row["blocks"]) for row in document["read"]] == [(ranks, 64) for ranks in (1, 2, 4, 8)]
    assert all(row["bytes"] > row["metadata_bytes"] > 0 for row in document["read"])
    assert [(row["ranks"], row["cells"], row["blocks"]) for row in rows] == [
        (ranks, cells, 20) for ranks in (1, 2) for cells in (16, 32)
    ]
    for row in rows:
        raw = 4 * row["cells"] ** 3
        assert row["bytes"]["ADIOS2 alone"] > raw > 2 * max(row["bytes"]["operator"], row["bytes"]["Writer"])
    assert os.listdir(tmp_path) == ["rows.json"]
