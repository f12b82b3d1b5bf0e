"""Rank 1 closes its Writer while others end a step, and these go on: mpirun -n 3 python closing.py FILE."""

from __future__ import annotations

import contextlib
import sys

import numpy as np
from mpi4py import MPI

import cusz_core
import cusz_operator as cz

comm = MPI.COMM_WORLD
messages = []
with contextlib.suppress(cusz_core.ParameterError), cz.Writer(sys.argv[1], comm, eb=1e-3, progress=False) as out:
    for number in range(4):
        if comm.rank == 1 and number == 2:
            break
        try:
            with out.step():
                out.put("U", np.ones(5, np.float32), (5 * comm.size,), (5 * comm.rank,))
        except cusz_core.ParameterError as error:
            messages.append(str(error))
if comm.rank == 0:
    print(*messages, sep="\n", flush=True)
