"""Writers that compress while the simulation goes on: mpirun python layer_overlap.py KIND FILE ENGINE [ARGUMENT]...

Needs MPI4PY_RC_THREAD_LEVEL=funneled in the environment: only the main thread may call MPI. Logs are like those of
faults.py.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import faults
import numpy as np
from cases import STEPS, inside, values
from layer import LAYER_CASES
from mpi4py import MPI

import cusz_core
import cusz_operator as cz
import support
from cusz_operator.writing import background, writer


def write(log: faults.Log, comm: Any, path: str, engine: Any, *options: str) -> None:
    """Writes the variables of layer.py, and others; overwrites their arrays as soon as each step has ended."""
    with cz.Writer(path, comm, engine=engine, **dict.fromkeys(options, True)) as out:
        for step in range(STEPS):
            arrays = []

            def put(name: str, array: np.ndarray, *where: Any, arrays: list[Any] = arrays, **how: Any) -> None:
                arrays.append(array.copy())
                out.put(name, arrays[-1], *where, **how)

            with out.step():
                for case in LAYER_CASES:
                    if step not in case.steps:
                        continue
                    how = {"eb": case.eb, "mode": case.mode, "fill": case.fill}
                    for box in case.blocks(comm.rank, comm.size):
                        block = inside(values(case.name, step), box)
                        predictor = case.parameters.get("predictor")
                        put(case.name, block, case.shape, box[0], **how, predictor=predictor)  # type: ignore[arg-type]
                whole, start = (5 * comm.size, 40), (5 * comm.rank, 0)
                x = support.smooth((5, 40), support.F32, seed=10 * step + comm.rank)
                put("half", x.astype(np.float16), whole, start, eb=0.1)
                put("complex", x + 1j * x[::-1], whole, start, eb=0.1)
                put("integers", (1000 * x).astype(np.int32), whole, start)
                put("packed", (1000 * x).astype(np.int64), whole, start, lossless="zstd")
                put("transposed", x.T, (40, 5 * comm.size), (0, 5 * comm.rank), eb=1e-3)
                out.put("time", 0.5 + step)
            for array in arrays:
                array.view(np.uint8)[...] = 0x55
            log.line(f"step {step}")
    log.line("closed")


class Failing:
    """Makes a function fail, either when this thread calls it or when another one does."""

    def __init__(self, where: Any, function: str, error: Exception, in_background: bool = True) -> None:
        self._place = where, function
        self._keep = keep = getattr(where, function)
        own = threading.get_ident()

        def fail(*arguments: Any, **options: Any) -> Any:
            if (threading.get_ident() != own) == in_background:
                raise error
            return keep(*arguments, **options)

        setattr(where, function, fail)

    def mend(self) -> None:
        setattr(*self._place, self._keep)


GONE, NO_MEMORY = cusz_core.DeviceError("the device is gone"), MemoryError("no memory for this")
#: Where the last rank fails, and with what.
FAILURES: dict[str, Callable[[], Failing]] = {
    "device": lambda: Failing(cusz_core, "compress_described", GONE),
    "memory": lambda: Failing(cusz_core, "compress_described", NO_MEMORY),
    "table": lambda: Failing(writer, "parts_of", NO_MEMORY),
    "copy": lambda: Failing(background.Background, "copied", NO_MEMORY, in_background=False),
}


def fail(log: faults.Log, comm: Any, path: str, engine: Any, *wheres: str) -> None:
    """For every failure: a good step, then one that fails on the last rank, whose error the end of the next step
    raises. The last failure has no next step; closing raises its error."""
    is_wrong = comm.rank == comm.size - 1
    out = cz.Writer(path, comm, eb=faults.EB, engine=engine, overlap=True)
    n = 0

    def step() -> None:
        with out.step():
            faults.put_step(out, n, comm.rank, comm.size)
        log.line(f"ended {n}")

    for where in wheres:
        step()
        n += 1
        if out._pending is not None:
            out._pending.made.exception()  # waits, so that the good step is compressed before anything is spoiled
        failure = FAILURES[where]() if is_wrong else None
        step()
        if where == wheres[-1]:
            break
        try:
            step()
        except cusz_core.CuszError as error:
            log.error(error)
        if failure is not None:
            failure.mend()
    try:
        out.close()
    except cusz_core.CuszError as error:
        log.error(error)
    if failure is not None:
        failure.mend()
    log.line("closed")


def wrong_thread(log: faults.Log, comm: Any, path: str, engine: Any) -> None:
    """Calls MPI from another thread, which the library of thread.c must notice."""
    thread = threading.Thread(target=comm.Barrier)
    thread.start()
    thread.join()
    log.line("not noticed")


KINDS: dict[str, Callable[..., None]] = {
    "write": write,
    "fail": fail,
    "steps": faults.KINDS["overlap"],
    "wrong thread": wrong_thread,
}


def main(arguments: Sequence[str]) -> None:
    assert MPI.Query_thread() == MPI.THREAD_FUNNELED
    kind, path, *rest = arguments
    log = faults.Log(f"{os.environ.get('LOG', path)}.rank{MPI.COMM_WORLD.rank}")
    KINDS[kind](log, MPI.COMM_WORLD, path, *rest)


if __name__ == "__main__":
    main(sys.argv[1:])
