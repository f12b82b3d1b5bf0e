"""Ranks that suffer faults while they write: mpirun python faults.py KIND FILE ENGINE [ARGUMENT]...

Afterwards, python faults.py check FILE [STEPS] prints how many steps there are, and what is wrong (see `check`).

Every rank keeps a log that outlives it, FILE.rankN or, if LOG is in the environment, LOG.rankN, with lines such as
"pid 123", "step 0" once the end of that step has returned, "error CuszError: ..." and "closed".
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import adios2
import numpy as np
from numpy.typing import NDArray

import cusz_core
import cusz_operator as cz
import support
from cusz_core import tuning
from cusz_operator.plugin import Plugin
from cusz_operator.tables import blocktable
from cusz_operator.writing import agreement, compression, control, overlaps, together, writer

SHAPE = (12, 500)
EB = 1e-3
SST = {"RendezvousReaderCount": "1", "DataTransport": "WAN", "OpenTimeoutSecs": "60", "QueueLimit": "5"}
COLUMNS_OF_NOISE = 1 << 17  # per rank and step, to fill the disk: 1 MiB that does not compress


def field(name: str, step: int) -> NDArray[Any]:
    """The global array of U, which is in every step, or of V, which is in every odd one."""
    return support.smooth(SHAPE, support.F32 if name == "U" else support.F64, seed=step)


def names(step: int) -> list[str]:
    return ["U", "V"] if step % 2 else ["U"]


def rows(rank: int, ranks: int) -> slice:
    return slice(SHAPE[0] * rank // ranks, SHAPE[0] * (rank + 1) // ranks)


def put_step(out: cz.Writer, step: int, rank: int, ranks: int) -> None:
    part = rows(rank, ranks)
    for name in names(step):
        out.put(name, field(name, step)[part], SHAPE, (part.start, 0))


def problems(path: Path, read: Callable[[int, str], Any], steps: int) -> list[str]:
    """What is wrong in steps 0 to `steps` - 1, read one by one."""
    found = []
    for step in range(steps):
        for name in names(step):
            try:
                violations = support.violations(field(name, step), read(step, name), EB)
            except Exception as error:
                violations = [f"{type(error).__name__}: {error}"]
            found += [f"{path}, step {step}, {name}: {text}" for text in violations[:1]]
    return found


def check(path: Path, least: int) -> tuple[int, list[str]]:
    """The number of steps, and what is wrong with them; fewer than `least` steps are wrong, too."""
    with cz.Reader(path) as run:
        n = len(run)
        found = problems(path, lambda step, name: run[step].read(name), n)
    if n:
        with adios2.FileReader(str(path)) as plain:
            own = {"U": lambda step: step, "V": lambda step: step // 2}
            found += problems(
                path, lambda step, name: plain.read(name, step_selection=[own[name](step), 1]).reshape(SHAPE), n
            )
            if plain.num_steps() != n:
                found.append(f"{path}: plain ADIOS2 sees {plain.num_steps()} steps, the Reader {n}")
    if n < least:
        found.append(f"{path}: {n} steps are there, and {least} were said to be complete")
    return n, found


def logs(path: Path, ranks: int) -> list[list[str]]:
    """The log lines of every rank, without process IDs and memory sizes."""
    texts = [Path(f"{path}.rank{rank}").read_text(encoding="utf-8") for rank in range(ranks)]
    return [[line for line in text.splitlines() if not line.startswith(("pid", "rss"))] for text in texts]


class Log:
    """A log whose lines reach the file at once, whatever happens to the process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.line(f"pid {os.getpid()}")

    def line(self, text: str) -> None:
        os.write(self._file, f"{text}\n".encode())

    def error(self, error: BaseException) -> None:
        self.line(f"error {type(error).__name__}: {' '.join(str(error).split())}")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()


# ---------------------------------------------------------------------------------------------------------- kinds


def steps(
    log: Log, comm: Any, path: str, engine: Any, how_many: str, append: str = "", overlap: bool = False, **given: Any
) -> None:
    """Writes steps, and logs the memory of the process every 10 steps. PREDICTOR may be in the environment.
    With overlap, a step is logged when the next one has ended."""
    first = int(append or 0)
    options: dict[str, Any] = {"predictor": os.environ.get("PREDICTOR", "auto")}
    options |= {"parameters": SST if engine == "SST" else {}, **given}
    with cz.Writer(path, comm, eb=EB, engine=engine, append=bool(append), overlap=overlap, **options) as out:
        log.line("open")
        for step in range(first, first + int(how_many)):
            with out.step():
                put_step(out, step, comm.rank, comm.size)
            if step - overlap >= first:
                log.line(f"step {step - overlap}")
            if step % 10 == 9:
                log.line(f"rss {resident_bytes()}")
    log.line("closed")


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns when the condition is true.

    Raises:
        TimeoutError: it is not true within 60 s.
    """
    give_up = time.monotonic() + 60
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError("not within 60 s")
        time.sleep(0.001)


def receive(log: Log, comm: Any, path: str, engine: Any, last: str = "", others: str = "") -> None:
    """Reads all steps of a stream, each rank its share, and logs the memory of the process like `steps`. The last rank
    fails in step `last`; with `others`, these then wait for it in their own communication. Before each step, rank 0
    waits while the file exists that HOLD in the environment names."""
    with cz.Reader(path, comm, engine=engine, parameters={"OpenTimeoutSecs": "60"}) as run:
        for step in run:
            if comm.rank == 0 and (hold := os.environ.get("HOLD")):
                wait_until(lambda: not Path(hold).exists())
            for name in names(step.index):
                start, count = step.share(name)
                got = step.read(name)
                expected = field(name, step.index)[start[0] : start[0] + count[0]]
                assert not support.violations(expected, got, EB), (step.index, name)
            log.line(f"step {step.index}")
            if last and step.index == int(last) and comm.rank == comm.size - 1:
                raise ValueError("of the monitor")
            if others and step.index == int(last):
                comm.Barrier()
            if step.index % 10 == 9:
                log.line(f"rss {resident_bytes()}")
    log.line("closed")


def fail(log: Log, comm: Any, path: str, engine: Any, *wheres: str) -> None:
    """Writes steps that fail on the last rank, each in another way, and repeats each one without the failure."""
    is_wrong = comm.rank == comm.size - 1
    with cz.Writer(path, comm, eb=EB, engine=engine) as out:
        for step, where in enumerate(wheres):
            for spoil in (SPOILERS[where] if is_wrong else nothing, nothing):
                mend = nothing()
                try:
                    with out.step():
                        mend = spoil(out, comm.size)
                        put_step(out, step, comm.rank, comm.size)
                    log.line(f"step {step}")
                except cusz_core.CuszError as error:
                    log.error(error)
                finally:
                    mend()
    log.line("closed")


def other_ranks(log: Log, comm: Any, path: str, engine: Any) -> None:
    """Appends one step with each of several Writers; which ranks put a variable differs between them."""
    x = support.smooth((4, 5), support.F32)
    for number, variables in enumerate([{"a": [0, 1, 2], "b": [0, 1, 2]}, {"a": [1]}, {"b": [1, 2], "c": [0]}]):
        with cz.Writer(path, comm, eb=EB, engine=engine, append=number > 0) as out, out.step():
            for name, ranks in variables.items():
                if comm.rank in ranks:
                    out.put(name, x, (4 * comm.size, 5), (4 * comm.rank, 0))


#: Exceptions that end a program.
LEAVING = {"exit 0": SystemExit(0), "exit 1": SystemExit(1), "error": ValueError("of the simulation")}


def leave(log: Log, comm: Any, path: str, engine: Any, mode: str, who: str, how: str, where: str) -> None:
    """Leaves the with statement after three steps, or in the fourth, on all ranks or only on the last one."""
    modes = {} if mode == "plain" else {mode: True}
    leaves = who == "all" or comm.rank == comm.size - 1
    try:
        with cz.Writer(path, comm, eb=EB, engine=engine, **modes) as out:
            for step in range(4):
                with out.step():
                    put_step(out, step, comm.rank, comm.size)
                    if step == 3 and leaves:
                        raise LEAVING[how]
                if step == 2 and leaves and where == "between steps":
                    raise LEAVING[how]
    except SystemExit as left:
        log.line(f"left {left}")
    except Exception as error:
        log.error(error)


def strand(log: Log, comm: Any, path: str, engine: Any, victim: str, where: str, overlap: str = "") -> None:
    """A rank fails after three steps, or in the fourth, while the others wait for it in the program's own
    communication."""
    fails = comm.rank == int(victim)
    with cz.Writer(path, comm, eb=EB, engine=engine, overlap=bool(overlap)) as out:
        for step in range(4):
            with out.step():
                if step == 3:
                    if fails and where == "in a step":
                        raise LEAVING["error"]
                    comm.Barrier()
                put_step(out, step, comm.rank, comm.size)
            log.line(f"step {step}")
            if step == 2:
                if fails and where == "between steps":
                    raise LEAVING["error"]
                comm.Barrier()


def leave_open(log: Log, comm: Any, path: str, engine: Any, who: str, how: str) -> None:
    """As `leave` between steps, but the Writer is not closed, because there is no with statement."""
    out = cz.Writer(path, comm, eb=EB, engine=engine)
    sys.modules["kept"] = out  # type: ignore[assignment]  # as a variable of the program's is
    for step in range(4):
        if step == 3 and (who == "all" or comm.rank == comm.size - 1):
            if how == "end":
                return
            raise LEAVING[how]
        with out.step():
            put_step(out, step, comm.rank, comm.size)
        log.line(f"step {step}")


def fill(log: Log, comm: Any, path: str, engine: Any, check: str) -> None:
    """Writes until the disk is full, then a smaller step that may still fit."""
    if check.startswith("unchecked"):
        writer.require_room = nothing  # type: ignore[assignment, attr-defined]
        cz.ranks.PATIENCE = 3.0  # type: ignore[attr-defined]
    noise = support.random_bits((1, COLUMNS_OF_NOISE), support.F64, seed=comm.rank)
    with cz.Writer(path, comm, eb=EB, engine=engine, asynchronous=check.endswith("asynchronous")) as out:
        for step in range(100):
            try:
                with out.step():
                    put_step(out, step, comm.rank, comm.size)
                    if step > 0:
                        out.put("noise", noise, (comm.size, COLUMNS_OF_NOISE), (comm.rank, 0))
                log.line(f"step {step}")
            except cusz_core.CuszError as error:
                log.error(error)
                break
        with out.step():
            put_step(out, step, comm.rank, comm.size)
        log.line(f"step {step}")
    log.line("closed")


def nothing(*_: Any) -> Callable[[], None]:
    return lambda: None


def raising(where: Any, function: str, error: Exception) -> Callable[[Any, int], Callable[[], None]]:
    """Makes a function fail until the returned function is called."""

    def spoil(*_: Any) -> Callable[[], None]:
        def raise_it(*_: Any, **__: Any) -> Any:
            raise error

        keep = getattr(where, function)
        setattr(where, function, raise_it)
        return lambda: setattr(where, function, keep)

    return spoil


def exhaust_memory(out: cz.Writer, ranks: int) -> Callable[[], None]:
    """Limits memory so that the archive of a block does not fit."""
    n = 1 << 24
    noise = support.random_bits((n,), support.F32)
    in_use = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (16 << 20), before[1]))
    out.put("noise", noise)
    return lambda: resource.setrlimit(resource.RLIMIT_AS, before)


def fail_to_find_a_range(out: cz.Writer, ranks: int) -> Callable[[], None]:
    """Puts a variable whose bound depends on its value range, which then cannot be computed."""
    out.put("relative", np.ones(5, np.float32), eb=1e-3, mode="rel")
    return raising(cusz_core, "value_range", cusz_core.DeviceError("the device is gone"))(out, ranks)


class WrongArray:
    """Claims to be in device memory, but is not."""

    shape, dtype = (4, 4), np.dtype(np.float32)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (4, 4), "typestr": "<f4", "data": (4096, False), "version": 3, "strides": None}


def put(array: Any) -> Callable[[Any, int], Callable[[], None]]:
    def spoil(out: cz.Writer, _: int) -> Callable[[], None]:
        out.put("wrong", array)
        return nothing()

    return spoil


def wrongly(**change: Any) -> Callable[[Any, int], Callable[[], None]]:
    """Overrides arguments of every put; those in SPOILERS are wrong on the last of three ranks."""

    def spoil(out: Any, _: int) -> Callable[[], None]:
        put = out.put

        def put_wrongly(name: str, array: NDArray[Any], shape: Any, start: Any) -> None:
            put(**{"name": name, "array": array, "shape": shape, "start": start, **change})

        out.put = put_wrongly
        return lambda: setattr(out, "put", put)

    return spoil


def fail_itself(*_: Any) -> Callable[[], None]:
    raise ValueError("of the simulation")


SPOILERS: dict[str, Callable[[Any, int], Callable[[], None]]] = {
    "memory": exhaust_memory,
    "range": fail_to_find_a_range,
    "device": raising(cusz_core, "compress_described", cusz_core.DeviceError("the device is gone")),
    "bare memory": raising(cusz_core, "compress_described", MemoryError("no memory for this")),
    "table": raising(writer, "parts_of", MemoryError("no memory for this")),
    "not an array": put(["text"]),
    "not on a device": put(WrongArray()),
    "big-endian": put(np.zeros(5, ">f4")),
    "long complex": put(np.zeros(5, np.clongdouble)),
    "dtype": wrongly(array=np.zeros((4, 500), np.float64)),
    "shape": wrongly(shape=(12, 501)),
    "settings": wrongly(eb=0.5),
    "overlap": wrongly(start=(5, 0)),
    "outside": wrongly(start=(9, 0)),
    "long doubles": wrongly(array=np.zeros((4, 500), np.longdouble)),
    "no name": wrongly(name=""),
    "dimensions": wrongly(start=(0,)),
    "user": fail_itself,
    "not stored": raising(Plugin, "hand_over", cz.PluginError("the disk is gone")),
}

#: Options with which the last rank opens its Writer unlike the others; those of "folder" are for all ranks.
OPENINGS: dict[str, dict[str, Any]] = {
    "engines": {"engine": "BP4"},
    "folder": {"path": "not there/run.bp"},
    "bound": {"eb": -1.0},
    "parameter": {"parameters": {"StatsLevel": 2}},
}


def open_wrongly(log: Log, comm: Any, path: str, engine: Any, *kinds: str) -> None:
    for kind in kinds:
        options = {"path": path, "eb": EB, "engine": engine}
        if comm.rank == comm.size - 1 or kind == "folder":
            options |= OPENINGS[kind]
        try:
            cz.Writer(comm=comm, **options)
        except cusz_core.CuszError as error:
            log.error(error)


#: Functions that a rank calls on its own, between exchanges with the others.
ANYWHERE: dict[str, tuple[Any, str]] = {
    "described": (writer, "described"),
    "digest": (agreement, "digest"),
    "spans_of": (agreement, "spans_of"),
    "heads_of": (agreement, "heads_of"),
    "merged_told": (agreement, "merged_told"),
    "arrays_of": (agreement, "arrays_of"),
    "told_by": (agreement, "told_by"),
    "values_of": (agreement, "values_of"),
    "Layout": (together, "Layout"),
    "rows_of": (overlaps, "rows_of"),
    "_sampled": (overlaps, "_sampled"),
    "best_cut": (overlaps, "best_cut"),
    "sides": (overlaps, "sides"),
    "first_overlap": (overlaps, "first_overlap"),
    "spans_from": (agreement, "spans_from"),
    "bounds_of": (agreement, "bounds_of"),
    "compress": (compression.Compressor, "compress"),
    "find": (tuning.Search, "find"),
    "estimate": (tuning.Search, "estimate"),
    "sample": (tuning, "sample"),
    "_in_units": (control, "_in_units"),
    "parts_of": (writer, "parts_of"),
    "in_one": (together.Layout, "in_one"),
    "free_bytes": (writer, "free_bytes"),
    "totals_of": (blocktable, "totals_of"),
}


def anywhere(log: Log, comm: Any, path: str, engine: Any, victim: str, overlap: str = "") -> None:
    """Makes each function of ANYWHERE fail on one rank, in steps of several kinds, with a good step before each.

    The kind says what differs from the step before: nothing, blocks move, only one rank puts some variables, or a bound
    must be searched for.
    """
    together.RANKS_OF_A_TABLE = 2
    moved, goal = 0, 40.0
    with cz.Writer(path, comm, eb=EB, engine=engine, overlap=bool(overlap), progress=False) as out:

        def put_kind(kind: str) -> None:
            part = rows((comm.rank + moved) % comm.size, comm.size)
            options = {"psnr": goal} if kind == "sought" else {}
            out.put("U", field("U", 0)[part], SHAPE, (part.start, 0), **options)
            out.put("time", 1.5)
            if kind == "names" and comm.rank == 1:
                out.put("V", field("V", 1))
                out.put("of rank 1", 2.5)

        for name, (where, function) in ANYWHERE.items():
            goal = 120.0 - goal  # unlike the last one, so that the bound is searched for again
            for kind in ("same", "moved", "names", "sought"):
                spoil = raising(where, function, MemoryError(name)) if comm.rank == int(victim) else nothing
                for is_bad in (False, True):  # good first, so that "same" is indeed the same as the step before
                    mend = nothing()
                    moved += kind == "moved" and is_bad
                    try:
                        with out.step():
                            mend = spoil(out, comm.size) if is_bad else mend
                            put_kind(kind if is_bad else "good")
                        said = "step"
                    except cusz_core.CuszError as error:
                        said = f"{type(error).__name__}: {error}"
                    finally:
                        mend()
                log.line(f"{name}, {kind}: {said}")
                if overlap:  # takes the error of the step that is still pending
                    with contextlib.suppress(cusz_core.CuszError), out.step():
                        put_kind("good")
    log.line("closed")


KINDS: dict[str, Callable[..., None]] = {
    "steps": steps,
    "overlap": functools.partial(steps, overlap=True),
    "asynchronous": functools.partial(steps, asynchronous=True),
    "both": functools.partial(steps, overlap=True, parameters={"AsyncWrite": "Guided"}),
    "anywhere": anywhere,
    "receive": receive,
    "fail": fail,
    "other ranks": other_ranks,
    "leave": leave,
    "leave open": leave_open,
    "strand": strand,
    "fill": fill,
    "open": open_wrongly,
}


def main(arguments: Sequence[str]) -> None:
    kind, path, *rest = arguments
    if kind == "check":  # in a process without MPI
        n, found = check(Path(path), int(*rest))
        print(n, *found, sep="\n")
        return

    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    log = Log(f"{os.environ.get('LOG', path)}.rank{comm.rank}")
    try:
        KINDS[kind](log, comm, path, *rest)
    except Exception as error:
        log.error(error)
        raise


if __name__ == "__main__":
    main(sys.argv[1:])
