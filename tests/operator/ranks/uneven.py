"""Two ranks of a program that only knows ADIOS2, of which each puts something else: mpirun python uneven.py FILE ENGINE

Arrays that ADIOS2 joins of blocks (not in BP4), and one value of each rank.
"""

from __future__ import annotations

import sys

import adios2
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

# By step and rank: rows of each block, and the value.
JOINED: dict[str, list[list[list[int]]]] = {
    "often": [[[4], [6]], [[], [1, 1]], [[0, 2], [3]]],
    "once": [[[], []], [[4], [6]], [[], []]],
}
VALUES: list[list[float | None]] = [[1.0, 2.0], [3.0, 4.0], [None, 5.0]]


def blocks(name: str, step: int, rank: int) -> list[NDArray]:
    """The blocks of an array that a rank puts."""
    return [np.full((n, 3), 100.0 * step + 10 * rank + i) for i, n in enumerate(JOINED[name][step][rank])]


def main(path: str, engine_type: str) -> None:
    comm = MPI.COMM_WORLD
    io = adios2.Adios(comm=comm).declare_io("program")
    io.set_engine(engine_type)
    names = JOINED if engine_type != "BP4" else ()
    variables = {name: io.define_variable(name, np.zeros(1), [adios2.JoinedDim, 3], [], [1, 3]) for name in names}
    for variable in variables.values():
        parameters = {"PluginName": "cusz", "PluginLibrary": "cusz_operator", "accuracy": "0"}
        variable.add_operation_string("plugin", parameters)
    of_ranks = io.define_variable("of ranks", np.zeros(1), [adios2.LocalValueDim], [], [])
    with io.open(path, adios2.Mode.Write) as engine:
        for step, values in enumerate(VALUES):
            engine.begin_step()
            for name, variable in variables.items():
                for block in blocks(name, step, comm.rank):
                    variable.set_selection([[], list(block.shape)])
                    engine.put(variable, block, adios2.Mode.Sync)
            if values[comm.rank] is not None:
                engine.put(of_ranks, np.array([values[comm.rank]]), adios2.Mode.Sync)
            engine.end_step()


if __name__ == "__main__":
    main(*sys.argv[1:])
