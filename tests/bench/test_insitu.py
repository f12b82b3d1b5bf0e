"""`scripts/bench/insitu.py`: a small run of all of it."""

import json
import math
import os
import re
import sys
from pathlib import Path

import in_ranks
import insitu
import pytest

import support

SCRIPTS = Path(__file__).parents[2] / "scripts/bench"


@pytest.mark.parametrize("n", [1, 2, 97, 400, 1000, 10_000, 27_000])
def test_grid_of(n):
    assert math.prod(in_ranks.grid_of(n)) == n


@pytest.fixture
def measure(tmp_path):
    """Runs a script of scripts/bench with one repetition; returns the rows that it writes and what it prints. It may
    use only tmp_path, and must remove its files there."""

    def measure(script, *options):
        rows = tmp_path / "rows.json"
        command = [sys.executable, SCRIPTS / script, *options, "--repeat=1", "--json", rows, "--tmpfs", tmp_path]
        shown = support.run(command, timeout=400).stdout
        assert os.listdir(tmp_path) == ["rows.json"]
        return json.loads(rows.read_text()), shown

    return measure


@pytest.mark.mpi
@pytest.mark.long
def test_a_small_run(measure, tmp_path):
    rows, shown = measure("insitu.py", "--size=40", "--work=1", "--disk", tmp_path)
    assert [(row["ranks"], row["where"], row["work"], row["method"]) for row in rows["write"]] == [
        (ranks, *case, method) for ranks in (1, 2, 4) for case in insitu.CASES for method in insitu.METHODS
    ]
    for row in rows["write"]:
        assert row["raw_bytes"] == row["ranks"] * 4 * 40**3
        assert (row["stored_bytes"] < row["raw_bytes"] / 2) == (row["method"] != "ADIOS2 alone")
    assert [(row["ranks"], row["threads"]) for row in rows["read"]] == [(1, 1)] * 2 + [(1, 2)] * 2 + [(2, 1)] * 2 + [
        (4, 1)
    ] * 2
    assert len(re.findall(r"^## ", shown, flags=re.MULTILINE)) == 2


@pytest.mark.mpi
@pytest.mark.long
def test_a_small_profile(measure):
    rows = measure("writer_profile.py", "--size=40", "--blocks=30")[0]["rows"]
    assert [(row["ranks"], row["blocks"]) for row in rows] == [(ranks, n) for ranks in (1, 2) for n in (1, 1, 30, 30)]
    for row in rows:
        assert {"whole", "compress", "bytes", "compressing"} < row["seconds"].keys(), "the step, others, and its parts"
        assert all(seconds > 0 for seconds in row["seconds"].values())


@pytest.mark.mpi
@pytest.mark.long
def test_a_small_run_of_an_amr_code(measure):
    document, _ = measure("amr.py", "--size=64", "--blocks=20", "--of-file=64")
    rows = document["rows"]
    assert [(row["ranks"], row["blocks"]) for row in document["read"]] == [(ranks, 64) for ranks in (1, 2, 4, 8)]
    assert all(row["bytes"] > row["metadata_bytes"] > 0 for row in document["read"])
    assert all(row["memory_bytes"] > 0 for row in document["read"])
    assert [(row["ranks"], row["cells"], row["blocks"]) for row in rows] == [
        (ranks, cells, 20) for ranks in (1, 2) for cells in (16, 32)
    ]
    for row in rows:
        raw = 4 * row["cells"] ** 3
        assert row["bytes"]["ADIOS2 alone"] > raw > 2 * max(row["bytes"]["operator"], row["bytes"]["Writer"])
