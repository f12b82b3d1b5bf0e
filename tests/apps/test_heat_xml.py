"""apps/heat_xml: a program that does not know the operator gains it by a configuration file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.mpi

ROOT = Path(__file__).resolve().parents[2]
EB = 1e-3  # as in apps/heat_xml.xml and .yaml
GRID = (40, 36, 44)
RUN = (*GRID, 40, 20)


@pytest.fixture(scope="module")
def program() -> Path:
    """The compiled program, where scripts/setup leaves it."""
    path = ROOT / "build" / "release" / "apps" / "heat_xml"
    assert path.is_file(), f"{path} is missing: run scripts/setup"
    return path


@pytest.mark.parametrize("config", ["heat_xml.xml", "heat_xml.yaml"])
def test_configuration_alone_compresses(
    ranks: Any,
    program: Path,
    app_module: Callable[[str], ModuleType],
    read_bp: Any,
    stored_bytes: Any,
    tmp_path: Path,
    config: str,
) -> None:
    import cusz_operator

    env = {"ADIOS2_PLUGIN_PATH": str(cusz_operator.plugin_path())}
    ranks(3, program, tmp_path / "plain.bp", "-", *RUN)
    ranks(3, program, tmp_path / "small.bp", ROOT / "apps" / config, *RUN, env=env)
    plain, small = read_bp(tmp_path / "plain.bp"), read_bp(tmp_path / "small.bp")
    assert [int(step[0]) for step in small["step"]] == [0, 20, 40]
    violations = app_module("demo_check").count_violations
    for original, decoded in zip(plain["temperature"], small["temperature"], strict=True):
        assert original.shape == GRID
        assert original.dtype == np.float64
        assert violations(original, decoded, EB) == 0
        assert np.any(original != decoded)
    assert 4 * stored_bytes(tmp_path / "small.bp") < stored_bytes(tmp_path / "plain.bp")


def test_source_does_not_know_the_operator() -> None:
    assert "cusz" not in (ROOT / "apps" / "heat_xml.cpp").read_text().lower()


def test_fields_do_not_depend_on_the_ranks(ranks: Any, program: Path, read_bp: Any, tmp_path: Path) -> None:
    ranks(1, program, tmp_path / "one.bp", "-", *RUN)
    ranks(3, program, tmp_path / "three.bp", "-", *RUN)
    one, three = (read_bp(tmp_path / f"{name}.bp")["temperature"] for name in ("one", "three"))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one, three, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: heat_xml OUTPUT [CONFIG [NX NY NZ STEPS INTERVAL]]"),
        (["a.bp", "-", "8", "0", "8", "1", "1"], "'0' is not a whole number from 1 to 1000000"),
        (["a.bp", "-", "1", "8", "8", "1", "1"], "NX = 1 planes are fewer than the 2 ranks"),
    ],
)
def test_mistakes(
    ranks: Any, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    out = ranks(2, program, *arguments, status=1)
    assert out.stderr.count(f"heat_xml: {message}") == 1
    assert not list(tmp_path.iterdir())
