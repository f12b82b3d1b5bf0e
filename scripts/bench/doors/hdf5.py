"""HDF5 by h5py, with our filter and those of hdf5plugin."""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path
from typing import Any

import h5py

import cusz_core
from cusz_core.hdf5 import Cusz

from . import Array, Case, Codec


class Hdf5:
    name, suffix = "hdf5", ".h5"

    def __init__(self) -> None:
        def ours(predictor: str) -> Any:
            return lambda case: Cusz(case.bound, "abs", predictor)

        def theirs(filter: str, bound: str) -> Any:
            return lambda case: getattr(importlib.import_module("hdf5plugin"), filter)(**{bound: case.bound})

        def of_hdf5plugin() -> str:
            return f"hdf5plugin {importlib.metadata.version('hdf5plugin')}"

        def own() -> str:
            return f"cusz {cusz_core.__version__}"

        self.codecs = [
            Codec("cusz", ours("lorenzo"), own),
            Codec("cusz auto", ours("auto"), own),
            Codec("SZ3", theirs("SZ3", bound="absolute"), of_hdf5plugin, may_crash=True),
            Codec("SZ", theirs("SZ", bound="absolute"), of_hdf5plugin, may_crash=True),
            Codec("zfp", theirs("Zfp", bound="accuracy"), of_hdf5plugin, may_crash=True),
            Codec("SPERR", theirs("Sperr", bound="absolute"), of_hdf5plugin, ndims=(2, 3), may_crash=True),
        ]

    def missing(self) -> str | None:
        try:
            importlib.import_module("hdf5plugin")
        except ImportError as error:
            return f"{error}: scripts/bench/peers.py through.py has it"
        return None

    def version(self) -> str:
        return f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"

    def write(self, path: Path, case: Case, codec: Codec) -> None:
        with h5py.File(path, "w") as file:
            options = codec.options(case)
            file.create_dataset("x", data=case.x, chunks=case.chunk, fillvalue=case.fill, **options)

    def read(self, path: Path, out: Array) -> None:
        with h5py.File(path) as file:
            file["x"].read_direct(out)
