"""Writes the variables of cases.py with a Writer: mpirun python layer_write.py FILE ENGINE[,PARAMETER=VALUE]... ...

RANKS_OF_A_TABLE in the environment sets how many ranks give their rows of block tables to one that writes them.
"""

from __future__ import annotations

import os
import sys

import numpy as np
from cases import SST, STEPS
from layer import put_all
from mpi4py import MPI

import cusz_operator as cz
from cusz_operator.writing import together

together.RANKS_OF_A_TABLE = int(os.environ.get("RANKS_OF_A_TABLE", together.RANKS_OF_A_TABLE))
comm = MPI.COMM_WORLD
for path, words in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    engine, *given = words.split(",")
    parameters = SST if engine == "SST" else dict(one.split("=") for one in given)
    with cz.Writer(path, comm, engine=engine, parameters=parameters) as out:
        out.attribute("writers", np.array([comm.size]))
        out.attribute("purpose", "a test")
        for step in range(STEPS):
            with out.step():
                put_all(out, step, comm.rank, comm.size)
        n = len(out.summary())
    if comm.rank == 0:
        print(f"{path}: {n} variables", flush=True)
