#!/usr/bin/env python3
"""Draws a slice through the densities of both levels that apps/amr wrote, and the boxes of the finer one.

    python apps/amr_slice.py run.bp [-o slice.png] [--step -1]

Only the tiles that the slice crosses are decoded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.patches import Rectangle

import cusz_operator as cz


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help=".bp folder")
    parser.add_argument("-o", "--output", type=Path, default=Path("slice.png"))
    parser.add_argument(
        "--step", type=int, default=-1, help="its number in the file; negative from the end (default: -1)"
    )
    options = parser.parse_args()
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
    with cz.Reader(options.run) as run:
        step = run[options.step]
        scale = None
        for level in (0, 1):
            name = f"level{level}/rho"
            if name not in step.variables:
                continue
            shape = step.shape(name)
            middle = shape[0] // 2
            plane = step.read(name, (middle, 0, 0), (1, *shape[1:]))[0]  # NaN outside all boxes, which is not drawn
            image = axes.imshow(np.log10(plane), norm=scale, origin="lower", extent=(0, 1, 0, 1))
            scale = scale or image.norm
            boxes = step.blocks(name)
            met = boxes[(boxes["start"][:, 0] <= middle) & (middle < boxes["start"][:, 0] + boxes["count"][:, 0])]
            for start, count in zip(met["start"] / shape, met["count"] / shape, strict=True):
                axes.add_patch(Rectangle((start[2], start[1]), count[2], count[1], fill=False, linewidth=0.4))
        number = int(step.read("step"))
    figure.colorbar(image, label="log10 of density, g/cm³")
    axes.set(title=f"step {number}", xlabel="z", ylabel="y")
    figure.savefig(options.output, dpi=150)
    print(options.output)


if __name__ == "__main__":
    main()
