"""The files of the paper's five datasets, for paper.py --sdrbench: found by name, and checked by size.

The datasets are those of the Scientific Data Reduction Benchmarks (sdrbench.github.io), which this project does not
include: raw little-endian float32 without a header, the last axis fastest. A file is identified by its name, and must
have the size given by its dataset.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

from runner import Failure

Array = NDArray[Any]
Shape = tuple[int, ...]
DTYPE = np.dtype("<f4")


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset of the paper's Table 2.

    Attributes:
        name: as in the paper.
        files: the names of its files; the group `field` is the field's name.
        shapes: their extents. If there are several, the file size decides.
        fields: number of its fields in the paper.
    """

    name: str
    files: str
    shapes: tuple[Shape, ...]
    fields: int


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
        Failure: there is no such folder, no known file in it, or a file whose size does not fit its dataset.
    """
    if not folder.is_dir():
        raise Failure(f"there is no folder {folder}")
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (known := dataset_of(path.name)):
            dataset, field = known
            files.append(File(dataset, field, path, _shape_of(path, dataset, shrink)))
    if not files:
        raise Failure(f"no file in {folder} has the name of an SDRBench field")
    return sorted(files, key=lambda file: (DATASETS.index(file.dataset), file.field, file.path))


def _shape_of(path: Path, dataset: Dataset, shrink: int) -> Shape:
    size, shapes = path.stat().st_size, [shrunk(shape, shrink) for shape in dataset.shapes]
    for shape in shapes:
        if size == math.prod(shape) * DTYPE.itemsize:
            return shape
    wanted = " or ".join(f"{math.prod(s) * DTYPE.itemsize} ({' x '.join(map(str, s))} float32)" for s in shapes)
    raise Failure(f"{path} has {size} bytes; a field of {dataset.name} has {wanted}")
