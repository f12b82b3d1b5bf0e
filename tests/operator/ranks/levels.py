"""Each rank reads its share of a level; together these are the level. levels.py FILE"""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

import cusz_operator as cz

comm = MPI.COMM_WORLD
for number in range(4):
    with cz.Reader(sys.argv[1], comm) as run:
        parts = comm.allgather(run[0].read("U", level=number))
        whole = np.concatenate(parts)
        with cz.Reader(sys.argv[1]) as alone:
            assert np.array_equal(whole, alone[0].read("U", level=number))
    if comm.rank == 0:
        print(f"all ranks together: level {number}, {whole.shape}")
