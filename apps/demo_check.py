#!/usr/bin/env python3
"""Reads a compressed file back in parallel and checks every value against an uncompressed one.

    mpirun -n 3 python apps/demo_check.py gs.bp reference.bp --eb 1e-4 --json check.json

Each rank reads its share of every step of U and V (cusz_operator.Reader: slabs along the first axis), and the same box
from the uncompressed file. The comparison is exact: see `count_violations`. Exit status 0 if every value keeps the
bound, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import adios2
import numpy as np
from mpi4py import MPI

import cusz_operator

VARIABLES = ("U", "V")


def count_violations(original: np.ndarray, decoded: np.ndarray, eb: float) -> int:
    """How many values of `decoded` differ from `original` by more than `eb`, in exact arithmetic.

    original, decoded  arrays of one shape and type, float32 or float64
    eb                 absolute bound

    In float64 the difference d of two float32 values is usually exact, but not always (1 - 2^-60 is not a float64), and
    the difference of two float64 values often is not. But rounding is monotone: a difference that is below or above eb
    after rounding was so before. The rounding error matters only where the rounded |d| equals eb; it is itself a
    float64, and Knuth's TwoSum gives it exactly. So no tolerance is needed. Non-finite values must be bitwise equal.
    """
    a, b = original.ravel().astype(np.float64), decoded.ravel().astype(np.float64)
    finite = np.isfinite(a)
    with np.errstate(invalid="ignore", over="ignore"):
        d = a - b
        bad = ~(np.abs(d) <= eb)  # also where the decoded value is NaN
    edge = np.flatnonzero(np.abs(d) == eb)
    a, b, d = a[edge], b[edge], d[edge]
    t = d - a
    rest = (a - (d - t)) - (b + t)  # a - b = d + rest, exactly
    bad[edge] = rest * np.sign(d) > 0
    bits = np.dtype(f"u{original.dtype.itemsize}")
    same = original.ravel().view(bits) == decoded.ravel().view(bits)
    return int(np.count_nonzero(np.where(finite, bad, ~same)))


def compare(run: cusz_operator.Reader, reference: Any, name: str, eb: float, comm: MPI.Intracomm) -> dict[str, Any]:
    """The findings of all ranks for a variable over all steps (collective). `reference`: an adios2.FileReader."""
    values = violations = 0
    squares = seconds = max_error = 0.0
    low, high = math.inf, -math.inf
    for step in run:
        start, count = step.share(name)
        if 0 in count:
            continue
        began = time.perf_counter()
        decoded = step.read(name)
        seconds += time.perf_counter() - began
        original = reference.read(name, start=list(start), count=list(count), step_selection=[step.index, 1])
        original = original.reshape(count)
        error = np.abs(original.astype(np.float64) - decoded)
        values += original.size
        violations += count_violations(original, decoded, eb)
        max_error = max(max_error, float(error.max()))
        squares += float(np.square(error).sum())
        low, high = min(low, float(original.min())), max(high, float(original.max()))
    values = comm.allreduce(values)
    return {
        "steps": len(run),
        "values": values,
        "violations": comm.allreduce(violations),
        "max_error": comm.allreduce(max_error, MPI.MAX),
        "rmse": math.sqrt(comm.allreduce(squares) / values),
        "min": comm.allreduce(low, MPI.MIN),
        "max": comm.allreduce(high, MPI.MAX),
        "read_seconds": comm.allreduce(seconds, MPI.MAX),
    }


def main() -> int:
    """Exit status 0, or 1 if a value breaks the bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("compressed", type=Path, help="the file to check")
    parser.add_argument("reference", type=Path, help="the same steps, uncompressed")
    parser.add_argument("--eb", type=float, required=True, help="absolute error bound")
    parser.add_argument("--json", type=Path, help="write the findings to this file")
    options = parser.parse_args()

    comm = MPI.COMM_WORLD
    with cusz_operator.Reader(options.compressed, comm) as run, adios2.FileReader(str(options.reference)) as reference:
        if len(run) != reference.num_steps() or len(run) == 0:
            if comm.rank == 0:
                print(f"{options.compressed} has {len(run)} steps, {options.reference} {reference.num_steps()}")
            return 1
        findings = {name: compare(run, reference, name, options.eb, comm) for name in VARIABLES}

    total = sum(found["values"] for found in findings.values())
    broken = sum(found["violations"] for found in findings.values())
    if comm.rank == 0:
        if options.json is not None:
            options.json.write_text(json.dumps({"ranks": comm.size, "eb": options.eb, "variables": findings}, indent=2))
        what = f"{broken} break" if broken else "all keep"
        print(f"{comm.size} ranks read {total} values: {what} |d - d'| <= {options.eb:g}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as failure:
        print(f"demo_check: {failure}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
