"""Steps by a Writer, and more by others, in which other ranks put a variable: mpirun python appending.py FILE."""

from __future__ import annotations

import sys

from mpi4py import MPI

import cusz_operator as cz
import support

comm = MPI.COMM_WORLD
x = support.smooth((4, 5), support.F32)
for number, variables in enumerate([{"a": [0, 1, 2], "b": [0, 1, 2]}, {"a": [1]}, {"b": [1, 2]}]):
    with cz.Writer(sys.argv[1], comm, eb=1e-3, append=number > 0, progress=False) as out, out.step():
        for name, ranks in variables.items():
            if comm.rank in ranks:
                out.put(name, x, (4 * comm.size, 5), (4 * comm.rank, 0))
