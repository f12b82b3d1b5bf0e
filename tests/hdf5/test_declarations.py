"""The filter's own declarations of HDF5 functions match HDF5's headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import run

HERE = Path(__file__).parent
FILTER = HERE.parents[1] / "cusz_core/hdf5"


def test_declarations(tmp_path: Path, require_tool) -> None:
    compiler = require_tool("h5c++", "libhdf5-dev")
    run([compiler, "-std=c++20", "-Wall", "-c", "-I", FILTER, "-o", tmp_path / "x.o", HERE / "declarations.cpp"])


@pytest.mark.parametrize(
    ("ours", "changed"),
    [
        ("constexpr unsigned flag_reverse = 0x0100", "constexpr unsigned flag_reverse = 0x0200"),
        ("unsigned decoder_present;", ""),
        ("using hid_t = std::int64_t", "using hid_t = std::int32_t"),
    ],
)
def test_a_difference_is_found(tmp_path: Path, require_tool, ours: str, changed: str) -> None:
    compiler = require_tool("h5c++", "libhdf5-dev")
    text = (FILTER / "hdf5.hpp").read_text()
    assert ours in text
    (tmp_path / "hdf5.hpp").write_text(text.replace(ours, changed))
    (tmp_path / "declarations.cpp").write_text((HERE / "declarations.cpp").read_text())
    command = [compiler, "-std=c++20", "-c", "-o", tmp_path / "x.o", tmp_path / "declarations.cpp"]
    result = run(command, status=None)
    assert result.returncode != 0
    assert "static assertion failed" in result.stderr or "has no member" in result.stderr
