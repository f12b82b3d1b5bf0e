"""scripts/bench/blocks.py: which blocks it measures, and what it reports."""

from __future__ import annotations

import blocks
import numpy as np
import pytest


@pytest.mark.parametrize(
    ("shape", "edge", "wanted"),
    [
        ((5000,), 8, (512,)),
        ((100, 200), 8, (16, 32)),
        ((300, 300), 16, (64, 64)),
        ((30, 40, 50), 8, (8, 8, 8)),
        ((3, 40, 40, 40), 16, (1, 16, 16, 16)),
        ((5, 40, 50), 8, (5, 8, 8)),
    ],
)
def test_blocks_are_all_over_the_field(shape: tuple[int, ...], edge: int, wanted: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape)).reshape(shape)
    found = list(blocks.blocks_of(x, edge, 6))
    assert {block.shape for block in found} == {wanted}
    assert 2 <= len(found) <= 6
    values = np.concatenate([block.ravel() for block in found])
    assert len(np.unique(values)) == len(values)
    assert values[0] == 0
    assert values[-1] > x.size / 2


def test_a_table_of_means() -> None:
    rows = [
        {"field": "a", "edge": 8, "eb": 1e-2, "blocks": 4, "bytes": 1.0, "compress": 4.0, "decompress": 1.0},
        {"field": "b", "edge": 8, "eb": 1e-2, "blocks": 4, "bytes": 4.0, "compress": 1.0, "decompress": 1.0},
    ]
    text = blocks.told({"head": {"date": "2026-01-01T00:00", "cpu": "P", "cores": 2}, "rows": rows})
    assert "| 8^3 | 2.00 | 2.00 | 1.00 | 1.00 (a, 0.01) |" in text
    assert "2 fields" in text
    assert "P, 2 cores" in text
