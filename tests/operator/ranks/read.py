"""Reads what write.py wrote and checks every value: mpirun python read.py stream|random,ENGINE,FILE..."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from cases import CASES, STEPS, Box, Case, Mode, StepStatus, make_adios, or_abort, problems, values
from mpi4py import MPI

import support

comm = MPI.COMM_WORLD


def selections(case: Case, step: int) -> Iterator[Box]:
    """The whole variable, on one rank only; this rank's share along the last axis; a random box."""
    shape = case.shape
    zeros = (0,) * len(shape)
    if comm.rank == step % comm.size:
        yield zeros, shape
    first, last = (shape[-1] * (comm.rank + i) // comm.size for i in (0, 1))
    yield (*zeros[1:], first), (*shape[:-1], last - first)
    draws = support.integers(2 * len(shape), 0, 1000, seed=step * 100 + comm.rank)
    starts = tuple(int(d) % extent for d, extent in zip(draws, shape, strict=False))
    counts = tuple(1 + int(d) % (e - s) for d, e, s in zip(draws[len(shape) :], shape, starts, strict=True))
    yield starts, counts


def check(io: Any, engine: Any, name: str, step: int, writers: int, own_step: int | None) -> int:
    """Reads and checks all variables at a step, and returns how many selections were compared."""
    pending = []
    for case in CASES:
        if step not in case.steps:
            continue
        for start, count in selections(case, step):
            variable = io.inquire_variable(case.name)
            assert variable is not None, f"{name}: no {case.name} in step {step}"
            assert tuple(variable.shape()) == case.shape
            if own_step is not None:
                variable.set_step_selection([case.steps.index(step), 1])
            variable.set_selection([list(start), list(count)])
            got = np.full(count, 77, values(case.name, step).dtype)
            engine.get(variable, got, Mode.Deferred)
            pending.append((case, (start, count), got))
    engine.perform_gets()
    for case, selection, got in pending:
        found = problems(case, step, writers, selection, got)
        assert not found, f"{name}, {case.name}, step {step}, {selection}, {comm.rank=}: {found}"
    return len(pending)


def main() -> None:
    for source in sys.argv[1:]:
        how, engine_type, name = source.split(",", 2)
        adios = make_adios(comm)
        io = adios.declare_io("input")
        io.set_engine(engine_type)
        if engine_type == "SST":
            io.set_parameters({"OpenTimeoutSecs": "60"})
        engine = io.open(name, Mode.Read if how == "stream" else Mode.ReadRandomAccess)
        compared = 0
        if how == "stream":
            for step in range(STEPS):
                status = engine.begin_step()
                assert status == StepStatus.OK, f"{name}: step {step}: {status}"
                writers = int(np.ravel(io.inquire_attribute("writers").data())[0])
                compared += check(io, engine, name, step, writers, None)
                engine.end_step()
            assert engine.begin_step() == StepStatus.EndOfStream
        else:
            writers = int(np.ravel(io.inquire_attribute("writers").data())[0])
            for step in reversed(range(STEPS)):
                compared += check(io, engine, name, step, writers, step)
        engine.close()
        total = comm.reduce(compared)
        if comm.rank == 0:
            print(f"{name}: {total} selections", flush=True)


if __name__ == "__main__":
    or_abort(main)
