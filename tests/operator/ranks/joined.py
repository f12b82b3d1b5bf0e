"""Two ranks of a program that only knows ADIOS2 write arrays that it joins of blocks: mpirun python joined.py FILE"""

from __future__ import annotations

import sys

import adios2
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

# Rows of each block, by step and rank.
ARRAYS: dict[str, list[list[list[int]]]] = {
    "often": [[[4], [6]], [[], [1, 1]], [[0, 2], [3]]],
    "once": [[[], []], [[4], [6]], [[], []]],
}


def blocks(name: str, step: int, rank: int) -> list[NDArray]:
    """The blocks that a rank puts."""
    return [np.full((n, 3), 100.0 * step + 10 * rank + i) for i, n in enumerate(ARRAYS[name][step][rank])]


def main(path: str) -> None:
    comm = MPI.COMM_WORLD
    io = adios2.Adios(comm=comm).declare_io("program")
    parameters = {"PluginName": "cusz", "PluginLibrary": "cusz_operator", "accuracy": "0"}
    variables = {name: io.define_variable(name, np.zeros(1), [adios2.JoinedDim, 3], [], [1, 3]) for name in ARRAYS}
    for variable in variables.values():
        variable.add_operation_string("plugin", parameters)
    with io.open(path, adios2.Mode.Write) as engine:
        for step in range(3):
            engine.begin_step()
            for name, variable in variables.items():
                for block in blocks(name, step, comm.rank):
                    variable.set_selection([[], list(block.shape)])
                    engine.put(variable, block, adios2.Mode.Sync)
            engine.end_step()


if __name__ == "__main__":
    main(sys.argv[1])
