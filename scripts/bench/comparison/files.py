"""Compressors in file formats, as the tools of compare.py --through: whole files in HDF5, with our filter and those of
hdf5plugin; or in Zarr's format 3, with our codec and those of numcodecs that keep an array's values together.

Compressing means opening a file, creating its dataset, writing and closing it; decompressing means opening, reading and
closing it. The files lie in the page cache. All have the same chunks, get the absolute bound and use one thread.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
import importlib.metadata
import math
import pickle
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr
from zarr.buffer.cpu import NDBuffer

import cusz_core
from cusz_core.hdf5 import Cusz
from cusz_core.zarr import CuszCodec

from .fields import Array
from .tools import TOOLS, Buffers, Codec, Task, Tool

#: Chunks have at most this many values: 4 MB of float32.
MAX_VALUES = 2**20


def chunk_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The longest axis is halved until a chunk has no more than MAX_VALUES values."""
    chunk = list(shape)
    while math.prod(chunk) > MAX_VALUES:
        longest = int(np.argmax(chunk))
        chunk[longest] = -(-chunk[longest] // 2)
    return tuple(chunk)


class _Folder:
    """The files written into a folder. Their bytes are read only when needed, outside of timed calls."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __bytes__(self) -> bytes:
        files = (file for file in sorted(self.path.rglob("*")) if file.is_file())
        return pickle.dumps({str(file.relative_to(self.path)): file.read_bytes() for file in files})


class _File(Codec):
    """A file, or a folder of files, in a temporary folder. `made` turns the absolute bound into the compressor of a
    dataset, in terms of the library that writes it."""

    def __init__(self, task: Task, buffers: Buffers, made: Callable[[float], Any]) -> None:
        super().__init__(task, buffers)
        self.made = made
        folder = tempfile.mkdtemp(prefix="cusz-compare-")
        weakref.finalize(self, shutil.rmtree, folder)
        self.path = Path(folder) / "x"

    def compress(self) -> Any:
        self.write()
        return _Folder(self.path.parent)

    def decompress(self, archive: bytes) -> Array:
        if not self.path.exists():  # another codec wrote the archive
            for name, content in pickle.loads(archive).items():
                file = self.path.parent / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        self.read(self.buffers.field)
        return self.buffers.field

    @abc.abstractmethod
    def write(self) -> None:
        """Writes the field."""

    @abc.abstractmethod
    def read(self, out: Array) -> None:
        """Reads it into `out`."""


class _Hdf5(_File):
    def write(self) -> None:
        with h5py.File(self.path, "w") as file:
            options = {"chunks": chunk_of(self.x.shape), "fillvalue": self.task.fill, **self.made(self.task.eb_abs)}
            file.create_dataset("x", data=self.x, **options)

    def read(self, out: Array) -> None:
        with h5py.File(self.path) as file:
            file["x"].read_direct(out)


class _Zarr(_File):
    def write(self) -> None:
        zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1})  # one thread: one chunk at a time
        array = zarr.create_array(
            self.path,
            shape=self.x.shape,
            dtype=self.x.dtype,
            chunks=chunk_of(self.x.shape),
            serializer=self.made(self.task.eb_abs),
            compressors=None,
            fill_value=self.task.fill,
            overwrite=True,
        )
        array[...] = self.x

    def read(self, out: Array) -> None:
        zarr.open_array(self.path, mode="r").get_basic_selection(..., out=NDBuffer.from_numpy_array(out))


# ------------------------------------------------------------------------------------------------------------- tools


def _own_filter(predictor: cusz_core.parameters.Predictor, bound: float) -> Any:
    return Cusz(bound, "abs", predictor)


def _own_codec(predictor: cusz_core.parameters.Predictor, bound: float) -> Any:
    return CuszCodec(bound, "abs", predictor=predictor)


def _of_hdf5plugin(filter: str, option: str, bound: float) -> Any:
    return getattr(importlib.import_module("hdf5plugin"), filter)(**{option: bound})


def _of_numcodecs(codec: str, option: str | None, bound: float) -> Any:
    with warnings.catch_warnings(action="ignore"):  # they warn that no specification has them
        return getattr(importlib.import_module("zarr.codecs.numcodecs"), codec)(**{option: bound} if option else {})


def _tool(like: str, kind: type[_File], made: Callable[..., Any], *words: str | None, **changes: Any) -> Tool:
    """A tool derived from the in-memory tool `like`."""
    (known,) = (tool for tool in TOOLS if tool.name == like)
    codec = partial(kind, made=partial(made, *words))  # type: ignore[call-arg]
    changes = {"timed": "a whole file, in the page cache", "max_threads": 1, "is_pointwise": False} | changes
    return dataclasses.replace(known, codec=codec, **changes)


_SHIPPED = {"package": "hdf5plugin", "module": "hdf5plugin", "may_crash": True}
#: For each name of --through: the libraries that read and write the files, and the tools.
THROUGH = {
    "hdf5": (
        f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}",
        [
            _tool("cusz", _Hdf5, _own_filter, "lorenzo"),
            _tool("cusz auto", _Hdf5, _own_filter, "auto"),
            _tool("SZ3 default", _Hdf5, _of_hdf5plugin, "SZ3", "absolute", name="SZ3", **_SHIPPED),
            _tool("SZ2", _Hdf5, _of_hdf5plugin, "SZ", "absolute", name="SZ", **_SHIPPED),
            _tool("zfp", _Hdf5, _of_hdf5plugin, "Zfp", "accuracy", **_SHIPPED),
            _tool("SPERR", _Hdf5, _of_hdf5plugin, "Sperr", "absolute", ndims=(2, 3), **_SHIPPED),
        ],
    ),
    "zarr": (
        f"zarr {zarr.__version__}, numcodecs {importlib.metadata.version('numcodecs')}",
        [
            _tool("cusz", _Zarr, _own_codec, "lorenzo"),
            _tool("cusz auto", _Zarr, _own_codec, "auto"),
            _tool("pcodec", _Zarr, _of_numcodecs, "PCodec", None, name="pcodec, lossless", bound="it is lossless"),
            _tool(
                *("zfp", _Zarr, _of_numcodecs, "ZFPY", "tolerance"),
                **{"name": "zfpy", "package": "zfpy", "module": "zfpy", "may_crash": True},
            ),
        ],
    ),
}
