"""`scripts/bench/choice.py`: a small run."""

import json
import sys
from pathlib import Path

import numpy as np

import support

SCRIPT = Path(__file__).parents[2] / "scripts/bench/choice.py"


def test_a_small_run(tmp_path):
    waves = np.cos(np.arange(60)[:, None, None] / 9 + np.arange(50)[:, None] / 8 + np.arange(70) / 7)
    np.save(tmp_path / "waves.npy", waves.astype(np.float32))
    np.save(tmp_path / "noise.npy", support.integers(90_000, 0, 2**16).reshape(300, 300).astype(np.float64))
    command = [sys.executable, SCRIPT, tmp_path / "waves.npy", tmp_path / "noise.npy", "--rel", "1e-2", "1e-3",
               "--repeat", "1", "--json", tmp_path / "rows.json"]  # fmt: skip
    assert len(support.run(command).stdout.splitlines()) == 4
    found = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["field"], row["rel"]) for row in found] == [
        (name, rel) for name in ("waves", "noise") for rel in (1e-2, 1e-3)
    ]
    for row in found:
        assert row["as_by_size"] == ((row["spline_over_lorenzo"] < 1) == (row["took"] == "spline"))
        assert row["auto_bytes_per_value"] == row[row["took"] + "_bytes_per_value"]
        assert row["took"] == "spline" or row["field"] == "noise"  # for which there is nothing between them
        assert (row["spline_over_lorenzo"] < 0.9) == (row["field"] == "waves")
