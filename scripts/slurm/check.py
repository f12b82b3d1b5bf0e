#!/usr/bin/env python3
"""Reads a whole run back on all ranks, and fails if it is not the run that was asked for.

    srun --mpi=pmix --ntasks=8 python scripts/slurm/check.py gs.bp --steps 1000 --interval 250 --eb 1e-4

All steps that the simulation should have written are there (the variable `step` holds their numbers), and no others.
Every archive is the one that its block table describes (the Reader compares checksums), and its bound is no larger than
asked for. Every value is finite, and at most the bound outside the range of its variable before compression.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from mpi4py import MPI

import cusz_core
import cusz_operator


def problems(run: cusz_operator.Reader, numbers: list[int], eb: float) -> list[str]:
    """What this rank finds wrong in its share of the run."""
    found = [int(step.read("step", (0,), (1,))[0]) for step in run]
    if found != numbers:
        return [f"it holds the steps {found}, not {numbers}"]
    wrong = []
    for step, number in zip(run, numbers, strict=True):
        for name in step.variables:
            where, table = f"step {number}, {name}", step.blocks(name)
            if table["eb_abs"].max() > eb:
                wrong.append(f"{where}: the bound is {table['eb_abs'].max()}, not {eb}")
            values = step.read(name).astype(np.float64)
            # Rounding is monotone: where the difference is at most eb, so is the rounded one.
            low, high = table["min"].min(), table["max"].max()
            if not np.all((low - values <= eb) & (values - high <= eb)):
                wrong.append(f"{where}: values are not finite, or more than {eb} outside {low} to {high}")
    return wrong


def main() -> int:
    """Exit status 0, or 1 after a message."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("file", help="a file written by cusz_operator.Writer")
    parser.add_argument("--steps", type=int, required=True, help="number of the last step")
    parser.add_argument("--interval", type=int, required=True, help="steps from one output to the next")
    parser.add_argument("--eb", type=float, required=True, help="absolute error bound")
    options = parser.parse_args()
    numbers = sorted({*range(options.interval, options.steps + 1, options.interval), options.steps})

    comm = MPI.COMM_WORLD
    sizes: list[tuple[int, int]] = []
    try:
        with cusz_operator.Reader(options.file, comm) as run:
            wrong = problems(run, numbers, options.eb)
            tables = [step.blocks(name) for step in run for name in step.variables]
            sizes = [(int(table["raw_bytes"].sum()), int(table["archive_bytes"].sum())) for table in tables]
    except cusz_core.CuszError as error:
        wrong = [str(error)]
    for line in wrong[:10]:
        print(f"check: {options.file}: rank {comm.rank}: {line}", file=sys.stderr, flush=True)
    if comm.allreduce(len(wrong), MPI.SUM):
        return 1
    if comm.rank == 0:
        raw, archive = (sum(column) for column in zip(*sizes, strict=True))
        summary = f"{len(numbers)} steps, all as asked for"
        print(f"{options.file}: {summary}, {raw} bytes in {archive}, ratio {raw / archive:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
