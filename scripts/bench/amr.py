#!/usr/bin/env python3
"""Measures the cost of the many small blocks of a code with adaptive mesh refinement, to write and open, under mpirun.

    .venv/bin/python scripts/bench/amr.py                       # everything, about 2 minutes
    .venv/bin/python scripts/bench/amr.py --docs                # also rewrites its section of docs/benchmarks/nodes.md
    .venv/bin/python scripts/bench/amr.py --blocks 50 --repeat 1    # a small part of it

Every rank puts --blocks blocks, cut out of one field. They are written by ADIOS2 unchanged, through the operator, and
by a Writer; the three take turns, step by step. A Reader reads what the Writer wrote. Then ranks open a file of
--of-file blocks together, and each reads one of them.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import in_ranks
import numpy as np
import runner
from in_ranks import OPTIONS, REL, Block, Part
from runner import Document, Row, filled, significant, table

import cusz_core

PAGE = runner.PAGES / "nodes.md"
RANKS = (1, 2)
CELLS = (16, 32)  # along each axis of a block
METHODS = (in_ranks.ALONE, "operator", "Writer")
READERS = (1, 2, 4, 8)  # ranks
EDGE = 4  # cells along each axis of a block in the file that readers open


def blocks_of(part: Part, cells: int) -> list[Block]:
    """This rank's blocks: those of the field in turn, next to each other in the global array."""
    n = part.field.shape[0] // cells
    pieces = [
        np.ascontiguousarray(part.field[tuple(slice(cells * i, cells * (i + 1)) for i in index)])
        for index in np.ndindex(n, n, n)
    ]
    return part.small_blocks(cells, pieces)


def steps(part: Part) -> list[Row]:
    """Medians over steps, for the slowest rank and blocks of every size."""
    rows = []
    for cells in CELLS:
        blocks = blocks_of(part, cells)
        paths = {method: part.options.tmpfs / f"{method}.bp" for method in METHODS}
        files = {method: in_ranks.opened(method, path, part.comm, part.eb) for method, path in paths.items()}
        calls: dict[str, Callable[[], object]] = {
            "compressing": functools.partial(compress, blocks, part.eb),
            **{method: functools.partial(file.step, blocks) for method, file in files.items()},
        }
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        counted = 0
        for counts in part.rounds():
            counted += 1
            for name, call in calls.items():
                taken = part.seconds(call)
                if counts:
                    seconds[name].append(taken)
        row: Row = {"ranks": part.comm.size, "cells": cells, "blocks": len(blocks)}
        row["seconds"] = {name: statistics.median(taken) for name, taken in seconds.items()}
        row["bytes"] = {}
        for method, file in files.items():
            file.close()
            part.comm.Barrier()
            if method == "Writer":
                row["seconds"]["Reader"] = reading(part, paths[method])
            row["bytes"][method] = runner.stored_bytes(paths[method]) / counted / len(blocks) / part.comm.size
            part.remove(paths[method])
        rows.append(row)
    return rows


def reading(part: Part, path: Path) -> float:
    """The median over steps, after the first, of the time in which each rank reads its share."""
    import cusz_operator

    with cusz_operator.Reader(path, part.comm, threads=1) as run:
        return statistics.median([part.seconds(functools.partial(step.read, "T")) for step in run][1:])


def compress(blocks: list[Block], eb: float) -> None:
    cusz_core.compress_many([block.array for block in blocks], eb, **OPTIONS)


def make(part: Part) -> list[Row]:
    """The file that the part "read" opens: one step of one variable."""
    import cusz_operator

    grid = in_ranks.grid_of(part.options.of_file)
    x = np.ascontiguousarray(part.field[:EDGE, :EDGE, :EDGE])
    with cusz_operator.Writer(part.options.tmpfs / "read.bp", eb=part.eb, progress=False, **OPTIONS) as out, out.step():
        for index in np.ndindex(*grid):
            out.put("T", x, tuple(EDGE * n for n in grid), tuple(EDGE * i for i in index))
    return []


def read(part: Part) -> list[Row]:
    """Medians over rounds for the slowest rank, and the bytes that a rank reads from the file."""
    import cusz_operator

    comm, path = part.comm, part.options.tmpfs / "read.bp"
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n_files = sum(file.stat().st_size for file in in_ranks.files_of(path) if not file.name.startswith("data."))
    taken: dict[str, list[float]] = {"open": [], "first": [], "second": []}
    for counts in part.rounds():
        before, lap = bytes_read(), runner.Clock().lap
        comm.Barrier()
        lap()
        with cusz_operator.Reader(path, comm, threads=1) as run:
            found = [lap()]
            step = run[0]
            (n, *_) = step.shape("T")
            for i in (0, 1):
                corner = n // EDGE * (comm.rank + i * comm.size) // (2 * comm.size) * EDGE
                step.read("T", (corner, 0, 0), (EDGE,) * 3)
                found.append(lap())
        n_read = bytes_read() - before
        for of, seconds in zip(taken.values(), found, strict=True):
            of += [part.slowest(seconds)] if counts else []
    row: Row = {f"{name}_seconds": statistics.median(of) for name, of in taken.items()}
    row |= {
        "ranks": comm.size,
        "blocks": part.options.of_file,
        "bytes": part.slowest(n_read),
        "metadata_bytes": n_files,
        "memory_bytes": 1024 * part.slowest(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - kilobytes),
    }
    return [row]


def bytes_read() -> int:
    """Bytes read so far by system calls of this process."""
    words = Path("/proc/self/io").read_text(encoding="utf-8").split()
    return int(words[words.index("rchar:") + 1])


def collect(options: argparse.Namespace) -> Document:
    document = in_ranks.new_document(options, blocks=options.blocks, load=os.getloadavg()[0])
    with in_ranks.scratch(options) as here:
        for ranks in RANKS:
            runner.say(f"{ranks} ranks")
            document["rows"] += in_ranks.mpirun(__file__, "steps", ranks, here)
        in_ranks.mpirun(__file__, "make", 1, here)
        document["read"] = []
        for ranks in READERS:
            runner.say(f"{ranks} ranks open a file")
            document["read"] += in_ranks.mpirun(__file__, "read", ranks, here)
    return document


def report(document: Document) -> str:
    head = document["head"]
    of_steps = (
        f"{runner.where(head)}; ADIOS2 {head['adios2']}, BP5, tmpfs. {head['blocks']} blocks of f32 (turbulence) on "
        f"each rank, a bound of {REL:g} of the range, `lorenzo`, one thread per rank. Microseconds of a step per block "
        f"of a rank, for the slowest rank, and bytes per block in the file; medians of {head['repeat']} steps, with "
        "the methods taking turns. Compressing alone is one call of `compress_many`; a Reader reads what the Writer "
        "wrote, in a share for each rank. Other "
        f"programs used the machine, too: its load average was {head['load']:.1f} before the first step."
    )
    lines = []
    for row in document["rows"]:
        us = [significant(1e6 * seconds / row["blocks"]) for seconds in row["seconds"].values()]
        sizes = [f"{size:.0f}" for size in row["bytes"].values()]
        both = [f"{time}, {size} B" for time, size in zip(us[1:-1], sizes, strict=True)]
        lines.append([f"{row['cells']}^3", row["ranks"], us[0], *both, us[-1]])
    written = table(["blocks", "ranks", "compressing alone", *METHODS, "Reader"], lines)
    first = document["read"][0]
    text = (
        f"A file of one step with {first['blocks']} blocks of {EDGE}^3 ({first['metadata_bytes'] / 1e6:.1f} MB of "
        "ADIOS2's metadata and of checksums), opened by all ranks together; each reads one block, and then "
        "another. Milliseconds of the slowest rank, megabytes that each rank reads from the file system, and by how "
        "many its memory grows. If there are more ranks than cores, they share them."
    )
    lines = []
    for row in document["read"]:
        ms = [runner.ms(row[f"{name}_seconds"]) for name in ("open", "first", "second")]
        lines.append([str(row["ranks"]), *ms, *(f"{row[name] / 1e6:.1f}" for name in ("bytes", "memory_bytes"))])
    opened = table(["ranks", "open", "first block", "another", "MB a rank", "memory"], lines)
    return "\n\n".join([filled(of_steps), written, filled(text), opened])


def parser() -> argparse.ArgumentParser:
    options = in_ranks.parser(__doc__, PAGE, size=128, repeat=9, of="steps")
    options.add_argument("--blocks", type=int, default=1000, metavar="N", help="blocks of a rank (default: 1000)")
    text = "blocks of the file that is opened (default: 100000)"
    options.add_argument("--of-file", type=int, default=100_000, metavar="N", help=text)
    return options


if __name__ == "__main__":
    sys.exit(in_ranks.main(parser(), {"steps": steps, "make": make, "read": read}, collect, report, "amr", PAGE))
