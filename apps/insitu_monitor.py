#!/usr/bin/env python3
"""Monitors a running simulation: statistics and a picture of every step that it streams.

    mpirun -n 4 python apps/gray_scott.py --engine SST --output gs.sst ... &
    mpirun -n 2 python apps/insitu_monitor.py gs.sst --out monitor

The simulation writes through cusz_operator.Writer with the engine SST, so data cross the network compressed. Every rank
of the monitor reads its share of each variable, and only rank 0 reads the middle plane for the picture. The folder gets
statistics.csv, and a PNG for each variable and step if Matplotlib is installed. Files can be read as well. The monitor
watches arrays of real numbers with a global shape; bound and ratio are unknown (NaN) for data that no Writer wrote.
"""

from __future__ import annotations

import argparse
import csv
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import cusz_core
import cusz_operator as cz

COLUMNS = ("step", "variable", "values", "min", "max", "mean", "std", "error_bound", "ratio")


def statistics(comm: MPI.Comm, mine: NDArray[Any]) -> dict[str, float]:
    """Statistics of the finite values of all ranks, equal on every rank; mine: this rank's values.

    A second pass takes the deviation from the global mean: a plain sum of squares would lose precision.
    """
    finite = mine[np.isfinite(mine)].astype(np.float64)
    values = comm.allreduce(finite.size)
    if values == 0:
        return {"values": 0, "min": np.nan, "max": np.nan, "mean": np.nan, "std": np.nan}
    mean = comm.allreduce(float(finite.sum())) / values
    squares = comm.allreduce(float(((finite - mean) ** 2).sum()))
    return {
        "values": values,
        "min": comm.allreduce(float(finite.min(initial=np.inf)), MPI.MIN),
        "max": comm.allreduce(float(finite.max(initial=-np.inf)), MPI.MAX),
        "mean": mean,
        "std": float(np.sqrt(squares / values)),
    }


def middle_plane(step: Any, name: str) -> NDArray[Any]:
    """The middle plane of a variable, along its last two axes: (ny, nx), or (1, n) for a 1-D variable."""
    shape = step.shape(name)
    start = [n // 2 for n in shape[:-2]] + [0] * len(shape[-2:])
    plane: NDArray[Any] = step.read(name, start, [1] * len(shape[:-2]) + list(shape[-2:]))
    return plane.reshape(-1, shape[-1])


def draw(plane: NDArray[Any], title: str, path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    if plane.shape[0] == 1:
        axes.plot(plane[0], linewidth=0.5)
    else:
        figure.colorbar(axes.imshow(plane, origin="lower", cmap="viridis"), ax=axes)
    axes.set_title(title)
    figure.savefig(path, dpi=100)


def is_watched(step: Any, name: str) -> bool:
    """Whether a variable is an array of real numbers: not a single value, text, complex, or of a type numpy lacks."""
    try:
        kind = step.dtype(name).kind
    except cusz_core.UnsupportedError:
        return False
    return step.has_shape(name) and step.shape(name) != () and kind in "fiub"


def watch(comm: MPI.Comm, run: cz.Reader, wanted: list[str], folder: Path) -> Iterator[dict[str, Any]]:
    """Yields a row of COLUMNS for every variable and step, as they arrive."""
    for step in run:
        for name in wanted or step.variables:
            if not is_watched(step, name):
                if wanted:
                    raise cusz_core.ParameterError(f"variable {name!r} is not an array of real numbers")
                continue
            row = {"step": step.index, "variable": name, **statistics(comm, step.read(name))}
            blocks = step.blocks(name)
            row["error_bound"] = blocks["eb_abs"].max(initial=0)
            raw, archive = blocks["raw_bytes"].sum(), blocks["archive_bytes"].sum()
            row["ratio"] = raw / archive if archive > 0 else np.nan
            if comm.rank == 0 and 0 not in step.shape(name):
                picture = folder / f"{name.replace('/', '_')}_{step.index:05}.png"
                draw(middle_plane(step, name), f"{name}, step {step.index}", picture)
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream", help="what the simulation writes")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="for statistics.csv and pictures")
    parser.add_argument("--engine", choices=("SST", "BP5", "BP4"), default="SST", help="default: SST")
    parser.add_argument("--variable", action="append", default=[], metavar="NAME", help="default: all; may be repeated")
    parser.add_argument("--wait", type=int, default=60, metavar="SECONDS", help="for the stream to appear; default: 60")
    arguments = parser.parse_args()
    comm = MPI.COMM_WORLD
    arguments.out.mkdir(parents=True, exist_ok=True)
    parameters = {"OpenTimeoutSecs": arguments.wait} if arguments.engine == "SST" else {}
    with (
        cz.Reader(arguments.stream, comm, engine=arguments.engine, parameters=parameters) as run,
        open(arguments.out / "statistics.csv" if comm.rank == 0 else "/dev/null", "w", newline="") as file,
    ):
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for row in watch(comm, run, arguments.variable, arguments.out):
            table.writerow(row)
            file.flush()
            if comm.rank == 0:
                print(
                    f"step {row['step']}: {row['variable']} from {row['min']:.6g} to {row['max']:.6g}, mean "
                    f"{row['mean']:.6g}, std {row['std']:.3g}; bound {row['error_bound']:.3g}, {row['ratio']:.1f}x",
                    flush=True,
                )


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # whatever library raised it, other ranks may be waiting for this one
        is_told = isinstance(error, cusz_core.CuszError | OSError)
        text = str(error) if is_told else traceback.format_exc()
        print(f"insitu_monitor: rank {MPI.COMM_WORLD.rank}: {text}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
