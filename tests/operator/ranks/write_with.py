"""Steps of two variables from all ranks: mpirun python write_with.py FILE KEY=VALUE..., parameters of the engine."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

import cusz_operator as cz
import support

comm = MPI.COMM_WORLD
path, *parameters = sys.argv[1:]
n = 10 * (comm.rank + 1)
start = sum(10 * (rank + 1) for rank in range(comm.rank))
shape = (sum(10 * (rank + 1) for rank in range(comm.size)), 20)
with cz.Writer(path, comm, eb=1e-3, parameters=dict(word.split("=") for word in parameters), progress=False) as out:
    for step in range(3):
        with out.step():
            out.put("B", support.smooth((n, 20), support.F64, seed=comm.rank + step), shape, (start, 0))
            if comm.rank != 1:
                out.put("A", np.arange(n, dtype=np.float32), shape[:1], (start,))
