"""Writes or reads what is not float32 or float64: other_types.py write|read PATH ENGINE."""

from __future__ import annotations

import sys

import numpy as np
from cases import SST
from mpi4py import MPI

import cusz_operator as cz
import support

comm = MPI.COMM_WORLD
what, path, engine = sys.argv[1:]
parameters = SST if engine == "SST" else {}
STEPS, ROWS = 3, 30
X = support.smooth((ROWS, 20), support.F32)


def main() -> None:
    if what == "write":
        rows = np.array_split(np.arange(ROWS), comm.size - 1)
        # Rank 0 puts only single values.
        mine = slice(0, 0) if comm.rank == 0 else slice(rows[comm.rank - 1][0], rows[comm.rank - 1][-1] + 1)
        with cz.Writer(path, comm, eb=1e-3, engine=engine, parameters=parameters) as out:
            for number in range(STEPS):
                with out.step():
                    if comm.rank > 0:
                        where = {"shape": X.shape, "start": (mine.start, 0), "dims": ("y", "x")}
                        out.put("ids", np.arange(X.size).reshape(X.shape)[mine] + number, **where)
                        out.put("mask", (X.mean() < X)[mine], **where, lossless="zstd")
                        out.put("half", X.astype(np.float16)[mine], **where)
                        out.put("z", (X + 2j * X)[mine], **where)
                    if comm.rank >= number:
                        out.put("t", 100 * comm.rank + number)
                    out.put("name", f"of rank {comm.rank}")
        return
    with cz.Reader(path, comm, engine=engine, parameters={"OpenTimeoutSecs": 60} if engine == "SST" else None) as run:
        for step in run:
            n = step.index
            assert step.variables == ["half", "ids", "mask", "name", "t", "z"], step.variables
            assert step.read("t") == 100 * n + n, "that of the first rank"
            assert step.read("name") == "of rank 0"
            start, count = step.share("ids")
            box = tuple(slice(s, s + c) for s, c in zip(start, count, strict=True))
            assert np.array_equal(step.read("ids"), np.arange(X.size).reshape(X.shape)[box] + n)
            assert np.array_equal(step.read("mask", (0, 0)), X.mean() < X)
            half = X.astype(np.float16).astype(np.float64)
            assert not support.violations(half, step.read("half", (0, 0)).astype(np.float64), 1e-3)
            z = step.read("z", (0, 0))
            assert not support.violations(2 * X, np.ascontiguousarray(z.imag), 1e-3)
            assert run["ids"].attributes["dimensions"] == "y x"
            assert step.verify("ids") + step.verify("z") > 0


main()
