#!/usr/bin/env python3
"""Measures compressors where users meet them: whole files written and read, through HDF5 and Zarr.

    scripts/bench/peers.py through.py turbulence --through hdf5 --repeat 3
    scripts/bench/peers.py through.py --docs                # everything, and rewrites docs/performance.md (10 minutes)
    scripts/bench/peers.py through.py --from a.json b.json --docs          # the same, of earlier parts

All compressors of a door get the same fields, chunks and absolute bounds, and one thread, in one process and in turn. A
time is that of a whole file: it is opened, its dataset created and written, and it is closed; or opened, read and
closed. The files lie in the page cache. Where a compressor fails or crashes, its row says so.

The fields are those of compare.py, the doors those of the package `doors`.
"""

from __future__ import annotations

import argparse
import dataclasses
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
from comparison import fields, measure, report
from comparison.fields import Field
from comparison.report import Document
from comparison.tools import OURS
from doors import Array, Case, Codec, Door, chunk_of
from doors.hdf5 import Hdf5
from doors.zarr import Zarr

import cusz_core
from cusz_core import embedding
from cusz_core.command_line import Parser, exit_code_of, number
from cusz_core.errors import CuszError, ParameterError

#: The doors, by their names.
DOORS: dict[str, Door] = {door.name: door for door in (Hdf5(), Zarr())}

Row = dict[str, Any]


# ------------------------------------------------------------------------------------------------- one codec, one case


class Run:
    """One codec of a door on one case."""

    def __init__(self, door: Door, codec: Codec, case: Case, row: Row, folder: Path) -> None:
        self.door, self.codec, self.case, self.row = door, codec, case, row
        self.path = folder / f"{codec.name.replace(' ', '_')}{door.suffix}"
        self.seconds: dict[str, list[float]] = {"write": [], "read": []}

    def attempt(self, step: Callable[[], None]) -> None:
        """Calls a step; if it fails, the row says so, and the codec is not called again."""
        if self.row["error"] is None:
            try:
                step()
            except Exception as error:  # whatever a library raises
                self.row["error"] = f"{type(error).__name__}: {error}"[:200]

    def first(self, out: Array) -> None:
        """Writes and reads without being timed: ratio and quality."""
        self.remove()
        self.door.write(self.path, self.case, self.codec)
        out.fill(np.nan)
        self.door.read(self.path, out)
        x = self.case.x
        found = measure.quality(x, out, self.case.bound, self.case.fill)
        size = size_of(self.path)
        self.row.update(dataclasses.asdict(found), ratio=x.nbytes / size, bit_rate=8 * size / x.size)

    def time_once(self, out: Array) -> None:
        self.remove()
        start = time.perf_counter()
        self.door.write(self.path, self.case, self.codec)
        written = time.perf_counter()
        self.door.read(self.path, out)
        self.seconds["read"].append(time.perf_counter() - written)
        self.seconds["write"].append(written - start)

    def finish(self) -> Row:
        self.remove()
        if self.row["error"] is not None:
            self.row.update(dict.fromkeys(measure.RESULTS))
            return self.row
        for what, name in (("write", "compress"), ("read", "decompress")):
            seconds = self.seconds[what]
            median = statistics.median(seconds)
            self.row[f"{name}_mbps"] = self.case.x.nbytes / median / 1e6
            self.row[f"{name}_spread"] = (max(seconds) - min(seconds)) / median
        return self.row

    def remove(self) -> None:
        if self.path.is_dir():
            shutil.rmtree(self.path)
        self.path.unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


# ------------------------------------------------------------------------------------------------------- measurements


def measure_field(door: Door, field: Field, eb: float, repeat: int, folder: Path) -> list[Row]:
    limits = cusz_core.value_range(field.x, field.fill)
    bound = embedding.absolute_bound(eb, limits.min, limits.max)
    case = Case(field.x, chunk_of(field.x.shape), bound, field.fill)
    runs = [Run(door, codec, case, new_row(door, codec, field, case, eb), folder) for codec in door.codecs]
    out = np.empty_like(field.x)
    for run in runs:
        if field.x.ndim not in run.codec.ndims:
            run.row["error"] = f"{field.x.ndim}-D fields are not supported"
        elif run.codec.may_crash:
            run.row["error"] = crashes(run)
        run.attempt(lambda run=run: run.first(out))  # type: ignore[misc]
    for _ in range(repeat):
        for run in runs:
            run.attempt(lambda run=run: run.time_once(out))  # type: ignore[misc]
    return [run.finish() for run in runs]


def new_row(door: Door, codec: Codec, field: Field, case: Case, eb: float) -> Row:
    """A row of compare.py's tables, and the door and the chunk."""
    return (
        {"through": door.name, "chunk": list(case.chunk)}
        | dict.fromkeys(measure.COLUMNS)
        | {
            "dataset": field.name,
            "shape": list(field.x.shape),
            "dtype": field.x.dtype.name,
            "fill": field.fill,
            "mode": "rel",
            "eb": eb,
            "eb_abs": case.bound,
            "tool": codec.name,
            "version": codec.version(),
            "threads": 1,
        }
    )


def crashes(run: Run) -> str | None:
    """Tries a codec in a separate process; returns how that ended if it did not."""
    path = run.path.with_name("field.npy")
    np.save(path, run.case.x)
    fill = [] if run.case.fill is None else [repr(run.case.fill)]
    words = [sys.executable, __file__, "--probe", run.door.name, run.codec.name, path, repr(run.case.bound), *fill]
    try:
        code = subprocess.run(list(map(str, words)), capture_output=True, timeout=300, check=False).returncode
    except subprocess.TimeoutExpired:
        return "did not end within 5 minutes"
    finally:
        path.unlink()
    return f"crashes (signal {-code})" if code < 0 else None


def probe(words: Sequence[str]) -> int:
    """What `crashes` starts. Exceptions are seen again later."""
    door, path = DOORS[words[0]], Path(words[2])
    codec = next(codec for codec in door.codecs if codec.name == words[1])
    x = np.load(path)
    case = Case(x, chunk_of(x.shape), float(words[3]), float(words[4]) if len(words) > 4 else None)
    run = Run(door, codec, case, {"error": None}, path.parent)
    run.attempt(lambda: run.first(np.empty_like(x)))
    return 0


def document_of(options: argparse.Namespace) -> Document:
    doors = [DOORS[name] for name in options.through]
    for door in doors:
        if why := door.missing():
            raise ParameterError(f"{door.name} cannot be measured: {why}")
    measure.reuse_freed_memory()
    document: Document = {"head": head(doors, options.repeat), "rows": []}
    for field in fields.load(fields.chosen(options.fields)):
        for door in doors:
            for eb in options.eb:
                with tempfile.TemporaryDirectory(prefix="cusz-through-") as folder:
                    rows = measure_field(door, field, eb, options.repeat, Path(folder))
                document["rows"] += [report.shortened(row) for row in rows]
                if options.json:
                    report.write_json(document, options.json)  # what there is so far
    return document


def head(doors: Sequence[Door], repeat: int) -> dict[str, Any]:
    """What the rows were measured with and on."""
    common = measure.head([], measure.Plan([], [], repeat=repeat))
    versions = {door.name: door.version() for door in doors}
    tools = {door.name: {codec.name: codec.version() for codec in door.codecs} for door in doors}
    return {**common, "doors": versions, "codecs": tools}


def merged(paths: Sequence[Path]) -> Document:
    """Parts of one measurement, on one machine, as one document."""
    parts = [report.read_json(path) for path in paths]
    whole = parts[0]
    for part in parts[1:]:
        for key in ("cpu", "cusz", "python", "numpy", "repeat"):
            if part["head"][key] != whole["head"][key]:
                raise ParameterError(f"the parts differ in {key}: measure them alike")
        whole["head"]["doors"] |= part["head"]["doors"]
        whole["head"]["codecs"] |= part["head"]["codecs"]
        whole["rows"] += part["rows"]
    return whole


# -------------------------------------------------------------------------------------------------------------- tables


def text_of(document: Document, door: str) -> str:
    """What is said of a door."""
    about = document["head"]
    conditions = (
        f"{about['date'][:10]}; {about['cpu']}, {about['cores']} cores, cusz with {about['instruction_set']}; "
        f"{about['system']}; Python {about['python']}, numpy {about['numpy']}. MB/s is 10^6 raw bytes per second for a "
        "whole file: open, create and write or read one dataset, close, in the page cache; the median of "
        f"{about['repeat']}, one thread. Ratios are of raw bytes to those of the whole file. Chunks are halves of the "
        "field along its longest axis, until they have at most 2^20 values. All are given the absolute bound; a fill "
        "value is declared for the dataset."
    )
    codecs = ", ".join(f"{codec} ({of})" for codec, of in about["codecs"][door].items())
    parts = [textwrap.fill(text, 120) for text in (conditions, f"{about['doors'][door]}; {codecs}.")]
    parts += tables_of({**document, "rows": [row for row in document["rows"] if row["through"] == door]})
    return "\n\n".join(parts)


def tables_of(document: Document) -> Iterator[str]:
    results = report.Results(document)
    meaning = (
        "How many times faster cusz writes (compress) and reads (decompress), and how many times smaller its files "
        "are: geometric mean (smallest to largest). Files of others that break the bound are included."
    )
    yield textwrap.fill(meaning, 120)
    yield report.summary(document)
    yield "Ratio; * marks rows with values beyond the bound."
    yield results.by_case(results.tools, 1, report.ratio_cell)
    yield "MB/s, write / read."
    yield results.by_case(results.tools, 1, report.speed_cell)
    yield "Values beyond the bound."
    yield report.kept(document)


# ------------------------------------------------------------------------------------------------------------- options


def parser_of() -> Parser:
    parser = Parser(prog="through.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fields", nargs="*", metavar="FIELD", help="as for compare.py; default: all")
    parser.add_argument("--through", type=doors_of, default=list(DOORS), metavar="A,B", help=f"of {', '.join(DOORS)}")
    parser.add_argument("--eb", type=number, nargs="+", default=[1e-2, 1e-3, 1e-4], help="relative to the value range")
    parser.add_argument("--repeat", type=int, default=3, help="number of timed files; the median is kept (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--from", type=Path, nargs="+", metavar="JSON", dest="earlier", help="earlier measurements")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="rewrite the doors' sections of this Markdown file")
    return parser


def doors_of(text: str) -> list[str]:
    names = [word.strip() for word in text.split(",")]
    for name in names:
        if name not in DOORS:
            raise argparse.ArgumentTypeError(f"there is no {name}; known are {', '.join(DOORS)}")
    return names


def section_of(door: str) -> str:
    return f"through {door}"


def run(options: argparse.Namespace) -> int:
    if options.docs:
        for door in options.through:
            report.around_section(options.docs, section_of(door))
    document = merged(options.earlier) if options.earlier else document_of(options)
    if options.json:
        report.write_json(document, options.json)
    for door in document["head"]["doors"]:
        text = text_of(document, door)
        print(f"{door}\n\n{text}\n")
        if options.docs:
            report.replace_section(options.docs, text, section_of(door))
    for row in document["rows"]:
        if row["tool"] in OURS and (row["error"] is not None or row["violations"]):
            what = row["error"] or f"{row['violations']} values beyond the bound"
            raise CuszError(
                f"{row['dataset']}, {row['eb']:g}, {row['tool']}: {what}. This must not be: please report it"
            )
    return 0


def main(words: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    if words[:1] == ["--probe"]:
        return probe(words[1:])
    return exit_code_of("through.py", lambda: run(parser_of().parse_args(words)))


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # before the compressors' libraries read it
    sys.exit(main())
