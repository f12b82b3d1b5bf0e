"""The demo's programs: the exact comparison, the parallel check, the report."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo_check import count_violations

import support

pytestmark = pytest.mark.mpi

APPS = Path(__file__).resolve().parents[2] / "apps"
EB = 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_comparison_is_exact(dtype: type[np.floating]) -> None:
    """Equals rational arithmetic, for differences exactly at the bound, or beyond it by less than a rounding error."""
    rng = np.random.default_rng(5)
    originals = rng.choice([1.0, 1.5, -2.0, 0.1, 3e-7, 0.0], 4000).astype(dtype)
    decoded = (originals + rng.choice([1, -1, 0.5, 2**-12, 0.3], 4000)).astype(dtype)
    decoded = (decoded + dtype(2) ** -rng.integers(10, 80, 4000)).astype(dtype)
    tiny = np.array([[1, -(2.0**-60)], [1, 2.0**-60], [1, 0], [-1, 2.0**-60], [2.0**-60, 1.0]], dtype)
    a, b = np.concatenate([originals, tiny[:, 0]]), np.concatenate([decoded, tiny[:, 1]])
    exact = [abs(Fraction(float(x)) - Fraction(float(y))) for x, y in zip(a, b, strict=True)]
    for eb in (1.0, 0.5, 2.0**-12, 0.3, float(np.float32(0.3)), 0.0):
        assert count_violations(a, b, eb) == sum(d > Fraction(eb) for d in exact)


def test_values_that_are_not_finite_are_compared_by_bits() -> None:
    a = np.array([np.nan, np.inf, -np.inf, 1.0, np.inf, 2.0], np.float32)
    assert count_violations(a, a.copy(), EB) == 0
    assert count_violations(a, np.array([np.inf, np.inf, np.inf, np.nan, 0.0, np.inf], np.float32), EB) == 5


@pytest.mark.full
def test_check_and_report(ranks: Any, gray_scott: Path, tmp_path: Path) -> None:
    ranks(4, gray_scott, "--size", "30x28x26", "--steps", 40, "--interval", 10, "--eb", EB, "--output",
          tmp_path / "gs.bp", "--reference", tmp_path / "reference.bp", "--summary", tmp_path / "run.json")  # fmt: skip
    files = (tmp_path / "gs.bp", tmp_path / "reference.bp")
    values = 2 * 4 * 30 * 28 * 26
    for n in (2, 3):
        out = ranks(n, APPS / "demo_check.py", *files, "--eb", EB, "--json", tmp_path / f"check_{n}.json")
        assert out.stdout == f"{n} ranks read {values} values: all keep |d - d'| <= 0.001\n"
    report = support.run([sys.executable, APPS / "demo_report.py", tmp_path])
    lines = report.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["variable", "U", "V"]
    assert lines[-1] == f"All {values} values are within the bound 0.001, read back by 2 ranks and by 3 ranks."
    assert (tmp_path / "slice.png").read_bytes().startswith(b"\x89PNG")

    # the same file against a bound other than its own
    out = ranks(2, APPS / "demo_check.py", *files, "--eb", EB / 10, "--json", tmp_path / "check_2.json", status=1)
    assert "values: " in out.stdout
    assert "break |d - d'| <= 0.0001" in out.stdout
    report = support.run([sys.executable, APPS / "demo_report.py", tmp_path], status=1)
    assert report.stdout.splitlines()[-1].startswith("FAILED: ")
