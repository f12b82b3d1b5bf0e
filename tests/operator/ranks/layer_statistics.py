"""Files have statistics only if all ranks want them and can have them: mpirun python layer_statistics.py FOLDER

all.bp has them. For one.bp, the last rank does not want them. For fails.bp, the trial of rank 0 fails; it would always
fail on other ranks, which must not make it. Rank 0 prints, as JSON, which files each rank takes to have statistics.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mpi4py import MPI

import cusz_operator as cz
import support
from cusz_operator.tables import statistics

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])
is_last = comm.rank == comm.size - 1
block = support.smooth((10, 20), support.F32, seed=comm.rank)


def write(name: str, ranges: bool = True) -> bool:
    with cz.Writer(folder / f"{name}.bp", comm, eb=1e-3, ranges=ranges) as out:
        for _ in range(2):
            with out.step():
                out.put("T", block, (10 * comm.size, 20), (10 * comm.rank, 0))
        return out._output is not None and out._output.has_statistics


def fail(path: Path) -> str:
    raise RuntimeError("another order")


try_it, statistics._problem_of = statistics._problem_of, fail
if comm.rank == 0:
    statistics._problem_of = try_it
taken = [write("all"), write("one", ranges=not is_last)]
statistics.problem.cache_clear()
statistics._problem_of = fail
taken.append(write("fails"))
told = comm.gather(taken)
if comm.rank == 0:
    print(json.dumps(told))
