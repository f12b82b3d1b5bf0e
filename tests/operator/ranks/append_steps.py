"""append_steps.py OUTPUT STEPS OPTION: each rank appends so many steps, with an option of the Writer and AsyncWrite."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import cusz_operator as cz

comm = MPI.COMM_WORLD
path, steps, option = sys.argv[1:]
options = {option: True} | ({"parameters": {"AsyncWrite": "Guided"}} if option == "overlap" else {})
append = comm.bcast(Path(path).exists())
with cz.Writer(path, comm, eb=0, append=append, **options) as out:
    for _ in range(int(steps)):
        with out.step():
            out.put("x", np.ones(1), (comm.size,), (comm.rank,))
