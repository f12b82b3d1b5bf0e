"""A rank's local work at the end of a step: finding the value ranges of its blocks, and compressing them."""

from __future__ import annotations

import dataclasses
import math
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import Parameters, embedding
from cusz_core.parameters import Mode

from ..tables.blocktable import rows_of, table_dtype
from ..tables.boxes import field_shape
from ..tables.representation import is_exact, is_packed
from .agreement import Description
from .blocks import PreparedBlock

_MAX_BOUNDED = 1000
_UNKNOWN = cusz_core.ValueRange(math.nan, math.nan, 0)


class Compressed(NamedTuple):
    """A block that was compressed, with its row of the block table.

    Attributes:
        archive: valid until the next step.
        predictor: with which it was coded; None if it is stored raw.
    """

    archive: bytes | memoryview
    predictor: str | None
    raw_bytes: int
    eb_abs: float
    range: cusz_core.ValueRange
    outliers: int
    checksum: int
    seconds: float


def described(blocks: Sequence[PreparedBlock]) -> tuple[tuple[Description, ...], list[int]]:
    """What to tell about a rank's blocks, by variable; and the numbers of the blocks in this order."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, block in enumerate(blocks):
        # Blocks of a variable that differ in what they must agree on are told apart, so that it is seen.
        alike = (block.name, block.dtype, block.given, block.dimensions, block.shape, block.wanted)
        groups.setdefault((*alike, id(block.parameters)), []).append(number)
    told = []
    for numbers in groups.values():
        first = blocks[numbers[0]]
        what = (first.name, first.dtype.name, first.given, first.dimensions, first.shape)
        start, count = (
            np.array([getattr(blocks[i], name) for i in numbers], np.int64).reshape(len(numbers), -1)
            for name in ("start", "count")
        )
        told.append(Description(*what, first.parameters, first.wanted, start, count))
    return tuple(told), [number for numbers in groups.values() for number in numbers]


class Compressor:
    """Compresses the blocks of every step into the same memory.

    Args:
        ranges: value ranges are wanted, even where the bound does not depend on them.
    """

    def __init__(self, ranges: bool) -> None:
        self._ranges = ranges
        self._archives: dict[int, tuple[int, NDArray[np.uint8]]] = {}  # by numbers of blocks, with raw bytes
        self._bounded: dict[tuple[int, float], tuple[Parameters, Parameters]] = {}  # by identity and bound

    def range_before(self, block: PreparedBlock) -> cusz_core.ValueRange:
        """The value range of a block if it must be known before it is compressed; else NaN."""
        if is_exact(block.dtype):
            if self._ranges and block.field.size:
                return cusz_core.ValueRange(float(block.field.min()), float(block.field.max()), block.field.size)
            return _UNKNOWN
        parameters = block.parameters
        is_needed = parameters.mode == "rel" or block.wanted is not None or (self._ranges and block.given == "float16")
        if not is_needed:
            return _UNKNOWN
        return cusz_core.value_range(block.field, parameters.fill, threads=parameters.threads)

    def compress(self, number: int, block: PreparedBlock, found: cusz_core.ValueRange, bound: float) -> Compressed:
        """Compresses a block; one that is stored exactly is packed, or stays as it is.

        Args:
            number: of the block in the step.
            found: the range of its values, if it is known.
            bound: the absolute bound; in mode "pw_rel" that relative to every value.
        """
        started = time.perf_counter()
        if is_exact(block.dtype):
            values = memoryview(block.field.reshape(-1).view(np.uint8))
            stored = embedding.packed(block.field, "zstd") if is_packed(block.parameters) else values
            checksum = zlib.crc32(values)
            seconds = time.perf_counter() - started
            return Compressed(stored, None, values.nbytes, bound, found, 0, checksum, seconds)
        ranges = self._ranges and math.isnan(found.min)
        made = cusz_core.compress_described(
            block.field, self._with_bound(block.parameters, bound), out=self._memory(number, block), ranges=ranges
        )
        seconds = time.perf_counter() - started
        if block.parameters.mode == "pw_rel":
            bound = made.eb_abs  # NaN, or 0 for a block stored raw
        if ranges:
            found = made.range
        return Compressed(
            made.archive, made.predictor, block.raw_bytes, bound, found, made.outliers, made.checksum, seconds
        )

    def _memory(self, number: int, block: PreparedBlock) -> NDArray[np.uint8] | None:
        """Memory for an archive, kept from step to step: fresh pages cost more than the copy. Pages beyond the archive
        are never touched and take no physical memory. None if address space is limited."""
        raw_bytes, kept = self._archives.get(number, (-1, None))
        if raw_bytes < block.raw_bytes:
            try:
                kept = np.empty(cusz_core.max_archive_bytes(field_shape(block.count), block.dtype), np.uint8)
            except MemoryError:
                return None
            self._archives[number] = block.raw_bytes, kept
        return kept

    def _with_bound(self, parameters: Parameters, bound: float) -> Parameters:
        """The parameters with an absolute bound, or one relative to every value."""
        key = (id(parameters), bound)
        known = self._bounded.get(key)
        if known is None or known[0] is not parameters:
            if len(self._bounded) > _MAX_BOUNDED:
                self._bounded.clear()
            mode: Mode = "pw_rel" if parameters.mode == "pw_rel" else "abs"
            known = self._bounded[key] = parameters, dataclasses.replace(parameters, eb=bound, mode=mode)
        return known[1]


class StepWork:
    """A rank's blocks at a step, and what is made of them.

    Attributes:
        blocks: in the order in which they were put.
        ranges: of their values, as far as they are known before they are compressed.
    """

    def __init__(
        self, compressor: Compressor, blocks: Sequence[PreparedBlock], ranges: Sequence[cusz_core.ValueRange]
    ) -> None:
        self.blocks, self.ranges = blocks, ranges
        self._compressor = compressor
        self._made: dict[int, Compressed] = {}
        self._on_host: dict[int, NDArray[Any]] = {}

    def compress(self, number: int, bound: float) -> Compressed:
        """Compresses a block, in place of what has been made of it before."""
        self._made[number] = made = self._compressor.compress(number, self.blocks[number], self.ranges[number], bound)
        return made

    def on_host(self, number: int) -> NDArray[Any]:
        """A block's field in host memory."""
        if number not in self._on_host:
            self._on_host[number] = embedding.on_host(self.blocks[number].field)
        return self._on_host[number]

    def compress_all(self, bounds: Mapping[str, float]) -> None:
        """Compresses the blocks that have not been compressed yet, and whose bounds are known."""
        for number, block in enumerate(self.blocks):
            if block.wanted is None and number not in self._made:
                self.compress(number, bounds[block.name])

    def with_blocks(self, blocks: Sequence[PreparedBlock]) -> StepWork:
        """The same of other blocks, which have the same values."""
        other = StepWork(self._compressor, blocks, self.ranges)
        other._made.update(self._made)
        return other

    def made(self) -> list[Compressed]:
        """What has been made of the blocks."""
        return [self._made[number] for number in sorted(self._made)]

    def sizes(self) -> tuple[int, int]:
        """Bytes of what has been compressed, before and after."""
        return sum(self.blocks[number].raw_bytes for number in self._made), sum(len(m.archive) for m in self.made())


def parts_of(blocks: Sequence[PreparedBlock], made: Sequence[Compressed], rank: int) -> dict[str, NDArray[np.float64]]:
    """A rank's rows of the table of every variable, as they are stored; the step is still to be set.

    Args:
        blocks, made: of the rank, in the order in which they were put.
    """
    of_name: dict[str, list[int]] = {}
    for number, block in enumerate(blocks):
        of_name.setdefault(block.name, []).append(number)
    parts = {}
    for name, numbers in of_name.items():
        ndim = len(blocks[numbers[0]].shape)
        table = np.zeros(len(numbers), table_dtype(ndim))
        some = [(blocks[i], made[i]) for i in numbers]
        table["rank"] = rank
        table["device"] = [block.device for block, _ in some]
        table["start"] = [block.start for block, _ in some]
        table["count"] = [block.count for block, _ in some]
        table["archive_bytes"] = [len(compressed.archive) for _, compressed in some]
        table["min"] = [compressed.range.min for _, compressed in some]
        table["max"] = [compressed.range.max for _, compressed in some]
        table["min"][[compressed.range.values == 0 for _, compressed in some]] = np.nan
        table["max"][np.isnan(table["min"])] = np.nan
        for column in ("raw_bytes", "eb_abs", "outliers", "checksum", "seconds"):
            table[column] = [getattr(compressed, column) for _, compressed in some]
        parts[name] = rows_of(table)
    return parts
