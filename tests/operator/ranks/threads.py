"""Prints how many threads were started on each rank to compress blocks: mpirun python threads.py FILE [THREADS]

The threads live for one block only, and the interpreter is held meanwhile, so a separate process watches.
"""

from __future__ import annotations

import os
import subprocess
import sys

import adios2
import numpy as np
from mpi4py import MPI

import support

WATCH = """
import os, sys
before = most = len(os.listdir(sys.argv[1]))
print("watching", flush=True)
os.set_blocking(0, False)
while sys.stdin.buffer.raw.read(1) is None:
    most = max(most, len(os.listdir(sys.argv[1])))
print(most - before)
"""

comm = MPI.COMM_WORLD
parameters = {"PluginName": "cusz", "PluginLibrary": "cusz_operator", "accuracy": "1e-3"}
if len(sys.argv) > 2:
    parameters["threads"] = sys.argv[2]
block = support.smooth((64, 128, 128), np.dtype(np.float32))  # large enough that threads pay
io = adios2.Adios(comm=comm).declare_io("output")
variable = io.define_variable("u", block, [64 * comm.size, 128, 128], [64 * comm.rank, 0, 0], block.shape)
variable.add_operation_string("plugin", parameters)
engine = io.open(sys.argv[1], adios2.Mode.Write, comm)
engine.begin_step()
command = [sys.executable, "-c", WATCH, f"/proc/{os.getpid()}/task"]
watch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert watch.stdout is not None
watch.stdout.readline()
for _ in range(50):
    engine.put(variable, block, adios2.Mode.Sync)
started = comm.gather(int(watch.communicate()[0]))
engine.end_step()
engine.close()
if comm.rank == 0:
    print("started", *started)
