#!/usr/bin/env python3
"""Compresses the paper's five datasets, given their files: ratio, PSNR, GB/s and largest error of each field.

    scripts/paper/sdrbench.py FOLDER                  # every known file in FOLDER and below, at 1e-4 of its range
    scripts/paper/sdrbench.py FOLDER --dataset nyx --eb 1e-3 1e-4 --json nyx.json    # - : instead of a table
    scripts/paper/sdrbench.py --list                  # names and sizes of the files

The datasets are those of the Scientific Data Reduction Benchmarks (sdrbench.github.io), which this project does not
include: raw little-endian float32 without a header, the last axis fastest. A file is identified by its name, and must
have the size given by its dataset. Run it with .venv/bin/python. With `--sdrbench FOLDER`, paper.py makes
the paper's tables from them.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cusz_core as cusz

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

import runner
from runner import Failure

Array = NDArray[Any]
Shape = tuple[int, ...]
DTYPE = np.dtype("<f4")


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One of the paper's Table 2.

    Attributes:
        name: as the paper has it; on the command line in lower case.
        files: the names of its files; the group `field` is the field's name.
        shapes: their extents. If there are several, the size of a file decides.
        fields: number of its fields in the paper.
    """

    name: str
    files: str
    shapes: tuple[Shape, ...]
    fields: int

    @property
    def key(self) -> str:
        return self.name.lower()


#: Extents: Table 2 of the paper; the second of HACC and the volumes of CESM-ATM are in the benchmark, not in the paper.
DATASETS = (
    Dataset("HACC", r"(?P<field>(xx|yy|zz|vx|vy|vz|x|y|z))\.f32", ((280_953_867,), (1_073_726_487,)), 6),
    Dataset("CESM-ATM", r"(?P<field>\w+)_1_1800_3600\.(f32|dat)", ((1800, 3600),), 79),
    Dataset("CESM-ATM-3D", r"(?P<field>\w+)_1_26_1800_3600\.(f32|dat)", ((26, 1800, 3600),), 0),
    Dataset("Hurricane", r"(?P<field>[A-Z]+f\d\d(\.log10)?)\.bin(\.f32)?", ((100, 500, 500),), 20),
    Dataset(
        "Nyx",
        r"(?P<field>(baryon_density|dark_matter_density|temperature|velocity_[xyz])(\.log10)?)\.(f32|dat)",
        ((512, 512, 512),),
        6,
    ),
    Dataset("QMCPACK", r"(?P<field>einspline)_288_115_69_69(\.pre)?\.f32", ((288, 115, 69, 69),), 1),
    Dataset("QMCPACK-orbitals-last", r"(?P<field>einspline)_115_69_69_288\.f32", ((115, 69, 69, 288),), 1),
)


@dataclasses.dataclass(frozen=True)
class File:
    """A field on disk."""

    dataset: Dataset
    field: str
    path: Path
    shape: Shape

    def load(self) -> Array:
        """float32, C-contiguous, of `shape`."""
        return np.fromfile(self.path, DTYPE).astype(np.float32, copy=False).reshape(self.shape)


def dataset_of(name: str) -> tuple[Dataset, str] | None:
    """The dataset that a file of this name belongs to, and its field; None if no dataset has such files."""
    for dataset in DATASETS:
        if found := re.fullmatch(dataset.files, name):
            return dataset, found["field"]
    return None


def shrunk(shape: Shape, shrink: int) -> Shape:
    return tuple(-(-extent // shrink) for extent in shape)


def find(folder: Path, shrink: int = 1) -> list[File]:
    """The known files in a folder and below, by dataset and field.

    Args:
        shrink: the files are stand-ins, with every extent divided by this and rounded up.

    Raises:
        Failure: there is no such folder, no known file in it, or a file has another size than its dataset.
    """
    if not folder.is_dir():
        raise Failure(f"there is no folder {folder}")
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (known := dataset_of(path.name)):
            dataset, field = known
            files.append(File(dataset, field, path, _shape_of(path, dataset, shrink)))
    if not files:
        raise Failure(f"no file in {folder} has the name of an SDRBench field (--list shows them)")
    return sorted(files, key=lambda file: (DATASETS.index(file.dataset), file.field, file.path))


def _shape_of(path: Path, dataset: Dataset, shrink: int) -> Shape:
    size, shapes = path.stat().st_size, [shrunk(shape, shrink) for shape in dataset.shapes]
    for shape in shapes:
        if size == math.prod(shape) * DTYPE.itemsize:
            return shape
    wanted = " or ".join(f"{math.prod(s) * DTYPE.itemsize} ({' x '.join(map(str, s))} float32)" for s in shapes)
    raise Failure(f"{path} has {size} bytes; a field of {dataset.name} has {wanted}")


# --------------------------------------------------------------------------------------------------------- measuring


def measure(
    x: Array,
    eb: float,
    *,
    threads: int | None = None,
    backend: str = "auto",
    predictor: str = "lorenzo",
    repeat: int = 3,
) -> dict[str, Any]:
    """One field at one bound relative to its range, on host memory.

    Returns:
        ratio, bit_rate; psnr in dB; max_error_over_eb (at most 1, in exact arithmetic); compress_gbps, decompress_gbps:
        10^9 raw bytes a second from host memory to host memory, medians.

    Raises:
        cusz.BoundError: a value came back beyond the bound.
    """
    options: dict[str, Any] = {"threads": threads, "backend": backend}
    how = {**options, "predictor": predictor}
    archive = bytes(cusz.compress(x, eb, "rel", **how))
    found = cusz.verify(x, archive, threads=threads)
    out, back = np.empty(cusz.max_archive_bytes(x.shape, x.dtype), np.uint8), np.empty_like(x)
    compress = runner.median_seconds(lambda: cusz.compress(x, eb, "rel", out=out, **how), repeat)
    decompress = runner.median_seconds(lambda: cusz.decompress(archive, out=back, **options), repeat)
    return {
        **{name: getattr(found, name) for name in ("ratio", "bit_rate", "psnr", "max_error_over_eb")},
        "compress_gbps": x.nbytes / compress / 1e9,
        "decompress_gbps": x.nbytes / decompress / 1e9,
    }


def rows(files: Sequence[File], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for file in files:
        x = file.load()
        for eb in options.eb:
            found = measure(x, eb, threads=options.threads, backend=options.backend, repeat=options.repeat)
            yield {
                "dataset": file.dataset.name,
                "field": file.field,
                "file": file.path.name,
                "shape": list(file.shape),
                "eb": eb,
                **found,
            }


# ------------------------------------------------------------------------------------------------------ command line

COLUMNS = {"ratio": ".2f", "bit_rate": ".3f", "psnr": ".2f", "max_error_over_eb": ".6f"}
COLUMNS |= dict.fromkeys(("compress_gbps", "decompress_gbps"), ".2f")


def parser() -> argparse.ArgumentParser:
    sub = runner.parser(__doc__, repeat=3)
    add = sub.add_argument
    add("folder", type=Path, nargs="?", metavar="FOLDER")
    add("--list", action="store_true", help="list the datasets, and exit")
    add("--dataset", choices=[d.key for d in DATASETS], nargs="+", help="these alone")
    add("--eb", type=float, nargs="+", default=[1e-4], help="relative to the range (default: 1e-4)")
    add("--threads", type=int, help="of the CPU engine (default: all cores)")
    add("--backend", choices=("auto", "cpu", "cuda"), default="auto")
    add("--shrink", type=int, default=1, metavar="N", help="the files are stand-ins of 1/N of every extent")
    return sub


def list_datasets() -> None:
    for dataset in DATASETS:
        shapes = ", ".join(" x ".join(map(str, shape)) for shape in dataset.shapes)
        print(f"{dataset.key:22s}{shapes:28s}{dataset.files}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.list:
        list_datasets()
        return 0
    if options.folder is None:
        parser().error("a FOLDER is needed")

    def work() -> int:
        files = find(options.folder, options.shrink)
        if options.dataset:
            files = [file for file in files if file.dataset.key in options.dataset]
            if not files:
                raise Failure(f"no file in {options.folder} is of {', '.join(options.dataset)}")
        return report(files, options)

    return runner.exit_code_of(work, (Failure, cusz.CuszError, OSError))


def report(files: Sequence[File], options: argparse.Namespace) -> int:
    has_table = str(options.json) != "-"
    head = ("dataset", "field", "rel", *COLUMNS)
    if has_table:
        print(runner.table(head, []))
    document: runner.Document = {"cusz": cusz.__version__, "rows": []}
    for row in rows(files, options):
        document["rows"].append(row)
        if has_table:
            numbers = [format(row[key], form) for key, form in COLUMNS.items()]
            line = [row["dataset"], row["field"], f"{row['eb']:g}", *numbers]
            print(runner.table(head, [line]).splitlines()[-1], flush=True)
    if not has_table:
        print(runner.json_of(document), end="")
    elif options.json:
        runner.write_json(document, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
