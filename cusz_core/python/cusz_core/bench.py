"""`cusz bench`: ratio, errors and speed on a user's own fields. (The source tree compares with other compressors.)"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import __version__, arguments, backends, codec, verification
from .command_line import DTYPES, UsageError, cell, extents, number, print_table, progress, read_npy
from .errors import ParameterError
from .info import json_value

_DESCRIPTION = """
Compresses and decompresses fields in memory: ratio, PSNR, largest error and speed (10^6 raw bytes a second, the median
of repeated calls after a first one). The bound is checked exactly, as by `cusz verify`. scripts/bench/compare.py of
the source tree also measures other compressors, and has generated fields.
"""
_SHORT = 0.02  # seconds: shorter calls are repeated for this long, and their mean counts as one timing
#: The columns that are printed, and their headings.
_SHOWN = {
    "dataset": "field",
    "eb": "bound",
    "threads": "threads",
    "ratio": "ratio",
    "bit_rate": "bits/value",
    "psnr": "PSNR",
    "max_error_over_eb": "max error/bound",
    "compress_mbps": "compress MB/s",
    "decompress_mbps": "decompress MB/s",
}

Row = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.add_argument("fields", type=Path, nargs="+", metavar="FIELD", help=".npy files")
    text = "error bounds (default: 1e-2 1e-3 1e-4)"
    parser.add_argument("--eb", type=number, nargs="+", default=[1e-2, 1e-3, 1e-4], help=text)
    parser.add_argument(
        "--mode",
        choices=("abs", "rel"),
        default="rel",
        help="rel (default): relative to the value range; abs: in the field's unit",
    )
    text = "numbers of CPU threads (default: 1 2)"
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N", help=text)
    parser.add_argument(
        "--repeat", type=int, default=5, help="number of timed calls; the median is reported (default: 5)"
    )
    parser.add_argument("--dtype", choices=DTYPES, help="cast the fields to this type")
    parser.add_argument("--fill", type=number, help='value that stands for "no data" in the fields')
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the rows to this file, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to this file, too")


def run(options: argparse.Namespace) -> int:
    _check(options)
    rows = []
    for path in options.fields:
        x = read_npy(path)
        if options.dtype:
            x = x.astype(DTYPES[options.dtype], copy=False)
        for eb in options.eb:
            for threads in options.threads:
                with progress(f"{path.stem}, bound {eb:g}, {threads} threads"):
                    rows.append(_measure(path.stem, x, eb, threads, options))
    print_table([list(_SHOWN.values()), *([cell(row[column]) for column in _SHOWN] for row in rows)])
    if options.csv:
        _write_csv(rows, options.csv)
    if options.json:
        head = {"cusz": __version__, "cpu": backends.cpu_model(), "repeat": options.repeat}
        plain = [{key: json_value(value) for key, value in row.items()} for row in rows]
        options.json.write_text(json.dumps({"head": head, "rows": plain}, indent=1) + "\n")
    return 0


def _check(options: argparse.Namespace) -> None:
    """Checks the options up front: better to fail now than after an hour."""
    for path in options.fields:
        if path.suffix != ".npy":
            raise UsageError(f"{path} is not a .npy file (scripts/bench/compare.py has generated fields)")
        path.stat()  # an OSError if there is none
    for option, path in (("--csv", options.csv), ("--json", options.json)):
        if path and path.is_dir():
            raise ParameterError(f"{option} is a folder: {path}")
        if path and not path.parent.is_dir():
            raise ParameterError(f"there is no folder {path.parent} for {path.name}")
    if options.repeat < 1:
        raise ParameterError(f"--repeat is {options.repeat}; it must be at least 1")
    for threads in options.threads:
        arguments.threads(threads)
    for eb in options.eb:
        arguments.error_bound(eb)


def _measure(name: str, x: NDArray[Any], eb: float, threads: int, options: argparse.Namespace) -> Row:
    archive = codec.compress(x, eb, options.mode, fill=options.fill, threads=threads)
    found = verification.verify(x, archive, threads=threads)
    room = np.empty(codec.max_archive_bytes(x.shape, x.dtype), np.uint8)  # so that both directions reuse memory
    decoded = np.empty(x.shape, x.dtype)

    def compress() -> object:
        return codec.compress(x, eb, options.mode, fill=options.fill, threads=threads, out=room)

    def decompress() -> object:
        return codec.decompress(archive, out=decoded, threads=threads)

    return {
        "dataset": name,
        "shape": list(x.shape),
        "dtype": x.dtype.name,
        "fill": options.fill,
        "mode": options.mode,
        "eb": eb,
        "eb_abs": found.eb_abs,
        "threads": threads,
        "ratio": found.ratio,
        "bit_rate": found.bit_rate,
        "psnr": found.psnr,
        "max_error_over_eb": found.max_error_over_eb,
        "compress_mbps": x.nbytes / _median_seconds(compress, options.repeat) / 1e6,
        "decompress_mbps": x.nbytes / _median_seconds(decompress, options.repeat) / 1e6,
    }


def _median_seconds(call: Callable[[], object], repeat: int) -> float:
    call()
    return statistics.median(_seconds(call) for _ in range(repeat))


def _seconds(call: Callable[[], object]) -> float:
    """Seconds for one call; for a short one the mean of many, because one alone depends on how cold the caches are."""
    calls, seconds = 0, 0.0
    started = time.perf_counter()
    while seconds < _SHORT:
        call()
        seconds = time.perf_counter() - started
        calls += 1
    return seconds / calls


def _write_csv(rows: Sequence[Row], path: Path) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "shape": extents(row["shape"])} for row in rows)
