"""Streams without a Writer until the file `joined` is beside the stream: mpirun python other_stream.py STREAM"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import adios2
import numpy as np
from mpi4py import MPI

import cusz_operator as cz

comm = MPI.COMM_WORLD
stream = Path(sys.argv[1])
adios = adios2.Adios(comm=comm)
io = adios.declare_io("output")
io.set_engine("SST")
extents = [[100 * comm.size], [100 * comm.rank], [100]]
x, y = (io.define_variable(name, np.zeros(1, np.float32), *extents) for name in "xy")
x.add_operation(cz.define_operator(adios, eb=0.0))
engine = io.open(str(stream), adios2.Mode.Write, comm)
for step in itertools.count():
    is_last = comm.bcast((stream.parent / "joined").exists())
    engine.begin_step()
    for variable in (x, y):
        engine.put(variable, np.full(100, step, np.float32), adios2.Mode.Sync)
    engine.end_step()
    time.sleep(0.01)
    if is_last:
        break
engine.close()
