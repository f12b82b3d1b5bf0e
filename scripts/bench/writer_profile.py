#!/usr/bin/env python3
"""Measures where the time of a Writer's step goes, part by part, for large and small blocks, under mpirun.

    .venv/bin/python scripts/bench/writer_profile.py               # everything, about 1 minute
    .venv/bin/python scripts/bench/writer_profile.py --docs        # also rewrites its section of writer.md
    .venv/bin/python scripts/bench/writer_profile.py --size 32 --blocks 8 --repeat 2            # a small part of it

Functions of the package, and ADIOS2's Put, are replaced by timed ones: the time of a part is that of its function,
without the timed functions that it calls. Timing costs about half a microsecond per call.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import in_ranks
import runner
from in_ranks import OPTIONS, REL, Block, Layer, Part, Plain
from runner import Document, Row, filled, significant, table

import cusz_core

PAGE = runner.PAGES / "writer.md"
FILE = "writer_parts.csv"
RANKS = (1, 2)
CELLS = 16  # along each axis of a small block
PUT, REST = "put (Python)", "the rest (Python)"
RANGES, AGREEING = "value ranges", "agreeing on bounds, on success"
COMPRESSING, AROUND, TABLES = "compressing", "around it (Python)", "block tables"
HANDING, ADIOS2_PUT, BEGIN, END = "handing over (Python)", "ADIOS2: Put", "ADIOS2: BeginStep", "ADIOS2: EndStep"
CHECKSUMS = "checksums of metadata"
PARTS = (PUT, RANGES, AGREEING, COMPRESSING, AROUND, TABLES, HANDING, ADIOS2_PUT, BEGIN, END, CHECKSUMS, REST)


class Clock:
    """The time of every part in seconds, without the parts inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    def take(self, where: Any, function: str, part: str) -> None:
        """Replaces a function by a timed one."""
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

    from cusz_operator import ranks
    from cusz_operator.tables import checks
    from cusz_operator.writing import compression, output, together, writer

    clock = Clock()
    clock.take(writer.Writer, "put", PUT)
    clock.take(writer.Writer, "_end_step", REST)
    for function in ("agree", "agree_after_adios2"):
        clock.take(ranks.Ranks, function, AGREEING)
    for function in ("end_step", "totals"):
        clock.take(together.Together, function, AGREEING)
    clock.take(compression.Compressor, "ranges_before", RANGES)
    for function in ("compress_described", "compress_many_described"):
        clock.take(cusz_core, function, COMPRESSING)
    clock.take(compression.StepWork, "compress_all", AROUND)
    clock.take(writer.Writer, "_made_of", TABLES)
    clock.take(together.Layout, "gather", TABLES)
    clock.take(together.Layout, "tables", TABLES)
    clock.take(output.Output, "put_table", TABLES)
    clock.take(output.Output, "put", HANDING)
    clock.take(adios2.bindings.Engine, "Put", ADIOS2_PUT)
    clock.take(output.Output, "begin_step", BEGIN)
    clock.take(output.Output, "end_step", END)
    clock.take(checks.Recorder, "record", CHECKSUMS)
    return clock


def rank_rows(part: Part) -> list[Row]:
    """Medians over steps, on rank 0, of every part of a step; and of the baselines to compare it with, which take turns
    with it."""
    comm, options = part.comm, part.options
    clock = taken()
    rows = []
    for small in (False, True):
        for mode in ("abs", "rel"):
            blocks = part.small_blocks(CELLS, [part.field[:CELLS, :CELLS, :CELLS].copy()]) if small else part.blocks(0)
            eb = part.eb if mode == "abs" else REL
            as_bytes = in_ranks.archives_of(part, blocks, part.eb)
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
        cusz_core.compress(block.array, eb, mode, **OPTIONS)


def collect(options: argparse.Namespace) -> Document:
    document = in_ranks.new_document(options)
    with in_ranks.scratch(options) as here:
        for ranks in RANKS:
            runner.say(f"{ranks} ranks")
            document["rows"] += in_ranks.mpirun(__file__, "rank", ranks, here)
    return document


def report(document: Document) -> str:
    head, rows = document["head"], document["rows"]
    text = (
        f"{runner.where(head)}; ADIOS2 {head['adios2']}, BP5, tmpfs; Python {head['python']}. One step, on rank 0, "
        f"medians of {head['repeat']}; a bound of {REL:g} of the range, one thread per rank. Microseconds per block of "
        "this rank. Columns: the blocks of each rank, the number of ranks, and the mode."
    )
    lines = [["the step", *(us(row, row["seconds"]["whole"]) for row in rows)]]
    lines.append(["compressing alone", *(us(row, row["seconds"]["compress"]) for row in rows)])
    lines.append(["the archives' bytes by ADIOS2 alone", *(us(row, row["seconds"]["bytes"]) for row in rows)])
    lines.append(["the step beyond these two", *(f"{100 * row['beyond']:.0f}%" for row in rows)])
    more = f"[Every part of a step](figures/{FILE})."
    return f"{filled(text)}\n\n{table(['', *names_of(rows)], lines)}\n\n{more}"


def names_of(rows: Sequence[Row]) -> list[str]:
    return [f"{row['cells']}^3, {row['blocks']} on each of {row['ranks']}, {row['mode']}" for row in rows]


def parts_table(document: Document) -> dict[str, tuple[list[str], list[list[str]]]]:
    rows = document["rows"]
    return {
        FILE: (
            ["", *names_of(rows)],
            [[part, *(us(row, row["seconds"].get(part, 0.0)) for row in rows)] for part in PARTS],
        )
    }


def us(row: Row, seconds: float) -> str:
    return significant(1e6 * seconds / row["blocks"])


def parser() -> argparse.ArgumentParser:
    options = in_ranks.parser(__doc__, PAGE, repeat=9, of="steps")
    text = "small blocks of a rank (default: 4000)"
    options.add_argument("--blocks", type=int, default=4000, metavar="N", help=text)
    return options


if __name__ == "__main__":
    sys.exit(in_ranks.main(parser(), {"rank": rank_rows}, collect, report, "profile", PAGE, parts_table))
