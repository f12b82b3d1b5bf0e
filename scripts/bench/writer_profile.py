#!/usr/bin/env python3
"""Measures where the time of a Writer's step goes, part by part, for large blocks and for small ones: under mpirun.

    .venv/bin/python scripts/bench/writer_profile.py               # everything, about 1 minute
    .venv/bin/python scripts/bench/writer_profile.py --docs        # also rewrites its section of docs/performance.md
    .venv/bin/python scripts/bench/writer_profile.py --size 32 --blocks 8 --repeat 2            # a small part of it

Functions of the package, and ADIOS2's Put, are replaced by ones that take the time: a part's is that of its function
without those that it calls. Taking it costs about half a microsecond a call.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from comparison import measure
from comparison.fields import turbulence
from comparison.report import significant
from insitu import BLOCK_CELLS, REL, Block, Layer, Part, Plain, Row, filled, grid_of, mpirun, run_part, table

import cusz_core

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs/performance.md"
MARKS = ("<!-- profile: begin -->", "<!-- profile: end -->")
RANKS = (1, 2)
PUT, REST = "put (Python)", "the rest (Python)"
RANGES, AGREEING = "value ranges", "agreeing on bounds, on success"
COMPRESSING, AROUND, TABLES = "compressing", "around it (Python)", "block tables"
HANDING, ADIOS2_PUT, BEGIN, END = "handing over (Python)", "ADIOS2: Put", "ADIOS2: BeginStep", "ADIOS2: EndStep"
CHECKSUMS = "checksums of metadata"
PARTS = (PUT, RANGES, AGREEING, COMPRESSING, AROUND, TABLES, HANDING, ADIOS2_PUT, BEGIN, END, CHECKSUMS, REST)


class Clock:
    """The time of every part, in seconds, without that of the parts inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    def take(self, where: Any, function: str, part: str) -> None:
        """Takes the time of a function from now on."""
        plain: Callable[..., Any] = getattr(where, function)

        @functools.wraps(plain)
        def timed(*arguments: Any, **options: Any) -> Any:
            self._inside.append(0.0)
            began = time.perf_counter()
            try:
                return plain(*arguments, **options)
            finally:
                whole = time.perf_counter() - began
                self.seconds[part] += whole - self._inside.pop()
                if self._inside:
                    self._inside[-1] += whole

        setattr(where, function, timed)


def taken() -> Clock:
    import adios2

    from cusz_operator import checks, compression, output, ranks, writer

    clock = Clock()
    clock.take(writer.Writer, "put", PUT)
    clock.take(writer.Writer, "_end_step", REST)
    for function in ("gather", "of_first", "agree", "agree_after_adios2"):
        clock.take(ranks.Ranks, function, AGREEING)
    clock.take(compression.Compressor, "range_before", RANGES)
    clock.take(cusz_core, "compress_described", COMPRESSING)
    clock.take(compression.StepWork, "compress_all", AROUND)
    clock.take(writer.Writer, "_made_of", TABLES)
    clock.take(output.Output, "put_table", TABLES)
    clock.take(output.Output, "put", HANDING)
    clock.take(adios2.bindings.Engine, "Put", ADIOS2_PUT)
    clock.take(output.Output, "begin_step", BEGIN)
    clock.take(output.Output, "end_step", END)
    clock.take(checks.Recorder, "record", CHECKSUMS)
    return clock


def blocks_of(part: Part, small: bool) -> list[Block]:
    if not small:
        return part.blocks(0)
    comm, n = part.comm, part.options.blocks
    grid, cells = grid_of(n * comm.size), (BLOCK_CELLS,) * 3
    shape = tuple(BLOCK_CELLS * extent for extent in grid)
    corners = [tuple(BLOCK_CELLS * i for i in index) for index in np.ndindex(*grid)][comm.rank :: comm.size]
    x = part.field[tuple(slice(extent) for extent in cells)].copy()
    return [Block("T", x, shape, corner) for corner in corners]


def rank_rows(part: Part) -> list[Row]:
    """Medians over steps, on rank 0, of every part of a step; and of what it has to be compared with, which takes turns
    with it."""
    comm, options = part.comm, part.options
    clock = taken()
    rows = []
    for small in (False, True):
        for mode in ("abs", "rel"):
            blocks = blocks_of(part, small)
            eb = part.eb if mode == "abs" else REL
            as_bytes = archives_of(part, blocks)
            plain = Plain(options.tmpfs / "bytes.bp", comm)
            out = Layer(options.tmpfs / "profile.bp", comm, eb, mode)
            calls: dict[str, Callable[[], object]] = {
                "compress": functools.partial(compress, blocks, eb, mode),
                "bytes": functools.partial(plain.step, as_bytes),
                "whole": functools.partial(out.step, blocks),
            }
            steps: list[dict[str, float]] = []
            for _ in range(options.repeat + 1):
                found = {}
                for name, call in calls.items():
                    clock.seconds.clear()
                    found[name] = part.seconds(call)
                steps.append({**found, **clock.seconds})
            for name, file in (("bytes", plain), ("profile", out)):
                file.close()
                part.remove(options.tmpfs / f"{name}.bp")
            medians = {key: statistics.median(step.get(key, 0.0) for step in steps[1:]) for key in steps[1]}
            cells = blocks[0].array.shape[0]
            beyond = statistics.median(step["whole"] / (step["compress"] + step["bytes"]) - 1 for step in steps[1:])
            row: Row = {"ranks": comm.size, "blocks": len(blocks), "cells": cells, "mode": mode, "beyond": beyond}
            rows.append({**row, "seconds": medians})
    return rows


def compress(blocks: list[Block], eb: float, mode: Any) -> None:
    for block in blocks:
        cusz_core.compress(block.array, eb, mode, threads=1)


def archives_of(part: Part, blocks: list[Block]) -> list[Block]:
    """The archives of all ranks' blocks, one behind the other, as blocks of one variable."""
    archives = [np.frombuffer(bytearray(cusz_core.compress(b.array, part.eb, threads=1)), np.uint8) for b in blocks]
    lengths = part.comm.allgather(sum(map(len, archives)))
    at = sum(lengths[: part.comm.rank])
    found = []
    for archive in archives:
        found.append(Block("bytes", archive, (sum(lengths),), (at,)))
        at += len(archive)
    return found


def collect(options: argparse.Namespace) -> dict[str, Any]:
    import adios2

    head = measure.head((), measure.Plan(ebs=(), tools=(), repeat=options.repeat))
    document: dict[str, Any] = {"head": {**head, "adios2": adios2.__version__}, "rows": []}
    with tempfile.TemporaryDirectory(prefix="cusz-profile-", dir=options.tmpfs) as folder:
        np.save(Path(folder) / "field.npy", turbulence(options.size))
        for ranks in RANKS:
            print(f"{ranks} ranks", file=sys.stderr, flush=True)
            own = ["--blocks", options.blocks]
            document["rows"] += mpirun("rank", ranks, 1, options, [Path(folder)] * 2, Path(__file__), own)
    return document


def report(document: dict[str, Any]) -> str:
    head, rows = document["head"], document["rows"]
    text = (
        f"{head['date'][:10]}; {head['cpu']}, {head['cores']} cores; ADIOS2 {head['adios2']}, BP5, tmpfs; Python "
        f"{head['python']}. One step, on rank 0, medians of {head['repeat']}; a bound of {REL:g} of the range, one "
        "thread per rank. Microseconds per block of this rank. Columns: blocks on each of so many ranks, and the mode."
    )
    names = [f"{row['cells']}^3, {row['blocks']} on each of {row['ranks']}, {row['mode']}" for row in rows]
    lines = [[part, *(us(row, row["seconds"].get(part, 0.0)) for row in rows)] for part in PARTS]
    lines.append(["**the step**", *(f"**{us(row, row['seconds']['whole'])}**" for row in rows)])
    lines.append(["compressing alone", *(us(row, row["seconds"]["compress"]) for row in rows)])
    lines.append(["the archives' bytes by ADIOS2 alone", *(us(row, row["seconds"]["bytes"]) for row in rows)])
    lines.append(["the step beyond these two", *(f"{100 * row['beyond']:.0f}%" for row in rows)])
    return f"{filled(text)}\n\n{table(['', *names], lines)}"


def us(row: Row, seconds: float) -> str:
    return significant(1e6 * seconds / row["blocks"])


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = options.add_argument
    add("--size", type=int, default=192, metavar="N", help="cells along each axis of a large block (default: 192)")
    add("--blocks", type=int, default=4000, metavar="N", help="small blocks of a rank (default: 4000)")
    add("--repeat", type=int, default=9, metavar="N", help="number of steps; medians are kept (default: 9)")
    add("--tmpfs", type=Path, default=Path("/dev/shm"), metavar="FOLDER", help="in memory (default: /dev/shm)")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    add("--docs", action="store_true", help="rewrite the section of docs/performance.md")
    for name in ("--part", "--threads", "--disk", "--work"):  # of insitu.py, which starts the ranks
        add(name, help=argparse.SUPPRESS)
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.part:
        return run_part(rank_rows, options)
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
