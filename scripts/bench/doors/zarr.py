"""Zarr, format 3: our codec, and those of numcodecs that keep an array's values together."""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from pathlib import Path
from typing import Any

import zarr
from zarr.buffer.cpu import NDBuffer

import cusz_core
from cusz_core.zarr import CuszCodec

from . import Array, Case, Codec


class Zarr:
    name, suffix = "zarr", ".zarr"

    def __init__(self) -> None:
        def ours(predictor: str) -> Any:
            return lambda case: CuszCodec(case.bound, "abs", predictor=predictor)

        def of(package: str) -> Any:
            return lambda: f"{package} {importlib.metadata.version(package)}"

        def own() -> str:
            return f"cusz {cusz_core.__version__}"

        self.codecs = [
            Codec("cusz", ours("lorenzo"), own),
            Codec("cusz auto", ours("auto"), own),
            Codec("pcodec, lossless", lambda case: _of_numcodecs("PCodec"), of("pcodec")),
            Codec("zfpy", lambda case: _of_numcodecs("ZFPY", tolerance=case.bound), of("zfpy"), may_crash=True),
        ]

    def missing(self) -> str | None:
        try:
            importlib.import_module("pcodec")
            importlib.import_module("zfpy")
        except ImportError as error:
            return f"{error}: scripts/bench/peers.py through.py has it"
        return None

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
