"""one_bound.py OUTPUT FIELD.npy EB: each rank puts its rows of a field, with a relative bound."""

import sys

import numpy as np
from mpi4py import MPI

import cusz_operator as cz

comm = MPI.COMM_WORLD
x = np.load(sys.argv[2])
first, last = (len(x) * n // comm.size for n in (comm.rank, comm.rank + 1))
with cz.Writer(sys.argv[1], comm, eb=float(sys.argv[3]), mode="rel") as out, out.step():
    out.put("x", x[first:last], x.shape, (first, 0))
