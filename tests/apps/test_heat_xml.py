"""apps/heat_xml: a program that knows nothing of the operator gets it from a configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo_check import count_violations

import cusz_operator
from support import fields_of_bp

pytestmark = pytest.mark.mpi

ROOT = Path(__file__).resolve().parents[2]
EB = 1e-3  # as in apps/heat_xml.xml and .yaml
GRID = (40, 36, 44)
RUN = (*GRID, 40, 20)


@pytest.fixture(scope="module")
def program() -> Path:
    """The compiled program, where scripts/setup puts it."""
    path = ROOT / "build" / "release" / "apps" / "heat_xml"
    assert path.is_file(), f"{path} is missing: run scripts/setup"
    return path


@pytest.mark.quick(1)
@pytest.mark.parametrize("config", ["heat_xml.xml", "heat_xml.yaml"])
def test_configuration_alone_compresses(
    ranks: Any, program: Path, stored_bytes: Any, tmp_path: Path, config: str
) -> None:
    ranks(3, program, tmp_path / "plain.bp", "-", *RUN)
    ranks(3, program, tmp_path / "small.bp", ROOT / "apps" / config, *RUN)
    plain, small = fields_of_bp(tmp_path / "plain.bp"), fields_of_bp(tmp_path / "small.bp")
    assert [int(step[0]) for step in small["step"]] == [0, 20, 40]
    for original, decoded in zip(plain["temperature"], small["temperature"], strict=True):
        assert original.shape == GRID
        assert original.dtype == np.float64
        assert count_violations(original, decoded, EB) == 0
        assert np.any(original != decoded)
    assert 4 * stored_bytes(tmp_path / "small.bp") < stored_bytes(tmp_path / "plain.bp")
    blocks = [b for b in cusz_operator.inspect_bp(tmp_path / "small.bp") if b["variable"] == "temperature"]
    assert [(b["step"], b["writer"]) for b in blocks] == [(step, rank) for step in range(3) for rank in range(3)]
    assert {(b["operator"], b["eb_abs"]) for b in blocks} == {("cusz", EB)}


@pytest.mark.parametrize("source", ["heat_xml.cpp", "heat_xml.f90"])
def test_source_does_not_know_the_operator(source: str) -> None:
    assert "cusz" not in (ROOT / "apps" / source).read_text().lower()


def test_fields_do_not_depend_on_the_ranks(ranks: Any, program: Path, tmp_path: Path) -> None:
    ranks(1, program, tmp_path / "one.bp", "-", *RUN)
    ranks(3, program, tmp_path / "three.bp", "-", *RUN)
    one, three = (fields_of_bp(tmp_path / f"{name}.bp")["temperature"] for name in ("one", "three"))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one, three, strict=True))


# ----------------------------------------------------------------------------------------------- heat_xml_fortran


@pytest.fixture(scope="module")
def fortran_program() -> Path:
    """The same program in Fortran."""
    path = ROOT / "build" / "release" / "apps" / "heat_xml_fortran"
    if not path.is_file():
        pytest.skip("there is no Fortran compiler, or this ADIOS2 has no Fortran (scripts/setup says which)")
    return path


@pytest.mark.quick(1)
@pytest.mark.parametrize("n", [1, 4])
def test_fortran(ranks: Any, fortran_program: Path, tmp_path: Path, n: int) -> None:
    """Column-major blocks: the bound holds with and without `order`, but without it they compress badly."""
    configs = {"plain": "-", "ordered": ROOT / "apps" / "heat_xml_fortran.xml", "row": ROOT / "apps" / "heat_xml.xml"}
    for name, config in configs.items():
        ranks(n, fortran_program, tmp_path / f"{name}.bp", config, 24, 40, 64, 20, 10)
    fields = {name: fields_of_bp(tmp_path / f"{name}.bp") for name in configs}
    for name in ("ordered", "row"):
        assert [int(step[0]) for step in fields[name]["step"]] == [0, 10, 20]
        for original, decoded in zip(fields["plain"]["temperature"], fields[name]["temperature"], strict=True):
            assert original.shape == decoded.shape == (64, 40, 24), "in C's order"
            assert original.dtype == decoded.dtype == np.float64
            assert count_violations(original, decoded, EB) == 0
            assert np.any(original != decoded)

    def archive_bytes(name: str) -> int:
        blocks = [b for b in cusz_operator.inspect_bp(tmp_path / f"{name}.bp") if b["variable"] == "temperature"]
        assert [b["kind"] for b in blocks] == ["tiled"] * (3 * n)
        return sum(b["archive_bytes"] for b in blocks)

    assert archive_bytes("ordered") * 1.5 < archive_bytes("row")


def test_fortran_computes_what_cpp_does(ranks: Any, program: Path, fortran_program: Path, tmp_path: Path) -> None:
    """Fortran's first dimension is the last one in C, and every value is in its place."""
    ranks(3, program, tmp_path / "cpp.bp", "-", *RUN)
    ranks(2, fortran_program, tmp_path / "fortran.bp", "-", *RUN)
    cpp, fortran = (fields_of_bp(tmp_path / f"{name}.bp")["temperature"] for name in ("cpp", "fortran"))
    for a, b in zip(cpp, fortran, strict=True):
        np.testing.assert_allclose(b.transpose(), a, rtol=1e-12)


# ------------------------------------------------------------------------------------------------------------ both

USAGE = "OUTPUT [CONFIG [NX NY NZ STEPS INTERVAL]]"
NOT_WHOLE = "is not a whole number from 1 to 1000000"


@pytest.mark.full
@pytest.mark.parametrize(
    ("which", "arguments", "message"),
    [
        ("program", "", f"usage: heat_xml {USAGE}"),
        ("program", "a.bp - 8 0 8 1 1", f"'0' {NOT_WHOLE}"),
        ("program", "a.bp - 1 8 8 1 1", "NX = 1 planes are fewer than the 2 ranks"),
        ("fortran_program", "", f"usage: heat_xml_fortran {USAGE}"),
        ("fortran_program", "a.bp - 8 0 8 1 1", f"'0' {NOT_WHOLE}"),
        ("fortran_program", "a.bp - 8 8,5 8 1 1", f"'8,5' {NOT_WHOLE}"),
        ("fortran_program", "a.bp - 8 8 99999999999 1 1", f"'99999999999' {NOT_WHOLE}"),
        ("fortran_program", "a.bp - 8 8 1 1 1", "NZ is smaller than the number of ranks"),
    ],
)
def test_mistakes(
    which: str, arguments: str, message: str, ranks: Any, request: pytest.FixtureRequest, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    program = request.getfixturevalue(which)
    monkeypatch.chdir(tmp_path)
    out = ranks(2, program, *arguments.split(), status=1)
    assert out.stderr.count(f"{program.name}: {message}") == 1
    assert not list(tmp_path.iterdir())
