"""Facts of the format are written down once, in cusz_core/src/archive; all other code includes that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "cusz_core" / "src"
#: How facts of the format would look if they were written down a second time.
SECOND_HOMES = [
    r"\bheader(\.word)?\s*(>>|&)(?!&)",  # fields of a tile header by shifts
    r"\b1048575\b|\b0xFFFFF\b",  # the largest code
    r"\b(n_classes|max_lanes|max_group_points|n_symbols|tiles_of_unit|least_with_flags)\s*=\s*\d",
    r"\b(rans_bits|n_places|n_tables|n_group_contexts|max_values_of_small_lattices|max_tile_values)\s*=\s*-?[\d(]",
    r"\b(second_order_xyz?|tile_special|tile_raw|widest_length)\s*=\s*\d",
    r"0x(63|75|53|5A|C5), *0x(63|75|53|5A|C5)",  # the magic bytes
    r"\b(put|get)\s*(<[^>]*>)?\s*\([^;]*,\s*(4[0-9]|5[0-9]|10[4-9]|11[0-9]|12[0-7])\s*[,)]",  # offsets in headers
]


@pytest.mark.parametrize("pattern", SECOND_HOMES)
def test_facts_of_the_format_are_in_one_place(pattern: str) -> None:
    files = [path for path in SRC.rglob("*.*") if SRC / "archive" not in path.parents]
    assert len(files) > 80
    found = [
        f"{path.relative_to(SRC)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not found


def test_the_patterns_find_something() -> None:
    """They must fit this code: each one matches something in the archive folder, or the example below."""
    archive = "\n".join(path.read_text() for path in (SRC / "archive").rglob("*.*pp"))
    former = "if ((header >> 4 & 1) != 0) put(header, 104, n);"
    assert all(re.search(pattern, archive + "\n" + former) for pattern in SECOND_HOMES)
