"""A rank's local work at the end of a step: finding the value ranges of its blocks, and compressing them."""

from __future__ import annotations

import dataclasses
import math
import time
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import embedding

from .agreement import Description
from .blocks import PreparedBlock, field_shape
from .representation import is_exact, is_packed

__all__ = ["Compressed", "Compressor", "StepWork"]


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
        self._archives: dict[int, NDArray[np.uint8]] = {}  # by numbers of blocks

    def describe(self, block: PreparedBlock, ranges: bool) -> Description:
        """What to tell other ranks about a block; with its value range if the bound depends on it, or with `ranges`."""
        found = cusz_core.ValueRange(math.nan, math.nan, 0)
        parameters = block.parameters
        if is_exact(block.dtype):
            if ranges and block.field.size:
                found = cusz_core.ValueRange(float(block.field.min()), float(block.field.max()), block.field.size)
        elif ranges or parameters.mode == "rel" or block.wanted is not None:
            found = cusz_core.value_range(block.field, parameters.fill, threads=parameters.threads)
        where = (block.shape, block.start, block.count)
        return Description(
            block.name, block.dtype.name, *where, block.given, block.dimensions, parameters, found, block.wanted
        )

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
        kept = self._archives.get(number)
        if kept is not None and kept.nbytes >= needed:
            return kept
        try:
            self._archives[number] = np.empty(needed, np.uint8)
        except MemoryError:
            return None
        return self._archives[number]


class StepWork:
    """A rank's blocks at a step, and what is made of them.

    Attributes:
        blocks, descriptions: in the order in which they were put.
    """

    def __init__(
        self,
        compressor: Compressor,
        blocks: Sequence[PreparedBlock],
        descriptions: Sequence[Description],
        rows: Sequence[NDArray[Any]],
    ) -> None:
        """
        Args:
            rows: of the block table, one for each block, to be filled.
        """
        self.blocks, self.descriptions = blocks, descriptions
        self._compressor, self._rows = compressor, rows
        self._made: dict[int, Compressed] = {}
        self._on_host: dict[int, NDArray[Any]] = {}

    def compress(self, number: int, bound: float) -> Compressed:
        """Compresses a block, in place of what has been made of it before."""
        block, found = self.blocks[number], self.descriptions[number].range
        self._made[number] = self._compressor.compress(number, block, found, bound, self._rows[number])
        return self._made[number]

    def on_host(self, number: int) -> NDArray[Any]:
        """A block's field in host memory."""
        if number not in self._on_host:
            self._on_host[number] = embedding.on_host(self.blocks[number].field)
        return self._on_host[number]

    def made(self) -> list[Compressed]:
        """What has been made of the blocks."""
        return [self._made[number] for number in sorted(self._made)]

    def sizes(self) -> tuple[int, int]:
        """Bytes of what has been compressed, before and after."""
        return sum(self.blocks[number].raw_bytes for number in self._made), sum(len(m.archive) for m in self.made())
