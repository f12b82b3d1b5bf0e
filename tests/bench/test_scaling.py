"""`scaling.py` and `many_ranks.py` of scripts/bench: models, and small runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import many_ranks
import pytest
import scaling

import support

SCRIPT = Path(__file__).parents[2] / "scripts/bench/scaling.py"
SPEEDS = {"ratio": 5.0, "compress": 1e9, "decompress": 2e9}


def test_a_stream_takes_what_its_slowest_stage_takes() -> None:
    def seconds(rate: float, compressed: bool) -> float:
        return float(scaling.stream_seconds(1e9, rate, SPEEDS, compressed))

    assert [seconds(rate, False) for rate in (1e8, 1e9)] == [10.0, 1.0]
    assert [seconds(rate, True) for rate in (1e8, 1e9)] == [2.0, 1.0]


@pytest.mark.mpi
@pytest.mark.long
def test_a_small_run(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    words = ["--nodes", "1", "2", "--rates", "50", "--size", "32", "--steps", "2", "--repeat", "1", "--json", rows]
    done = support.run([sys.executable, SCRIPT, *words], status=None)
    if "NoNodesError" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    document = json.loads(rows.read_text())
    assert [(row["nodes"], row["ranks"]) for row in document["files"]] == [(1, 2), (1, 2), (2, 4), (2, 4)] * 2
    raw = 4 * 32**3
    assert [row["raw_bytes"] for row in document["files"]] == [raw] * 4 + [2 * raw] * 2 + [4 * raw] * 2
    assert [row["method"] for row in document["streams"]] == list(scaling.METHODS)
    assert all(row["step_seconds"] > 0 for row in document["files"] + document["streams"])


def test_what_many_ranks_cost(tmp_path: Path) -> None:
    pytest.importorskip("adios2")
    assert many_ranks.main(["--json", str(tmp_path / "rows.json")]) == 0
    thousand, *_, most = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert (thousand["ranks"], most["ranks"], most["tables"]) == (1000, 100_000, 391)
    assert thousand["later_exchanges"] == most["later_exchanges"] == 6
    assert most["later_network_seconds"] < 2 * thousand["later_network_seconds"]
