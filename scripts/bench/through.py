#!/usr/bin/env python3
"""Measures compressors where users meet them: whole files written and read, through HDF5 and Zarr.

    scripts/bench/peers.py through.py turbulence --through hdf5 --repeat 3
    scripts/bench/peers.py through.py --docs                # everything, and rewrites files.md (10 minutes)
    scripts/bench/peers.py through.py --from a.json b.json --docs          # the same, of earlier parts

All compressors of a door get the same fields, chunks and absolute bounds, and one thread, in one process and in turn. A
time is that of a whole file: it is opened, its dataset created and written, and it is closed; or opened, read and
closed. The files lie in the page cache. Where a compressor fails or crashes, its row says so.

The fields are those of compare.py, the doors those of the package `doors`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import runner
from comparison import fields, measure, report
from comparison.fields import Field
from doors import Array, Case, Codec, Door, Hdf5, Zarr, chunk_of
from runner import Document, Row, filled

import cusz_core
from cusz_core import embedding
from cusz_core.command_line import Parser, exit_code_of, number
from cusz_core.errors import ParameterError

#: The doors, by their names.
DOORS: dict[str, Door] = {door.name: door for door in (Hdf5(), Zarr())}


# ------------------------------------------------------------------------------------------------- one codec, one case


class Run(measure.Attempt):
    """One codec of a door on one case. To compress is to write a file, to decompress to read it."""

    def __init__(self, door: Door, codec: Codec, case: Case, row: Row, folder: Path) -> None:
        super().__init__(row, case.x.nbytes)
        self.door, self.codec, self.case = door, codec, case
        self.path = folder / f"{codec.name.replace(' ', '_')}{door.suffix}"

    def first(self, out: Array) -> None:
        """Writes and reads without being timed: ratio and quality."""
        out.fill(np.nan)
        self.time_once(out)
        for seconds in self.seconds.values():
            seconds.clear()
        self.judge(Field("", self.case.x, self.case.fill), out, runner.stored_bytes(self.path), self.case.bound)

    def time_once(self, out: Array) -> None:
        self.remove()
        clock = runner.Clock()
        self.door.write(self.path, self.case, self.codec)
        self.seconds["compress"].append(clock.lap())
        self.door.read(self.path, out)
        self.seconds["decompress"].append(clock.lap())

    def finish(self) -> Row:
        self.remove()
        return super().finish()

    def remove(self) -> None:
        if self.path.is_dir():
            shutil.rmtree(self.path)
        self.path.unlink(missing_ok=True)


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
            run.row["error"] = runner.apart(try_once, door.name, run.codec.name, case)[1]
        run.attempt(lambda run=run: run.first(out))  # type: ignore[misc]
    for _ in range(repeat):
        for run in runs:
            run.attempt(lambda run=run: run.time_once(out))  # type: ignore[misc]
    return [run.finish() for run in runs]


def new_row(door: Door, codec: Codec, field: Field, case: Case, eb: float) -> Row:
    """A row of compare.py's tables, and the door and the chunk."""
    row = measure.new_row(field, codec.name, codec.version(), mode="rel", eb=eb, eb_abs=case.bound, threads=1)
    return {"through": door.name, "chunk": list(case.chunk), **row}


def try_once(door: str, codec: str, case: Case) -> None:
    """Writes and reads a file, to see whether the codec crashes. It will raise exceptions again."""
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory(prefix="cusz-through-") as folder:
        chosen = next(each for each in DOORS[door].codecs if each.name == codec)
        run = Run(DOORS[door], chosen, case, {"mode": "rel", "error": None}, Path(folder))
        run.first(np.empty_like(case.x))


def document_of(options: argparse.Namespace) -> Document:
    doors = [DOORS[name] for name in options.through]
    for door in doors:
        if why := door.missing():
            raise ParameterError(f"{door.name} cannot be measured: {why}")
    runner.reuse_freed_memory()
    versions = {door.name: door.version() for door in doors}
    codecs = {door.name: {codec.name: codec.version() for codec in door.codecs} for door in doors}
    document: Document = {"head": runner.machine(options.repeat, doors=versions, codecs=codecs), "rows": []}
    for field in fields.load(fields.chosen(options.fields)):
        for door in doors:
            for eb in options.eb:
                with tempfile.TemporaryDirectory(prefix="cusz-through-") as folder:
                    rows = measure_field(door, field, eb, options.repeat, Path(folder))
                document["rows"] += [runner.shortened(row) for row in rows]
                if options.json:
                    runner.write_json(document, options.json)  # what there is so far
    return document


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


def text_of(document: Document, door: str, folder: Path | None) -> str:
    """What is said of a door; where there is a folder, what each field and bound gave is written into it."""
    about = document["head"]
    conditions = (
        f"{runner.where(about)}, cusz with {about['instruction_set']}; "
        f"{about['system']}; Python {about['python']}, numpy {about['numpy']}. Whole files, in the page cache: opened, "
        f"written or read, closed; medians of {about['repeat']}, one thread. Chunks have at most 2^20 values. All are "
        "given the absolute bound; a fill value is declared for the dataset."
    )
    codecs = ", ".join(f"{codec} ({of})" for codec, of in about["codecs"][door].items())
    parts = [filled(text) for text in (conditions, f"{about['doors'][door]}; {codecs}.")]
    of_door = {**document, "rows": [row for row in document["rows"] if row["through"] == door]}
    parts += tables_of(of_door)
    if folder is not None:
        parts.append(report.tables_by_case(of_door, folder, f"through_{door}"))
    return "\n\n".join(parts)


def tables_of(document: Document) -> Iterator[str]:
    meaning = (
        "How many times faster cusz writes (compress) and reads (decompress), and how many times smaller its files "
        "are: geometric mean (smallest to largest), files that break the bound included."
    )
    yield filled(meaning)
    yield report.summary(document)
    yield "Values beyond the bound."
    yield report.kept(document)


# ------------------------------------------------------------------------------------------------------------- options


def parser_of() -> argparse.ArgumentParser:
    parser = runner.parser(__doc__, repeat=3, of="timed files", kind=Parser)
    parser.add_argument("fields", nargs="*", metavar="FIELD", help="as for compare.py; default: all")
    parser.add_argument("--through", type=doors_of, default=list(DOORS), metavar="A,B", help=f"of {', '.join(DOORS)}")
    parser.add_argument("--eb", type=number, nargs="+", default=[1e-2, 1e-3, 1e-4], help="relative to the value range")
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
            runner.around_section(options.docs, section_of(door))
    document = merged(options.earlier) if options.earlier else document_of(options)
    if options.json:
        runner.write_json(document, options.json)
    for door in document["head"]["doors"]:
        text = text_of(document, door, options.docs.parent / "figures" if options.docs else None)
        print(f"{door}\n\n{text}\n")
        if options.docs:
            runner.replace_section(options.docs, text, section_of(door))
    report.require_our_bound(document)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    return exit_code_of("through.py", lambda: run(parser_of().parse_args(words)))


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # before the compressors' libraries read it
    sys.exit(main())
