"""The pages of docs/, without ADIOS2: claims name existing tests, and README stays one page to start from."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLAIMS = (ROOT / "docs/reference/claims.md").read_text(encoding="utf-8")


def test_claims_name_tests_that_exist() -> None:
    named = re.findall(r"`(\w+/test_\w+\.py)`(?: \(`(test_\w+)`\))?", CLAIMS)
    assert len(named) > 20
    for file, function in named:
        path = ROOT / "tests" / file
        assert path.is_file(), file
        assert not function or f"def {function}(" in path.read_text(encoding="utf-8"), function
    for folder in re.findall(r"`(\w+/)`", CLAIMS):
        assert (ROOT / folder).is_dir() or (ROOT / "tests" / folder).is_dir(), folder


def test_every_claim_has_something_behind_it() -> None:
    rows = [line.strip("|").split("|") for line in CLAIMS.splitlines() if line.startswith("| ")]
    assert all(len(row) == 2 and re.search(r"`|\]\(", row[1]) for row in rows if row[0].strip() != "claim")


def test_readme_is_one_page_for_four_readers() -> None:
    assert len(README.splitlines()) <= 90
    (table,) = re.findall(r"^\| you are \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", README, re.MULTILINE)
    rows = table.splitlines()
    assert len(rows) == 4
    for row in rows:
        for target in re.findall(r"\]\(([^)#]+)", row):
            assert (ROOT / target).is_file(), target


def test_numbers_of_the_first_screen_are_those_of_the_benchmarks() -> None:
    """README's table is the one that scripts/bench/peers.py --summary writes to docs/benchmarks/index.md."""
    summary = (ROOT / "docs/benchmarks/index.md").read_text(encoding="utf-8")
    rows = [line for line in README.splitlines() if re.match(r"\| (SZ|zfp|SPERR)", line)]
    assert len(rows) >= 3
    for row in rows:
        name, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        (measured,) = [line for line in summary.splitlines() if line.startswith(f"| {name} |")]
        assert cells == [cell.strip() for cell in measured.strip("|").split("|")][1:], name


def test_scripts_that_pages_name_can_be_run() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"\bscripts/[\w/.]*\w", page.read_text(encoding="utf-8"))}
    scripts = [ROOT / name for name in named if (ROOT / name).is_file()]
    programs = [path for path in scripts if path.read_bytes().startswith(b"#!")]
    assert len(programs) > 20
    assert [path for path in programs if not os.access(path, os.X_OK)] == []
