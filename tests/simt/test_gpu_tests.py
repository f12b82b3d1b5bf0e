"""Runs some of tests/gpu, and scripts/bench/gpu.py, on the emulator with a stand-in for CuPy, so that they have run
before they first reach a GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from comparison import fields

pytestmark = [pytest.mark.simt, pytest.mark.full]

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def pretended(simt_environment: dict[str, str]) -> Run:
    """Runs Python with cusz_core on the emulated device."""
    environment = {**os.environ, **simt_environment}

    def run(*words: object, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, words)]
        return subprocess.run(command, env=environment | changes, cwd=ROOT, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    ("file", "some"),
    [
        (
            "test_identity.py",
            "(kinds_and_shapes and (mixture or 130 or 17)) or (test_spline and waves) or damaged or value_range"
            " or (many_fields and 200)",
        ),
        ("test_streams.py", "other_arrays or contiguous or any_value or not_current"),
        ("test_memory.py", "test_release or test_other_failures"),
    ],
)
def test_tests_of_the_gpu(pretended: Run, file: str, some: str) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-k", some]
    done = pretended("-m", "pytest", *options, TESTS / "gpu" / file, CUSZ_SIMT_DEVICES="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "SKIPPED" not in done.stdout


def test_measuring(pretended: Run, simt_build: Path, tmp_path: Path) -> None:
    """Small fields: every number is present, the timed kernels write the library's archives, and a second call has
    nothing left to do."""
    result = tmp_path / "result.json"
    fields = ["turbulence@16", "clouds@20", "orbitals@4"]
    options = ["--eb", "1e-3", "--repeat", "2", "--flush", "100000", "--json", result]
    command = [ROOT / "scripts/bench/gpu.py", *fields, *options, "--stages", simt_build / "lib/libcusz_core.so.0"]
    done = pretended(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(result.read_text())
    assert document["gpu"] == "emulator"
    assert len(document["rows"]) == 2 * len(fields)
    for row in document["rows"]:
        tiny = (row["dataset"], row["dtype"]) == ("orbitals@4", "float32")
        assert (row["violations"], row["note"]) == (0, "stored raw" if tiny else "")
        assert row["max_error_over_eb"] <= 1
        assert all(value is not None for value in row.values())
        assert len(row["stages"]) == (9 if tiny else 12)  # not those of reading
        assert f"| {row['dataset']} |" in done.stdout
    before = result.stat().st_mtime_ns
    assert pretended(*command).returncode == 0
    assert result.stat().st_mtime_ns == before
    assert pretended(*command, "turbulence@8", "--limit", "0").returncode == 3


@pytest.mark.full
def test_measuring_beside_peers(pretended: Run, simt_build: Path, tmp_path: Path) -> None:
    """Our engine in its adapter, and a stand-in for PFPL that keeps no bound: built, run, compared, reported."""
    fakes = TESTS / "fakes/peers"
    for name in [*(f"{t}_abs_{way}_gpu.cu" for t in ("f32", "f64") for way in ("comp", "decomp")), "include/a.h"]:
        source = tmp_path / "peers/PFPL/src" / name
        source.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(fakes / "pfpl.cpp", source)
    (tmp_path / "peers/PFPL/src/components").mkdir()
    nvcc = {"PATH": f"{fakes}{os.pathsep}{os.environ['PATH']}", "CUSZ_SIMT_BUILD": str(simt_build)}
    result = tmp_path / "result.json"
    folders = ["--peers", tmp_path / "peers", "--build", tmp_path / "build", "--work", tmp_path / "work"]
    options = ["--rel", "1e-3", "--repeat", "2", "--jobs", "1", "--only", "PFPL", "--json", result]
    command = [ROOT / "scripts/bench/gpu_peers.py", "turbulence@16", "clouds@20_f64", "orbitals@8", "particles_x@8x2"]
    done = pretended(*command, *folders, *options, **nvcc)
    assert done.returncode == 0, done.stdout + done.stderr

    rows = json.loads(result.read_text())["rows"]
    assert [row["tool"] for row in rows] == ["cusz_core", "PFPL"] * 4
    assert [row["dataset"] for row in rows[::2]] == ["turbulence@16", "clouds@20", "orbitals@8", "particles_x@8x2"]
    for ours, peer in zip(rows[::2], rows[1::2], strict=True):
        assert ours["eb"] == peer["eb"] == np.float32(ours["eb"])
        assert ours["rel_eb"] == 1e-3
        assert (ours["violations"], ours["note"], ours["repeat"]) == (0, "", 2)
        assert 0 < ours["max_error_over_eb"] <= 1
        assert (peer["ratio"], peer["repeat"]) == (2, 7)
        assert peer["compress_us"] == pytest.approx(6)
        assert peer["version"].startswith("sources ")
        assert f"| {ours['dataset']} |" in done.stdout
    x = np.ascontiguousarray(fields.turbulence(16))
    cut = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    errors = np.abs(x.astype(np.float64) - cut)
    assert rows[1]["violations"] == np.count_nonzero(errors > rows[1]["eb"]) > 0
    assert rows[1]["max_error_over_eb"] == pytest.approx(errors.max() / rows[1]["eb"])

    before = result.stat().st_mtime_ns
    assert pretended(*command, *folders, *options, **nvcc).returncode == 0
    assert result.stat().st_mtime_ns == before
    assert pretended(*command, "turbulence@8", *folders, *options, "--limit", "0", **nvcc).returncode == 3
