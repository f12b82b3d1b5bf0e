#!/usr/bin/env python3
"""Measures what a Writer that compresses while the simulation goes on (overlap=True) saves: under mpirun.

    .venv/bin/python scripts/bench/overlap.py               # everything, about 2 minutes
    .venv/bin/python scripts/bench/overlap.py --docs        # also rewrites its section of overlap.md
    .venv/bin/python scripts/bench/overlap.py --size 48 --repeat 1 --steps 3 --work 5          # a small part of it

Between steps the simulation works, on the cores of the ranks (numpy) or elsewhere (it sleeps, as one that waits for a
GPU).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import in_ranks
import numpy as np
import runner
from in_ranks import ALONE, REL, Array, Part, simulate
from runner import Document, Row, filled, ms, table

PAGE = runner.PAGES / "overlap.md"
METHODS = (ALONE, "Writer", "Writer, overlap")
WORKS = ("on these cores", "elsewhere")
RANKS = (1, 2, 4)


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
        wholes: dict[str, list[float]] = {method: [] for method in waits}
        for counts in part.rounds():
            for method in wholes:
                file = in_ranks.opened(method, path, comm, part.eb)
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
    return [{**row, "copy_seconds": statistics.median(times[1:])} for row in rows]


def passes_for(milliseconds: float) -> int:
    """Passes of `simulate` that take about as long, by a process that has a core for itself."""
    cells = np.ones(1 << 16, np.float32)
    simulate(cells, 100)
    return max(1, round(milliseconds / runner.seconds(lambda: simulate(cells, 1000))))


def collect(options: argparse.Namespace) -> Document:
    document = in_ranks.new_document(options, steps=options.steps)
    passes = passes_for(options.work)
    with in_ranks.scratch(options) as here:
        for ranks in RANKS:
            runner.say(f"{ranks} ranks")
            document["rows"] += in_ranks.mpirun(__file__, "rank", ranks, here, passes=passes)
    return document


def report(document: Document) -> str:
    head, rows = document["head"], document["rows"]
    text = (
        f"{runner.where(head)}; ADIOS2 {head['adios2']}, BP5, tmpfs; Python {head['python']}, numpy {head['numpy']}. "
        f"Blocks of {head['size']}^3 f32 (turbulence, {4e-6 * head['size'] ** 3:.0f} MB), one for each rank and step, "
        f"a bound of {REL:g} of the range, one thread per rank, {head['steps']} steps per file. Milliseconds per step: "
        "how long the simulation waits at the end of it / how much longer everything takes than the work alone, until "
        f"the file is closed. Those of the slowest rank, medians of {head['repeat']} rounds."
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
    options = in_ranks.parser(__doc__, PAGE)
    options.add_argument("--steps", type=int, default=8, metavar="N", help="of a file (default: 8)")
    text = "milliseconds between steps (default: 50)"
    options.add_argument("--work", type=float, default=50.0, metavar="MS", help=text)
    return options


if __name__ == "__main__":
    sys.exit(in_ranks.main(parser(), {"rank": rank_rows}, collect, report, "overlap", PAGE))
