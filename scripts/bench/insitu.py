#!/usr/bin/env python3
"""Measures writing and reading in situ, side by side under mpirun: ADIOS2 alone, the operator, Writer and Reader.

    .venv/bin/python scripts/bench/insitu.py               # everything, about 6 minutes
    .venv/bin/python scripts/bench/insitu.py --docs        # and the section of docs/performance.md anew
    .venv/bin/python scripts/bench/insitu.py --size 48 --repeat 2 --blocks 400 --only write     # a small part of it

What is compared takes turns in one run, round by round, so that whatever disturbs the machine hits all alike; medians
are kept, and the first round is not. Fields are turbulence as compare.py generates it, periodic, and shifted for
every rank and step. Files go to --tmpfs and to --disk, and are removed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from comparison import measure
from comparison.fields import turbulence
from comparison.report import significant

import cusz_core

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs/performance.md"
MARKS = ("<!-- insitu: begin -->", "<!-- insitu: end -->")
TIMEOUT_S = 600  # of one mpirun

Array = np.ndarray[Any, Any]
Extents = tuple[int, ...]
Row = dict[str, Any]

REL = 1e-3  # of the field's range
METHODS = ("ADIOS2 alone", "operator", "Writer", "Writer, asynchronous")
BLOCKS_METHODS = METHODS[:3]
OVERHEAD = ("range", "compress", "bytes", "operator", "Writer")
STEPS = 4  # of a file
BLOCKS_STEPS = 3
BLOCK_CELLS = 16  # along each axis of the blocks of the part "blocks"
WRITERS = 4  # of the file that is read
BLOCKS_EACH = 2  # that each of them puts
BOX = 32  # cells along each axis of a small box
BOXES = 8


@dataclasses.dataclass(frozen=True)
class Block:
    name: str
    array: Array
    shape: Extents
    start: Extents


# ------------------------------------------------------------------------------------------------- files, by method


class Plain:
    """A file that ADIOS2 writes by itself: blocks as they are, or by the operator."""

    def __init__(self, path: Path, comm: Any, eb: float | None = None, mode: Any = "abs") -> None:
        import adios2

        import cusz_operator

        self.adios2 = adios2
        self.adios = adios2.Adios(comm=comm)
        self.operator = cusz_operator.define_operator(self.adios, eb, mode, threads=1) if eb is not None else None
        self.io = self.adios.declare_io("plain")
        self.io.set_parameters({"StatsLevel": "0"})
        self.engine = self.io.open(str(path), adios2.Mode.Write, comm)
        self.variables: dict[str, Any] = {}

    def step(self, blocks: Sequence[Block]) -> None:
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
    """A file of a Writer."""

    def __init__(self, path: Path, comm: Any, eb: float, mode: Any = "abs", **options: bool) -> None:
        import cusz_operator

        self.out = cusz_operator.Writer(path, comm, eb=eb, mode=mode, threads=1, progress=False, **options)
        self.close = self.out.close

    def step(self, blocks: Sequence[Block]) -> None:
        with self.out.step():
            for block in blocks:
                self.out.put(block.name, block.array, block.shape, block.start)


def opened(method: str, path: Path, comm: Any, eb: float) -> Plain | Layer:
    if method == "ADIOS2 alone":
        return Plain(path, comm)
    if method == "operator":
        return Plain(path, comm, eb)
    return Layer(path, comm, eb, asynchronous=method == "Writer, asynchronous")


class PlainReader:
    """A file read by ADIOS2 itself."""

    def __init__(self, path: Path) -> None:
        import adios2

        self.adios2 = adios2
        self.adios = adios2.Adios()
        self.io = self.adios.declare_io("plain")
        self.engine = self.io.open(str(path), adios2.Mode.ReadRandomAccess)

    def get(self, name: str, start: Extents, count: Extents, out: Array) -> None:
        variable = self.io.inquire_variable(name)
        variable.set_step_selection([0, 1])
        variable.set_selection([list(start), list(count)])
        self.engine.get(variable, out, self.adios2.Mode.Sync)

    def close(self) -> None:
        self.engine.close()


# ------------------------------------------------------------------------------------------------- what all parts do


class Part:
    """What a part has on every rank: its options, the field, clocks that all ranks agree on."""

    def __init__(self, comm: Any, options: argparse.Namespace) -> None:
        self.comm, self.options = comm, options
        self.folders: dict[str, Path] = {"tmpfs": options.tmpfs, "disk": options.disk}
        field = np.load(options.tmpfs / "field.npy")
        self.field = field
        self.eb = REL * float(field.max() - field.min())

    def blocks(self, step: int, each: int = 1) -> list[Block]:
        """This rank's blocks of a step: cubes stacked along the first axis, `each` a rank."""
        n, size = self.field.shape[0], self.comm.size * each
        found = []
        for i in range(self.comm.rank * each, (self.comm.rank + 1) * each):
            array = np.roll(self.field, (37 * i + 11 * step, 17 * i, 5 * step), (0, 1, 2))
            found.append(Block("T", array, (size * n, n, n), (i * n, 0, 0)))
        return found

    def seconds(self, call: Callable[[], object]) -> float:
        """Of the slowest rank; all begin together (collective)."""
        self.comm.Barrier()
        began = time.perf_counter()
        call()
        return self.slowest(time.perf_counter() - began)

    def slowest(self, seconds: float) -> float:
        from mpi4py import MPI

        longest: float = self.comm.allreduce(seconds, MPI.MAX)
        return longest

    def rounds(self) -> Iterator[bool]:
        """As many as asked for and one before them: whether the round counts."""
        for number in range(self.options.repeat + 1):
            yield number > 0

    def remove(self, path: Path) -> None:
        self.comm.Barrier()
        if self.comm.rank == 0:
            shutil.rmtree(path)
        self.comm.Barrier()


def files_of(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()]


def stored_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in files_of(path))


def synchronise(path: Path, forget: bool = False) -> None:
    """Waits until the files are on the disk; `forget`: has the kernel drop what it keeps of them in memory."""
    for file in files_of(path):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            if forget:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def simulate(cells: Array, passes: int) -> None:
    """Stands for the simulation between two steps: so much work, however long it takes."""
    for _ in range(passes):
        np.multiply(cells, 0.999, out=cells)
        np.add(cells, 0.001, out=cells)


# ------------------------------------------------------------------------------------------------------------ parts


def write(part: Part) -> list[Row]:
    """Steps with work in between: how long the simulation waits in each, and how much longer the whole takes."""
    comm, options = part.comm, part.options
    prepared = [part.blocks(step) for step in range(2)]
    raw = comm.size * prepared[0][0].array.nbytes
    cells = np.ones(1 << 16, np.float32)
    rows = []
    for where, folder in part.folders.items():
        waits: dict[str, list[float]] = {method: [] for method in METHODS}
        wholes: dict[str, list[float]] = {method: [] for method in ("nothing", *METHODS)}
        stored = {}
        path = folder / "write.bp"
        for counts in part.rounds():
            for method in ("nothing", *METHODS):
                file = None if method == "nothing" else opened(method, path, comm, part.eb)
                comm.Barrier()
                began = time.perf_counter()
                for step in range(STEPS):
                    simulate(cells, options.work)
                    blocks = prepared[step % 2]
                    waited = part.seconds(lambda file=file, blocks=blocks: file.step(blocks) if file else None)
                    if counts and file is not None:
                        waits[method].append(waited)
                if file is not None:
                    file.close()
                    comm.Barrier()
                    if comm.rank == 0:
                        synchronise(path)
                comm.Barrier()
                whole = part.slowest(time.perf_counter() - began)
                if counts:
                    wholes[method].append(whole)
                if file is not None:
                    stored[method] = stored_bytes(path) / STEPS
                    part.remove(path)
        alone = statistics.median(wholes["nothing"])
        rows += [
            {
                "where": where,
                "ranks": comm.size,
                "method": method,
                "raw_bytes": raw,
                "stored_bytes": stored[method],
                "step_seconds": statistics.median(waits[method]),
                "whole_seconds": (statistics.median(wholes[method]) - alone) / STEPS,
                "work_seconds": alone / STEPS,
            }
            for method in METHODS
        ]
    return rows


def overhead(part: Part) -> list[Row]:
    """A step by the operator and by a Writer beside its two parts: compressing, and ADIOS2 writing the same bytes."""
    rows = []
    for where, folder in part.folders.items():
        for named, eb in (("abs", part.eb), ("abs, ranges=False", part.eb), ("rel", REL)):
            mode, ranges = named[:3], named in ("abs", "rel")
            times: dict[str, list[float]] = {name: [] for name in OVERHEAD}
            cpu: dict[str, list[float]] = {name: [] for name in OVERHEAD}
            for counts in part.rounds():
                paths = {name: folder / f"{name}.bp" for name in OVERHEAD[2:]}
                files: dict[str, Plain | Layer] = {
                    "bytes": Plain(paths["bytes"], part.comm),
                    "operator": Plain(paths["operator"], part.comm, eb, mode),
                    "Writer": Layer(paths["Writer"], part.comm, eb, mode, ranges=ranges),
                }
                for step in range(STEPS):
                    for name, call in overhead_calls(part, step, files, mode, eb).items():
                        began = time.process_time()
                        seconds = part.seconds(call)
                        if counts and step > 0:  # the first step makes ADIOS2's buffers
                            times[name].append(seconds)
                            cpu[name].append(time.process_time() - began)
                for name, file in files.items():
                    file.close()
                    part.remove(paths[name])
            row: Row = {"where": where, "ranks": part.comm.size, "mode": named}
            row |= {f"{name}_seconds": statistics.median(seconds) for name, seconds in times.items()}
            for kind, found in (("excess", times), ("cpu_excess", cpu)):
                both = [sum(of_step) for of_step in zip(found["compress"], found["bytes"], strict=True)]
                row |= {
                    f"{name}_{kind}": statistics.median(t / b - 1 for t, b in zip(found[name], both, strict=True))
                    for name in OVERHEAD[3:]
                }
            rows.append(row)
    return rows


def overhead_calls(
    part: Part, number: int, files: dict[str, Plain | Layer], mode: Any, eb: float
) -> dict[str, Callable[[], object]]:
    """What is timed of a step, by name."""
    (block,) = part.blocks(number % 2)
    archive = cusz_core.compress(block.array, eb, mode, threads=1)
    lengths = part.comm.allgather(len(archive))
    stored = np.frombuffer(bytearray(archive), np.uint8)  # ADIOS2 wants it writable
    as_bytes = Block(f"T{number}", stored, (sum(lengths),), (sum(lengths[: part.comm.rank]),))
    return {
        "range": lambda: cusz_core.value_range(block.array, threads=1),
        "compress": lambda: cusz_core.compress(block.array, eb, mode, threads=1),
        "bytes": lambda: files["bytes"].step([as_bytes]),
        "operator": lambda: files["operator"].step([block]),
        "Writer": lambda: files["Writer"].step([block]),
    }


def make(part: Part) -> list[Row]:
    """The file that the part "read" reads."""
    for folder in part.folders.values():
        file = Layer(folder / "read.bp", part.comm, part.eb)
        file.step(part.blocks(0, BLOCKS_EACH))
        file.close()
        if part.comm.rank == 0:
            synchronise(folder / "read.bp")
    return []


def read(part: Part) -> list[Row]:
    """A rank's share, and small boxes in it, by Reader and by ADIOS2; what fetching and decoding alone take."""
    comm, threads = part.comm, part.options.threads
    rows = []
    for where, folder in part.folders.items():
        path = folder / "read.bp"
        calls = reads(part, path, threads)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for counts in part.rounds():
            for name, call in calls.items():
                if where == "disk":
                    comm.Barrier()
                    if comm.rank == 0:
                        synchronise(path, forget=True)
                seconds = part.seconds(call)
                if counts:
                    times[name].append(seconds)
        row = {f"{name}_seconds": statistics.median(found) for name, found in times.items()}
        raw = part.field.nbytes * WRITERS * BLOCKS_EACH
        rows.append({"where": where, "ranks": comm.size, "threads": threads, "raw_bytes": raw, **row})
    return rows


def reads(part: Part, path: Path, threads: int) -> dict[str, Callable[[], object]]:
    """What is timed, by name. All give the same values, which is checked here."""
    import cusz_operator
    from cusz_operator.plugin import Plugin

    step = cusz_operator.Reader(path, part.comm, threads=threads, cache_bytes=0)[0]
    again = cusz_operator.Reader(path, part.comm, threads=threads)[0]
    plain = PlainReader(path)
    start, count = step.share("T")
    random = np.random.default_rng(part.comm.rank)
    room = [extent - BOX + 1 for extent in count]
    corners = [tuple(int(s + random.integers(n)) for s, n in zip(start, room, strict=True)) for _ in range(BOXES)]
    whole, other, small = np.zeros(count, np.float32), np.zeros(count, np.float32), (BOX,) * 3

    def boxes_of_reader(source: Any = step) -> list[Array]:
        return [source.read("T", corner, small) for corner in corners]

    def boxes_of_adios2() -> list[Array]:
        found = [np.empty(small, np.float32) for _ in corners]
        for corner, out in zip(corners, found, strict=True):
            plain.get("T", corner, small, out)
        return found

    calls: dict[str, Callable[[], object]] = {
        "reader": lambda: step.read("T", start, count, out=whole),
        "adios2": lambda: plain.get("T", start, count, other),
        "reader_boxes": boxes_of_reader,
        "adios2_boxes": boxes_of_adios2,
        "kept_boxes": lambda: boxes_of_reader(again),
    }
    for name in ("reader", "adios2"):
        calls[name]()
    if not np.array_equal(whole, other) or not np.array_equal(boxes_of_reader(), boxes_of_adios2()):
        raise SystemExit("insitu: Reader and ADIOS2 read different values")
    if part.comm.size == 1:
        plugin = Plugin()
        table = step.blocks("T")
        one = np.empty((1, 1, 1), np.float32)

        def capture() -> list[Array]:
            found = []
            for row in table:
                corner = tuple(row["start"].tolist())
                archive = plugin.capture(
                    "T", int(row["archive_bytes"]), lambda corner=corner: plain.get("T", corner, (1, 1, 1), one)
                )
                assert archive is not None
                found.append(archive)
            return found

        archives = capture()

        def decode() -> None:
            for row, archive in zip(table, archives, strict=True):
                first, n = int(row["start"][0]), int(row["count"][0])
                cusz_core.decompress(archive, out=other[first : first + n], threads=threads)

        calls |= {"capture": capture, "decode": decode}
    return calls


def blocks(part: Part) -> list[Row]:
    """What thousands of small blocks cost: to put, in metadata, to open, to find and to read one."""
    comm, options = part.comm, part.options
    cells = (BLOCK_CELLS,) * 3
    grid = grid_of(options.blocks)
    shape = tuple(n * BLOCK_CELLS for n in grid)
    corners = [tuple(int(i) * BLOCK_CELLS for i in index) for index in np.ndindex(grid)]
    mine = corners[len(corners) * comm.rank // comm.size : len(corners) * (comm.rank + 1) // comm.size]
    n = part.field.shape[0] // BLOCK_CELLS
    piece = [np.ascontiguousarray(part.field[i * BLOCK_CELLS :][:BLOCK_CELLS, :BLOCK_CELLS, :BLOCK_CELLS])
             for i in range(n)]  # fmt: skip
    listed = [Block("T", piece[i % n], shape, corner) for i, corner in enumerate(mine)]
    rows = []
    folder = part.folders["tmpfs"]
    for method in BLOCKS_METHODS:
        path = folder / "blocks.bp"
        file = opened(method, path, comm, part.eb)
        steps = [part.seconds(lambda file=file: file.step(listed)) for _ in range(BLOCKS_STEPS)]
        file.close()
        comm.Barrier()
        row: Row = {"method": method, "ranks": comm.size, "blocks": len(corners), "raw_bytes": 4 * int(np.prod(shape))}
        row["first_seconds"], row["later_seconds"] = steps[0], statistics.median(steps[1:])
        if comm.rank == 0:
            sizes = {file.name: file.stat().st_size for file in files_of(path)}
            row["metadata_bytes"] = sum(size for name, size in sizes.items() if not name.startswith("data.")) / len(
                steps
            )
            row["data_bytes"] = sum(size for name, size in sizes.items() if name.startswith("data.")) / len(steps)
            row.update(blocks_read(path, method, corners[len(corners) // 2], cells, shape))
        comm.Barrier()
        rows.append(row)
        part.remove(path)
    return rows


def blocks_read(path: Path, method: str, corner: Extents, cells: Extents, shape: Extents) -> Row:
    """Seconds, in this process alone: to open, to have the table, for one block, once more, and for all of a step."""
    import cusz_operator

    clock = [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    row: Row = {}
    if method == "Writer":
        reader = cusz_operator.Reader(path, threads=1)
        row["open_seconds"] = lap()
        step = reader[0]
        step.blocks("T")
        row["table_seconds"] = lap()
        for name in ("one", "again"):
            step.read("T", corner, cells)
            row[f"{name}_seconds"] = lap()
        step.read("T", (0,) * len(shape), shape)
        row["all_seconds"] = lap()
        reader.close()
        return row
    plain = PlainReader(path)
    row["open_seconds"] = lap()
    plain.engine.blocks_info("T", 0)
    row["table_seconds"] = lap()
    for name, start, count in (("one", corner, cells), ("again", corner, cells), ("all", (0,) * len(shape), shape)):
        plain.get("T", start, count, np.empty(count, np.float32))
        row[f"{name}_seconds"] = lap()
    plain.close()
    return row


def grid_of(blocks: int) -> Extents:
    """So many boxes along each of three axes, about as many along each."""
    x = next(n for n in range(round(blocks ** (1 / 3)), 0, -1) if blocks % n == 0)
    y = next(n for n in range(round((blocks // x) ** 0.5), 0, -1) if blocks // x % n == 0)
    return (blocks // x // y, y, x)


PARTS = {part.__name__: part for part in (write, overhead, make, read, blocks)}
#: (part, ranks, threads) of every mpirun, in their order.
RUNS = [
    *(("write", ranks, 1) for ranks in (1, 2, 4)),
    *(("overhead", ranks, 1) for ranks in (1, 2)),
    ("make", WRITERS, 1),
    *(("read", ranks, threads) for ranks, threads in ((1, 1), (1, 2), (2, 1), (4, 1))),
    ("blocks", 2, 1),
]


def rank_main(options: argparse.Namespace) -> int:
    """What a rank does; rank 0 leaves the rows."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    try:
        rows = PARTS[options.part](Part(comm, options))
        if comm.rank == 0:
            options.json.write_text(json.dumps(rows))
    except BaseException:
        import traceback

        traceback.print_exc()
        comm.Abort(1)
    return 0


# ------------------------------------------------------------------------------------------------------ the command


def mpirun(part: str, ranks: int, threads: int, options: argparse.Namespace, folders: Sequence[Path]) -> list[Row]:
    result = folders[0] / "rows.json"
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": str(threads),
    }
    words = ["--part", part, "--threads", threads, "--tmpfs", folders[0], "--disk", folders[1], "--json", result]
    words += ["--repeat", options.repeat, "--work", options.work, "--blocks", options.blocks]
    command = ["mpirun", "-n", str(ranks), sys.executable, __file__, *map(str, words)]
    subprocess.run(command, env=environment, check=True, timeout=TIMEOUT_S)
    rows: list[Row] = json.loads(result.read_text())
    return rows


def collect(options: argparse.Namespace) -> dict[str, Any]:
    import adios2

    head = measure.head((), measure.Plan(ebs=(), tools=(), repeat=options.repeat))
    document: dict[str, Any] = {
        "head": {
            **head,
            "adios2": adios2.__version__,
            "size": options.size,
            "tmpfs": str(options.tmpfs),
            "disk": file_system(options.disk),
            "note": options.note,
        }
    }
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="cusz-insitu-", dir=options.tmpfs) as tmpfs,
        tempfile.TemporaryDirectory(prefix="cusz-insitu-", dir=options.disk) as disk,
    ):
        folders = (Path(tmpfs), Path(disk))
        np.save(folders[0] / "field.npy", turbulence(options.size))
        for part, ranks, threads in RUNS:
            if options.only and part not in options.only and not (part == "make" and "read" in options.only):
                continue
            print(f"{time.perf_counter() - began:4.0f} s: {part}, {ranks} ranks", file=sys.stderr, flush=True)
            document.setdefault(part, []).extend(mpirun(part, ranks, threads, options, folders))
    document["head"]["seconds"] = time.perf_counter() - began
    return document


def file_system(folder: Path) -> str:
    done = subprocess.run(["df", "--output=fstype", folder], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


# ----------------------------------------------------------------------------------------------------------- tables


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def ms(seconds: float) -> str:
    return significant(1e3 * seconds)


def rate(row: Row, name: str) -> str:
    return significant(row["raw_bytes"] / row[f"{name}_seconds"] / 1e9)


def write_table(rows: list[Row]) -> str:
    found = {(row["where"], row["ranks"], row["method"]): row for row in rows}
    lines = []
    for where, ranks in dict.fromkeys((row["where"], row["ranks"]) for row in rows):
        of_all = [found[where, ranks, method] for method in METHODS]
        times = [f"{ms(row['step_seconds'])} / {ms(row['whole_seconds'])}" for row in of_all]
        single = found.get((where, 1, "Writer"))
        scaling = significant(single["step_seconds"] / of_all[2]["step_seconds"]) if single else "–"
        sizes = [f"{of_all[0]['raw_bytes'] / 1e6:.0f}", f"{of_all[2]['stored_bytes'] / 1e6:.1f}"]
        lines.append([where, str(ranks), *sizes, *times, rate(of_all[2], "step"), scaling])
    head = ["where", "ranks", "raw MB", "stored MB", *METHODS, "Writer, raw GB/s", "Writer, 1 rank / this"]
    return table(head, lines)


def overhead_table(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        line = [row["where"], str(row["ranks"]), row["mode"], *(ms(row[f"{name}_seconds"]) for name in OVERHEAD)]
        for name in OVERHEAD[3:]:
            of_cpu = f" ({100 * row[f'{name}_cpu_excess']:.0f}%)" if row["ranks"] == 1 else ""
            line.append(f"{100 * row[f'{name}_excess']:.0f}%{of_cpu}")
        lines.append(line)
    head = ["where", "ranks", "mode", "range alone", "compressing alone", "bytes by ADIOS2", "operator", "Writer"]
    return table([*head, "operator beyond the two", "Writer beyond the two"], lines)


def read_table(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        alone = [rate(row, name) if f"{name}_seconds" in row else "–" for name in ("capture", "decode")]
        factor = significant(row["adios2_seconds"] / row["reader_seconds"])
        small = [ms(row[f"{name}_boxes_seconds"] / BOXES) for name in ("reader", "kept", "adios2")]
        whole = [rate(row, name) for name in ("reader", "adios2")]
        lines.append([row["where"], str(row["ranks"]), str(row["threads"]), *whole, factor, *alone, *small])
    head = ["where", "ranks", "threads", "Reader, GB/s", "ADIOS2, GB/s", "Reader / ADIOS2", "fetching alone, GB/s"]
    return table([*head, "decoding alone, GB/s", "box, Reader, ms", "box again, ms", "box, ADIOS2, ms"], lines)


def blocks_table(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        n = row["blocks"]
        puts = [significant(1e6 * row[f"{name}_seconds"] / n) for name in ("first", "later")]
        sizes = [significant(row[f"{name}_bytes"] / n) for name in ("metadata", "data")]
        reads = [ms(row[f"{name}_seconds"]) for name in ("open", "table", "one", "again", "all")]
        lines.append([row["method"], *puts, *sizes, *reads])
    head = ["", "first step, us/block", "later steps, us/block", "metadata, bytes/block", "data, bytes/block"]
    return table([*head, "open, ms", "table, ms", "one block, ms", "the same again, ms", "all blocks, ms"], lines)


def report(document: dict[str, Any]) -> str:
    head, n = document["head"], document["head"]["size"]
    machine = (
        f"{head['date'][:10]}; {head['cpu']}, {head['cores']} cores; {head['system']}; ADIOS2 {head['adios2']}, BP5; "
        f"Python {head['python']}, numpy {head['numpy']}. {head['note']}"
    )
    conditions = (
        f"Blocks of {n}^3 f32 (turbulence, {4e-6 * n**3:.0f} MB), a bound of {REL:g} of the range, one thread per "
        f"rank unless stated otherwise. Times are those of the slowest rank, medians of {head['repeat']} rounds. tmpfs "
        f"is {head['tmpfs']}, and the disk's file system is {head['disk']}. If there are more ranks than cores, "
        "they share them."
    )
    parts = [filled(machine), filled(conditions)]
    if "write" in document:
        work = statistics.median(row["work_seconds"] for row in document["write"])
        text = (
            f"One block per rank and step, {STEPS} steps per file, about {1e3 * work:.0f} ms of work between steps. "
            "Milliseconds per step: how long the simulation waits in it / how much longer everything takes than the "
            "work alone, until the file is closed and (`fsync`) on the disk."
        )
        parts += ["### Writing", filled(text), write_table(document["write"])]
    if "overhead" in document:
        text = (
            "Milliseconds per step without work in between, for: compressing a block; writing the bytes of its archive "
            "as a plain variable; a step with the operator, and with a Writer, which do both. The time beyond the sum "
            "of the two is the median over steps; the figure in brackets is the same for CPU time, which depends less "
            "on what else the machine does (not given for several ranks, because there it includes waiting for each "
            "other). A Writer first finds the range of every block, for relative bounds and the block table (with "
            "`ranges=False` for the former alone); compressing alone does so if the bound is relative."
        )
        parts += ["### What a Writer adds", filled(text), overhead_table(document["overhead"])]
    if "read" in document:
        text = (
            f"A file of {WRITERS * BLOCKS_EACH} blocks: all of it, and boxes of {BOX}^3 at random positions. On the "
            "disk, nothing of the file is in memory beforehand. Fetching alone has ADIOS2 read every archive and "
            "decodes none (ADIOS2 still fills a temporary buffer of the block's raw size); decoding alone is from "
            "memory. Box again: from a block whose archive the Reader has kept; it keeps none in the other columns."
        )
        parts += ["### Reading", filled(text), read_table(document["read"])]
    if "blocks" in document:
        first = document["blocks"][0]
        text = (
            f"{first['blocks']} blocks of {BLOCK_CELLS}^3 f32 ({4 * BLOCK_CELLS**3} bytes) per step, put by "
            f"{first['ranks']} ranks, on tmpfs; read by one process. The time of writing a block is that of the step "
            "divided by the number of blocks. Data includes the block table; metadata is what ADIOS2 itself keeps. The "
            "table is the Reader's; for ADIOS2 alone it is `blocks_info`."
        )
        parts += ["### Many small blocks", filled(text), blocks_table(document["blocks"])]
    return "\n\n".join(parts)


def filled(text: str) -> str:
    return textwrap.fill(text.strip(), 120, break_long_words=False, break_on_hyphens=False)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = options.add_argument
    add("--size", type=int, default=192, metavar="N", help="cells along each axis of a block (default: 192)")
    add("--repeat", type=int, default=5, metavar="N", help="rounds of which medians are kept (default: 5)")
    add("--work", type=int, default=4000, metavar="N", help="passes over 256 KB between steps (default: 4000)")
    add("--blocks", type=int, default=10_000, metavar="N", help="small blocks (default: 10000)")
    add("--only", nargs="+", choices=("write", "overhead", "read", "blocks"), help="some parts")
    add("--tmpfs", type=Path, default=Path("/dev/shm"), metavar="FOLDER", help="in memory (default: /dev/shm)")
    add("--disk", type=Path, default=ROOT, metavar="FOLDER", help="on a disk (default: this checkout)")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    add("--docs", action="store_true", help="write the section of docs/performance.md anew")
    add("--note", default="", metavar="TEXT", help="a sentence for the head of the tables, on what disturbed the run")
    add("--part", choices=PARTS, help=argparse.SUPPRESS)
    add("--threads", type=int, default=1, help=argparse.SUPPRESS)
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.part:
        return rank_main(options)
    document = collect(options)
    text = report(document)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.docs:
        before, _, rest = DOCS.read_text().partition(MARKS[0])
        DOCS.write_text(f"{before}{MARKS[0]}\n\n{text}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
