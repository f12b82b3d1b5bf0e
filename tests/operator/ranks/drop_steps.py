"""Ranks that drop steps of a file and write others: PATH KEPT AGGREGATION_TYPE. At most steps one rank puts nothing."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

import cusz_operator as cz

COMM = MPI.COMM_WORLD
FIELD = np.linspace(0, 1, COMM.size * 900, dtype=np.float32).reshape(COMM.size, 30, 30)


def write(path: str, first: int, **parameters: str) -> None:
    with cz.Writer(path, COMM, eb=1e-3, append=first > 0, parameters=parameters) as out:
        for n in range(first, first + 5):
            with out.step():
                if n % 4 != COMM.rank:
                    block = FIELD[COMM.rank : COMM.rank + 1] + n
                    out.put("u", block, shape=FIELD.shape, start=(COMM.rank, 0, 0))


path, kept, aggregation = sys.argv[1:]
write(path, 0, AggregationType=aggregation)
write(path, int(kept), AggregationType=aggregation, AppendAfterSteps=kept)
if COMM.rank == 0:
    with cz.Reader(path) as run:
        assert len(run) == int(kept) + 5
        for n, step in enumerate(run):
            values, gaps = step.read("u").astype(np.float64), np.arange(COMM.size) == n % 4
            assert np.isnan(values[gaps]).all(), n
            assert (np.abs(values - (FIELD + np.float32(n)))[~gaps] <= 1e-3).all(), n
