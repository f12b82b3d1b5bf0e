"""Levels of a stream have the values of the whole, and their cost is told: levels_of_stream.py write|read STREAM"""

from __future__ import annotations

import sys

import numpy as np
from cases import SST, or_abort
from mpi4py import MPI

import cusz_operator as cz
import support

STEPS, SHAPE = 2, (40, 48, 56)
comm = MPI.COMM_WORLD
role, stream = sys.argv[1:]


def write() -> None:
    x = support.smooth(SHAPE, support.F32)
    rows = SHAPE[0] // (2 * comm.size)
    with cz.Writer(stream, comm, engine="SST", parameters=SST, eb=1e-3, predictor="spline") as out:
        for n in range(STEPS):
            with out.step():
                for first in (2 * comm.rank * rows, (2 * comm.rank + 1) * rows):
                    out.put("U", x[first : first + rows] + np.float32(n), SHAPE, (first, 0, 0))


def read() -> None:
    read_steps = 0
    with cz.Reader(stream, comm, engine="SST", parameters={"OpenTimeoutSecs": 60}) as run:
        for step in run:
            before = run.bytes_read
            level = step.level("U", 2)
            values = step.read("U", level=2)
            table, (start, count) = step.blocks("U"), step.share("U")
            meets = (table["start"][:, 0] < start[0] + count[0]) & (
                start[0] < table["start"][:, 0] + table["count"][:, 0]
            )
            assert run.bytes_read - before == table["archive_bytes"][meets].sum()  # whole archives
            whole = step.read("U", (0, 0, 0), SHAPE)
            own = level.box_of((start, count))
            expected = whole[np.ix_(*level.coordinates)][tuple(slice(s, s + c) for s, c in zip(*own, strict=True))]
            assert support.same_bits(values, np.ascontiguousarray(expected))
            assert run.bytes_read - before == table["archive_bytes"].sum()
            step.read("U", (0, 0, 0), (20, 24, 28), level=1)
            assert run.bytes_read - before == table["archive_bytes"].sum()  # they are kept until the step ends
            read_steps += 1
    assert read_steps == STEPS


or_abort(write if role == "write" else read)
if comm.rank == 0:
    print(role, "done", flush=True)
