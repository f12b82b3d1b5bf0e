"""The ways by which through.py lets compressors into files: what each of them is, for the frame that measures.

A door is an object of a class in a module of its own, and has its line in DOORS of through.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Chunks have at most this many values: 4 MB of float32.
MOST_VALUES = 2**20


@dataclasses.dataclass(frozen=True)
class Case:
    """A field under a bound.

    Attributes:
        x: the field, C-contiguous.
        chunk: the shape of the chunks of its dataset, the same for all codecs.
        bound: the absolute bound.
        fill: the value that stands for "no data", which the dataset declares.
    """

    x: Array
    chunk: tuple[int, ...]
    bound: float
    fill: float | None = None


@dataclasses.dataclass(frozen=True)
class Codec:
    """A compressor as a door knows it.

    Attributes:
        name: in tables.
        options: what a dataset is created with for a case, in the door's own terms.
        version: what is measured, such as "SZ3 of hdf5plugin 7.1.0".
        ndims: the numbers of dimensions that it takes.
        may_crash: it is first tried in a separate process.
    """

    name: str
    options: Callable[[Case], Any]
    version: Callable[[], str]
    ndims: Sequence[int] = (1, 2, 3, 4)
    may_crash: bool = False


class Door(Protocol):
    """A kind of file.

    Attributes:
        name: for --through.
        suffix: of its files.
        codecs: ours first, then others.
    """

    name: str
    suffix: str
    codecs: Sequence[Codec]

    def missing(self) -> str | None:
        """Why it cannot be measured here, or None."""
        ...

    def version(self) -> str:
        """What reads and writes the files."""
        ...

    def write(self, path: Path, case: Case, codec: Codec) -> None:
        """Makes a file, or a folder, of one dataset, which is not there yet."""
        ...

    def read(self, path: Path, out: Array) -> None:
        """Reads the whole of it into memory that is there."""
        ...


def chunk_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The longest axis is halved until a chunk has no more than MOST_VALUES values."""
    chunk = list(shape)
    while math.prod(chunk) > MOST_VALUES:
        longest = int(np.argmax(chunk))
        chunk[longest] = -(-chunk[longest] // 2)
    return tuple(chunk)
