"""Prints how many threads compressing a block started on this rank: mpirun python threads.py FILE [THREADS]"""

from __future__ import annotations

import os
import sys

import adios2
import numpy as np
from mpi4py import MPI

import support

comm = MPI.COMM_WORLD
parameters = {"PluginName": "cusz", "PluginLibrary": "cusz_operator", "accuracy": "1e-3"}
if len(sys.argv) > 2:
    parameters["threads"] = sys.argv[2]
block = support.smooth((64, 64, 64), np.dtype(np.float32))
io = adios2.Adios(comm=comm).declare_io("output")
variable = io.define_variable("u", block, [64 * comm.size, 64, 64], [64 * comm.rank, 0, 0], block.shape)
variable.add_operation_string("plugin", parameters)
engine = io.open(sys.argv[1], adios2.Mode.Write, comm)
engine.begin_step()
before = len(os.listdir("/proc/self/task"))
engine.put(variable, block, adios2.Mode.Sync)
after = len(os.listdir("/proc/self/task"))
engine.end_step()
engine.close()
started = comm.gather(after - before)
if comm.rank == 0:
    print("started", *started)
