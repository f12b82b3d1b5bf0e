"""The pictures of scripts/gallery.py."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import support

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import gallery  # noqa: E402


@pytest.mark.parametrize("shape", [(1000,), (30, 60), (12, 40, 30), (3, 8, 20, 20)])
@pytest.mark.parametrize("logarithm", [False, True])
def test_a_picture(shape: tuple[int, ...], logarithm: bool, tmp_path: Path) -> None:
    field = support.smooth(shape, support.F32)
    field = field - field.min() + np.float32(0.1)
    plane = {1: lambda x: x[:400], 2: lambda x: x, 3: gallery.middle, 4: lambda x: x[0, 0]}[len(shape)]
    axes = ("particle",) if len(shape) == 1 else ("y", "z")
    picture = gallery.Picture("U", 1e-3, plane, axes, lambda: {"U": field}, logarithm)
    path = gallery.draw("test", picture, tmp_path)
    with Image.open(path) as image:
        assert image.width == 12 * gallery.DPI
        assert len(np.unique(np.asarray(image))) > 20


def test_every_simulation_has_a_picture_that_is_shown() -> None:
    simulations = {"gray_scott", "particles", "climate", "hurricane", "cosmology", "orbitals"}
    assert set(gallery.PICTURES) == simulations
    shown = re.findall(r"figures/gallery_(\w+)\.png", (ROOT / "docs/benchmarks/gallery.md").read_text(encoding="utf-8"))
    assert set(shown) == simulations | {"spectra"}
    for name in shown:
        assert (ROOT / "docs" / "figures" / f"gallery_{name}.png").stat().st_size < 300_000


def test_the_field_of_a_simulation(tmp_path: Path) -> None:
    particles = dataclasses.replace(gallery.PICTURES["particles"], make=gallery.proxy("particles", 0.25))
    assert particles.make()["vx"].shape == (12**3,)
    assert gallery.draw("particles", particles, tmp_path).is_file()


def test_unknown_names_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gallery.py", "climat"])
    with pytest.raises(SystemExit):
        gallery.main()
    assert "climat: choose from gray_scott, particles" in capsys.readouterr().err
