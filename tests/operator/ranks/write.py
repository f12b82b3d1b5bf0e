"""Writes the variables of cases.py: mpirun python write.py FOLDER ENGINE,STATSLEVEL,PUT[,PARAMETER=VALUE...]..."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from cases import CASES, SST, STEPS, Mode, inside, make_adios, values
from mpi4py import MPI


def write(path: str, engine_type: str, stats_level: str, put: str, parameters: dict[str, str]) -> None:
    comm = MPI.COMM_WORLD
    adios = make_adios(comm)
    io = adios.declare_io("output")
    io.set_engine(engine_type)
    io.set_parameters({"StatsLevel": stats_level, **parameters})
    io.define_attribute("writers", np.array([comm.size], np.int32))
    variables = {}
    for case in CASES:
        kind = np.zeros(1, values(case.name, 0).dtype)
        zeros = [0] * len(case.shape)
        variables[case.name] = io.define_variable(case.name, kind, case.shape, zeros, case.shape)
        if case.parameters:
            variables[case.name].add_operation_string("plugin", case.parameters)
    local = io.define_variable("local", np.zeros(1, np.float32), [], [], [4, 5 + comm.rank])
    local.add_operation_string("plugin", CASES[0].parameters)
    scalar = io.define_variable("scalar", np.zeros(1, np.float64))

    engine = io.open(path, Mode.Write)
    for step in range(STEPS):
        engine.begin_step()
        alive = []  # a deferred put needs its array until end_step
        for case in CASES:
            if step not in case.steps:
                continue
            array = values(case.name, step)
            for box in case.blocks(comm.rank, comm.size):
                block = inside(array, box).copy()  # ADIOS2 refuses read-only arrays
                alive.append(block)
                variables[case.name].set_selection([list(extents) for extents in box])
                engine.put(variables[case.name], block, getattr(Mode, put))
        alive.append(np.full((4, 5 + comm.rank), comm.rank, np.float32))
        engine.put(local, alive[-1])
        if comm.rank == 0:
            engine.put(scalar, np.array([step + 0.5]))
        engine.end_step()
    engine.close()


if __name__ == "__main__":
    for kind in sys.argv[2:]:
        engine, stats, mode, *given = kind.split(",")
        parameters = {**(SST if engine == "SST" else {}), **dict(one.split("=") for one in given)}
        write(str(Path(sys.argv[1]) / f"{engine}_{stats}_{mode}.bp"), engine, stats, mode, parameters)
