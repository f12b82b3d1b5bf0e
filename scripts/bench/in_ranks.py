"""Shared by the studies under mpirun: files written and read in each way, the work of a rank, and how ranks start.

Alternatives take turns in one run, round by round, so that disturbances affect all alike; medians are kept, without
the first round. A study's script is also the program of its ranks: there `main` gets "--rank FILE", where
FILE has the options and the name of the part that they run.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import runner
from comparison.fields import turbulence
from runner import Document, Row

TIMEOUT_S = 600  # of one mpirun
REL = 1e-3  # relative to the field's range
ALONE = "ADIOS2 alone"
#: For all compression here. The published tables use Lorenzo.
OPTIONS: dict[str, Any] = {"threads": 1, "predictor": "lorenzo"}

Array = np.ndarray[Any, Any]
Extents = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Block:
    name: str
    array: Array
    shape: Extents
    start: Extents


# ------------------------------------------------------------------------------------------------- files, by method


class Plain:
    """A file or stream that ADIOS2 writes by itself: blocks uncompressed, or through the operator."""

    def __init__(
        self,
        path: Path | str,
        comm: Any,
        eb: float | None = None,
        mode: Any = "abs",
        engine: str = "BP5",
        parameters: Mapping[str, str] = {},
    ) -> None:
        import adios2

        import cusz_operator

        self.adios = adios2.Adios(comm=comm)
        self.operator = cusz_operator.define_operator(self.adios, eb, mode, **OPTIONS) if eb is not None else None
        self.io = self.adios.declare_io("plain")
        self.io.set_engine(engine)
        self.io.set_parameters({"StatsLevel": "0", **parameters})
        self.engine = self.io.open(str(path), adios2.Mode.Write, comm)
        self.variables: dict[str, Any] = {}

    def step(self, blocks: Iterable[Block]) -> None:
        self.engine.begin_step()
        for block in blocks:
            where = [list(block.start), list(block.array.shape)]
            variable = self.variables.get(block.name)
            if variable is None:
                variable = self.io.define_variable(block.name, block.array, list(block.shape), *where)
                if self.operator is not None:
                    variable.add_operation(self.operator)
                self.variables[block.name] = variable
            variable.set_selection(where)
            self.engine.put(variable, block.array)
        self.engine.end_step()

    def close(self) -> None:
        self.engine.close()


class Layer:
    """A file or stream written by a Writer."""

    def __init__(self, path: Path | str, comm: Any, eb: float, mode: Any = "abs", **options: Any) -> None:
        import cusz_operator

        self.out = cusz_operator.Writer(path, comm, eb=eb, mode=mode, progress=False, **OPTIONS, **options)
        self.close = self.out.close

    def step(self, blocks: Iterable[Block]) -> None:
        with self.out.step():
            for block in blocks:
                self.out.put(block.name, block.array, block.shape, block.start)


class Nothing:
    """Writes nothing: the baseline for the others."""

    def step(self, blocks: Iterable[Block]) -> None:
        pass

    def close(self) -> None:
        pass


def opened(method: str, path: Path, comm: Any, eb: float) -> Nothing | Plain | Layer:
    """A file for a method: a Writer's option follows a comma."""
    if method == "nothing":
        return Nothing()
    if method in (ALONE, "operator"):
        return Plain(path, comm, eb if method == "operator" else None)
    _, _, option = method.partition(", ")
    return Layer(path, comm, eb, **({option: True} if option else {}))


class PlainReader:
    """A file read by ADIOS2 itself."""

    def __init__(self, path: Path) -> None:
        import adios2

        self.adios2 = adios2
        self.adios = adios2.Adios()
        self.io = self.adios.declare_io("plain")
        self.engine = self.io.open(str(path), adios2.Mode.ReadRandomAccess)
        self.close = self.engine.close

    def get(self, name: str, start: Extents, count: Extents, out: Array) -> None:
        variable = self.io.inquire_variable(name)
        variable.set_step_selection([0, 1])
        variable.set_selection([list(start), list(count)])
        self.engine.get(variable, out, self.adios2.Mode.Sync)


def files_of(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()]


def synchronise(path: Path, forget: bool = False) -> None:
    """Waits until the files are on the disk; `forget`: makes the kernel drop them from the page cache."""
    for file in files_of(path):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            if forget:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def simulate(cells: Array, passes: int) -> None:
    """Stands in for the simulation between two steps: a fixed amount of work, however long it takes."""
    for _ in range(passes):
        np.multiply(cells, 0.999, out=cells)
        np.add(cells, 0.001, out=cells)


def grid_of(blocks: int) -> Extents:
    """The numbers of boxes along three axes, roughly equal."""
    x = next(n for n in range(round(blocks ** (1 / 3)), 0, -1) if blocks % n == 0)
    y = next(n for n in range(round((blocks // x) ** 0.5), 0, -1) if blocks // x % n == 0)
    return (blocks // x // y, y, x)


# ----------------------------------------------------------------------------------------------------- a rank's work


class Part:
    """The state of a part on each rank: its options, the field, and timing that all ranks agree on."""

    def __init__(self, comm: Any, options: argparse.Namespace) -> None:
        self.comm, self.options = comm, options
        self.field = np.load(options.tmpfs / "field.npy")
        self.eb = REL * float(self.field.max() - self.field.min())

    def blocks(self, step: int, each: int = 1) -> list[Block]:
        """This rank's blocks of a step: cubes stacked along the first axis, `each` per rank."""
        n, size = self.field.shape[0], self.comm.size * each
        found = []
        for i in range(self.comm.rank * each, (self.comm.rank + 1) * each):
            array = np.roll(self.field, (37 * i + 11 * step, 17 * i, 5 * step), (0, 1, 2))
            found.append(Block("T", array, (size * n, n, n), (i * n, 0, 0)))
        return found

    def small_blocks(self, cells: int, pieces: Sequence[Array]) -> list[Block]:
        """--blocks blocks for each rank, cycling through these cubes, adjacent in the global array."""
        grid = grid_of(self.options.blocks * self.comm.size)
        corners = [tuple(cells * i for i in index) for index in np.ndindex(*grid)][self.comm.rank :: self.comm.size]
        shape = tuple(cells * extent for extent in grid)
        return [Block("T", pieces[i % len(pieces)], shape, corner) for i, corner in enumerate(corners)]

    def seconds(self, call: Callable[[], object]) -> float:
        """The time of the slowest rank; all start together (collective)."""
        self.comm.Barrier()
        return self.slowest(runner.seconds(call))

    def slowest(self, seconds: float) -> float:
        from mpi4py import MPI

        longest: float = self.comm.allreduce(seconds, MPI.MAX)
        return longest

    def rounds(self) -> Iterator[bool]:
        """An uncounted round, then the requested ones: yields whether each counts."""
        return iter([False] + [True] * self.options.repeat)

    def remove(self, path: Path) -> None:
        self.comm.Barrier()
        if self.comm.rank == 0:
            shutil.rmtree(path)
        self.comm.Barrier()


def archives_of(part: Part, blocks: Sequence[Block], eb: float, mode: Any = "abs", name: str = "bytes") -> list[Block]:
    """The archives of all ranks' blocks, one after another, as blocks of one variable (collective)."""
    import cusz_core

    archives = [cusz_core.compress(block.array, eb, mode, **OPTIONS) for block in blocks]
    lengths = part.comm.allgather(sum(map(len, archives)))
    at = sum(lengths[: part.comm.rank])
    found = []
    for archive in archives:
        writable = np.frombuffer(bytearray(archive), np.uint8)  # as ADIOS2 requires
        found.append(Block(name, writable, (sum(lengths),), (at,)))
        at += len(archive)
    return found


Parts = Mapping[str, Callable[[Part], list[Row]]]


def run_rank(parts: Parts, file: Path) -> int:
    """The work of a rank; rank 0 writes the rows."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    options = pickle.loads(file.read_bytes())
    try:
        rows = parts[options.part](Part(comm, options))
        if comm.rank == 0:
            file.with_suffix(".json").write_text(json.dumps(rows))
    except BaseException:
        if comm.size == 1:  # mpirun may lose the output of a rank that aborts, and no other rank waits
            raise
        import traceback

        traceback.print_exc()
        comm.Abort(1)
    return 0


# ------------------------------------------------------------------------------------------------------ the command

_numbers = itertools.count()


def words_of_rank(script: str, part: str, options: argparse.Namespace, **more: Any) -> tuple[list[str], Path]:
    """The command of a rank, and the file that will have its rows."""
    file = options.tmpfs / f"options{next(_numbers)}.pickle"
    file.write_bytes(pickle.dumps(argparse.Namespace(**{**vars(options), **more, "part": part})))
    return [sys.executable, script, "--rank", str(file)], file.with_suffix(".json")


def mpirun(script: str, part: str, ranks: int, options: argparse.Namespace, **more: Any) -> list[Row]:
    """The rows of a part, run by ranks of a script; `more` goes to their options."""
    words, result = words_of_rank(script, part, options, **more)
    environment = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": str(more.get("threads", 1))}
    command = ["bash", "-c", '. scripts/common.sh; mpi_on_one_machine; exec mpirun "$@"', "mpirun", "-n", str(ranks)]
    subprocess.run([*command, *words], cwd=runner.ROOT, env=environment, check=True, timeout=TIMEOUT_S)
    rows: list[Row] = json.loads(result.read_text())
    return rows


def parser(
    doc: str | None, page: Path, *, size: int = 192, repeat: int = 5, of: str = "rounds", tmpfs: str = "/dev/shm"
) -> argparse.ArgumentParser:
    """The options of these studies."""
    made = runner.parser(doc, repeat=repeat, of=of, docs=page)
    text = f"cells along each axis of a block (default: {size})"
    made.add_argument("--size", type=int, default=size, metavar="N", help=text)
    text = f"where the files go, best in memory (default: {tmpfs})"
    made.add_argument("--tmpfs", type=Path, default=Path(tmpfs), metavar="FOLDER", help=text)
    return made


def new_document(options: argparse.Namespace, **more: Any) -> Document:
    import adios2

    return {"head": runner.machine(options.repeat, adios2=adios2.__version__, size=options.size, **more), "rows": []}


@contextlib.contextmanager
def scratch(options: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """The options with new folders in place of --tmpfs and --disk, and the field in the first."""
    with contextlib.ExitStack() as stack:
        own = argparse.Namespace(**vars(options))
        for name in ("tmpfs", "disk"):
            if place := getattr(options, name, None):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cusz-study-", dir=place))
                setattr(own, name, Path(folder).resolve())
        np.save(own.tmpfs / "field.npy", turbulence(options.size))
        yield own


def main(
    options: argparse.ArgumentParser,
    parts: Parts,
    collect: Callable[[argparse.Namespace], Document],
    report: Callable[[Document], str],
    section: str,
    page: Path,
    tables: Callable[[Document], dict[str, tuple[Sequence[object], Sequence[Sequence[object]]]]] = lambda _: {},
) -> int:
    """Runs a study. `tables`, head and lines by name, are printed, and written by --docs into the folder figures."""
    words = sys.argv[1:]
    if words[:1] == ["--rank"]:
        return run_rank(parts, Path(words[1]))
    given = options.parse_args(words)
    document = collect(given)
    runner.publish(document, report(document), given, section, page)
    for name, cells in tables(document).items():
        print(f"\n{runner.table(*cells)}")
        if given.docs:
            runner.write_table(page.parent / "figures" / name, *cells)
    return 0
