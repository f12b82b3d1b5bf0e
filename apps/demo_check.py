#!/usr/bin/env python3
"""Reads a compressed file back in parallel and checks every value against an uncompressed one.

    mpirun -n 3 python apps/demo_check.py gs.bp reference.bp --eb 1e-4 --json check.json

Each rank reads its share (a slab along the first axis) of every step of U and V from both files through ADIOS2, which
decompresses with the operator plugin. The comparison is exact: see `count_violations`. Exit status 0 if every value
keeps the bound, 1 if not.
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

import cusz_operator  # noqa: F401  (tells ADIOS2 where the plugin is)

VARIABLES = ("U", "V")


def count_violations(original: np.ndarray, decoded: np.ndarray, eb: float) -> int:
    """How many values of `decoded` differ from `original` by more than `eb`, in exact arithmetic.

    original, decoded  arrays of one shape and type, float32 or float64
    eb                 absolute bound

    In float64 the difference d of two float32 values is mostly exact, but not always (1 - 2^-60 is no float64), and
    that of two float64 values often is not. But rounding is monotone: what is below or above eb after rounding was so
    before. Only where the rounded |d| equals eb does the rounding error decide; it is a float64 itself, and Knuth's
    TwoSum gives it exactly. So no tolerance is needed. Values that are not finite must be equal to the bit.
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


class Source:
    """U and V of a BP file, read by selection."""

    def __init__(self, adios: Any, name: str, path: Path) -> None:
        self.io = adios.declare_io(name)
        self.engine = self.io.open(str(path), adios2.Mode.ReadRandomAccess)
        self.steps = self.engine.steps()

    def shape(self, name: str) -> tuple[int, ...]:
        """The global shape, (nx, ny, nz)."""
        return tuple(self.io.inquire_variable(name).shape(0))

    def read(self, name: str, step: int, start: tuple[int, ...], count: tuple[int, ...]) -> np.ndarray:
        """The box of shape `count` at `start` in the given ADIOS2 step."""
        variable = self.io.inquire_variable(name)
        variable.set_step_selection([step, 1])
        variable.set_selection([list(start), list(count)])
        out = np.empty(count, {"float": np.float32, "double": np.float64}[variable.type()])
        self.engine.get(variable, out)
        return out


def main() -> int:
    """Exit status 0, or 1 if a value breaks the bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("compressed", type=Path, help="the file to check")
    parser.add_argument("reference", type=Path, help="the same steps, uncompressed")
    parser.add_argument("--eb", type=float, required=True, help="absolute error bound")
    parser.add_argument("--json", type=Path, help="write the findings to this file")
    options = parser.parse_args()

    comm = MPI.COMM_WORLD
    adios = adios2.Adios(comm=comm)
    compressed = Source(adios, "compressed", options.compressed)
    reference = Source(adios, "reference", options.reference)
    if compressed.steps != reference.steps or compressed.steps == 0:
        if comm.rank == 0:
            print(f"{options.compressed} has {compressed.steps} steps, {options.reference} {reference.steps}")
        return 1
    findings: dict[str, dict[str, Any]] = {}
    for name in VARIABLES:
        shape = reference.shape(name)
        first, last = (shape[0] * r // comm.size for r in (comm.rank, comm.rank + 1))
        start, count = (first, *(0 for _ in shape[1:])), (last - first, *shape[1:])
        values = violations = 0
        squares = seconds = max_error = 0.0
        low, high = math.inf, -math.inf
        for step in range(compressed.steps if last > first else 0):
            began = time.perf_counter()
            decoded = compressed.read(name, step, start, count)
            seconds += time.perf_counter() - began
            original = reference.read(name, step, start, count)
            error = np.abs(original.astype(np.float64) - decoded)
            values += original.size
            violations += count_violations(original, decoded, options.eb)
            max_error = max(max_error, float(error.max()))
            squares += float(np.square(error).sum())
            low, high = min(low, float(original.min())), max(high, float(original.max()))
        values, violations = comm.allreduce(values), comm.allreduce(violations)
        findings[name] = {
            "steps": compressed.steps,
            "values": values,
            "violations": violations,
            "max_error": comm.allreduce(max_error, MPI.MAX),
            "rmse": math.sqrt(comm.allreduce(squares) / values),
            "min": comm.allreduce(low, MPI.MIN),
            "max": comm.allreduce(high, MPI.MAX),
            "read_seconds": comm.allreduce(seconds, MPI.MAX),
        }
    compressed.engine.close()
    reference.engine.close()

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
