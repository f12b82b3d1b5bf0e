"""`scripts/bench/bound_campaign.py`: its check finds violations, and a short campaign finds none."""

import re
from fractions import Fraction

import bound_campaign as campaign
import numpy as np
import pytest


def test_there_are_ten_thousand_cells_and_more():
    cells = campaign.cells()
    assert len(cells) >= 10_000
    assert len({(c.kind, c.dtype, c.shape, c.bound, c.mode) for c in cells}) == len(cells)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_check_is_exact(dtype):
    """Compared with rational numbers, at and around the bound."""
    x = np.repeat(np.array([0.1, 1.0, 1e10, 3.7e-5], dtype), 9)
    y = x.copy()
    for n in range(9):
        y[n::9] = np.nextafter(x[n::9] + dtype(0.1) * x[n::9], dtype(np.inf if n % 2 else -np.inf), dtype=dtype)
        for _ in range(n):
            y[n::9] = np.nextafter(y[n::9], dtype(np.inf), dtype=dtype)
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        for bound in {abs(a - b), np.nextafter(abs(a - b), 0.0), np.nextafter(abs(a - b), 1e300), 0.1 * a}:
            wanted = abs(Fraction(a) - Fraction(b)) > Fraction(float(bound))
            found = campaign.beyond(np.array([a], dtype), np.array([b], dtype), float(bound), None)
            assert found.tolist() == [wanted], (a, b, bound)


def test_what_has_to_come_back_exactly():
    x = np.array([np.nan, np.inf, 1e20, 5.0, 0.0], np.float32)
    assert not campaign.beyond(x, x, 1.0, 1e20).any()
    y = np.array([np.inf, 1e30, 1.5e20, np.nan, -0.0], np.float32)
    assert campaign.beyond(x, y, 1e30, 1e20).tolist() == [True, True, True, True, False]
    assert campaign.beyond(x[4:], y[4:], 0.0, None).tolist() == [True]


def test_one_cell_in_forty_has_no_value_beyond_its_bound(capsys):
    assert campaign.main(["--every", "40"]) == 0
    said = capsys.readouterr().out
    assert "288 cells" in said
    for name in campaign.OURS:
        assert f"| {name} | 288 | 0 | 0 | 0 | 0 |" in said
    pyramids = re.findall(r"^(\d+) archives of cusz spline hold a pyramid", said, re.MULTILINE)
    assert int(*pyramids) > 150


def test_other_bytes_are_found():
    cell = next(cell for cell in campaign.cells(7) if cell.kind == "smooth" and cell.bound == "1e-2")
    for predictor in campaign.OURS.values():
        assert campaign.ours(cell, predictor, ()).note == ""
        assert "another instruction set" in campaign.ours(cell, predictor, ("0123",)).note
