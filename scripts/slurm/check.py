#!/usr/bin/env python3
"""Reads a whole run back on all ranks, and fails if it is not as requested.

    srun --mpi=pmix --ntasks=8 python scripts/slurm/check.py gs.bp --steps 1000 --interval 250 --eb 1e-4

It checks that all steps that the simulation should have written are there (the variable `step` holds their numbers,
which increase). There may be others: the last step of a run that was extended later. Every archive must match its block
table (the Reader compares checksums), and its absolute bound must not exceed the requested one. Every value must be
finite (or NaN, with --allow-nan), and at most the bound outside the range of its variable before compression.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from mpi4py import MPI

import cusz_core
import cusz_operator
from cusz_operator.reader import ReaderStep


def arrays(step: ReaderStep) -> list[str]:
    """The variables of a step that are neither a single value nor text."""
    return [name for name in step.variables if step.shape(name)]


def number_of(step: ReaderStep) -> int:
    """The number in the variable `step`, which is a single value or an array that begins with it."""
    at = ((0,), (1,)) if step.shape("step") else ()
    return int(np.ravel(step.read("step", *at))[0])


def problems(run: cusz_operator.Reader, numbers: list[int], eb: float, allow_nan: bool = False) -> list[str]:
    """The problems that this rank finds in its share of the run."""
    found = [number_of(step) for step in run]
    if not set(numbers) <= set(found) or found != sorted(set(found)):
        return [f"it holds the steps {found}, not {numbers}"]
    wrong = []
    for step, number in zip(run, found, strict=True):
        for name in arrays(step):
            where, bound = f"step {number}, {name}", step.blocks(name)["eb_abs"].max(initial=0)
            if np.isnan(bound):
                wrong.append(f"{where}: no absolute bound is known (its mode is pw_rel, or no Writer wrote it)")
                continue  # value ranges from other programs have only 6 digits
            if bound > eb:
                wrong.append(f"{where}: the bound is {bound}, not {eb}")
            values = step.read(name)
            right = np.isfinite(values)
            limits = step.value_range(name) or (-np.inf, np.inf)
            if values.dtype.kind != "c":
                # Rounding is monotone: where the difference is at most eb, so is the rounded one.
                values = values.astype(np.float64)
                right &= (limits[0] - values <= eb) & (values - limits[1] <= eb)
            if allow_nan:
                right |= np.isnan(values)
            if not right.all():
                wrong.append(f"{where}: values are not finite, or more than {eb} outside {limits[0]} to {limits[1]}")
    return wrong


def main() -> int:
    """Exit status 0, or 1 after a message."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("file", help="a file written by cusz_operator.Writer")
    parser.add_argument("--steps", type=int, required=True, help="number of the last step")
    parser.add_argument("--interval", type=int, required=True, help="steps from one output to the next")
    parser.add_argument("--eb", type=float, required=True, help="absolute error bound")
    parser.add_argument("--allow-nan", action="store_true", help="NaN is a value, such as that of a land mask")
    options = parser.parse_args()
    numbers = sorted({*range(options.interval, options.steps + 1, options.interval), options.steps})

    comm = MPI.COMM_WORLD
    n_steps = 0
    sizes: list[tuple[int, int]] = []
    try:
        with cusz_operator.Reader(options.file, comm) as run:
            wrong = problems(run, numbers, options.eb, options.allow_nan)
            tables = [step.blocks(name) for step in run for name in arrays(step)]
            n_steps = len(run)
            sizes = [(int(table["raw_bytes"].sum()), int(table["archive_bytes"].sum())) for table in tables]
    except cusz_core.CuszError as error:
        wrong = [str(error)]
    for line in wrong[:10]:
        print(f"check: {options.file}: rank {comm.rank}: {line}", file=sys.stderr, flush=True)
    if comm.allreduce(len(wrong), MPI.SUM):
        return 1
    if comm.rank == 0:
        raw, archive = (sum(pair[i] for pair in sizes) for i in (0, 1))
        summary = f"{n_steps} steps, all as asked for"
        print(f"{options.file}: {summary}, {raw} bytes in {archive}, ratio {raw / max(archive, 1):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
