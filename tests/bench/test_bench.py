"""`cusz bench`: what it measures and writes."""

import csv
import functools
import json
import math
import time

import numpy as np
import pytest

import cusz_core as cusz
import support
from cusz_core import bench, verification

X = support.smooth((12, 20, 30), support.F32)


@pytest.fixture
def run(tmp_path, monkeypatch, cusz_cli):
    """Runs `cusz bench`; returns (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "_SHORT", 1e-9)
    np.save("x.npy", X)

    return functools.partial(cusz_cli, "bench")


@pytest.mark.parametrize("mode", ["rel", "abs"])
def test_what_is_measured(run, tmp_path, mode, dtype):
    x = X.astype(dtype)
    x[0, 0, :5] = [np.nan, np.inf, -np.inf, 1e20, 1e20]
    np.save("x.npy", x)
    words = ["--mode", mode, "--eb", 1e-2, 1e-4, "--fill", 1e20, "--repeat", 2, "--json", "b.json", "--csv", "b.csv"]
    code, out, err = run("x.npy", *words)
    assert (code, err) == (0, "")
    document = json.loads((tmp_path / "b.json").read_text())
    assert document["head"]["repeat"] == 2
    rows = document["rows"]
    assert [(row["eb"], row["threads"]) for row in rows] == [(1e-2, 1), (1e-2, 2), (1e-4, 1), (1e-4, 2)]
    for row in rows:
        checked = cusz.verify(x, cusz.compress(x, row["eb"], mode, fill=1e20))
        for name in ("eb_abs", "ratio", "bit_rate", "psnr", "max_error_over_eb", "mode"):
            assert row[name] == getattr(checked, name)
        assert (row["dataset"], row["shape"], row["dtype"]) == ("x", [12, 20, 30], x.dtype.name)
        assert row["compress_mbps"] > 0 < row["decompress_mbps"]
    with open("b.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["shape"], float(line["ratio"])) for line in lines] == [("12x20x30", row["ratio"]) for row in rows]
    head, *shown = out.splitlines()
    assert "compress MB/s" in head
    assert [line.split()[:4] for line in shown] == [
        ["x", f"{row['eb']:g}", str(row["threads"]), f"{row['ratio']:.6g}"] for row in rows
    ]


def test_cast(run, tmp_path):
    assert run("x.npy", "--eb", 1e-3, "--threads", 1, "--dtype", "f64", "--json", "b.json")[0] == 0
    (row,) = json.loads((tmp_path / "b.json").read_text())["rows"]
    assert row["dtype"] == "float64"


def test_calls_are_repeated_until_they_take_long_enough(monkeypatch):
    now = iter(np.arange(100.0))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(bench, "_SHORT", 3.0)
    called = []
    assert bench._seconds(lambda: called.append(True)) == 1.0
    assert len(called) == 3


def test_a_broken_bound_is_an_error(run, monkeypatch):
    def broken(x, archive, **_):
        raise cusz.BoundError("7 of 7200 values break the bound")

    monkeypatch.setattr(verification, "verify", broken)
    code, out, err = run("x.npy")
    assert (code, out) == (1, "")
    assert "7 of 7200 values break the bound" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "FIELD"),
        (["turbulence"], "turbulence is not a .npy file (scripts/bench/compare.py has generated fields)"),
        (["nowhere.npy"], "No such file"),
        (["x.npy", "--repeat", 0], "--repeat is 0"),
        (["x.npy", "--threads", 0], "threads is 0"),
        (["x.npy", "--eb", -1], "eb is -1"),
        (["x.npy", "--json", "nowhere/b.json"], "there is no folder nowhere"),
        (["x.npy", "--csv", "."], "--csv is a folder: ."),
        (["x.npy", "missing.npy"], "No such file or directory: missing.npy"),
    ],
)
def test_mistakes(run, words, message, monkeypatch):
    """They are found before anything is measured."""
    monkeypatch.setattr(bench, "_measure", None)
    code, out, err = run(*words)
    assert code in (1, 2)
    assert out == ""
    assert message in err


def test_speed_is_that_of_raw_bytes(run, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "_median_seconds", lambda call, repeat: 1e-3)
    assert run("x.npy", "--eb", 1e-3, "--threads", 1, "--json", "b.json")[0] == 0
    (row,) = json.loads((tmp_path / "b.json").read_text())["rows"]
    assert math.isclose(row["compress_mbps"], X.nbytes / 1e3)
