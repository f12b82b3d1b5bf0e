"""Some of tests/gpu, and scripts/bench/gpu.py, with the executor's device and a stand-in for CuPy: what runs on a GPU
for the first time has been run before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.simt

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def pretended(simt_environment: dict[str, str]) -> Run:
    """Runs Python where cusz_core has a device."""
    environment = {**os.environ, **simt_environment}

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, words)]
        return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    ("file", "some"),
    [
        ("test_identity.py", "(test_every_kind and (mixture or raw_tiles)) or test_damaged or test_value_range"),
        ("test_streams.py", "other_arrays or contiguous or any_value"),
        ("test_memory.py", "test_release or test_other_failures"),
    ],
)
def test_tests_of_the_gpu(pretended: Run, file: str, some: str) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-k", some]
    done = pretended("-m", "pytest", *options, TESTS / "gpu" / file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "no CUDA device" not in done.stdout


def test_measuring(pretended: Run, simt_build: Path, tmp_path: Path) -> None:
    """Small fields: every number is there, the kernels that are timed write the library's archives, and a second call
    has nothing left to do."""
    result = tmp_path / "result.json"
    fields = ["turbulence@16", "clouds@20", "orbitals@4"]
    options = ["--eb", "1e-3", "--repeat", "2", "--flush", "100000", "--json", result]
    command = [ROOT / "scripts/bench/gpu.py", *fields, *options, "--stages", simt_build / "lib/gpu_stages.so"]
    done = pretended(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(result.read_text())
    assert document["gpu"] == "executor"
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
