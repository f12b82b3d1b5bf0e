#!/usr/bin/env python3
"""The demo's table and picture: from block tables, the summary of the run, and the findings of apps/demo_check.py.

    python apps/demo_report.py demo-output

Exit status 0 if every check found every value within the bound, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import adios2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure

import cusz_operator


def print_table(run: cusz_operator.Reader, checks: list[dict[str, Any]]) -> float:
    """Prints one line per variable; returns the bytes that compression saved per second."""
    check = checks[0]
    heads = ["variable", "raw MB", "archive MB", "ratio", "max error/bound", "PSNR dB", "compress GB/s"]
    heads += [f"read GB/s, {found['ranks']} ranks" for found in checks]
    rows = []
    saved_bytes = seconds = 0.0
    for name, found in check["variables"].items():
        tables = [step.blocks(name) for step in run]
        raw, archive = (sum(int(table[column].sum()) for table in tables) for column in ("raw_bytes", "archive_bytes"))
        slowest = sum(float(np.bincount(table["rank"], table["seconds"]).max()) for table in tables)
        saved_bytes, seconds = saved_bytes + raw - archive, seconds + slowest
        # max_error is rounded to a float64; demo_check.py decides exactly whether a value is within the bound
        psnr = 20 * math.log10((found["max"] - found["min"]) / found["rmse"]) if found["rmse"] > 0 else math.inf
        rows.append(
            (
                name,
                f"{raw / 1e6:.1f}",
                f"{archive / 1e6:.2f}",
                f"{raw / archive:.1f}",
                f"{found['max_error'] / check['eb']:.6f}" if check["eb"] > 0 else "exact",
                f"{psnr:.1f}",
                f"{raw / slowest / 1e9:.2f}",
                *(f"{raw / by['variables'][name]['read_seconds'] / 1e9:.2f}" for by in checks),
            )
        )
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    for row in (heads, *rows):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    return saved_bytes / seconds


def draw(folder: Path, run: cusz_operator.Reader, eb: float, name: str) -> Path:
    """Draws a slice of the last step: original, reconstructed, and their difference; returns the picture's path."""
    last = run[-1]
    shape, number = last.shape(name), int(last.read("step", (0,), (1,))[0])
    middle = shape[0] // 2
    start, count = (middle, 0, 0), (1, *shape[1:])
    decoded = last.read(name, start, count)[0]
    with adios2.FileReader(str(folder / "reference.bp")) as file:
        original = file.read(name, start=list(start), count=list(count), step_selection=[last.index, 1])
    original = original.reshape(decoded.shape)
    error = decoded.astype(np.float64) - original

    figure = Figure(figsize=(15, 4.8), layout="constrained")
    figure.get_layout_engine().set(wspace=0.04)  # type: ignore[union-attr,call-arg]

    def panel(axis: Axes, image: np.ndarray, title: str, label: str, **scale: Any) -> Colorbar:
        shown = axis.imshow(image, origin="lower", interpolation="nearest", **scale)
        axis.set_title(title, fontsize=15)
        axis.set_xlabel("z (cells)", fontsize=12)
        axis.set_ylabel("y (cells)", fontsize=12)
        bar = figure.colorbar(shown, ax=axis, shrink=0.8)
        bar.set_label(label, fontsize=12)
        return bar

    left, centre, right = figure.subplots(1, 3)
    field = {"cmap": "viridis", "vmin": float(original.min()), "vmax": float(original.max())}
    panel(left, original, "original", name, **field)
    panel(centre, decoded, "reconstructed", name, **field)
    scale = eb if eb > 0 else 1.0
    bar = panel(right, error, f"error (colours end at ±{scale:g})", f"reconstructed {name} - original {name}",
                cmap="RdBu_r", vmin=-scale, vmax=scale)  # fmt: skip
    bar.set_ticks([-scale, -scale / 2, 0, scale / 2, scale], labels=["-eb", "-eb/2", "0", "eb/2", "eb"])
    size = "x".join(map(str, shape))
    figure.suptitle(f"Gray-Scott {name}, {size} cells, step {number}, plane x = {middle}, eb = {eb:g}", fontsize=15)
    path = folder / "slice.png"
    figure.savefig(path, dpi=110)
    return path


def main() -> int:
    """Exit status 0, or 1 if a value breaks the bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="holds gs.bp, reference.bp, run.json and check_*.json")
    folder = parser.parse_args().folder

    summary = json.loads((folder / "run.json").read_text())
    checks = [json.loads(path.read_text()) for path in sorted(folder.glob("check_*.json"))]
    with cusz_operator.Reader(folder / "gs.bp") as run:
        worth = print_table(run, checks)
        picture = draw(folder, run, summary["eb"], "V")
    seconds, raw_seconds = summary["write_seconds"], summary["reference_write_seconds"]
    saved = f"{abs(raw_seconds - seconds):.2f} s {'saved' if raw_seconds >= seconds else 'more'}"
    print(
        f"""
Sizes are of all {summary["outputs"]} steps; archive MB without ADIOS2's metadata. PSNR is 20 log10((max - min) / RMSE)
over all steps. Speeds are raw bytes over the time of the slowest rank: compressing, as the block tables have it, with
all {summary["ranks"]} ranks at once; and reading back, with ADIOS2 and all else.
Time of writing (slowest rank; all that a step and closing take; to the page cache): compressed {seconds:.2f} s,
uncompressed {raw_seconds:.2f} s: {saved}. By the speed of compression alone, it saves time where the file system
takes less than {worth / 1e9:.2f} GB/s from all ranks together.
"""
    )
    print(f"Picture: {picture}")
    values = {sum(found["values"] for found in check["variables"].values()) for check in checks}
    broken = sum(found["violations"] for check in checks for found in check["variables"].values())
    readers = " and by ".join(f"{check['ranks']} ranks" for check in checks)
    if broken or len(values) != 1:
        print(f"FAILED: {broken} values break |d - d'| <= {summary['eb']:g}")
        return 1
    print(f"All {values.pop()} values are within the bound {summary['eb']:g}, read back by {readers}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
