"""A rank's local work at the end of a step: finding the value ranges of its blocks, and compressing them."""

from __future__ import annotations

import dataclasses
import math
import time
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import embedding

from .agreement import Description
from .blocks import PreparedBlock, field_shape
from .representation import is_exact, is_packed

__all__ = ["Compressed", "Compressor"]


class Compressed(NamedTuple):
    """A block that was compressed.

    Attributes:
        archive: valid until the next step.
        predictor: with which it was coded; None if it is stored raw.
    """

    archive: bytes | memoryview
    predictor: str | None


class Compressor:
    """Compresses the blocks of every step into the same memory."""

    def __init__(self) -> None:
        self._archives: list[NDArray[np.uint8]] = []

    def describe(self, block: PreparedBlock, ranges: bool) -> Description:
        """What to tell other ranks about a block; with its value range if the bound depends on it, or with `ranges`."""
        found = cusz_core.ValueRange(math.nan, math.nan, 0)
        parameters = block.parameters
        if is_exact(block.dtype):
            if ranges and block.field.size:
                found = cusz_core.ValueRange(float(block.field.min()), float(block.field.max()), block.field.size)
        elif ranges or parameters.mode == "rel":
            found = cusz_core.value_range(block.field, parameters.fill, threads=parameters.threads)
        where = (block.shape, block.start, block.count)
        return Description(block.name, block.dtype.name, *where, block.given, block.dimensions, parameters, found)

    def compress(
        self, number: int, block: PreparedBlock, found: cusz_core.ValueRange, bound: float, row: NDArray[Any]
    ) -> Compressed:
        """Compresses a block; one that is stored exactly is packed, or stays as it is.

        Args:
            number: of the block in the step.
            found: the range of its values.
            bound: the absolute bound; in mode "pw_rel" that relative to every value.
            row: of the block table, to be filled.
        """
        row["device"] = block.device
        row["start"], row["count"] = block.start, block.count
        row["eb_abs"], row["min"], row["max"] = bound, found.min, found.max
        started = time.perf_counter()
        if is_exact(block.dtype):
            values = memoryview(block.field.reshape(-1).view(np.uint8))
            stored = embedding.packed(block.field, "zstd") if is_packed(block.parameters) else values
            row["raw_bytes"], row["archive_bytes"] = values.nbytes, len(stored)
            row["checksum"], row["seconds"] = zlib.crc32(values), time.perf_counter() - started
            return Compressed(stored, None)
        is_pointwise = block.parameters.mode == "pw_rel"
        parameters = dataclasses.replace(block.parameters, eb=bound, mode="pw_rel" if is_pointwise else "abs")
        archive: bytes | memoryview = cusz_core.compress_with(block.field, parameters, out=self._memory(number, block))
        seconds = time.perf_counter() - started
        info = cusz_core.inspect(archive)
        row["raw_bytes"], row["archive_bytes"] = info.raw_bytes, info.archive_bytes
        if is_pointwise:
            row["eb_abs"] = info.eb_abs  # NaN, or 0 for a block stored raw
        row["outliers"], row["checksum"], row["seconds"] = info.outliers, info.checksum, seconds
        return Compressed(archive, info.predictor)

    def _memory(self, number: int, block: PreparedBlock) -> NDArray[np.uint8] | None:
        """Memory for an archive, kept from step to step: fresh pages cost more than the copy. Pages beyond the archive
        are never touched and take no physical memory. None if address space is limited."""
        needed = cusz_core.max_archive_bytes(field_shape(block.count), block.dtype)
        if number < len(self._archives) and self._archives[number].nbytes >= needed:
            return self._archives[number]
        try:
            memory = np.empty(needed, np.uint8)
        except MemoryError:
            return None
        self._archives[number : number + 1] = [memory]
        return memory
