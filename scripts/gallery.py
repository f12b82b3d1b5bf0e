#!/usr/bin/env python3
"""Draws the pictures of gallery.md and README.md into docs/figures: fields before and after compression.

    .venv/bin/python scripts/gallery.py              # all of them: 3 minutes on one core
    .venv/bin/python scripts/gallery.py climate      # only those named

The fields come from the simulations in apps/. The title of every picture has the field, the bound and the compression
ratio of the whole field, as measured here; the colours of the error end at the bound.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

import cusz_core as cusz

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "apps"))

Array = NDArray[Any]

VALUES_OF_LINE = 400  # number shown of a one-dimensional field
DPI = 100


@dataclasses.dataclass(frozen=True)
class Picture:
    """The part of a simulation that is shown.

    Attributes:
        field: its name.
        eb: the bound, relative to the value range.
        plane: the part of the field that is drawn.
        axes: names of its axes; the last one is horizontal.
        logarithm: the colours show log10.
        make: returns the fields by name.
    """

    field: str
    eb: float
    plane: Callable[[Array], Array]
    axes: tuple[str, ...]
    make: Callable[[], dict[str, Array]]
    logarithm: bool = False


def gray_scott() -> dict[str, Array]:
    from gray_scott import fields_after

    return fields_after(1500, (128, 128, 128))


def proxy(name: str, scale: float = 1.0) -> Callable[[], dict[str, Array]]:
    return lambda: importlib.import_module(name).fields(scale)


def middle(x: Array) -> Array:
    return x[len(x) // 2]


PICTURES = {
    "gray_scott": Picture("V", 1e-2, middle, ("y", "z"), gray_scott),
    "particles": Picture("vx", 1e-3, lambda x: x[:VALUES_OF_LINE], ("particle",), proxy("particles")),
    "climate": Picture("humidity", 1e-3, lambda x: x, ("latitude", "longitude"), proxy("climate")),
    "hurricane": Picture("U", 1e-3, middle, ("y", "x"), proxy("hurricane", 2.0)),
    "cosmology": Picture("baryon_density", 1e-5, middle, ("y", "z"), proxy("cosmology", 2.0), logarithm=True),
    "orbitals": Picture("orbitals", 1e-3, lambda x: middle(x)[x.shape[1] // 2], ("y", "z"), proxy("orbitals", 1.5)),
}


def draw(name: str, picture: Picture, folder: Path) -> Path:
    """Draws one picture; its title has the measured results. Returns the path."""
    x = np.ascontiguousarray(picture.make()[picture.field])
    archive = cusz.compress(x, picture.eb, mode="rel", predictor="lorenzo")
    found = cusz.verify(x, archive)
    original, decoded = (picture.plane(each) for each in (x, cusz.decompress(archive)))
    error = decoded.astype(np.float64) - original

    is_wide = original.ndim == 1 or original.shape[1] > original.shape[0]
    figure = Figure(figsize=(12, 2.7 if is_wide else 3.9), layout="constrained")
    left, centre, right = figure.subplots(1, 3)
    titles = "original", f"decoded from {found.bit_rate:.2g} bits a value", "error"
    for axis, image, title in zip((left, centre, right), (original, decoded, error), titles, strict=True):
        axis.set_title(title)
        show(axis, image, picture, found.eb_abs if axis is right else None, original)
    shape = " x ".join(map(str, x.shape))
    figure.suptitle(
        f"{name}: {picture.field}, {shape} {x.dtype.name}. Bound {picture.eb:g} of the range, ratio {found.ratio:.1f}, "
        f"largest error {found.max_error_over_eb:.6f} of the bound, PSNR {found.psnr:.0f} dB"
    )
    return save(figure, folder / f"gallery_{name}.png")


def show(axis: Axes, image: Array, picture: Picture, bound: float | None, original: Array) -> None:
    """Draws one panel, a line or an image; with a bound, it shows errors."""
    axis.set_xlabel(picture.axes[-1])
    if image.ndim == 1:
        axis.plot(image, ".", markersize=3, color="C0" if bound is None else "C3")
        if bound is not None:
            axis.set_yticks([-bound, 0, bound], labels=["-bound", "0", "bound"])
            axis.set_ylim(-1.05 * bound, 1.05 * bound)
        return
    axis.set_ylabel(picture.axes[0])
    scale: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -(bound or 0), "vmax": bound}
    if bound is None:
        scale = {"cmap": "viridis", "norm": "log" if picture.logarithm else "linear"}
        scale |= {"vmin": original.min(), "vmax": original.max()}
    shown = axis.imshow(image, origin="lower", interpolation="nearest", **scale)
    bar = axis.figure.colorbar(shown, ax=axis, fraction=0.047 * image.shape[0] / image.shape[1], pad=0.03)
    if bound is not None:
        bar.set_ticks([-bound, 0, bound], labels=["-bound", "0", "bound"])


def save(figure: Figure, path: Path) -> Path:
    """Saves with 256 colours, at a third of the size."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=DPI)
    with Image.open(buffer) as image:
        few = image.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    colours = np.reshape(few.getpalette(), (-1, 3))
    colours[colours.min(axis=1) > 245] = 255  # the background stays white
    few.putpalette(colours.ravel().tolist())
    few.save(path, optimize=True)
    return path


def draw_spectra(folder: Path) -> Path:
    """The picture by apps/analyse.py of a run of apps/cosmology.py."""
    with tempfile.TemporaryDirectory() as work:
        files = [Path(work) / name for name in ("cosmology.bp", "exact.bp")]
        run("cosmology.py", "--grid", "64", "--eb", "1e-4", "--output", files[0], "--reference", files[1])
        run("analyse.py", *files, "--picture", folder / "gallery_spectra.png")
    return folder / "gallery_spectra.png"


def run(program: str, *arguments: str | Path) -> None:
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, ROOT / "apps" / program, *arguments]
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    names = [*PICTURES, "spectra"]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(names)} (default: all)")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "figures", help="(default: docs/figures)")
    options = parser.parse_args()
    unknown = set(options.names) - set(names)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(names)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or names:
        path = draw_spectra(options.folder) if name == "spectra" else draw(name, PICTURES[name], options.folder)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
