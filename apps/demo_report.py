#!/usr/bin/env python3
"""The demo's table and picture, from its files and the findings of apps/demo_check.py.

    python apps/demo_report.py demo-output

Exit status 0 if every check found every value within the bound, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adios2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure

import cusz_core
import cusz_operator

REPEATS = 3  # of each timing; the fastest counts


@dataclass
class Total:
    """Of all blocks of one variable: bytes, and seconds on one thread."""

    raw_bytes: int = 0
    archive_bytes: int = 0
    compress_seconds: float = 0.0
    decompress_seconds: float = 0.0


def read(path: Path, name: str, step: int, start: tuple[int, ...], count: tuple[int, ...]) -> np.ndarray:
    """The box of shape `count` at `start` of a float32 or float64 variable."""
    with adios2.FileReader(str(path)) as file:
        return np.ascontiguousarray(
            file.read(name, start=list(start), count=list(count), step_selection=[step, 1])
        ).reshape(count)


def fastest(call: Any) -> tuple[float, Any]:
    """Seconds of the fastest of a few calls, and the result."""
    best, result = math.inf, None
    for _ in range(REPEATS):
        began = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - began)
    return best, result


def measure(folder: Path, eb: float) -> dict[str, Total]:
    """Sizes of the archives in gs.bp, and the time cusz_core takes for the same blocks, taken from reference.bp."""
    totals: dict[str, Total] = {}
    for block in cusz_operator.inspect_bp(folder / "gs.bp"):
        name, where = block["variable"], f"gs.bp: block {block['block']} of {block['variable']}, step {block['step']}"
        if "error" in block:
            sys.exit(f"{where}: {block['error']}")
        if "archive_bytes" not in block:  # not compressed: the step's number
            continue
        total = totals.setdefault(name, Total())
        x = read(folder / "reference.bp", name, block["step"], block["start"], block["count"])
        compress_seconds, data = fastest(lambda x=x: cusz_core.compress(x, eb=eb, threads=1))
        if len(data) != block["archive_bytes"]:
            sys.exit(f"{where}: {block['archive_bytes']} bytes, but cusz_core makes {len(data)} of the same values")
        decompress_seconds, _ = fastest(lambda data=data: cusz_core.decompress(data, threads=1))
        total.raw_bytes += block["raw_bytes"]
        total.archive_bytes += block["archive_bytes"]
        total.compress_seconds += compress_seconds
        total.decompress_seconds += decompress_seconds
    return totals


def print_table(totals: dict[str, Total], check: dict[str, Any]) -> None:
    """One line per variable."""
    heads = (
        "variable",
        "raw MB",
        "archive MB",
        "ratio",
        "max error/bound",
        "PSNR dB",
        "compress MB/s",
        "decompress MB/s",
    )
    rows = []
    for name, total in totals.items():
        found = check["variables"][name]
        # max_error is rounded to a float64; whether a value is within the bound is found exactly, by demo_check.py
        psnr = 20 * math.log10((found["max"] - found["min"]) / found["rmse"]) if found["rmse"] > 0 else math.inf
        rows.append(
            (
                name,
                f"{total.raw_bytes / 1e6:.1f}",
                f"{total.archive_bytes / 1e6:.2f}",
                f"{total.raw_bytes / total.archive_bytes:.1f}",
                f"{found['max_error'] / check['eb']:.6f}" if check["eb"] > 0 else "exact",
                f"{psnr:.1f}",
                f"{total.raw_bytes / total.compress_seconds / 1e6:.0f}",
                f"{total.raw_bytes / total.decompress_seconds / 1e6:.0f}",
            )
        )
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    for row in (heads, *rows):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def draw(folder: Path, check: dict[str, Any], name: str) -> Path:
    """A slice of the last step as it was, as it came back, and the difference; returns the picture's path."""
    with adios2.FileReader(str(folder / "reference.bp")) as file:
        shape = tuple(file.inquire_variable(name).shape(0))
        numbers = np.ravel(file.read("step", step_selection=[0, file.num_steps()]))
    middle, last = shape[0] // 2, len(numbers) - 1
    plane = (name, last, (middle, 0, 0), (1, *shape[1:]))
    original, decoded = (read(folder / file, *plane)[0] for file in ("reference.bp", "gs.bp"))
    error = decoded.astype(np.float64) - original
    eb = check["eb"]

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
    figure.suptitle(
        f"Gray-Scott {name}, {size} cells, step {numbers[last]}, plane x = {middle}, eb = {eb:g}", fontsize=15
    )
    path = folder / "slice.png"
    figure.savefig(path, dpi=110)
    return path


def main() -> int:
    """Exit status 0, or 1 if a value breaks the bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="holds gs.bp, reference.bp, run.json and check_*.json")
    folder = parser.parse_args().folder

    run = json.loads((folder / "run.json").read_text())
    checks = [json.loads(path.read_text()) for path in sorted(folder.glob("check_*.json"))]
    totals = measure(folder, run["eb"])
    print_table(totals, checks[0])
    print(
        f"""
Sizes are of all {run["outputs"]} steps; archive MB is what the plugin stored, without ADIOS2's metadata. PSNR is
20 log10((max - min) / RMSE) over all steps. Speeds: cusz_core.compress and .decompress of every block of the file
(one block per rank and step), from and to memory, on one thread of this machine, the fastest of {REPEATS} calls.
Time of writing in the run (slowest of {run["ranks"]} ranks; begin_step to end_step, and close; to the page cache):
compressed {run["write_seconds"]:.2f} s, uncompressed {run["reference_write_seconds"]:.2f} s.
"""
    )
    picture = draw(folder, checks[0], "V")
    print(f"Picture: {picture}")
    values = {sum(found["values"] for found in check["variables"].values()) for check in checks}
    broken = sum(found["violations"] for check in checks for found in check["variables"].values())
    readers = " and by ".join(f"{check['ranks']} ranks" for check in checks)
    if broken or len(values) != 1:
        print(f"FAILED: {broken} values break |d - d'| <= {run['eb']:g}")
        return 1
    print(f"All {values.pop()} values are within the bound {run['eb']:g}, read back by {readers}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
