"""Receives what layer_write.py sends, and checks it: mpirun python layer_receive.py STREAM Reader|plain"""

from __future__ import annotations

import sys

import adios2
import numpy as np
from cases import STEPS, or_abort, values
from layer import LAYER_CASES, problems, read_and_check
from mpi4py import MPI

import cusz_operator as cz
import support

comm = MPI.COMM_WORLD


def by_reader() -> None:
    with cz.Reader(sys.argv[1], comm, engine="SST", parameters={"OpenTimeoutSecs": 60}) as run:
        steps = [each for i, step in enumerate(run) for each in read_and_check(comm, step, i)]
        assert len({case.name for case, _ in steps}) == len(LAYER_CASES)
        assert run.attributes["purpose"] == "a test"


def by_plain_adios2() -> None:
    io = adios2.Adios(comm=comm).declare_io("input")
    io.set_engine("SST")
    io.set_parameters({"OpenTimeoutSecs": "60"})
    engine = io.open(sys.argv[1], adios2.Mode.Read, comm)
    for step in range(STEPS):
        assert engine.begin_step() == adios2.StepStatus.OK
        for case in LAYER_CASES:
            if step not in case.steps:
                continue
            variable = io.inquire_variable(case.name)
            zeros = (0,) * len(case.shape)
            variable.set_selection([list(zeros), list(case.shape)])
            got = np.empty(case.shape, values(case.name, step).dtype)
            engine.get(variable, got, adios2.Mode.Sync)
            found = problems(case, step, (zeros, case.shape), got)
            assert not found, (case.name, step, found)
            low, high = support.value_range(values(case.name, step), case.fill)
            told = io.available_variables()[case.name]
            assert (told["Min"], told["Max"]) == (f"{low:e}", f"{high:e}"), (case.name, step)
        engine.end_step()
    # ADIOS2 can crash if an SST reader closes at the same time as the writer.
    assert engine.begin_step() == adios2.StepStatus.EndOfStream
    engine.close()


def main() -> None:
    by_reader() if sys.argv[2] == "Reader" else by_plain_adios2()
    if comm.rank == 0:
        print("received", STEPS, flush=True)


or_abort(main)
