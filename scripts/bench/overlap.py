#!/usr/bin/env python3
"""Measures what a Writer that compresses while the simulation goes on (overlap=True) saves: under mpirun.

    .venv/bin/python scripts/bench/overlap.py               # everything, about 2 minutes
    .venv/bin/python scripts/bench/overlap.py --docs        # also rewrites its section of docs/performance.md
    .venv/bin/python scripts/bench/overlap.py --size 48 --repeat 1 --steps 3 --work 5          # a small part of it

Between steps the simulation works, on the cores of the ranks (numpy) or elsewhere (it sleeps, as one that waits for a
GPU). The methods take turns, round by round, and medians are kept, without the first round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from comparison import measure
from comparison.fields import turbulence
from insitu import REL, Array, Layer, Part, Plain, Row, filled, mpirun, ms, run_part, simulate, table

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs/performance.md"
MARKS = ("<!-- overlap: begin -->", "<!-- overlap: end -->")
METHODS = ("ADIOS2 alone", "Writer", "Writer, overlap")
WORKS = ("on these cores", "elsewhere")
RANKS = (1, 2, 4)


class Nothing:
    """What is to be compared with."""

    def step(self, blocks: Sequence[object]) -> None:
        pass

    def close(self) -> None:
        pass


def opened(method: str, path: Path, comm: Any, eb: float) -> Nothing | Plain | Layer:
    if method == "nothing":
        return Nothing()
    if method == "ADIOS2 alone":
        return Plain(path, comm)
    return Layer(path, comm, eb, overlap=method == "Writer, overlap")


def work(what: str, cells: Array, options: argparse.Namespace) -> None:
    if what == "elsewhere":
        time.sleep(options.work / 1e3)
    else:
        simulate(cells, options.passes)


def rank_rows(part: Part) -> list[Row]:
    """For every kind of work and method: seconds of a step that the simulation waits at its end, and by how much a step
    gets longer than its work alone, everything included until the file is closed."""
    comm, options = part.comm, part.options
    prepared = [part.blocks(step) for step in range(2)]
    cells = np.ones(1 << 16, np.float32)
    path = options.tmpfs / "overlap.bp"
    rows = []
    for what in WORKS:
        waits: dict[str, list[float]] = {method: [] for method in ("nothing", *METHODS)}
        wholes: dict[str, list[float]] = {method: [] for method in ("nothing", *METHODS)}
        for counts in part.rounds():
            for method in wholes:
                file = opened(method, path, comm, part.eb)
                comm.Barrier()
                began = time.perf_counter()
                waited = 0.0
                for step in range(options.steps):
                    work(what, cells, options)
                    before = time.perf_counter()
                    file.step(prepared[step % 2])
                    waited += time.perf_counter() - before
                file.close()
                whole = part.slowest(time.perf_counter() - began)
                if counts:
                    waits[method].append(part.slowest(waited) / options.steps)
                    wholes[method].append(whole / options.steps)
                if method != "nothing":
                    part.remove(path)
        alone = statistics.median(wholes["nothing"])
        row: Row = {"work": what, "ranks": comm.size, "work_seconds": alone, "methods": {}}
        for method in METHODS:
            row["methods"][method] = {
                "wait_seconds": statistics.median(waits[method]),
                "longer_seconds": statistics.median(wholes[method]) - alone,
            }
        rows.append(row)
    block = prepared[0][0].array
    copy = np.empty_like(block)
    times = [part.seconds(lambda: np.copyto(copy, block)) for _ in range(20)]
    for row in rows:
        row["copy_seconds"] = statistics.median(times[1:])
    return rows


def passes_for(milliseconds: float) -> int:
    """Passes of `simulate` that take about as long, by a process that has a core for itself."""
    cells = np.ones(1 << 16, np.float32)
    simulate(cells, 100)
    began = time.perf_counter()
    simulate(cells, 1000)
    return max(1, round(1000 * milliseconds / 1e3 / (time.perf_counter() - began)))


def collect(options: argparse.Namespace) -> dict[str, Any]:
    import adios2

    head = measure.head((), measure.Plan(ebs=(), tools=(), repeat=options.repeat))
    document: dict[str, Any] = {"head": {**head, "adios2": adios2.__version__, "size": options.size}, "rows": []}
    passes = passes_for(options.work)
    with tempfile.TemporaryDirectory(prefix="cusz-overlap-", dir=options.tmpfs) as folder:
        np.save(Path(folder) / "field.npy", turbulence(options.size))
        own = ["--steps", options.steps, "--passes", passes]
        for ranks in RANKS:
            print(f"{ranks} ranks", file=sys.stderr, flush=True)
            document["rows"] += mpirun("rank", ranks, 1, options, [Path(folder)] * 2, Path(__file__), own)
    return document


def report(document: dict[str, Any], options: argparse.Namespace) -> str:
    head, rows = document["head"], document["rows"]
    text = (
        f"{head['date'][:10]}; {head['cpu']}, {head['cores']} cores; ADIOS2 {head['adios2']}, BP5, tmpfs; Python "
        f"{head['python']}, numpy {head['numpy']}. Blocks of {head['size']}^3 f32 (turbulence, "
        f"{4e-6 * head['size'] ** 3:.0f} MB), one for each rank and step, a bound of {REL:g} of the range, one thread "
        f"per rank, {options.steps} steps per file. Milliseconds per step: how long the simulation waits at the end of "
        "it / how much longer everything takes than the work alone, until the file is closed. Those of the slowest "
        f"rank, medians of {head['repeat']} rounds."
    )
    lines = []
    for row in rows:
        line = [row["work"], str(row["ranks"]), ms(row["work_seconds"])]
        for method in METHODS:
            found = row["methods"][method]
            line.append(f"{ms(found['wait_seconds'])} / {ms(found['longer_seconds'])}")
        lines.append([*line, ms(row["copy_seconds"])])
    lines_head = ["work", "ranks", "work alone, ms", *METHODS, "copying a block, ms"]
    return f"{filled(text)}\n\n{table(lines_head, lines)}"


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = options.add_argument
    add("--size", type=int, default=192, metavar="N", help="cells along each axis of a block (default: 192)")
    add("--repeat", type=int, default=5, metavar="N", help="number of rounds; medians are kept (default: 5)")
    add("--steps", type=int, default=8, metavar="N", help="of a file (default: 8)")
    add("--work", type=float, default=50.0, metavar="MS", help="milliseconds between steps (default: 50)")
    add("--tmpfs", type=Path, default=Path("/dev/shm"), metavar="FOLDER", help="in memory (default: /dev/shm)")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    add("--docs", action="store_true", help="rewrite the section of docs/performance.md")
    for name in ("--part", "--threads", "--disk"):  # of insitu.py, which starts the ranks
        add(name, help=argparse.SUPPRESS)
    add("--passes", type=int, default=0, help=argparse.SUPPRESS)
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.part:
        return run_part(rank_rows, options)
    document = collect(options)
    text = report(document, options)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.docs:
        before, _, rest = DOCS.read_text().partition(MARKS[0])
        DOCS.write_text(f"{before}{MARKS[0]}\n\n{text}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
