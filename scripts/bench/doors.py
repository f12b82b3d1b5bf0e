"""The ways by which through.py lets compressors into files: HDF5 by h5py, with our filter and those of hdf5plugin; and
Zarr's format 3, with our codec and those of numcodecs that keep an array's values together.

A door is an object of a class, and has its line in DOORS of through.py.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
import importlib.metadata
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.buffer.cpu import NDBuffer

import cusz_core
from cusz_core.hdf5 import Cusz
from cusz_core.zarr import CuszCodec

Array = NDArray[Any]

#: Chunks have at most this many values: 4 MB of float32.
MAX_VALUES = 2**20


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


def chunk_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The longest axis is halved until a chunk has no more than MAX_VALUES values."""
    chunk = list(shape)
    while math.prod(chunk) > MAX_VALUES:
        longest = int(np.argmax(chunk))
        chunk[longest] = -(-chunk[longest] // 2)
    return tuple(chunk)


class Door(abc.ABC):
    """A kind of file.

    Attributes:
        name: for --through.
        suffix: of its files.
        needed: packages that have the codecs of others.
        codecs: ours first, then others.
    """

    name: str
    suffix: str
    needed: Sequence[str] = ()
    codecs: Sequence[Codec]

    def missing(self) -> str | None:
        """Why it cannot be measured here, or None."""
        try:
            for package in self.needed:
                importlib.import_module(package)
        except ImportError as error:
            return f"{error}: scripts/bench/peers.py through.py has it"
        return None

    @abc.abstractmethod
    def version(self) -> str:
        """What reads and writes the files."""

    @abc.abstractmethod
    def write(self, path: Path, case: Case, codec: Codec) -> None:
        """Makes a file, or a folder, of one dataset, which is not there yet."""

    @abc.abstractmethod
    def read(self, path: Path, out: Array) -> None:
        """Reads the whole of it into memory that is there."""


def _own() -> str:
    return f"cusz {cusz_core.__version__}"


def _of(package: str) -> Callable[[], str]:
    return lambda: f"{package} {importlib.metadata.version(package)}"


class Hdf5(Door):
    name, suffix, needed = "hdf5", ".h5", ("hdf5plugin",)

    def __init__(self) -> None:
        def ours(name: str, predictor: str) -> Codec:
            return Codec(name, lambda case: Cusz(case.bound, "abs", predictor), _own)

        def theirs(name: str, filter: str, bound: str, **options: Any) -> Codec:
            def made(case: Case) -> Any:
                return getattr(importlib.import_module("hdf5plugin"), filter)(**{bound: case.bound})

            return Codec(name, made, _of("hdf5plugin"), may_crash=True, **options)

        self.codecs = [
            ours("cusz", "lorenzo"),
            ours("cusz auto", "auto"),
            theirs("SZ3", "SZ3", "absolute"),
            theirs("SZ", "SZ", "absolute"),
            theirs("zfp", "Zfp", "accuracy"),
            theirs("SPERR", "Sperr", "absolute", ndims=(2, 3)),
        ]

    def version(self) -> str:
        return f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"

    def write(self, path: Path, case: Case, codec: Codec) -> None:
        with h5py.File(path, "w") as file:
            options = codec.options(case)
            file.create_dataset("x", data=case.x, chunks=case.chunk, fillvalue=case.fill, **options)

    def read(self, path: Path, out: Array) -> None:
        with h5py.File(path) as file:
            file["x"].read_direct(out)


class Zarr(Door):
    name, suffix, needed = "zarr", ".zarr", ("pcodec", "zfpy")

    def __init__(self) -> None:
        def ours(name: str, predictor: str) -> Codec:
            return Codec(name, lambda case: CuszCodec(case.bound, "abs", predictor=predictor), _own)

        self.codecs = [
            ours("cusz", "lorenzo"),
            ours("cusz auto", "auto"),
            Codec("pcodec, lossless", lambda case: _of_numcodecs("PCodec"), _of("pcodec")),
            Codec("zfpy", lambda case: _of_numcodecs("ZFPY", tolerance=case.bound), _of("zfpy"), may_crash=True),
        ]

    def version(self) -> str:
        return f"zarr {zarr.__version__}, numcodecs {importlib.metadata.version('numcodecs')}"

    def write(self, path: Path, case: Case, codec: Codec) -> None:
        # As everywhere in this comparison: one thread, and so one chunk at a time.
        zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1})
        array = zarr.create_array(
            path,
            shape=case.x.shape,
            dtype=case.x.dtype,
            chunks=case.chunk,
            serializer=codec.options(case),
            compressors=None,
            fill_value=case.fill,
        )
        array[...] = case.x

    def read(self, path: Path, out: Array) -> None:
        zarr.open_array(path, mode="r").get_basic_selection(..., out=NDBuffer.from_numpy_array(out))


def _of_numcodecs(name: str, **options: Any) -> Any:
    with warnings.catch_warnings(action="ignore"):  # that they are in no specification
        return getattr(importlib.import_module("zarr.codecs.numcodecs"), name)(**options)
